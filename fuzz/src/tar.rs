//! Any bytes are samples and errors, and the same ones wherever the bytes are cut, and from the headers
//! alone.

use bytes::Bytes;
use shardstream::tar::{Limits, Outline, Parsed, SampleParser};
use std::ops::Range;

/// All that the parser gives: samples with their fields and numbers, and errors with their places.
fn parse(limits: Limits, chunks: impl Iterator<Item = Bytes>) -> Vec<String> {
    let mut chunks = chunks;
    let mut parser = SampleParser::new("s.tar").with_limits(limits);
    let mut found = Vec::new();
    loop {
        match parser.next() {
            Ok(Parsed::NeedInput) => match chunks.next() {
                Some(chunk) => parser.push(chunk),
                None => parser.finish(),
            },
            Ok(Parsed::Sample(sample)) => {
                let fields: Vec<_> = sample.fields().map(|(name, value)| (name, value.as_bytes())).collect();
                found.push(format!("{:?} {fields:?} {}", sample.key(), sample.position().sample));
            }
            Ok(Parsed::End) => break,
            Ok(other) => panic!("{other:?}"),
            Err(error) => found.push(format!("{error:?}")),
        }
    }
    assert!(matches!(parser.next(), Ok(Parsed::End)), "the end is the end");
    found
}

/// The same, from the headers: windows of up to `most` bytes, between which what is not wanted is left out.
fn outline(limits: Limits, archive: &Bytes, most: usize) -> Vec<String> {
    let mut outline = Outline::new("s.tar").with_limits(limits);
    let (mut at, mut found) = (0, Vec::new());
    loop {
        match outline.next() {
            Ok(Parsed::NeedInput) => {
                at = at.max(outline.wanted()).min(archive.len() as u64);
                outline.skip_to(at);
                let end = archive.len().min(at as usize + most);
                match archive.slice(at as usize..end) {
                    chunk if chunk.is_empty() => outline.finish(),
                    chunk => outline.push(chunk),
                }
                at = end as u64;
            }
            Ok(Parsed::Sample(sample)) => {
                let content =
                    |field: &Range<u64>| Some(archive.slice(field.start as usize..field.end as usize));
                let fields = sample.fields.iter().map(|(name, field)| (&**name, content(field)));
                let fields: Vec<_> = fields.collect();
                found.push((sample.number, format!("{:?} {fields:?}", &*sample.key)));
            }
            Ok(Parsed::End) => break,
            Ok(other) => panic!("{other:?}"),
            Err(error) => found.push((u64::MAX, format!("{error:?}"))),
        }
    }
    let position = |number| if number == u64::MAX { String::new() } else { format!(" {number}") };
    found.into_iter().map(|(number, text)| text + &position(number)).collect()
}

/// Makes the checksums of all blocks right that could be headers, so that what is behind the check is
/// reached.
fn seal(archive: &mut [u8]) {
    for block in archive.chunks_exact_mut(512).filter(|block| block[0] != 0) {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    }
}

/// Cuts the archive into pieces of up to `most` bytes, of lengths that depend on `seed`.
fn cut(mut archive: Bytes, most: usize, seed: u8) -> impl Iterator<Item = Bytes> {
    let mut state = u32::from(seed);
    std::iter::from_fn(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let length = (state >> 16) as usize % most + 1;
        (!archive.is_empty()).then(|| archive.split_to(length.min(archive.len())))
    })
}

/// The first three bytes say how; the rest is the archive.
pub fn run(data: &[u8]) {
    let [sealed, most, seed, archive @ ..] = data else { return };
    let mut archive = archive.to_vec();
    if sealed % 2 == 1 {
        seal(&mut archive);
    }
    let archive = Bytes::from(archive);
    let mut limits = Limits::default();
    if sealed & 2 == 2 {
        (limits.archives, limits.members, limits.sample) = (u64::MAX, 3, 1000);
    }
    if sealed & 4 == 4 {
        limits.unsorted = 2000;
    }
    let whole = parse(limits, [archive.clone()].into_iter());
    let most = 1 + usize::from(*most) * 8;
    assert_eq!(parse(limits, cut(archive.clone(), most, *seed)), whole);
    assert_eq!(outline(limits, &archive, most), whole);
}
