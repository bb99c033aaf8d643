//! Damaged files in the cache: every way of reading them returns the right bytes, or an error.

use super::{CacheFixture, URL};
use crate::store::conformance::read_range;
use crate::support::noise;
use shardstream::store::{Cache, ObjectVersion};
use shardstream::{Error, ErrorKind, Result};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Number of bytes that one checksum covers.
const PIECE: usize = 64 << 10;
/// A block has one whole piece and part of another.
const BLOCK: usize = 100_000;
/// The object has two whole blocks and part of another.
const LENGTH: usize = 2 * BLOCK + 80_000;
/// Number of requests that fetching a block takes.
const REQUESTS: usize = 2;

/// An object of three blocks in the cache, and the file and content of each block.
fn large() -> (CacheFixture, Vec<(PathBuf, Vec<u8>)>) {
    let mut fixture = CacheFixture::of(LENGTH, BLOCK, |cache| cache.revalidate(false));
    fixture.store = fixture.source.builder(&fixture.cache).range_size(50_000).build().unwrap();
    fixture.read();
    let sound = |path: PathBuf| (path.clone(), fs::read(path).unwrap());
    let blocks = fixture.blocks().into_iter().map(sound).collect();
    (fixture, blocks)
}

/// Opens the cache again, as a new process would: the new cache has seen no damage yet.
fn as_new_process(fixture: CacheFixture) -> CacheFixture {
    let mut fixture = fixture.again();
    fixture.store = fixture.source.builder(&fixture.cache).range_size(50_000).build().unwrap();
    fixture
}

/// The range of the object that block `number` holds.
fn range_of(number: usize) -> Range<usize> {
    number * BLOCK..((number + 1) * BLOCK).min(LENGTH)
}

/// The offset in a block's file at which the block's bytes begin.
fn begins(number: usize, file: &[u8]) -> usize {
    file.len() - range_of(number).len()
}

fn flipped(sound: &[u8], at: usize) -> Vec<u8> {
    let mut damaged = sound.to_vec();
    damaged[at] ^= 0x04;
    damaged
}

/// Consecutive ranges of the object that end near the boundaries of pieces and blocks.
fn parts() -> Vec<Range<usize>> {
    let ends = [
        10_000,
        PIECE - 1,
        PIECE,
        PIECE + 10_000,
        BLOCK,
        BLOCK + 9999,
        2 * BLOCK + PIECE,
        LENGTH - 8000,
        LENGTH,
    ];
    std::iter::once(0).chain(ends).zip(ends).map(|(start, end)| start..end).collect()
}

/// Four ways to read the whole object.
fn ways() -> [fn(&CacheFixture); 4] {
    let whole: fn(&CacheFixture) = CacheFixture::read;
    let parts: fn(&CacheFixture) = |fixture| parts().into_iter().for_each(|part| fixture.read_range(part));
    let backwards: fn(&CacheFixture) = |fixture| {
        for part in self::parts().into_iter().rev() {
            let stream = fixture
                .store
                .open_range(URL, part.start as u64..part.end as u64, &ObjectVersion::any())
                .unwrap()
                .into_stream();
            let chunks: Vec<_> = futures::executor::block_on_stream(stream).map(Result::unwrap).collect();
            assert!(chunks.concat() == fixture.content[part.clone()], "{part:?}");
            fixture.cache.flush();
        }
    };
    let stream: fn(&CacheFixture) = |fixture| {
        let stream = fixture.store.open(URL).unwrap().into_stream();
        let chunks: Vec<_> = futures::executor::block_on_stream(stream).map(Result::unwrap).collect();
        assert!(chunks.concat() == fixture.content);
    };
    [whole, parts, backwards, stream]
}

