//! The budget that all readers of a process share: connections, and memory for bytes that have been requested
//! or received but not read.

mod idle;
mod queue;
mod read_ahead;
#[cfg(test)]
mod replay;
mod schedule;
#[cfg(test)]
mod tests;
mod tuner;

use crate::memory::{Gauge, MemoryShare};
use crate::telemetry::log;
use async_channel::Sender;
pub use queue::ReadQueue;
pub(super) use queue::{QueuedObject, WaitingReader};
pub use read_ahead::ReadAheadMemory;
pub(crate) use schedule::ObjectRangeSizes;
use schedule::{ObjectId, RangeSchedule, ScheduleLimits};
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tuner::ConcurrencyTuner;

/// Limits the connections and the memory with which objects are read. All stores that have a clone of one
/// budget share its connections and memory.
///
/// All stores of a process share one budget, [`Budget::process`], unless they are given another budget. The
/// number of requests in flight is tuned while reading: it grows as long as more requests increase the
/// throughput, up to the number of connections.
///
/// Readers never wait for each other: a range that a reader waits for is requested even if the budget is used
/// up. Each reader waits for one range at a time. If little memory is free, such a range is shortened to an
/// eighth of the free memory, but to no less than 64 KiB. So at most `bytes`, plus 64 KiB for each reader,
/// have been requested and not read. If a reader reads nothing while other readers read, it keeps the ranges
/// that were requested for it, but no more ranges are requested ahead of it. Ranges that are requested ahead
/// of readers leave an eighth of the memory to readers that begin later.
///
/// `Report::memory` says how much of the budget each loader uses.
///
/// While no reader of this budget waits, a cache may [prefetch](super::CacheBuilder::prefetch). Prefetching
/// has its own connections and memory, which this budget does not count: one eighth as many connections and
/// one eighth as many bytes as this budget.
///
/// A loader with threads reads samples ahead, from files or from the network. A quarter of the memory is
/// reserved for these samples once there is such a loader. In addition, each stream may hold two small chunks
/// of samples (64 KiB plus the last sample each), and each thread may hold one such chunk. Local files that
/// turn out to be slow are read ahead on separate threads, into buffers that the budget does not count: up to
/// 512 KiB for each of up to 64 files. Samples are slices of the buffers into which they were read. A buffer
/// has up to 512 KiB, and stays allocated as long as any sample in it exists. Finished batches, shuffle
/// buffers and the outputs of `map` are not counted: the loader's own options bound them.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
/// use shardstream::store::{Budget, Store};
///
/// // A large machine: more connections, and more memory for bytes in flight.
/// let store = Store::builder().budget(Budget::new(256, 2 << 30)).build()?;
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Clone)]
pub struct Budget(Arc<BudgetInner>);

/// Default maximum number of connections.
const CONNECTIONS: usize = 64;
/// Default amount of memory in bytes.
const BYTES: u64 = 256 << 20;

/// Smallest and largest size of a range in bytes, unless an object sets its own size. Within these bounds,
/// the size is chosen such that the time to the first byte is short compared with the time of the transfer.
const RANGE_SIZES: Range<u64> = 8 << 20..32 << 20;

struct BudgetInner {
    connections: usize,
    bytes: u64,
    /// Number of queues made so far.
    queues: AtomicU64,
    /// Bytes received by all readers.
    received: AtomicU64,
    /// Number of readers that are waiting for bytes.
    waiting: AtomicUsize,
    /// Bytes of samples that loaders have read ahead.
    read_ahead: AtomicU64,
    /// Whether any loader has read samples ahead.
    has_read_ahead: AtomicBool,
    /// Sends a message when readers may have become idle, or stopped being idle.
    changes: watch::Sender<()>,
    /// The budget for fetches while readers are idle.
    prefetch: OnceLock<Budget>,
    state: Mutex<BudgetState>,
}

struct BudgetState {
    schedule: RangeSchedule,
    tuner: ConcurrencyTuner,
    /// For each object, the sender of its grants, and the gauge that counts the memory of these grants.
    recipients: HashMap<ObjectId, (Sender<Grant>, Gauge)>,
    /// Moving average of the time to the first byte; zero before the first response.
    first_byte: Duration,
    range_size: u64,
}

impl Budget {
    /// Makes a budget of `connections` connections and `bytes` bytes of memory. The memory holds bytes that
    /// have been requested but not read, and samples that loaders have read ahead.
    #[must_use]
    pub fn new(connections: usize, bytes: u64) -> Self {
        let state = BudgetState::new(ConcurrencyTuner::new(connections));
        Budget(Arc::new(BudgetInner {
            connections,
            bytes,
            queues: AtomicU64::new(0),
            received: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            read_ahead: AtomicU64::new(0),
            has_read_ahead: AtomicBool::new(false),
            changes: watch::Sender::new(()),
            prefetch: OnceLock::new(),
            state: Mutex::new(state),
        }))
    }

