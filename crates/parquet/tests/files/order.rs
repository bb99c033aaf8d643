//! Datasets of Parquet files have the same order, states and lengths as datasets of JSON lines with the same
//! rows.

use crate::texts;
use proptest::prelude::*;
use shardstream::dataset::{DatasetBuilder, Side};
use shardstream::loader::Batches;
use shardstream::prelude::*;
use shardstream::{Index, Position};
use shardstream_parquet::Parquet;
use std::path::Path;

/// Number of rows in each file.
const ROWS: [usize; 3] = [150, 200, 250];

/// Writes the rows as files of JSON lines, and returns the pattern that matches these files.
fn json_lines(directory: &Path) -> String {
    for (shard, rows) in ROWS.into_iter().enumerate() {
        let line = |row: usize| format!("{{\"text\": \"text {row} of shard {shard}\"}}\n");
        let lines: String = (0..rows).map(line).collect();
        std::fs::write(directory.join(format!("texts-{shard}.jsonl")), lines).unwrap();
    }
    directory.join("texts-*.jsonl").display().to_string()
}

fn parquet() -> DatasetBuilder {
    Dataset::builder(texts()).format(Parquet::new().columns(["text"]))
}

fn lines(directory: &Path) -> DatasetBuilder {
    Dataset::builder(json_lines(directory)).auto_index(AutoIndex::in_directory(directory))
}

type Item = (String, Position, String);

fn text(sample: &Sample) -> String {
    match (sample.get("text"), sample.get("json")) {
        (Some(Value::Bytes(text)), _) => String::from_utf8(text.to_vec()).unwrap(),
        (_, Some(Value::Json(line))) => line["text"].as_str().unwrap().to_owned(),
        other => panic!("{other:?}"),
    }
}

/// The options of a job that reads the dataset.
#[derive(Debug, Clone, Copy)]
struct Job {
    seed: u64,
    shuffle: usize,
    batch: usize,
    threads: usize,
    ranks: usize,
    workers: usize,
}

impl Job {
    fn loader(self, dataset: DatasetBuilder, rank: usize, worker: usize) -> Loader<Batch<Item>> {
        let topology = Topology::new(rank, self.ranks).unwrap().with_worker(worker, self.workers).unwrap();
        let dataset = dataset.shuffle_shards(true).streams(4).seed(self.seed).topology(topology);
        let dataset = dataset.build().unwrap();
        let share = dataset.len().unwrap();
        assert!((148..=600).contains(&share), "{share}");
        let loader = Loader::builder(dataset).decode(Decoder::new().only(&["json"]));
        let loader = loader.map(|sample| Ok((sample.key().to_owned(), sample.position(), text(&sample))));
        loader.shuffle(self.shuffle).threads(self.threads).batch(self.batch).build().unwrap()
    }
}

fn batches(batches: Batches<Batch<Item>>) -> Vec<Vec<Item>> {
    batches.map(|batch| batch.unwrap().into_items()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn rows_have_the_order_of_json_lines_on_any_ranks_and_resume_anywhere(
        (seed, shuffle) in (0u64..1000, prop_oneof![Just(1usize), 2usize..60]),
        (batch, threads) in (1usize..40, 1usize..3),
        (ranks, workers) in prop_oneof![Just((1, 1)), Just((2, 1)), Just((1, 2)), Just((2, 2)), Just((4, 1))],
        stops in prop::collection::vec(0usize..80, 3),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let job = Job { seed, shuffle, batch, threads, ranks, workers };
        let mut read = 0;
        for rank in 0..ranks {
            for worker in 0..workers {
                let expected = batches(job.loader(lines(directory.path()), rank, worker).epoch(1));
                let loader = job.loader(parquet(), rank, worker);
                prop_assert_eq!(&batches(loader.epoch(1)), &expected);
                read += expected.iter().map(Vec::len).sum::<usize>();
                for stop in &stops {
                    let stop = stop % (expected.len() + 1);
                    let mut begun = loader.epoch(1);
                    prop_assert!(begun.by_ref().take(stop).filter(Result::is_ok).count() == stop);
                    let state = begun.state();
                    drop(begun);
                    let rest = batches(job.loader(parquet(), rank, worker).restore(&state).unwrap());
                    prop_assert_eq!(&rest[..], &expected[stop..], "after {}", stop);
                }
            }
        }
        prop_assert_eq!(read, 600);
    }
}

#[test]
fn slices_begin_at_any_row() {
    let dataset = parquet().build().unwrap();
    let view = dataset.indexed_view().unwrap();
    for number in (0..600).step_by(7) {
        let sample = view.get(number).unwrap();
        let (shard, row) = (sample.position().shard, sample.position().sample);
        assert_eq!(text(&sample), format!("text {row} of shard {shard}"));
        assert_eq!(sample.key(), format!("{row:09}"));
    }
}

#[test]
fn an_index_is_saved_and_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let keys = |dataset: DatasetBuilder| -> Vec<String> {
        let samples = dataset.build().unwrap().samples(0).results();
        samples.map(|sample| text(&sample.unwrap())).collect()
    };
    let expected = keys(parquet());
    for _ in 0..2 {
        assert_eq!(keys(parquet().auto_index(AutoIndex::in_directory(directory.path()))), expected);
    }
    let saved = || std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    assert_eq!(saved().count(), 1);
    let url = saved().next().unwrap().display().to_string();
    let index = Index::load(&Store::default(), &url).unwrap();
    assert_eq!(index.iter().map(|shard| shard.samples()).collect::<Vec<_>>(), [150, 200, 250]);
    assert!(index.iter().all(|shard| shard.range(0..1).is_none()), "rows have no range of their own");
    assert_eq!(keys(parquet().index(index)), expected);
}

