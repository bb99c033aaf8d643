//! Any bytes are lines and errors, the same ones wherever the bytes are cut, and from the place of any line.

use bytes::Bytes;
use shardstream::formats::{JsonLines, Parsed, ParserStart, ShardFormat};
use shardstream::tar::Limits;

/// All that the parser gives, with the offset of each sample.
fn parse(format: &JsonLines, start: &ParserStart, text: &[u8], most: usize) -> Vec<(Option<u64>, String)> {
    let mut parser = format.parser(start);
    let mut chunks = text[start.offset as usize..].chunks(most);
    let mut found = Vec::new();
    loop {
        match parser.next() {
            Ok(Parsed::NeedInput) => match chunks.next() {
                Some(chunk) => parser.push(Bytes::copy_from_slice(chunk)),
                None => parser.finish(),
            },
            Ok(Parsed::Sample(sample)) => {
                let place = parser.place().expect("lines have places");
                let (line, at) = (sample.get("json").unwrap().as_bytes().unwrap(), &place.fields[0]);
                assert_eq!(&line[..], &text[at.start as usize..at.end as usize]);
                assert!(line.len() as u64 <= start.limits.sample && !line.contains(&b'\n'));
                found.push((Some(place.offset), format!("{:?} {line:?}", sample.key())));
            }
            Ok(_) => break,
            Err(error) => found.push((None, format!("{error:?}"))),
        }
    }
    assert!(matches!(parser.next(), Ok(Parsed::End)), "the end is the end");
    found
}

/// The first two bytes say how; the rest is the text.
pub fn run(data: &[u8]) {
    let [how, most, text @ ..] = data else { return };
    let mut limits = Limits::default();
    if how & 1 == 1 {
        limits.sample = 40;
    }
    let format = if how & 2 == 2 { JsonLines::new().key("id") } else { JsonLines::new() };
    let start = ParserStart::new(limits);
    let whole = parse(&format, &start, text, text.len().max(1));
    assert_eq!(parse(&format, &start, text, 1 + usize::from(*most)), whole);
    for (number, place) in whole.iter().enumerate().step_by(1 + whole.len() / 4) {
        let Some(offset) = place.0 else { continue };
        let mut start = start.clone();
        (start.sample, start.offset) = (number as u64, offset);
        assert_eq!(parse(&format, &start, text, 7), whole[number..]);
    }
}
