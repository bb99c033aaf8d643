//! Batches of tensors have the same bytes on any number of threads and ranks, after any stop, and in reused
//! memory.

use crate::support::Every;
use crate::support::shards::{dataset, key, memory, write};
use shardstream::codec::DType;
use shardstream::collate::{Cell, Column, Columns, Output, Scalar, TensorBatch};
use shardstream::loader::{Batches, LastBatch, LoaderBuilder};
use shardstream::prelude::*;
use shardstream::{Error, ErrorKind, Result, Topology};
use std::collections::HashSet;

const SIZES: [usize; 8] = [7, 20, 3, 33, 16, 1, 40, 5];
const SAMPLES: usize = 125;

/// A column that fills a row of 300 bytes with the sample's number, and further outputs with random numbers
/// and the key. Some samples fail.
struct Numbers {
    fails: bool,
}

impl Column for Numbers {
    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::fixed(DType::U8, [100, 3]),
            Output::fixed(DType::U64, [2]).named(".drawn"),
            Output::ragged(DType::U8).named(".key"),
        ]
    }

    fn write(&self, sample: &Sample, seed: u64, cells: &mut [Cell]) -> Result<()> {
        let [row, drawn, key] = cells else { panic!("the column has three outputs") };
        let number = sample.position().sample;
        row.bytes().fill(number as u8);
        let mut rng = sample.rng(seed);
        drawn.numbers::<u64>()?.fill_with(|| rng.below(u64::MAX));
        key.put(sample.key().as_bytes().to_vec())?;
        if self.fails && number % 5 == 3 {
            return Err(Error::step("on purpose"));
        }
        if self.fails && number % 11 == 7 {
            panic!("on purpose");
        }
        Ok(())
    }
}

fn columns(fails: bool) -> Columns {
    Columns::new().with("n", Numbers { fails }).with("label", Scalar::<i32>::new("cls"))
}

/// The bytes, types and shapes of a batch's tensors, copied out of the batch for comparison.
fn content(batch: &TensorBatch) -> Vec<(String, String, Vec<u8>)> {
    let of = |(name, tensor): (&str, &shardstream::tensor::Tensor)| {
        (name.to_owned(), tensor.to_string(), tensor.as_bytes().to_vec())
    };
    batch.iter().map(of).collect()
}

/// The keys in the batch's rows.
fn keys(batch: &TensorBatch) -> Vec<String> {
    let (keys, offsets) = (batch["n.key"].as_bytes(), batch["n.key.offsets"].as_slice::<i64>().unwrap());
    let key = |at: &[i64]| String::from_utf8(keys[at[0] as usize..at[1] as usize].to_vec()).unwrap();
    offsets.windows(2).map(key).collect()
}

type Found = Vec<Result<Vec<(String, String, Vec<u8>)>, String>>;

fn all(batches: Batches<TensorBatch>) -> Found {
    let checked = |batch: TensorBatch| {
        assert!(batch.iter().every(|(_, tensor)| tensor.as_bytes().as_ptr().addr() % 256 == 0));
        let (numbers, keys) = (batch["n"].as_bytes(), keys(&batch));
        for (row, key) in numbers.chunks(300).zip(&keys) {
            let number: u8 = key.split('-').nth(1).unwrap().parse().unwrap();
            assert!(row.iter().every(|byte| *byte == number), "{key}");
        }
        content(&batch)
    };
    batches.map(|batch| batch.map(checked).map_err(|error| format!("{error:#}"))).collect()
}

fn items(threads: usize, columns: Columns) -> LoaderBuilder<Sample, TensorBatch> {
    let dataset = dataset(&SIZES).streams(4).shuffle_shards(true).seed(42).build().unwrap();
    Loader::builder(dataset).shuffle(10).threads(threads).batch(8).collate(columns)
}

fn loader(threads: usize, columns: Columns) -> Loader<TensorBatch> {
    items(threads, columns).build().unwrap()
}

#[test]
fn threads_and_async_iteration_change_no_batch() {
    for fails in [false, true] {
        let expected = all(loader(0, columns(fails)).epoch(1));
        let rows: usize = expected.iter().flatten().map(|batch| batch[0].2.len() / 300).sum();
        let errors = expected.iter().filter(|batch| batch.is_err()).count();
        assert_eq!(rows + errors, SAMPLES);
        assert_eq!(errors > 20, fails);
        for threads in [1, 2, 5] {
            assert_eq!(all(loader(threads, columns(fails)).epoch(1)), expected, "{threads} threads");
        }
        let stream = futures::executor::block_on_stream(loader(2, columns(fails)).epoch(1).into_stream());
        let streamed: Found =
            stream.map(|b| b.map(|b| content(&b)).map_err(|error| format!("{error:#}"))).collect();
        assert_eq!(streamed, expected);
    }
}