/// Damages a block's file and reads the object, in each of the four ways. The bytes must be right, only this
/// block may be fetched again, and its file must be repaired.
fn heals(
    mut fixture: CacheFixture,
    (path, sound): &(PathBuf, Vec<u8>),
    what: &str,
    damaged: &[u8],
) -> CacheFixture {
    for (way, read) in ways().into_iter().enumerate() {
        fixture = as_new_process(fixture);
        fs::write(path, damaged).unwrap();
        fixture.source.requested();
        read(&fixture);
        fixture.cache.flush();
        assert_eq!(fixture.source.bodies(), REQUESTS, "{what}, read in way {way}: it is fetched again once");
        assert!(fs::read(path).unwrap() == *sound, "{what}, read in way {way}");
        assert_eq!(fixture.numbers(), [0, 1, 2]);
        let warning = fixture.cache.warning().unwrap();
        assert!(warning.contains(path.to_str().unwrap()) && warning.contains("damaged"), "{warning}");
    }
    fixture
}

#[test]
fn a_flipped_bit_in_any_block_is_repaired() {
    let (mut fixture, blocks) = large();
    for (number, block) in blocks.iter().enumerate() {
        let length = range_of(number).len();
        for at in [0, 12_345, PIECE - 1, PIECE, length - 1] {
            let damaged = flipped(&block.1, begins(number, &block.1) + at);
            fixture = heals(fixture, block, &format!("byte {at} of block {number}"), &damaged);
        }
    }
}

/// Flips a bit in the magic, the lengths, the checksums, the document's fields, or the spaces after the
/// document.
#[test]
fn a_flipped_bit_in_a_header_is_repaired() {
    let (mut fixture, blocks) = large();
    for (number, block) in blocks.iter().enumerate() {
        let document = 20..begins(number, &block.1);
        for at in (0..document.start).step_by(3).chain(document.step_by(7 + 10 * number)) {
            let what = format!("byte {at} of the header of block {number}");
            fixture = heals(fixture, block, &what, &flipped(&block.1, at));
        }
    }
}

/// Overwrites parts of a block with zeros, as in a preallocated file or after a power failure.
#[test]
fn zeroed_parts_of_a_block_are_repaired() {
    let (mut fixture, blocks) = large();
    let block = &blocks[1];
    let begins = begins(1, &block.1);
    for zeros in [
        0..block.1.len(),
        0..begins,
        0..512,
        begins..block.1.len(),
        begins..begins + PIECE,
        begins + PIECE - 3000..begins + PIECE + 3000,
        block.1.len() - 4096..block.1.len(),
    ] {
        let mut damaged = block.1.clone();
        damaged[zeros.clone()].fill(0);
        fixture = heals(fixture, block, &format!("zeros at {zeros:?}"), &damaged);
    }
}

#[test]
fn files_of_the_wrong_length_are_repaired() {
    let (mut fixture, blocks) = large();
    let block = &blocks[2];
    let begins = begins(2, &block.1);
    for length in [0, 1, 19, 100, begins - 1, begins, begins + 1, begins + PIECE, block.1.len() - 1] {
        fixture = heals(fixture, block, &format!("cut to {length}"), &block.1[..length]);
    }
    heals(fixture, block, "longer", &[&block.1[..], b"more"].concat());
}

/// The file of a block is replaced by the undamaged file of a different block. The other block belongs to the
/// same object, to another version of it, or to another object.
#[test]
fn misplaced_blocks_are_repaired() {
    let (mut fixture, blocks) = large();
    let mut foreign = vec![("the block before", blocks[0].1.clone())];
    for (what, url, version) in [("another object", "test://d/1.tar", "v1"), ("another version", URL, "v2")] {
        let other = CacheFixture::of(LENGTH, BLOCK, |cache| cache);
        other.source.put(url, &other.content, Some(version));
        assert!(other.store.open(url).unwrap().read_all().unwrap() == other.content);
        other.cache.flush();
        foreign.push((what, fs::read(&other.blocks()[1]).unwrap()));
    }
    for (what, damaged) in foreign {
        fixture = heals(fixture, &blocks[1], what, &damaged);
    }
}

