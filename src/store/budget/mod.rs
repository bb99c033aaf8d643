//! What all readers of a process share: connections, and memory for bytes that were asked for and not read
//! yet, or read and not consumed.

mod held;
mod schedule;
mod tuner;

use crate::memory::{Gauge, Share};
use crate::telemetry::log;
use async_channel::{Receiver, Sender};
pub(crate) use held::Held;
use schedule::{Bounds, Place, Schedule};
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tuner::Tuner;

/// How many connections and how much memory the reading of objects may take, for all that share this budget.
///
/// All stores of a process share one, [`Budget::process`], unless they are given another. How many of its
/// connections are used is found out while reading: as many as bring more bytes. What a reader is waiting for
/// is asked for even when the budget is used up, one range for each reader, so that readers never wait for
/// each other; and so is one range of each object that a cache fills in. Such a range
/// has the reader's share of the memory, at least 128 KiB, and more for those that read on. A reader that
/// reads nothing while others do keeps what it has, and nothing more is asked for ahead of it.
///
/// [`Report::memory`](crate::loader::Report::memory) says what each loader holds of it.
///
/// Samples that the threads of loaders have read ahead, from files as from a network, take up to a quarter of
/// the memory. Beyond that there are two small chunks of samples for each stream, and one for each thread.
/// Local files that turn out to be slow are read ahead on threads of their own, up to 64 of them by 512 KiB
/// each, which are not counted. Samples are slices of the buffers they were read into, of up to 512 KiB each,
/// which a small chunk keeps too. Batches that are ready, shuffle buffers and what a map makes of samples are
/// not counted: the loader's own options bound them.
///
/// ```
/// use shardstream::store::{Budget, Store};
///
/// // A large machine: more connections, and more memory for what is on its way.
/// let store = Store::builder().budget(Budget::new(256, 2 << 30)).build()?;
/// # drop(store);
/// # Ok::<_, shardstream::Error>(())
/// ```
#[derive(Clone)]
pub struct Budget(Arc<Shared>);

/// Connections that are used at most, unless set.
const CONNECTIONS: usize = 64;
/// Bytes that are asked for ahead of readers at most, unless set.
const BYTES: u64 = 256 << 20;

/// Bytes of the very first request. It ends long before those that are sent while it is being answered, so
/// that its connection has shown by then that it may be used again (`transport/pool.rs`): their connections
/// need not be opened a second time, each of which would be slow at first.
const FIRST_RANGE: u64 = 256 << 10;

/// Bytes per request: what the time until a response begins is small beside, between these two.
const RANGE_SIZES: Range<u64> = 8 << 20..32 << 20;

struct Shared {
    connections: usize,
    bytes: u64,
    lanes: AtomicU64,
    /// Bytes received by all, and readers that wait.
    received: AtomicU64,
    waiting: AtomicUsize,
    /// Bytes of samples that loaders have read ahead.
    held: AtomicU64,
    state: Mutex<State>,
}

struct State {
    schedule: Schedule,
    tuner: Tuner,
    /// Who is told of the ranges of an object, and whose memory they take.
    told: HashMap<Place, (Sender<Grant>, Gauge)>,
    /// How long answers take to begin; zero before the first one.
    first_byte: Duration,
    range_size: u64,
    /// Whether anything has been asked for.
    begun: bool,
}

impl Budget {
    /// A budget of `connections` at a time, and of `bytes` that were asked for and have not been read yet, or
    /// were read ahead by loaders.
    #[must_use]
    pub fn new(connections: usize, bytes: u64) -> Self {
        let state = State {
            schedule: Schedule::default(),
            tuner: Tuner::new(connections),
            told: HashMap::new(),
            first_byte: Duration::ZERO,
            range_size: RANGE_SIZES.start,
            begun: false,
        };
        Budget(Arc::new(Shared {
            connections,
            bytes,
            lanes: AtomicU64::new(0),
            received: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            held: AtomicU64::new(0),
            state: Mutex::new(state),
        }))
    }

    /// The budget of this process: 64 connections and 256 MiB.
    #[must_use]
    pub fn process() -> Self {
        static PROCESS: OnceLock<Budget> = OnceLock::new();
        PROCESS.get_or_init(|| Budget::new(CONNECTIONS, BYTES)).clone()
    }

