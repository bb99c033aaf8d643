//! Warns when a training hangs: says what it waits for, and which rank the others wait for.
//!
//! A rank that hangs blocks all others in a collective, and they only know that they wait for the devices. So
//! ranks that have waited too long leave notes (`rank_notes.rs`) that say what they wait for. The ranks that
//! wait for something other than the devices, or leave no note, hold up the job.

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

/// What the training loop is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Waiting for a batch.
    Batch,
    /// Starting a step.
    Launch,
    /// Waiting for the result of a step, which all ranks compute together.
    Devices,
    /// Writing a checkpoint, or waiting for the previous one.
    Checkpoint,
    /// Waiting for the ranks to agree on the last step.
    Stop,
}

impl Activity {
    const ALL: [Self; 5] = [Self::Batch, Self::Launch, Self::Devices, Self::Checkpoint, Self::Stop];

    /// The word for it in notes.
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

/// The text after "waits for".
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
    /// The wait after which it warns first; each further warning comes after twice the wait.
    pub warn_after: Option<Duration>,
    /// The wait after which it ends the process with [`EXIT_HUNG`].
    pub end_after: Option<Duration>,
    /// Returns what batches wait for, if known.
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
    now: Mutex<LoopStatus>,
    ended: Condvar,
    /// Whether a thread is gathering notes.
    gathering: AtomicBool,
}

/// The current activity of the loop.
#[derive(Debug, Clone, Copy)]
struct LoopStatus {
    epoch: u64,
    split: Split,
    /// Steps of training and validation that were started.
    steps: u64,
    /// `None` before the first activity.
    activity: Option<Activity>,
    since: Instant,
    /// Whether the loop has ended.
    ended: bool,
}

impl Watchdog {
    /// Starts to watch. Ranks leave notes below `url`; without it, each rank knows only about itself.
    /// `first_step` is the step at which the job begins or resumes, the same on all ranks.
    pub fn start(
        settings: WatchdogSettings,
        topology: Topology,
        url: Option<String>,
        first_step: u64,
    ) -> std::io::Result<Self> {
        let Some(shortest) = settings.warn_after.into_iter().chain(settings.end_after).min() else {
            return Ok(Self(None));
        };
        let notes = url.filter(|_| topology.world_size() > 1);
        let notes = notes.map(|url| RankNotes::new(url, topology, first_step));
        let now = LoopStatus {
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
            now: Mutex::new(now),
            ended: Condvar::new(),
            gathering: AtomicBool::new(false),
        });
        let watched = shared.clone();
        let look = (shortest / 8).clamp(Duration::from_millis(5), Duration::from_secs(1));
        thread::Builder::new().name("watchdog".into()).spawn(move || watched.watch(look))?;
        Ok(Self(Some(shared)))
    }

    /// Reports that a part of an epoch begins; epochs count from 0.
    pub fn begin(&self, epoch: u64, split: Split) {
        self.update(|now| (now.epoch, now.split) = (epoch, split));
    }

    /// Reports that the loop begins an activity.
    pub fn set_activity(&self, activity: Activity) {
        self.update(|now| {
            now.steps += u64::from(activity == Activity::Launch);
            now.activity = Some(activity);
            now.since = Instant::now();
        });
    }

    /// Ends the watch.
    pub fn finish(&self) {
        self.update(|now| now.ended = true);
        if let Some(shared) = &self.0 {
            shared.ended.notify_all();
        }
    }

    fn update(&self, change: impl FnOnce(&mut LoopStatus)) {
        if let Some(shared) = &self.0 {
            change(&mut shared.now());
        }
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watchdog").field(&self.0.as_ref().map(|shared| *shared.now())).finish()
    }
}

