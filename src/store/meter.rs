//! The counters of one place that objects lie in.

use super::report::SourceReport;
use super::requests::{RequestEntry, RequestPhase, RequestReport, Requests};
use crate::SecretUrl;
use crate::telemetry::{count, log, observe};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The counters of one place, shared by all that reads from it.
#[derive(Debug, Default)]
pub(super) struct Meter {
    requests: AtomicU64,
    answers: AtomicU64,
    bytes: AtomicU64,
    retries: AtomicU64,
    throttled: AtomicU64,
    hedges: AtomicU64,
    wasted: AtomicU64,
    cached: AtomicU64,
    /// In nanoseconds.
    first_bytes: AtomicU64,
    /// Whether the place has ever answered anything.
    reached: AtomicBool,
    waits: Mutex<Waits>,
    active: Mutex<Active>,
    pace: Mutex<Pace>,
    requests_now: Arc<Requests>,
    objects: Mutex<Objects>,
}

/// The readers that wait, and the time that all have waited up to `at`.
#[derive(Debug, Default)]
struct Waits {
    readers: u32,
    total: Duration,
    at: Option<Instant>,
}

impl Waits {
    /// The time that all have waited up to now.
    fn total(&mut self) -> Duration {
        let now = Instant::now();
        let passed = self.at.replace(now).map_or(Duration::ZERO, |at| now - at);
        self.total += passed * self.readers;
        self.total
    }
}

#[derive(Debug, Default)]
struct Active {
    requests: usize,
    since: Option<Instant>,
    total: Duration,
}

/// How long answers take to begin, smoothed, and how far from that they usually are (RFC 6298), in seconds.
#[derive(Debug, Default)]
struct Pace {
    answers: u32,
    mean: f64,
    deviation: f64,
    /// Bytes that were asked for a second time.
    hedged: u64,
}

/// How long objects are waited for while they are read, in seconds for each megabyte, smoothed.
#[derive(Debug, Default)]
struct Objects {
    seen: u32,
    usual: f64,
}

/// Objects after which it is known how long they are waited for.
const KNOWN_OBJECTS: u32 = 8;
/// An object is slow that is waited for this many times as long as usual, and at least this long.
const SLOW: (f64, Duration) = (8.0, Duration::from_secs(2));

/// What is waited for less than this, in seconds for each megabyte, is not waited for.
const LEAST_PACE: f64 = 0.001;

impl Objects {
    /// Whether an object was slow that was waited for so long.
    fn is_slow(&mut self, bytes: u64, waited: Duration) -> bool {
        let pace = waited.as_secs_f64() / (bytes.max(1) as f64 / 1e6);
        let is_slow =
            self.seen >= KNOWN_OBJECTS && waited >= SLOW.1 && pace > SLOW.0 * self.usual.max(LEAST_PACE);
        self.seen = self.seen.saturating_add(1);
        self.usual = match self.usual {
            _ if self.seen == 1 => pace,
            usual if pace < usual => (usual + pace) / 2.0,
            // One that is slow says little of the others.
            usual => usual + (pace.min(2.0 * usual.max(LEAST_PACE)) - usual) / 16.0,
        };
        is_slow
    }
}

