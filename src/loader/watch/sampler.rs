//! The one thread of the process that looks at the threads of all runs.

use crate::panic::catch;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// How often it looks.
const INTERVAL: Duration = Duration::from_millis(10);

/// What is looked at again and again.
pub(super) trait Sampled: Send + Sync {
    fn has_ended(&self) -> bool;

    fn look(self: Arc<Self>);
}

/// The runs that are looked at, and whether there is a thread that does.
struct Sampler {
    runs: Vec<Weak<dyn Sampled>>,
    is_running: bool,
}

static SAMPLER: Mutex<Sampler> = Mutex::new(Sampler { runs: Vec::new(), is_running: false });

fn sampler() -> MutexGuard<'static, Sampler> {
    SAMPLER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks at a run from now on, until it ends. Without a thread there are no times and no warnings, and
/// everything else works.
pub(super) fn watch(run: Arc<dyn Sampled>) {
    let mut sampler = sampler();
    sampler.runs.push(Arc::downgrade(&run));
    if !sampler.is_running {
        let thread = thread::Builder::new().name("shardstream-sampler".into());
        sampler.is_running = thread.spawn(sample).is_ok();
    }
}

fn sample() {
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
        // Outside the lock: this may be the last that holds a run, and the caller's code may run here.
        let mut ended = Vec::new();
        for weak in runs {
            let Some(run) = weak.upgrade() else { continue };
            if run.has_ended() {
                ended.push(weak);
                continue;
            }
            // Of the caller's subscriber, exporter or call-back, or of what it held.
            drop(catch(|| run.look()));
        }
        sampler().runs.retain(|run| !ended.iter().any(|ended| ended.ptr_eq(run)));
    }
}
