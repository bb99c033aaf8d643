//! Readers of shards that can be read only from their beginning, kept open between the output shards.
//!
//! A compressed shard has no byte ranges. If each output shard read it from its beginning, ten output shards
//! of one input would decompress it five times over. So the reader of an output shard is kept, and the next
//! output shard continues with it. Readers are only moved forward: a sample before the next one of all
//! readers takes a new reader.
//!
//! Threads write output shards in parallel. One that needs a reader that another thread is using waits for it
//! if the output is not compressed, since decompression is then most of the work: the input is decompressed
//! once. If the output is compressed, each thread has a reader of its own, and compression is in parallel.
//!
//! A thread that waits holds no reader itself, so that threads cannot wait for each other in a circle.

use shardstream::store::Body;
use shardstream::tar::Read;
use std::sync::{Condvar, Mutex, PoisonError};

/// Maximum number of readers that are kept.
const MAX_IDLE: usize = 32;

/// The open readers of all shards.
#[derive(Debug)]
pub(crate) struct OpenReaders {
    state: Mutex<ReaderState>,
    freed: Condvar,
    /// Whether a thread waits for a reader that another one is using.
    waits: bool,
}

#[derive(Debug, Default)]
struct ReaderState {
    idle: Vec<IdleReader>,
    /// Where the readers in use will be.
    busy: Vec<ReaderPosition>,
    /// What threads wait for.
    waiting: Vec<ReaderPosition>,
}

/// A shard, and the next sample to read in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReaderPosition {
    shard: u32,
    sample: u64,
}

impl ReaderPosition {
    /// Whether a reader here can be moved forward to `wanted`.
    fn reaches(self, wanted: ReaderPosition) -> bool {
        self.shard == wanted.shard && self.sample <= wanted.sample
    }
}

#[derive(Debug)]
struct IdleReader {
    at: ReaderPosition,
    samples: Read<Body>,
}

impl ReaderState {
    /// The idle reader that is the nearest one before a position.
    fn nearest(&self, wanted: ReaderPosition) -> Option<usize> {
        let reaching = self.idle.iter().enumerate().filter(|(_, idle)| idle.at.reaches(wanted));
        reaching.max_by_key(|(_, idle)| idle.at.sample).map(|(number, _)| number)
    }

    /// Whether a reader in use will be nearer to a position than the idle ones, or another thread waits for
    /// the idle one.
    fn is_worth_waiting(&self, wanted: ReaderPosition) -> bool {
        let idle = self.nearest(wanted).and_then(|number| self.idle.get(number)).map(|idle| idle.at.sample);
        let nearer = |at: &ReaderPosition| at.reaches(wanted) && idle.is_none_or(|idle| idle < at.sample);
        let first = |at: &ReaderPosition| {
            *at != wanted && at.reaches(wanted) && idle.is_none_or(|idle| idle <= at.sample)
        };
        self.busy.iter().any(nearer) || self.waiting.iter().any(first)
    }
}

/// The use of a reader, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct ReaderUse<'a> {
    readers: &'a OpenReaders,
    end: ReaderPosition,
    /// The reader to keep.
    samples: Option<Read<Body>>,
}

impl OpenReaders {
    pub(crate) fn new(waits: bool) -> Self {
        OpenReaders { state: Mutex::default(), freed: Condvar::new(), waits }
    }

    /// Begins to read the samples from `first` to before `end` of a shard. Returns the reader to continue
    /// with, if there is one.
    pub(crate) fn begin(&self, shard: u32, first: u64, end: u64) -> (Option<Read<Body>>, ReaderUse<'_>) {
        let (wanted, end) = (ReaderPosition { shard, sample: first }, ReaderPosition { shard, sample: end });
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if self.waits && state.is_worth_waiting(wanted) {
            state.waiting.push(wanted);
            while state.is_worth_waiting(wanted) {
                state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if let Some(number) = state.waiting.iter().position(|waiting| *waiting == wanted) {
                state.waiting.swap_remove(number);
            }
            self.freed.notify_all();
        }
        let samples = state.nearest(wanted).map(|number| state.idle.swap_remove(number).samples);
        state.busy.push(end);
        (samples, ReaderUse { readers: self, end, samples: None })
    }
}

impl ReaderUse<'_> {
    /// Keeps the reader, which has read all of its samples, for a later output shard.
    pub(crate) fn keep(mut self, samples: Read<Body>) {
        self.samples = Some(samples);
    }
}

impl Drop for ReaderUse<'_> {
    fn drop(&mut self) {
        let mut state = self.readers.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = state.busy.iter().position(|busy| *busy == self.end) {
            state.busy.swap_remove(number);
        }
        if let Some(samples) = self.samples.take() {
            // Shards are read in order, so that the first one is the least likely to be needed again.
            let shards = state.idle.iter().map(|idle| idle.at.shard).enumerate();
            let first = shards.min_by_key(|(_, shard)| *shard).map(|(number, _)| number);
            if let Some(first) = first.filter(|_| state.idle.len() >= MAX_IDLE) {
                state.idle.swap_remove(first);
            }
            state.idle.push(IdleReader { at: self.end, samples });
        }
        self.readers.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardstream::tar::{SampleParser, read};
    use std::sync::Arc;
    use std::thread;

    fn reader(name: &str) -> Read<Body> {
        read(Body::from_chunks([]), SampleParser::new(name))
    }

    /// Begins a use, and returns whether there was a reader to continue with.
    fn begin(readers: &OpenReaders, shard: u32, first: u64, end: u64) -> bool {
        let (samples, reading) = readers.begin(shard, first, end);
        let found = samples.is_some();
        reading.keep(samples.unwrap_or_else(|| reader("a.tar.gz")));
        found
    }

    #[test]
    fn a_reader_continues_where_it_was_left_and_never_back() {
        let readers = OpenReaders::new(true);
        assert!(!begin(&readers, 0, 0, 10));
        assert!(begin(&readers, 0, 10, 20) && begin(&readers, 0, 25, 30));
        assert!(!begin(&readers, 0, 20, 25), "the reader is at 30");
        assert!(!begin(&readers, 1, 0, 5));
        assert!(begin(&readers, 0, 30, 31) && begin(&readers, 0, 26, 27), "one of 31 and one of 25");
        // A use that fails leaves no reader.
        drop(readers.begin(1, 5, 9));
        assert!(!begin(&readers, 1, 9, 10));
    }

    #[test]
    fn the_number_of_readers_that_are_kept_is_limited() {
        let readers = OpenReaders::new(false);
        for shard in 0..200 {
            begin(&readers, shard, 0, 1);
        }
        assert_eq!(readers.state.lock().unwrap().idle.len(), MAX_IDLE);
        assert!(begin(&readers, 199, 1, 2) && !begin(&readers, 0, 1, 2));
    }

    #[test]
    fn threads_share_one_reader_in_the_order_of_the_samples() {
        for _ in 0..50 {
            let readers = Arc::new(OpenReaders::new(true));
            let (_, first) = readers.begin(0, 0, 1);
            let threads: Vec<_> = (1..8_u64)
                .map(|number| {
                    let readers = Arc::clone(&readers);
                    thread::spawn(move || begin(&readers, 0, number, number + 1))
                })
                .collect();
            // All of them wait for the first one.
            while readers.state.lock().unwrap().waiting.len() < threads.len() {
                thread::yield_now();
            }
            first.keep(reader("a.tar.gz"));
            assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
        }
    }
}
