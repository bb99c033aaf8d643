//! Whether and when a failed request is retried, and for how long.

use super::limits::FetchLimits;
use crate::budget::Budget;
use crate::host_pause::HostPause;
use crate::meter::SourceMeter;
use crate::telemetry::log;
use crate::{Error, ErrorKind, Result, SecretUrl};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Maximum pause before a retry, unless the store asks for a longer one.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(30);

/// How long a request is retried if connections are refused, or if the host has no address or cannot be
/// reached. Applies only to a server that has never sent a response.
pub(crate) const REFUSED: Duration = Duration::from_secs(2);
/// How long a request is retried if its tries time out. Applies only to a server that has never sent a
/// response.
const SILENT: Duration = Duration::from_secs(60);

/// Number of bytes that count as progress: after a response with at least this many bytes, tries and time are
/// counted from 0 again.
const MIN_PROGRESS: u64 = 256 << 10;

/// A complete response with fewer bytes than requested counts as a failed try, unless it has at least this
/// many bytes.
const MIN_SHORT: u64 = 16 << 10;
/// A complete response with at least the fraction `1 / MIN_SHORT_DIVISOR` of the requested bytes does not
/// count as a failed try, even if it is shorter than [`MIN_SHORT`].
const MIN_SHORT_DIVISOR: u64 = 16;

/// The object and the range of a request, and the counters of its source.
#[derive(Debug)]
pub(super) struct RequestContext<'a> {
    pub(super) url: &'a SecretUrl,
    pub(super) range: Option<Range<u64>>,
    pub(super) meter: &'a SourceMeter,
    pub(super) budget: &'a Budget,
}

/// Counts the tries of one request since the last progress (see [`MIN_PROGRESS`]). If a response breaks off,
/// the request for the remaining bytes of the range is the next try.
#[derive(Debug)]
pub(crate) struct Retries {
    tries: u32,
    /// Start of the first try, moved forward by the time in which responses waited for the reader.
    since: Instant,
    pause: Duration,
    limits: FetchLimits,
}

impl Retries {
    pub(crate) fn new(limits: &FetchLimits) -> Self {
        Retries { tries: 0, since: Instant::now(), pause: limits.pause, limits: *limits }
    }

    /// The number of the next try, from 1.
    pub(super) fn attempt(&self) -> u32 {
        self.tries + 1
    }

    /// Subtracts `time`, in which a response waited for its reader, from the time of all tries.
    pub(super) fn exclude(&mut self, time: Duration) {
        self.since += time;
    }

    /// Counts tries and time from 0 again, if at least [`MIN_PROGRESS`] bytes were received before the last
    /// fault.
    pub(super) fn progress(&mut self, bytes: u64) {
        if bytes >= MIN_PROGRESS {
            *self = Retries::new(&self.limits);
        }
    }

    /// Records a complete response with fewer bytes than requested. Such a response is not a fault, but a
    /// very short one counts as a failed try.
    pub(super) fn short_response(&mut self, bytes: u64, requested: u64) -> Result<()> {
        if bytes >= MIN_SHORT.min(requested.div_ceil(MIN_SHORT_DIVISOR)) {
            *self = Retries::new(&self.limits);
            return Ok(());
        }
        self.tries += 1;
        if self.tries <= self.limits.retries {
            return Ok(());
        }
        let why = format!("the server sent {bytes} of {requested} requested bytes");
        Err(self.report_tries(ErrorKind::Store(why.into()).into()))
    }

