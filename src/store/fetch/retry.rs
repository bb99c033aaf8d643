//! When a request is tried again, how long before, and when it is given up.

use super::limits::Limits;
use crate::secret_url::redact_answer;
use crate::store::budget::Budget;
use crate::store::meter::Meter;
use crate::telemetry::log;
use crate::{Error, ErrorKind, Result, SecretUrl};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

/// The longest pause before a retry that a store has not asked for.
pub(in crate::store) const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long a place that has never answered is tried while it refuses connections or has no address.
pub(in crate::store) const REFUSED: Duration = Duration::from_secs(2);
/// How long a place that has never answered is tried while nothing comes from it.
const SILENT: Duration = Duration::from_secs(60);

/// Bytes after which a response that broke was worth its request: tries and time are counted
/// anew.
const PROGRESS: u64 = 256 << 10;

/// A response may be shorter than was asked for if it brings this many bytes, or this part of what was asked
/// for.
const SHORTEST: u64 = 16 << 10;
const SHORTEST_PART: u64 = 16;

/// What a request asked for, and of whom.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) url: &'a SecretUrl,
    pub(super) range: Option<Range<u64>>,
    pub(super) meter: &'a Meter,
    pub(super) budget: &'a Budget,
}

/// Counts the tries of one request, and of the requests for the rest of it, since anything came of them.
#[derive(Debug)]
pub(in crate::store) struct Retries {
    tries: u32,
    /// When the first try began, later by the time in which a reader rested.
    since: Instant,
    pause: Duration,
    limits: Limits,
}

impl Retries {
    pub(in crate::store) fn new(limits: &Limits) -> Self {
        Retries { tries: 0, since: Instant::now(), pause: limits.pause, limits: *limits }
    }

    /// So long has been waited, since the last fault or progress, not for a response but for its reader.
    pub(super) fn rested(&mut self, time: Duration) {
        self.since += time;
    }

    /// Bytes that came before the last fault.
    pub(super) fn progress(&mut self, bytes: u64) {
        if bytes >= PROGRESS {
            *self = Retries::new(&self.limits);
        }
    }

    /// A response came whole that was shorter than asked for. That is no fault, but it must lead somewhere.
    pub(super) fn short_answer(&mut self, bytes: u64, asked: u64) -> Result<()> {
        if bytes >= SHORTEST.min(asked.div_ceil(SHORTEST_PART)) {
            *self = Retries::new(&self.limits);
            return Ok(());
        }
        self.tries += 1;
        if self.tries <= self.limits.retries {
            return Ok(());
        }
        let why = format!("the server answers with {bytes} bytes where {asked} are asked for");
        Err(self.given_up(ErrorKind::Store(why.into()).into()))
    }

    /// Waits before the next try, or gives the fault back if it is final or was tried often or long enough.
    pub(super) async fn pause_after(
        &mut self,
        fault: Error,
        Asked { url, range, meter, budget }: Asked<'_>,
    ) -> Result<()> {
        if let ErrorKind::Busy { .. } = fault.kind() {
            meter.throttled();
            budget.throttled();
        }
        let limit = passes(&fault).then(|| self.limit(&fault, meter));
        let why = redact_answer(&format!("{fault:#}"), &[url.expose_secret()]);
        let pause = self.next(fault, limit)?;
        meter.retried();
        log!(
            INFO,
            "a request failed and is tried again",
            url = url,
            start = range.as_ref().map_or(0, |range| range.start),
            tries = self.tries,
            pause_ms = pause.as_millis(),
            error = why
        );
        let _pausing = meter.pause(url, range, (self.tries, why));
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// The pause before the next try. Gives the fault back if it is final, which is without a limit, or was
    /// tried often or long enough.
    pub(in crate::store) fn next(&mut self, fault: Error, limit: Option<Duration>) -> Result<Duration> {
        self.tries += 1;
        let asked = match fault.kind() {
            ErrorKind::Busy { retry_after, .. } => *retry_after,
            _ => None,
        };
        let pause = limit.and_then(|limit| self.next_pause(asked, self.since.elapsed(), limit));
        pause.ok_or_else(|| self.given_up(fault))
    }

    /// How long to try after such a fault.
    fn limit(&self, fault: &Error, meter: &Meter) -> Duration {
        match unreachable(fault) {
            Some(limit) if !meter.is_reached() => self.limits.retry_timeout.min(limit),
            Some(_) => self.limits.retry_timeout,
            // Whoever says that something is wrong is there.
            None => {
                meter.reached();
                self.limits.retry_timeout
            }
        }
    }

    /// How long to wait before the next try, if there is one so long after the first. A store gets the time
    /// that it asks for; the last try is made at the end of the limit.
    fn next_pause(
        &mut self,
        asked: Option<Duration>,
        elapsed: Duration,
        limit: Duration,
    ) -> Option<Duration> {
        let left = limit.checked_sub(elapsed).filter(|left| !left.is_zero())?;
        (self.tries <= self.limits.retries).then(|| {
            let pause = self.growing_pause();
            asked.map_or(pause, |asked| pause.max(asked)).min(left)
        })
    }

    /// Twice as long each time, less up to a half of it by chance: requests that failed together are not
    /// tried together.
    fn growing_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        let chance = RandomState::new().hash_one(0) as f64 / u64::MAX as f64;
        pause.mul_f64(1.0 - chance / 2.0)
    }