    /// Bytes that are taken now: those that were asked for and have not been read yet, and those of samples
    /// that loaders have read ahead.
    ///
    /// ```
    /// println!("{} MB are held ahead", shardstream::store::Budget::process().in_use() / 1_000_000);
    /// ```
    #[must_use]
    pub fn in_use(&self) -> u64 {
        self.state().schedule.bytes().saturating_add(self.0.held.load(Relaxed))
    }

    /// The connections that it was made with.
    pub(super) fn connections(&self) -> usize {
        self.0.connections
    }

    /// A lane for objects that are read one after the other, whose memory `owner` counts.
    pub(super) fn lane(&self, owner: &Gauge) -> Lane {
        Lane(Arc::new(LaneInner {
            budget: self.clone(),
            owner: owner.clone(),
            lane: self.0.lanes.fetch_add(1, Relaxed),
            objects: AtomicU64::new(0),
            more: AtomicU64::new(0),
        }))
    }

    pub(super) fn received(&self, bytes: usize) {
        self.0.received.fetch_add(bytes as u64, Relaxed);
    }

    /// A response began after this time, and brought its bytes at a rate that is seen at its end.
    pub(super) fn answered(&self, first_byte: Duration) {
        let mut state = self.state();
        state.first_byte = match state.first_byte {
            Duration::ZERO => first_byte,
            before => (before * 7 + first_byte) / 8,
        };
        let usual = state.first_byte;
        state.tuner.answered(usual);
    }

    /// How long to wait for the first response of all before it is [`late`](Budget::late); none after it.
    pub(super) fn patience(&self) -> Option<Duration> {
        self.state().first_byte.is_zero().then_some(tuner::NEAR)
    }

    /// The first response does not come from nearby: many are asked for at once, without waiting for it.
    pub(super) fn late(&self) {
        self.change(|state| state.tuner.answered(tuner::NEAR));
    }

    /// A response of `bytes` took `time` after its first byte.
    pub(super) fn completed(&self, bytes: u64, time: Duration) {
        if bytes < RANGE_SIZES.start / 2 {
            return;
        }
        let mut state = self.state();
        // Of a request's time, waiting for the response should be an eighth at most.
        let rate = bytes as f64 / time.as_secs_f64().max(1e-6);
        let wanted = rate * 7.0 * state.first_byte.as_secs_f64();
        let wanted = (wanted as u64).clamp(RANGE_SIZES.start, RANGE_SIZES.end);
        state.range_size = (state.range_size * 7 + wanted) / 8;
    }

    /// A store asked to slow down.
    pub(super) fn throttled(&self) {
        self.state().tuner.throttled();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes something, and hands out what may be asked for then.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let result = change(&mut state);
        let bytes = self.0.bytes.saturating_sub(self.0.held.load(Relaxed));
        while let Some((place, range)) = state.next(bytes, self.0.connections) {
            let bytes = range.end - range.start;
            let connection = Connection(Some(self.clone()));
            let told = state.told.get(&place);
            let share = told.map(|(_, owner)| Share::of(owner, bytes));
            let memory = Memory { budget: Some(self.clone()), place, bytes, _share: share };
            let grant = Grant { range, connection, memory };
            let refused = match told {
                Some((told, _)) => told.try_send(grant).err().map(async_channel::TrySendError::into_inner),
                None => Some(grant),
            };
            // Nobody listens any more when a reader is about to go: the schedule is told next.
            if let Some(Grant { mut connection, mut memory, .. }) = refused {
                // They would wait for the lock that is held here.
                (connection.0, memory.budget) = (None, None);
                state.schedule.received();
                state.schedule.read(place, bytes);
                state.schedule.remove(place);
            }
        }
        if state.schedule.ending() {
            state.tuner.rest();
            return result;
        }
        let starved = state.schedule.crowded() && self.0.waiting.load(Relaxed) > 0;
        let (received, first_byte) = (self.0.received.load(Relaxed), state.first_byte);
        let changed = state.tuner.observe(Instant::now(), received, starved, first_byte);
        // Whoever listens may take long.
        drop(state);
        if let Some((before, limit)) = changed {
            log!(DEBUG, "requests in flight at most", limit = limit, before = before);
        }
        result
    }
}

