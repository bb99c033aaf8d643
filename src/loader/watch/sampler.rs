//! The one thread of the process that looks at the threads of all runs.

use super::run::{Inner, Run};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// How often it looks.
const INTERVAL: Duration = Duration::from_millis(10);

/// The runs that are looked at, and whether there is a thread that does.
struct Sampler {
    runs: Vec<Weak<Inner>>,
    is_running: bool,
}

static SAMPLER: Mutex<Sampler> = Mutex::new(Sampler { runs: Vec::new(), is_running: false });

/// Looks at a run from now on, until it ends. Without a thread there are no times and no warnings, and
/// everything else works.
pub(super) fn watch(run: &Arc<Inner>) {
    let mut sampler = SAMPLER.lock().unwrap_or_else(PoisonError::into_inner);
    sampler.runs.push(Arc::downgrade(run));
    if !sampler.is_running {
        let thread = thread::Builder::new().name("shardstream-sampler".into());
        sampler.is_running = thread.spawn(sample).is_ok();
    }
}

fn sample() {
    loop {
        thread::sleep(INTERVAL);
        let mut runs = Vec::new();
        {
            let mut sampler = SAMPLER.lock().unwrap_or_else(PoisonError::into_inner);
            sampler.runs.retain(|run| match run.upgrade() {
                Some(run) if !run.has_ended() => {
                    runs.push(run);
                    true
                }
                _ => false,
            });
            if runs.is_empty() {
                sampler.is_running = false;
                return;
            }
        }
        for run in runs {
            Run::from(run).look();
        }
    }
}