#[test]
fn sound_pieces_are_read_without_a_request() {
    let (fixture, blocks) = large();
    let fixture = as_new_process(fixture);
    let (path, sound) = &blocks[1];
    fs::write(path, flipped(sound, sound.len() - 1)).unwrap();
    fixture.source.requested();
    for part in [0..BLOCK + PIECE, 2 * BLOCK..LENGTH] {
        let found = read_range(&fixture.store, URL, part.start as u64..part.end as u64).unwrap();
        assert!(found == fixture.content[part]);
    }
    assert_eq!((fixture.source.requested(), fixture.cache.warning()), (vec![], None));
}

/// A file is damaged after some of its bytes were returned to readers.
#[test]
fn damage_during_a_read_is_detected() {
    let mut fixture = CacheFixture::of(3 << 20, 3 << 20, |cache| cache.revalidate(false));
    fixture.store = fixture.source.builder(&fixture.cache).range_size(1 << 20).build().unwrap();
    fixture.read();
    let path = &fixture.blocks()[0];
    let sound = fs::read(path).unwrap();
    let mut bodies = [0; 4].map(|_| fixture.store.open(URL).unwrap());
    let firsts: Vec<_> = bodies.iter_mut().map(|body| body.next().unwrap().unwrap()).collect();
    // Writes into the existing file, so that readers that have it open see the damage.
    fs::write(path, flipped(&sound, sound.len() - 1)).unwrap();
    fixture.source.requested();
    for (first, body) in firsts.iter().zip(bodies) {
        let rest: Vec<_> = body.map(Result::unwrap).collect();
        assert!([&first[..], &rest.concat()].concat() == fixture.content);
        fixture.cache.flush();
    }
    assert!(fs::read(path).unwrap() == sound);
    fixture.source.requested();
    fixture.read();
    assert_eq!(fixture.source.requested(), []);
}

fn assert_names_the_file(error: &Error, path: &Path) {
    assert!(matches!(error.kind(), ErrorKind::DamagedCache { file, .. } if file == path), "{error:?}");
    assert_eq!(error.location().shard(), Some(URL));
    let shown = error.to_string();
    assert!(shown.contains(path.to_str().unwrap()) && shown.contains(URL), "{shown}");
}

/// If a block is damaged again after its repair, the disk cannot be trusted. Each further repair would fetch
/// the block again and cost money, so the damage is an error.
#[test]
fn damage_that_returns_after_a_repair_is_an_error() {
    for range in [0..u64::MAX, 10..20_000, LENGTH as u64 - 10_000..LENGTH as u64] {
        for cut in [false, true] {
            let (fixture, blocks) = large();
            let fixture = as_new_process(fixture);
            let (path, sound) = if range.start > 1000 { &blocks[2] } else { &blocks[0] };
            let damage = || match cut {
                true => fs::write(path, &sound[..sound.len() / 2]).unwrap(),
                false => {
                    let damaged = flipped(sound, sound.len() - range_of(2).len() + 20);
                    fs::write(path, flipped(&damaged, sound.len() - 2)).unwrap();
                }
            };
            let read =
                || fixture.store.open_range(URL, range.clone(), &ObjectVersion::any()).unwrap().read_all();
            damage();
            if !cut && range.start == 10 {
                // Only the block's first piece is damaged: this range does not reach into the second piece.
                fs::write(path, flipped(sound, sound.len() - BLOCK + 20)).unwrap();
            }
            assert!(read().is_ok());
            fixture.cache.flush();
            assert!(fs::read(path).unwrap() == *sound);
            fs::write(path, &sound[..sound.len() / 2]).unwrap();
            assert_names_the_file(&read().unwrap_err(), path);
            fixture.cache.flush();
            // After the error, the block is fetched again as if it had never been cached.
            fixture.read();
            assert!(read().is_ok());
            assert!(fs::read(path).unwrap() == *sound);
        }
    }
}

