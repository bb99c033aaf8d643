//! When to change the number of threads, or of batches ahead: a state machine that sees times and counts.
//!
//! - *More threads* are tried where the trainer waits, the threads work all the time, and yet cores are idle:
//!   the stages wait for something, such as a service or a slow disk. Up to twice as many are tried, as far
//!   as the cores will do. They stay if that makes the run faster. If not, the next trial comes later and
//!   later.
//! - *Fewer threads* are tried where there are more than cores to compute on, and none is idle: what they
//!   waited for may come at once by now. They stay if that does not make the run slower.
//! - *Batches ahead* are doubled where the trainer waits for some of them although others were ready before
//!   their time: the rate is enough, but not even.

use std::fmt;
use std::time::{Duration, Instant};

/// It looks this often.
const WINDOW: Duration = Duration::from_secs(1);
/// And decides when there were as many items, for each thread and in all, and as many batches; or after so
/// long.
const ITEMS_PER_THREAD: u64 = 4;
const ITEMS: u64 = 32;
const BATCHES: u64 = 4;
const LONGEST_WINDOW: Duration = Duration::from_secs(60);

/// A trainer that waits less than this share of the time has no need of more threads.
const WAITS: f64 = 0.1;
/// A trainer that waits longer than this has a rate that does not depend on its steps.
const STARVES: f64 = 0.5;
/// Threads that work more than this share of their time have none to spare.
const BUSY: f64 = 0.75;
/// Threads that compute on more than this share of their cores have no use for others.
const COMPUTES: f64 = 0.8;
/// Number of idle cores of the machine from which there is room for more, and up to which there is none.
const IDLE: (f64, f64) = (0.25, 0.1);
/// By how much the rate must grow for more threads to stay.
const GAIN: f64 = 1.1;
/// How much of it must be left for fewer to stay.
const KEPT: f64 = 0.97;
/// A change to less than this many times as many threads is none.
const STEP: f64 = 1.25;
/// Number of windows that all must have the rate, unless it is this many times as much as is needed.
const CONFIRMED: u32 = 2;
const CLEAR: f64 = 1.3;
/// After a trial that failed, this many windows pass without one; then twice as many, up to the second
/// number.
const PATIENCE: (u32, u32) = (4, 64);

/// The thread that collects batches must have rested for this share of the time for the rate to be enough.
const ENOUGH: f64 = 0.1;
/// This share of the batches may be late, of at least this number; one may always be.
const LATE: f64 = 0.02;
const MANY_BATCHES: u64 = 50;

/// The number of each that a run begins with, and the largest that may be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// Number of cores that the threads may compute on.
    pub(super) cores: usize,
    pub(super) threads: (usize, usize),
    /// Whether the number of threads may be changed.
    pub(super) tunes_threads: bool,
    pub(super) prefetch: (usize, usize),
}

/// What a run has done so far.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::loader) struct Seen {
    pub(in crate::loader) elapsed: Duration,
    /// The trainer waited, or did something else than steps.
    pub(in crate::loader) waited: Duration,
    pub(in crate::loader) rested: Duration,
    /// Threads worked.
    pub(in crate::loader) work: Duration,
    /// The thread that collects had as many batches ready as it may.
    pub(in crate::loader) full: Duration,
    /// Items that came of the stages, and the time of cores that they took.
    pub(in crate::loader) items: u64,
    pub(in crate::loader) cpu: Duration,
    /// Cores of the machine were idle, or at work of a lower priority, where that is known.
    pub(in crate::loader) idle_cores: Option<Duration>,
    /// Batches that were given out, and those of them that were waited for.
    pub(in crate::loader) batches: u64,
    pub(in crate::loader) late: u64,
    /// Whether there is no memory for more samples at the moment.
    pub(in crate::loader) is_full: bool,
}

impl Seen {
    fn since(&self, before: &Seen) -> Seen {
        let idle_cores = self.idle_cores.zip(before.idle_cores);
        Seen {
            elapsed: self.elapsed.saturating_sub(before.elapsed),
            waited: self.waited.saturating_sub(before.waited),
            rested: self.rested.saturating_sub(before.rested),
            work: self.work.saturating_sub(before.work),
            full: self.full.saturating_sub(before.full),
            items: self.items.saturating_sub(before.items),
            cpu: self.cpu.saturating_sub(before.cpu),
            idle_cores: idle_cores.map(|(now, before)| now.saturating_sub(before)),
            batches: self.batches.saturating_sub(before.batches),
            late: self.late.saturating_sub(before.late),
            is_full: self.is_full,
        }
    }