    /// Waits before the next try.
    ///
    /// # Errors
    ///
    /// The fault itself if a retry would not help, or after too many tries or too much time.
    pub(super) async fn pause_after(
        &mut self,
        fault: Error,
        RequestContext { url, range, meter, budget }: RequestContext<'_>,
    ) -> Result<()> {
        if let ErrorKind::Busy { .. } = fault.kind() {
            meter.throttled();
            budget.throttled();
        }
        let limit = is_transient(&fault).then(|| self.limit(&fault, meter));
        let why = format!("{fault:#}");
        let pause = self.next_pause(fault, limit, meter.host_pause())?;
        meter.retried();
        log!(
            INFO,
            "a request failed and is retried",
            url = url,
            start = range.as_ref().map_or(0, |range| range.start),
            tries = self.tries,
            pause_ms = pause.as_millis(),
            error = why
        );
        let _pausing = meter.pause(url, range, self.tries, why);
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// If the server has asked for a pause of all requests, waits for the end of the pause before the first
    /// try.
    pub(super) async fn wait_for_host(
        &mut self,
        RequestContext { url, range, meter, .. }: RequestContext<'_>,
    ) {
        let left = meter.host_pause().left().min(self.limits.retry_timeout);
        if left.is_zero() {
            return;
        }
        let pause = left + random_delay(left);
        let why = "the server asked for a pause of all requests".to_owned();
        let _pausing = meter.pause(url, range, self.tries, why);
        tokio::time::sleep(pause).await;
        self.exclude(pause);
    }

    /// The pause before the next try. `limit` is the time limit for all tries; `None` if a retry would not
    /// help. `host` has the pause that the server requested for all requests to this server.
    ///
    /// # Errors
    ///
    /// The fault itself if a retry would not help, or after too many tries or too much time.
    pub(crate) fn next_pause(
        &mut self,
        fault: Error,
        limit: Option<Duration>,
        host: &HostPause,
    ) -> Result<Duration> {
        self.tries += 1;
        if let ErrorKind::Busy { retry_after: Some(time), .. } = fault.kind() {
            host.extend((*time).min(self.limits.retry_timeout));
        }
        let requested_pause = host.left();
        let pause = limit.and_then(|limit| self.pause_within(requested_pause, self.since.elapsed(), limit));
        pause.ok_or_else(|| self.report_tries(fault))
    }

    /// The time limit for all tries after this fault.
    fn limit(&self, fault: &Error, meter: &SourceMeter) -> Duration {
        match unreachable_limit(fault) {
            Some(limit) if !meter.is_reached() => self.limits.retry_timeout.min(limit),
            Some(_) => self.limits.retry_timeout,
            // A server that responds with an error can be reached.
            None => {
                meter.set_reached();
                self.limits.retry_timeout
            }
        }
    }

    /// The pause before the next try; `None` if `limit` has elapsed since the first try, or there were too
    /// many tries. The pause is at least `requested_pause`, but if it would end after the limit, it ends with
    /// the limit, and the last try is made then.
    fn pause_within(
        &mut self,
        requested_pause: Duration,
        elapsed: Duration,
        limit: Duration,
    ) -> Option<Duration> {
        let left = limit.checked_sub(elapsed).filter(|left| !left.is_zero())?;
        (self.tries <= self.limits.retries).then(|| {
            let pause = self.backoff();
            pause.max(requested_pause + random_delay(requested_pause)).min(left)
        })
    }

    /// Exponential backoff. A random part, up to half of the pause, is subtracted, so that requests that
    /// failed together are not retried together.
    fn backoff(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = pause.saturating_mul(2).min(MAX_PAUSE);
        pause.mul_f64(1.0 - random_fraction() / 2.0)
    }

    fn report_tries(&self, fault: Error) -> Error {
        match self.tries {
            // After one try there are no retries to report.
            0 | 1 => fault,
            tries => fault.after(tries, self.since.elapsed()),
        }
    }
}

/// A random delay after a pause that the server asked for, up to a quarter of the pause, so that requests
/// that wait for the same time are not sent together.
fn random_delay(requested_pause: Duration) -> Duration {
    requested_pause.mul_f64(random_fraction() / 4.0).min(MAX_PAUSE)
}

/// A random number between 0 and 1.
fn random_fraction() -> f64 {
    RandomState::new().hash_one(0) as f64 / u64::MAX as f64
}

/// Whether a retry may succeed after this fault.
pub(crate) fn is_transient(fault: &Error) -> bool {
    matches!(fault.kind(), ErrorKind::Io(_) | ErrorKind::Length { .. } | ErrorKind::Busy { .. })
}

/// How long to retry a server that has never sent a response, if the fault means that the server cannot be
/// reached; `None` for other faults.
pub(crate) fn unreachable_limit(fault: &Error) -> Option<Duration> {
    let ErrorKind::Io(error) = fault.kind() else { return None };
    match error.kind() {
        io::ErrorKind::ConnectionRefused
        | io::ErrorKind::NotFound
        | io::ErrorKind::AddrNotAvailable
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable => Some(REFUSED),
        io::ErrorKind::TimedOut => Some(SILENT),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn limits(retries: u32) -> FetchLimits {
        FetchLimits { retries, pause: Duration::from_millis(100), ..FetchLimits::default() }
    }

    /// Simulates a request of which each try fails after `takes`. Returns the number of tries and the total
    /// time.
    fn tries(
        limits: FetchLimits,
        limit: Duration,
        retry_after: Option<Duration>,
        takes: Duration,
    ) -> (u32, Duration) {
        let (mut retries, mut elapsed) = (Retries::new(&limits), Duration::ZERO);
        loop {
            elapsed += takes;
            retries.tries += 1;
            match retries.pause_within(retry_after.unwrap_or_default(), elapsed, limit) {
                Some(pause) => elapsed += pause,
                None => return (retries.tries, elapsed),
            }
        }
    }

    #[test]
    fn pauses_grow_up_to_a_bound_and_differ() {
        let mut retries = Retries::new(&limits(5));
        let mut pauses = (0..200).map(|_| retries.backoff());
        for expected in [100, 200, 400] {
            let pause = pauses.next().unwrap();
            assert!((expected / 2..=expected).contains(&(pause.as_millis() as u64)), "{pause:?}");
        }
        let late: Vec<_> = pauses.skip(20).collect();
        assert!(late.iter().all(|pause| (MAX_PAUSE / 2..=MAX_PAUSE).contains(pause)));
        assert!(late.windows(2).any(|two| two[0] != two[1]));
    }

    #[test]
    fn requests_are_retried_for_more_than_a_minute_by_default() {
        let limits = FetchLimits::default();
        for _ in 0..100 {
            let (_, elapsed) = tries(limits, limits.retry_timeout, None, Duration::ZERO);
            assert!((Duration::from_secs(60)..=limits.retry_timeout).contains(&elapsed), "{elapsed:?}");
        }
        // With a silent server, each try lasts as long as the stall limit.
        let (number, elapsed) = tries(limits, limits.retry_timeout, None, limits.stall);
        assert!(elapsed <= limits.retry_timeout + limits.stall && number > 5, "{number} {elapsed:?}");
    }

    #[test]
    fn requested_pauses_are_limited() {
        let limit = Duration::from_secs(100);
        let day = Some(Duration::from_secs(86_400));
        assert_eq!(tries(limits(9), limit, day, Duration::ZERO), (2, limit));
        let little = Some(Duration::from_secs(30));
        let (number, elapsed) = tries(limits(99), limit, little, Duration::ZERO);
        assert!((4..=5).contains(&number) && elapsed == limit, "{number} {elapsed:?}");
        let ends = (0..20).map(|_| tries(limits(1), limit, little, Duration::ZERO)).collect::<Vec<_>>();
        let pauses = Duration::from_secs(30)..=Duration::from_millis(37_500);
        assert!(ends.iter().all(|(number, pause)| *number == 2 && pauses.contains(pause)), "{ends:?}");
        assert!(ends.windows(2).any(|two| two[0] != two[1]), "they end together: {ends:?}");
    }

    #[test]
    fn a_requested_pause_applies_to_all_requests() {
        let (host, limit) = (HostPause::default(), Some(Duration::from_secs(100)));
        let (mut one, mut other) = (Retries::new(&limits(9)), Retries::new(&limits(9)));
        let requested_pause = Duration::from_secs(30);
        let busy = |time| ErrorKind::Busy { retry_after: Some(time), source: "503".into() }.into();
        assert!(one.next_pause(busy(requested_pause), limit, &host).unwrap() >= Duration::from_secs(29));
        // Neither another fault nor a shorter requested pause shortens the pause.
        for fault in [broken().into(), busy(Duration::from_secs(1))] {
            assert!(other.next_pause(fault, limit, &host).unwrap() >= Duration::from_secs(29));
        }
        assert!(host.left() > Duration::from_secs(29) && host.left() <= requested_pause);
    }

    #[test]
    fn the_first_try_waits_for_a_requested_pause() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (meter, budget) = (Arc::new(SourceMeter::default()), Budget::new(1, 1));
        meter.host_pause().extend(Duration::from_millis(30));
        let url = SecretUrl::from("https://host/a.tar");
        let context = || RequestContext { url: &url, range: None, meter: &meter, budget: &budget };
        let (mut retries, start) = (Retries::new(&limits(9)), Instant::now());
        runtime.block_on(retries.wait_for_host(context()));
        assert!(start.elapsed() >= Duration::from_millis(30) && meter.host_pause().left().is_zero());
        assert_eq!(retries.tries, 0);
    }

    #[test]
    fn a_server_that_never_responded_is_given_up_sooner() {
        let (limits, fault) =
            (FetchLimits::default(), |kind: io::ErrorKind| Error::from(io::Error::from(kind)));
        let (refused, silent) = (fault(io::ErrorKind::ConnectionRefused), fault(io::ErrorKind::TimedOut));
        for contact in [ErrorKind::Io(io::Error::other("500")), broken()] {
            let (meter, retries) = (SourceMeter::default(), Retries::new(&limits));
            assert_eq!(retries.limit(&refused, &meter), REFUSED);
            assert_eq!(retries.limit(&silent, &meter), SILENT);
            for fault in [&contact.into(), &refused, &silent] {
                assert_eq!(retries.limit(fault, &meter), limits.retry_timeout);
            }
        }
        let (number, elapsed) = tries(limits, REFUSED, None, Duration::ZERO);
        assert!(number > 3 && elapsed == REFUSED, "{number} {elapsed:?}");
        let (number, elapsed) = tries(limits, SILENT, None, limits.stall);
        assert!(number == 3 && elapsed < SILENT + limits.stall, "{number} {elapsed:?}");
    }

    #[test]
    fn very_short_responses_are_given_up() {
        let mut retries = Retries::new(&limits(2));
        for (bytes, requested) in [(MIN_SHORT, u64::MAX), (1, 16), (63, 1000)] {
            for _ in 0..9 {
                retries.short_response(bytes, requested).unwrap();
            }
        }
        for (bytes, requested) in [(1, 17), (0, 1)] {
            retries.short_response(bytes, requested).unwrap();
        }
        let error = retries.short_response(62, 1000).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Store(_)), "{error:?}");
        assert_eq!(error.attempts().map(|attempts| attempts.tries), Some(3));
    }

    fn after(retries: &mut Retries, fault: ErrorKind) -> (Result<()>, Duration) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let start = Instant::now();
        let (meter, budget) = (SourceMeter::default(), Budget::new(1, 1));
        let url = SecretUrl::from("https://host/a.tar");
        let context = RequestContext { url: &url, range: None, meter: &meter, budget: &budget };
        (runtime.block_on(retries.pause_after(fault.into(), context)), start.elapsed())
    }

    fn broken() -> ErrorKind {
        ErrorKind::Length { expected: 2, received: 1 }
    }

    #[test]
    fn tries_end_unless_there_is_progress() {
        let mut retries = Retries::new(&FetchLimits { pause: Duration::from_micros(1), ..limits(2) });
        for _ in 0..5 {
            after(&mut retries, broken()).0.unwrap();
            after(&mut retries, broken()).0.unwrap();
            retries.progress(MIN_PROGRESS);
        }
        retries.progress(MIN_PROGRESS - 1);
        after(&mut retries, broken()).0.unwrap();
        after(&mut retries, broken()).0.unwrap();
        let error = after(&mut retries, broken()).0.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Length { .. }));
        assert_eq!(error.attempts().map(|attempts| attempts.tries), Some(3));
    }

    #[test]
    fn a_requested_pause_is_kept() {
        let mut retries = Retries::new(&FetchLimits { pause: Duration::from_micros(1), ..limits(2) });
        let busy = ErrorKind::Busy { retry_after: Some(Duration::from_millis(30)), source: "503".into() };
        let (result, time) = after(&mut retries, busy);
        assert!(result.is_ok() && time >= Duration::from_millis(30), "{time:?}");
    }

    #[test]
    fn time_of_the_reader_is_excluded() {
        let limits = FetchLimits { retry_timeout: Duration::from_millis(50), ..limits(9) };
        for excluded in [true, false] {
            let mut retries = Retries::new(&limits);
            let reader_time = Duration::from_millis(60);
            std::thread::sleep(reader_time);
            if excluded {
                retries.exclude(reader_time);
            }
            let pause =
                retries.next_pause(broken().into(), Some(limits.retry_timeout), &HostPause::default());
            assert_eq!(pause.is_ok(), excluded);
        }
    }

    #[test]
    fn a_final_fault_is_not_retried() {
        let mut retries = Retries::new(&limits(9));
        let (result, _) = after(&mut retries, ErrorKind::Denied("403".into()));
        let error = result.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Denied(_)));
        assert_eq!(error.attempts(), None);
    }
}