/// Eight readers find the same damage at once. The damage is counted once, so no reader reports an error.
#[test]
fn damage_met_by_many_readers_is_counted_once() {
    let (fixture, blocks) = large();
    let fixture = as_new_process(fixture);
    let (path, sound) = &blocks[2];
    fs::write(path, flipped(sound, sound.len() - 1)).unwrap();
    let opened = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (fixture, opened) = (&fixture, &opened);
            scope.spawn(move || {
                let start = if number % 2 == 0 { 0 } else { BLOCK };
                let mut body =
                    fixture.store.open_range(URL, start as u64..u64::MAX, &ObjectVersion::any()).unwrap();
                let first = body.next().unwrap().unwrap();
                opened.wait();
                let rest: Vec<_> = body.map(Result::unwrap).collect();
                assert!([&first[..], &rest.concat()].concat() == fixture.content[start..]);
            });
        }
    });
    fixture.cache.flush();
    fixture.read();
    assert!(fs::read(path).unwrap() == *sound);
}

#[test]
fn a_damaged_block_never_passes_for_the_object() {
    let mut fixture = CacheFixture::with(|cache| cache.revalidate(false));
    fixture.read();
    let path = fixture.blocks()[2].clone();
    let sound = fs::read(&path).unwrap();
    let header = sound.len() - 1000;
    let check = |fixture: CacheFixture, damaged: &[u8], what: &str| {
        let fixture = fixture.again();
        fs::write(&path, damaged).unwrap();
        fixture.source.requested();
        fixture.read();
        fixture.read();
        assert!(matches!(&*fixture.source.requested(), [only] if *only == (2000..3000)), "{what}");
        assert!(fs::read(&path).unwrap() == sound, "{what}");
        fixture
    };
    let near =
        |at: usize| at.is_multiple_of(97) || at.abs_diff(header) < 9 || sound.len() - at < 9 || at < 24;
    for at in (0..sound.len()).filter(|at| near(*at)) {
        fixture = check(fixture, &sound[..at], &format!("cut to {at}"));
        fixture = check(fixture, &flipped(&sound, at), &format!("damaged at {at}"));
    }
}

/// Removes block files while the object is read. Another process may do the same to make room in the cache.
#[test]
fn blocks_that_are_evicted_during_a_read_are_fetched_again() {
    for changed in [false, true] {
        let mut fixture = CacheFixture::with(|cache| cache.revalidate(false));
        fixture.read();
        let mut body = fixture.store.open(URL).unwrap();
        let mut found = body.next().unwrap().unwrap().to_vec();
        fixture.blocks()[2..].iter().for_each(|path| fs::remove_file(path).unwrap());
        let after = noise(4501)[1..].to_vec();
        if changed {
            fixture.source.put(URL, &after, Some("v2"));
        }
        let rest: Result<Vec<_>> =
            body.map(|chunk| chunk.map(|chunk| found.extend_from_slice(&chunk))).collect();
        match rest {
            Err(error) if changed => {
                assert!(matches!(error.kind(), ErrorKind::Changed { .. }), "{error:?}");
                assert!(fixture.content.starts_with(&found));
                fixture.content = after;
            }
            rest => assert!(rest.is_ok() && !changed && found == fixture.content),
        }
        fixture.cache.flush();
        fixture.read();
        fixture.source.requested();
        fixture.read();
        assert_eq!(fixture.source.requested(), [], "it is in the cache again");
        assert_eq!((fixture.numbers(), fixture.cache.warning()), (vec![0, 1, 2, 3, 4], None));
    }
}

/// Files of whole objects, as earlier versions of the crate wrote them.
#[test]
fn files_of_earlier_formats_are_removed_and_never_read() {
    let fixture = CacheFixture::new();
    let home = fixture.directory.path();
    for name in ["lock", "0123456789abcdef0123456789abcdef.shard", "0123456789abcdef0123456789abcdef.partial"]
    {
        fs::write(home.join(name), [b"shardstream\n", &fixture.content[..]].concat()).unwrap();
    }
    fs::write(home.join("0123456789abcdef.shard"), "mine").unwrap();
    fixture.read();
    Cache::builder(home).build().unwrap();
    let left: Vec<_> = fixture.files().into_iter().filter(|path| path.parent() == Some(home)).collect();
    assert_eq!(left, [home.join("0123456789abcdef.shard")]);
    assert_eq!(fixture.files().len(), 6);
}