    /// The share of the time; of what several do at once, how many did.
    fn share(&self, of: Duration) -> f64 {
        of.as_secs_f64() / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn rate(&self) -> f64 {
        self.items as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn waits(&self) -> f64 {
        self.share(self.waited)
    }

    /// Whether its rates say anything, for this number of threads.
    fn is_enough(&self, threads: usize) -> bool {
        let batches = self.batches >= BATCHES || self.waits() >= STARVES;
        let items = self.items >= ITEMS.max(ITEMS_PER_THREAD * threads as u64);
        self.elapsed >= WINDOW && batches && items || self.elapsed >= LONGEST_WINDOW
    }
}

/// Why something was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Blocked,
    NoGain,
    Crowded,
    Slower,
    Uneven,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Change::Blocked => "the trainer waits, and the threads wait for something else than a core",
            Change::NoGain => "more threads were no faster",
            Change::Crowded => "no core is idle, and there are more threads than cores",
            Change::Slower => "fewer threads were slower",
            Change::Uneven => "some batches are late while others are early",
        })
    }
}

/// Another number of threads that is being tried.
#[derive(Debug, Clone, Copy)]
struct Trial {
    /// How many there were.
    from: usize,
    /// The rate that is needed for the new number to stay.
    needed: f64,
    /// Whether the first window is over, in which threads were started.
    is_settled: bool,
    /// Windows with that rate.
    confirmed: u32,
}

/// Decides when to change the number of threads, or of batches ahead.
#[derive(Debug)]
pub(super) struct Tuner {
    limits: Limits,
    threads: usize,
    prefetch: usize,
    at: Option<Instant>,
    /// Where the window began; none before the first batch.
    before: Option<Seen>,
    /// The same for batches that are late.
    even: Option<Seen>,
    trial: Option<Trial>,
    /// Windows without a trial.
    rest: u32,
    patience: u32,
}

impl Tuner {
    /// Begins with the first number of each, and as much patience as was learned.
    pub(super) fn new(limits: Limits, patience: Option<u32>) -> Self {
        Tuner {
            limits,
            threads: limits.threads.0,
            prefetch: limits.prefetch.0,
            at: None,
            before: None,
            even: None,
            trial: None,
            rest: patience.unwrap_or(0),
            patience: patience.unwrap_or(PATIENCE.0),
        }
    }

    /// The number of threads, and of batches ahead.
    pub(super) fn choices(&self) -> (usize, usize) {
        (self.threads, self.prefetch)
    }

    /// The number of threads that is known to be of use.
    pub(super) fn proven(&self) -> usize {
        self.trial.map_or(self.threads, |trial| trial.from)
    }

    /// How long to wait before the next trial, if the last one failed.
    pub(super) fn patience(&self) -> Option<u32> {
        Some(self.patience).filter(|patience| *patience > PATIENCE.0)
    }

    /// No more threads than these could be started.
    pub(super) fn bound_threads(&mut self, threads: usize) {
        self.threads = self.threads.min(threads);
        self.limits.threads.1 = self.limits.threads.1.min(threads);
        self.trial = None;
    }

