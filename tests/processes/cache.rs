//! Several processes share one cache: all of them read and write its blocks, and some are killed.
//!
//! Each process runs this test program again with only the ignored test `reader_in_child` or
//! `reader_of_parts_in_child`.

use crate::support::child::child;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use shardstream::Result;
use shardstream::store::{Cache, GetOptions, GetResponse, ObjectVersion, Source, Store};
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Lines, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const URL: &str = "test://d/0.tar";
const DIRECTORY: &str = "SHARDSTREAM_TEST_DIRECTORY";
/// The environment variable that tells a reader to expect damage in the cache.
const DAMAGED: &str = "SHARDSTREAM_TEST_DAMAGED";
const RANGE: u64 = 100_000;
const LENGTH: usize = 950_000;
const BLOCK: u64 = 30_000;
const BLOCKS: usize = LENGTH.div_ceil(BLOCK as usize);

/// A source with one object, whose bytes are in the file `object`. It logs requests in the file `log`. While
/// the file `held` exists, the source withholds the second half of the object.
#[derive(Debug)]
struct HeldSource(PathBuf);

impl Source for HeldSource {
    fn get(&self, _: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let directory = self.0.clone();
        Box::pin(async move {
            let range = options.range.unwrap_or(0..u64::MAX);
            let mut log = OpenOptions::new().create(true).append(true).open(directory.join("log"))?;
            log.write_all(format!("{range:?}\n").as_bytes())?;
            let content = Bytes::from(fs::read(directory.join("object"))?);
            let length = content.len() as u64;
            let range = range.start.min(length)..range.end.min(length);
            let (held, end) = (directory.join("held"), range.end);
            let body = futures::stream::unfold(range.start, move |at| {
                let (held, content) = (held.clone(), content.clone());
                async move {
                    while at < end && at >= LENGTH as u64 / 2 && held.exists() {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    let next = end.min(at + 10_000);
                    (at < end).then(|| (Ok(content.slice(at as usize..next as usize)), next))
                }
            });
            let response = GetResponse::new(body.boxed()).with_size(length);
            Ok(response.with_range(range).with_version("v1"))
        })
    }
}

fn store(directory: &Path) -> (Store, Cache) {
    let cache = Cache::builder(directory.join("cache")).block_size(BLOCK).build().unwrap();
    let source = Arc::new(HeldSource(directory.to_owned()));
    let store =
        Store::builder().range_size(RANGE).with_source("test", source).cache(cache.clone()).build().unwrap();
    (store, cache)
}

/// Runs in a child process: reads the whole object, prints a line once it has started to read, and compares
/// the object with the expected bytes.
#[test]
#[ignore = "started by other tests of this file"]
fn reader_in_child() {
    let directory = std::env::var(DIRECTORY).unwrap();
    let (store, cache) = store(Path::new(&directory));
    let mut body = store.open(URL).unwrap();
    let mut found = body.next().unwrap().unwrap().to_vec();
    println!("\nbegun");
    for chunk in body {
        found.extend_from_slice(&chunk.unwrap());
    }
    assert!(found == crate::support::noise(LENGTH));
    cache.flush();
    assert!(cache.warning().is_none() || std::env::var_os(DAMAGED).is_some(), "{:?}", cache.warning());
}

/// Runs in a child process: reads the object in ranges of 70,001 bytes.
#[test]
#[ignore = "started by other tests of this file"]
fn reader_of_parts_in_child() {
    let directory = std::env::var(DIRECTORY).unwrap();
    let (store, cache) = store(Path::new(&directory));
    let content = crate::support::noise(LENGTH);
    println!("\nbegun");
    for start in (0..LENGTH).step_by(70_001) {
        let end = (start + 70_001).min(LENGTH);
        let found = store
            .open_range(URL, start as u64..end as u64, &ObjectVersion::any())
            .unwrap()
            .read_all()
            .unwrap();
        assert!(found == content[start..end], "{start}..{end}");
        cache.flush();
    }
    assert!(cache.warning().is_some_and(|warning| warning.contains("damaged")));
}

/// A process that reads the object, and the lines of its output. The process is killed when the test ends.
struct Reader(Child, Lines<BufReader<ChildStdout>>);

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Reader {
    fn start(directory: &Path) -> Self {
        Self::run(child(module_path!(), "reader_in_child").env(DIRECTORY, directory))
    }

    fn run(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        Reader(child, said)
    }

    fn wait_for_start(&mut self) {
        assert!(self.1.any(|line| line.unwrap() == "begun"), "the process ended early");
    }

    fn end(mut self) {
        self.1.by_ref().for_each(drop);
        assert!(self.0.wait().unwrap().success());
    }
}

struct CacheFixture(tempfile::TempDir);

impl CacheFixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("object"), crate::support::noise(LENGTH)).unwrap();
        fs::write(directory.path().join("held"), "").unwrap();
        CacheFixture(directory)
    }

    fn start(&self) -> Reader {
        Reader::start(self.0.path())
    }

    /// Starts a process that expects damage in the cache.
    fn start_damaged(&self, test: &str) -> Reader {
        Reader::run(child(module_path!(), test).env(DIRECTORY, self.0.path()).env(DAMAGED, "1"))
    }

    /// Flips a bit in a file of the cache.
    fn flip(path: &Path, at: usize) {
        let byte = fs::read(path).unwrap()[at];
        let mut file = OpenOptions::new().write(true).open(path).unwrap();
        file.seek(SeekFrom::Start(at as u64)).unwrap();
        file.write_all(&[byte ^ 0x40]).unwrap();
    }

    fn release(&self) {
        fs::remove_file(self.0.path().join("held")).unwrap();
    }

    /// Number of requests, without the one-byte requests that ask for the version.
    fn requests(&self) -> usize {
        let log = fs::read_to_string(self.0.path().join("log")).unwrap();
        log.lines().filter(|line| *line != "0..1").count()
    }

    fn files(&self) -> Vec<PathBuf> {
        // The directory does not exist before a process has created the cache.
        let objects = fs::read_dir(self.0.path().join("cache")).into_iter().flatten();
        let objects = objects.map(|entry| entry.unwrap().path());
        let files = objects.filter(|path| path.is_dir()).flat_map(|object| fs::read_dir(object).unwrap());
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        files
    }

    fn blocks(&self) -> Vec<PathBuf> {
        self.files().into_iter().filter(|path| path.extension().is_some_and(|kind| kind == "block")).collect()
    }

    /// Fails unless the cache holds the whole undamaged object, so that reading it takes no request.
    fn assert_sound(&self) {
        assert_eq!(self.blocks().len(), BLOCKS);
        let (before, (store, cache)) = (self.requests(), store(self.0.path()));
        assert!(store.open(URL).unwrap().read_all().unwrap() == crate::support::noise(LENGTH));
        assert_eq!((self.requests(), cache.warning()), (before, None));
    }
}