    fn given_up(&self, fault: Error) -> Error {
        match self.tries {
            // What is final at once was not tried for long.
            0 | 1 => fault,
            tries => fault.after(tries, self.since.elapsed()),
        }
    }
}

/// Whether a fault may pass by itself.
pub(in crate::store) fn passes(fault: &Error) -> bool {
    matches!(fault.kind(), ErrorKind::Io(_) | ErrorKind::Length { .. } | ErrorKind::Busy { .. })
}

/// How long to try a place that has never answered, if the fault is that it cannot be reached.
pub(in crate::store) fn unreachable(fault: &Error) -> Option<Duration> {
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

    fn limits(retries: u32) -> Limits {
        Limits { retries, pause: Duration::from_millis(100), ..Limits::default() }
    }

    /// How often a request is tried that takes so long to fail, and when it is given up.
    fn tries(limits: Limits, limit: Duration, asked: Option<Duration>, takes: Duration) -> (u32, Duration) {
        let (mut retries, mut elapsed) = (Retries::new(&limits), Duration::ZERO);
        loop {
            elapsed += takes;
            retries.tries += 1;
            match retries.next_pause(asked, elapsed, limit) {
                Some(pause) => elapsed += pause,
                None => return (retries.tries, elapsed),
            }
        }
    }

    #[test]
    fn pauses_grow_up_to_a_bound_and_differ() {
        let mut retries = Retries::new(&limits(5));
        let mut pauses = (0..200).map(|_| retries.growing_pause());
        for expected in [100, 200, 400] {
            let pause = pauses.next().unwrap();
            assert!((expected / 2..=expected).contains(&(pause.as_millis() as u64)), "{pause:?}");
        }
        let late: Vec<_> = pauses.skip(20).collect();
        assert!(late.iter().all(|pause| (LONGEST_PAUSE / 2..=LONGEST_PAUSE).contains(pause)));
        assert!(late.windows(2).any(|two| two[0] != two[1]));
    }

    #[test]
    fn a_minute_of_failures_ends_nothing_by_default() {
        let limits = Limits::default();
        for _ in 0..100 {
            let (_, given_up) = tries(limits, limits.retry_timeout, None, Duration::ZERO);
            assert!((Duration::from_secs(60)..=limits.retry_timeout).contains(&given_up), "{given_up:?}");
        }
        // Silence takes time of its own.
        let (number, given_up) = tries(limits, limits.retry_timeout, None, limits.stall);
        assert!(given_up <= limits.retry_timeout + limits.stall && number > 5, "{number} {given_up:?}");
    }

    #[test]
    fn the_time_limit_bounds_what_a_store_asks_for() {
        let limit = Duration::from_secs(100);
        let day = Some(Duration::from_secs(86_400));
        assert_eq!(tries(limits(9), limit, day, Duration::ZERO), (2, limit));
        let little = Some(Duration::from_secs(30));
        assert_eq!(tries(limits(99), limit, little, Duration::ZERO), (5, limit));
        assert_eq!(tries(limits(1), limit, little, Duration::ZERO), (2, Duration::from_secs(30)));
    }

    #[test]
    fn a_place_that_never_answered_is_given_up_sooner() {
        let (limits, fault) = (Limits::default(), |kind: io::ErrorKind| Error::from(io::Error::from(kind)));
        let (refused, silent) = (fault(io::ErrorKind::ConnectionRefused), fault(io::ErrorKind::TimedOut));
        for contact in [ErrorKind::Io(io::Error::other("500")), broken()] {
            let (meter, retries) = (Meter::default(), Retries::new(&limits));
            assert_eq!(retries.limit(&refused, &meter), REFUSED);
            assert_eq!(retries.limit(&silent, &meter), SILENT);
            for fault in [&contact.into(), &refused, &silent] {
                assert_eq!(retries.limit(fault, &meter), limits.retry_timeout);
            }
        }
        let (number, given_up) = tries(limits, REFUSED, None, Duration::ZERO);
        assert!(number > 3 && given_up == REFUSED, "{number} {given_up:?}");
        let (number, given_up) = tries(limits, SILENT, None, limits.stall);
        assert!(number == 3 && given_up < SILENT + limits.stall, "{number} {given_up:?}");
    }

    #[test]
    fn short_answers_must_lead_somewhere() {
        let mut retries = Retries::new(&limits(2));
        for (bytes, asked) in [(SHORTEST, u64::MAX), (1, 16), (63, 1000)] {
            for _ in 0..9 {
                retries.short_answer(bytes, asked).unwrap();
            }
        }
        for (bytes, asked) in [(1, 17), (0, 1)] {
            retries.short_answer(bytes, asked).unwrap();
        }
        let error = retries.short_answer(62, 1000).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Store(_)), "{error:?}");
        assert_eq!(error.attempts().map(|attempts| attempts.tries), Some(3));
    }

    fn after(retries: &mut Retries, fault: ErrorKind) -> (Result<()>, Duration) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let begun = Instant::now();
        let (meter, budget) = (Meter::default(), Budget::new(1, 1));
        let url = SecretUrl::from("https://host/a.tar");
        let asked = Asked { url: &url, range: None, meter: &meter, budget: &budget };
        (runtime.block_on(retries.pause_after(fault.into(), asked)), begun.elapsed())
    }

    fn broken() -> ErrorKind {
        ErrorKind::Length { expected: 2, received: 1 }
    }

    #[test]
    fn tries_end_unless_something_comes() {
        let mut retries = Retries::new(&Limits { pause: Duration::from_micros(1), ..limits(2) });
        for _ in 0..5 {
            after(&mut retries, broken()).0.unwrap();
            after(&mut retries, broken()).0.unwrap();
            retries.progress(PROGRESS);
        }
        retries.progress(PROGRESS - 1);
        after(&mut retries, broken()).0.unwrap();
        after(&mut retries, broken()).0.unwrap();
        let error = after(&mut retries, broken()).0.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Length { .. }));
        assert_eq!(error.attempts().map(|attempts| attempts.tries), Some(3));
    }

    #[test]
    fn a_store_that_asks_for_time_gets_it() {
        let mut retries = Retries::new(&Limits { pause: Duration::from_micros(1), ..limits(2) });
        let busy = ErrorKind::Busy { retry_after: Some(Duration::from_millis(30)), source: "503".into() };
        let (result, time) = after(&mut retries, busy);
        assert!(result.is_ok() && time >= Duration::from_millis(30), "{time:?}");
    }

    #[test]
    fn a_reader_that_rests_takes_no_time_of_trying() {
        let limits = Limits { retry_timeout: Duration::from_millis(50), ..limits(9) };
        for rests in [true, false] {
            let mut retries = Retries::new(&limits);
            let rest = Duration::from_millis(60);
            std::thread::sleep(rest);
            if rests {
                retries.rested(rest);
            }
            assert_eq!(retries.next(broken().into(), Some(limits.retry_timeout)).is_ok(), rests);
        }
    }

    #[test]
    fn what_will_not_pass_is_not_tried_again() {
        let mut retries = Retries::new(&limits(9));
        let (result, _) = after(&mut retries, ErrorKind::Denied("403".into()));
        let error = result.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Denied(_)));
        assert_eq!(error.attempts(), None);
    }
}