impl WatchedLoop {
    fn now(&self) -> MutexGuard<'_, LoopStatus> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the loop periodically until it has ended.
    fn watch(self: &Arc<Self>, look: Duration) {
        if let Some(notes) = &self.notes {
            notes.clear();
        }
        // The beginning of the wait that was warned about, and the duration at which the next warning comes.
        let mut warned: Option<(Instant, Duration)> = None;
        loop {
            let now = self.now();
            let (now, _) = self
                .ended
                .wait_timeout_while(now, look, |now| !now.ended)
                .unwrap_or_else(PoisonError::into_inner);
            let now = *now;
            if let Some((since, _)) = warned
                && (now.ended || now.since != since)
            {
                warned = None;
                if now.since != since {
                    let waited = (now.since - since).as_secs_f64();
                    self.print(&format!("the training continues after a wait of {waited:.0} s"));
                }
                self.withdraw();
            }
            if now.ended {
                return;
            }
            let Some(activity) = now.activity else { continue };
            let waited = now.since.elapsed();
            if let Some(limit) = self.settings.end_after.filter(|limit| waited >= *limit) {
                self.print(&format!(
                    "error: no step in {} s: {}",
                    limit.as_secs(),
                    self.describe_wait(&now, activity)
                ));
                // Gives the thread that writes the log some time.
                thread::sleep(Duration::from_secs(1));
                stop::end("a step took longer than --step-timeout", i32::from(EXIT_HUNG));
            }
            let Some(first) = self.settings.warn_after else { continue };
            let after = warned.map_or(first, |(_, next)| next);
            if waited >= after {
                warned = Some((now.since, after.saturating_mul(2)));
                self.warn(now, activity);
            }
        }
    }

    /// Warns on another thread, since the store may hang too.
    fn warn(self: &Arc<Self>, now: LoopStatus, activity: Activity) {
        if self.gathering.swap(true, Ordering::SeqCst) {
            return;
        }
        let shared = self.clone();
        let warn = move || {
            let waited = now.since.elapsed();
            let own = shared.describe_wait(&now, activity);
            let ranks = shared
                .gather(&now, activity)
                .map(|notes| describe_ranks(&notes, shared.topology.world_size()));
            let ranks = ranks.map(|ranks| format!("; {ranks}")).unwrap_or_default();
            shared.print(&format!("warning: no step for {:.0} s: {own}{ranks}", waited.as_secs_f64()));
            shared.gathering.store(false, Ordering::SeqCst);
        };
        if thread::Builder::new().name("watchdog".into()).spawn(warn).is_err() {
            self.gathering.store(false, Ordering::SeqCst);
        }
    }

    /// Writes this rank's note, and waits for those of the others.
    fn gather(&self, now: &LoopStatus, activity: Activity) -> Option<Vec<Note>> {
        let notes = self.notes.as_ref()?;
        notes.write(activity.word(), now.steps).ok()?;
        let begun = Instant::now();
        loop {
            let newest = newest_notes(notes.read().ok()?);
            let all = newest.len() == self.topology.world_size();
            if all
                || begun.elapsed() >= GATHER_TIMEOUT.min(self.settings.warn_after.unwrap_or(GATHER_TIMEOUT))
            {
                return Some(newest);
            }
            if self.now().since != now.since {
                self.withdraw();
                return None;
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn withdraw(&self) {
        let Some(notes) = self.notes.clone() else { return };
        // If no thread starts, the next note replaces this one, as it has a higher step.
        let _ = thread::Builder::new().name("watchdog".into()).spawn(move || notes.withdraw());
    }

    /// What this rank waits for.
    fn describe_wait(&self, now: &LoopStatus, activity: Activity) -> String {
        let cause = (self.settings.batch_wait)().filter(|_| activity == Activity::Batch);
        let cause = cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
        let part = match now.split {
            Split::Train => "training",
            Split::Validation => "validation",
        };
        format!(
            "rank {} waits for {activity}{cause} after {} steps, in the {part} of epoch {}",
            self.topology.rank(),
            now.steps,
            now.epoch + 1
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

/// Says which ranks hold up the job, by their notes.
fn describe_ranks(notes: &[Note], world_size: usize) -> String {
    let silent: Vec<String> = (0..world_size)
        .filter(|rank| notes.iter().all(|note| note.rank != *rank))
        .map(|rank| rank.to_string())
        .collect();
    let mut held_up: Vec<String> = notes
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
        held_up.push(format!(
            "{what} {} left no note: its process is stopped or dead, or it still computes",
            silent.join(", ")
        ));
    }
    if held_up.is_empty() {
        // All wait for the devices. The ranks that launched fewer steps are behind.
        let steps = notes.iter().map(|note| note.steps);
        let (Some(least), Some(most)) = (steps.clone().min(), steps.max()) else { return String::new() };
        if least == most {
            return format!("all {world_size} ranks wait for the devices after {most} steps");
        }
        let behind = notes.iter().filter(|note| note.steps == least).map(|note| note.rank.to_string());
        let behind: Vec<String> = behind.collect();
        return format!("behind are, with {least} of {most} steps, the ranks {}", behind.join(", "));
    }
    format!("the job waits for: {}", held_up.join("; "))
}
