//! Parsing any bytes as Parquet returns the same rows and errors however the bytes are cut into chunks, and
//! also if the parser starts at any row.

use crate::memory;
use bytes::Bytes;
use shardstream::formats::{Parsed, ParserStart, ShardFormat};
use shardstream::tar::Limits;
use shardstream_parquet::Parquet;

/// Maximum number of rows that are read from a file. The file may claim any number of rows.
const MAX_ROWS: usize = 200;

/// Parses the rows from number `first` on, from chunks of at most `most` bytes. Returns each row and error as
/// text.
fn parse(file: &[u8], first: u64, most: usize) -> Vec<String> {
    let mut start = ParserStart::new(Limits::default());
    (start.size, start.sample) = (Some(file.len() as u64), first);
    let mut parser = Parquet::new().parser(&start);
    let mut found = Vec::new();
    while found.len() < MAX_ROWS {
        match parser.next() {
            Ok(Parsed::NeedInput) => match start.ranges.take() {
                Some(range) => {
                    let range = range.start as usize..range.end as usize;
                    file[range].chunks(most).for_each(|chunk| parser.push(Bytes::copy_from_slice(chunk)));
                }
                None => parser.finish(),
            },
            Ok(Parsed::Sample(sample)) => found.push(format!("{:?} {:?}", sample.key(), sample)),
            Ok(_) => break,
            Err(error) => found.push(format!("{error:?}")),
        }
    }
    found
}

/// The first byte of `data` chooses the length of chunks and the first row; the other bytes are the file.
pub fn run(data: &[u8]) {
    let [how, file @ ..] = data else { return };
    memory::within(64 << 20, || {
        let whole = parse(file, 0, file.len().max(1));
        assert_eq!(parse(file, 0, 1 + usize::from(*how)), whole);
        let first = usize::from(*how) % (whole.len() + 1);
        // The last element of `whole` may be an error and not a row, so the parser does not start there.
        if whole.len() < MAX_ROWS && first + 1 < whole.len() {
            assert_eq!(parse(file, first as u64, 999), whole[first..]);
        }
    });
}
