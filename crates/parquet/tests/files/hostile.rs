//! Files whose decoded rows are far larger than the file, and files whose footers contradict their pages.

use allocation_counter::measure;
use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use shardstream::error::ErrorKind;
use shardstream::formats::{Parsed, ParserStart, ShardFormat};
use shardstream::tar::Limits;
use shardstream::{Error, Sample};
use shardstream_parquet::Parquet;
use std::sync::Arc;

const TEXTS: &str = "message rows { required binary text; }";
const LISTS: &str = "message rows { repeated int32 tokens; }";

fn writer(schema: &str, options: WriterPropertiesBuilder) -> SerializedFileWriter<Vec<u8>> {
    // Without statistics, the footer does not have the size of the decoded values.
    let options = options.set_statistics_enabled(EnabledStatistics::None);
    let schema = Arc::new(parse_message_type(schema).unwrap());
    SerializedFileWriter::new(Vec::new(), schema, Arc::new(options.build())).unwrap()
}

/// A file with the same text of `size` bytes in all rows.
fn texts(rows: usize, size: usize, options: WriterPropertiesBuilder) -> Vec<u8> {
    let mut writer = writer(TEXTS, options);
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let text = ByteArray::from(vec![b'a'; size]);
    column.typed::<ByteArrayType>().write_batch(&vec![text; rows], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap()
}

/// A file with one list in each row, of the lengths in `lengths`. All elements are the number 7.
fn lists(lengths: &[usize]) -> Vec<u8> {
    let mut writer = writer(LISTS, WriterProperties::builder());
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let values = vec![7; lengths.iter().sum()];
    let repetition: Vec<i16> =
        lengths.iter().flat_map(|length| (0..*length).map(|at| i16::from(at > 0))).collect();
    let levels = (Some(&vec![1; values.len()][..]), Some(&repetition[..]));
    column.typed::<Int32Type>().write_batch(&values, levels.0, levels.1).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap()
}

/// Returns the number of rows that were read, the sum of their sizes in bytes, and the error that ended
/// reading, if any.
fn read(file: &[u8], limits: Limits) -> (usize, u64, Option<Error>) {
    let mut from = ParserStart::new(limits);
    from.size = Some(file.len() as u64);
    let mut parser = Parquet::new().parser(&from);
    let (mut rows, mut bytes) = (0, 0);
    loop {
        match parser.next() {
            Ok(Parsed::NeedInput) => match from.ranges.take() {
                Some(range) => {
                    parser.push(Bytes::copy_from_slice(&file[range.start as usize..range.end as usize]));
                }
                None => parser.finish(),
            },
            Ok(Parsed::Sample(sample)) => {
                rows += 1;
                bytes += Sample::size(&sample) as u64;
            }
            Ok(_) => return (rows, bytes, None),
            Err(error) => return (rows, bytes, Some(error)),
        }
    }
}

#[test]
fn a_large_text_of_a_dictionary_is_not_copied_for_each_row() {
    let (rows, size) = (2000, 400_000);
    let file = texts(rows, size, WriterProperties::builder().set_dictionary_page_size_limit(1 << 20));
    assert!(file.len() < 1 << 20, "{}", file.len());
    let mut found = None;
    let held = measure(|| found = Some(read(&file, Limits::default()))).bytes_max;
    let (found, bytes, error) = found.unwrap();
    assert!(error.is_none(), "{error:?}");
    assert_eq!((found, bytes), (rows, (rows * size) as u64));
    assert!(held < 24 << 20, "{held} bytes");
}

#[test]
fn texts_that_repeat_the_one_before_are_refused_beyond_the_limit() {
    let options = || {
        let options = WriterProperties::builder().set_dictionary_enabled(false);
        options.set_encoding(Encoding::DELTA_BYTE_ARRAY)
    };
    let file = texts(1000, 400_000, options());
    assert!(file.len() < 1 << 20, "{}", file.len());
    let mut limits = Limits::default();
    limits.sample = 1 << 10;
    let mut found = None;
    let held = measure(|| found = Some(read(&file, limits))).bytes_max;
    let (_, _, error) = found.unwrap();
    let error = error.unwrap();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    assert!(error.to_string().contains("`Limits::sample` allows 16777216"), "{error}");
    assert!(held < 24 << 20, "{held} bytes");
    assert_eq!(read(&texts(10, 400_000, options()), Limits::default()).0, 10);
}

#[test]
fn a_page_of_lists_is_refused_before_its_levels_are_decoded() {
    let file = lists(&[1_100_000, 1_100_000]);
    let mut limits = Limits::default();
    limits.sample = 1 << 20;
    let mut found = None;
    let held = measure(|| found = Some(read(&file, limits))).bytes_max;
    let error = found.unwrap().2.unwrap();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    assert!(error.to_string().contains("a page with lists of"), "{error}");
    assert!(held < 2 << 20, "{held} bytes");
    assert_eq!(read(&file, Limits::default()).0, 2);
}

#[test]
fn rows_of_a_list_beyond_those_of_the_row_group_are_an_error() {
    let file = lists(&[2; 40]);
    assert_eq!(read(&file, Limits::default()).0, 40);
    // Changes the numbers of rows of the row group and of the file, both 64-bit integers, from 40 to 39.
    let (mut changed, mut counts) = (file.clone(), 0);
    let footer = file.len() - 8 - u32::from_le_bytes(*file[..file.len() - 4].last_chunk().unwrap()) as usize;
    for at in footer..file.len() - 1 {
        if file[at..at + 2] == [0x16, 2 * 40] {
            counts += 1;
            changed[at + 1] = 2 * 39;
        }
    }
    assert_eq!(counts, 2);
    let (rows, _, error) = read(&changed, Limits::default());
    let error = error.unwrap().to_string();
    assert!(rows < 39 && error.contains("it has more rows than its row group"), "{rows} {error}");
}
