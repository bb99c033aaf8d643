//! The shards that a pattern finds, and how ranks and workers share them.

use crate::support::child::child;
use crate::support::shards::{all_keys, dataset, key, keys, memory, put, sorted, url, write};
use futures::future::{self, BoxFuture, FutureExt};
use futures::{StreamExt, stream};
use proptest::prelude::*;
use shardstream::prelude::*;
use shardstream::store::{GetOptions, GetResponse, Source};
use shardstream::tar::Limits;
use shardstream::{ErrorKind, Result};
use std::path::Path;
use std::sync::Arc;

/// Writes a shard of one sample for each name. The sample's key is the name without extensions.
fn write_files(dir: &Path, names: &[&str]) {
    for name in names {
        let path = dir.join(name).display().to_string();
        let mut writer = ShardWriter::builder(path.replace('%', "%%") + "%d.tar").build().unwrap();
        writer.write(&Sample::new(*name).with("cls", 1)).unwrap();
        writer.finish().unwrap();
    }
}

fn single(pattern: &str) -> Result<Dataset> {
    Dataset::builder(pattern).topology(Topology::single()).build()
}

/// The keys in the shards that a pattern finds; each shard has one sample.
fn found(pattern: &str) -> String {
    keys(single(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}")).samples(0)).join(" ")
}

#[test]
fn limits_of_zero_are_errors() {
    let dataset = || dataset(&[2, 1]);
    let with = |change: fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        dataset().limits(limits).build().unwrap_err()
    };
    for error in [
        with(|limits| limits.archives = 0),
        with(|limits| limits.members = 0),
        with(|limits| limits.member = 0),
        with(|limits| limits.sample = 0),
    ] {
        assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error}");
        assert!(error.to_string().contains("`tar::Limits::"), "{error}");
    }
}

#[test]
fn local_glob_patterns_are_expanded() {
    let dir = tempfile::tempdir().unwrap();
    write_files(dir.path(), &["b", "a", "c", "sub/d", "sub/deep/e"]);
    let root = dir.path().display().to_string();
    let at = |pattern: &str| found(&pattern.replace('@', &root));
    assert_eq!(at("@/{b,a}0.tar"), "b a", "braces keep their order");
    assert_eq!(at("@/c0.tar::@/{a,b}0.tar"), "c a b");
    assert_eq!(at("@/*.tar"), "a b c", "a listing is sorted");
    assert_eq!(at("@/**/*.tar"), "a b c sub/d sub/deep/e");
    assert_eq!(at("@/[bc]?.tar::@/sub/*.tar"), "b c sub/d");
    assert_eq!(at("file://@/{c,a}0.tar"), "c a");
    assert_eq!(at("file://@/*.tar"), "a b c");
    assert_eq!(at("@/{sub,sub/deep}/*.tar"), "sub/d sub/deep/e");
}

/// A pattern does not list directories below its depth: they may be large or unreadable.
#[cfg(unix)]
#[test]
fn patterns_list_no_directory_below_their_depth() {
    let dir = tempfile::tempdir().unwrap();
    write_files(dir.path(), &["a", "sub/b"]);
    // Listing this directory fails, as it contains a link without a target.
    std::fs::create_dir(dir.path().join("sub/deep")).unwrap();
    std::os::unix::fs::symlink("gone", dir.path().join("sub/deep/link")).unwrap();
    let root = dir.path().display().to_string();
    let at = |pattern: &str| pattern.replace('@', &root);
    assert_eq!(found(&at("@/*.tar")), "a");
    assert_eq!(found(&at("file://@/*.tar")), "a");
    assert_eq!(found(&at("@/s*/*.tar")), "sub/b");
    assert!(single(&at("@/**/*.tar")).is_err());
    assert_eq!(in_child(dir.path(), "*.tar", &[]), "a");
}

#[test]
fn glob_patterns_of_a_store_are_expanded() {
    let store = memory();
    write(&store, &[1, 1, 1]);
    put(&store, "mem://train/000001.json", b"{}");
    for pattern in ["mem://train/*.tar", "mem://train/{000000..000002}.tar", "mem://train/**/*.tar"] {
        let dataset = Dataset::builder(pattern).store(store.clone()).topology(Topology::single());
        let shards: Vec<String> =
            dataset.build().unwrap().shards().iter().map(|url| url.to_string()).collect();
        assert_eq!(shards, [0, 1, 2].map(url), "{pattern}");
    }
}

