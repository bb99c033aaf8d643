//! Damaged files of the cache: every way of reading them gives the right bytes, or an error.

use super::{CacheFixture, URL, until};
use crate::store::conformance::{read, read_range};
use crate::support::noise;
use shardstream::store::{Body, Cache, ObjectVersion};
use shardstream::{Error, ErrorKind, Result};
use std::fs;
use std::ops::Range;
use std::path::Path;

/// Number of bytes under one checksum.
const BLOCK: usize = 64 << 10;
/// Four blocks and part of one.
const LENGTH: usize = 4 * BLOCK + 20_000;
/// Number of requests that fetch such an object.
const REQUESTS: usize = LENGTH.div_ceil(50_000);

/// A large object in the cache, the bytes of its entry, and the offset of the object in them.
fn large() -> (CacheFixture, Vec<u8>, usize) {
    let mut fixture = CacheFixture::of(LENGTH, |cache| cache.revalidate(false));
    fixture.store = fixture.source.builder(&fixture.cache).range_size(50_000).build().unwrap();
    fixture.read();
    let sound = fs::read(fixture.entry()).unwrap();
    let begins = begins(&sound, &fixture.content);
    (fixture, sound, begins)
}

/// Offset of the object in a file of the cache.
fn begins(file: &[u8], content: &[u8]) -> usize {
    file.windows(9).position(|bytes| *bytes == content[..9]).unwrap()
}

/// The fixture as in a new process, which has seen no damage yet.
fn as_new_process(fixture: CacheFixture) -> CacheFixture {
    let mut fixture = fixture.again();
    fixture.store = fixture.source.builder(&fixture.cache).range_size(50_000).build().unwrap();
    fixture
}

fn flip(path: &Path, sound: &[u8], at: usize) {
    let mut damaged = sound.to_vec();
    damaged[at] ^= 0x04;
    fs::write(path, damaged).unwrap();
}

/// Ranges of the object with all sorts of bounds.
fn parts() -> Vec<Range<usize>> {
    let ends = [1, 999, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 7, 3 * BLOCK, LENGTH - 1, LENGTH];
    std::iter::once(0).chain(ends).zip(ends).map(|(start, end)| start..end).collect()
}