#[test]
fn checksums_and_filters_read_the_rows() {
    let shards = ShardList::from_urls(
        (0..3).map(|shard| crate::data(&format!("texts-{shard}.parquet")).display().to_string()),
    );
    let format = || Parquet::new().columns(["text"]);
    let index = Index::builder().format(format()).checksums(true).build(&shards).unwrap();
    let dataset = parquet().index(index).checksums(true).build().unwrap();
    assert_eq!(dataset.samples(0).results().filter(Result::is_ok).count(), 600);
    let is_even = |sample: &Sample| sample.position().sample.is_multiple_of(2);
    let index = Index::builder().format(format()).select("even rows", is_even).build(&shards).unwrap();
    let dataset = parquet().index(index).build().unwrap();
    assert_eq!(dataset.len(), Some(300));
    let samples: Vec<_> = dataset.samples(0).results().map(Result::unwrap).collect();
    assert_eq!(samples.len(), 300);
    assert!(samples.iter().all(is_even));
}

#[test]
fn rows_are_joined_by_their_keys_and_found_by_them() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = lines(directory.path()).join(Side::new(texts()).format(Parquet::new()).prefix("row."));
    let samples: Vec<_> = dataset.build().unwrap().samples(0).results().map(Result::unwrap).collect();
    assert_eq!(samples.len(), 600);
    for sample in samples {
        assert_eq!(
            sample.get("row.length").map(|value| format!("{value:?}")),
            Some(sample.position().sample.to_string())
        );
    }
    let shards = ShardList::expand(&texts().replace("*", "{0..2}")).unwrap();
    let keyed = Parquet::new().columns(["text"]).key("id");
    let keys = Index::builder().format(keyed.clone()).build_keys(&shards).unwrap();
    let dataset = Dataset::builder(shards).format(keyed).build().unwrap();
    assert_eq!(text(&dataset.by_key(&keys, "1-0123").unwrap()), "text 123 of shard 1");
}

#[test]
fn a_mixture_takes_both_formats() {
    let directory = tempfile::tempdir().unwrap();
    let item = |dataset: DatasetBuilder| {
        let dataset = dataset.shuffle_shards(true).streams(2).build().unwrap();
        let loader = Loader::builder(dataset).decode(Decoder::new().only(&["json"]));
        loader.map(|sample| Ok((sample.key().to_owned(), sample.position(), text(&sample))))
    };
    let mixed = || Loader::mix([item(parquet()), item(lines(directory.path()))]).batch(16).build().unwrap();
    let whole = batches(mixed().epoch(0));
    assert_eq!(whole.iter().map(Vec::len).sum::<usize>(), 1200);
    let mut begun = mixed().epoch(0);
    assert_eq!(begun.by_ref().take(31).filter(Result::is_ok).count(), 31);
    assert_eq!(batches(mixed().restore(&begun.state()).unwrap()), whole[31..]);
}
