//! Parsing any bytes as JSON Lines returns the same samples and errors however the bytes are cut into chunks,
//! and also if the parser starts at the offset of any sample.

use bytes::Bytes;
use shardstream::formats::{JsonLines, Parsed, ParserStart, ShardFormat};
use shardstream::tar::Limits;

/// Parses `text` from `start` in chunks of up to `chunk` bytes. Returns each sample and error as text;
/// samples come with their offset.
fn parse(format: &JsonLines, start: &ParserStart, text: &[u8], chunk: usize) -> Vec<(Option<u64>, String)> {
    let mut parser = format.parser(start);
    let mut chunks = text[start.offset as usize..].chunks(chunk);
    let mut results = Vec::new();
    loop {
        match parser.next() {
            Ok(Parsed::NeedInput) => match chunks.next() {
                Some(chunk) => parser.push(Bytes::copy_from_slice(chunk)),
                None => parser.finish(),
            },
            Ok(Parsed::Sample(sample)) => {
                let place = parser.place().expect("lines have places");
                let (line, range) = (sample.get("json").unwrap().as_bytes().unwrap(), &place.fields[0]);
                assert_eq!(&line[..], &text[range.start as usize..range.end as usize]);
                assert!(line.len() as u64 <= start.limits.sample && !line.contains(&b'\n'));
                results.push((Some(place.offset), format!("{:?} {line:?}", sample.key())));
            }
            Ok(_) => break,
            Err(error) => results.push((None, format!("{error:?}"))),
        }
    }
    assert!(matches!(parser.next(), Ok(Parsed::End)), "nothing follows the end");
    results
}

/// The first byte of `data` chooses the options, the second the length of chunks; the other bytes are the
/// text.
pub fn run(data: &[u8]) {
    let [how, chunk, text @ ..] = data else { return };
    let mut limits = Limits::default();
    if how & 1 == 1 {
        limits.sample = 40;
    }
    let format = if how & 2 == 2 { JsonLines::new().key("id") } else { JsonLines::new() };
    let start = ParserStart::new(limits);
    let whole = parse(&format, &start, text, text.len().max(1));
    assert_eq!(parse(&format, &start, text, 1 + usize::from(*chunk)), whole);
    for (number, (offset, _)) in whole.iter().enumerate().step_by(1 + whole.len() / 4) {
        let Some(offset) = *offset else { continue };
        let mut start = start.clone();
        (start.sample, start.offset) = (number as u64, offset);
        assert_eq!(parse(&format, &start, text, 7), whole[number..]);
    }
}
