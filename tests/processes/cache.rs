//! Several processes with one cache: one fetches, all read, and some are killed.
//!
//! A reader is this program again, which runs only the ignored test `reader`.

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
/// Set where the cache is damaged.
const DAMAGED: &str = "SHARDSTREAM_TEST_DAMAGED";
const RANGE: u64 = 100_000;
const LENGTH: usize = 950_000;

/// Serves one object, from a file, to all processes. Requests are logged in a second file, and while a third
/// one exists, the second half of the object is withheld.
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
    let cache = Cache::builder(directory.join("cache")).build().unwrap();
    let source = Arc::new(HeldSource(directory.to_owned()));
    let store =
        Store::builder().range_size(RANGE).with_source("test", source).cache(cache.clone()).build().unwrap();
    (store, cache)
}

/// One process: prints a line when it has started to read, and checks what it reads.
#[test]
#[ignore = "a part of the other tests, which start it"]
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

/// One process that reads the object in parts.
#[test]
#[ignore = "a part of the other tests, which start it"]
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

/// A process that reads, which is killed when the test ends.
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

    /// A process that expects damage in the cache.
    fn start_damaged(&self, test: &str) -> Reader {
        Reader::run(child(module_path!(), test).env(DIRECTORY, self.0.path()).env(DAMAGED, "1"))
    }

    /// Flips a bit of the object in the one file of the cache.
    fn flip(&self, at: usize) {
        let files = self.files();
        assert_eq!(files.len(), 1, "{files:?}");
        let (content, found) = (crate::support::noise(LENGTH), fs::read(&files[0]).unwrap());
        let begins = found.windows(99).position(|bytes| *bytes == content[..99]).unwrap();
        let mut file = OpenOptions::new().write(true).open(&files[0]).unwrap();
        file.seek(SeekFrom::Start((begins + at) as u64)).unwrap();
        file.write_all(&[content[at] ^ 0x40]).unwrap();
    }

    fn release(&self) {
        fs::remove_file(self.0.path().join("held")).unwrap();
    }

    /// Number of requests, without those for the version alone.
    fn requests(&self) -> usize {
        let log = fs::read_to_string(self.0.path().join("log")).unwrap();
        log.lines().filter(|line| *line != "0..1").count()
    }

    fn files(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.0.path().join("cache")).unwrap();
        files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some()).collect()
    }

    /// Fails unless the cache holds the sound object and reading it takes no request.
    fn assert_sound(&self) {
        let files = self.files();
        assert!(files.len() == 1 && files[0].extension().is_some_and(|kind| kind == "shard"), "{files:?}");
        let (before, (store, cache)) = (self.requests(), store(self.0.path()));
        assert!(store.open(URL).unwrap().read_all().unwrap() == crate::support::noise(LENGTH));
        assert_eq!((self.requests(), cache.warning()), (before, None));
    }
}

#[test]
fn concurrent_processes_fetch_an_object_once() {
    let fixture = CacheFixture::new();
    let mut readers: Vec<_> = (0..5).map(|_| fixture.start()).collect();
    readers.iter_mut().for_each(Reader::wait_for_start);
    fixture.release();
    readers.into_iter().for_each(Reader::end);
    assert_eq!(fixture.requests(), LENGTH.div_ceil(RANGE as usize));
    fixture.assert_sound();
}

#[test]
fn a_killed_process_leaves_no_readable_entry() {
    let fixture = CacheFixture::new();
    let mut reader = fixture.start();
    reader.wait_for_start();
    drop(reader);
    let left = fixture.files();
    assert!(left.len() == 1 && left[0].extension().is_some_and(|kind| kind == "partial"), "{left:?}");
    fixture.release();
    fixture.start().end();
    fixture.assert_sound();

    // The partial file is removed even if nobody reads the object again.
    let fixture = CacheFixture::new();
    let mut reader = fixture.start();
    reader.wait_for_start();
    drop(reader);
    store(fixture.0.path());
    assert_eq!(fixture.files(), Vec::<PathBuf>::new());
}

#[test]
fn another_process_takes_over_the_fetch_of_a_killed_one() {
    let fixture = CacheFixture::new();
    let mut first = fixture.start();
    first.wait_for_start();
    let mut others = [fixture.start(), fixture.start(), fixture.start()];
    others.iter_mut().for_each(Reader::wait_for_start);
    drop(first);
    fixture.release();
    others.into_iter().for_each(Reader::end);
    assert!(fixture.requests() <= 2 * LENGTH.div_ceil(RANGE as usize), "{}", fixture.requests());
    fixture.assert_sound();
}

/// A flipped bit in each block of 64 KiB, found by a process that reads parts and by one that reads
/// everything.
#[test]
fn the_process_that_finds_damage_repairs_it() {
    let fixture = CacheFixture::new();
    fixture.release();
    fixture.start().end();
    let sound = fs::read(&fixture.files()[0]).unwrap();
    for (number, block) in (0..LENGTH).step_by(64 << 10).enumerate() {
        fixture.flip((block + 999 * number).min(LENGTH - 1));
        let before = fixture.requests();
        fixture.start_damaged(["reader_of_parts_in_child", "reader_in_child"][number % 2]).end();
        assert_eq!(fixture.requests() - before, LENGTH.div_ceil(RANGE as usize), "it is fetched again once");
        assert!(fs::read(&fixture.files()[0]).unwrap() == sound);
        fixture.assert_sound();
    }
}

/// One process fills the file, others follow it, and the disk damages what was written.
#[test]
fn damage_does_not_reach_other_processes() {
    let fixture = CacheFixture::new();
    let mut first = fixture.start_damaged("reader_in_child");
    first.wait_for_start();
    let mut second = fixture.start_damaged("reader_in_child");
    second.wait_for_start();
    // Some of it has been read, and some hasn't.
    [70_000, 200_000, 400_000].into_iter().for_each(|at| fixture.flip(at));
    let mut others = [fixture.start_damaged("reader_in_child"), fixture.start_damaged("reader_in_child")];
    others.iter_mut().for_each(Reader::wait_for_start);
    fixture.release();
    [first, second].into_iter().chain(others).for_each(Reader::end);
    // The process that filled the file may have read all of it before.
    fixture.start_damaged("reader_in_child").end();
    fixture.assert_sound();
}
