//! Finds where the reading of a damaged archive can resume.

use crate::interrupt::Interrupt;
use shardstream::index::ShardIndex;
use shardstream::store::{ObjectVersion, Store};
use shardstream::{ErrorKind, Result, SecretUrl};

/// Size of a block of a tar archive. Headers begin at multiples of this size.
const BLOCK: usize = 512;

/// The offset at which reading resumes, and the number of the sample there, if an index has it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResumePoint {
    pub(super) offset: u64,
    pub(super) sample: Option<u64>,
}

/// Finds where reading resumes after damage at byte `damage`. With an index, this is the next sample. Without
/// an index, it is the next header with a correct checksum, which may be in the middle of a sample. `None` if
/// there is no such sample or header.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for a compressed shard, which has no offsets; errors of reading the shard.
pub(super) fn after(
    damage: u64,
    url: &SecretUrl,
    index: Option<&ShardIndex>,
    object: &ObjectVersion,
    store: &Store,
    interrupt: &Interrupt,
) -> Result<Option<ResumePoint>> {
    match index {
        Some(shard) if shard.range(0..shard.samples()).is_some() => Ok(next_sample(damage, shard)),
        _ => next_header(damage, url, object, store, interrupt),
    }
}

fn next_sample(damage: u64, shard: &ShardIndex) -> Option<ResumePoint> {
    let begin = |sample: u64| shard.range(sample..sample + 1).map_or(u64::MAX, |bytes| bytes.start);
    let (mut low, mut high) = (0, shard.samples());
    while low < high {
        let middle = low + (high - low) / 2;
        match begin(middle) > damage {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    Some(ResumePoint { offset: begin(low), sample: Some(shard.position_of(low)?) })
}

fn next_header(
    damage: u64,
    url: &SecretUrl,
    object: &ObjectVersion,
    store: &Store,
    interrupt: &Interrupt,
) -> Result<Option<ResumePoint>> {
    let mut offset = (damage / BLOCK as u64 + 1) * BLOCK as u64;
    let body = store.open_range(url.expose_secret(), offset..u64::MAX, object)?;
    let mut rest = Vec::new();
    for chunk in body {
        if interrupt.is_set() {
            return Err(ErrorKind::Stopped.into());
        }
        rest.extend_from_slice(&chunk?);
        let blocks = rest.chunks_exact(BLOCK);
        let left = blocks.remainder().len();
        let count = blocks.len() as u64;
        if let Some(at) = blocks.into_iter().position(is_header) {
            return Ok(Some(ResumePoint { offset: offset + at as u64 * BLOCK as u64, sample: None }));
        }
        offset += count * BLOCK as u64;
        rest.drain(..rest.len() - left);
    }
    Ok(None)
}

/// Whether a block is a header with a correct checksum. The checksum is the sum of all bytes of the header,
/// in which the bytes of the checksum itself count as spaces.
fn is_header(block: &[u8]) -> bool {
    let Some((checksum, name)) = block.get(148..156).zip(block.first()) else { return false };
    let digits: Vec<u8> =
        checksum.iter().copied().skip_while(|byte| *byte == b' ').take_while(u8::is_ascii_digit).collect();
    let stored = std::str::from_utf8(&digits).ok().and_then(|digits| u32::from_str_radix(digits, 8).ok());
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    *name != 0 && stored == Some(sum(block) - sum(checksum) + 8 * u32::from(b' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_recognised_by_their_checksum() {
        let mut header = tar::Header::new_ustar();
        header.set_path("a.txt").unwrap();
        header.set_size(7);
        header.set_cksum();
        assert!(is_header(header.as_bytes()));
        let mut damaged = *header.as_bytes();
        damaged[3] ^= 1;
        assert!(!is_header(&damaged) && !is_header(&[0; 512]) && !is_header(&[b'7'; 512]) && !is_header(b""));
    }

    #[test]
    fn the_next_header_is_found_across_chunks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.tar");
        let mut archive = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_ustar();
        header.set_size(3000);
        for name in ["a.bin", "b.bin"] {
            archive.append_data(&mut header.clone(), name, &[9; 3000][..]).unwrap();
        }
        std::fs::write(&path, archive.into_inner().unwrap()).unwrap();
        let url = SecretUrl::from(path.to_str().unwrap());
        let any = ObjectVersion::any();
        let find =
            |damage| after(damage, &url, None, &any, &Store::default(), &Interrupt::default()).unwrap();
        assert_eq!(find(0), Some(ResumePoint { offset: 3584, sample: None }));
        assert_eq!((find(3583), find(3584)), (Some(ResumePoint { offset: 3584, sample: None }), None));
    }
}
