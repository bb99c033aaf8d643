//! Tests of reading batches from shards.

use super::*;
use shardstream::prelude::*;
use std::path::Path;
use synthetic::{Counts, Shards};

fn shards(dir: &Path) -> Shards {
    synthetic::shards(dir, Counts { train: 1100, validation: 100 }).unwrap()
}

pub(super) fn options() -> DataOptions {
    DataOptions {
        seed: 5,
        batch: 96,
        size: 32,
        classes: 10,
        workers: 2,
        shuffle: 100,
        streams: 0,
        keep_shards: false,
        prefetch: 2,
        topology: Topology::single(),
        skip_bad: None,
        indexes: Sets::default(),
        index_cache: None,
        memory: None,
        waiting: Waiting::default(),
    }
}

fn all(data: &ShardData, epoch: u64) -> Vec<HostBatch> {
    data.batches(epoch).map(std::result::Result::unwrap).collect()
}

/// The pixels and labels of batches.
fn contents(batches: &[HostBatch]) -> Vec<(&[u8], &[i32])> {
    batches.iter().map(|b| (&b.images[..], &b.labels[..])).collect()
}

#[test]
fn training_batches_are_full_and_repeatable() {
    let dir = tempfile::tempdir().unwrap();
    let train = &shards(dir.path()).train;
    let data = ShardData::open(train, Split::Train, &options()).unwrap();
    let first = all(&data, 0);
    assert_eq!(first.len(), 11);
    assert!(first.iter().all(|b| b.valid == 96 && b.labels.iter().all(|l| (0..10).contains(l))));
    assert!(first.iter().all(|b| b.images.len() == 96 * 32 * 32 * 3));
    let workers = DataOptions { workers: 1, ..options() };
    let again = all(&ShardData::open(train, Split::Train, &workers).unwrap(), 0);
    assert_eq!(contents(&again), contents(&first));
    assert_ne!(contents(&all(&data, 1))[0], contents(&first)[0]);
}

#[test]
fn the_rest_of_an_epoch_begins_after_the_state() {
    let dir = tempfile::tempdir().unwrap();
    let data = ShardData::open(&shards(dir.path()).train, Split::Train, &options()).unwrap();
    let whole = all(&data, 1);
    let rest = |state: &State| -> Vec<HostBatch> {
        let state: State = state.to_string().parse().unwrap();
        assert_eq!(state.epoch(), 1);
        data.rest(&state).unwrap().map(std::result::Result::unwrap).collect()
    };
    assert_eq!(contents(&rest(&data.start(1))), contents(&whole));
    for consumed in [1, 4, whole.len()] {
        let state = whole[consumed - 1].state.as_ref().unwrap();
        assert_eq!(contents(&rest(state)), contents(&whole[consumed..]), "{consumed}");
    }
    // After a resume, each batch has the same state as in the whole epoch.
    let rest = rest(whole[3].state.as_ref().unwrap());
    let text = |b: &HostBatch| b.state.as_ref().unwrap().to_string();
    assert_eq!(rest.iter().map(text).collect::<Vec<_>>(), whole[4..].iter().map(text).collect::<Vec<_>>());
}

#[test]
fn the_state_of_other_data_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let Shards { train, validation } = shards(dir.path());
    let open = |shards: &str, options| ShardData::open(shards, Split::Train, &options).unwrap();
    let state = open(&train, options()).start(0);
    for (other, what) in [
        (open(&train, DataOptions { shuffle: 99, ..options() }), "shuffle buffer"),
        (open(&train, DataOptions { keep_shards: true, ..options() }), "keep_shards"),
        (open(&train, DataOptions { seed: 6, ..options() }), "seed"),
        (open(&validation, options()), "shard"),
    ] {
        let error = crate::causes::with_causes(&other.rest(&state).err().unwrap());
        assert!(error.contains(what), "{error}");
    }
    assert!(open(&train, DataOptions { workers: 1, ..options() }).rest(&state).is_ok());
}

#[test]
fn validation_batches_are_padded_and_complete() {
    let dir = tempfile::tempdir().unwrap();
    let data = ShardData::open(&shards(dir.path()).validation, Split::Validation, &options()).unwrap();
    let all = all(&data, 0);
    assert_eq!(all.iter().map(|b| b.valid).collect::<Vec<_>>(), [96, 4]);
    assert_eq!((all[1].labels.len(), all[1].images.len()), (96, 96 * 32 * 32 * 3));
    assert!(all[1].labels[4..].iter().all(|l| *l == -1));
}