#[test]
fn an_error_names_the_pattern_without_matches() {
    let dir = tempfile::tempdir().unwrap();
    write_files(dir.path(), &["a"]);
    for pattern in
        [format!("{}/*.tgz", dir.path().display()), format!("{0}/a0.tar::{0}/[xy]*", dir.path().display())]
    {
        let error = single(&pattern).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NoShards(_)), "{error}");
        assert!(error.to_string().contains(pattern.rsplit("::").next().unwrap()), "{error}");
    }
    let empty = Dataset::builder(ShardList::from_urls([""; 0])).topology(Topology::single()).build();
    assert!(matches!(empty.unwrap_err().kind(), ErrorKind::NoShards(_)));
    let missing = single(&format!("{}/nowhere/*.tar", dir.path().display())).unwrap_err();
    assert!(matches!(missing.kind(), ErrorKind::NotFound(_)), "{missing}");
}

#[test]
fn every_reader_needs_a_shard() {
    let build = |topology: Topology, streams: Option<usize>| {
        let builder = dataset(&[1, 1, 1]).topology(topology);
        let error = match streams {
            Some(streams) => builder.streams(streams).build().unwrap_err(),
            None => builder.build().unwrap_err(),
        };
        match error.kind() {
            ErrorKind::TooFewShards { shards: 3, readers, what } => (*readers, *what),
            _ => panic!("{error}"),
        }
    };
    assert_eq!(build(Topology::new(1, 4).unwrap(), None), (4, "ranks"));
    assert_eq!(
        build(Topology::new(1, 2).unwrap().with_worker(0, 2).unwrap(), None),
        (4, "workers of all ranks")
    );
    assert_eq!(build(Topology::single(), Some(4)), (4, "streams"));
    let error = dataset(&[1]).topology(Topology::new(0, 2).unwrap()).build().unwrap_err().to_string();
    assert!(error.contains("use an index, which cuts shards into slices"), "{error}");
    let uneven = dataset(&[1, 1, 1]).topology(Topology::new(0, 2).unwrap()).streams(3).build();
    assert!(matches!(uneven.unwrap_err().kind(), ErrorKind::Config(_)));
}

#[test]
fn resampled_shards_cannot_be_kept() {
    let error = dataset(&[1, 1]).keep_shards(true).resample_shards(true).build().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error}");
    assert!(error.to_string().contains("`keep_shards` and `resample_shards`"), "{error}");
}

/// Runs a process that builds a dataset of `pattern`, in the given directory and with the given environment
/// variables. Returns its output.
fn in_child(dir: &Path, pattern: &str, environment: &[(&str, &str)]) -> String {
    let child = child(module_path!(), "keys_in_child")
        .current_dir(dir)
        .envs(environment.iter().copied())
        .env("TEST_PATTERN", pattern)
        .output()
        .unwrap();
    let output = String::from_utf8(child.stdout).unwrap();
    let answer = output.split("<<").nth(1).and_then(|rest| rest.split(">>").next());
    answer.unwrap_or_else(|| panic!("{output}{}", String::from_utf8_lossy(&child.stderr))).to_owned()
}

#[test]
#[ignore = "run by other tests through `in_child`"]
fn keys_in_child() {
    let pattern = std::env::var("TEST_PATTERN").unwrap();
    match Dataset::builder(pattern).build() {
        Ok(dataset) => println!("<<{}>>", keys(dataset.samples(0)).join(" ")),
        Err(error) => println!("<<{error}>>"),
    }
}

#[test]
fn patterns_are_relative_to_the_working_directory() {
    let dir = tempfile::tempdir().unwrap();
    write_files(dir.path(), &["b", "a", "sub/d", "sub/deep/e"]);
    let found = |pattern| in_child(dir.path(), pattern, &[]);
    assert_eq!(found("a0.tar"), "a");
    assert_eq!(found("*.tar"), "a b");
    assert_eq!(found("./*.tar"), "a b");
    assert_eq!(found("sub/*.tar"), "sub/d");
    assert_eq!(found("*/*.tar"), "sub/d");
    assert_eq!(found("**/*.tar"), "a b sub/d sub/deep/e");
    let up = in_child(&dir.path().join("sub"), "../*.tar", &[]);
    assert_eq!(up, "a b");
    let nothing = found("*.tgz");
    assert!(nothing.contains("no shards") && nothing.contains("*.tgz"), "{nothing}");
}

