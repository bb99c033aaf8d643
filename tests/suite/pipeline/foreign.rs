//! Panics in the caller's code outside of stages: drivers that pin memory, `Clone`, `Drop`, `Display`, and
//! functions that make stages. Each panic becomes an error; no panic hangs a run or reaches the trainer.

use super::stages::watched;
use super::{VersionedSource, all, errors, good, numbers};
use crate::support::versioned_source::counts;
use shardstream::adapters::GroupBy;
use shardstream::collate::{Columns, Scalar, TensorBatch};
use shardstream::loader::{Failures, LastBatch, OnError};
use shardstream::prelude::*;
use shardstream::tensor::BatchMemory;
use shardstream::{Error, ErrorKind};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A number whose `clone` panics for multiples of 3.
struct Fickle(u64);

impl Clone for Fickle {
    fn clone(&self) -> Self {
        assert!(!self.0.is_multiple_of(3), "on purpose");
        Fickle(self.0)
    }
}

/// If `clone` panics while a batch is padded, that batch is an error, on any thread.
#[test]
fn a_clone_that_panics_fails_its_batch() {
    watched(|| {
        for threads in [0, 2] {
            let loader = |policy| {
                let source = VersionedSource::of(&[10]);
                let dataset = source.dataset(1).index(counts(&[10])).build().unwrap();
                let items = numbers(dataset).map(|number| Ok(Fickle(number))).threads(threads);
                items.batch(4).last_batch(LastBatch::Pad).on_error(policy).build().unwrap()
            };
            let found: Vec<_> = loader(OnError::stop()).epoch(0).collect();
            let kinds: Vec<_> = found.iter().map(|batch| batch.as_ref().map(|batch| batch.valid())).collect();
            // Item 9, the last one, cannot be cloned, and neither can item 0, the first of the epoch.
            assert!(matches!(kinds[..], [Ok(4), Ok(4), Err(_), Err(_)]), "{kinds:?}");
            let error = found[3].as_ref().err().unwrap();
            assert!(matches!(error.kind(), ErrorKind::Panicked(_)), "{error}");
        }
    });
}

/// When the driver panics: at every pin, at later pins only, or when memory is unpinned.
#[derive(Debug, Clone, Copy)]
enum PanicAt {
    FirstPin,
    LaterPin,
    Unpin,
}

struct Registered(PanicAt);

impl Drop for Registered {
    fn drop(&mut self) {
        assert!(!matches!(self.0, PanicAt::Unpin), "unpinning on purpose");
    }
}

struct Pins(PanicAt, AtomicUsize);

impl BatchMemory for Pins {
    fn pin(
        &self,
        _: &[u8],
    ) -> std::result::Result<Box<dyn Any + Send + Sync>, Box<dyn std::error::Error + Send + Sync>> {
        let before = self.1.fetch_add(1, Relaxed);
        let panics = matches!((self.0, before), (PanicAt::FirstPin, _) | (PanicAt::LaterPin, 2..));
        assert!(!panics, "pinning on purpose");
        Ok(Box::new(Registered(self.0)))
    }
}

/// The batches are the same as without a driver, and the run does not hang.
#[test]
fn a_driver_that_panics_changes_no_batch() {
    watched(|| {
        let source = VersionedSource::of(&[60, 60]);
        let run = |threads, driver: Option<PanicAt>| {
            let dataset = source.dataset(2).streams(2).build().unwrap();
            let columns = Columns::new().with("n", Scalar::<i64>::new("cls"));
            let columns = match driver {
                Some(driver) => columns.memory(Arc::new(Pins(driver, AtomicUsize::new(0)))),
                None => columns,
            };
            let loader = Loader::builder(dataset).collate(columns).threads(threads).batch(7).build().unwrap();
            // All batches are kept, so that the loader needs more memory.
            let batches: Vec<_> = loader.epoch(0).map(Result::unwrap).collect();
            let shown = |batch: &TensorBatch| batch["n"].as_slice::<i64>().unwrap().to_vec();
            batches.iter().map(shown).collect::<Vec<_>>()
        };
        let expected = run(0, None);
        for driver in [PanicAt::FirstPin, PanicAt::LaterPin, PanicAt::Unpin] {
            for threads in [0, 1, 3] {
                assert_eq!(run(threads, Some(driver)), expected, "{driver:?}, {threads} threads");
            }
        }
    });
}

/// An item that panics when it is dropped, if its number is 17.
struct Bomb(u64);

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(self.0 != 17 || std::thread::panicking(), "dropped on purpose");
    }
}

/// A panic while making a stage for a later pass ends the run with an error; a panic while an item is dropped
/// is an error of its sample; an error that panics while it is shown is still counted.
#[test]
fn panics_of_foreign_code_never_reach_the_trainer_and_never_hang() {
    #[derive(Debug)]
    struct Unspeakable;
    impl std::fmt::Display for Unspeakable {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("shown on purpose")
        }
    }
    impl std::error::Error for Unspeakable {}

    watched(|| {
        for threads in [0, 1, 3] {
            let items = || numbers(VersionedSource::of(&[30]).dataset(1).build().unwrap()).threads(threads);
            // A function makes the stage for each pass. It panics for the second pass in one run, and for the
            // first pass in another run.
            for fine in [1, 0] {
                // The builder makes one stage to check the stage's options.
                let before = 1;
                let made = Arc::new(AtomicUsize::new(0));
                let staged = items().stage("makes", move || {
                    assert!(made.fetch_add(1, Relaxed) < before + fine, "made on purpose");
                    GroupBy::new(1, |_: &u64| Ok(0))
                });
                let found: Vec<_> = staged.batch(5).build().unwrap().epochs(0).take(20).collect();
                let failed = found.last().unwrap().as_ref().unwrap_err();
                assert!(matches!(failed.kind(), ErrorKind::Panicked(_)), "{failed}");
                assert_eq!(found.len(), 6 * fine + 1, "{threads} threads");
            }
            // An item that is filtered out is dropped, and the drop panics.
            let dropped = items().map(|number| Ok(Bomb(number)));
            let dropped = dropped.filter_map(|bomb| Ok(Some(bomb).filter(|bomb| bomb.0 != 17)));
            let dropped = dropped.map(|bomb| Ok(bomb.0));
            let found = all(dropped.batch(5).build().unwrap().epoch(0), usize::MAX);
            assert_eq!(errors(&found), ["panicked"], "{threads} threads");
            assert_eq!(good(&found).concat().len(), 29);
            // An error panics when its text is formatted for the ledger and the log.
            let unspeakable = items().map(|number| match number {
                7 => Err(Error::step(Unspeakable)),
                _ => Ok(number),
            });
            let loader = unspeakable.on_error(OnError::skip(Failures::all())).batch(5).build().unwrap();
            let mut batches = loader.epoch(0);
            assert_eq!(good(&all(&mut batches, usize::MAX)).concat().len(), 29);
            assert_eq!(batches.state().ledger().skipped(), 1);
        }
    });
}
