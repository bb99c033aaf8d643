//! Bad options are errors of `check` and `build`, before the first sample. The error names the column, the
//! option and the remedy.

#[cfg(feature = "image")]
mod images;

use bytes::Bytes;
use shardstream::codec::DType;
use shardstream::codec::Encoder;
use shardstream::collate::{
    ArrayColumn, Blob, Cell, Column, Columns, Mixup, Optional, Origin, Output, PackedTokens, Ragged, Scalar,
    Stack, Text, Tokens,
};
use shardstream::prelude::*;
use shardstream::store::object_store::memory::InMemory;
use shardstream::store::{Budget, Cache, StoreBuilder};
use shardstream::tar::Limits;
use shardstream::write::{TarOptions, TarWriter};
use shardstream::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::Duration;

/// Fails unless the result is a configuration error whose text contains all `words`.
#[track_caller]
fn refused<T>(result: Result<T>, words: &[&str]) {
    let error: Error = result.err().unwrap_or_else(|| panic!("accepted: {words:?}"));
    assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error:?}");
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text:?} lacks one of {words:?}");
}

/// Fails unless `check` and `collate` refuse the column, before any sample is read; `check` must name the
/// column.
#[track_caller]
fn column(column: impl Column + 'static, words: &[&str]) {
    let columns = Columns::new().with("good", Blob::new("bin")).with("bad one", column);
    refused(columns.check(), &[&["the column \"bad one\""], words].concat());
    refused(columns.collate([]), words);
}

#[test]
fn bad_options_of_columns_are_errors() {
    for spec in ["", ";", "jpg;", "jpg; png"] {
        let words = ["the field", spec, "no spaces"];
        column(Scalar::<i32>::new(spec), &words);
        column(ArrayColumn::new(spec, DType::F32, [2]), &words);
        column(Tokens::<i32>::new(spec, 4), &words);
        column(PackedTokens::<i32>::new(spec, 4, 4), &words);
        column(Ragged::<f32>::new(spec), &words);
        column(Text::new(spec), &words);
        column(Blob::new(spec), &words);
    }
    let words = ["`at`", "\"age\"", "begin it with a slash"];
    column(Scalar::<i32>::new("json").at("age"), &words);
    column(Tokens::<i32>::new("json", 4).at("age"), &words);
    column(PackedTokens::<i32>::new("json", 4, 4).at("age"), &words);
    column(Ragged::<i32>::new("json").at("age"), &words);
    column(Text::new("json").at("age"), &words);

    let words = ["`named`", "give the name of a tensor"];
    column(ArrayColumn::new("npz", DType::F32, [2]).named(""), &words);
    column(Tokens::<i32>::new("npz", 4).named(""), &words);
    column(PackedTokens::<i32>::new("npz", 4, 4).named(""), &words);
    column(Ragged::<i32>::new("npz").named(""), &words);

    for stored in [DType::F32, DType::F16, DType::Bool] {
        let words = ["`raw`", stored.name(), "int32", "whole numbers are converted"];
        column(Tokens::<i32>::new("bin", 4).raw(stored), &words);
        column(PackedTokens::<i32>::new("bin", 4, 4).raw(stored), &words);
        column(Ragged::<i32>::new("bin").raw(stored), &words);
    }
    column(
        Ragged::<f32>::new("bin").raw(DType::F64),
        &["`raw`", "float64", "float32", "floats are not converted"],
    );

    for length in [0, 1 << 31, usize::MAX] {
        column(Tokens::<i32>::new("bin", length), &["the length", &length.to_string(), "make it from 1"]);
        column(PackedTokens::<i32>::new("bin", 2, length), &["the length", "make it from 1"]);
    }
    column(PackedTokens::<i32>::new("bin", 0, 4), &["0 rows", "at least 1"]);
    column(PackedTokens::<i32>::new("bin", usize::MAX, 4), &["rows", "fewer `rows`"]);
    // The tensor of tokens is small enough, but the tensor of segments is too large, as its numbers are
    // wider.
    column(PackedTokens::<i8>::new("bin", isize::MAX as usize / 16, 4), &["rows", "fewer `rows`"]);
    column(ArrayColumn::new("npy", DType::F32, vec![1; 65]), &["65 axes", "at most 64"]);

    let number = |field: &str| Optional::new(Scalar::<u8>::new(field));
    column(number(""), &["the field"]);
    column(number("cls").default_value(300), &["`default_value`", "300 does not fit uint8"]);
    column(Optional::new(number("cls")), &["`Optional`", "leave `Optional` out"]);
    column(Optional::new(Origin::key()), &["`Optional`", "leave `Optional` out"]);
    column(Stack::new([""; 0], Scalar::<u8>::new), &["`Stack`", "at least one"]);
    column(Stack::new(["a", ""], Scalar::<u8>::new), &["the field"]);
    column(Stack::new(["a", "b"], number), &["`Stack`", "leave `Optional` out"]);
    column(Stack::new(["a", "b"], Text::new), &["`Stack`", "of a fixed shape"]);
    let by_name = |field: &str| Tokens::<i32>::new(field, field.len());
    column(Stack::new(["a", "bb"], by_name), &["`Stack`", "differ in shape"]);

    let with = |name: &str, shape: Vec<usize>| {
        Columns::new().with_fn(name, shape, |_: &Sample, _: &mut [f32]| Ok(()))
    };
    for shape in [vec![usize::MAX, 2], vec![isize::MAX as usize / 4]] {
        refused(with("huge", shape).check(), &["\"huge\"", "larger than any memory", "smaller"]);
    }
    refused(with("", vec![1]).check(), &["without a name", "Columns::with"]);
    refused(with("x", vec![1]).with("x", Blob::new("bin")).check(), &["\"x\"", "name the columns"]);
    refused(Columns::new().check(), &["without columns", "at least one"]);
}

