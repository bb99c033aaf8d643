//! Columns after stages that change the number of items: each item has a row, and the rows are contiguous in
//! aligned memory.

use super::{VersionedSource, number, saved};
use crate::support::Every;
use shardstream::codec::DType;
use shardstream::collate::{Cell, Column, Columns, Output, TensorBatch};
use shardstream::loader::{Batches, Failures, LastBatch, LoaderBuilder, OnError};
use shardstream::prelude::*;
use shardstream::{Error, Result};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const SIZES: [usize; 4] = [30, 30, 30, 30];

/// A column that writes an item's number, the item's index among the outputs of its sample, random numbers,
/// and an image of 200 bytes.
struct NumberColumn;

impl Column for NumberColumn {
    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::fixed(DType::U64, [2]),
            Output::fixed(DType::U64, []).named(".drawn"),
            Output::fixed(DType::U8, [100, 2]).named(".picture"),
            Output::ragged(DType::U8).named(".key"),
        ]
    }

    fn write(&self, sample: &Sample, seed: u64, cells: &mut [Cell]) -> Result<()> {
        let [number_cell, drawn, picture, key] = cells else { panic!("the column has four outputs") };
        let part = sample.get("part").map_or(0, |value| u64::from(value.as_bytes().unwrap()[0]));
        number_cell.numbers::<u64>()?.copy_from_slice(&[number(sample), part]);
        drawn.numbers::<u64>()?[0] = sample.rng(seed).below(u64::MAX);
        picture.bytes().fill((number(sample) % 251) as u8 + part as u8);
        if number(sample) % 13 == 5 {
            return Err(Error::step("no picture"));
        }
        key.put(sample.key().as_bytes().to_vec())
    }
}

fn kept(number: u64) -> bool {
    number % 4 != 1
}

fn many(number: u64) -> u64 {
    number % 3
}

fn dataset() -> Dataset {
    VersionedSource::of(&SIZES).dataset(4).streams(2).shuffle_shards(true).seed(9).build().unwrap()
}

type Stage = fn(LoaderBuilder<Sample>) -> LoaderBuilder<Sample>;
/// The number of rows of the sample with this number.
type Count = fn(u64) -> u64;

/// Stages, and the number of rows that each sample has after them.
const STAGES: [(Stage, Count); 4] = [
    (|items| items.filter(|sample| kept(number(sample))), |number| u64::from(kept(number))),
    (
        |items| items.filter_map(|sample| Ok(Some(sample).filter(|s| kept(number(s))))),
        |number| u64::from(kept(number)),
    ),
    (
        |items| {
            items.flat_map(|sample| {
                let parts = many(number(&sample));
                Ok((0..parts).map(move |part| sample.clone().with("part", vec![part as u8])))
            })
        },
        many,
    ),
    // The stage returns new samples instead of copies of its input. The rows of new samples must have the
    // same values as the rows of copies.
    (
        |items| {
            let items = items.filter_map(|sample| Ok(Some(sample).filter(|s| kept(number(s)))));
            items.flat_map(|sample| {
                let (key, parts) = (sample.key().to_owned(), many(number(&sample)));
                Ok((0..parts).map(move |part| Sample::new(key.clone()).with("part", vec![part as u8])))
            })
        },
        |number| if kept(number) { many(number) } else { 0 },
    ),
];

fn loader(stage: Stage, threads: usize, last: LastBatch) -> Loader<TensorBatch> {
    let items = stage(Loader::builder(dataset()).shuffle(8)).threads(threads).batch(6);
    let items = items.collate(Columns::new().with("x", NumberColumn)).last_batch(last);
    items.on_error(OnError::skip(Failures::step())).build().unwrap()
}

/// For each row: the number of its sample, its index among the outputs of the sample, and a random number.
type Rows = Vec<(u64, u64, u64)>;

/// The rows of a batch. Fails if the tensors of a row disagree.
fn rows(batch: &TensorBatch) -> Rows {
    let number_and_part = batch["x"].as_slice::<u64>().unwrap();
    let drawn = batch["x.drawn"].as_slice::<u64>().unwrap();
    let pictures = batch["x.picture"].as_bytes();
    let (keys, ends) = (batch["x.key"].as_bytes(), batch["x.key.offsets"].as_slice::<i64>().unwrap());
    assert!(batch.iter().every(|(_, tensor)| tensor.as_bytes().as_ptr().addr() % 256 == 0));
    let rows = batch.len();
    assert_eq!((batch["x"].shape(), batch["x.picture"].shape()), (&[rows, 2][..], &[rows, 100, 2][..]));
    assert_eq!(
        (number_and_part.len(), drawn.len(), pictures.len(), ends.len()),
        (2 * rows, rows, 200 * rows, rows + 1)
    );
    (0..rows)
        .map(|row| {
            let (number, part) = (number_and_part[2 * row], number_and_part[2 * row + 1]);
            let picture = &pictures[200 * row..200 * (row + 1)];
            assert!(
                picture.iter().every(|byte| *byte == (number % 251) as u8 + part as u8),
                "{number}.{part}"
            );
            let key = &keys[ends[row] as usize..ends[row + 1] as usize];
            assert_eq!(
                std::str::from_utf8(key).unwrap(),
                crate::support::shards::key(number as usize / 1000, number as usize % 1000)
            );
            (number, part, drawn[row])
        })
        .collect()
}

fn all(batches: Batches<TensorBatch>) -> Vec<Rows> {
    batches.map(|batch| rows(&batch.unwrap())).collect()
}