#[test]
fn an_undeclared_topology_in_the_environment_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    write_files(dir.path(), &["a", "b"]);
    let environments: [&[(&str, &str)]; 3] = [
        &[("RANK", "1"), ("WORLD_SIZE", "2")],
        &[("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "2")],
        &[("WORKER", "0"), ("NUM_WORKERS", "2")],
    ];
    for environment in environments {
        let answer = in_child(dir.path(), "*.tar", environment);
        let parts =
            ["bad topology", " of 2", ".topology(Topology::detect()?)", ".topology(Topology::single())"];
        assert!(parts.iter().all(|part| answer.contains(part)), "{answer}");
    }
    assert_eq!(in_child(dir.path(), "*.tar", &[("RANK", "0"), ("WORLD_SIZE", "1")]), "a b");
    let half = in_child(dir.path(), "*.tar", &[("RANK", "0")]);
    assert!(half.contains("WORLD_SIZE"), "{half}");
}

#[test]
fn a_subset_of_the_shards_keeps_their_positions() {
    let sizes = [2, 3, 4, 5];
    let shown = |dataset: &Dataset| -> Vec<(String, u64, u64)> {
        let shown =
            |sample: Sample| (sample.key().to_owned(), sample.position().shard, sample.rng(7).below(1 << 40));
        sorted(dataset.samples(1).results().map(|sample| shown(sample.unwrap())).collect())
    };
    let whole = shown(&dataset(&sizes).build().unwrap());
    let part = |numbers: &[usize]| dataset(&sizes).only(numbers.iter().copied());
    let halves: Vec<_> =
        [&[3, 0][..], &[1, 2]].iter().flat_map(|half| shown(&part(half).build().unwrap())).collect();
    assert_eq!(sorted(halves), whole);
    let in_this_order = keys(part(&[3, 0]).build().unwrap().samples(0));
    assert_eq!((&in_this_order[0], &in_this_order[5]), (&key(3, 0), &key(0, 0)));
    assert!(matches!(part(&[4]).build().unwrap_err().kind(), ErrorKind::Config(_)));
    let dealt = part(&[3, 0]).topology(Topology::new(1, 2).unwrap()).build().unwrap();
    assert_eq!(keys(dealt.samples(0)), [key(0, 0), key(0, 1)]);
    let none = part(&[]).build().unwrap_err();
    assert!(matches!(none.kind(), ErrorKind::TooFewShards { shards: 0, .. }), "{none}");
}

#[test]
fn a_pattern_may_be_borrowed() {
    let pattern = "train-{0..2}.tar".to_owned();
    assert_eq!(Dataset::builder(&pattern).build().unwrap().shards().len(), 3);
}

#[cfg(feature = "gzip")]
#[test]
fn compressed_shards_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut endings = vec![".tar", ".tar.gz", ".tgz"];
    if cfg!(feature = "zstd") {
        endings.extend([".tar.zst", ".tzst"]);
    }
    for (shard, ending) in endings.iter().enumerate() {
        let pattern = format!("{}/%d{ending}", dir.path().display());
        let mut writer = ShardWriter::builder(pattern).start_shard(shard as u64).build().unwrap();
        for sample in 0..200 {
            writer.write(&Sample::new(key(shard, sample)).with("txt", "some text ".repeat(sample))).unwrap();
        }
        writer.finish().unwrap();
    }
    let dataset = single(&format!("{}/*", dir.path().display())).unwrap();
    assert_eq!(dataset.shards().len(), endings.len());
    assert_eq!(keys(dataset.samples(0)), all_keys(&vec![200; endings.len()]));
    let streamed = dataset.stream(0).results().map(|sample| sample.unwrap().key().to_owned());
    assert_eq!(
        futures::executor::block_on(streamed.collect::<Vec<_>>()),
        all_keys(&vec![200; endings.len()])
    );

    let path = dir.path().join("1.tar.gz");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let (good, bad): (Vec<_>, Vec<_>) = dataset.samples(0).partition(Result::is_ok);
    assert!(good.len() < 200 * endings.len(), "{}", good.len());
    assert!(good.len() >= 200 * (endings.len() - 1));
    let error = bad.into_iter().next().unwrap().unwrap_err();
    assert!(error.location().shard().unwrap().ends_with("1.tar.gz"), "{error}");
}