    /// Whether it is time to look at the run.
    pub(super) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = now.saturating_duration_since(*self.at.get_or_insert(now)) >= WINDOW;
        if is_due {
            self.at = Some(now);
        }
        is_due
    }

    /// Looks at the run, and changes at most one of the two.
    pub(super) fn see(&mut self, seen: Seen) -> Option<Change> {
        // Until the first batch comes, connections are opened and buffers filled.
        if seen.batches == 0 {
            return None;
        }
        let (before, even) = (*self.before.get_or_insert(seen), *self.even.get_or_insert(seen));
        if !seen.since(&before).rested.is_zero() {
            // Of validation or a checkpoint nothing is to be learned.
            (self.before, self.even) = (Some(seen), Some(seen));
            return None;
        }
        let window = seen.since(&before);
        if window.is_enough(self.threads) {
            self.before = Some(seen);
            // A run that hangs says nothing.
            if window.items > 0
                && let Some(change) = self.tune_threads(&window)
            {
                self.even = Some(seen);
                return Some(change);
            }
        }
        let window = seen.since(&even);
        if self.trial.is_some() || window.batches < MANY_BATCHES && window.elapsed < LONGEST_WINDOW {
            return None;
        }
        self.even = Some(seen);
        self.tune_prefetch(&window)
    }

    fn tune_threads(&mut self, window: &Seen) -> Option<Change> {
        if !self.limits.tunes_threads {
            return None;
        }
        if let Some(trial) = &mut self.trial {
            if !trial.is_settled {
                trial.is_settled = true;
                return None;
            }
            if window.rate() >= trial.needed {
                trial.confirmed += 1;
                let is_clear = trial.from < self.threads && window.rate() >= CLEAR * trial.needed;
                if is_clear || trial.confirmed == CONFIRMED {
                    (self.trial, self.patience) = (None, PATIENCE.0);
                }
                return None;
            }
            let change = if trial.from < self.threads { Change::NoGain } else { Change::Slower };
            (self.threads, self.rest) = (trial.from, self.patience);
            self.patience = (self.patience * 2).min(PATIENCE.1);
            self.trial = None;
            return Some(change);
        }
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        let idle_cores = window.idle_cores.map(|idle| window.share(idle));
        let (most, now) = (self.limits.cores as f64, self.threads as f64);
        let computing = window.share(window.cpu);
        let (threads, change, needed) =
            if self.threads > self.limits.cores && idle_cores.is_some_and(|idle| idle <= IDLE.1) {
                ((self.threads / 2).max(self.limits.cores), Change::Crowded, KEPT)
            } else {
                let is_busy = window.share(window.work) >= BUSY * now;
                let has_room = idle_cores.is_none_or(|idle| idle >= IDLE.0) && !window.is_full;
                if window.waits() < WAITS || !is_busy || !has_room || computing >= COMPUTES * most {
                    return None;
                }
                // As many as the cores will do for.
                let fit = now * most / computing.max(most / (2.0 * now));
                let more = (self.threads * 2).min(fit as usize).min(self.limits.threads.1);
                // A trainer that waits a tenth of the time cannot get a tenth more.
                let gain = 1.0 + ((1.0 / (1.0 - window.waits().min(0.9)) - 1.0) / 2.0).min(GAIN - 1.0);
                (more, Change::Blocked, gain)
            };
        if (threads as f64) < STEP * now && threads >= self.threads {
            return None;
        }
        let needed = needed * window.rate();
        self.trial = Some(Trial { from: self.threads, needed, is_settled: false, confirmed: 0 });
        self.threads = threads;
        Some(change)
    }

    fn tune_prefetch(&mut self, window: &Seen) -> Option<Change> {
        let more = (self.prefetch * 2).min(self.limits.prefetch.1);
        let is_late = window.late > 1 && window.late as f64 > LATE * window.batches as f64;
        if !is_late || window.share(window.full) < ENOUGH || more <= self.prefetch {
            return None;
        }
        self.prefetch = more;
        Some(Change::Uneven)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { cores: 4, threads: (4, 64), tunes_threads: true, prefetch: (2, 32) };
    /// Number of cores of the machine.
    const MACHINE: f64 = 4.0;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// A run whose items take `cpu` and `wait` milliseconds each, and whose trainer takes steps of ten items.
    struct Model {
        cpu: f64,
        wait: f64,
        /// The time of a step, in seconds.
        step: f64,
        /// More items than this nobody gives in a second, such as a service.
        most: f64,
        /// Cores that others compute on.
        others: f64,
        seen: Seen,
    }

    impl Model {
        fn new(cpu: f64, wait: f64) -> Self {
            Model { cpu, wait, step: 0.0, most: f64::INFINITY, others: 0.0, seen: Seen::default() }
        }

        /// The rate that this number of threads can have.
        fn possible(&self, threads: usize) -> f64 {
            let of_cores = (MACHINE - self.others) * 1000.0 / self.cpu;
            let of_threads = threads as f64 * 1000.0 / (self.cpu + self.wait);
            of_threads.min(of_cores).min(self.most)
        }

        /// What a second with this number of threads adds.
        fn second(&mut self, threads: usize) -> Seen {
            let possible = self.possible(threads);
            let wanted = if self.step > 0.0 { 10.0 / self.step } else { f64::INFINITY };
            let rate = possible.min(wanted);
            let before = self.seen.items / 10;
            self.seen.elapsed += seconds(1.0);
            self.seen.waited += seconds(1.0 - rate / wanted);
            self.seen.work += seconds(threads as f64 * rate / possible);
            self.seen.full += seconds(1.0 - rate / possible);
            self.seen.items += rate as u64;
            let computing = rate * self.cpu / 1000.0;
            self.seen.cpu += seconds(computing);
            let idle = self.seen.idle_cores.unwrap_or_default();
            self.seen.idle_cores = Some(idle + seconds((MACHINE - self.others - computing).max(0.0)));
            self.seen.batches += self.seen.items / 10 - before;
            self.seen
        }

        /// The number of threads in each second.
        fn run(&mut self, seconds: usize) -> Vec<usize> {
            let mut tuner = Tuner::new(LIMITS, None);
            self.go_on(&mut tuner, seconds)
        }

        fn go_on(&mut self, tuner: &mut Tuner, seconds: usize) -> Vec<usize> {
            let second = |_| {
                let seen = self.second(tuner.threads);
                tuner.see(seen);
                tuner.threads
            };
            (0..seconds).map(second).collect()
        }
    }

    #[test]
    fn threads_that_wait_for_a_service_are_joined_by_others() {
        let threads = Model::new(0.1, 10.0).run(60);
        assert_eq!(threads.last(), Some(&64), "{threads:?}");
        // Up to what the trainer takes, and no more.
        let mut model = Model { step: 0.0083, ..Model::new(0.1, 10.0) };
        let threads = *model.run(60).last().unwrap();
        assert!(model.possible(threads) >= 1200.0 && threads < 20, "{threads}");
    }

    #[test]
    fn threads_that_compute_stay_alone() {
        assert_eq!(Model::new(1.0, 0.1).run(60), [4; 60]);
        // Half of the time they wait, so that twice as many have the cores.
        let threads = *Model::new(1.0, 1.0).run(60).last().unwrap();
        assert!((6..=8).contains(&threads), "{threads}");
        // Others have half of the cores: to wait for a core is not to wait for something else.
        assert_eq!(Model { others: 2.0, ..Model::new(1.0, 0.1) }.run(60), [4; 60]);
    }

    #[test]
    fn threads_that_are_no_use_go_and_are_tried_more_and_more_seldom() {
        let threads = Model { most: 100.0, ..Model::new(0.1, 10.0) }.run(600);
        let trials = threads.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((3..=12).contains(&trials), "{trials} trials: {threads:?}");
        assert!(threads.iter().filter(|threads| **threads == 4).count() > 500);
    }

    /// A slow disk of the first epoch is in the page cache in the next one.
    #[test]
    fn threads_that_need_not_wait_any_longer_are_joined_by_none() {
        let mut tuner = Tuner::new(LIMITS, None);
        let mut model = Model::new(1.0, 50.0);
        assert_eq!(model.go_on(&mut tuner, 60).last(), Some(&64));
        model.wait = 0.0;
        let threads = model.go_on(&mut tuner, 60);
        assert_eq!(threads.last(), Some(&4), "{threads:?}");
        // And where fewer are slower after all, they come back.
        let mut tuner = Tuner::new(Limits { threads: (64, 64), ..LIMITS }, None);
        let mut model = Model { others: 4.0 - 64.0 / 51.0, ..Model::new(1.0, 50.0) };
        let threads = model.go_on(&mut tuner, 600);
        assert!(threads.iter().filter(|threads| **threads == 64).count() > 540, "{threads:?}");
    }

    /// Steps of four seconds, and a service that gives a batch in five: only every fifth second has a wait.
    #[test]
    fn slow_steps_are_no_reason_to_keep_threads() {
        let mut tuner = Tuner::new(LIMITS, None);
        let mut most = 0;
        for second in 1..1000_u64 {
            let seen = Seen {
                elapsed: seconds(second as f64),
                waited: seconds((second / 5) as f64),
                work: seconds(4.0 * second as f64),
                items: 50 * second,
                idle_cores: Some(seconds(4.0 * second as f64)),
                batches: 1 + second / 5,
                ..Seen::default()
            };
            tuner.see(Seen { work: seconds(tuner.threads as f64 * second as f64), ..seen });
            most = most.max(tuner.threads);
        }
        assert!(most <= 8 && tuner.proven() == 4, "{most}, {tuner:?}");
    }

    #[test]
    fn threads_that_wait_for_bytes_or_memory_stay_alone() {
        for (work, is_full) in [(1.0, false), (4.0, true)] {
            let mut tuner = Tuner::new(LIMITS, None);
            for second in 1..60_u32 {
                let time = seconds(f64::from(second));
                let seen = Seen {
                    elapsed: time,
                    waited: time,
                    work: time.mul_f64(work),
                    items: 100 * u64::from(second),
                    batches: u64::from(second),
                    late: u64::from(second),
                    is_full,
                    ..Seen::default()
                };
                assert_eq!(tuner.see(seen), None);
            }
        }
    }

    #[test]
    fn batches_that_are_late_by_chance_have_more_ahead() {
        let run = |full: f64, late: u64, rested: f64| {
            let mut tuner = Tuner::new(LIMITS, None);
            for second in 1..60_u32 {
                let time = seconds(f64::from(second));
                let seen = Seen {
                    elapsed: time,
                    waited: time.mul_f64(0.02),
                    rested: time.mul_f64(rested),
                    work: time * 2,
                    full: time.mul_f64(full),
                    items: 1000 * u64::from(second),
                    batches: 10 * u64::from(second),
                    late: late * u64::from(second),
                    ..Seen::default()
                };
                tuner.see(seen);
            }
            tuner.choices()
        };
        assert_eq!(run(0.3, 1, 0.0), (4, 32));
        assert_eq!(run(0.3, 0, 0.0), (4, 2), "none was late");
        assert_eq!(run(0.0, 1, 0.0), (4, 2), "none was early: the rate is not enough");
        assert_eq!(run(0.3, 1, 0.5), (4, 2), "the trainer did something else");
    }

    #[test]
    fn little_says_nothing_yet() {
        let blocked = |seconds: u64, items: u64| {
            let elapsed = Duration::from_secs(seconds);
            Seen { elapsed, waited: elapsed, work: elapsed * 4, items, batches: 1, ..Seen::default() }
        };
        let see = |seen: &[Seen]| {
            let mut tuner = Tuner::new(LIMITS, None);
            seen.iter().filter_map(|seen| tuner.see(*seen)).last()
        };
        assert_eq!(see(&[Seen { batches: 0, ..blocked(1, 900) }, blocked(2, 1800)]), None, "it begins");
        assert_eq!(see(&[blocked(1, 0), blocked(3, 31)]), None);
        assert_eq!(see(&[blocked(1, 0), blocked(3, 32)]), Some(Change::Blocked));
        assert_eq!(see(&[blocked(1, 0), blocked(60, 1)]), None);
        assert_eq!(see(&[blocked(1, 0), blocked(61, 1)]), Some(Change::Blocked));
        assert_eq!(see(&[blocked(1, 0), blocked(90, 0)]), None, "it hangs");
    }

    #[test]
    fn what_is_tried_is_not_proven_and_patience_is_kept() {
        let mut tuner = Tuner::new(LIMITS, None);
        let mut model = Model { most: 100.0, ..Model::new(0.1, 10.0) };
        while tuner.trial.is_none() {
            model.go_on(&mut tuner, 1);
        }
        assert_eq!((tuner.proven(), tuner.choices().0, tuner.patience()), (4, 8, None));
        model.go_on(&mut tuner, 4);
        assert_eq!((tuner.proven(), tuner.patience()), (4, Some(8)));
        let mut next = Tuner::new(LIMITS, tuner.patience());
        assert_eq!(model.go_on(&mut next, 7), [4; 7]);
        tuner.bound_threads(3);
        assert_eq!(tuner.choices().0, 3);
    }
}