#[test]
fn concurrent_processes_share_the_blocks() {
    let fixture = CacheFixture::new();
    let mut readers: Vec<_> = (0..4).map(|_| fixture.start()).collect();
    readers.iter_mut().for_each(Reader::wait_for_start);
    fixture.release();
    readers.into_iter().for_each(Reader::end);
    fixture.assert_sound();
    assert_eq!(fixture.files().len(), BLOCKS);
}

/// In each round, four processes read the object and are killed after a few milliseconds.
#[test]
fn killed_processes_leave_sound_blocks_only() {
    let fixture = CacheFixture::new();
    fixture.release();
    for round in 0..12_u64 {
        // Some blocks are missing, as if another process had evicted them.
        fixture
            .blocks()
            .iter()
            .step_by(2 + round as usize % 3)
            .for_each(|path| fs::remove_file(path).unwrap());
        let mut readers: Vec<_> = (0..4).map(|_| fixture.start()).collect();
        readers.iter_mut().for_each(Reader::wait_for_start);
        for reader in readers {
            std::thread::sleep(Duration::from_millis(round));
            drop(reader);
        }
        let (store, cache) = store(fixture.0.path());
        assert!(store.open(URL).unwrap().read_all().unwrap() == crate::support::noise(LENGTH));
        cache.flush();
        assert_eq!(cache.warning(), None, "killed processes leave no damaged blocks");
    }
    fixture.start().end();
    fixture.assert_sound();
}

/// A partial file that a killed process left is removed once its age exceeds the time that any write takes.
#[test]
fn files_that_nobody_writes_any_more_are_removed() {
    let fixture = CacheFixture::new();
    fixture.release();
    fixture.start().end();
    let partial = fixture.files()[3].with_extension("0123456789abcdef.partial");
    fs::rename(&fixture.files()[3], &partial).unwrap();
    store(fixture.0.path());
    assert!(partial.exists(), "another process may be writing it");
    let old = std::time::SystemTime::now() - Duration::from_secs(1000);
    OpenOptions::new().write(true).open(&partial).unwrap().set_modified(old).unwrap();
    store(fixture.0.path());
    assert!(!partial.exists());
    fixture.start().end();
    fixture.assert_sound();
}

/// Flips a bit in every third block, one block at a time. Each time a new process finds the damage: it reads
/// ranges in one round and the whole object in the next.
#[test]
fn the_process_that_finds_damage_repairs_it() {
    let fixture = CacheFixture::new();
    fixture.release();
    fixture.start().end();
    let sound: Vec<_> = fixture.blocks().iter().map(|path| fs::read(path).unwrap()).collect();
    for (number, path) in fixture.blocks().iter().enumerate().step_by(3) {
        CacheFixture::flip(path, 999 * number % sound[number].len());
        let before = fixture.requests();
        fixture.start_damaged(["reader_of_parts_in_child", "reader_in_child"][number % 2]).end();
        assert_eq!(fixture.requests() - before, 1, "the block is fetched again once");
        assert!(fs::read(path).unwrap() == sound[number]);
        fixture.assert_sound();
    }
}

/// Bits flip in blocks on the disk while several processes read them.
#[test]
fn damage_does_not_reach_other_processes() {
    let fixture = CacheFixture::new();
    let mut readers: Vec<_> = (0..4).map(|_| fixture.start_damaged("reader_in_child")).collect();
    readers.iter_mut().for_each(Reader::wait_for_start);
    // The readers have read some of the blocks in the cache, and have not read the other blocks yet. The
    // source still withholds the object's later blocks.
    let blocks = fixture.blocks();
    blocks.iter().step_by(2).for_each(|path| CacheFixture::flip(path, 5000));
    let more = [fixture.start_damaged("reader_in_child"), fixture.start_damaged("reader_in_child")];
    fixture.release();
    readers.into_iter().chain(more).for_each(Reader::end);
    fixture.start_damaged("reader_in_child").end();
    fixture.assert_sound();
}
