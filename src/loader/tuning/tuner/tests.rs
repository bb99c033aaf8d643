use super::*;

const LIMITS: TuningLimits = TuningLimits {
    cores: 4,
    threads: TunedRange { start: 4, max: 64 },
    tunes_threads: true,
    prefetch: TunedRange { start: 2, max: 32 },
};
/// Number of cores of the machine.
const MACHINE: f64 = 4.0;

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// A simulated run whose trainer takes steps of ten items.
struct Model {
    /// CPU time per item, in milliseconds.
    cpu: f64,
    /// Time per item that a thread waits without using the CPU, in milliseconds.
    wait: f64,
    /// The time of a step, in seconds.
    step: f64,
    /// The maximum rate that a service or a disk allows, in items per second.
    most: f64,
    /// Number of cores that other programs use.
    others: f64,
    totals: RunTotals,
}

impl Model {
    fn new(cpu: f64, wait: f64) -> Self {
        Model { cpu, wait, step: 0.0, most: f64::INFINITY, others: 0.0, totals: RunTotals::default() }
    }

    /// The maximum rate with this number of threads.
    fn possible(&self, threads: usize) -> f64 {
        let of_cores = (MACHINE - self.others) * 1000.0 / self.cpu;
        let of_threads = threads as f64 * 1000.0 / (self.cpu + self.wait);
        of_threads.min(of_cores).min(self.most)
    }

    /// Simulates a second with this number of threads.
    fn second(&mut self, threads: usize) -> RunTotals {
        let possible = self.possible(threads);
        let wanted = if self.step > 0.0 { 10.0 / self.step } else { f64::INFINITY };
        let rate = possible.min(wanted);
        let before = self.totals.items / 10;
        self.totals.elapsed += seconds(1.0);
        self.totals.waited += seconds(1.0 - rate / wanted);
        self.totals.work += seconds(threads as f64 * rate / possible);
        self.totals.full += seconds(1.0 - rate / possible);
        self.totals.items += rate as u64;
        let computing = rate * self.cpu / 1000.0;
        self.totals.cpu += seconds(computing);
        let idle = self.totals.idle_cores.unwrap_or_default();
        self.totals.idle_cores = Some(idle + seconds((MACHINE - self.others - computing).max(0.0)));
        self.totals.batches += self.totals.items / 10 - before;
        self.totals
    }

    /// The number of threads in each second.
    fn run(&mut self, seconds: usize) -> Vec<usize> {
        let mut tuner = RunTuner::new(LIMITS, None);
        self.continue_with(&mut tuner, seconds)
    }

    fn continue_with(&mut self, tuner: &mut RunTuner, seconds: usize) -> Vec<usize> {
        let second = |_| {
            let totals = self.second(tuner.threads);
            tuner.update(totals);
            tuner.threads
        };
        (0..seconds).map(second).collect()
    }
}

#[test]
fn threads_are_added_if_the_threads_wait_for_a_service() {
    let threads = Model::new(0.1, 10.0).run(60);
    assert_eq!(threads.last(), Some(&64), "{threads:?}");
    // Threads are added until the rate suffices for the trainer.
    let mut model = Model { step: 0.0083, ..Model::new(0.1, 10.0) };
    let threads = *model.run(60).last().unwrap();
    assert!(model.possible(threads) >= 1200.0 && threads < 20, "{threads}");
}

#[test]
fn no_threads_are_added_if_the_threads_compute() {
    assert_eq!(Model::new(1.0, 0.1).run(60), [4; 60]);
    // The threads wait half of the time, so the cores suffice for twice as many threads as cores.
    let threads = *Model::new(1.0, 1.0).run(60).last().unwrap();
    assert!((6..=8).contains(&threads), "{threads}");
    // Other programs use half of the cores, so the threads wait for cores.
    assert_eq!(Model { others: 2.0, ..Model::new(1.0, 0.1) }.run(60), [4; 60]);
}

#[test]
fn useless_threads_are_removed_and_tried_less_and_less_often() {
    let threads = Model { most: 100.0, ..Model::new(0.1, 10.0) }.run(600);
    let trials = threads.windows(2).filter(|pair| pair[0] < pair[1]).count();
    assert!((3..=12).contains(&trials), "{trials} trials: {threads:?}");
    assert!(threads.iter().filter(|threads| **threads == 4).count() > 500);
}

/// Shards that are read from a slow disk in the first epoch may be in the page cache in the next epoch.
#[test]
fn surplus_threads_are_removed_when_the_threads_no_longer_wait() {
    let mut tuner = RunTuner::new(LIMITS, None);
    let mut model = Model::new(1.0, 50.0);
    assert_eq!(model.continue_with(&mut tuner, 60).last(), Some(&64));
    model.wait = 0.0;
    let threads = model.continue_with(&mut tuner, 60);
    assert_eq!(threads.last(), Some(&4), "{threads:?}");
    // If the run is slower with fewer threads, the removed threads are added again.
    let mut tuner =
        RunTuner::new(TuningLimits { threads: TunedRange { start: 64, max: 64 }, ..LIMITS }, None);
    let mut model = Model { others: 4.0 - 64.0 / 51.0, ..Model::new(1.0, 50.0) };
    let threads = model.continue_with(&mut tuner, 600);
    assert!(threads.iter().filter(|threads| **threads == 64).count() > 540, "{threads:?}");
}