    /// The budget of this process: 64 connections and 256 MiB.
    #[must_use]
    pub fn process() -> Self {
        static PROCESS: OnceLock<Budget> = OnceLock::new();
        PROCESS.get_or_init(|| Budget::new(CONNECTIONS, BYTES)).clone()
    }

    /// Number of bytes in use: bytes that have been requested and not read, and bytes of samples that loaders
    /// have read ahead.
    ///
    /// ```
    /// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
    /// println!("{} MB are held ahead", shardstream::store::Budget::process().in_use() / 1_000_000);
    /// ```
    #[must_use]
    pub fn in_use(&self) -> u64 {
        self.state().schedule.bytes().saturating_add(self.0.read_ahead.load(Relaxed))
    }

    /// The maximum number of connections.
    pub(super) fn connections(&self) -> usize {
        self.0.connections
    }

    pub(super) fn received(&self, bytes: usize) {
        self.0.received.fetch_add(bytes as u64, Relaxed);
    }

    /// Records the time between a request and the first byte of its response.
    pub(super) fn record_first_byte(&self, first_byte: Duration) {
        self.state().record_first_byte(first_byte);
    }

    /// How long to wait for the first response to any request before calling
    /// [`first_response_is_late`](Budget::first_response_is_late); `None` if a response has already arrived.
    pub(super) fn first_response_timeout(&self) -> Option<Duration> {
        self.state().first_byte.is_zero().then_some(tuner::NEAR)
    }

    /// Records that the first response is late, which means that the store is not nearby. Many requests are
    /// then sent at once, without waiting for the first response.
    pub(super) fn first_response_is_late(&self) {
        self.change(|state| state.tuner.record_first_byte(tuner::NEAR));
    }

    /// Records that a response of `bytes` took `time` after its first byte.
    pub(super) fn completed(&self, bytes: u64, time: Duration) {
        self.state().completed(bytes, time);
    }

    pub(super) fn throttled(&self) {
        self.state().tuner.throttled();
    }

    /// The limits for ranges. They exclude the memory that is reserved for samples that loaders read ahead.
    fn limits(&self, state: &BudgetState) -> ScheduleLimits {
        state.limits(self.0.bytes.saturating_sub(self.for_read_ahead()), self.0.connections)
    }

    fn state(&self) -> MutexGuard<'_, BudgetState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, then grants all ranges that may be requested as a result.
    fn change<T>(&self, change: impl FnOnce(&mut BudgetState) -> T) -> T {
        let mut state = self.state();
        let result = change(&mut state);
        let limits = self.limits(&state);
        while let Some((object, range)) = state.schedule.next(limits) {
            let bytes = range.end - range.start;
            let is_short_first = state.schedule.is_short_first(object, &range);
            let connection = ConnectionPermit { budget: Some(self.clone()), is_short_first };
            let recipient = state.recipients.get(&object);
            let share = recipient.map(|(_, owner)| MemoryShare::of(owner, bytes));
            let memory = RangeMemory { budget: Some(self.clone()), object, bytes, share };
            let grant = Grant { range, connection, memory };
            let refused = match recipient {
                Some((grants, _)) => {
                    grants.try_send(grant).err().map(async_channel::TrySendError::into_inner)
                }
                None => Some(grant),
            };
            // The receiver has been dropped: the reader is about to be dropped too, and that removes the
            // object.
            if let Some(Grant { mut connection, mut memory, .. }) = refused {
                // Prevents the `drop` of the connection and of the memory from waiting for the lock that is
                // held here.
                (connection.budget, memory.budget) = (None, None);
                connection.give_back(&mut state.schedule);
                state.schedule.read(object, bytes);
                state.schedule.remove(object);
            }
        }
        let (received, waiting) = (self.0.received.load(Relaxed), self.0.waiting.load(Relaxed) > 0);
        let changed = state.observe(Instant::now(), received, waiting);
        // Released before logging, because a subscriber of the log may be slow.
        drop(state);
        self.note_change();
        if let Some((before, limit)) = changed {
            log!(DEBUG, "the limit on requests in flight changed", limit = limit, before = before);
        }
        result
    }
}

impl BudgetState {
    fn new(tuner: ConcurrencyTuner) -> Self {
        BudgetState {
            schedule: RangeSchedule::default(),
            tuner,
            recipients: HashMap::new(),
            first_byte: Duration::ZERO,
            range_size: RANGE_SIZES.start,
        }
    }

