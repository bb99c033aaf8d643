//! Stops a training early, after the same step on all ranks.
//!
//! If a rank stopped alone, the other ranks would wait forever in the collective operation of the next step.
//! So the ranks agree on a step. After a request, each rank starts no further step, writes the number of
//! steps that it has started, and reads the numbers of the other ranks. Then each rank continues until it has
//! run the highest of these numbers of steps. A rank that waits in a collective operation does not hang,
//! since the slower ranks reach the same step.

use crate::causes::with_causes;
use crate::exit_code::EXIT_STOPPED;
use crate::rank_notes::{Note, RankNotes};
use crate::removed_at_end;
use shardstream::Topology;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Interval between checks whether another rank has requested to stop.
const REQUEST_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Interval between reads of the other ranks' step counts.
const COUNT_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The time within which the current step must end, if the ranks have no shared URL and so cannot agree on a
/// step.
const UNAGREED_TIMEOUT: Duration = Duration::from_secs(10);
/// When this rank has started this number of steps, it has read the result of at least one step. All ranks
/// together compute each result. So all ranks are running by then, and each rank has deleted its notes (see
/// [`RankNotes`]) of earlier runs.
const MIN_STARTED_FOR_CLEAN_NOTES: u64 = 4;

/// A request to stop, and the step after which the training stops. Clones share one request.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<SharedGate>);

#[derive(Debug, Default)]
struct SharedGate {
    gate: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Gate {
    requested: bool,
    /// Whether there is nothing to save in a checkpoint. A request then ends the process at once.
    idle: bool,
    /// Whether no step may start until `last` is set.
    frozen: bool,
    /// Whether the thread that runs `agree` is still running. The thread waits until any rank is asked to
    /// stop, or until this rank has finished; it then sets `last`.
    agreeing: bool,
    /// Whether `finish` was called, so that this rank starts no further step.
    finished: bool,
    /// Number of steps of training and validation that were started.
    started: u64,
    /// The training stops once this number of steps was started.
    last: Option<u64>,
}

impl Stop {
    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.0.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests that the training stop after the current step. Returns whether a stop was requested before.
    pub fn request(&self) -> bool {
        let mut gate = self.gate();
        if gate.idle {
            end("nothing to save yet", i32::from(EXIT_STOPPED));
        }
        let was_requested = std::mem::replace(&mut gate.requested, true);
        if !gate.agreeing {
            let started = gate.started;
            gate.last.get_or_insert(started);
        }
        drop(gate);
        self.0.changed.notify_all();
        was_requested
    }

    /// Whether a stop was requested.
    pub fn is_requested(&self) -> bool {
        self.gate().requested
    }

    /// Sets whether there is nothing to save in a checkpoint yet. A request then ends the process at once.
    pub fn set_idle(&self, idle: bool) {
        self.gate().idle = idle;
    }

    /// Connects this rank with the other ranks, if there are any, through objects below `url`. Without a URL
    /// each rank stops by itself. `first_step` is the step at which the job starts or resumes, the same on
    /// all ranks.
    pub fn join(&self, topology: Topology, url: Option<String>, first_step: u64) -> std::io::Result<()> {
        if topology.world_size() == 1 {
            return Ok(());
        }
        let stop = self.clone();
        let Some(url) = url else {
            let alone = move || {
                drop(stop.wait(|gate| gate.requested, None));
                thread::sleep(UNAGREED_TIMEOUT);
                // Other ranks may have stopped before this step, which then never ends.
                end("a step has not ended within 10 s of the signal", i32::from(EXIT_STOPPED));
            };
            return thread::Builder::new().name("stop".into()).spawn(alone).map(drop);
        };
        let notes = RankNotes::new(url, topology, first_step);
        notes.clear();
        let mut gate = self.gate();
        gate.agreeing = true;
        gate.last = None;
        drop(gate);
        thread::Builder::new().name("stop".into()).spawn(move || stop.agree(&notes)).map(drop)
    }

    /// Counts the next step of training or validation, and returns whether it may start. Returns `false` if
    /// the training stops before this step. Waits while the ranks agree on the last step.
    pub fn start_step(&self) -> bool {
        let mut gate = self.wait(|gate| gate.last.is_some() || !gate.frozen, None);
        if gate.last.is_some_and(|last| gate.started >= last) {
            return false;
        }
        gate.started += 1;
        if gate.started == MIN_STARTED_FOR_CLEAN_NOTES {
            self.0.changed.notify_all();
        }
        true
    }