#[test]
fn errors_say_which_sample_and_shard() {
    let error = loader(2, columns(true)).epoch(0).find_map(Result::err).unwrap();
    let text = format!("{error:#}");
    assert!(text.contains("on purpose") && text.contains("sample 0") && text.contains("mem://"), "{text}");
}

#[test]
fn a_padded_batch_repeats_its_last_row() {
    let padded = items(2, columns(true)).last_batch(LastBatch::Pad).build().unwrap();
    let mut valid = Vec::new();
    for batch in padded.epoch(0).filter_map(Result::ok) {
        assert_eq!((batch.len(), batch["n"].shape()), (8, &[8, 100, 3][..]));
        assert_eq!(batch.mask().filter(|real| *real).count(), batch.valid());
        valid.push(batch.valid());
        let keys = keys(&batch);
        let last = batch.valid() - 1;
        let drawn: Vec<&[u8]> = batch["n.drawn"].as_bytes().chunks(16).collect();
        for at in batch.valid()..8 {
            assert_eq!((&keys[at], drawn[at]), (&keys[last], drawn[last]));
        }
    }
    assert_eq!(valid.iter().sum::<usize>(), SAMPLES - padded.epoch(0).filter(Result::is_err).count());
    // Failed samples are replaced by later samples, so slots stay empty only where streams have ended.
    assert!(
        valid.starts_with(&[8]) && valid.is_sorted_by(|a, b| a >= b) && !valid.ends_with(&[0]),
        "{valid:?}"
    );
}

#[test]
fn a_job_resumes_after_any_batch() {
    let loader = items(2, columns(true)).last_batch(LastBatch::Pad).build().unwrap();
    let next = |batches: &mut Batches<TensorBatch>| {
        let batch = batches.next().unwrap();
        batch.map(|batch| content(&batch)).map_err(|error| format!("{error:#}"))
    };
    let mut batches = loader.epochs(0);
    let mut checked = 0;
    while checked < 12 {
        if next(&mut batches).is_err() {
            continue;
        }
        checked += 1;
        let mut restored = loader.restore(&batches.state().to_string().parse().unwrap()).unwrap();
        let mut again = loader.restore(&batches.state()).unwrap();
        for at in 0..30 {
            assert_eq!(next(&mut again), next(&mut restored), "{at} after batch {checked}");
        }
    }
    let mut rest = loader.restore(&batches.state()).unwrap();
    (0..60).for_each(|at| assert_eq!(next(&mut rest), next(&mut batches), "{at}, errors in their places"));
}

#[test]
fn all_ranks_together_have_the_rows_of_one() {
    let store = memory();
    let shards = write(&store, &[16; 8]);
    let rows = |rank, ranks, batch| {
        let topology = Topology::new(rank, ranks).unwrap();
        let dataset =
            Dataset::builder(shards.clone()).store(store.clone()).topology(topology).streams(4).seed(1);
        let builder = Loader::builder(dataset.build().unwrap()).batch(batch).collate(columns(false));
        let loader = builder.uneven_steps(true).build().unwrap();
        let batches: Vec<_> = loader.epoch(0).map(|batch| content(&batch.unwrap())).collect();
        batches
    };
    let one = rows(0, 1, 16);
    let two = [rows(0, 2, 8), rows(1, 2, 8)];
    for (step, batch) in one.iter().enumerate() {
        let drawn = |batch: &[(String, String, Vec<u8>)]| -> HashSet<Vec<u8>> {
            batch[1].2.chunks(16).map(<[u8]>::to_vec).collect()
        };
        let together: HashSet<_> = two.iter().flat_map(|rank| drawn(&rank[step])).collect();
        assert_eq!(together, drawn(batch), "step {step}");
    }
}

#[test]
fn tensor_memory_is_reused() {
    let mut addresses = HashSet::new();
    let mut batches = 0;
    for batch in loader(2, columns(false)).epochs(0).take(2000) {
        batches += 1;
        addresses.insert(batch.unwrap()["n"].as_bytes().as_ptr().addr());
    }
    assert_eq!(batches, 2000);
    assert!(addresses.len() < 200, "{} buffers for {batches} batches", addresses.len());
}

