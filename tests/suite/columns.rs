//! The content of tensor batches does not depend on threads, and a job resumes after any batch.

use proptest::prelude::*;
use shardstream::codec::{Array, DType};
use shardstream::collate::{
    ArrayColumn, Blob, Columns, Mixup, Optional, Origin, PackedTokens, Ragged, Scalar, Stack, TensorBatch,
    Text, Tokens,
};
use shardstream::loader::LastBatch;
use shardstream::prelude::*;
use shardstream::{Error, ErrorKind, State};

/// Writes `count` samples in shards of 10. Sample number `n` has `n % 9` tokens.
fn shards(dir: &std::path::Path, count: u32) -> String {
    let pattern = format!("{}/%06d.tar", dir.display());
    let mut writer = ShardWriter::builder(&pattern).max_count(10).build().unwrap();
    for at in 0..count {
        let tokens: Vec<u8> = (0..at % 9).flat_map(|token| (token as u16 + 1).to_le_bytes()).collect();
        let array = Array::from_vec(vec![2], vec![at as f32, 0.5]).unwrap();
        let sample =
            Sample::new(format!("{at:06}")).with("bin", tokens).with("npy", array).with("cls", at % 5);
        let sample = if at.is_multiple_of(3) { sample.with("0.cls", at) } else { sample };
        let sample = if at.is_multiple_of(4) { sample.with("1.cls", at) } else { sample };
        writer.write(&sample.with("txt", format!("text {at}"))).unwrap();
    }
    let last = writer.finish().unwrap().len() - 1;
    pattern.replace("%06d", &format!("{{000000..{last:06}}}"))
}

fn columns() -> Columns {
    Columns::new()
        .with("label", Scalar::<i32>::new("cls"))
        .with("array", ArrayColumn::new("npy", DType::F32, [2]))
        .with("tokens", Tokens::<i32>::new("bin", 8).raw(DType::U16))
        .with("ragged", Ragged::<i64>::new("bin").raw(DType::U16))
        .with("text", Text::new("txt"))
        .with("file", Blob::new("npy"))
        .with("packed", PackedTokens::<i32>::new("bin", 8, 8).raw(DType::U16))
        .with("key", Origin::key())
        .with("shard", Origin::shard())
        .with("position", Origin::position())
        .with("optional", Optional::new(Scalar::<i32>::new("0.cls")).default_value(-1))
        .with("optional text", Optional::new(Text::new("1.cls")))
        .with("stack", Stack::new(["0.cls", "1.cls"], Scalar::<i32>::new))
}

fn loader(shards: &str, threads: usize) -> Loader<TensorBatch> {
    let dataset = Dataset::builder(shards).streams(2).shuffle_shards(true).seed(7).build().unwrap();
    Loader::builder(dataset).shuffle(16).threads(threads).batch(8).collate(columns()).build().unwrap()
}

/// The tensors of a batch after Mixup of its images and labels, and the batch's state.
fn content(batch: Result<TensorBatch, Error>) -> (Vec<(String, Vec<u8>)>, State) {
    let mut batch = batch.unwrap();
    Mixup::new(0.3, 5).unwrap().apply(&mut batch, "array", "label", 1).unwrap();
    let tensors = batch.iter().map(|(name, tensor)| (name.to_owned(), tensor.as_bytes().to_vec())).collect();
    (tensors, batch.state().unwrap().clone())
}

#[test]
fn threads_and_resuming_change_no_batch() {
    let dir = tempfile::tempdir().unwrap();
    let shards = shards(dir.path(), 60);
    let all: Vec<_> = loader(&shards, 0).epoch(1).map(content).collect();
    assert_eq!(all.len(), 8);
    let threaded: Vec<_> = loader(&shards, 3).epoch(1).map(content).collect();
    assert_eq!(threaded, all);
    for (at, (_, state)) in all.iter().enumerate() {
        let rest: Vec<_> = loader(&shards, 2).restore(state).unwrap().map(content).collect();
        assert_eq!(rest, all[at + 1..], "after {at} batches");
    }
}

#[test]
fn a_row_records_its_origin_and_its_missing_fields() {
    let dir = tempfile::tempdir().unwrap();
    let shards = shards(dir.path(), 60);
    let mut seen = 0;
    for batch in loader(&shards, 3).epoch(2) {
        let batch = batch.unwrap();
        let keys: Vec<i64> = batch.strings("key").unwrap().map(|key| key.parse().unwrap()).collect();
        let mut names = batch.strings("shard").unwrap();
        let position = batch["position"].as_slice::<i64>().unwrap().as_chunks::<4>().0;
        let optional = batch["optional"].as_slice::<i32>().unwrap();
        let stack = batch["stack"].as_slice::<i32>().unwrap().as_chunks::<2>().0;
        let present = batch["stack.present"].as_slice::<bool>().unwrap().as_chunks::<2>().0;
        let mut texts = batch.strings("optional text").unwrap();
        for (row, key) in keys.into_iter().enumerate() {
            assert_eq!(position[row], [2, key / 10, key % 10, 0]);
            assert!(names.next().unwrap().ends_with(&format!("/{:06}.tar", key / 10)));
            let [first, second] = [key % 3, key % 4].map(|rest| rest == 0);
            assert_eq!(present[row], [first, second]);
            let number = |there: bool, other: i32| if there { key as i32 } else { other };
            assert_eq!(optional[row], number(first, -1));
            assert_eq!(batch["optional.present"].as_slice::<bool>().unwrap()[row], first);
            assert_eq!(stack[row], [number(first, 0), number(second, 0)]);
            assert_eq!(texts.next().unwrap(), if second { key.to_string() } else { String::new() });
            seen += 1;
        }
    }
    assert_eq!(seen, 60);
}

