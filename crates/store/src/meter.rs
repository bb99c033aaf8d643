//! The counters of one bucket or host.

use super::host_pause::HostPause;
use super::recording::{RecordedRequest, RequestOutcome, RequestRecording};
use super::report::SourceReport;
use super::requests::{RequestEntry, RequestPhase, RequestReport, Requests};
use crate::telemetry::{count, log, observe};
use crate::{Error, ErrorKind, SecretUrl};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The counters of one bucket or host, shared by all its readers.
#[derive(Debug, Default)]
pub(super) struct SourceMeter {
    requests: AtomicU64,
    responses: AtomicU64,
    bytes: AtomicU64,
    retries: AtomicU64,
    throttled: AtomicU64,
    hedges: AtomicU64,
    wasted: AtomicU64,
    cached: AtomicU64,
    prefetched: AtomicU64,
    prefetch_hits: AtomicU64,
    /// Sum of the times to the first byte, in nanoseconds.
    first_bytes: AtomicU64,
    /// Whether the server has ever sent a response.
    is_reached: AtomicBool,
    host_pause: HostPause,
    waits: Mutex<WaitingReaders>,
    active: Mutex<ActiveTime>,
    latency: Mutex<Latency>,
    requests_in_flight: Arc<Requests>,
    objects: Mutex<ObjectWaits>,
    recording: Option<RequestRecording>,
}

/// The number of waiting readers, and the total time that readers have waited up to `at`.
#[derive(Debug, Default)]
struct WaitingReaders {
    readers: u32,
    total: Duration,
    at: Option<Instant>,
}

impl WaitingReaders {
    /// Updates the total time up to now, and returns it.
    fn total(&mut self) -> Duration {
        let now = Instant::now();
        let passed = self.at.replace(now).map_or(Duration::ZERO, |at| now - at);
        self.total += passed * self.readers;
        self.total
    }
}

/// The time in which at least one request was in flight.
#[derive(Debug, Default)]
struct ActiveTime {
    requests: usize,
    since: Option<Instant>,
    total: Duration,
}

/// The smoothed mean and mean deviation (as in RFC 6298) of the time until a response begins, in seconds.
#[derive(Debug, Default)]
struct Latency {
    responses: u32,
    mean: f64,
    deviation: f64,
    /// Number of bytes that were requested a second time.
    hedged: u64,
}

/// The smoothed time for which readers wait per megabyte of an object, in seconds.
#[derive(Debug, Default)]
struct ObjectWaits {
    seen: u32,
    usual: f64,
}

/// Number of objects after which the usual wait counts as known.
const MIN_OBJECTS: u32 = 8;
/// An object is slow if readers wait for it longer than this many times the usual wait, and at least
/// [`SLOW_WAIT`].
const SLOW_FACTOR: f64 = 8.0;
/// Minimum wait for a slow object.
const SLOW_WAIT: Duration = Duration::from_secs(2);

/// If the usual wait is shorter than this many seconds per megabyte, waits are compared with this value
/// instead.
const MIN_PACE: f64 = 0.001;

impl ObjectWaits {
    /// Adds an object of `bytes` for which readers waited. Returns whether it was slow.
    fn is_slow(&mut self, bytes: u64, waited: Duration) -> bool {
        let pace = waited.as_secs_f64() / (bytes.max(1) as f64 / 1e6);
        let is_slow =
            self.seen >= MIN_OBJECTS && waited >= SLOW_WAIT && pace > SLOW_FACTOR * self.usual.max(MIN_PACE);
        self.seen = self.seen.saturating_add(1);
        self.usual = match self.usual {
            _ if self.seen == 1 => pace,
            usual if pace < usual => (usual + pace) / 2.0,
            // Limits the influence of a slow object, which says little about other objects.
            usual => usual + (pace.min(2.0 * usual.max(MIN_PACE)) - usual) / 16.0,
        };
        is_slow
    }
}