/// Answers after which it is known how long they take.
const KNOWN: u32 = 16;
/// A response is not late before this, however fast others were.
const NEVER_LATE: Duration = Duration::from_millis(20);

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Meter {
    /// A request is sent. It is being answered until what this gives is dropped.
    pub(super) fn request(self: &Arc<Self>, url: &SecretUrl, range: Option<Range<u64>>) -> Answering {
        let entry = self.requests_now.begin(url, range, RequestPhase::AwaitsResponse);
        self.requests.fetch_add(1, Relaxed);
        count!("shardstream_requests_total", 1);
        let mut active = self.active();
        active.requests += 1;
        active.since.get_or_insert_with(Instant::now);
        Answering { meter: Arc::clone(self), sent: Instant::now(), entry }
    }

    /// A request failed, and pauses until what this gives is dropped.
    pub(super) fn pause(
        &self,
        url: &SecretUrl,
        range: Option<Range<u64>>,
        (tries, error): (u32, String),
    ) -> RequestEntry {
        self.requests_now.begin(url, range, RequestPhase::Pause { tries, error })
    }

    /// The requests that are under way.
    pub(super) fn requests(&self) -> Vec<RequestReport> {
        self.requests_now.report()
    }

    pub(super) fn received(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
        count!("shardstream_received_bytes_total", bytes as u64);
    }

    pub(super) fn wasted(&self, bytes: u64) {
        self.wasted.fetch_add(bytes, Relaxed);
    }

    pub(super) fn cached(&self, bytes: usize) {
        self.cached.fetch_add(bytes as u64, Relaxed);
        count!("shardstream_cached_bytes_total", bytes as u64);
    }

    pub(super) fn retried(&self) {
        self.retries.fetch_add(1, Relaxed);
        count!("shardstream_retries_total", 1);
    }

    pub(super) fn throttled(&self) {
        self.throttled.fetch_add(1, Relaxed);
        count!("shardstream_throttled_total", 1);
    }

    /// How long after a request its response is late: later than nearly all others. `None` before that is
    /// known.
    pub(super) fn late(&self) -> Option<Duration> {
        let pace = self.pace();
        let late = Duration::from_secs_f64(pace.mean + 4.0 * pace.deviation);
        (pace.answers >= KNOWN).then(|| late.max(NEVER_LATE))
    }

    /// Whether `bytes` may be asked for a second time, when no more than this `share` of all may be. Counts
    /// them if so.
    pub(super) fn try_hedge(&self, bytes: u64, share: f64) -> bool {
        let mut pace = self.pace();
        let hedged = pace.hedged.saturating_add(bytes);
        let may = hedged as f64 <= self.bytes.load(Relaxed) as f64 * share;
        if may {
            pace.hedged = hedged;
            self.hedges.fetch_add(1, Relaxed);
        }
        may
    }

    /// An object has been read, and was waited for so long.
    pub(super) fn was_read(&self, url: &SecretUrl, bytes: u64, waited: Duration) {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let usual = objects.usual;
        let is_slow = objects.is_slow(bytes, waited);
        drop(objects);
        if is_slow {
            log!(
                INFO,
                "an object was slow",
                url = url,
                waited = format_args!("{:.1}", waited.as_secs_f64()),
                usually = format_args!("{:.1}", usual * bytes as f64 / 1e6),
                bytes = bytes
            );
        }
    }

    /// A reader waits until what this gives is dropped.
    pub(super) fn wait(self: &Arc<Self>) -> ReaderWait {
        let mut waits = self.waits();
        waits.total();
        waits.readers += 1;
        ReaderWait(Arc::clone(self))
    }

    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place has answered something, if only that it fails.
    pub(super) fn reached(&self) {
        self.reached.store(true, Relaxed);
    }

    pub(super) fn is_reached(&self) -> bool {
        self.reached.load(Relaxed)
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn active(&self) -> MutexGuard<'_, Active> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn report(&self, source: String) -> SourceReport {
        let active = self.active();
        let running = active.since.map_or(Duration::ZERO, |since| since.elapsed());
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        let first_byte = of(&self.first_bytes).checked_div(of(&self.answers)).unwrap_or_default();
        SourceReport {
            source,
            requests: of(&self.requests),
            answers: of(&self.answers),
            bytes: of(&self.bytes),
            retries: of(&self.retries),
            throttled: of(&self.throttled),
            hedges: of(&self.hedges),
            wasted: of(&self.wasted),
            cached: of(&self.cached),
            waited: self.waits().total(),
            active: active.total + running,
            first_byte: Duration::from_nanos(first_byte),
        }
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Answering {
    meter: Arc<Meter>,
    sent: Instant,
    entry: RequestEntry,
}

impl Answering {
    /// The first byte of the response is there; gives how long it took.
    pub(super) fn answered(&self) -> Duration {
        let time = self.sent.elapsed();
        self.entry.answered();
        self.meter.reached();
        self.meter.answers.fetch_add(1, Relaxed);
        observe!("shardstream_first_byte_seconds", time.as_secs_f64());
        self.meter.first_bytes.fetch_add(nanoseconds(time), Relaxed);
        let (mut pace, seconds) = (self.meter.pace(), time.as_secs_f64());
        if pace.answers == 0 {
            (pace.mean, pace.deviation) = (seconds, seconds / 2.0);
        }
        pace.deviation += ((seconds - pace.mean).abs() - pace.deviation) / 4.0;
        pace.mean += (seconds - pace.mean) / 8.0;
        pace.answers = pace.answers.saturating_add(1);
        time
    }

    /// Bytes of the body have come.
    pub(super) fn received(&self, bytes: usize) {
        self.entry.received(bytes);
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let mut active = self.meter.active();
        active.requests -= 1;
        if active.requests == 0
            && let Some(since) = active.since.take()
        {
            active.total += since.elapsed();
        }
    }
}

/// A reader that waits for bytes.
#[derive(Debug)]
pub(super) struct ReaderWait(Arc<Meter>);

impl Drop for ReaderWait {
    fn drop(&mut self) {
        let mut waits = self.0.waits();
        waits.total();
        waits.readers -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreReport;

    #[test]
    fn an_object_that_is_waited_for_much_longer_than_others_is_slow() {
        let seconds = Duration::from_secs_f64;
        let mut objects = Objects::default();
        assert!(!objects.is_slow(1_000_000, seconds(60.0)), "nothing is known of others");
        assert!((0..40).all(|_| !objects.is_slow(1_000_000, seconds(0.1))));
        assert!(objects.is_slow(1_000_000, seconds(3.0)));
        assert!(!objects.is_slow(50_000_000, seconds(3.0)), "it is larger");
        assert!(!objects.is_slow(1000, seconds(0.1)), "it is nothing to speak of");
        // All are slow now: that is what is usual.
        let slow = (0..100).filter(|_| objects.is_slow(1_000_000, seconds(3.0))).count();
        assert!(slow < 30, "{slow}");
    }

    fn report(meter: &Meter) -> StoreReport {
        StoreReport { sources: vec![meter.report("gs://bucket".into())], ..StoreReport::default() }
    }

    fn request(meter: &Arc<Meter>) -> Answering {
        meter.request(&"gs://bucket/a.tar".into(), None)
    }

    #[test]
    fn a_later_report_less_an_earlier_one_is_what_came_between() {
        let meter = Arc::new(Meter::default());
        let first = request(&meter);
        first.answered();
        meter.received(1000);
        let earlier = report(&meter);
        let second = request(&meter);
        meter.received(500);
        meter.retried();
        drop((first, second));
        let between = report(&meter).since(&earlier).total();
        assert_eq!((between.requests, between.bytes, between.retries), (1, 500, 1));
        let stopped = report(&meter);
        assert_eq!(stopped.total().active, report(&meter).total().active, "nothing is active");
        assert!(stopped.total().throughput() > 0.0);
    }

    #[test]
    fn waits_count_while_they_last() {
        let meter = Arc::new(Meter::default());
        let waited = || report(&meter).total().waited;
        let pause = Duration::from_millis(20);
        assert_eq!(waited(), Duration::ZERO);
        let first = meter.wait();
        std::thread::sleep(pause);
        let alone = waited();
        assert!(alone >= pause, "{alone:?}");
        let second = meter.wait();
        std::thread::sleep(pause);
        let both = waited();
        assert!(both - alone >= 2 * pause, "{both:?}");
        drop((first, second));
        let after = waited();
        assert!(after >= both);
        assert_eq!(waited(), after, "nobody waits");
    }

    #[test]
    fn only_a_share_is_asked_for_twice() {
        let meter = Arc::new(Meter::default());
        assert_eq!(meter.late(), None);
        for _ in 0..KNOWN {
            request(&meter).answered();
        }
        assert_eq!(meter.late(), Some(NEVER_LATE));
        meter.received(1000);
        assert!(!meter.try_hedge(51, 0.05));
        assert!(meter.try_hedge(30, 0.05) && meter.try_hedge(20, 0.05) && !meter.try_hedge(1, 0.05));
        assert_eq!(report(&meter).total().hedges, 2);
    }
}
