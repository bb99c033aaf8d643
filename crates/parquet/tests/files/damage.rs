//! Reading a file that is cut or changed returns rows or an error. It never panics or takes much memory.

use crate::{data, row};
use bytes::Bytes;
use shardstream::error::ErrorKind;
use shardstream::formats::{FormatParser, Parsed, ParserStart, ShardFormat, ShardParser};
use shardstream::tar::Limits;
use shardstream::{Error, Result, Sample};
use shardstream_parquet::Parquet;

/// Maximum memory in bytes that reading a file of a few KB may take.
const MEMORY: u64 = 16 << 20;
/// Maximum number of rows to read from a file: a damaged file may declare any number.
const MAX_ROWS: usize = 1000;

/// Returns the rows of a file from row `start` on, and the error that ended reading, if any.
fn parse(file: &[u8], format: &Parquet, start: u64) -> (Vec<String>, Option<Error>) {
    let mut from = ParserStart::new(Limits::default());
    (from.size, from.sample) = (Some(file.len() as u64), start);
    let mut parser = format.parser(&from);
    let mut rows = Vec::new();
    let error = loop {
        match parser.next() {
            Ok(Parsed::NeedInput) => match from.ranges.take() {
                Some(range) => {
                    assert!(range.start < range.end && range.end <= file.len() as u64, "{range:?}");
                    let range = range.start as usize..range.end as usize;
                    file[range].chunks(777).for_each(|chunk| parser.push(Bytes::copy_from_slice(chunk)));
                }
                None => parser.finish(),
            },
            Ok(Parsed::Sample(sample)) => rows.push(row(&sample)),
            Ok(_) => break None,
            Err(error) => break Some(error),
        }
        if rows.len() >= MAX_ROWS {
            return (rows, None);
        }
    };
    assert!(matches!(parser.next(), Ok(Parsed::End)), "{error:?}");
    (rows, error)
}

/// As [`parse`] from the first row on; asserts that it takes at most [`MEMORY`] bytes.
fn parse_within(file: &[u8], format: &Parquet) -> (Vec<String>, Option<Error>) {
    let mut found = None;
    let held = allocation_counter::measure(|| found = Some(parse(file, format, 0))).bytes_max;
    assert!(held <= MEMORY, "{held} bytes");
    found.unwrap()
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(data(name)).unwrap()
}

#[test]
fn a_file_that_is_cut_anywhere_is_an_error() {
    let whole = file("kinds-delta.parquet");
    for length in 0..whole.len() {
        let (rows, error) = parse_within(&whole[..length], &Parquet::new());
        assert!(rows.is_empty());
        assert!(matches!(error.unwrap().kind(), ErrorKind::Format(_)), "{length}");
    }
}

#[test]
fn a_changed_byte_never_panics() {
    // For each file: the distance in bytes between changed bytes in the pages, and in the footer.
    for (name, pages, footer) in [
        ("kinds-plain.parquet", 17, 17),
        ("kinds-dictionary.parquet", 5, 2),
        ("kinds-delta.parquet", 3, 3),
        ("kinds-lz4.parquet", 17, 17),
    ] {
        let whole = file(name);
        let end = whole.len() - 2500;
        for at in (0..end).step_by(pages).chain((end..whole.len()).step_by(footer)) {
            let mut changed = whole.clone();
            changed[at] ^= [0x01, 0x80, 0xff, 0x10][at % 4];
            parse_within(&changed, &Parquet::new());
        }
    }
}

#[test]
fn damage_in_a_page_names_its_row_group_and_column_and_spares_the_rows_before() {
    let whole = file("kinds-dictionary.parquet");
    let (rows, error) = parse(&whole, &Parquet::new(), 0);
    assert!(error.is_none() && rows.len() == 40);
    // The first page of the file is the dictionary page of the column `key`.
    let mut changed = whole.clone();
    changed[60] ^= 0x10;
    let (found, error) = parse(&changed, &Parquet::new(), 0);
    let error = error.unwrap().to_string();
    assert!(found.is_empty() && error.contains("row group 0, column \"key\": "), "{error}");
    assert!(error.contains("CRC-32"), "{error}");
    // The other row groups and the other columns can still be read.
    assert_eq!(parse(&changed, &Parquet::new(), 16).0, rows[16..]);
    assert_eq!(parse(&changed, &Parquet::new().columns(["text"]), 0).0.len(), 40);
}

#[test]
fn rows_in_front_of_damage_are_the_same_wherever_reading_starts() {
    let whole = file("kinds-delta.parquet");
    let format = Parquet::new();
    for at in (4..whole.len() - 2500).step_by(211) {
        let mut changed = whole.clone();
        changed[at] ^= 0x40;
        let (rows, error) = parse(&changed, &format, 0);
        for start in 0..rows.len() as u64 {
            let (rest, again) = parse(&changed, &format, start);
            assert_eq!(rest, rows[start as usize..], "{at} {start}");
            let text = |error: &Option<Error>| error.as_ref().map(ToString::to_string);
            assert_eq!(text(&again), text(&error), "{at} {start}");
        }
    }
}

#[test]
fn a_file_is_not_read_forward() {
    let mut parser = FormatParser::of(&Parquet::new(), "0.parquet", Limits::default());
    let error = parser.next().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    assert!(matches!(parser.next(), Ok(Parsed::End)));
}

#[test]
fn limits_are_kept() {
    let whole = file("kinds-plain.parquet");
    let mut start = ParserStart::new(Limits::default());
    start.size = Some(whole.len() as u64);
    start.limits.member = 100;
    let rows = read(&whole, &start);
    let error = rows.last().unwrap().as_ref().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "the file is not damaged: {error}");
    let error = error.to_string();
    assert!(error.contains("row group 0") && error.contains("allows 100"), "{error}");
    let mut start = ParserStart::new(Limits::default());
    start.size = Some(whole.len() as u64);
    start.limits.sample = 95;
    let rows = read(&whole, &start);
    let (error, before) = rows.split_last().unwrap();
    assert!(before.iter().flatten().all(|row| row.size() <= 95) && before.len() < 40);
    let error = error.as_ref().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TooLarge { .. } | ErrorKind::Unsupported(_)), "{error}");
    assert!(error.to_string().contains("row group 0"), "{error}");
}

/// Returns all samples and errors that the parser returns for a file, in order.
fn read(file: &[u8], start: &ParserStart) -> Vec<Result<Sample>> {
    let mut parser = Parquet::new().parser(start);
    let mut found = Vec::new();
    loop {
        match parser.next() {
            Ok(Parsed::NeedInput) => match start.ranges.take() {
                Some(range) => {
                    parser.push(Bytes::copy_from_slice(&file[range.start as usize..range.end as usize]));
                }
                None => parser.finish(),
            },
            Ok(Parsed::Sample(sample)) => found.push(Ok(sample)),
            Ok(_) => return found,
            Err(error) => found.push(Err(error)),
        }
    }
}
