//! Parsing any bytes as tar returns the same samples and errors however the bytes are cut into chunks. The
//! parser that reads only headers returns the same samples and errors as the parser that reads all bytes.

use bytes::Bytes;
use shardstream::tar::{Limits, Outline, Parsed, SampleParser};
use std::ops::Range;

/// Parses the chunks. Returns as text the samples with their fields and numbers, and the errors with their
/// offsets.
fn parse(limits: Limits, mut chunks: impl Iterator<Item = Bytes>) -> Vec<String> {
    let mut parser = SampleParser::new("s.tar").with_limits(limits);
    let mut results = Vec::new();
    loop {
        match parser.next() {
            Ok(Parsed::NeedInput) => match chunks.next() {
                Some(chunk) => parser.push(chunk),
                None => parser.finish(),
            },
            Ok(Parsed::Sample(sample)) => {
                let fields: Vec<_> = sample.fields().map(|(name, value)| (name, value.as_bytes())).collect();
                results.push(format!("{:?} {fields:?} {}", sample.key(), sample.position().sample));
            }
            Ok(Parsed::End) => break,
            Ok(other) => panic!("{other:?}"),
            Err(error) => results.push(format!("{error:?}")),
        }
    }
    assert!(matches!(parser.next(), Ok(Parsed::End)), "nothing follows the end");
    results
}

/// Returns the same as [`parse`], but gives the parser only chunks of up to `chunk` bytes at the offsets that
/// it wants, and skips the bytes between them.
fn outline(limits: Limits, archive: &Bytes, chunk: usize) -> Vec<String> {
    let mut outline = Outline::new("s.tar").with_limits(limits);
    let (mut at, mut results) = (0, Vec::new());
    loop {
        match outline.next() {
            Ok(Parsed::NeedInput) => {
                at = at.max(outline.wanted()).min(archive.len() as u64);
                outline.skip_to(at);
                let end = archive.len().min(at as usize + chunk);
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
                results.push(format!("{:?} {fields:?} {}", &*sample.key, sample.number));
            }
            Ok(Parsed::End) => break,
            Ok(other) => panic!("{other:?}"),
            Err(error) => results.push(format!("{error:?}")),
        }
    }
    results
}

/// Writes the correct checksum into every block that could be a header. Without it, few inputs would reach
/// the code behind the check.
fn seal(archive: &mut [u8]) {
    for block in archive.chunks_exact_mut(512).filter(|block| block[0] != 0) {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    }
}

/// Cuts the archive into chunks of random lengths up to `chunk` bytes.
fn cut(mut archive: Bytes, chunk: usize, seed: u8) -> impl Iterator<Item = Bytes> {
    let mut state = u32::from(seed);
    std::iter::from_fn(move || {
        if archive.is_empty() {
            return None;
        }
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let length = (state >> 16) as usize % chunk + 1;
        Some(archive.split_to(length.min(archive.len())))
    })
}

/// The first byte of `data` chooses the options. The second byte sets the maximum length of chunks, and the
/// third byte seeds their random lengths. The other bytes are the archive.
pub fn run(data: &[u8]) {
    let [how, chunk, seed, archive @ ..] = data else { return };
    let mut archive = archive.to_vec();
    if how % 2 == 1 {
        seal(&mut archive);
    }
    let archive = Bytes::from(archive);
    let mut limits = Limits::default();
    if how & 2 == 2 {
        (limits.archives, limits.members, limits.sample) = (u64::MAX, 3, 1000);
    }
    if how & 4 == 4 {
        limits.unsorted = 2000;
    }
    let whole = parse(limits, [archive.clone()].into_iter());
    let chunk = 1 + usize::from(*chunk) * 8;
    assert_eq!(parse(limits, cut(archive.clone(), chunk, *seed)), whole);
    assert_eq!(outline(limits, &archive, chunk), whole);
}