#[test]
fn an_image_or_class_that_does_not_fit_the_program_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let train = &shards(dir.path()).train;
    for (options, message) in [
        (DataOptions { size: 48, ..options() }, "32 x 32"),
        (DataOptions { classes: 3, ..options() }, "not one of"),
    ] {
        let data = ShardData::open(train, Split::Train, &options).unwrap();
        let error = data.batches(0).find_map(std::result::Result::err).unwrap();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains(message), "{error}: {cause}");
        assert!(error.to_string().contains("train-00000"), "{error}");
    }
    assert!(ShardData::open("nowhere/*.tar", Split::Train, &options()).is_err());
}

#[test]
fn a_damaged_image_is_skipped_in_training_and_an_error_in_validation() {
    let dir = tempfile::tempdir().unwrap();
    let pattern = dir.path().join("%d.tar").display().to_string();
    let mut writer = ShardWriter::builder(&pattern).build().unwrap();
    let image = Image::new(ImageMode::Rgb8, (32, 32), vec![90; 32 * 32 * 3]).unwrap().to_png().unwrap();
    for number in 0..12i64 {
        let bytes = if number == 5 { image[..image.len() / 2].to_vec() } else { image.clone() };
        writer.write(&Sample::new(number.to_string()).with("png", bytes).with("cls", number % 10)).unwrap();
    }
    writer.finish().unwrap();
    let options = DataOptions { batch: 4, streams: 1, ..options() };
    let open = |split| ShardData::open(&pattern.replace("%d", "0"), split, &options).unwrap();
    let train = all(&open(Split::Train), 0);
    assert_eq!(
        train.iter().map(|batch| batch.valid).collect::<Vec<_>>(),
        [4, 4, 4],
        "the number of batches of the index"
    );
    let ledger = train[2].state.as_ref().unwrap().ledger();
    assert_eq!((ledger.skipped(), ledger.entries()[0].key.as_deref()), (1, Some("5")));
    let errors = open(Split::Validation).batches(0).filter_map(std::result::Result::err);
    let keys: Vec<_> = errors.map(|error| error.location().key().map(str::to_owned)).collect();
    assert_eq!(keys, [Some("5".to_owned())]);
    let skipping = |max_skipped| {
        let options = DataOptions { skip_bad: Some(max_skipped), ..options.clone() };
        let data = ShardData::open(&pattern.replace("%d", "0"), Split::Train, &options).unwrap();
        // The limit is per epoch.
        [0, 1].map(|epoch| data.batches(epoch).find_map(std::result::Result::err).is_some())
    };
    assert_eq!([skipping(0), skipping(1)], [[true; 2], [false; 2]]);
}

#[test]
fn one_process_and_eight_read_the_same_global_batches() {
    let dir = tempfile::tempdir().unwrap();
    let shards = shards(dir.path());
    let digests = |shards: &str, split, ranks: usize| {
        let read = |rank| {
            let topology = Topology::new(rank, ranks).unwrap();
            let data =
                ShardData::open(shards, split, &DataOptions { topology, batch: 96 / ranks, ..options() })
                    .unwrap();
            let batches = all(&data, 3);
            assert_eq!(Some(batches.len() as u64), data.loader.steps());
            batches
        };
        let all: Vec<_> = (0..ranks).map(read).collect();
        let steps = all[0].len();
        assert!(all.iter().all(|rank| rank.len() == steps), "equal steps on all ranks");
        let digest = |step: usize| -> shardstream::Digest {
            all.iter().map(|rank| rank[step].state.as_ref().unwrap().digest()).sum()
        };
        let valid: usize = all.iter().flatten().map(|batch| batch.valid).sum();
        ((0..steps).map(digest).collect::<Vec<_>>(), valid)
    };
    let one = digests(&shards.train, Split::Train, 1);
    assert_eq!(one.1, 11 * 96);
    assert_eq!(digests(&shards.train, Split::Train, 8), one);
    assert_eq!(digests(&shards.train, Split::Train, 2), one);
    // Validation has each sample once, on any number of ranks.
    for ranks in [1, 3, 8] {
        assert_eq!(digests(&shards.validation, Split::Validation, ranks).1, 100, "{ranks}");
    }
}