#[test]
fn rows_are_the_remaining_items() {
    for (stage, times) in STAGES {
        let found = all(loader(stage, 0, LastBatch::Keep).epoch(1));
        let mut numbers: Vec<_> = found.concat().iter().map(|(number, part, _)| (*number, *part)).collect();
        numbers.sort_unstable();
        let every = (0..4).flat_map(|shard| (0..30).map(move |n| shard * 1000 + n)).filter(|n| n % 13 != 5);
        let expected = every.flat_map(|number| (0..times(number)).map(move |part| (number, part)));
        assert_eq!(numbers, expected.collect::<Vec<_>>());
        assert!(found[..found.len() - 3].iter().every(|rows| rows.len() == 6), "batches are full");
        // The random numbers of all rows differ.
        let drawn: HashSet<u64> = found.concat().iter().map(|(_, _, drawn)| *drawn).collect();
        assert_eq!(drawn.len(), numbers.len());
    }
}

#[test]
fn threads_resuming_and_padding_change_no_row() {
    for (stage, _) in STAGES {
        for last in [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad] {
            let expected = all(loader(stage, 0, last).epoch(2));
            if last != LastBatch::Keep {
                assert!(expected.iter().every(|rows| rows.len() == 6), "{last:?}");
            }
            for threads in [1, 3] {
                assert_eq!(
                    all(loader(stage, threads, last).epoch(2)),
                    expected,
                    "{last:?}, {threads} threads"
                );
            }
            let states: Vec<_> =
                loader(stage, 0, last).epoch(2).map(|batch| saved(batch.unwrap().state().unwrap())).collect();
            for (at, state) in states.iter().enumerate() {
                for threads in [0, 2] {
                    let rest = all(loader(stage, threads, last).restore(state).unwrap());
                    assert_eq!(rest, expected[at + 1..], "{last:?} after {at}");
                }
            }
        }
    }
}

#[test]
fn tensor_memory_is_reused_after_stages() {
    for (stage, _) in STAGES {
        let mut addresses = HashSet::new();
        let mut batches = 0;
        for batch in loader(stage, 2, LastBatch::Keep).epochs(0).take(1000) {
            batches += 1;
            addresses.insert(batch.unwrap()["x.picture"].as_bytes().as_ptr().addr());
        }
        assert_eq!(batches, 1000);
        assert!(addresses.len() < 200, "{} buffers for {batches} batches", addresses.len());
    }
}

#[test]
fn the_first_output_has_the_random_numbers_of_its_sample() {
    let plain = all(loader(|items| items, 0, LastBatch::Keep).epoch(3)).concat();
    let split = all(loader(STAGES[2].0, 0, LastBatch::Keep).epoch(3)).concat();
    let firsts = split.iter().filter(|(_, part, _)| *part == 0);
    let drawn = |number: u64| plain.iter().find(|(other, _, _)| *other == number).map(|(_, _, drawn)| *drawn);
    assert!(firsts.clone().count() > 50);
    for (number, _, first) in firsts {
        assert_eq!(drawn(*number), Some(*first), "{number}");
    }
}

/// A column that pauses at each row, and records the names of the threads that write its rows.
struct WrittenBy(Arc<Mutex<HashSet<String>>>, Duration);

impl Column for WrittenBy {
    fn outputs(&self) -> Vec<Output> {
        vec![Output::fixed(DType::U64, [])]
    }

    fn write(&self, sample: &Sample, _: u64, cells: &mut [Cell]) -> Result<()> {
        thread::sleep(self.1);
        cells[0].numbers::<u64>()?[0] = number(sample);
        let name = thread::current().name().unwrap_or_default().to_owned();
        self.0.lock().unwrap().insert(name);
        Ok(())
    }
}

/// After a stateful stage, rows are written by the loader's own threads and by the thread that collects
/// batches. No thread is started per batch, and the report counts all threads.
#[test]
fn rows_after_a_stage_are_written_by_the_threads_of_the_loader() {
    for threads in [0, 1, 3] {
        let names = Arc::new(Mutex::new(HashSet::new()));
        let column = WrittenBy(Arc::clone(&names), Duration::from_millis(1));
        let groups = Loader::builder(dataset()).group_by(1, |_| Ok(0));
        let samples = groups.map(|mut group| Ok(group.remove(0)));
        let loader = samples.collate(Columns::new().with("n", column)).batch(24).threads(threads);
        let mut batches = loader.build().unwrap().epoch(0);
        let mut known = HashSet::from([thread::current().name().unwrap().to_owned()]);
        while let Some(batch) = batches.next() {
            assert_eq!(batch.unwrap().len(), 24);
            let diagnosis = serde_json::to_value(batches.diagnose()).unwrap();
            let threads = diagnosis["threads"].as_array().unwrap().iter();
            known.extend(threads.map(|thread| thread["name"].as_str().unwrap().to_owned()));
        }
        let names = names.lock().unwrap();
        assert!(names.is_subset(&known), "{names:?} of {known:?}");
        let mapping = names.iter().filter(|name| name.starts_with("shardstream-map")).count();
        match threads {
            0 => assert_eq!(mapping, 0, "{names:?}"),
            // With one thread, the collecting thread writes all rows.
            1 => assert!(names.len() == 1 && names.contains("shardstream-prefetch-0"), "{names:?}"),
            _ => assert!((1..=threads).contains(&mapping), "{names:?}"),
        }
    }
}
