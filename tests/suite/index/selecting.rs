//! Indexes of selected samples: reading with them returns the same samples as filtering all samples.

use super::*;
use crate::support::server::{Reply, Server};
use crate::support::{Content, content};
use proptest::prelude::*;
use shardstream::index::AutoIndex;
use shardstream::prelude::*;
use shardstream::{Digest, Position, State};
use std::fs;

/// The reader leaves out gaps of at least this many bytes between selected samples.
const FAR: usize = 1_100_000;

/// Shards with samples whose bodies have these sizes. Keys contain shard and number.
fn archives(shards: &[Vec<usize>]) -> Vec<Vec<u8>> {
    let sample = |shard: usize, (number, size): (usize, &usize)| {
        Sample::new(format!("{shard}-{number}"))
            .with("cls", number as i64)
            .with("bin", vec![shard as u8; *size])
    };
    let samples = |(shard, sizes): (usize, &Vec<usize>)| -> Vec<Sample> {
        sizes.iter().enumerate().map(|each| sample(shard, each)).collect()
    };
    shards.iter().enumerate().map(|each| crate::support::archive(&samples(each))).collect()
}

/// Puts the shards in memory or on a web server. The returned server must be kept while the shards are read.
fn placed(archives: Vec<Vec<u8>>, web: bool) -> (Store, ShardList, Option<Server>) {
    if web && cfg!(feature = "http") {
        let count = archives.len();
        let server = Server::start(move |request| {
            let number: usize = request.path().trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
            Reply::object(request, &archives[number], "\"v1\"")
        });
        let urls = ShardList::from_urls((0..count).map(|number| server.url(&format!("/s-{number}.tar"))));
        return (Store::default(), urls, Some(server));
    }
    let noted = Arc::new(CountingSource::default());
    let urls = ShardList::from_urls((0..archives.len()).map(|number| format!("noted://s-{number}.tar")));
    urls.iter().zip(archives).for_each(|(url, archive)| noted.put(url.expose_secret(), archive));
    (noted.store(), urls, None)
}

/// A predicate that depends only on a hash of the key. It selects about `of_8` of 8 samples.
fn chosen(key: &str, salt: u64, of_8: u64) -> bool {
    let hash = key.bytes().fold(salt ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 40) % 8 < of_8
}

fn all(samples: impl Iterator<Item = Result<Sample>>) -> Vec<Sample> {
    samples.collect::<Result<_>>().unwrap()
}

fn positions<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> Vec<Position> {
    samples.into_iter().map(Sample::position).collect()
}

#[derive(Debug, Clone)]
struct Case {
    shards: Vec<Vec<usize>>,
    salt: u64,
    of_8: u64,
    streams: usize,
    checksums: bool,
    counts: bool,
    web: bool,
}