    /// Reports to this process and to the other ranks that this rank starts no further step. A slower rank
    /// may still be asked to stop. The ranks then agree on the last step, for which they need the reports of
    /// all ranks.
    pub fn finish(&self) {
        let mut gate = self.gate();
        gate.finished = true;
        self.0.changed.notify_all();
        while gate.agreeing {
            gate = self.0.changed.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wait(&self, until: impl Fn(&Gate) -> bool, timeout: Option<Duration>) -> MutexGuard<'_, Gate> {
        let gate = self.gate();
        let wait = |gate: &mut Gate| !until(gate);
        match timeout {
            None => self.0.changed.wait_while(gate, wait).unwrap_or_else(PoisonError::into_inner),
            Some(time) => {
                self.0.changed.wait_timeout_while(gate, time, wait).unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// Waits until any rank is asked to stop, or until this rank has finished. Then writes this rank's step
    /// count for the other ranks, and sets the last step.
    fn agree(&self, notes: &RankNotes) {
        drop(self.wait(|gate| gate.started >= MIN_STARTED_FOR_CLEAN_NOTES || gate.finished, None));
        loop {
            let gate = self.wait(|gate| gate.requested || gate.finished, Some(REQUEST_POLL_INTERVAL));
            if gate.requested || gate.finished {
                break;
            }
            drop(gate);
            if step_counts(notes).is_ok_and(|ranks| ranks.values().any(|number| number.is_request)) {
                self.gate().requested = true;
            }
        }
        let mut gate = self.gate();
        gate.frozen = true;
        let (started, finished) = (gate.started, gate.finished);
        drop(gate);
        write(notes, StepCount { started, is_request: !finished });
        let last = if finished { started } else { wait_for_agreed_step(notes) };
        let mut gate = self.gate();
        gate.last = Some(last);
        gate.agreeing = false;
        drop(gate);
        self.0.changed.notify_all();
    }
}

/// Ends the process at once, without exit handlers. Exit handlers destroy objects that threads of the plugin
/// still use, which sometimes causes a SIGSEGV.
pub fn end(why: &str, code: i32) -> ! {
    removed_at_end::remove_all();
    let _ = writeln!(std::io::stderr(), "stopped at once: {why}");
    signal_hook::low_level::exit(code)
}

/// The content of a rank's note: the number of steps that the rank has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StepCount {
    started: u64,
    /// Whether the rank wants to stop; otherwise it has finished.
    is_request: bool,
}

impl StepCount {
    /// The word of the note.
    fn word(self) -> &'static str {
        if self.is_request { "stop" } else { "done" }
    }

    fn from_note(note: &Note) -> Option<Self> {
        let is_request = match note.word.as_str() {
            "stop" => true,
            "done" => false,
            _ => return None,
        };
        Some(Self { started: note.steps, is_request })
    }
}

/// The step counts of the ranks that have written a note, by rank.
fn step_counts(notes: &RankNotes) -> shardstream::Result<BTreeMap<usize, StepCount>> {
    Ok(notes.read()?.iter().filter_map(|note| Some((note.rank, StepCount::from_note(note)?))).collect())
}

/// Waits until all ranks have written their step counts, and returns the highest count.
fn wait_for_agreed_step(notes: &RankNotes) -> u64 {
    loop {
        if let Some(step) = agreed_step(notes) {
            return step;
        }
        thread::sleep(COUNT_POLL_INTERVAL);
    }
}

/// The highest step count, if all ranks have written their counts.
fn agreed_step(notes: &RankNotes) -> Option<u64> {
    let counts = step_counts(notes).ok()?;
    if !(0..notes.topology().world_size()).all(|rank| counts.contains_key(&rank)) {
        return None;
    }
    counts.values().map(|count| count.started).max()
}

/// Writes the step count of this rank. Retries after errors, since the other ranks wait for the count; a
/// second signal ends the process.
fn write(notes: &RankNotes, number: StepCount) {
    for attempt in 1.. {
        match notes.write(number.word(), number.started) {
            Ok(()) => return,
            // Most likely the other ranks have finished too, so no rank waits for this count.
            Err(_) if !number.is_request && attempt == 3 => return,
            Err(e) if attempt == 1 => {
                let _ = writeln!(
                    std::io::stderr(),
                    "warning: cannot write this rank's number of steps for the other ranks: {}",
                    with_causes(&e)
                );
            }
            Err(_) => {}
        }
        thread::sleep(COUNT_POLL_INTERVAL * 5);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn a_single_process_stops_after_the_current_step() {
        let stop = Stop::default();
        stop.join(Topology::single(), None, 0).unwrap();
        assert!(stop.start_step() && stop.start_step());
        assert!(!stop.request() && stop.request());
        assert!(!stop.start_step());
        stop.finish();
    }

    /// Runs `steps` steps on each of three ranks. Rank 1 gets a request to stop at its step `requested_at`.
    /// Returns the number of steps of each rank.
    fn run_three_ranks(steps: u64, requested_at: u64) -> Vec<u64> {
        let dir = tempfile::tempdir().unwrap();
        let url = dir.path().join("stop").to_str().unwrap().to_owned();
        let done = [const { AtomicU64::new(0) }; 3];
        thread::scope(|scope| {
            for (rank, done) in done.iter().enumerate() {
                let stop = Stop::default();
                stop.join(Topology::new(rank, 3).unwrap(), Some(url.clone()), 7).unwrap();
                scope.spawn(move || {
                    for step in 1..=steps {
                        if !stop.start_step() {
                            break;
                        }
                        if rank == 1 && step == requested_at {
                            stop.request();
                        }
                        done.store(step, Ordering::SeqCst);
                        thread::sleep(Duration::from_millis(3 * rank as u64 + 2));
                    }
                    stop.finish();
                });
            }
        });
        done.map(AtomicU64::into_inner).to_vec()
    }

    #[test]
    fn notes_of_an_earlier_run_are_not_requests() {
        let dir = tempfile::tempdir().unwrap();
        let url = dir.path().join("stop").to_str().unwrap().to_owned();
        let notes = |first_step| RankNotes::new(url.clone(), Topology::new(1, 3).unwrap(), first_step);
        let number = StepCount { started: 17, is_request: true };
        write(&notes(40), number);
        assert_eq!(step_counts(&notes(40)).unwrap(), BTreeMap::from([(1, number)]));
        assert_eq!(step_counts(&notes(57)).unwrap(), BTreeMap::new());
    }

    #[test]
    fn all_ranks_stop_after_the_same_step_at_the_request_of_one() {
        let done = run_three_ranks(100_000, 50);
        assert!(done[0] >= 50 && done[0] < 100_000, "{done:?}");
        assert_eq!(done, [done[0]; 3]);
    }

    #[test]
    fn a_request_after_another_rank_has_finished_lets_all_ranks_finish() {
        assert_eq!(run_three_ranks(40, 39), [40; 3]);
        assert_eq!(run_three_ranks(40, 41), [40; 3], "no rank gets a request");
    }
}