/// Ways to read all of the object.
fn ways() -> [fn(&CacheFixture); 4] {
    let whole: fn(&CacheFixture) = |fixture| assert!(read(&fixture.store, URL).unwrap() == fixture.content);
    let parts: fn(&CacheFixture) = |fixture| {
        for part in self::parts() {
            let body = fixture
                .store
                .open_range(URL, part.start as u64..part.end as u64, &ObjectVersion::any())
                .unwrap();
            assert!(body.read_all().unwrap() == fixture.content[part.clone()], "{part:?}");
            fixture.cache.flush();
        }
    };
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

/// Damages the entry and reads the object, in each way: the bytes must be right, and the entry repaired.
fn heals(mut fixture: CacheFixture, sound: &[u8], what: &str, damage: impl Fn(&Path)) -> CacheFixture {
    let entry = fixture.entry();
    for (way, read) in ways().into_iter().enumerate() {
        fixture = as_new_process(fixture);
        damage(&entry);
        fixture.source.requested();
        read(&fixture);
        fixture.cache.flush();
        assert_eq!(fixture.source.bodies(), REQUESTS, "{what}, read in way {way}: it is fetched again once");
        assert!(fs::read(&entry).unwrap() == sound, "{what}, read in way {way}");
        assert_eq!(fixture.files().len(), 1);
    }
    fixture
}

#[test]
fn a_flipped_bit_in_any_block_is_repaired() {
    let (mut fixture, sound, begins) = large();
    let blocks = (0..LENGTH).step_by(BLOCK);
    let places = blocks.flat_map(|block| [block, block + 12_345, (block + BLOCK).min(LENGTH) - 1]);
    for at in places {
        let damage = |entry: &Path| flip(entry, &sound, begins + at);
        fixture = heals(fixture, &sound, &format!("byte {at} of the object"), damage);
        let (warning, entry) = (fixture.cache.warning().unwrap(), fixture.entry());
        assert!(warning.contains(entry.to_str().unwrap()) && warning.contains("damaged"), "{warning}");
    }
}

/// The head, the checksums of the blocks, and the tail.
#[test]
fn a_flipped_bit_outside_the_object_is_repaired() {
    let (mut fixture, sound, begins) = large();
    let (head, sums) = ((0..begins - 20).step_by(23), (begins - 20..begins).step_by(3));
    for at in head.chain(sums).chain((begins + LENGTH..sound.len()).step_by(5)) {
        let damage = |entry: &Path| flip(entry, &sound, at);
        fixture = heals(fixture, &sound, &format!("byte {at} of the file"), damage);
    }
}

/// Zeros as in preallocated files, or after a power failure.
#[test]
fn zeroed_parts_of_an_entry_are_repaired() {
    let (mut fixture, sound, begins) = large();
    let object = begins..begins + LENGTH;
    for zeros in
        [0..sound.len(), 0..begins, 0..512, begins - 20..begins, object.clone(), object.end..sound.len()]
            .into_iter()
            .chain((0..LENGTH).step_by(BLOCK).map(|at| begins + at..begins + (at + BLOCK).min(LENGTH)))
            .chain([begins + BLOCK - 3000..begins + BLOCK + 3000, begins + 3 * BLOCK..sound.len()])
    {
        let damage = |entry: &Path| {
            let mut damaged = sound.clone();
            damaged[zeros.clone()].fill(0);
            fs::write(entry, damaged).unwrap();
        };
        fixture = heals(fixture, &sound, &format!("zeros at {zeros:?}"), damage);
    }
}

#[test]
fn files_of_the_wrong_length_are_repaired() {
    let (mut fixture, sound, begins) = large();
    let around =
        [0, 1, 100, begins - 1, begins, begins + 1, begins + BLOCK, begins + LENGTH, sound.len() - 1];
    for length in around {
        let damage = |entry: &Path| fs::write(entry, &sound[..length]).unwrap();
        fixture = heals(fixture, &sound, &format!("cut to {length}"), damage);
    }
    let damage = |entry: &Path| fs::write(entry, [&sound[..], b"more"].concat()).unwrap();
    heals(fixture, &sound, "longer", damage);
}

/// One block in place of another, sound by itself.
#[test]
fn misplaced_blocks_are_repaired() {
    let (fixture, sound, begins) = large();
    let damage = |entry: &Path| {
        let mut damaged = sound.clone();
        damaged.copy_within(begins + BLOCK..begins + 2 * BLOCK, begins + 2 * BLOCK);
        fs::write(entry, damaged).unwrap();
    };
    heals(fixture, &sound, "a block twice", damage);
}

#[test]
fn sound_blocks_are_read_without_a_request() {
    let (fixture, sound, begins) = large();
    let fixture = as_new_process(fixture);
    flip(&fixture.entry(), &sound, begins + 2 * BLOCK);
    fixture.source.requested();
    for part in [0..2 * BLOCK, 3 * BLOCK..LENGTH] {
        let found = read_range(&fixture.store, URL, part.start as u64..part.end as u64).unwrap();
        assert!(found == fixture.content[part]);
    }
    assert_eq!((fixture.source.requested(), fixture.cache.warning()), (vec![], None));
}

/// The file is damaged during a read, after some of its bytes were returned.
#[test]
fn damage_during_a_read_is_detected() {
    let (fixture, ..) = large();
    let content = noise(3 << 20);
    fixture.source.put(URL, &content, Some("v2"));
    let mut fixture = as_new_process(fixture);
    fixture.content = content;
    fs::remove_file(fixture.entry()).unwrap();
    fixture.store = fixture.source.builder(&fixture.cache).range_size(1 << 20).build().unwrap();
    fixture.read();
    let sound = fs::read(fixture.entry()).unwrap();
    let begins = begins(&sound, &fixture.content);
    let mut bodies = [0; 4].map(|_| fixture.store.open(URL).unwrap());
    let firsts: Vec<_> = bodies.iter_mut().map(|body| body.next().unwrap().unwrap()).collect();
    // Written in place, so that open readers see the damaged file.
    flip(&fixture.entry(), &sound, begins + fixture.content.len() - 1);
    fixture.source.requested();
    for (first, body) in firsts.iter().zip(bodies) {
        let rest: Vec<_> = body.map(Result::unwrap).collect();
        assert!([&first[..], &rest.concat()].concat() == fixture.content);
    }
    fixture.cache.flush();
    assert_eq!(fixture.source.bodies(), 3, "one refetch for all of them");
    assert!(fs::read(fixture.entry()).unwrap() == sound);
}

fn assert_names_the_file(error: &Error, entry: &Path) {
    assert!(matches!(error.kind(), ErrorKind::DamagedCache { file, .. } if file == entry), "{error:?}");
    assert_eq!(error.location().shard(), Some(URL));
    let shown = error.to_string();
    assert!(shown.contains(entry.to_str().unwrap()) && shown.contains(URL), "{shown}");
}

/// A disk that damages an object repeatedly cannot be trusted, and fetching it repeatedly costs money.
#[test]
fn damage_that_returns_after_a_repair_is_an_error() {
    for range in [0..u64::MAX, 10..5000, LENGTH as u64 - 10..LENGTH as u64] {
        let (fixture, sound, begins) = large();
        let fixture = as_new_process(fixture);
        let entry = fixture.entry();
        let damage = || {
            let mut damaged = sound.clone();
            [begins + 20, begins + LENGTH - 2].into_iter().for_each(|at| damaged[at] ^= 1);
            fs::write(&entry, damaged).unwrap();
        };
        let read = || fixture.store.open_range(URL, range.clone(), &ObjectVersion::any()).unwrap().read_all();
        damage();
        assert!(read().is_ok());
        fixture.cache.flush();
        assert!(fs::read(&entry).unwrap() == sound);
        damage();
        let error = read().unwrap_err();
        assert_names_the_file(&error, &entry);
        assert_eq!(error.location().offset(), Some(range.start));
        until(|| fixture.files().is_empty());
        // The object is not lost: it is fetched like one that was never cached.
        fixture.read();
        assert!(read().is_ok());
        assert!(fs::read(&entry).unwrap() == sound);
    }
}

/// Concurrent readers of the object meet the same damage, which counts once.
#[test]
fn damage_met_by_many_readers_is_counted_once() {
    let (fixture, sound, begins) = large();
    let fixture = as_new_process(fixture);
    flip(&fixture.entry(), &sound, begins + 3 * BLOCK);
    fixture.source.requested();
    let opened = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (fixture, opened) = (&fixture, &opened);
            scope.spawn(move || {
                let start = if number % 2 == 0 { 0 } else { 2 * BLOCK };
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
    read_range(&fixture.store, URL, 0..LENGTH as u64).unwrap();
    assert!(fs::read(fixture.entry()).unwrap() == sound);
}

/// Bytes read from a file that is being filled are verified too, including the incomplete block at its end.
#[test]
fn damage_in_a_growing_file_is_not_returned() {
    for at in [0, BLOCK - 1, 3 * BLOCK - 1, 3 * BLOCK, 199_000] {
        let mut fixture = CacheFixture::of(LENGTH, |cache| cache);
        fixture.store = fixture.source.builder(&fixture.cache).range_size(50_000).build().unwrap();
        fixture.source.hold(Some(50_000));
        let mut bodies = [0; 3].map(|_| fixture.store.open(URL).unwrap());
        let firsts = bodies.each_mut().map(|body| body.next().unwrap().unwrap());
        fixture.source.hold(Some(200_000));
        let partial = || fixture.files().into_iter().next().map(|path| (fs::read(&path).unwrap(), path));
        let there = || partial().filter(|(file, _)| file.len() > begins(file, &fixture.content) + 199_999);
        until(|| there().is_some());
        let (file, path) = there().unwrap();
        let flipped = file[begins(&file, &fixture.content) + at] ^ 1;
        write_byte(&path, begins(&file, &fixture.content) + at, flipped);
        let read = |body: Body| std::thread::spawn(|| body.map(Result::unwrap).collect::<Vec<_>>());
        let readers = bodies.map(read);
        // The bytes available while the last block is incomplete.
        std::thread::sleep(std::time::Duration::from_millis(100));
        fixture.source.hold(None);
        for (first, reader) in firsts.iter().zip(readers) {
            let rest = reader.join().unwrap();
            assert!([&first[..], &rest.concat()].concat() == fixture.content, "damaged at {at}");
        }
        fixture.cache.flush();
        // Whether or not the damage was seen in time, the entry is then either sound, or found to be damaged.
        let fixture = as_new_process(fixture);
        fixture.read();
        for part in parts() {
            let found = read_range(&fixture.store, URL, part.start as u64..part.end as u64).unwrap();
            assert!(found == fixture.content[part]);
        }
        fixture.cache.flush();
        let file = fs::read(fixture.entry()).unwrap();
        let begins = begins(&file, &fixture.content);
        assert!(file[begins..begins + LENGTH] == fixture.content);
    }
}

/// Overwrites a byte of a file that is open elsewhere.
fn write_byte(path: &Path, at: usize, byte: u8) {
    use std::io::{Seek, SeekFrom, Write};
    let mut file = fs::File::options().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(at as u64)).unwrap();
    file.write_all(&[byte]).unwrap();
}

#[test]
fn a_damaged_entry_never_passes_for_the_object() {
    let mut fixture = CacheFixture::with(|cache| cache.revalidate(false));
    fixture.read();
    let entry = fixture.entry();
    let sound = fs::read(&entry).unwrap();
    let content = begins(&sound, &fixture.content);
    for length in (0..sound.len()).filter(|n| n % 97 == 0 || n.abs_diff(content) < 9 || sound.len() - n < 29)
    {
        fs::write(&entry, &sound[..length]).unwrap();
        fixture.read();
        assert!(fs::read(&entry).unwrap() == sound, "cut to {length}");
    }
    fs::write(&entry, [&sound[..], b"more"].concat()).unwrap();
    fixture.read();
    for at in (0..sound.len()).filter(|at| at % 53 == 0 || *at < content || sound.len() - at < 29) {
        let mut damaged = sound.clone();
        damaged[at] ^= 0x20;
        fs::write(&entry, &damaged).unwrap();
        fixture.source.requested();
        fixture = fixture.again();
        fixture.read();
        fixture.read();
        // A file that seems to have another format is removed before it is looked for.
        assert_eq!(fixture.source.bodies(), 5, "damaged at {at}");
        assert!(fs::read(&entry).unwrap() == sound, "damaged at {at}");
    }
}

/// An entry is truncated while it is being read.
#[test]
fn missing_blocks_of_an_entry_are_fetched_again() {
    for changed in [false, true] {
        let mut fixture = CacheFixture::with(|cache| cache.revalidate(false));
        fixture.content = noise(1_500_000);
        fixture.source.put(URL, &fixture.content, Some("v1"));
        fixture.store = fixture.source.builder(&fixture.cache).range_size(1 << 20).build().unwrap();
        fixture.read();
        let mut body = fixture.store.open(URL).unwrap();
        let mut found = body.next().unwrap().unwrap().to_vec();
        fs::File::options().write(true).open(fixture.entry()).unwrap().set_len(600_000).unwrap();
        let after = noise(1_500_001)[1..].to_vec();
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
        assert!(fixture.cache.warning().is_some());
        fixture.cache.flush();
        fixture.source.requested();
        fixture.read();
        assert_eq!(fixture.source.requested(), [], "it is in the cache again");
        fixture.entry();
    }
}

/// An entry in the first file format: a header, the object, and one checksum of each.
fn first_layout(key: &str, content: &[u8]) -> Vec<u8> {
    let magic = b"shardstream\n";
    let document = serde_json::json!({
        "format": 1, "key": key, "url": URL, "version": "v1", "size": content.len()
    });
    let document = document.to_string().into_bytes();
    let head = [&magic[..], &u32::to_le_bytes(document.len() as u32), &document].concat();
    let sums = [crc32c::crc32c(&head), crc32c::crc32c(content)].map(u32::to_le_bytes).concat();
    [&head[..], content, &sums, magic].concat()
}

#[test]
fn entries_of_the_first_file_format_are_removed() {
    let fixture = CacheFixture::with(|cache| cache.revalidate(false));
    fixture.read();
    let entry = fixture.entry();
    let sound = fs::read(&entry).unwrap();
    let key = entry.file_stem().unwrap().to_str().unwrap();
    let old = first_layout(key, &fixture.content);
    let partial = entry.with_extension("partial");
    for part in [0..u64::MAX, 100..200] {
        // A process of an older version has just written it.
        fs::write(&entry, &old).unwrap();
        fs::write(&partial, &old[..old.len() / 2]).unwrap();
        fixture.source.requested();
        let found =
            fixture.store.open_range(URL, part.clone(), &ObjectVersion::any()).unwrap().read_all().unwrap();
        assert!(found == fixture.content[part.start as usize..(part.end as usize).min(4500)]);
        fixture.cache.flush();
        assert_eq!(fixture.source.bodies(), 5);
        assert!(fs::read(&entry).unwrap() == sound && !partial.exists());
    }
    fs::write(&entry, &old).unwrap();
    fs::write(&partial, &old[..old.len() / 2]).unwrap();
    fs::copy(&entry, fixture.directory.path().join("0123456789abcdef0123456789abcdef.shard")).unwrap();
    Cache::builder(fixture.directory.path()).build().unwrap();
    assert!(fixture.files().is_empty(), "{:?}", fixture.files());
}