/// Number of responses after which the latency counts as known.
const MIN_RESPONSES: u32 = 16;
/// No response counts as late before this time, even if all other responses began much earlier.
const MIN_LATE: Duration = Duration::from_millis(20);

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl SourceMeter {
    /// A meter whose requests are recorded, if there is a recording.
    pub(super) fn new(recording: Option<RequestRecording>) -> Self {
        SourceMeter { recording, ..SourceMeter::default() }
    }

    /// Records that a request is sent. `attempt` is the number of the try, from 1. The request is in flight
    /// until the returned value is dropped.
    pub(super) fn request(
        self: &Arc<Self>,
        url: &SecretUrl,
        range: Option<Range<u64>>,
        attempt: u32,
    ) -> RequestTimer {
        let record = RequestRecord { range: range.clone(), attempt, ..RequestRecord::default() };
        let entry = self.requests_in_flight.begin(url, range, RequestPhase::AwaitsResponse);
        self.requests.fetch_add(1, Relaxed);
        count!("shardstream_requests_total", 1);
        let mut active = self.active();
        active.requests += 1;
        active.since.get_or_insert_with(Instant::now);
        RequestTimer { meter: Arc::clone(self), sent: Instant::now(), entry, record }
    }

    /// Records that a request has failed `tries` times and now pauses. The pause lasts until the returned
    /// entry is dropped.
    pub(super) fn pause(
        &self,
        url: &SecretUrl,
        range: Option<Range<u64>>,
        tries: u32,
        error: String,
    ) -> RequestEntry {
        self.requests_in_flight.begin(url, range, RequestPhase::Pause { tries, error })
    }

    /// Records work other than a request for bytes, until the returned entry is dropped.
    pub(super) fn working(&self, url: &str, phase: RequestPhase) -> RequestEntry {
        self.requests_in_flight.begin(&url.into(), None, phase)
    }

    /// Lists the requests in flight or in a pause, and other work.
    pub(super) fn requests(&self) -> Vec<RequestReport> {
        self.requests_in_flight.report()
    }

    pub(super) fn received(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
        count!("shardstream_received_bytes_total", bytes as u64);
    }

    pub(super) fn wasted(&self, bytes: u64) {
        self.wasted.fetch_add(bytes, Relaxed);
    }

    /// Records that bytes were read from the cache, and whether they had been prefetched.
    pub(super) fn cached(&self, bytes: usize, were_prefetched: bool) {
        self.cached.fetch_add(bytes as u64, Relaxed);
        count!("shardstream_cached_bytes_total", bytes as u64);
        if were_prefetched {
            self.prefetch_hits.fetch_add(bytes as u64, Relaxed);
        }
    }

    pub(super) fn prefetched(&self, bytes: u64) {
        self.prefetched.fetch_add(bytes, Relaxed);
        count!("shardstream_prefetched_bytes_total", bytes);
    }

    pub(super) fn retried(&self) {
        self.retries.fetch_add(1, Relaxed);
        count!("shardstream_retries_total", 1);
    }

    pub(super) fn throttled(&self) {
        self.throttled.fetch_add(1, Relaxed);
        count!("shardstream_throttled_total", 1);
    }

    /// The time after which a response counts as late: nearly all other responses began earlier. `None` until
    /// enough responses are known.
    pub(super) fn late(&self) -> Option<Duration> {
        let latency = self.latency();
        let late = Duration::from_secs_f64(latency.mean + 4.0 * latency.deviation);
        (latency.responses >= MIN_RESPONSES).then(|| late.max(MIN_LATE))
    }

    /// Whether `bytes` may be requested a second time, without exceeding `share`, the allowed fraction of all
    /// bytes. If so, counts them as hedged.
    pub(super) fn try_hedge(&self, bytes: u64, share: f64) -> bool {
        let mut latency = self.latency();
        let hedged = latency.hedged.saturating_add(bytes);
        let may = hedged as f64 <= self.bytes.load(Relaxed) as f64 * share;
        if may {
            latency.hedged = hedged;
            self.hedges.fetch_add(1, Relaxed);
        }
        may
    }

    /// Records that an object has been read, and how long readers waited for it. Logs the object if it was
    /// slow.
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

    /// Records that a reader waits, until the returned value is dropped.
    pub(super) fn wait(self: &Arc<Self>) -> ReaderWait {
        let mut waits = self.waits();
        waits.total();
        waits.readers += 1;
        ReaderWait(Arc::clone(self))
    }

    fn waits(&self) -> MutexGuard<'_, WaitingReaders> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the server has sent a response, with any status.
    pub(super) fn set_reached(&self) {
        self.is_reached.store(true, Relaxed);
    }

    pub(super) fn is_reached(&self) -> bool {
        self.is_reached.load(Relaxed)
    }

    /// The pause that the server has asked for.
    pub(super) fn host_pause(&self) -> &HostPause {
        &self.host_pause
    }

    fn latency(&self) -> MutexGuard<'_, Latency> {
        self.latency.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn active(&self) -> MutexGuard<'_, ActiveTime> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn report(&self, source: String) -> SourceReport {
        let active = self.active();
        let running = active.since.map_or(Duration::ZERO, |since| since.elapsed());
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        let first_byte = of(&self.first_bytes).checked_div(of(&self.responses)).unwrap_or_default();
        SourceReport {
            source,
            requests: of(&self.requests),
            responses: of(&self.responses),
            bytes: of(&self.bytes),
            retries: of(&self.retries),
            throttled: of(&self.throttled),
            hedges: of(&self.hedges),
            wasted: of(&self.wasted),
            cached: of(&self.cached),
            prefetched: of(&self.prefetched),
            prefetch_hits: of(&self.prefetch_hits),
            waited: self.waits().total(),
            active: active.total + running,
            first_byte: Duration::from_nanos(first_byte),
        }
    }
}

/// A request in flight, and the time since it was sent.
#[derive(Debug)]
pub(super) struct RequestTimer {
    meter: Arc<SourceMeter>,
    sent: Instant,
    entry: RequestEntry,
    record: RequestRecord,
}