/// A custom column.
struct CustomColumn(fn() -> Error);

impl Column for CustomColumn {
    fn outputs(&self) -> Vec<Output> {
        vec![Output::fixed(DType::U8, [])]
    }

    fn check(&self) -> Result<()> {
        Err(self.0())
    }

    fn write(&self, _: &Sample, _: u64, _: &mut [Cell]) -> Result<()> {
        panic!("a column that was refused gets a sample")
    }
}

#[test]
fn bad_options_of_custom_columns_are_errors() {
    column(
        CustomColumn(|| ErrorKind::Config("`depth` of 7: make it even".into()).into()),
        &["`depth` of 7: make it even"],
    );
    // The errors are the same for a custom column inside columns that wrap it.
    let own = || CustomColumn(|| ErrorKind::Config("`depth` of 7: make it even".into()).into());
    column(Optional::new(own()), &["`depth` of 7: make it even"]);
    column(Stack::new(["a", "b"], |_| own()), &["`depth` of 7: make it even"]);
    column(CustomColumn(|| Error::step("no such table")), &["no such table"]);
}

#[test]
fn bad_options_of_mixing_are_errors() {
    for alpha in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        refused(Mixup::new(alpha, 3), &["Mixup", "alpha", "more than 0"]);
    }
    for classes in [0, usize::MAX] {
        refused(Mixup::new(0.2, classes), &["Mixup", &classes.to_string(), "classes", "at least 1"]);
    }
    #[cfg(feature = "image")]
    {
        refused(shardstream::collate::CutMix::new(f64::NAN, 3), &["CutMix", "alpha", "more than 0"]);
        refused(shardstream::collate::CutMix::new(1.0, 0), &["CutMix", "0 classes", "at least 1"]);
    }
}

#[test]
fn bad_options_of_decoders_and_encoders_are_errors() {
    let sample = || Sample::new("a").with("txt", b"text");
    let ignore = |_: &Bytes| Ok(Value::Int(0));
    for (decoder, words) in [
        (Decoder::new().with(" ; ", ignore), ["`with`", "name at least one"]),
        (Decoder::new().without(""), ["`without`", "name at least one"]),
        (Decoder::new().only(&[]), ["`only`", "name at least one"]),
        (Decoder::new().only(&["txt", ""]), ["`only`", "full names"]),
        (Decoder::new().max_size(0), ["`max_size`", "at least 1"]),
    ] {
        refused(decoder.check(), &words);
        refused(decoder.decode(sample()), &words);
        let mut decoded = [Ok(sample()), Ok(sample())].into_iter().pipeline().decode(decoder);
        refused(decoded.next().unwrap(), &words);
        assert!(decoded.next().is_none());
    }
    let encoder = Encoder::new().with("", |_| Ok(Bytes::new()));
    let words = ["`with`", "name at least one"];
    refused(encoder.check(), &words);
    refused(encoder.encode("txt", &Value::from("text")), &words);
}

