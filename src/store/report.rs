//! What was asked of the places that objects lie in, and what came: counters that are always on.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What has been transferred since a [`Store`](super::Store) was made, or [since](StoreReport::since) an
/// earlier report.
///
/// Local files are not counted: nobody bills them.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct StoreReport {
    /// One report for each bucket, registered prefix, or web server, sorted by name.
    pub sources: Vec<SourceReport>,
}

/// What has been transferred from one place.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct SourceReport {
    /// The bucket, registered prefix, or scheme and host.
    pub source: String,
    /// Requests that were sent for bytes of objects, those that failed included.
    pub requests: u64,
    /// Requests that have been answered, whatever the answer.
    pub answers: u64,
    /// Bytes of objects that were received, those that were of no use included: what a provider bills as
    /// egress.
    pub bytes: u64,
    /// Requests that were tries after a fault.
    pub retries: u64,
    /// Answers that asked to slow down (429, 503).
    pub throttled: u64,
    /// Second requests for a range whose first was late.
    pub hedges: u64,
    /// Bytes that were received for nothing: twice, or before the place that was wanted.
    pub wasted: u64,
    /// Bytes that were read from the cache instead of being asked for.
    pub cached: u64,
    /// How long readers waited for bytes, added up over all readers, those that wait now included.
    pub waited: Duration,
    /// How long at least one request was being answered.
    pub active: Duration,
    /// From a request to the first byte of its answer, on average.
    pub first_byte: Duration,
}

impl SourceReport {
    /// Bytes per second while there was anything to receive.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        match self.active.as_secs_f64() {
            0.0 => 0.0,
            seconds => self.bytes as f64 / seconds,
        }
    }

    fn combine(
        &mut self,
        other: &SourceReport,
        sign: impl Fn(u64, u64) -> u64,
        time: impl Fn(Duration, Duration) -> Duration,
    ) {
        let first_bytes = |report: &SourceReport| {
            report.first_byte.saturating_mul(u32::try_from(report.answers).unwrap_or(u32::MAX))
        };
        let waited = time(first_bytes(self), first_bytes(other));
        for (mine, others) in [
            (&mut self.requests, other.requests),
            (&mut self.answers, other.answers),
            (&mut self.bytes, other.bytes),
            (&mut self.retries, other.retries),
            (&mut self.throttled, other.throttled),
            (&mut self.hedges, other.hedges),
            (&mut self.wasted, other.wasted),
            (&mut self.cached, other.cached),
        ] {
            *mine = sign(*mine, others);
        }
        self.waited = time(self.waited, other.waited);
        self.active = time(self.active, other.active);
        self.first_byte =
            waited.checked_div(u32::try_from(self.answers).unwrap_or(u32::MAX)).unwrap_or_default();
    }
}

impl StoreReport {
    /// What has been transferred since `earlier`, a report of the same store.
    #[must_use]
    pub fn since(mut self, earlier: &StoreReport) -> StoreReport {
        for report in &mut self.sources {
            if let Some(before) = earlier.sources.iter().find(|before| before.source == report.source) {
                report.combine(before, u64::saturating_sub, Duration::saturating_sub);
            }
        }
        self
    }

    /// All places together. `active` is the sum of theirs.
    #[must_use]
    pub fn total(&self) -> SourceReport {
        let mut total = SourceReport { source: "all".into(), ..SourceReport::default() };
        for report in &self.sources {
            total.combine(report, u64::saturating_add, Duration::saturating_add);
        }
        total
    }

    /// The reports of two stores in one.
    #[must_use]
    pub(crate) fn with(mut self, other: StoreReport) -> StoreReport {
        for report in other.sources {
            match self.sources.iter_mut().find(|mine| mine.source == report.source) {
                Some(mine) => mine.combine(&report, u64::saturating_add, Duration::saturating_add),
                None => self.sources.push(report),
            }
        }
        self.sources.sort_by(|a, b| a.source.cmp(&b.source));
        self
    }
}