/// All readers of a job.
fn readers(world_size: usize, workers: usize) -> impl Iterator<Item = Topology> {
    (0..world_size * workers).map(move |reader| {
        let topology = Topology::new(reader % world_size, world_size).unwrap();
        topology.with_worker(reader / world_size, workers).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn all_readers_together_read_each_sample_once(
        world_size in 1usize..5, workers in 1usize..4, rounds in 1usize..4, seed: u64, epoch: u64,
        shuffled: bool, kept: bool,
        sizes in proptest::collection::vec(0usize..5, 0..12),
    ) {
        let streams = world_size * workers * rounds;
        let sizes = [vec![1; streams], sizes].concat();
        let dataset = dataset(&sizes).streams(streams).shuffle_shards(shuffled).keep_shards(kept).seed(seed);
        let read = readers(world_size, workers).flat_map(|topology| {
            keys(dataset.clone().topology(topology).build().unwrap().samples(epoch))
        });
        prop_assert_eq!(sorted(read.collect()), all_keys(&sizes));
    }
}

/// The items of all readers, grouped by step: in each step, a reader takes `per_round` items.
fn rounds(items: impl Iterator<Item = Vec<String>>, per_round: usize) -> Vec<Vec<String>> {
    let mut rounds = Vec::<Vec<String>>::new();
    for items in items {
        for (round, items) in items.chunks(per_round).enumerate() {
            rounds.resize(rounds.len().max(round + 1), Vec::new());
            rounds[round].extend_from_slice(items);
        }
    }
    rounds.into_iter().map(sorted).collect()
}

#[test]
fn a_step_has_the_same_samples_on_any_number_of_ranks() {
    const STREAMS: usize = 12;
    // All streams have the same number of samples, so that all ranks take the same number of steps.
    let builder = dataset(&[5; 3 * STREAMS]).streams(STREAMS).shuffle_shards(true).seed(1);
    let of_ranks = |world_size: usize, workers: usize, shuffle: usize| {
        let per_round = STREAMS / world_size / workers;
        let items = readers(world_size, workers).map(|topology| {
            let dataset = builder.clone().topology(topology).build().unwrap();
            assert_eq!(dataset.streams().len(), per_round);
            let batches = Loader::builder(dataset)
                .shuffle(shuffle)
                .threads(2)
                .batch(per_round)
                .uneven_steps(true)
                .build()
                .unwrap()
                .epoch(4);
            batches
                .flat_map(|batch| batch.unwrap().into_items())
                .map(|sample| sample.key().to_owned())
                .collect()
        });
        rounds(items, per_round)
    };
    for shuffle in [0, 7] {
        let expected = of_ranks(1, 1, shuffle);
        assert_eq!(expected.len(), 15);
        for (world_size, workers) in [(2, 1), (3, 1), (4, 1), (6, 1), (12, 1), (1, 3), (2, 3)] {
            assert_eq!(
                of_ranks(world_size, workers, shuffle),
                expected,
                "{world_size} ranks, {workers} workers"
            );
        }
    }
    assert_ne!(of_ranks(1, 1, 0), of_ranks(1, 1, 7));
}

/// A source of one archive under signed URLs. The first sample of the archive is damaged.
#[derive(Debug)]
struct Signed;

impl Source for Signed {
    fn get(&self, _: &str, _: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let samples = ["a", "b"].map(|key| Sample::new(key).with("cls", 1));
        let mut bytes = crate::support::archive(&samples);
        bytes[1024] ^= 1;
        let body = stream::once(future::ready(Ok(bytes.into()))).boxed();
        future::ready(Ok(GetResponse::new(body))).boxed()
    }
}

#[test]
fn no_message_shows_a_signature() {
    let store = Store::builder().with_source("https://host", Arc::new(Signed)).build().unwrap();
    let shards = ShardList::from_urls(["https://host/a.tar?signature=secret"]);
    let dataset = Dataset::builder(shards).store(store).topology(Topology::single()).build().unwrap();
    let damage = dataset.samples(0).next().unwrap().unwrap_err();
    assert_eq!(damage.location().shard(), Some("https://host/a.tar?[redacted]"));
    let loader = Loader::builder(dataset.clone())
        .map(|sample| sample.clone().take::<String>("txt"))
        .batch(1)
        .build()
        .unwrap();
    let failed = loader.epoch(0).next().unwrap().unwrap_err();
    for shown in [format!("{damage} {damage:?} {failed} {failed:?}"), format!("{dataset:?} {loader:?}")] {
        assert!(!shown.contains("secret"), "{shown}");
    }
}

/// The order of a long list of shards is computed once, not once per stream, which would take too long.
#[test]
fn thousands_of_streams_read_all_shards_in_order() {
    let shards = ShardList::from_urls((0..6000).map(|n| format!("/nowhere/{n}.tar")));
    let dataset = Dataset::builder(shards).topology(Topology::single()).streams(3000).shuffle_shards(true);
    let dataset = dataset.seed(3).build().unwrap();
    let missing = |error: shardstream::Error| error.location().shard().map(String::from).unwrap();
    let read: Vec<String> = dataset.samples(5).results().map(|sample| missing(sample.unwrap_err())).collect();
    let order = dataset.plan().order(5).into_iter().map(|n| format!("/nowhere/{n}.tar"));
    assert!(order.eq(read));
}
