//! The sampler: one thread for all runs of the process. At regular intervals, it measures what the threads of
//! each run do, tunes the run, and warns of long waits.

use crate::panic::catch;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// The time between two measurements.
const INTERVAL: Duration = Duration::from_millis(10);

pub(super) trait Sampled: Send + Sync {
    fn has_ended(&self) -> bool;

    fn sample(self: Arc<Self>);
}

struct ActivitySampler {
    runs: Vec<Weak<dyn Sampled>>,
    is_running: bool,
}

static SAMPLER: Mutex<ActivitySampler> = Mutex::new(ActivitySampler { runs: Vec::new(), is_running: false });

fn sampler() -> MutexGuard<'static, ActivitySampler> {
    SAMPLER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the sampler thread measure a run until the run ends. If this thread cannot be started, the run still
/// works, but without tuning and warnings, and its reports have no times.
pub(super) fn watch(run: Arc<dyn Sampled>) {
    let mut sampler = sampler();
    sampler.runs.push(Arc::downgrade(&run));
    if !sampler.is_running {
        let thread = thread::Builder::new().name("shardstream-sampler".into());
        sampler.is_running = thread.spawn(sample_runs).is_ok();
    }
}

fn sample_runs() {
    loop {
        thread::sleep(INTERVAL);
        let runs: Vec<Weak<dyn Sampled>> = {
            let mut sampler = sampler();
            sampler.runs.retain(|run| run.strong_count() > 0);
            if sampler.runs.is_empty() {
                sampler.is_running = false;
                return;
            }
            sampler.runs.clone()
        };
        // The lock is not held here, because the loop calls the caller's code, and may drop the last
        // reference to a run.
        let mut ended = Vec::new();
        for weak in runs {
            // The caller's subscriber, metrics recorder or callback may panic, even while it is dropped
            // together with the run.
            let has_ended = catch(|| match weak.upgrade() {
                Some(run) if run.has_ended() => true,
                Some(run) => {
                    run.sample();
                    false
                }
                None => false,
            });
            if has_ended.unwrap_or_default() {
                ended.push(weak);
            }
        }
        sampler().runs.retain(|run| !ended.iter().any(|ended| ended.ptr_eq(run)));
    }
}