#[test]
fn each_batch_has_its_own_random_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let shards = shards(dir.path(), 60);
    let first = |epoch| loader(&shards, 0).epoch(epoch).map(|batch| batch.unwrap().rng(3).below(u64::MAX));
    let mut drawn: Vec<u64> = first(0).chain(first(1)).collect();
    drawn.sort_unstable();
    drawn.dedup();
    assert_eq!(drawn.len(), 16);
}

#[test]
fn a_batch_that_fails_to_pack_is_an_error_at_its_position() {
    let dir = tempfile::tempdir().unwrap();
    let shards = shards(dir.path(), 60);
    let dataset = Dataset::builder(shards).streams(1).build().unwrap();
    let columns = Columns::new().with("x", PackedTokens::<i32>::new("bin", 4, 8).raw(DType::U16));
    let loader = Loader::builder(dataset).batch(8).collate(columns).build().unwrap();
    let batches: Vec<_> = loader.epoch(0).collect();
    assert_eq!(batches.len(), 8);
    for error in batches.iter().filter_map(|batch| batch.as_ref().err()) {
        assert!(format!("{error:#}").contains("rows of 8, and there are 4"), "{error:#}");
    }
    let failed = batches.iter().filter(|batch| batch.is_err()).count();
    assert!((1..8).contains(&failed), "{failed}");
}

#[test]
fn padding_repeats_the_last_sample() {
    let dir = tempfile::tempdir().unwrap();
    let shards = shards(dir.path(), 11);
    let dataset = Dataset::builder(shards).streams(1).build().unwrap();
    let loader =
        Loader::builder(dataset).batch(8).last_batch(LastBatch::Pad).collate(columns()).build().unwrap();
    let last = loader.epoch(0).last().unwrap().unwrap();
    assert_eq!((last.len(), last.valid()), (8, 3));
    assert!(
        last.strings("text")
            .unwrap()
            .eq(["8", "9", "10", "10", "10", "10", "10", "10"].map(|at| format!("text {at}")))
    );
    assert_eq!(last["tokens.lengths"].as_slice::<i32>().unwrap(), [8, 0, 1, 1, 1, 1, 1, 1]);
    // The last three samples have 8, 0 and 1 tokens.
    let segments = last["packed.segments"].as_slice::<i32>().unwrap();
    assert_eq!(segments.iter().filter(|segment| **segment > 0).count(), 9);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_decode_to_a_row_or_an_error(
        mut data in prop::collection::vec(any::<u8>(), 0..80), npy: bool,
    ) {
        if npy {
            data.splice(0..0, *b"\x93NUMPY\x01\x00");
        }
        let sample = || Sample::new("k").with("x", data.clone());
        let _ = Columns::new().with("x", Tokens::<i32>::new("x", 4).truncate()).collate([sample()]);
        let _ = Columns::new().with("x", ArrayColumn::new("x", DType::I16, [2])).collate([sample()]);
        let _ = Columns::new().with("x", Ragged::<u8>::new("x").named("a")).collate([sample()]);
        let _ = Columns::new().with("x", Ragged::<u8>::new("x").raw(DType::I64)).collate([sample()]);
    }
}

#[test]
fn a_missing_tensor_has_its_own_error() {
    let columns = Columns::new().with("label", Scalar::<i32>::new("cls")).with("text", Text::new("txt"));
    let mut batch = columns.collate([Sample::new("a").with("cls", 1).with("txt", "x")]).unwrap();
    let missing = |error: Error| match error.kind() {
        ErrorKind::MissingTensor { name, .. } => (name.clone(), error.to_string()),
        other => panic!("{other:?}"),
    };
    let (name, text) = missing(batch.tensor("image").unwrap_err());
    assert_eq!(
        (&*name, &*text),
        ("image", "the batch has no tensor \"image\"; it has: label, text, text.offsets")
    );
    assert_eq!(missing(batch.tensor_mut("x").unwrap_err()).0, "x");
    assert_eq!(missing(batch.pieces::<i32>("label").map(drop).unwrap_err()).0, "label.offsets");
    for name in ["label", "text", "text.offsets"] {
        batch.take(name).unwrap();
        assert_eq!(missing(batch.take(name).unwrap_err()).0, name);
    }
    assert!(missing(batch.tensor("label").unwrap_err()).1.ends_with("it has: nothing"));
}
