//! The numbers of threads and of prefetched batches that a loader chooses, compared with fixed numbers.
//!
//! `cargo bench --bench tuning`. Each loader runs for 24 seconds, and the loaders of a table run in turn,
//! twice. One rate is that of the last 6 seconds. The other is that of all 24 seconds, which include the time
//! in which the loader chooses its numbers. The CPU time is that of the whole process. The benchmark takes 22
//! minutes. `cargo bench --bench tuning -- --quick waits` runs only the cases with `waits` in their names,
//! and runs each case once.

use rustix::time::{ClockId, clock_gettime};
use shardstream::collate::{Columns, Scalar};
use shardstream::loader::{LoaderBuilder, Report};
use shardstream::prelude::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const SHARDS: usize = 8;
const SAMPLES: usize = 2000;
const BATCH: usize = 16;
const LOADING: Duration = Duration::from_secs(24);
const LAST: Duration = Duration::from_secs(6);

/// The CPU time of this thread or process.
fn cpu_time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Consumes this much CPU time.
fn compute(micros: u64) {
    let start = cpu_time(ClockId::ThreadCPUTime);
    while cpu_time(ClockId::ThreadCPUTime) - start < Duration::from_micros(micros) {
        std::hint::spin_loop();
    }
}

fn wait(micros: u64) {
    thread::sleep(Duration::from_micros(micros));
}

static SERVICE: Mutex<()> = Mutex::new(());
static CALLS: AtomicU64 = AtomicU64::new(0);

/// The work of a stage per sample, and the duration of a trainer's step.
struct Case {
    name: &'static str,
    stage: fn(),
    step: Duration,
}

/// Fixed numbers; `None` for a number that the loader chooses.
#[derive(Clone, Copy)]
struct Choice {
    threads: Option<usize>,
    prefetch: Option<usize>,
}

impl Choice {
    fn name(self) -> String {
        match self {
            Choice { threads: Some(threads), prefetch: None } => format!("{threads} threads"),
            Choice { prefetch: Some(prefetch), .. } => format!("{prefetch} batches ahead"),
            Choice { .. } => "chosen".into(),
        }
    }
}

struct Measured {
    /// Items per second of the whole run.
    all: f64,
    /// Items per second in the last seconds of the run.
    last: f64,
    /// CPU microseconds per item.
    cpu: f64,
    report: Report,
    /// Data readiness in the last seconds of the run.
    readiness: f64,
}

fn run(dataset: &Dataset, case: &Case, choice: Choice) -> Measured {
    let stage = case.stage;
    let columns = Columns::new().with("cls", Scalar::<i64>::new("cls"));
    let mut builder: LoaderBuilder<Sample> = Loader::builder(dataset.clone()).batch(BATCH);
    builder = builder.map(move |sample| {
        stage();
        Ok(sample)
    });
    if let Some(threads) = choice.threads {
        builder = builder.threads(threads);
    }
    if let Some(prefetch) = choice.prefetch {
        builder = builder.prefetch(prefetch);
    }
    let loader = builder.collate(columns).build().unwrap();
    let mut batches = loader.epochs(0);
    let (start, cpu) = (Instant::now(), cpu_time(ClockId::ProcessCPUTime));
    let mut before_last: Option<(Duration, Report)> = None;
    while start.elapsed() < LOADING {
        batches.next().unwrap().unwrap();
        if !case.step.is_zero() {
            thread::sleep(case.step);
        }
        if before_last.is_none() && start.elapsed() > LOADING - LAST {
            before_last = Some((start.elapsed(), batches.report()));
        }
    }
    let (elapsed, report) = (start.elapsed(), batches.report());
    let (last_start, before) = before_last.unwrap();
    let last = report.clone().since(&before);
    Measured {
        all: report.items as f64 / elapsed.as_secs_f64(),
        last: last.items as f64 / (elapsed - last_start).as_secs_f64(),
        cpu: (cpu_time(ClockId::ProcessCPUTime) - cpu).as_secs_f64() * 1e6 / report.items as f64,
        readiness: last.readiness(),
        report,
    }
}

fn table(dataset: &Dataset, case: &Case, choices: &[Choice], rounds: usize) {
    println!("\n{}\n", case.name);
    println!(
        "| | threads at the end | batches ahead at the end | items/s | items/s at the end | readiness at the \
         end | CPU µs/item |"
    );
    println!("|---|---|---|---|---|---|---|");
    for _ in 0..rounds {
        for choice in choices {
            let Measured { all, last, cpu, report, readiness } = run(dataset, case, *choice);
            let (threads, prefetch) = (report.times.threads, report.queues.prefetch);
            let (name, readiness) = (choice.name(), 100.0 * readiness);
            println!(
                "| {name} | {threads} | {prefetch} | {all:.0} | {last:.0} | {readiness:.1} % | {cpu:.0} |"
            );
        }
    }
}

fn main() {
    let rounds = if std::env::args().any(|argument| argument == "--quick") { 1 } else { 2 };
    let directory = tempfile::tempdir().unwrap();
    let pattern = format!("{}/%d.tar", directory.path().display());
    let mut writer = ShardWriter::builder(&pattern).max_count(SAMPLES as u64).build().unwrap();
    for number in 0..SHARDS * SAMPLES {
        writer.write(&Sample::new(format!("{number:06}")).with("cls", number as i64)).unwrap();
    }
    let shards = ShardList::from_urls(writer.finish().unwrap().into_iter().map(|shard| shard.url));
    let dataset = Dataset::builder(shards).streams(8).build().unwrap();
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let table = |case: &Case, choices: &[Choice]| {
        if words.iter().all(|word| case.name.contains(word)) {
            table(&dataset, case, choices, rounds);
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    println!("{cores} cores");

    let threads = |threads| Choice { threads: Some(threads), prefetch: None };
    let chosen = Choice { threads: None, prefetch: None };
    let choices = [threads(cores), threads(4 * cores), threads(16 * cores), chosen];
    let cases: [(&'static str, fn()); 5] = [
        ("The stage computes for 1 ms", || compute(1000)),
        ("The stage waits for 5 ms", || wait(5000)),
        ("The stage waits for 50 ms", || wait(50_000)),
        ("The stage computes for 0.5 ms and waits for 2 ms", || {
            compute(500);
            wait(2000);
        }),
        ("The stage calls a service that takes 5 ms, one call at a time", || {
            let _permit = SERVICE.lock().unwrap();
            wait(5000);
        }),
    ];
    for (name, stage) in cases {
        table(&Case { name, stage, step: Duration::ZERO }, &choices);
    }

    let prefetch = |prefetch| Choice { threads: None, prefetch: Some(prefetch) };
    let choices = [prefetch(2), prefetch(8), prefetch(32), chosen];
    let uneven = || match CALLS.fetch_add(1, Relaxed) % 1600 {
        0 => wait(400_000),
        _ => wait(500),
    };
    let name = "One sample in 1600 takes 400 ms, the others 0.5 ms; the trainer takes 20 ms for a step";
    table(&Case { name, stage: uneven, step: Duration::from_millis(20) }, &choices);
    let name = "The same without slow samples";
    table(&Case { name, stage: || wait(500), step: Duration::from_millis(20) }, &choices);
}
