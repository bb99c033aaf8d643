//! Warns when a training hangs. The warning says what the training waits for, and which ranks hold up the
//! job.
//!
//! A rank that hangs blocks all other ranks in a collective operation, and the blocked ranks only know that
//! they wait for their devices. So ranks that have waited too long write notes (`rank_notes.rs`) that say
//! what they wait for. Ranks that wait for something other than the devices, or write no note, hold up the
//! job.

#[cfg(test)]
mod tests;

use crate::data::Split;
use crate::exit_code::EXIT_HUNG;
use crate::rank_notes::{Note, RankNotes};
use crate::stop;
use shardstream::Topology;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum wait for the notes of the other ranks.
const GATHER_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// An activity of the training loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Waiting for a batch.
    Batch,
    /// Starting a step.
    Launch,
    /// Waiting for the result of a step, which all ranks compute together.
    Devices,
    /// Writing a checkpoint, or waiting for the previous checkpoint.
    Checkpoint,
    /// Waiting until the ranks have agreed on the last step.
    Stop,
}

impl Activity {
    const ALL: [Self; 5] = [Self::Batch, Self::Launch, Self::Devices, Self::Checkpoint, Self::Stop];

    /// The word of the note.
    fn word(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Launch => "launch",
            Self::Devices => "devices",
            Self::Checkpoint => "checkpoint",
            Self::Stop => "agreement",
        }
    }
}

/// The text after the words "waits for".
impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Batch => "a batch",
            Self::Launch => "the plugin to start a step",
            Self::Devices => "the devices",
            Self::Checkpoint => "its checkpoint",
            Self::Stop => "the ranks to agree where to stop",
        })
    }
}

/// The settings of a watchdog.
pub struct WatchdogSettings {
    /// The wait after which the first warning comes; `None` for no warnings. The wait doubles before each
    /// further warning.
    pub warn_after: Option<Duration>,
    /// The wait after which the process ends with [`EXIT_HUNG`]; `None` for never.
    pub end_after: Option<Duration>,
    /// Returns what the loader waits for, if known.
    pub batch_wait: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// Prints a line of a warning.
    pub print: Box<dyn Fn(&str) + Send + Sync>,
}

/// Watches a training loop, which reports its activities. The default does nothing. Clones watch the same
/// loop.
#[derive(Clone, Default)]
pub struct Watchdog(Option<Arc<WatchedLoop>>);

struct WatchedLoop {
    settings: WatchdogSettings,
    topology: Topology,
    notes: Option<RankNotes>,
    status: Mutex<LoopStatus>,
    ended: Condvar,
    /// Whether a thread is writing a warning. The thread first reads the notes of the other ranks.
    is_warning: AtomicBool,
}

/// The status of the loop.
#[derive(Debug, Clone, Copy)]
struct LoopStatus {
    epoch: u64,
    split: Split,
    /// Number of steps of training and validation that were started.
    steps: u64,
    /// The current activity; `None` before the first activity.
    activity: Option<Activity>,
    /// The time at which the activity began.
    since: Instant,
    /// Whether the loop has ended.
    ended: bool,
}

impl Watchdog {
    /// Starts to watch. Ranks write notes below `url`; without a URL, the warnings of a rank only describe
    /// that rank. `first_step` is the step at which the job starts or resumes, the same on all ranks.
    pub fn start(
        settings: WatchdogSettings,
        topology: Topology,
        url: Option<String>,
        first_step: u64,
    ) -> std::io::Result<Self> {
        let Some(shortest) = settings.warn_after.into_iter().chain(settings.end_after).min() else {
            return Ok(Self(None));
        };
        let notes = match url {
            Some(url) if topology.world_size() > 1 => Some(RankNotes::new(url, topology, first_step)),
            _ => None,
        };
        let status = LoopStatus {
            epoch: 0,
            split: Split::Train,
            steps: 0,
            activity: None,
            since: Instant::now(),
            ended: false,
        };
        let shared = Arc::new(WatchedLoop {
            settings,
            topology,
            notes,
            status: Mutex::new(status),
            ended: Condvar::new(),
            is_warning: AtomicBool::new(false),
        });
        let watched = shared.clone();
        let interval = (shortest / 8).clamp(Duration::from_millis(5), Duration::from_secs(1));
        thread::Builder::new().name("watchdog".into()).spawn(move || watched.watch(interval))?;
        Ok(Self(Some(shared)))
    }