impl State {
    fn next(&mut self, bytes: u64, most_connections: usize) -> Option<(Place, Range<u64>)> {
        let connections = self.tuner.limit();
        // In whole MiB: ranges that differ by a few bytes would only look odd.
        let range_size = if self.begun { self.range_size >> 20 << 20 } else { FIRST_RANGE };
        // While some ranges are read, as many can be on their way: memory beyond that is touched for nothing.
        let useful = range_size.saturating_mul(2 * connections as u64);
        let next = self.schedule.next(Bounds { connections, most_connections, useful, bytes, range_size });
        self.begun |= next.is_some();
        next
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Budget")
            .field("bytes", &self.0.bytes)
            .field("held", &self.0.held)
            .field("connections", &state.schedule.connections())
            .field("limit", &state.tuner.limit())
            .finish_non_exhaustive()
    }
}

/// Objects that one reader reads one after the other: what it reads first is asked for first.
#[derive(Clone)]
pub(crate) struct Lane(Arc<LaneInner>);

struct LaneInner {
    budget: Budget,
    owner: Gauge,
    lane: u64,
    objects: AtomicU64,
    more: AtomicU64,
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lane").field(&self.0.lane).finish()
    }
}

impl Lane {
    /// How many objects come after the next one; [`u64::MAX`] if there is no telling. Where it can be told,
    /// ranges shrink when little is left to ask for, so that the last bytes come over all connections.
    pub(crate) fn expect(&self, more: u64) {
        self.0.more.store(more, Relaxed);
    }

    /// The place of the next object of the lane.
    pub(super) fn next_object(&self) -> ObjectPlace {
        let number = self.0.objects.fetch_add(1, Relaxed);
        let place = Place { lane: self.0.lane, number };
        let LaneInner { budget, owner, more, .. } = &*self.0;
        ObjectPlace { budget: budget.clone(), place, owner: owner.clone(), more: more.load(Relaxed) }
    }
}

/// The place of an object among all that are read.
#[derive(Debug)]
pub(super) struct ObjectPlace {
    pub(super) budget: Budget,
    place: Place,
    owner: Gauge,
    /// How many objects of the lane will follow.
    more: u64,
}

impl ObjectPlace {
    /// Begins to ask for `ahead` of the object, `most` ranges at a time. Each range that may be requested
    /// comes out of what this gives.
    pub(super) fn ask(&self, ahead: Range<u64>, range_size: Option<u64>, most: usize) -> Receiver<Grant> {
        let (sender, grants) = async_channel::unbounded();
        self.budget.change(|state| {
            state.told.insert(self.place, (sender, self.owner.clone()));
            state.schedule.add(self.place, ahead, range_size, most);
            state.schedule.expect(self.place.lane, self.more);
        });
        grants
    }

    /// What is to be asked for from now on.
    pub(super) fn go_on(&self, ahead: Range<u64>, most: usize) {
        self.budget.change(|state| state.schedule.extend(self.place, ahead, most));
    }

    /// The reader waits for more of a range, until what this gives is dropped.
    pub(super) fn wait(&self) -> Waiting {
        self.budget.0.waiting.fetch_add(1, Relaxed);
        Waiting(self.budget.clone())
    }

    /// The reader waits for the next range, which is to be asked for if it was not yet.
    pub(super) fn wait_for_next(&self) -> Waiting {
        let waiting = self.wait();
        self.budget.change(|state| state.schedule.await_next(self.place));
        waiting
    }
}

impl Drop for ObjectPlace {
    fn drop(&mut self) {
        let told = self.budget.change(|state| {
            state.schedule.remove(self.place);
            state.told.remove(&self.place)
        });
        // What nobody has received of it gives back what it holds, which takes the lock again.
        drop(told);
    }
}

/// A reader that waits.
#[derive(Debug)]
pub(super) struct Waiting(Budget);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.waiting.fetch_sub(1, Relaxed);
    }
}

/// A range that may be requested.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) range: Range<u64>,
    pub(super) connection: Connection,
    pub(super) memory: Memory,
}