    fn record_first_byte(&mut self, first_byte: Duration) {
        self.first_byte = match self.first_byte {
            Duration::ZERO => first_byte,
            before => (before * 7 + first_byte) / 8,
        };
        self.tuner.record_first_byte(self.first_byte);
    }

    fn completed(&mut self, bytes: u64, time: Duration) {
        if bytes < RANGE_SIZES.start / 2 {
            return;
        }
        // The time to the first byte should be at most an eighth of the time of a request.
        let rate = bytes as f64 / time.as_secs_f64().max(1e-6);
        let wanted = rate * 7.0 * self.first_byte.as_secs_f64();
        let wanted = (wanted as u64).clamp(RANGE_SIZES.start, RANGE_SIZES.end);
        self.range_size = (self.range_size * 7 + wanted) / 8;
    }

    /// Tunes the limit on requests in flight. `received` is the total number of bytes received until `now`,
    /// and `waiting` says whether any reader waits. Returns the old and the new limit, if the limit changed.
    fn observe(&mut self, now: Instant, received: u64, waiting: bool) -> Option<(usize, usize)> {
        if self.schedule.is_ending() {
            self.tuner.discard_round();
            return None;
        }
        let starved = self.schedule.is_limited() && waiting;
        // If every object fits into one response, only short first ranges are in flight. Therefore uses the
        // number of short first ranges if it is larger than the number of other ranges.
        let in_flight = self.schedule.long_connections().max(self.schedule.short_first());
        self.tuner.observe(now, received, starved, self.first_byte, in_flight)
    }

    /// The limits for ranges that together may use `bytes` bytes of memory.
    fn limits(&self, bytes: u64, max_connections: usize) -> ScheduleLimits {
        let connections = self.tuner.limit();
        // Rounded to whole MiB, since sizes that differ by a few bytes would look odd in a server's log.
        let range_size = self.range_size >> 20 << 20;
        // Memory for two ranges per connection: one range is in flight while another is read. More memory
        // would not help.
        let useful_bytes = range_size.saturating_mul(2 * connections as u64);
        ScheduleLimits { connections, max_connections, useful_bytes, bytes, range_size }
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Budget")
            .field("bytes", &self.0.bytes)
            .field("read_ahead", &self.0.read_ahead)
            .field("connections", &state.schedule.connections())
            .field("limit", &state.tuner.limit())
            .finish_non_exhaustive()
    }
}

/// Permission to request a range, with the connection and the memory for it.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) range: Range<u64>,
    pub(super) connection: ConnectionPermit,
    pub(super) memory: RangeMemory,
}

/// One connection that is taken from the budget. Dropping this gives the connection back.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    /// `None` after it has been given back.
    budget: Option<Budget>,
    is_short_first: bool,
}

impl ConnectionPermit {
    fn give_back(&self, schedule: &mut RangeSchedule) {
        if self.is_short_first { schedule.short_first_received() } else { schedule.received() }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if let Some(budget) = self.budget.take() {
            budget.change(|state| self.give_back(&mut state.schedule));
        }
    }
}

/// Memory that is taken from the budget for the bytes of one range. Dropping this gives the memory back.
#[derive(Debug)]
pub(super) struct RangeMemory {
    budget: Option<Budget>,
    object: ObjectId,
    bytes: u64,
    /// Counts these bytes in the gauge of their owner.
    share: Option<MemoryShare>,
}

impl RangeMemory {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives back the memory of `bytes` bytes, which have been read.
    pub(super) fn read(&mut self, bytes: usize) {
        let Some(budget) = &self.budget else { return };
        let bytes = (bytes as u64).min(self.bytes);
        // Grants no new range here: new ranges are granted when this range has been read to its end. With
        // many queues, searching for the next range after each chunk would take long.
        budget.state().schedule.released(self.object, bytes);
        self.set(self.bytes - bytes);
    }

    /// Increases the memory to the size of an ordinary range, but at most to `most` bytes, if there is room
    /// now.
    pub(super) fn grow(&mut self, most: u64) {
        let Some(budget) = &self.budget else { return };
        let mut state = budget.state();
        let limits = budget.limits(&state);
        let more = state.schedule.grow(self.object, self.bytes, most, limits);
        drop(state);
        self.set(self.bytes + more);
    }

    fn set(&mut self, bytes: u64) {
        self.bytes = bytes;
        if let Some(share) = &mut self.share {
            share.set(bytes);
        }
    }
}

impl Drop for RangeMemory {
    fn drop(&mut self) {
        if let Some(budget) = self.budget.take() {
            budget.change(|state| state.schedule.read(self.object, self.bytes));
        }
    }
}