fn case() -> impl Strategy<Value = Case> {
    let size = prop_oneof![4 => 0usize..2000, 1 => Just(FAR)];
    let shards = prop::collection::vec(prop::collection::vec(size, 0..14), 1..4);
    (shards, any::<u64>(), 0u64..=8, 1usize..6, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(shards, salt, of_8, streams, checksums, counts, web)| {
            let counts = counts && !checksums;
            Case { shards, salt, of_8, streams, checksums, counts, web }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_selection_reads_the_samples_that_a_filter_keeps(case in case()) {
        let Case { shards, salt, of_8, streams, checksums, counts, web } = case;
        let (store, urls, _server) = placed(archives(&shards), web);
        let builder = || Dataset::builder(urls.clone()).store(store.clone()).topology(Topology::single());
        let expected = all(builder().build().unwrap().samples(3));
        let expected: Vec<Sample> =
            expected.into_iter().filter(|sample| chosen(sample.key(), salt, of_8)).collect();

        let index = Index::builder().store(store.clone()).checksums(checksums);
        let index = index.select("f", move |sample| chosen(sample.key(), salt, of_8)).build(&urls).unwrap();
        prop_assert_eq!(index.samples(), expected.len() as u64);
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("i.json");
        index.save(&Store::default(), place.to_str().unwrap()).unwrap();
        prop_assert_eq!(&Index::load(&Store::default(), place.to_str().unwrap()).unwrap(), &index);

        // The index describes the samples that pass the filter, in the order in which they are read.
        let mut read = expected.iter();
        for shard in &index {
            prop_assert_eq!(shard.selection(), Some("f"));
            prop_assert_eq!(shard.position_of(shard.samples()), None);
            for (number, sample) in (0..shard.samples()).zip(read.by_ref()) {
                prop_assert_eq!(shard.position_of(number), Some(sample.position().sample));
                prop_assert_eq!(shard.size_of(number), Some(sample.size() as u64));
                prop_assert_eq!(shard.checksum_of(number).is_some(), checksums);
                let members = shard.members(number).unwrap();
                let fields: Vec<_> = members.map(|(field, _)| field.to_owned()).collect();
                prop_assert_eq!(fields, sample.fields().map(|(name, _)| name.to_owned()).collect::<Vec<_>>());
            }
        }

        let index = if counts { index.counts() } else { index };
        let dataset = builder().index(index).streams(streams).checksums(checksums).build();
        let Ok(dataset) = dataset else {
            prop_assert!(expected.len() < streams);
            return Ok(());
        };
        prop_assert_eq!(dataset.len(), Some(expected.len() as u64));
        // The streams are consecutive parts of the dataset's order.
        let read: Vec<Sample> = (0..streams).flat_map(|stream| all(dataset.read(3, stream))).collect();
        prop_assert_eq!(content(&read), content(&expected));
        prop_assert_eq!(positions(&read), positions(&expected));
        let lengths: Vec<usize> = (0..streams).map(|stream| all(dataset.read(3, stream)).len()).collect();
        prop_assert!(lengths.iter().max().unwrap() - lengths.iter().min().unwrap() <= 1);
        let streamed = futures::executor::block_on_stream(dataset.read(3, 0).into_stream());
        prop_assert_eq!(content(&all(streamed)), content(&all(dataset.read(3, 0))));
        // The digest of the loader's run equals the digest that the dataset computes without reading samples.
        let mut batches = Loader::builder(dataset.clone()).shuffle(5).batch(4).build().unwrap().epoch(3);
        batches.by_ref().for_each(|batch| drop(batch.unwrap()));
        let (seen, planned): (Digest, Digest) = (batches.state().digest(), dataset.digest(3).unwrap());
        prop_assert_eq!((seen.samples(), seen.content()), (planned.samples(), planned.content()));
    }

    #[test]
    fn a_job_of_selected_samples_resumes_anywhere(
        sizes in prop::collection::vec(prop_oneof![6 => 0usize..900, 1 => Just(FAR)], 12..40),
        salt: u64, of_8 in 2u64..8, shuffle in 0usize..12, stop in 0usize..9, counts: bool,
    ) {
        let sizes: Vec<_> = sizes.chunks(9).map(<[usize]>::to_vec).collect();
        let (store, urls, _server) = placed(archives(&sizes), false);
        let index = Index::builder().store(store.clone());
        let index = index.select("f", move |sample| chosen(sample.key(), salt, of_8)).build(&urls).unwrap();
        prop_assume!(index.samples() >= 2);
        let steps = index.samples().div_ceil(3) as usize;
        let index = if counts { index.counts() } else { index };
        let loader = |epoch_batch: usize| {
            let builder = Dataset::builder(urls.clone()).store(store.clone()).index(index.clone()).streams(2);
            let dataset = builder.shuffle_shards(true).topology(Topology::single()).build().unwrap();
            let loader = Loader::builder(dataset).shuffle(shuffle);
            loader.map(|sample| Ok(sample.key().to_owned())).batch(epoch_batch)
        };
        let keys = |batches: shardstream::loader::Batches<Batch<String>>| -> Vec<Vec<String>> {
            batches.map(|batch| batch.unwrap().to_vec()).collect()
        };
        let whole = keys(loader(3).build().unwrap().epoch(1));
        prop_assert_eq!(loader(3).last_batch(LastBatch::Pad).build().unwrap().steps(), Some(steps as u64));
        prop_assert_eq!(whole.concat().len() as u64, index.samples());
        let stop = stop.min(whole.len());
        let mut first = loader(3).build().unwrap().epoch(1);
        first.by_ref().take(stop).for_each(|batch| drop(batch.unwrap()));
        let state: State = first.state().to_string().parse().unwrap();
        let rest = keys(loader(3).build().unwrap().restore(&state).unwrap());
        prop_assert_eq!(&rest[..], &whole[stop..]);
    }
}

#[test]
fn bytes_far_from_selected_samples_are_not_read() {
    let noted = Arc::new(CountingSource::default());
    let url = "noted://0.tar";
    // Samples 2 and 5 are large. Samples 0 and 1 are neighbours, and so are samples 3 and 4. The first
    // selection leaves out sample 4.
    noted.put(url, archives(&[vec![10, 10, FAR, 10, 10, FAR, 10]]).remove(0));
    let urls = ShardList::from_urls([url]);
    let select = |numbers: &'static [&'static str]| {
        let index = Index::builder().store(noted.store());
        index.select("f", move |sample| numbers.contains(&sample.key())).build(&urls).unwrap()
    };
    for (numbers, requests, far) in [
        (&["0-0", "0-1", "0-3", "0-6"][..], 3, 0),
        (&["0-0", "0-1", "0-3", "0-4"], 2, 0),
        (&["0-0", "0-2", "0-4"], 1, 1),
        (&["0-4"], 1, 0),
    ] {
        let index = select(numbers);
        noted.take_counts();
        let builder = Dataset::builder(urls.clone()).store(noted.store()).topology(Topology::single());
        let dataset = builder.index(index).build().unwrap();
        let read = all(dataset.read(0, 0));
        assert_eq!(read.iter().map(Sample::key).collect::<Vec<_>>(), numbers);
        let (request_count, taken) = noted.take_counts();
        assert_eq!((request_count, taken / FAR), (requests, far), "{numbers:?}");
    }
}

/// An error in any range of a slice ends the slice. A state counts a slice's samples from its start, so no
/// sample after the error may be returned.
#[test]
fn damage_in_one_range_ends_its_slice() {
    let noted = Arc::new(CountingSource::default());
    let url = "noted://0.tar";
    let archive = archives(&[vec![10, FAR, 700, 20, FAR, 30, FAR, 40]]).remove(0);
    noted.put(url, archive.clone());
    let urls = ShardList::from_urls([url]);
    let index = Index::builder().store(noted.store()).checksums(true);
    let index = index.select("small", |sample| sample.get("bin").unwrap().size() < FAR).build(&urls).unwrap();
    let index = index.without_versions();
    let shard = index.get(url).unwrap();
    let dataset = || {
        let builder = Dataset::builder(urls.clone()).store(noted.store()).topology(Topology::single());
        builder.index(index.clone()).checksums(true).build().unwrap()
    };
    let whole = all(dataset().read(0, 0));
    assert_eq!(whole.len(), 5);
    for (number, expected) in [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)] {
        let mut damaged = archive.clone();
        damaged[shard.members(number).unwrap().last().unwrap().1.start as usize] ^= 1;
        noted.put(url, damaged);
        for streamed in [false, true] {
            let reader = dataset().read(0, 0);
            let items: Vec<Result<Sample>> = match streamed {
                true => futures::executor::block_on_stream(reader.into_stream()).collect(),
                false => reader.collect(),
            };
            let good: Vec<Sample> = items.iter().filter_map(|item| item.as_ref().ok().cloned()).collect();
            let errors: Vec<_> = items.iter().filter_map(|item| item.as_ref().err()).collect();
            assert_eq!(content(&good), content(&whole[..expected]), "{number} {streamed}");
            let [error] = errors[..] else { panic!("{errors:?}") };
            assert!(matches!(error.kind(), ErrorKind::SampleChecksum { .. }), "{error}");
            assert!(items.last().unwrap().is_err());
        }
    }
}