#[test]
fn a_given_index_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let train = shards(dir.path()).train;
    let index = Index::builder().build(&ShardList::expand(&train).unwrap()).unwrap();
    let url = Path::new(&train).with_file_name("train.index.json").display().to_string();
    index.save(&Store::default(), &url).unwrap();
    let indexes = Sets { train: Some(url), validation: None };
    let data = ShardData::open(&train, Split::Train, &DataOptions { indexes, ..options() }).unwrap();
    let indexed = ShardData::open(&train, Split::Train, &options()).unwrap();
    assert_eq!(contents(&all(&data, 0)), contents(&all(&indexed, 0)));
    assert_eq!(data.samples, 1100);
}

#[test]
fn wildcards_and_braces_of_the_same_shards_have_the_same_data() {
    let dir = tempfile::tempdir().unwrap();
    let shards = shards(dir.path());
    let cache = tempfile::tempdir().unwrap();
    let options = DataOptions { index_cache: Some(cache.path().into()), ..options() };
    for (split, name, braces, samples, count) in [
        (Split::Train, "train-*.tar", &shards.train, 1100, 3),
        (Split::Validation, "val-*.tar", &shards.validation, 100, 1),
    ] {
        let before = std::fs::read_dir(cache.path()).unwrap().count();
        let wild = Path::new(braces).with_file_name(name).display().to_string();
        let listed = ShardData::open(&wild, split, &options).unwrap();
        assert_eq!(listed.samples, samples);
        let indexes = || std::fs::read_dir(cache.path()).unwrap().count();
        assert_eq!(indexes() - before, count, "the index of each shard is cached");
        let braced = ShardData::open(braces, split, &options).unwrap();
        assert_eq!(indexes() - before, count, "the cached indexes are used");
        assert_eq!(listed.start(2).to_string(), braced.start(2).to_string());
        assert_eq!(contents(&all(&listed, 2)), contents(&all(&braced, 2)));
    }
}

#[test]
fn wildcards_use_a_given_index() {
    let dir = tempfile::tempdir().unwrap();
    let train = shards(dir.path()).train;
    let index = Index::builder().build(&ShardList::expand(&train).unwrap()).unwrap();
    let url = Path::new(&train).with_file_name("train.index.json").display().to_string();
    index.save(&Store::default(), &url).unwrap();
    let indexes = Sets { train: Some(url), validation: None };
    let wild = Path::new(&train).with_file_name("train-*.tar").display().to_string();
    assert_eq!(
        ShardData::open(&wild, Split::Train, &DataOptions { indexes, ..options() }).unwrap().samples,
        1100
    );
}

#[test]
fn wildcards_that_match_no_shard_are_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let wild = dir.path().join("val-*.tar").display().to_string();
    let error = ShardData::open(&wild, Split::Validation, &options()).unwrap_err();
    let text = crate::causes::with_causes(&error);
    assert!(text.contains("val-*.tar") && text.contains("matches"), "{text}");
}

#[test]
fn the_default_number_of_streams_is_a_multiple_of_eight_and_of_the_ranks() {
    let streams = |ranks| DataOptions { topology: Topology::new(0, ranks).unwrap(), ..options() }.streams();
    assert_eq!([1, 2, 3, 4, 6, 8, 12, 32].map(streams), [8, 8, 24, 8, 24, 8, 24, 32]);
}

#[test]
fn photographs_are_cropped_to_the_size_of_the_network() {
    let dir = tempfile::tempdir().unwrap();
    let pattern = dir.path().join("photo-%d.tar").display().to_string();
    let mut writer = ShardWriter::builder(&pattern).build().unwrap();
    for number in 0..8i64 {
        let pixels: Vec<u8> = (0..200 * 120 * 3).map(|at| (at % 251) as u8).collect();
        let image = Image::new(ImageMode::Rgb8, (120, 200), pixels).unwrap();
        writer.write(&Sample::new(number.to_string()).with("png", image).with("cls", number)).unwrap();
    }
    writer.finish().unwrap();
    let options = DataOptions { batch: 4, size: 96, streams: 1, ..options() };
    for split in [Split::Train, Split::Validation] {
        let data = ShardData::open(&pattern.replace("%d", "0"), split, &options).unwrap();
        let batches = all(&data, 0);
        assert_eq!(batches.len(), 2);
        assert!(batches.iter().all(|batch| batch.images.len() == 4 * 96 * 96 * 3));
    }
}
