//! Valid rows that cannot be samples, and files with empty row groups or without rows.

use crate::{data, row, texts};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use shardstream::codec::DType;
use shardstream::loader::{Failures, OnError};
use shardstream::prelude::*;
use shardstream::{Array, ErrorKind, Index, Result};
use shardstream_parquet::Parquet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn dataset(path: &Path, format: Parquet) -> Dataset {
    Dataset::builder(path.display().to_string()).format(format).build().unwrap()
}

fn samples(dataset: &Dataset) -> Vec<Result<Sample>> {
    dataset.samples(0).results().collect()
}

/// Writes a file with a column of numbers, whose type is `numbers`, and a column of texts. Each element of
/// `groups` is a row group.
fn write(directory: &Path, numbers: &str, groups: &[&[(i64, Option<&str>)]]) -> PathBuf {
    let schema = format!("message rows {{ {numbers}; optional binary text; }}");
    let schema = Arc::new(parse_message_type(&schema).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
    for rows in groups {
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let numbers: Vec<i64> = rows.iter().map(|(number, _)| *number).collect();
        column.typed::<Int64Type>().write_batch(&numbers, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let texts: Vec<ByteArray> = rows.iter().filter_map(|(_, text)| Some((*text)?.into())).collect();
        let levels: Vec<i16> = rows.iter().map(|(_, text)| i16::from(text.is_some())).collect();
        column.typed::<ByteArrayType>().write_batch(&texts, Some(&levels), None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    let path = directory.join("rows.parquet");
    std::fs::write(&path, writer.into_inner().unwrap()).unwrap();
    path
}

#[test]
fn a_row_group_without_rows_hides_no_rows() {
    // In the row group without rows, pyarrow set the offsets of the columns to 0.
    let dataset = dataset(&data("gap.parquet"), Parquet::new());
    let id = |sample: &Sample| sample.read::<Vec<u8>>("id").unwrap();
    let ids: Vec<_> = samples(&dataset).into_iter().map(|sample| id(&sample.unwrap())).collect();
    let expected: Vec<_> = (0..10).map(|row| format!("0-{:04}", row % 5).into_bytes()).collect();
    assert_eq!(ids, expected);
    let view = dataset.indexed_view().unwrap();
    for number in 0..10 {
        assert_eq!(id(&view.get(number).unwrap()), expected[number as usize]);
    }
}

#[test]
fn whole_numbers_of_64_bits_without_a_sign_are_arrays_whatever_their_value() {
    let directory = tempfile::tempdir().unwrap();
    let rows = [(1, Some("a")), (i64::MIN, None), (-1, None)];
    let path = write(directory.path(), "required int64 number (INTEGER(64,false))", &[&rows]);
    let found = samples(&dataset(&path, Parquet::new().key("number")));
    for (sample, expected) in found.into_iter().zip([1, 1 << 63, u64::MAX]) {
        let sample = sample.unwrap();
        let array = Array::new(DType::U64, vec![], expected.to_le_bytes().to_vec()).unwrap();
        assert_eq!(sample.read::<Array>("number").unwrap(), array);
        assert_eq!(sample.key(), expected.to_string());
    }
}

#[test]
fn a_null_in_a_list_is_never_skipped_as_damage() {
    let path = data("nulls.parquet");
    let dataset = || dataset(&path, Parquet::new());
    let found = samples(&dataset());
    assert_eq!(found.iter().flatten().count(), 2, "the rows before");
    let error = found[2].as_ref().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("row 2 of row group 0, column \"tokens") && text.contains("null"), "{text}");
    let loader = Loader::builder(dataset()).on_error(OnError::skip(Failures::all())).batch(1);
    let batches: Vec<_> = loader.build().unwrap().epoch(0).collect();
    assert!(batches.iter().any(Result::is_err), "a policy that skips everything does not hide it");
    // The other rows and the other columns can be read.
    assert!(row(&dataset().indexed_view().unwrap().get(3).unwrap()).contains("[5, 0, 0, 0]"));
    let texts = Dataset::builder(path.display().to_string()).format(Parquet::new().columns(["text"]));
    assert_eq!(texts.build().unwrap().samples(0).results().filter(Result::is_ok).count(), 5);
}

#[test]
fn an_error_of_a_row_names_its_row_group_and_ends_the_slice() {
    let directory = tempfile::tempdir().unwrap();
    let groups: [&[_]; 2] = [&[(1, Some("a")), (2, Some("b"))], &[(3, Some("c")), (4, None), (5, Some("d"))]];
    let path = write(directory.path(), "required int64 number", &groups);
    let dataset = dataset(&path, Parquet::new().key("text"));
    let found = samples(&dataset);
    assert_eq!(found.len(), 4);
    let error = found[3].as_ref().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Format(_)), "{error}");
    let error = error.to_string();
    assert!(error.contains("row group 1") && error.contains("of row 3,"), "{error}");
    assert_eq!(dataset.indexed_view().unwrap().get(4).unwrap().key(), "d");
}

#[test]
fn a_row_of_nulls_is_indexed_and_read() {
    let directory = tempfile::tempdir().unwrap();
    let rows = [(1, Some("a")), (2, None), (3, Some("c"))];
    let path = write(directory.path(), "required int64 number", &[&rows]).display().to_string();
    let format = || Parquet::new().columns(["text"]);
    let shards = ShardList::from_urls([path.clone()]);
    let read = |index: Index| {
        let dataset = Dataset::builder(shards.clone()).format(format()).index(index).build().unwrap();
        samples(&dataset).into_iter().map(|sample| sample.unwrap().len()).collect::<Vec<_>>()
    };
    let not_first = |sample: &Sample| sample.position().sample > 0;
    let index = Index::builder().format(format()).select("not the first", not_first).build(&shards).unwrap();
    let saved = directory.path().join("index.json").display().to_string();
    index.save(&Store::default(), &saved).unwrap();
    assert_eq!(read(index), [0, 1]);
    assert_eq!(read(Index::load(&Store::default(), &saved).unwrap()), [0, 1]);
    let error = Index::builder().format(format()).checksums(true).build(&shards).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
}

#[test]
fn an_index_without_sizes_is_refused_when_the_dataset_is_built() {
    let list = ShardList::expand(&texts().replace('*', "{0..2}")).unwrap();
    let entries: Vec<String> = list
        .iter()
        .zip([150, 200, 250])
        .map(|(url, rows)| format!(r#"{{"url": {:?}, "nsamples": {rows}}}"#, url.expose_secret()))
        .collect();
    let text = format!(
        r#"{{"__kind__": "wids-shard-index-v1", "wids_version": 1, "name": "", "shardlist": [{}]}}"#,
        entries.join(",")
    );
    let index = Index::from_json(text.as_bytes(), "").unwrap();
    let error = Dataset::builder(list).format(Parquet::new()).index(index).build().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error}");
    assert!(error.to_string().contains("texts-0.parquet"), "{error}");
    assert!(error.to_string().contains("size"), "{error}");
}