/// An unselected sample is read as part of a range, but damage in its body is not an error.
#[test]
fn damage_to_unselected_samples_is_not_an_error() {
    let noted = Arc::new(CountingSource::default());
    let url = "noted://0.tar";
    let mut archive = archives(&[vec![10, 700, 20]]).remove(0);
    noted.put(url, archive.clone());
    let urls = ShardList::from_urls([url]);
    let builder = || Index::builder().store(noted.store()).checksums(true);
    let whole = builder().build(&urls).unwrap();
    archive[whole.get(url).unwrap().members(1).unwrap().last().unwrap().1.start as usize] ^= 1;
    let index = builder().select("without the second", |sample| sample.key() != "0-1").build(&urls).unwrap();
    noted.put(url, archive);
    for (index, good, errors) in [(whole, 1, 1), (index, 2, 0)] {
        let builder = Dataset::builder(urls.clone()).store(noted.store()).index(index.without_versions());
        let dataset = builder.checksums(true).topology(Topology::single()).build().unwrap();
        let found = dataset.read(0, 0).filter(Result::is_ok).count();
        assert_eq!((found, dataset.read(0, 0).filter(Result::is_err).count()), (good, errors));
    }
}

/// If an unreadable sample were not counted, all later samples would get numbers that are too low. An
/// unselected sample could then be returned as a selected sample.
#[test]
fn no_sample_is_taken_for_another_after_an_unreadable_one() {
    use crate::support::files;
    let noted = Arc::new(CountingSource::default());
    let url = "noted://0.tar";
    let document = serde_json::json!({"wids_version": 1, "shardlist": [
        {"url": url, "nsamples": 3, "select": {"name": "f", "runs": [1, 1, 1, 2]}}]});
    let index = Index::from_json(document.to_string().as_bytes(), "").unwrap();
    let read = |names: &[&str], streams: usize| {
        noted.put(url, files(names));
        let builder = Dataset::builder(ShardList::from_urls([url])).store(noted.store()).index(index.clone());
        let dataset = builder.streams(streams).topology(Topology::single()).build().unwrap();
        let items: Vec<_> = (0..streams).flat_map(|stream| dataset.read(0, stream)).collect();
        items
            .into_iter()
            .map(|item| item.map_or("error".into(), |sample| sample.key().to_owned()))
            .collect::<Vec<_>>()
    };
    let sound = ["a.txt", "b.txt", "c.txt", "d.txt", "e.txt"];
    assert_eq!(read(&sound, 1), ["b", "d", "e"]);
    assert_eq!(read(&sound, 3), ["b", "d", "e"]);
    let twice = |name: &'static str| {
        let names = sound.iter().flat_map(|each| if *each == name { vec![*each; 2] } else { vec![*each] });
        names.collect::<Vec<_>>()
    };
    assert_eq!(read(&twice("a.txt"), 1), ["error"]);
    assert_eq!(read(&twice("c.txt"), 1), ["b", "error"]);
    assert_eq!(read(&twice("c.txt"), 3), ["b", "error", "error"]);
}