/// One line for each place, for a log.
impl fmt::Display for StoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, report) in self.sources.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            report.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for SourceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = |bytes: f64| bytes / 1e6;
        write!(
            f,
            "{}: {:.1} MB in {} requests, {:.1} MB/s, first byte after {:.1} ms, waited {:.2} s",
            self.source,
            megabytes(self.bytes as f64),
            self.requests,
            megabytes(self.throughput()),
            self.first_byte.as_secs_f64() * 1e3,
            self.waited.as_secs_f64(),
        )?;
        for (count, what) in
            [(self.retries, "retries"), (self.throttled, "throttled"), (self.hedges, "hedges")]
        {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        for (bytes, what) in [(self.wasted, "received for nothing"), (self.cached, "from the cache")] {
            if bytes > 0 {
                write!(f, ", {:.1} MB {what}", megabytes(bytes as f64))?;
            }
        }
        Ok(())
    }
}

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

/// Answers after which it is known how long they take.
const KNOWN: u32 = 16;
/// An answer is not late before this, however fast others were.
const NEVER_LATE: Duration = Duration::from_millis(20);

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Meter {
    /// A request is sent. It is being answered until what this gives is dropped.
    pub(super) fn request(self: &Arc<Self>) -> Answering {
        self.requests.fetch_add(1, Relaxed);
        let mut active = self.active();
        active.requests += 1;
        active.since.get_or_insert_with(Instant::now);
        Answering { meter: Arc::clone(self), sent: Instant::now() }
    }

    pub(super) fn received(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn wasted(&self, bytes: u64) {
        self.wasted.fetch_add(bytes, Relaxed);
    }

    pub(super) fn cached(&self, bytes: usize) {
        self.cached.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn retried(&self) {
        self.retries.fetch_add(1, Relaxed);
    }

    pub(super) fn throttled(&self) {
        self.throttled.fetch_add(1, Relaxed);
    }

    /// How long after a request its answer is late: later than nearly all others. `None` before that is
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
}

impl Answering {
    /// The first byte of the answer is there; gives how long it took.
    pub(super) fn answered(&self) -> Duration {
        let time = self.sent.elapsed();
        self.meter.reached();
        self.meter.answers.fetch_add(1, Relaxed);
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

    fn report(meter: &Meter) -> StoreReport {
        StoreReport { sources: vec![meter.report("gs://bucket".into())] }
    }

    #[test]
    fn a_later_report_less_an_earlier_one_is_what_came_between() {
        let meter = Arc::new(Meter::default());
        let first = meter.request();
        first.answered();
        meter.received(1000);
        let earlier = report(&meter);
        let second = meter.request();
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
    fn a_line_says_what_there_is_to_say() {
        let quiet = SourceReport { source: "mem:".into(), ..SourceReport::default() };
        assert_eq!(
            quiet.to_string(),
            "mem:: 0.0 MB in 0 requests, 0.0 MB/s, first byte after 0.0 ms, waited 0.00 s"
        );
        let loud = SourceReport { retries: 2, cached: 3_000_000, ..quiet };
        assert!(loud.to_string().ends_with(", 2 retries, 3.0 MB from the cache"));
    }

    #[test]
    fn only_a_share_is_asked_for_twice() {
        let meter = Arc::new(Meter::default());
        assert_eq!(meter.late(), None);
        for _ in 0..KNOWN {
            meter.request().answered();
        }
        assert_eq!(meter.late(), Some(NEVER_LATE));
        meter.received(1000);
        assert!(!meter.try_hedge(51, 0.05));
        assert!(meter.try_hedge(30, 0.05) && meter.try_hedge(20, 0.05) && !meter.try_hedge(1, 0.05));
        assert_eq!(report(&meter).total().hedges, 2);
    }

    #[test]
    fn two_stores_of_one_bucket_are_one_place() {
        let of = |source: &str, bytes| StoreReport {
            sources: vec![SourceReport { source: source.into(), bytes, ..SourceReport::default() }],
        };
        let both = of("b", 1).with(of("a", 2)).with(of("b", 4));
        assert_eq!(both.sources.iter().map(|report| report.bytes).collect::<Vec<_>>(), [2, 5]);
        assert_eq!(both.total().bytes, 7);
    }
}
