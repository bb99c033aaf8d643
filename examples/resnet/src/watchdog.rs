//! Warns of a training that does not move: names what it waits for, and the rank that the others wait for.
//!
//! A rank that hangs stops all others within a collective, where they can only say that they wait for the
//! devices. So ranks that have waited too long leave notes (`rank_notes.rs`) of what they wait for. Those
//! that wait for something else than the devices, or leave no note, hold up the job.

use crate::data::Split;
use crate::rank_notes::{Note, RankNotes};
use crate::stop;
use shardstream::Topology;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Exit code of a training that was ended because a step took longer than `--step-timeout`. The same command
/// resumes it.
pub const EXIT_HUNG: u8 = 4;

/// For how long the notes of the other ranks are waited for at most, and how often they are read.
const GATHER: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(500);

/// What the training loop is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// It waits for a batch.
    Batch,
    /// It starts a step.
    Launch,
    /// It waits for the result of a step, which all ranks compute together.
    Devices,
    /// It writes a checkpoint, or waits for the one before.
    Checkpoint,
    /// It waits for the ranks to agree on the last step.
    Stop,
}

impl Activity {
    const ALL: [Self; 5] = [Self::Batch, Self::Launch, Self::Devices, Self::Checkpoint, Self::Stop];

    /// The word of its note.
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

/// What is waited for, after "waits for".
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

/// What a watchdog does.
pub struct Settings {
    /// The wait after which it warns; it warns again after twice as long, and so on.
    pub warn_after: Option<Duration>,
    /// The wait after which it ends the process with [`EXIT_HUNG`].
    pub end_after: Option<Duration>,
    /// Says what batches wait for, where that is known.
    pub batch_wait: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// Takes the lines of a warning.
    pub tell: Box<dyn Fn(&str) + Send + Sync>,
}

/// Watches a training loop, which tells what it is at. By default it does nothing. Clones are the same.
#[derive(Clone, Default)]
pub struct Watchdog(Option<Arc<Shared>>);

struct Shared {
    settings: Settings,
    topology: Topology,
    notes: Option<RankNotes>,
    now: Mutex<Now>,
    ended: Condvar,
    /// A thread gathers the notes.
    gathering: AtomicBool,
}

/// What the loop is at.
#[derive(Debug, Clone, Copy)]
struct Now {
    epoch: u64,
    split: Split,
    /// Steps of training and validation that were started.
    steps: u64,
    /// `None`: nothing that is watched.
    activity: Option<Activity>,
    since: Instant,
    /// The loop has ended.
    ended: bool,
}

impl Watchdog {
    /// Watches from now on. Ranks leave their notes below `url`; without one, each knows only of itself.
    /// `first_step` is the step at which the job begins or resumes, the same on all ranks.
    pub fn start(
        settings: Settings,
        topology: Topology,
        url: Option<String>,
        first_step: u64,
    ) -> std::io::Result<Self> {
        let Some(shortest) = settings.warn_after.into_iter().chain(settings.end_after).min() else {
            return Ok(Self(None));
        };
        let notes = url.filter(|_| topology.world_size() > 1);
        let notes = notes.map(|url| RankNotes::new(url, topology, first_step));
        let now = Now {
            epoch: 0,
            split: Split::Train,
            steps: 0,
            activity: None,
            since: Instant::now(),
            ended: false,
        };
        let shared = Arc::new(Shared {
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

    /// A part of an epoch, counted from 0, begins.
    pub fn begin(&self, epoch: u64, split: Split) {
        self.update(|now| (now.epoch, now.split) = (epoch, split));
    }

    /// The loop begins to do this.
    pub fn at(&self, activity: Activity) {
        self.update(|now| {
            now.steps += u64::from(activity == Activity::Launch);
            now.activity = Some(activity);
            now.since = Instant::now();
        });
    }

    /// Nothing more is watched.
    pub fn finish(&self) {
        self.update(|now| now.ended = true);
        if let Some(shared) = &self.0 {
            shared.ended.notify_all();
        }
    }

    fn update(&self, change: impl FnOnce(&mut Now)) {
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

impl Shared {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the loop again and again, until it has ended.
    fn watch(self: &Arc<Self>, look: Duration) {
        if let Some(notes) = &self.notes {
            notes.clear();
        }
        // Since when the wait lasts that was warned of, and after how much of it the next warning comes.
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
                    self.say(&format!("the training continues after a wait of {waited:.0} s"));
                }
                self.withdraw();
            }
            if now.ended {
                return;
            }
            let Some(activity) = now.activity else { continue };
            let waited = now.since.elapsed();
            if let Some(limit) = self.settings.end_after.filter(|limit| waited >= *limit) {
                self.say(&format!("error: no step in {} s: {}", limit.as_secs(), self.own(&now, activity)));
                // The log is written by a thread of its own.
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

    /// Warns on another thread: the store may hang as well.
    fn warn(self: &Arc<Self>, now: Now, activity: Activity) {
        if self.gathering.swap(true, Ordering::SeqCst) {
            return;
        }
        let shared = self.clone();
        let warn = move || {
            let waited = now.since.elapsed();
            let own = shared.own(&now, activity);
            let ranks =
                shared.gather(&now, activity).map(|notes| ranks(&notes, shared.topology.world_size()));
            let ranks = ranks.map(|ranks| format!("; {ranks}")).unwrap_or_default();
            shared.say(&format!("warning: no step for {:.0} s: {own}{ranks}", waited.as_secs_f64()));
            shared.gathering.store(false, Ordering::SeqCst);
        };
        if thread::Builder::new().name("watchdog".into()).spawn(warn).is_err() {
            self.gathering.store(false, Ordering::SeqCst);
        }
    }

    /// Leaves the note of this rank, and waits for those of the others.
    fn gather(&self, now: &Now, activity: Activity) -> Option<Vec<Note>> {
        let notes = self.notes.as_ref()?;
        notes.write(activity.word(), now.steps).ok()?;
        let begun = Instant::now();
        loop {
            let newest = newest(notes.read().ok()?);
            let all = newest.len() == self.topology.world_size();
            if all || begun.elapsed() >= GATHER.min(self.settings.warn_after.unwrap_or(GATHER)) {
                return Some(newest);
            }
            if self.now().since != now.since {
                self.withdraw();
                return None;
            }
            thread::sleep(LOOK);
        }
    }

    fn withdraw(&self) {
        let Some(notes) = self.notes.clone() else { return };
        // Without a thread, the next note has a higher step.
        let _ = thread::Builder::new().name("watchdog".into()).spawn(move || notes.withdraw());
    }

    /// What this rank waits for.
    fn own(&self, now: &Now, activity: Activity) -> String {
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

    fn say(&self, line: &str) {
        (self.settings.tell)(line);
    }
}

/// The last note of each rank.
fn newest(mut notes: Vec<Note>) -> Vec<Note> {
    notes.sort_by_key(|note| (note.rank, std::cmp::Reverse(note.steps)));
    notes.dedup_by_key(|note| note.rank);
    notes
}

/// Which ranks hold up the job, as far as their notes say.
fn ranks(notes: &[Note], world_size: usize) -> String {
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
        // All wait for each other: those behind have launched fewer steps.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn note(rank: usize, word: &str, steps: u64) -> Note {
        Note { rank, word: word.into(), steps }
    }

    #[test]
    fn the_rank_that_holds_up_the_others_is_named() {
        let waiting = [note(0, "devices", 12), note(1, "batch", 11), note(2, "devices", 12)];
        assert_eq!(ranks(&waiting, 3), "the job waits for: rank 1 waits for a batch after 11 steps");
        let said = ranks(&[note(0, "devices", 12)], 3);
        assert!(said.starts_with("the job waits for: ranks 1, 2 left no note"), "{said}");
        assert_eq!(
            ranks(&[note(0, "devices", 12), note(1, "devices", 12)], 2),
            "all 2 ranks wait for the devices after 12 steps"
        );
        assert_eq!(
            ranks(&[note(0, "devices", 12), note(1, "devices", 11)], 2),
            "behind are, with 11 of 12 steps, the ranks 1"
        );
    }

    #[test]
    fn the_last_note_of_a_rank_counts() {
        let notes = vec![note(1, "batch", 3), note(0, "devices", 3), note(1, "devices", 40)];
        assert_eq!(newest(notes), [note(0, "devices", 3), note(1, "devices", 40)]);
    }

    type Lines = Arc<Mutex<Vec<String>>>;

    fn start(rank: usize, ranks: usize, url: Option<&str>, warn_ms: u64) -> (Watchdog, Lines) {
        let lines = Lines::default();
        let said = lines.clone();
        let settings = Settings {
            warn_after: Some(Duration::from_millis(warn_ms)),
            end_after: None,
            batch_wait: Box::new(|| Some("a request of shard 7".into())),
            tell: Box::new(move |line| said.lock().unwrap().push(line.into())),
        };
        let topology = Topology::new(rank, ranks).unwrap();
        (Watchdog::start(settings, topology, url.map(Into::into), 0).unwrap(), lines)
    }

    fn wait_for(lines: &Lines, what: &str) -> String {
        let begun = Instant::now();
        loop {
            let all = lines.lock().unwrap().join("\n");
            if all.contains(what) {
                return all;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "no {what:?} in {all:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_wait_is_warned_of_again_and_its_end_is_told() {
        let (dog, lines) = start(0, 1, None, 50);
        dog.begin(2, Split::Train);
        dog.at(Activity::Launch);
        dog.at(Activity::Batch);
        let said = wait_for(&lines, "warning");
        assert!(
            said.contains(
                "rank 0 waits for a batch (a request of shard 7) after 1 steps, in the training of epoch 3"
            ),
            "{said}"
        );
        wait_for(
            &lines,
            "warning: no step for 0 s: rank 0 waits for a batch (a request of shard 7) after 1 steps, in the \
             training of epoch 3\nwarning",
        );
        dog.at(Activity::Launch);
        wait_for(&lines, "continues after a wait of");
        dog.finish();
    }

    #[test]
    fn ranks_name_the_one_that_hangs() {
        let dir = tempfile::tempdir().unwrap();
        let url = dir.path().join("watch");
        let dogs = [0, 1, 2].map(|rank| start(rank, 3, url.to_str(), 300));
        for (rank, (dog, _)) in dogs.iter().enumerate() {
            dog.at(Activity::Launch);
            dog.at(if rank == 1 { Activity::Checkpoint } else { Activity::Devices });
        }
        for (_, lines) in &dogs {
            wait_for(lines, "the job waits for: rank 1 waits for its checkpoint after 1 steps");
        }
        dogs.iter().for_each(|(dog, _)| dog.finish());
    }
}
