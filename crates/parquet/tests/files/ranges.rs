//! Which ranges of a file are fetched.

use crate::memory_source::MemorySource;
use crate::row;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use shardstream::dataset::DatasetBuilder;
use shardstream::prelude::*;
use shardstream::store::Cache;
use shardstream::{ErrorKind, Result};
use shardstream_parquet::Parquet;
use std::ops::Range;
use std::sync::Arc;

const URL: &str = "shelf://train/0.parquet";

/// A file of 40 rows in row groups of 38 and 2, whose column `large` has 20 KB in each row.
fn large() -> Vec<u8> {
    let schema = "message rows { required binary large; required int64 number; }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let options = WriterProperties::builder().set_dictionary_enabled(false).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(options)).unwrap();
    for rows in [0..38_i64, 38..40] {
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let large: Vec<ByteArray> = rows.clone().map(|row| vec![row as u8; 20_000].into()).collect();
        column.typed::<ByteArrayType>().write_batch(&large, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&rows.collect::<Vec<_>>(), None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

fn dataset(source: &Arc<MemorySource>, format: Parquet) -> DatasetBuilder {
    Dataset::builder(URL).store(source.store()).format(format)
}

fn bytes(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

#[test]
fn columns_that_are_not_read_are_not_fetched() {
    let source = Arc::new(MemorySource::default());
    source.put(URL, large(), "v1");
    let size = large().len() as u64;
    let read = |format: Parquet| {
        let dataset = dataset(&source, format).build().unwrap();
        let built = bytes(&source.requested());
        assert!(built <= 2 * (64 << 10), "{built} bytes of footers");
        let samples = dataset.samples(0).results().collect::<Result<Vec<_>>>().unwrap();
        assert_eq!(samples.len(), 40);
        bytes(&source.requested())
    };
    let all = read(Parquet::new());
    assert!(all >= size - 1000, "{all} of {size}");
    let some = read(Parquet::new().columns(["number"]));
    assert!(some < 70_000, "{some} of {size}");
}

#[test]
fn row_groups_that_have_no_row_of_the_slice_are_not_fetched() {
    let source = Arc::new(MemorySource::default());
    source.put(URL, large(), "v1");
    let view = dataset(&source, Parquet::new()).build().unwrap().indexed_view().unwrap();
    source.requested();
    let sample = view.get(39).unwrap();
    assert!(row(&sample).contains("number=39"), "{}", row(&sample).len());
    let fetched = bytes(&source.requested());
    assert!(fetched < 120_000, "{fetched}: the footer and two rows");
}

#[test]
fn a_file_that_is_replaced_after_it_was_indexed_is_an_error() {
    let source = Arc::new(MemorySource::default());
    source.put(URL, large(), "v1");
    let dataset = dataset(&source, Parquet::new().columns(["number"])).build().unwrap();
    source.put(URL, large(), "v2");
    let errors: Vec<_> = dataset.samples(0).results().filter_map(Result::err).collect();
    assert!(matches!(errors[0].kind(), ErrorKind::Stale { .. } | ErrorKind::Changed { .. }), "{}", errors[0]);
    assert_eq!(dataset.samples(0).results().filter(Result::is_ok).count(), 0);
}

#[test]
fn a_stream_reads_the_same_rows() {
    let source = Arc::new(MemorySource::default());
    source.put(URL, large(), "v1");
    let dataset = dataset(&source, Parquet::new().columns(["number"])).build().unwrap();
    let blocking: Vec<_> = dataset.samples(0).results().map(|sample| row(&sample.unwrap())).collect();
    let stream = futures::StreamExt::collect::<Vec<_>>(dataset.stream(0).results());
    let streamed: Vec<_> =
        futures::executor::block_on(stream).into_iter().map(|sample| row(&sample.unwrap())).collect();
    assert_eq!((blocking.len(), streamed), (40, blocking));
}

#[test]
fn a_cache_keeps_what_was_read() {
    let directory = tempfile::tempdir().unwrap();
    let source = Arc::new(MemorySource::default());
    source.put(URL, large(), "v1");
    let cache = Cache::builder(directory.path()).block_size(4096).revalidate(false).build().unwrap();
    let store = Store::builder().with_source("shelf", Arc::clone(&source) as _).cache(cache.clone());
    let dataset = Dataset::builder(URL).store(store.build().unwrap()).format(Parquet::new());
    let dataset = dataset.build().unwrap();
    source.requested();
    let rows =
        |epoch| -> Vec<_> { dataset.samples(epoch).results().map(|sample| row(&sample.unwrap())).collect() };
    let first = rows(0);
    cache.flush();
    assert!(bytes(&source.requested()) > 700_000);
    assert_eq!(rows(1), first);
    assert_eq!(bytes(&source.requested()), 0);
}