/// A connection of the budget; `None` when it has been given back.
#[derive(Debug)]
pub(super) struct Connection(Option<Budget>);

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(budget) = self.0.take() {
            budget.change(|state| state.schedule.received());
        }
    }
}

/// Memory of the budget for the bytes of a range, until they have been read.
#[derive(Debug)]
pub(super) struct Memory {
    budget: Option<Budget>,
    place: Place,
    bytes: u64,
    /// As its owner counts it.
    _share: Option<Share>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(budget) = self.budget.take() {
            budget.change(|state| state.schedule.read(self.place, self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(grants: &Receiver<Grant>) -> Vec<Grant> {
        std::iter::from_fn(|| grants.try_recv().ok()).collect()
    }

    #[test]
    fn what_is_given_back_is_given_to_another() {
        let budget = Budget::new(2, 100);
        budget.answered(Duration::from_millis(20));
        let (one, other) =
            (budget.lane(&Gauge::default()).next_object(), budget.lane(&Gauge::default()).next_object());
        let asked = one.ask(0..30, Some(10), usize::MAX);
        let first = ranges(&asked);
        assert_eq!(first.iter().map(|grant| grant.range.clone()).collect::<Vec<_>>(), [0..10, 10..20]);
        let others = other.ask(0..10, Some(10), usize::MAX);
        assert!(ranges(&others).is_empty(), "both connections are in use");
        drop(first);
        assert_eq!((ranges(&others).len(), ranges(&asked).len()), (1, 1));
    }

    #[test]
    fn only_the_very_first_request_is_small() {
        let budget = Budget::new(8, 1 << 30);
        budget.answered(Duration::from_millis(20));
        let asked = budget.lane(&Gauge::default()).next_object().ask(0..1 << 30, None, usize::MAX);
        let lengths = |grants: &[Grant]| -> Vec<_> {
            grants.iter().map(|grant| grant.range.end - grant.range.start).collect()
        };
        assert_eq!(lengths(&ranges(&asked)), [&[FIRST_RANGE][..], &[RANGE_SIZES.start; 7]].concat());
        let asked = budget.lane(&Gauge::default()).next_object().ask(0..1 << 30, None, usize::MAX);
        assert_eq!(lengths(&ranges(&asked)), [RANGE_SIZES.start; 8]);
    }

    #[test]
    fn many_are_asked_for_when_the_first_answer_is_late() {
        let budget = Budget::new(64, 1 << 30);
        let lane = budget.lane(&Gauge::default());
        let objects: Vec<_> = (0..40).map(|_| lane.next_object()).collect();
        let asked: Vec<_> = objects.iter().map(|object| object.ask(0..u64::MAX, None, 1)).collect();
        let sent = || asked.iter().filter(|asked| asked.len() == 1).count();
        assert_eq!(sent(), 1, "it may be nearby");
        assert!(budget.patience().is_some());
        budget.late();
        assert_eq!(sent(), 16);
        budget.answered(Duration::from_millis(20));
        assert!(budget.patience().is_none(), "how long answers take is known");
    }

    #[test]
    fn whoever_goes_leaves_nothing_behind() {
        let budget = Budget::new(8, 100);
        for round in 0..3 {
            let lane = budget.lane(&Gauge::default());
            let object = lane.next_object();
            let asked = object.ask(0..1000, Some(10), usize::MAX);
            let held = asked.try_recv().unwrap();
            match round {
                0 => drop(asked),
                1 => drop(object),
                _ => drop((asked, object)),
            }
            drop(held);
        }
        let state = budget.state();
        assert_eq!((state.schedule.connections(), state.told.len()), (0, 0));
    }

    #[test]
    fn one_that_waits_is_never_kept_waiting() {
        let budget = Budget::new(1, 10);
        let places: Vec<_> = (0..5).map(|_| budget.lane(&Gauge::default()).next_object()).collect();
        let asked: Vec<_> = places.iter().map(|place| place.ask(0..30, Some(10), usize::MAX)).collect();
        for (place, asked) in places.iter().zip(&asked).rev() {
            let _waiting = place.wait_for_next();
            assert!(asked.try_recv().is_ok());
        }
    }
}