/// A replaced shard is detected even if none of its samples is selected.
#[test]
fn a_shard_without_selected_samples_is_still_checked() {
    let noted = Arc::new(CountingSource::default());
    let urls = ShardList::from_urls(["noted://0.tar", "noted://1.tar"]);
    let put = |number: usize, sizes: &[usize]| {
        let archive = archives(&[vec![], sizes.to_vec()]).remove(1);
        noted.put(urls[number].expose_secret(), archive);
    };
    put(0, &[10, 20, 30]);
    put(1, &[900, 901]);
    let index = Index::builder().store(noted.store());
    let index = index.select("small", |sample| sample.get("bin").unwrap().size() < 500).build(&urls).unwrap();
    assert_eq!(index.iter().map(ShardIndex::samples).collect::<Vec<_>>(), [3, 0]);
    for index in [index.clone(), index.counts()] {
        let builder = Dataset::builder(urls.clone()).store(noted.store()).topology(Topology::single());
        let dataset = builder.index(index.clone()).build().unwrap();
        assert_eq!(all(dataset.samples(0)).len(), 3);
    }
    put(1, &[900, 1, 2]);
    for index in [index.clone(), index.counts()] {
        let builder = Dataset::builder(urls.clone()).store(noted.store()).topology(Topology::single());
        let dataset = builder.index(index).build().unwrap();
        let errors: Vec<_> = dataset.samples(0).results().filter_map(Result::err).collect();
        assert!(
            matches!(errors[..], [ref error] if matches!(error.kind(), ErrorKind::Stale { .. })),
            "{errors:?}"
        );
    }
}