/// The part of a recorded request that is known so far.
#[derive(Debug, Default)]
struct RequestRecord {
    range: Option<Range<u64>>,
    attempt: u32,
    first_byte: Option<Duration>,
    bytes: u64,
    /// The outcome of the request, and its duration.
    end: Option<(RequestOutcome, Duration)>,
}

impl RequestTimer {
    /// Records that the response has begun. Returns the time since the request was sent.
    pub(super) fn answered(&mut self) -> Duration {
        let time = self.sent.elapsed();
        self.record.first_byte = Some(time);
        self.entry.answered();
        self.meter.set_reached();
        self.meter.responses.fetch_add(1, Relaxed);
        observe!("shardstream_first_byte_seconds", time.as_secs_f64());
        self.meter.first_bytes.fetch_add(nanoseconds(time), Relaxed);
        let (mut latency, seconds) = (self.meter.latency(), time.as_secs_f64());
        if latency.responses == 0 {
            (latency.mean, latency.deviation) = (seconds, seconds / 2.0);
        }
        latency.deviation += ((seconds - latency.mean).abs() - latency.deviation) / 4.0;
        latency.mean += (seconds - latency.mean) / 8.0;
        latency.responses = latency.responses.saturating_add(1);
        time
    }

    pub(super) fn received(&mut self, bytes: usize) {
        self.record.bytes += bytes as u64;
        self.entry.received(bytes);
    }

    pub(super) fn done(&mut self) {
        self.record.end = Some((RequestOutcome::Done, self.sent.elapsed()));
    }

    pub(super) fn failed(&mut self, error: &Error) {
        let outcome = match error.kind() {
            ErrorKind::Busy { .. } => RequestOutcome::Busy,
            _ => RequestOutcome::Failed,
        };
        self.record.end = Some((outcome, self.sent.elapsed()));
    }

    fn take_record(&mut self) -> RecordedRequest {
        let RequestRecord { range, attempt, first_byte, bytes, end } = std::mem::take(&mut self.record);
        let (outcome, duration) = end.unwrap_or((RequestOutcome::Dropped, self.sent.elapsed()));
        RecordedRequest {
            // The recording sets this.
            start: Duration::ZERO,
            offset: range.as_ref().map_or(0, |range| range.start),
            size: range.map(|range| range.end.saturating_sub(range.start)),
            attempt,
            first_byte,
            duration,
            bytes,
            outcome,
        }
    }
}

impl Drop for RequestTimer {
    fn drop(&mut self) {
        if let Some(recording) = self.meter.recording.clone() {
            recording.add(self.sent, self.take_record());
        }
        let mut active = self.meter.active();
        active.requests -= 1;
        if active.requests == 0
            && let Some(since) = active.since.take()
        {
            active.total += since.elapsed();
        }
    }
}

/// A reader that waits for bytes. Dropping this ends the wait.
#[derive(Debug)]
pub(super) struct ReaderWait(Arc<SourceMeter>);

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
    use crate::StoreReport;

    #[test]
    fn an_object_with_a_much_longer_wait_than_others_is_slow() {
        let seconds = Duration::from_secs_f64;
        let mut objects = ObjectWaits::default();
        assert!(!objects.is_slow(1_000_000, seconds(60.0)), "nothing is known of others");
        assert!((0..40).all(|_| !objects.is_slow(1_000_000, seconds(0.1))));
        assert!(objects.is_slow(1_000_000, seconds(3.0)));
        assert!(!objects.is_slow(50_000_000, seconds(3.0)), "it is larger");
        assert!(!objects.is_slow(1000, seconds(0.1)), "the wait is short");
        // If readers wait three seconds for every object, three seconds become the usual wait.
        let slow = (0..100).filter(|_| objects.is_slow(1_000_000, seconds(3.0))).count();
        assert!(slow < 30, "{slow}");
    }

    fn report(meter: &SourceMeter) -> StoreReport {
        StoreReport { sources: vec![meter.report("gs://bucket".into())], ..StoreReport::default() }
    }

    fn request(meter: &Arc<SourceMeter>) -> RequestTimer {
        meter.request(&"gs://bucket/a.tar".into(), None, 1)
    }

    #[test]
    fn since_returns_the_transfers_between_two_reports() {
        let meter = Arc::new(SourceMeter::default());
        let mut first = request(&meter);
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
        let meter = Arc::new(SourceMeter::default());
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
    fn only_the_allowed_fraction_is_requested_twice() {
        let meter = Arc::new(SourceMeter::default());
        assert_eq!(meter.late(), None);
        for _ in 0..MIN_RESPONSES {
            let _ = request(&meter).answered();
        }
        assert_eq!(meter.late(), Some(MIN_LATE));
        meter.received(1000);
        assert!(!meter.try_hedge(51, 0.05));
        assert!(meter.try_hedge(30, 0.05) && meter.try_hedge(20, 0.05) && !meter.try_hedge(1, 0.05));
        assert_eq!(report(&meter).total().hedges, 2);
    }
}
