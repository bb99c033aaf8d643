//! Stages that the model does not cover: they panic, or they skip all or nearly all samples.

use super::{VersionedSource, all, cause, errors, good, number, numbers, saved};
use crate::support::Every;
use shardstream::collate::Columns;
use shardstream::loader::{Failures, LastBatch, LoaderBuilder, OnError};
use shardstream::prelude::*;
use shardstream::store::Budget;
use shardstream::{Error, ErrorKind, Result, State};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// Runs `test` on a thread and fails if it takes too long.
pub(super) fn watched(test: impl FnOnce() + Send + 'static) {
    let (done, waiting) = mpsc::channel();
    let test = thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    match waiting.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("this hangs"),
        _ => test.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// A loader with one stream per shard, in the order of the list.
fn samples(sizes: &[usize]) -> LoaderBuilder<Sample> {
    Loader::builder(VersionedSource::of(sizes).dataset(sizes.len()).streams(sizes.len()).build().unwrap())
}

type Stage = fn(LoaderBuilder<Sample>) -> LoaderBuilder<u64>;

/// Stages that panic at the second sample of the second shard.
const PANICS: [(&str, Stage); 6] = [
    ("filter", |items| {
        let items = items.filter(|sample| {
            assert!(number(sample) != 1001, "on purpose");
            true
        });
        items.map(|sample| Ok(number(&sample)))
    }),
    ("before_shuffle", |items| {
        let items = items.before_shuffle(|sample| {
            assert!(number(&sample) != 1001, "on purpose");
            Ok(Some(sample))
        });
        items.map(|sample| Ok(number(&sample)))
    }),
    ("map", |items| {
        items.map(|sample| {
            assert!(number(&sample) != 1001, "on purpose");
            Ok(number(&sample))
        })
    }),
    ("filter_map", |items| {
        items.filter_map(|sample| {
            assert!(number(&sample) != 1001, "on purpose");
            Ok(Some(number(&sample)))
        })
    }),
    ("flat_map", |items| {
        items.flat_map(|sample| {
            assert!(number(&sample) != 1001, "on purpose");
            Ok([number(&sample)])
        })
    }),
    ("an iterator of flat_map", |items| {
        items.flat_map(|sample| {
            let number = number(&sample);
            Ok((0..1).map(move |_| {
                assert!(number != 1001, "on purpose");
                number
            }))
        })
    }),
];

#[test]
fn a_panic_of_a_stage_is_the_error_of_one_sample() {
    for (name, stage) in PANICS {
        for (threads, shuffle) in [(0, 0), (2, 0), (0, 3), (2, 3)] {
            let items = stage(samples(&[4, 5])).shuffle(shuffle).threads(threads);
            let loader = items.batch(2).build().unwrap();
            let found: Vec<_> = loader.epoch(0).collect();
            let errors: Vec<&Error> = found.iter().filter_map(|batch| batch.as_ref().err()).collect();
            let [error] = errors[..] else { panic!("{name}: {errors:?}") };
            assert!(
                matches!(error.kind(), ErrorKind::Panicked(message) if message == "on purpose"),
                "{error:?}"
            );
            let place = (error.location().key(), error.location().shard());
            assert_eq!(place, (Some("01-001"), Some(&*super::url(1))), "{name}");
            let batches: Vec<_> = found.iter().flatten().map(|batch| batch.to_vec()).collect();
            assert!(batches.iter().every(|batch| batch.len() == 2), "{name}: {batches:?}");
            let mut numbers = batches.concat();
            numbers.sort_unstable();
            assert_eq!(numbers, [0, 1, 2, 3, 1000, 1002, 1003, 1004], "{name}");
        }
    }
}

#[test]
fn outputs_before_a_panic_are_kept() {
    for threads in [0, 2] {
        let items = samples(&[3]).threads(threads).flat_map(|sample| {
            let number = number(&sample);
            Ok((0..3).map(move |part| {
                assert!((number, part) != (1, 2), "on purpose");
                10 * number + part
            }))
        });
        let loader = items.batch(1).build().unwrap();
        let found: Vec<_> = all(loader.epoch(0), 100);
        assert_eq!(good(&found).concat(), [0, 1, 2, 10, 11, 20, 21, 22]);
        assert_eq!(found[5].0, Err("panicked".into()));
        for (at, (_, state)) in found.iter().enumerate() {
            let rest = good(&all(loader.restore(&saved(state)).unwrap(), 100));
            assert_eq!(rest, good(&found[at + 1..]), "after {at}");
        }
    }
}

#[test]
fn streams_keep_the_order_of_outputs_and_batches_interleave_them() {
    for threads in [0, 1, 3] {
        let items = samples(&[2, 2]).threads(threads).flat_map(|sample| {
            let number = number(&sample);
            let many = if number == 1000 { 0 } else { 1 + number % 1000 * 2 };
            Ok((0..many).map(move |part| format!("{number}.{part}")))
        });
        let found = good(&all(items.batch(2).build().unwrap().epoch(0), 100));
        let found: Vec<String> = found.iter().map(|items| items.join(" ")).collect();
        assert_eq!(found, ["0.0 1001.0", "1.0 1001.1", "1.1 1001.2", "1.2"]);
    }
}

/// Stages that skip every sample.
fn nothing() -> [(&'static str, Stage); 6] {
    [
        ("filter", |items| items.filter(|_| false).map(|sample| Ok(number(&sample)))),
        ("before_shuffle", |items| items.before_shuffle(|_| Ok(None)).map(|sample| Ok(number(&sample)))),
        ("filter_map", |items| items.filter_map(|_| Ok(None))),
        ("flat_map", |items| items.flat_map(|_| Ok([]))),
        ("rows that are too long", |items| {
            items.map(|sample| Ok(vec![number(&sample)])).chunked(1000, 7).map(|row| Ok(row[0]))
        }),
        ("no row", |items| {
            items.map(|sample| Ok(vec![number(&sample)])).chunked(2, 7).filter_map(|_| Ok(None))
        }),
    ]
}

#[test]
fn filtering_out_everything_ends_one_epoch_and_fails_endless_ones() {
    watched(|| {
        for (name, stage) in nothing() {
            for (threads, shuffle) in [(0, 0), (2, 0), (3, 4)] {
                let items = stage(samples(&[4, 5, 6, 2])).shuffle(shuffle).threads(threads);
                for last in [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad] {
                    let loader = items.clone().last_batch(last).batch(3).build().unwrap();
                    assert_eq!(loader.steps(), None, "{name}");
                    let mut batches = loader.epoch(0);
                    assert!(batches.next().is_none() && batches.next().is_none(), "{name}");
                    let restored = loader.restore(&saved(&batches.state())).unwrap();
                    assert_eq!(restored.count(), 0, "{name}");
                    let found: Vec<_> = loader.epochs(0).take(1000).collect();
                    assert!(!found.is_empty() && found.len() <= 4, "{name}: {found:?}");
                    for error in found.into_iter().map(Result::unwrap_err) {
                        assert!(matches!(error.kind(), ErrorKind::NoShards(_)), "{name}: {error:?}");
                        assert!(error.to_string().contains("in 100 epochs"), "{name}: {error}");
                    }
                }
            }
        }
    });
}

#[test]
fn a_map_that_always_fails_eventually_ends_the_run() {
    watched(|| {
        for threads in [0, 2] {
            let items = samples(&[3]).map(|_| Err::<u64, _>(Error::step("no"))).threads(threads);
            let found: Vec<_> = all(items.batch(2).build().unwrap().epochs(0), 1000);
            let errors = errors(&found);
            assert_eq!(errors.len(), 301, "a hundred epochs of samples, then the error");
            assert!(
                errors[..300].iter().all(|error| error == "no") && errors[300] == "no_shards",
                "{errors:?}"
            );
        }
    });
}

/// A stage that keeps the numbers for which the predicate is true.
type Keeping = fn(LoaderBuilder<Sample>, fn(u64) -> bool) -> LoaderBuilder<u64>;

/// One stream skips nearly all of its samples. While the loader waits for an item of this stream, the short
/// queues of the other streams fill up. The run must not hang.
#[test]
fn a_selective_stream_does_not_hold_up_others() {
    watched(|| {
        let keeps = |number: u64| number / 1000 != 2 || number % 1000 == 99;
        let stages: [Keeping; 3] = [
            |items, keeps| {
                items.filter(move |sample| keeps(number(sample))).map(|sample| Ok(number(&sample)))
            },
            |items, keeps| {
                items.filter_map(move |sample| Ok(Some(number(&sample)).filter(|number| keeps(*number))))
            },
            // The other streams return ten items for each sample.
            |items, keeps| {
                items.flat_map(move |sample| {
                    let number = number(&sample);
                    let many = if number / 1000 == 2 { u64::from(keeps(number)) } else { 10 };
                    Ok((0..many).map(move |_| number))
                })
            },
        ];
        for stage in stages {
            for endless in [true, false] {
                let run = |threads| {
                    let items = stage(samples(&[100; 4]), keeps).threads(threads).batch(4);
                    let loader = items.build().unwrap();
                    let batches = if endless { loader.epochs(0) } else { loader.epoch(0) };
                    good(&all(batches, 250))
                };
                let expected = run(0);
                assert!(expected.len() >= 100 && expected[0].contains(&2099), "{expected:?}");
                for threads in [1, 4] {
                    assert_eq!(run(threads), expected);
                }
            }
        }
    });
}

/// The budget's memory is small: each queue has room for one small chunk, and few rows are queued.
#[test]
fn a_selective_stream_holds_up_none_with_little_memory() {
    watched(|| {
        let sizes = [60; 4];
        let dataset = |bytes| {
            let store = Store::builder()
                .budget(Budget::new(1, bytes))
                .with_source("shelf", VersionedSource::of(&sizes) as _);
            let list = ShardList::from_urls((0..4).map(super::url));
            let dataset = Dataset::builder(list).store(store.build().unwrap()).topology(Topology::single());
            Loader::builder(dataset.streams(4).build().unwrap())
        };
        let keeps = |sample: &Sample| number(sample) / 1000 != 1 || number(sample) % 20 == 19;
        let run = |threads, bytes| {
            let items =
                dataset(bytes).filter_map(move |sample| Ok(Some(sample).filter(keeps))).threads(threads);
            let rows = items.flat_map(|sample| Ok([sample.clone(), sample])).batch(4);
            let column = Columns::new().with_fn("x", [256, 1024], |sample: &Sample, row: &mut [f32]| {
                row.fill(number(sample) as f32);
                Ok(())
            });
            let loader = rows.collate(column).build().unwrap();
            let batches = loader.epochs(0).take(40).map(|batch| {
                let rows = batch.unwrap().take("x").unwrap();
                rows.as_slice::<f32>()
                    .unwrap()
                    .chunks(256 * 1024)
                    .map(|row| (row[0], row[row.len() - 1]))
                    .collect()
            });
            batches.collect::<Vec<Vec<(f32, f32)>>>()
        };
        let expected = run(0, 64 << 20);
        assert_eq!(expected[0], [(0.0, 0.0), (1019.0, 1019.0), (2000.0, 2000.0), (3000.0, 3000.0)]);
        for (threads, bytes) in [(1, 0), (3, 0), (2, 1 << 20), (2, 64 << 20)] {
            assert_eq!(run(threads, bytes), expected, "{threads} threads, {bytes} bytes");
        }
    });
}

#[test]
fn a_state_of_other_stages_is_refused_with_the_difference() {
    let source = VersionedSource::of(&[9, 9]);
    let build = |stage: Stage| {
        let dataset = source.dataset(2).streams(2).build().unwrap();
        stage(Loader::builder(dataset)).threads(0).batch(2).build().unwrap()
    };
    let stages: [(&str, Stage); 6] = [
        ("none", |items| items.map(|sample| Ok(number(&sample)))),
        ("filter", |items| items.filter(|_| true).map(|sample| Ok(number(&sample)))),
        ("filter_map", |items| items.filter_map(|sample| Ok(Some(number(&sample))))),
        ("filter_map, flat_map", |items| {
            items.filter_map(|sample| Ok(Some(number(&sample)))).flat_map(|number| Ok([number]))
        }),
        ("chunked(2, no separator)", |items| {
            items.map(|sample| Ok(vec![number(&sample)])).chunked(2, None).map(|row| Ok(row[0]))
        }),
        ("chunked(3, separator)", |items| {
            items.map(|sample| Ok(vec![number(&sample)])).chunked(3, 7).map(|row| Ok(row[0]))
        }),
    ];
    let state = |stage: Stage| -> State {
        let mut batches = build(stage).epoch(0);
        batches.next().unwrap().unwrap();
        saved(&batches.state())
    };
    for (there, of) in stages {
        let state = state(of);
        for (here, stage) in stages {
            let restored = build(stage).restore(&state);
            if here == there {
                assert!(restored.is_ok(), "{here}");
                continue;
            }
            let error = restored.err().unwrap();
            assert!(matches!(error.kind(), ErrorKind::State(_)), "{error:?}");
            let why = format!(
                "the stages that change the number of items are {there} in the state, and {here} here"
            );
            assert!(error.to_string().contains(&why), "{error}");
        }
    }
    // Functions cannot be compared, so a loader with another `map` accepts the state.
    assert!(build(|items| items.map(|sample| Ok(number(&sample) + 1))).restore(&state(stages[0].1)).is_ok());
}

#[test]
fn stages_after_rows_fail_and_panic_per_row() {
    for threads in [0, 2] {
        let rows = samples(&[20]).threads(threads).map(|sample| Ok(vec![number(&sample)])).chunked(2, None);
        let rows = rows.map(|row| match row[0] {
            6 => Err(Error::step("bad luck")),
            10 => panic!("on purpose"),
            _ => Ok(row),
        });
        let loader = rows.batch(1).build().unwrap();
        let found = all(loader.epoch(0), 100);
        assert_eq!(errors(&found), ["bad luck", "panicked"]);
        let expected = (0..10).map(|row| 2 * row).filter(|first| ![6, 10].contains(first));
        assert_eq!(good(&found).concat(), expected.map(|first| vec![first, first + 1]).collect::<Vec<_>>());
        for (at, (_, state)) in found.iter().enumerate().filter(|(_, (item, _))| item.is_ok()) {
            assert!(all(loader.restore(&saved(state)).unwrap(), 100) == found[at + 1..], "after {at}");
        }
        let error: Error = loader.epoch(0).find_map(Result::err).unwrap();
        assert_eq!(cause(&error), "bad luck");
        assert!(error.location().shard().is_some(), "it says where: {error:?}");
    }
}

/// Samples that `before_shuffle` returns are shuffled. Each of them has the position of the sample that
/// `before_shuffle` received, also after a restore. If `before_shuffle` returns an error, the sample that it
/// received counts as failed.
#[test]
fn outputs_of_stages_before_the_buffer_are_shuffled() {
    let source: Arc<VersionedSource> = VersionedSource::of(&[20, 20]);
    let list = ShardList::from_urls([super::url(0), super::url(1)]);
    let index = Index::builder().store(source.store()).build(&list).unwrap();
    let mut orders = Vec::new();
    for (shuffle, indexed) in [(0, false), (5, false), (5, true)] {
        let dataset = source.dataset(2).streams(2);
        let dataset = if indexed { dataset.index(index.clone()) } else { dataset };
        let items =
            Loader::builder(dataset.build().unwrap()).before_shuffle(|sample| match number(&sample) % 1000 {
                7 => Err(Error::step("bad luck")),
                number if number % 3 == 0 => Ok(None),
                _ => Ok(Some(Sample::new(sample.key()).with("drawn", sample.rng(3).below(1 << 30) as i64))),
            });
        let items = items.shuffle(shuffle).map(|mut sample| {
            let drawn = sample.rng(3).below(1 << 30) as i64;
            assert_eq!(
                sample.take::<i64>("drawn")?,
                drawn,
                "the random numbers depend on the sample's position"
            );
            assert_eq!(sample.shard(), super::url(number(&sample) as usize / 1000));
            Ok(number(&sample))
        });
        let loader = items.batch(2).on_error(OnError::skip(Failures::all())).build().unwrap();
        let found = all(loader.epoch(0), 100);
        for (at, (_, state)) in found.iter().enumerate() {
            assert!(all(loader.restore(&saved(state)).unwrap(), 100) == found[at + 1..], "after {at}");
        }
        let ledger = found.last().unwrap().1.ledger();
        let mut keys: Vec<_> = ledger.entries().iter().map(|skip| skip.key.as_deref().unwrap()).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["00-007", "01-007"]);
        orders.push(good(&found).concat());
    }
    assert_eq!(orders[0][..6], [1, 1001, 2, 1002, 4, 1004]);
    assert_ne!(orders[0], orders[1]);
    assert_eq!(orders[1], orders[2]);
    orders[1].sort_unstable();
    let kept = |number: &u64| number % 1000 != 7 && !(number % 1000).is_multiple_of(3);
    assert_eq!(orders[1], (0..20).chain(1000..1020).filter(kept).collect::<Vec<_>>());
}

/// An error that the function of `before_shuffle` returns costs one sample, even if errors of its kind
/// usually mean a damaged shard or a network fault.
#[test]
fn any_failure_before_the_buffer_loses_one_sample() {
    let kinds: [fn() -> Error; 2] =
        [|| ErrorKind::Io(std::io::ErrorKind::UnexpectedEof.into()).into(), || ErrorKind::Checksum.into()];
    for (kind, is_skipped) in kinds.into_iter().zip([false, true]) {
        for (threads, shuffle) in [(0, 0), (2, 3)] {
            let items = samples(&[4, 5]).before_shuffle(move |sample| match number(&sample) {
                1001 => Err(kind()),
                _ => Ok(Some(sample)),
            });
            let items = items.map(|sample| Ok(number(&sample))).shuffle(shuffle).threads(threads).batch(1);
            let policy = OnError::skip(Failures::all()).rest_of_shard(true);
            let found = all(items.on_error(policy).build().unwrap().epoch(0), 100);
            let mut numbers = good(&found).concat();
            numbers.sort_unstable();
            assert_eq!(numbers, [0, 1, 2, 3, 1000, 1002, 1003, 1004]);
            assert_eq!(errors(&found), if is_skipped { vec![] } else { vec!["io"] });
        }
    }
}

/// If a sample of the buffer cannot be read during a restore, the restore fails: it does not continue with
/// the next sample.
#[test]
fn an_outage_while_a_buffer_is_refilled_fails_the_restore() {
    let source: Arc<VersionedSource> = VersionedSource::of(&[30]);
    let away = Arc::new(AtomicBool::new(false));
    for shuffle in [0, 6] {
        let is_away = Arc::clone(&away);
        let items = Loader::builder(source.dataset(1).build().unwrap()).before_shuffle(move |sample| {
            match number(&sample) == 4 && is_away.load(Relaxed) {
                true => Err(ErrorKind::Io(std::io::ErrorKind::TimedOut.into()).into()),
                false => Ok(Some(sample)),
            }
        });
        let loader =
            items.shuffle(shuffle).map(|sample| Ok(number(&sample))).threads(0).batch(1).build().unwrap();
        let whole = all(loader.epoch(0), 100);
        let (at, state) = whole.iter().map(|(_, state)| state).enumerate().nth(9).unwrap();
        away.store(true, Relaxed);
        let found = loader.restore(&saved(state)).map(|batches| all(batches, 100));
        away.store(false, Relaxed);
        let found = found.unwrap();
        assert_eq!(found[0].0, Err("io".into()), "shuffle {shuffle}");
        assert!(good(&found).is_empty(), "shuffle {shuffle}: {:?}", good(&found));
        assert!(all(loader.restore(&saved(state)).unwrap(), 100) == whole[at + 1..]);
    }
}

/// With two predicates, a sample is selected if both are true.
#[test]
fn several_selects_are_combined() {
    let source: Arc<VersionedSource> = VersionedSource::of(&[12]);
    let dataset = source.dataset(1).build().unwrap();
    let items = Loader::builder(dataset.clone()).filter(|sample| number(sample).is_multiple_of(2));
    let items = items.filter(|sample| number(sample).is_multiple_of(3)).map(|sample| Ok(number(&sample)));
    let found = good(&all(items.batch(2).build().unwrap().epoch(0), 100));
    assert_eq!(found, [[0, 6]]);
    assert_eq!(
        good(&all(numbers(dataset).batch(12).build().unwrap().epoch(0), 9)),
        [(0..12).collect::<Vec<_>>()]
    );
}