#[test]
fn a_filter_with_another_name_makes_a_new_selection() {
    let dir = tempfile::tempdir().unwrap();
    write(ShardWriter::builder(pattern(dir.path(), ".tar")), &motley());
    let shards = dir.path().join("s-*.tar").to_str().unwrap().to_owned();
    let calls = Arc::new(AtomicUsize::new(0));
    let place = dir.path().join("kept.json").to_str().unwrap().to_owned();
    let build = |auto: AutoIndex, name: Option<&str>, least: i64| {
        let counted = Arc::clone(&calls);
        let class = |sample: &Sample| -> i64 {
            let text = sample.get("cls").and_then(|value| value.as_bytes().cloned()).unwrap();
            std::str::from_utf8(&text).unwrap().parse().unwrap()
        };
        let auto = match name {
            None => auto,
            Some(name) => auto.select(name, move |sample| {
                counted.fetch_add(1, Ordering::SeqCst);
                class(sample) >= least
            }),
        };
        let builder = Dataset::builder(&shards).topology(Topology::single()).auto_index(auto);
        let dataset = builder.build().unwrap();
        assert_eq!(all(dataset.samples(0)).len() as u64, dataset.len().unwrap());
        (dataset.len().unwrap(), calls.swap(0, Ordering::SeqCst))
    };
    let at = || AutoIndex::at(place.as_str());
    assert_eq!(build(at(), Some("from 30, v1"), 30), (10, 40));
    assert_eq!(build(at(), Some("from 30, v1"), 30), (10, 0));
    assert_eq!(build(at(), Some("from 30, v2"), 20), (20, 40));
    assert_eq!(build(at(), Some("from 30, v1"), 30), (10, 40));
    // The index of a dataset with a filter also serves a dataset without a filter.
    let before = fs::read(&place).unwrap();
    assert_eq!(build(at(), None, 0), (40, 0));
    assert_eq!(fs::read(&place).unwrap(), before);
    // If indexes are stored beside the shards, each filter has an index document of its own.
    for (least, selected) in [(30, 10), (20, 20), (30, 10), (20, 20)] {
        assert_eq!(build(AutoIndex::beside(), Some(&format!("from {least}")), least).0, selected);
    }
    assert_eq!(build(AutoIndex::beside(), Some("from 30"), 30), (10, 0));
    assert_eq!(build(AutoIndex::beside(), Some("from 20"), 20), (20, 0));
    assert_eq!(build(AutoIndex::beside(), None, 0), (40, 0));
}

#[test]
fn an_index_beside_a_shard_has_all_samples() {
    let dir = tempfile::tempdir().unwrap();
    let infos = write(ShardWriter::builder(pattern(dir.path(), ".tar")), &motley());
    let urls = ShardList::from_urls(infos.iter().map(|info| info.url.clone()));
    let builder = || Index::builder().beside(true);
    let selected = builder().select("none", |_| false).build(&urls).unwrap();
    assert_eq!((selected.samples(), selected.iter().map(ShardIndex::stored_samples).sum::<u64>()), (0, 40));
    assert_eq!(builder().build(&urls).unwrap(), built(&Store::default(), &infos));
    assert_eq!(builder().select("all", |_| true).build(&urls).unwrap().samples(), 40);
}

#[test]
fn compressed_shards_support_selections() {
    for suffix in [".tar.gz", ".tar.zst"] {
        if suffix == ".tar.gz" && !cfg!(feature = "gzip") || suffix == ".tar.zst" && !cfg!(feature = "zstd") {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let infos = write(ShardWriter::builder(pattern(dir.path(), suffix)), &motley());
        let urls = ShardList::from_urls(infos.iter().map(|info| info.url.clone()));
        let builder = || Dataset::builder(urls.clone()).topology(Topology::single());
        let wanted = |sample: &Sample| sample.get("txt").is_some();
        let mut expected = all(builder().build().unwrap().samples(0));
        expected.retain(wanted);
        let index = Index::builder().select("with text", wanted).checksums(true).build(&urls).unwrap();
        let dataset = builder().index(index).checksums(true).streams(3).build().unwrap();
        let read: Vec<Sample> = (0..3).flat_map(|stream| all(dataset.read(0, stream))).collect();
        let found: Content = content(&read);
        assert_eq!((found, positions(&read)), (content(&expected), positions(&expected)));
    }
}

#[test]
fn a_panic_of_the_predicate_names_its_sample() {
    let (store, urls, _server) = placed(archives(&[vec![1, 2], vec![3, 4, 5]]), false);
    let builder = Index::builder().store(store).threads(2);
    let error =
        builder.select("f", |sample| sample.key() != "1-1" || panic!("no class")).build(&urls).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Panicked(_)), "{error}");
    assert_eq!((error.location().shard(), error.location().key()), (Some("noted://s-1.tar"), Some("1-1")));
    assert!(error.to_string().contains("no class"), "{error}");
}