#[test]
fn a_map_that_rebuilds_samples_keeps_their_random_numbers() {
    let plain: Vec<_> = all(loader(2, columns(false)).epoch(0));
    let dataset = dataset(&SIZES).streams(4).shuffle_shards(true).seed(42).build().unwrap();
    let rebuilt = Loader::builder(dataset).shuffle(10).threads(2).map(|mut sample| {
        let new = Sample::new(sample.key());
        Ok(new.with("cls", sample.take::<Value>("cls")?))
    });
    let rebuilt = all(rebuilt.batch(8).collate(columns(false)).build().unwrap().epoch(0));
    assert_eq!(rebuilt, plain);
}

#[test]
fn bad_options_are_errors() {
    let error = |columns: Columns| items(1, columns).build().unwrap_err();
    let label = || Scalar::<i32>::new("cls");
    for columns in [
        Columns::new(),
        Columns::new().with("a", label()).with("a", label()),
        Columns::new().with("n", Numbers { fails: false }).with("n.key.offsets", label()),
    ] {
        assert!(matches!(error(columns).kind(), ErrorKind::Config(_)));
    }
    let none = Columns::new().collate([]).unwrap_err();
    assert!(none.to_string().contains("Columns::with"), "{none}");
    let missing = loader(1, columns(false)).epoch(0).next().unwrap().unwrap().take("image").unwrap_err();
    assert!(missing.to_string().contains("n.drawn"), "{missing}");
}

#[test]
fn samples_can_be_collated_without_a_loader() {
    let samples: Vec<Sample> = (0..3).map(|n| Sample::new(format!("a-{n}")).with("cls", n)).collect();
    let batch = columns(false).collate(samples).unwrap();
    assert_eq!((batch.len(), batch.valid()), (3, 3));
    assert_eq!(keys(&batch), ["a-0", "a-1", "a-2"]);
    assert_eq!(batch["label"].as_slice::<i32>().unwrap(), [0, 1, 2]);
    assert!(columns(false).collate([]).unwrap().is_empty());
}

#[test]
fn a_batch_without_rows_still_has_tensors() {
    let failing =
        Columns::new().with_fn("x", [2], |_: &Sample, _: &mut [f32]| Err(Error::step("on purpose")));
    let dataset = dataset(&[2]).build().unwrap();
    let loader = Loader::builder(dataset).threads(1).batch(1).collate(failing).build().unwrap();
    let found: Vec<_> =
        loader.epoch(0).map(|batch| batch.unwrap_err().location().key().unwrap().to_owned()).collect();
    assert_eq!(found, [key(0, 0), key(0, 1)], "where nothing can be made, there is no batch");
    let batch = columns(false).collate([]).unwrap();
    assert!(batch.is_empty());
    assert!(batch.iter().count() > 3);
    assert!(batch.iter().every(|(_, tensor)| tensor.as_bytes().as_ptr().addr() % 256 == 0));
}

#[test]
fn a_panic_in_finish_is_an_error_of_the_batch() {
    struct Panics;
    impl Column for Panics {
        fn outputs(&self) -> Vec<Output> {
            vec![Output::fixed(DType::U8, [])]
        }

        fn write(&self, _: &Sample, _: u64, _: &mut [Cell]) -> Result<()> {
            Ok(())
        }

        fn finished(&self) -> Option<Vec<&'static str>> {
            Some(vec![""])
        }

        fn finish(
            &self,
            _: Vec<shardstream::tensor::Tensor>,
            _: usize,
        ) -> Result<Vec<shardstream::tensor::Tensor>> {
            panic!("on purpose")
        }
    }
    for threads in [0, 2] {
        let dataset = dataset(&[6]).build().unwrap();
        let loader = Loader::builder(dataset).threads(threads).batch(2);
        let batches: Vec<_> =
            loader.collate(Columns::new().with("x", Panics)).build().unwrap().epoch(0).collect();
        assert_eq!(batches.len(), 3, "{threads} threads");
        assert!(batches.iter().every(|batch| batch.as_ref().unwrap_err().to_string().contains("on purpose")));
    }
}

#[test]
fn a_column_must_write_cells_as_it_declared_them() {
    struct Puts(Output);
    impl Column for Puts {
        fn outputs(&self) -> Vec<Output> {
            vec![self.0.clone()]
        }

        fn write(&self, _: &Sample, _: u64, cells: &mut [Cell]) -> Result<()> {
            cells[0].put(vec![0; 6])
        }
    }
    for output in [Output::ragged(DType::F32), Output::fixed(DType::U8, [6])] {
        let error = Columns::new().with("x", Puts(output)).collate([Sample::new("this one")]).unwrap_err();
        assert_eq!(error.location().key(), Some("this one"));
    }
}