    /// Reports that the training or the validation of an epoch begins. Epochs are counted from 0.
    pub fn begin(&self, epoch: u64, split: Split) {
        self.update(|status| {
            status.epoch = epoch;
            status.split = split;
        });
    }

    /// Reports that the loop begins an activity.
    pub fn set_activity(&self, activity: Activity) {
        self.update(|status| {
            status.steps += u64::from(activity == Activity::Launch);
            status.activity = Some(activity);
            status.since = Instant::now();
        });
    }

    /// Stops watching, because the loop has ended.
    pub fn finish(&self) {
        self.update(|status| status.ended = true);
        if let Some(shared) = &self.0 {
            shared.ended.notify_all();
        }
    }

    fn update(&self, change: impl FnOnce(&mut LoopStatus)) {
        if let Some(shared) = &self.0 {
            change(&mut shared.status());
        }
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watchdog").field(&self.0.as_ref().map(|shared| *shared.status())).finish()
    }
}

impl WatchedLoop {
    fn status(&self) -> MutexGuard<'_, LoopStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the loop at each interval, until it has ended.
    fn watch(self: &Arc<Self>, interval: Duration) {
        if let Some(notes) = &self.notes {
            notes.clear();
        }
        // The wait that the last warning was about: when the wait began, and how long it must last before the
        // next warning.
        let mut warned: Option<(Instant, Duration)> = None;
        loop {
            let (status, _) = self
                .ended
                .wait_timeout_while(self.status(), interval, |status| !status.ended)
                .unwrap_or_else(PoisonError::into_inner);
            let status = *status;
            if let Some((since, _)) = warned
                && (status.ended || status.since != since)
            {
                warned = None;
                if status.since != since {
                    let waited = (status.since - since).as_secs_f64();
                    self.print(&format!("the training continues after a wait of {waited:.0} s"));
                }
                self.withdraw();
            }
            if status.ended {
                return;
            }
            let Some(activity) = status.activity else { continue };
            let waited = status.since.elapsed();
            if let Some(limit) = self.settings.end_after.filter(|limit| waited >= *limit) {
                self.print(&format!(
                    "error: no step in {} s: {}",
                    limit.as_secs(),
                    self.describe_wait(&status, activity)
                ));
                // The log is written by another thread, which now has a second to write this message.
                thread::sleep(Duration::from_secs(1));
                stop::end("a step took longer than --step-timeout", i32::from(EXIT_HUNG));
            }
            let Some(first) = self.settings.warn_after else { continue };
            let after = warned.map_or(first, |(_, next)| next);
            if waited >= after {
                warned = Some((status.since, after.saturating_mul(2)));
                self.warn(status, activity);
            }
        }
    }

    /// Warns on another thread. Reading the notes of the other ranks may hang, and this thread must continue
    /// to watch the loop.
    fn warn(self: &Arc<Self>, status: LoopStatus, activity: Activity) {
        if self.is_warning.swap(true, Ordering::SeqCst) {
            return;
        }
        let shared = self.clone();
        let warn = move || {
            let waited = status.since.elapsed();
            let own = shared.describe_wait(&status, activity);
            let ranks = match shared.gather(&status, activity) {
                Some(notes) => format!("; {}", describe_ranks(&notes, shared.topology.world_size())),
                None => String::new(),
            };
            shared.print(&format!("warning: no step for {:.0} s: {own}{ranks}", waited.as_secs_f64()));
            shared.is_warning.store(false, Ordering::SeqCst);
        };
        if thread::Builder::new().name("watchdog".into()).spawn(warn).is_err() {
            self.is_warning.store(false, Ordering::SeqCst);
        }
    }