/// An error of the predicate is reported: the sample does not count as unselected.
#[test]
fn an_error_of_the_predicate_names_its_sample_and_field() {
    let (store, urls, _server) = placed(archives(&[vec![1, 2], vec![3, 4, 5]]), false);
    let reads = |sample: &Sample| -> shardstream::Result<bool> {
        match sample.key() {
            "1-1" => Ok(sample.json::<serde_json::Value>("none")?.is_null()),
            _ => Ok(true),
        }
    };
    let builder = Index::builder().store(store.clone()).threads(2).select("f", reads);
    let auto = AutoIndex::beside().or_in_directory(std::env::temp_dir()).select("f", reads);
    let dataset = Dataset::builder(urls.clone()).store(store.clone());
    let loader = Loader::builder(dataset.build().unwrap()).filter(reads).batch(9).build().unwrap();
    for error in [
        builder.build(&urls).unwrap_err(),
        Dataset::builder(urls.clone()).store(store).auto_index(auto).build().unwrap_err(),
        loader.epoch(0).find_map(Result::err).unwrap(),
    ] {
        assert!(
            matches!(error.kind(), ErrorKind::MissingField { wanted, .. } if wanted == "none"),
            "{error:?}"
        );
        let (shard, key) = (error.location().shard(), error.location().key());
        assert_eq!((shard, key), (Some("noted://s-1.tar"), Some("1-1")), "{error}");
    }
}

/// Two filters that select the same number of samples still make different datasets.
#[test]
fn a_state_is_refused_under_another_selection() {
    let (store, urls, _server) = placed(archives(&[vec![1; 8]]), false);
    let loader = |name: &str, keys: &'static [&'static str]| {
        let index = Index::builder().store(store.clone());
        let index = index.select(name, move |sample| keys.contains(&sample.key())).build(&urls).unwrap();
        let builder = Dataset::builder(urls.clone()).store(store.clone()).index(index);
        Loader::builder(builder.topology(Topology::single()).build().unwrap()).batch(1).build().unwrap()
    };
    let mut batches = loader("f", &["0-1", "0-4"]).epoch(0);
    batches.next().unwrap().unwrap();
    let state = batches.state();
    assert_eq!(loader("f", &["0-1", "0-4"]).restore(&state).unwrap().count(), 1);
    for (name, keys) in [("f", &["0-1", "0-5"]), ("g", &["0-1", "0-4"])] {
        let error = loader(name, keys).restore(&state).map(drop).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::State(_)), "{error}");
    }
}

#[test]
fn selected_indexes_are_not_wids_documents_and_hostile_ones_are_errors() {
    let (store, urls, _server) = placed(archives(&[vec![1, 2, 3, 4]]), false);
    let index = Index::builder().store(store);
    let index = index.select("odd", |sample| sample.key().ends_with(['1', '3'])).build(&urls).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("i.json");
    for index in [index.clone(), index.counts()] {
        index.save(&Store::default(), place.to_str().unwrap()).unwrap();
        let text = fs::read_to_string(&place).unwrap();
        assert!(text.starts_with(r#"{"__kind__":"shardstream-selected-index-v1","name":"i","#), "{text}");
        assert!(text.contains(r#""nsamples":2"#) && !text.contains("wids_version"), "{text}");
        assert!(text.contains(r#""select":{"name":"odd","runs":[1,1,1,1]}"#), "{text}");
        assert_eq!(Index::from_json(text.as_bytes(), dir.path().to_str().unwrap()).unwrap(), index);
        let broken = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            Index::from_json(text.replacen(from, to, 1).as_bytes(), "").unwrap_err()
        };
        for (from, to) in [
            ("[1,1,1,1]", "[1,1,1,2]"),
            ("[1,1,1,1]", "[1,1,1]"),
            ("[1,1,1,1]", "[0,1,0,1,2]"),
            ("[1,1,1,1]", "[18446744073709551615,1,18446744073709551615,1]"),
            ("[1,1,1,1]", "[1,18446744073709551615,18446744073709551615,3]"),
            ("[1,1,1,1]", "[1,1,1,-1]"),
            (r#""name":"odd""#, r#""name":"""#),
            (r#""nsamples":2"#, r#""nsamples":4"#),
        ] {
            let error = broken(from, to);
            assert!(matches!(error.kind(), ErrorKind::Index(_)), "{to}: {error}");
        }
        if index.iter().all(|shard| shard.range(0..1).is_some()) {
            let error = broken("[1,1,1,1]", "[1,1,2,1]");
            assert!(error.to_string().contains("layout has another number"), "{error}");
        }
    }
}