#[test]
fn bad_options_of_writers_are_errors() {
    let encoder = || Encoder::new().with("", |_| Ok(Bytes::new()));
    let without = |change: fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        TarOptions::new().limits(limits)
    };
    for (options, words) in [
        (TarOptions::new().mode(0o100_644), ["`mode` 0o100644", "0o7777"]),
        (TarOptions::new().encoder(encoder()), ["`with`", "at least one"]),
        (without(|limits| limits.member = 0), ["`limits`", "`member`"]),
        (without(|limits| limits.extension = 0), ["`limits`", "`extension`"]),
        (without(|limits| limits.sample = 0), ["`limits`", "`sample`"]),
        (without(|limits| limits.members = 0), ["`limits`", "`members`"]),
        (without(|limits| limits.archives = 0), ["`limits`", "`archives`"]),
    ] {
        refused(TarWriter::with_options(Vec::new(), options.clone()), &words);
        refused(ShardWriter::builder("%d.tar").options(options).build(), &words);
    }
    refused(ShardWriter::builder("%d.tar").max_count(0).build(), &["`max_count`", "at least 1"]);
    refused(ShardWriter::builder("%d.tar").max_bytes(0).build(), &["`max_bytes`", "at least 1"]);

    // Once shard numbers are exhausted, the writer fails instead of overwriting its last shard.
    let store = Store::builder().with_object_store("mem://", Arc::new(InMemory::new())).build().unwrap();
    let writer = ShardWriter::builder("mem://a/%d.tar").store(store).start_shard(u64::MAX).max_count(1);
    let mut writer = writer.build().unwrap();
    writer.write(&Sample::new("a").with("txt", "text")).unwrap();
    refused(writer.write(&Sample::new("b").with("txt", "text")), &["`start_shard`", "smaller"]);
}

#[test]
fn bad_options_of_stores_are_errors() {
    let memory = || Arc::new(InMemory::new());
    type Change = fn(StoreBuilder) -> StoreBuilder;
    let cases: [(Change, [&str; 2]); 7] = [
        (|store| store.range_size(0), ["`range_size`", "at least 1"]),
        (|store| store.ranges_in_flight(0), ["`ranges_in_flight`", "at least 1"]),
        (|store| store.stall_timeout(Duration::ZERO), ["`stall_timeout`", "more than 0"]),
        (|store| store.hedge(f64::NAN), ["`hedge`", "from 0 to 1"]),
        (|store| store.hedge(-0.1), ["`hedge`", "from 0 to 1"]),
        (|store| store.hedge(5.0), ["`hedge`", "from 0 to 1"]),
        (|store| store.budget(Budget::new(0, 1 << 20)), ["`budget`", "at least 1"]),
    ];
    for (change, words) in cases {
        refused(change(Store::builder()).build(), &words);
    }
    for prefix in ["", "/", "://", ":"] {
        let store = Store::builder().with_object_store(prefix, memory());
        refused(store.build(), &["`with_source`", "prefix", "give a scheme"]);
    }
    let twice = Store::builder().with_object_store("mem", memory()).with_object_store("mem://", memory());
    refused(twice.build(), &["`with_source` twice", "mem:/", "leave one"]);
    let dir = tempfile::tempdir().unwrap();
    refused(Cache::builder(dir.path()).max_bytes(0).build(), &["`max_bytes`", "leave the cache out"]);
    for size in [0, 65 << 20] {
        refused(Cache::builder(dir.path()).block_size(size).build(), &["`block_size`", "1 byte to 64 MiB"]);
    }
}