    /// Writes this rank's note, and waits for the notes of the other ranks. Returns the newest note of each
    /// rank; `None` if the notes cannot be written or read, or if the loop continues meanwhile.
    fn gather(&self, status: &LoopStatus, activity: Activity) -> Option<Vec<Note>> {
        let notes = self.notes.as_ref()?;
        notes.write(activity.word(), status.steps).ok()?;
        let start = Instant::now();
        let timeout = GATHER_TIMEOUT.min(self.settings.warn_after.unwrap_or(GATHER_TIMEOUT));
        loop {
            let newest = newest_notes(notes.read().ok()?);
            if newest.len() == self.topology.world_size() || start.elapsed() >= timeout {
                return Some(newest);
            }
            if self.status().since != status.since {
                self.withdraw();
                return None;
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Deletes this rank's note on another thread, since the store may hang.
    fn withdraw(&self) {
        let Some(notes) = self.notes.clone() else { return };
        // If no thread can be started, the note stays. The rank's next note has a higher step and counts
        // instead.
        let _ = thread::Builder::new().name("watchdog".into()).spawn(move || notes.withdraw());
    }

    /// Describes what this rank waits for.
    fn describe_wait(&self, status: &LoopStatus, activity: Activity) -> String {
        let cause = match (self.settings.batch_wait)() {
            Some(cause) if activity == Activity::Batch => format!(" ({cause})"),
            _ => String::new(),
        };
        let part = match status.split {
            Split::Train => "training",
            Split::Validation => "validation",
        };
        format!(
            "rank {} waits for {activity}{cause} after {} steps, in the {part} of epoch {}",
            self.topology.rank(),
            status.steps,
            status.epoch + 1
        )
    }

    fn print(&self, line: &str) {
        (self.settings.print)(line);
    }
}

/// The newest note of each rank.
fn newest_notes(mut notes: Vec<Note>) -> Vec<Note> {
    notes.sort_by_key(|note| (note.rank, std::cmp::Reverse(note.steps)));
    notes.dedup_by_key(|note| note.rank);
    notes
}

/// Describes which ranks hold up the job, according to their notes.
fn describe_ranks(notes: &[Note], world_size: usize) -> String {
    let silent: Vec<String> = (0..world_size)
        .filter(|rank| notes.iter().all(|note| note.rank != *rank))
        .map(|rank| rank.to_string())
        .collect();
    let mut causes: Vec<String> = notes
        .iter()
        .filter(|note| note.word != Activity::Devices.word())
        .map(|note| {
            let activity = Activity::ALL.iter().find(|activity| activity.word() == note.word);
            let what = activity.map_or_else(|| note.word.clone(), ToString::to_string);
            format!("rank {} waits for {what} after {} steps", note.rank, note.steps)
        })
        .collect();
    if !silent.is_empty() {
        let what = if silent.len() == 1 { "rank" } else { "ranks" };
        causes.push(format!(
            "{what} {} left no note: its process is stopped or dead, or it still computes",
            silent.join(", ")
        ));
    }
    if causes.is_empty() {
        // All ranks wait for the devices. The ranks that have launched fewer steps are behind.
        let steps = notes.iter().map(|note| note.steps);
        let (Some(least), Some(most)) = (steps.clone().min(), steps.max()) else { return String::new() };
        if least == most {
            return format!("all {world_size} ranks wait for the devices after {most} steps");
        }
        let behind = notes.iter().filter(|note| note.steps == least).map(|note| note.rank.to_string());
        let behind: Vec<String> = behind.collect();
        return format!("these ranks are behind, with {least} of {most} steps: {}", behind.join(", "));
    }
    format!("the job waits for: {}", causes.join("; "))
}