/// A step takes four seconds, and a service takes five seconds for a batch: the trainer waits in every fifth
/// second. The rate in a window depends on whether a step ends in it, not on the threads.
#[test]
fn a_rate_that_varies_with_slow_steps_keeps_no_threads() {
    let mut tuner = RunTuner::new(LIMITS, None);
    let mut most = 0;
    for second in 1..1000_u64 {
        let seen = RunTotals {
            elapsed: seconds(second as f64),
            waited: seconds((second / 5) as f64),
            work: seconds(4.0 * second as f64),
            items: 50 * second,
            idle_cores: Some(seconds(4.0 * second as f64)),
            batches: 1 + second / 5,
            ..RunTotals::default()
        };
        tuner.update(RunTotals { work: seconds(tuner.threads as f64 * second as f64), ..seen });
        most = most.max(tuner.threads);
    }
    assert!(most <= 8 && tuner.proven() == 4, "{most}, {tuner:?}");
}

#[test]
fn no_threads_are_added_if_the_threads_wait_for_bytes_or_memory() {
    for (work, is_memory_full) in [(1.0, false), (4.0, true)] {
        let mut tuner = RunTuner::new(LIMITS, None);
        for second in 1..60_u32 {
            let time = seconds(f64::from(second));
            let seen = RunTotals {
                elapsed: time,
                waited: time,
                work: time.mul_f64(work),
                items: 100 * u64::from(second),
                batches: u64::from(second),
                late: u64::from(second),
                is_memory_full,
                ..RunTotals::default()
            };
            assert_eq!(tuner.update(seen), None);
        }
    }
}

#[test]
fn late_batches_at_a_sufficient_rate_raise_the_prefetch() {
    let run = |full: f64, late: u64, rested: f64| {
        let mut tuner = RunTuner::new(LIMITS, None);
        for second in 1..60_u32 {
            let time = seconds(f64::from(second));
            let seen = RunTotals {
                elapsed: time,
                waited: time.mul_f64(0.02),
                rested: time.mul_f64(rested),
                work: time * 2,
                full: time.mul_f64(full),
                items: 1000 * u64::from(second),
                batches: 10 * u64::from(second),
                late: late * u64::from(second),
                ..RunTotals::default()
            };
            tuner.update(seen);
        }
        tuner.choices()
    };
    assert_eq!(run(0.3, 1, 0.0), (4, 32));
    assert_eq!(run(0.3, 0, 0.0), (4, 2), "no batch was late");
    assert_eq!(run(0.0, 1, 0.0), (4, 2), "no batch was early: the rate is not sufficient");
    assert_eq!(run(0.3, 1, 0.5), (4, 2), "the trainer rested");
}

#[test]
fn short_windows_change_nothing() {
    let blocked = |seconds: u64, items: u64| {
        let elapsed = Duration::from_secs(seconds);
        RunTotals { elapsed, waited: elapsed, work: elapsed * 4, items, batches: 1, ..RunTotals::default() }
    };
    let change = |totals: &[RunTotals]| {
        let mut tuner = RunTuner::new(LIMITS, None);
        totals.iter().filter_map(|totals| tuner.update(*totals)).last()
    };
    let starting = RunTotals { batches: 0, ..blocked(1, 900) };
    assert_eq!(change(&[starting, blocked(2, 1800)]), None, "the window starts with the first batch");
    assert_eq!(change(&[blocked(1, 0), blocked(3, 31)]), None);
    assert_eq!(change(&[blocked(1, 0), blocked(3, 32)]), Some(Change::Blocked));
    assert_eq!(change(&[blocked(1, 0), blocked(60, 1)]), None);
    assert_eq!(change(&[blocked(1, 0), blocked(61, 1)]), Some(Change::Blocked));
    assert_eq!(change(&[blocked(1, 0), blocked(90, 0)]), None, "the run hangs");
}

#[test]
fn the_next_run_starts_without_the_trial_and_with_the_learned_patience() {
    let mut tuner = RunTuner::new(LIMITS, None);
    let mut model = Model { most: 100.0, ..Model::new(0.1, 10.0) };
    while tuner.trial.is_none() {
        model.continue_with(&mut tuner, 1);
    }
    assert_eq!((tuner.proven(), tuner.choices().0, tuner.patience()), (4, 8, None));
    model.continue_with(&mut tuner, 4);
    assert_eq!((tuner.proven(), tuner.patience()), (4, Some(8)));
    let mut next = RunTuner::new(LIMITS, tuner.patience());
    assert_eq!(model.continue_with(&mut next, 7), [4; 7]);
    tuner.bound_threads(3);
    assert_eq!(tuner.choices().0, 3);
}
