//! When a request is tried again, and how long before.

use super::{Limits, Meter};
use crate::store::budget::Budget;
use crate::{Error, ErrorKind, Result};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The longest pause before a retry that a store has not asked for.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The longest pause that a store is granted.
const LONGEST_ASKED: Duration = Duration::from_secs(300);

/// An answer that brought so many bytes before it broke was worth its request: tries are counted anew.
const PROGRESS: u64 = 256 << 10;

/// Counts down the tries of one request.
#[derive(Debug)]
pub(super) struct Retries {
    left: u32,
    pause: Duration,
    limits: Limits,
}

impl Retries {
    pub(super) fn new(limits: &Limits) -> Self {
        Retries { left: limits.retries, pause: limits.pause, limits: *limits }
    }

    /// So many bytes have come before the last fault.
    pub(super) fn progress(&mut self, bytes: u64) {
        if bytes >= PROGRESS {
            (self.left, self.pause) = (self.limits.retries, self.limits.pause);
        }
    }

    /// Waits before the next try, or gives the fault back if it is final or the tries are used up.
    pub(super) async fn pause_after(&mut self, fault: Error, meter: &Meter, budget: &Budget) -> Result<()> {
        let asked = match fault.kind() {
            ErrorKind::Io(_) | ErrorKind::Length { .. } => None,
            ErrorKind::Busy { retry_after, .. } => {
                meter.throttled();
                budget.throttled();
                *retry_after
            }
            _ => return Err(fault),
        };
        if self.left == 0 {
            return Err(fault);
        }
        self.left -= 1;
        meter.retried();
        let pause = self.next_pause();
        tokio::time::sleep(asked.map_or(pause, |asked| pause.max(asked.min(LONGEST_ASKED)))).await;
        Ok(())
    }

    /// Twice as long each time, less up to a half of it by chance: requests that failed together are not tried together.
    fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        let chance = RandomState::new().hash_one(0) as f64 / u64::MAX as f64;
        pause.mul_f64(1.0 - chance / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(retries: u32) -> Limits {
        Limits { retries, pause: Duration::from_millis(100), ..Limits::default() }
    }

    #[test]
    fn pauses_grow_up_to_a_bound_and_differ() {
        let mut retries = Retries::new(&limits(5));
        let mut pauses = (0..200).map(|_| retries.next_pause());
        for expected in [100, 200, 400] {
            let pause = pauses.next().unwrap();
            assert!((expected / 2..=expected).contains(&(pause.as_millis() as u64)), "{pause:?}");
        }
        let late: Vec<_> = pauses.skip(20).collect();
        assert!(late.iter().all(|pause| (LONGEST_PAUSE / 2..=LONGEST_PAUSE).contains(pause)));
        assert!(late.windows(2).any(|two| two[0] != two[1]));
    }

    fn after(retries: &mut Retries, fault: ErrorKind) -> (Result<()>, Duration) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let begun = std::time::Instant::now();
        let (meter, budget) = (Meter::default(), Budget::new(1, 1));
        (runtime.block_on(retries.pause_after(fault.into(), &meter, &budget)), begun.elapsed())
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
        assert!(matches!(after(&mut retries, broken()).0.unwrap_err().kind(), ErrorKind::Length { .. }));
    }

    #[test]
    fn a_store_that_asks_for_time_gets_it() {
        let mut retries = Retries::new(&Limits { pause: Duration::from_micros(1), ..limits(2) });
        let busy = ErrorKind::Busy { retry_after: Some(Duration::from_millis(30)), source: "503".into() };
        let (result, time) = after(&mut retries, busy);
        assert!(result.is_ok() && time >= Duration::from_millis(30), "{time:?}");
    }

    #[test]
    fn what_will_not_pass_is_not_tried_again() {
        let mut retries = Retries::new(&limits(9));
        let (result, _) = after(&mut retries, ErrorKind::Denied("403".into()));
        assert!(matches!(result.unwrap_err().kind(), ErrorKind::Denied(_)));
    }
}
