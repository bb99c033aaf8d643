//! Keeps the readers of compressed input shards open, so that several output shards can share one reader.
//!
//! A compressed shard has no byte ranges: it can only be read from its beginning. If each of ten output
//! shards read the same input from its beginning, the input would be decompressed five times on average.
//! Instead, an output shard leaves its reader open, and the output shard with the next samples continues with
//! this reader. Readers only move forward. If all open readers are past a sample, a new reader is opened.
//!
//! Threads write output shards in parallel. If the output is not compressed, decompression is most of the
//! work. A thread then waits for a reader that another thread is using, and the input is decompressed only
//! once. If the output is compressed, each thread opens its own reader instead, so that all threads compress
//! in parallel.
//!
//! A thread that waits holds no reader, so threads cannot deadlock.

use shardstream::store::Body;
use shardstream::tar::Read;
use std::sync::{Condvar, Mutex, PoisonError};

/// Maximum number of idle readers that are kept.
const MAX_IDLE: usize = 32;

/// The open readers of all shards.
#[derive(Debug)]
pub(crate) struct OpenReaders {
    state: Mutex<ReaderState>,
    /// Notified when a reader becomes idle, and when a thread stops waiting.
    freed: Condvar,
    /// Whether threads wait for readers that other threads are using.
    waits: bool,
}

#[derive(Debug, Default)]
struct ReaderState {
    idle: Vec<IdleReader>,
    /// For each reader in use, its position after this use.
    busy: Vec<ReaderPosition>,
    /// The positions at which waiting threads want to read.
    waiting: Vec<ReaderPosition>,
}

/// A shard, and the number of the next sample to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReaderPosition {
    shard: u32,
    sample: u64,
}

impl ReaderPosition {
    /// Whether a reader at this position can move forward to `wanted`.
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
    /// The number of the nearest idle reader at or before a position.
    fn nearest(&self, wanted: ReaderPosition) -> Option<usize> {
        let reaching = self.idle.iter().enumerate().filter(|(_, idle)| idle.at.reaches(wanted));
        reaching.max_by_key(|(_, idle)| idle.at.sample).map(|(number, _)| number)
    }

    /// Whether a thread should wait before it reads at `wanted`. There are two reasons to wait: a reader in
    /// use will end nearer to `wanted` than any idle reader is, or another thread waits to read samples
    /// between the nearest idle reader and `wanted`.
    fn is_worth_waiting(&self, wanted: ReaderPosition) -> bool {
        let idle = self.nearest(wanted).and_then(|number| self.idle.get(number)).map(|idle| idle.at.sample);
        let ends_nearer =
            |end: &ReaderPosition| end.reaches(wanted) && idle.is_none_or(|idle| idle < end.sample);
        let is_between = |waiting: &ReaderPosition| {
            *waiting != wanted && waiting.reaches(wanted) && idle.is_none_or(|idle| idle <= waiting.sample)
        };
        self.busy.iter().any(ends_nearer) || self.waiting.iter().any(is_between)
    }
}

/// A thread's use of a reader. Dropping this value ends the use.
#[derive(Debug)]
pub(crate) struct ReaderUse<'a> {
    readers: &'a OpenReaders,
    /// The reader's position after the use.
    end: ReaderPosition,
    /// The reader, if it is kept for another use.
    samples: Option<Read<Body>>,
}

impl OpenReaders {
    pub(crate) fn new(waits: bool) -> Self {
        OpenReaders { state: Mutex::default(), freed: Condvar::new(), waits }
    }

    /// Begins to read the samples `first..end` of a shard. Returns the open reader to continue with; `None`
    /// if the caller must open a reader.
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
    /// Ends the use, and keeps the reader open for another output shard. The reader must be at the position
    /// `end`.
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
            if state.idle.len() >= MAX_IDLE {
                // Shards are read in order, so the reader of the first shard is the least likely to be used
                // again.
                let shards = state.idle.iter().map(|idle| idle.at.shard).enumerate();
                if let Some((number, _)) = shards.min_by_key(|(_, shard)| *shard) {
                    state.idle.swap_remove(number);
                }
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

    /// Takes a reader for these samples and gives it back. Returns whether it was an idle reader.
    fn continues(readers: &OpenReaders, shard: u32, first: u64, end: u64) -> bool {
        let (samples, reader_use) = readers.begin(shard, first, end);
        let is_open = samples.is_some();
        reader_use.keep(samples.unwrap_or_else(|| reader("a.tar.gz")));
        is_open
    }

    #[test]
    fn readers_move_only_forward_and_the_nearest_one_is_used() {
        let readers = OpenReaders::new(true);
        assert!(!continues(&readers, 0, 0, 10));
        assert!(continues(&readers, 0, 10, 20) && continues(&readers, 0, 25, 30));
        assert!(!continues(&readers, 0, 20, 25), "the reader is at 30");
        assert!(!continues(&readers, 1, 0, 5));
        assert!(continues(&readers, 0, 30, 31), "the reader at 30 is used, and the one at 25 stays");
        assert!(continues(&readers, 0, 26, 27), "the reader at 25 is used");
        // After a use that fails, the reader is not kept.
        drop(readers.begin(1, 5, 9));
        assert!(!continues(&readers, 1, 9, 10));
    }

    #[test]
    fn at_most_32_idle_readers_are_kept() {
        let readers = OpenReaders::new(false);
        for shard in 0..200 {
            continues(&readers, shard, 0, 1);
        }
        assert_eq!(readers.state.lock().unwrap().idle.len(), MAX_IDLE);
        assert!(continues(&readers, 199, 1, 2) && !continues(&readers, 0, 1, 2));
    }

    #[test]
    fn waiting_threads_share_one_reader_in_the_order_of_the_samples() {
        for _ in 0..50 {
            let readers = Arc::new(OpenReaders::new(true));
            let (_, first) = readers.begin(0, 0, 1);
            let threads: Vec<_> = (1..8_u64)
                .map(|number| {
                    let readers = Arc::clone(&readers);
                    thread::spawn(move || continues(&readers, 0, number, number + 1))
                })
                .collect();
            // All of these threads wait for the first reader.
            while readers.state.lock().unwrap().waiting.len() < threads.len() {
                thread::yield_now();
            }
            first.keep(reader("a.tar.gz"));
            assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
        }
    }
}
