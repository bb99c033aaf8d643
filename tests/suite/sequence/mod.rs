//! A job has one sequence of samples, however it is divided among ranks. On any number of ranks, the same
//! samples are in the same batches. A stopped job resumes where it was, and no sample is repeated or lost.
//! This holds for any stack of stages, and with damage in some samples.

mod pipes;

use crate::support::shards::key;
use pipes::{Item, Pipe, pipes};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use shardstream::adapters::Batch;
use shardstream::index::Index;
use shardstream::loader::{Batches, Failures, LastBatch, LoaderBuilder, OnError};
use shardstream::prelude::*;
use shardstream::state::{Digest, Ledger, State};
use shardstream::store::Store;
use shardstream::{ErrorKind, Result};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// All cases choose from the same shards, which are written once: for each of 18 shard numbers, eight shards
/// with 0 to 7 samples.
const NUMBERS: usize = 18;
const SIZES: usize = 8;

struct Pool {
    home: tempfile::TempDir,
    /// The index entry of each shard.
    index: BTreeMap<PathBuf, shardstream::index::ShardIndex>,
}

static POOL: LazyLock<Pool> = LazyLock::new(|| {
    let home = tempfile::tempdir().unwrap();
    let mut paths = Vec::new();
    for number in 0..NUMBERS {
        for size in 0..SIZES {
            let path = shard(home.path(), number, size);
            let file = std::fs::File::create(&path).unwrap();
            let mut writer = shardstream::write::TarWriter::new(file);
            for sample in 0..size {
                let text = "x".repeat((number * 131 + sample * 977) % 1500);
                writer
                    .write(&Sample::new(key(number, sample)).with("cls", sample as i64).with("txt", text))
                    .unwrap();
            }
            writer.finish().unwrap();
            paths.push(path);
            paths.push(side(home.path(), number, size));
            pipes::beside(&side(home.path(), number, size), number, size);
            pipes::damaged(&damaged(home.path(), number, size), number, size);
        }
    }
    let shards: ShardList = paths.iter().map(|path| path.display().to_string()).collect();
    let index = Index::builder().build(&shards).unwrap();
    let index = index.iter().map(|shard| (PathBuf::from(shard.url()), shard.clone())).collect();
    Pool { home, index }
});

fn shard(home: &Path, number: usize, size: usize) -> PathBuf {
    home.join(format!("{number:02}-{size}.tar"))
}

/// The path of a shard with damage that its index does not know.
fn damaged(home: &Path, number: usize, size: usize) -> PathBuf {
    home.join(format!("{number:02}-{size}-damaged.tar"))
}

/// The path of a shard of the side dataset.
fn side(home: &Path, number: usize, size: usize) -> PathBuf {
    home.join(format!("{number:02}-{size}-side.tar"))
}

/// What the index contains.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Known {
    Nothing,
    Counts,
    Places,
}

/// A job; how it is divided among readers is given separately.
#[derive(Debug, Clone)]
struct Job {
    /// For each dataset, the sizes of its shards.
    sizes: Vec<Vec<usize>>,
    known: Known,
    streams: usize,
    shuffled: bool,
    /// Whether each stream keeps its shards in all epochs.
    kept: bool,
    resampled: bool,
    seed: u64,
    shuffle: usize,
    weights: Vec<u32>,
    /// The weight schedule: for each change, the number of its first item, and the weights from there on.
    schedule: Vec<(u64, Vec<u32>)>,
    passes: u64,
    rest: LastBatch,
    /// The stages of each dataset.
    pipes: Vec<Pipe>,
    endless: bool,
    epoch: u64,
}

/// How a job is divided among readers.
#[derive(Debug, Clone, Copy)]
struct ReaderLayout {
    ranks: usize,
    workers: usize,
    /// The batch size of each reader.
    batch: usize,
    threads: usize,
}

impl Job {
    fn loader(&self, layout: ReaderLayout, reader: usize) -> Loader<Batch<Item>> {
        let topology = Topology::new(reader % layout.ranks, layout.ranks).unwrap();
        let topology = topology.with_worker(reader / layout.ranks, layout.workers).unwrap();
        let parts = self.sizes.iter().enumerate().map(|(number, sizes)| {
            let pipe = &self.pipes[number];
            let home = POOL.home.path();
            let path = |(shard_number, size): (usize, &usize)| match self.known {
                Known::Nothing if pipe.damage.is_some_and(|every| shard_number % every == 0) => {
                    damaged(home, shard_number, *size)
                }
                _ => shard(home, shard_number, *size),
            };
            let paths: Vec<PathBuf> = sizes.iter().enumerate().map(path).collect();
            let shards: ShardList = paths.iter().map(|path| path.display().to_string()).collect();
            let builder = Dataset::builder(shards)
                .store(Store::default())
                .topology(topology)
                .streams(self.streams)
                .shuffle_shards(self.shuffled)
                .keep_shards(self.kept)
                .resample_shards(self.resampled)
                .seed(self.seed + number as u64);
            let index = || paths.iter().map(|path| POOL.index[path].clone());
            let builder = match self.known {
                Known::Nothing => builder,
                Known::Counts => builder.index(index().map(|shard| shard.counts()).collect()),
                Known::Places => builder.index(index().collect()),
            };
            let beside = sizes.iter().enumerate().map(|(number, size)| side(home, number, *size));
            let builder = match pipe.side(beside.collect(), |path| POOL.index[path].clone()) {
                Some(side) => builder.join(side),
                None => builder,
            };
            let loader = Loader::builder(builder.build().unwrap()).shuffle(self.shuffle);
            let loader = loader.weight(self.weights[number]).passes(self.passes).threads(layout.threads);
            pipe.stages(loader, number, self.seed)
        });
        let policy = OnError::skip(Failures::all()).in_a_row(100_000);
        let mix = Loader::mix(parts).batch(layout.batch).last_batch(self.rest).on_error(policy);
        let mix = mix.uneven_steps(true);
        let change = |mix: LoaderBuilder<Item>, (item, weights): &(u64, Vec<u32>)| {
            mix.weights_from(*item, weights.iter().copied().take(self.sizes.len()))
        };
        self.schedule.iter().fold(mix, change).build().unwrap()
    }

    fn begin(&self, loader: &Loader<Batch<Item>>) -> Batches<Batch<Item>> {
        if self.endless { loader.epochs(self.epoch) } else { loader.epoch(self.epoch) }
    }

    /// Whether the number of items of each stream is known in advance.
    fn lengths_known(&self) -> bool {
        self.known != Known::Nothing && !self.resampled && self.pipes.iter().all(Pipe::keeps_numbers)
    }

    /// Whether each sample becomes exactly one item.
    fn is_plain(&self) -> bool {
        self.pipes.iter().all(Pipe::is_plain)
    }
}

impl ReaderLayout {
    fn readers(self) -> usize {
        self.ranks * self.workers
    }
}

/// The batches of one reader, by the sequence number at which each ends.
type Taken = BTreeMap<u64, Vec<Item>>;

fn place(state: &State) -> u64 {
    serde_json::to_value(state).unwrap()["next_number"].as_u64().unwrap()
}

/// Takes batches up to this step, or to the end of the run.
fn take(batches: &mut Batches<Batch<Item>>, steps: u64) -> Result<Taken> {
    let mut taken = Taken::new();
    while batches.state().batches() < steps {
        let Some(batch) = batches.next().transpose()? else { break };
        taken.insert(place(batch.state().unwrap()), batch.into_valid());
    }
    Ok(taken)
}

/// The batches of all readers up to this step, from the start or from a state; and their states.
fn run(
    job: &Job,
    layout: ReaderLayout,
    from: Option<&State>,
    steps: u64,
) -> Result<(Vec<Taken>, Vec<State>)> {
    let (mut all, mut states) = (Vec::new(), Vec::new());
    for reader in 0..layout.readers() {
        let loader = job.loader(layout, reader);
        let mut batches = match from {
            Some(state) => loader.restore(state)?,
            None => job.begin(&loader),
        };
        all.push(take(&mut batches, steps)?);
        states.push(batches.state());
    }
    Ok((all, states))
}

/// The items of all readers, batch by batch.
fn global(all: &[Taken]) -> Taken {
    let mut global = Taken::new();
    for taken in all {
        for (end, items) in taken {
            global.entry(*end).or_default().extend(items.iter().cloned());
        }
    }
    global.values_mut().for_each(|items| items.sort_unstable());
    global.retain(|_, items| !items.is_empty());
    global
}

/// The items of one reader, in its order.
fn in_order(taken: &Taken) -> Vec<Item> {
    taken.values().flatten().cloned().collect()
}

/// For each item of `these`, removes one equal item from `items`: the first that is left.
fn without(items: Vec<Item>, these: impl Iterator<Item = Vec<Item>>) -> Vec<Item> {
    let mut gone: BTreeMap<Item, usize> = BTreeMap::new();
    these.flatten().for_each(|item| *gone.entry(item).or_default() += 1);
    let is_left = |item: &Item| match gone.get_mut(item) {
        Some(times) if *times > 0 => {
            *times -= 1;
            false
        }
        _ => true,
    };
    items.into_iter().filter(is_left).collect()
}

fn divisors(number: usize) -> Vec<usize> {
    (1..=number).filter(|divisor| number.is_multiple_of(*divisor)).collect()
}

fn jobs() -> impl Strategy<Value = Job> {
    let known = prop_oneof![Just(Known::Nothing), Just(Known::Counts), Just(Known::Places)];
    use LastBatch::{Drop, Keep, Pad, Repeat};
    let rest = prop_oneof![Just(Keep), Just(Drop), Just(Pad), Just(Repeat)];
    let sizes = prop::collection::vec(prop_oneof![1 => Just(0usize), 6 => 1usize..SIZES], 1..NUMBERS);
    let datasets = prop_oneof![
        4 => prop::collection::vec(sizes.clone(), 1..=1),
        1 => prop::collection::vec(sizes, 2..=3),
    ];
    let flags = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.1), prop::bool::weighted(0.3));
    let buffer = prop_oneof![1 => Just(0usize), 1 => 1usize..4, 3 => 2usize..40];
    let mix = (prop::collection::vec(1u32..4, 3..=3), schedules(), 1u64..3);
    let streams = any::<prop::sample::Index>();
    let numbers = (streams, any::<u32>(), 0u64..4);
    (datasets, known, rest, flags, buffer, mix, numbers, pipes()).prop_filter_map(
        "every stream needs a shard or a sample",
        |(
            sizes,
            known,
            rest,
            (shuffled, kept, resampled, endless),
            shuffle,
            (weights, schedule, passes),
            (streams, seed, epoch),
            mut pipes,
        )| {
            let most = |sizes: &Vec<usize>| match known {
                Known::Nothing => sizes.len(),
                _ => sizes.iter().sum(),
            };
            let most = sizes.iter().map(most).min()?.min(16);
            let streams = if most == 0 { return None } else { streams.index(most) + 1 };
            pipes.truncate(sizes.len());
            // `Repeat` needs the length of the epoch.
            let numbers = pipes.iter().all(Pipe::keeps_numbers);
            let repeatable = numbers && known != Known::Nothing && !resampled && !endless;
            let rest = if rest == Repeat && !repeatable { Keep } else { rest };
            // A stream without any sample would be an error.
            let empty = |sizes: &Vec<usize>| match known {
                Known::Nothing if !shuffled || kept => sizes.contains(&0),
                _ => sizes.iter().sum::<usize>() == 0,
            };
            let endless = endless && !sizes.iter().any(empty);
            let job = Job {
                sizes,
                known,
                streams,
                shuffled,
                kept: kept && !resampled,
                resampled,
                seed: u64::from(seed),
                shuffle,
                weights,
                schedule,
                passes,
                rest,
                pipes,
                endless,
                epoch,
            };
            Some(job)
        },
    )
}

/// Weight schedules. A weight may be 0, but the first dataset's may not.
fn schedules() -> impl Strategy<Value = Vec<(u64, Vec<u32>)>> {
    let weights = (1u32..4, 0u32..4, 0u32..4).prop_map(|(first, second, third)| vec![first, second, third]);
    let changes = prop::collection::btree_map(1u64..120, weights, 1..4);
    prop_oneof![1 => Just(Vec::new()), 2 => changes.prop_map(|changes| changes.into_iter().collect())]
}

/// A job, two reader layouts with the same global batch, and the number of batches after which the run with
/// the first layout stops.
fn cases_of_jobs() -> impl Strategy<Value = (Job, [ReaderLayout; 2], u64)> {
    let pick = any::<prop::sample::Index>;
    let threads = prop_oneof![15 => Just(0usize), 1 => 1usize..4];
    (jobs(), [(pick(), pick()), (pick(), pick())], 1usize..6, 0u64..25, threads).prop_map(
        |(job, picks, rows, stop, threads)| {
            let readers = picks.map(|(readers, _)| readers.get(&divisors(job.streams)).to_owned());
            let all = rows * least_common_multiple(readers[0], readers[1]);
            let layout = |number: usize| {
                let mut workers = divisors(readers[number]);
                workers.retain(|workers| *workers <= 8);
                let workers = *picks[number].1.get(&workers);
                ReaderLayout {
                    ranks: readers[number] / workers,
                    workers,
                    batch: all / readers[number],
                    threads,
                }
            };
            (job, [layout(0), layout(1)], stop)
        },
    )
}

fn least_common_multiple(a: usize, b: usize) -> usize {
    (1..).map(|n| n * a).find(|n| n.is_multiple_of(b)).unwrap()
}

/// For an endless job, this number of batches is compared.
const STEPS: u64 = 30;

fn holds(job: &Job, layouts: [ReaderLayout; 2], stop: u64) -> Result<(), TestCaseError> {
    let all = (layouts[0].batch * layouts[0].readers()) as u64;
    let one = ReaderLayout { ranks: 1, workers: 1, batch: all as usize, threads: 0 };
    let steps = if job.endless { STEPS } else { u64::MAX };
    let (whole, ends) = match run(job, one, None, steps) {
        Ok(whole) => whole,
        // All samples of a stream are skipped in every epoch.
        Err(error) if job.endless && !job.is_plain() && matches!(error.kind(), ErrorKind::NoShards(_)) => {
            return Ok(());
        }
        // All samples of a stream are skipped, so the stream has no sample that could fill or pad a batch.
        Err(error)
            if job.lengths_known() && !job.is_plain() && matches!(error.kind(), ErrorKind::NoShards(_)) =>
        {
            return Ok(());
        }
        Err(error) => panic!("{error}"),
    };
    let (found, first_ends) = run(job, layouts[0], None, steps).unwrap();
    let (expected, together) = (global(&whole), global(&found));
    let lengths_known = job.lengths_known();
    // In this case the ends of batches depend on the number of ranks. In all other cases they do not.
    let uneven = job.rest == LastBatch::Drop && !lengths_known && !job.endless;
    let total: usize = job.sizes.iter().flatten().sum::<usize>() * job.passes as usize;
    let digest = |states: &[State]| states.iter().map(State::digest).sum::<Digest>();
    let ledger = |states: &[State]| states.iter().map(State::ledger).sum::<Ledger>();

    // Both layouts have the same samples in the same batches. In the uneven case, only the batches before the
    // end of the first stream are compared.
    if uneven {
        let even = |taken: &Taken| (1..).take_while(|step| taken.contains_key(&(step * all))).count();
        let steps = found.iter().map(even).min().unwrap_or(0).min(even(&expected));
        for step in 1..=steps as u64 {
            prop_assert_eq!(&together[&(step * all)], &expected[&(step * all)]);
        }
    } else {
        prop_assert_eq!(&together, &expected);
        prop_assert_eq!(digest(&ends), digest(&first_ends));
        prop_assert_eq!(ledger(&ends), ledger(&first_ends));
    }

    // All readers take the same number of steps, which is known in advance.
    let counts: Vec<u64> = found.iter().map(|taken| taken.len() as u64).collect();
    if job.endless || lengths_known && job.rest != LastBatch::Keep {
        prop_assert!(counts.iter().all(|count| *count == counts[0]), "{:?}", counts);
    }
    if !job.endless && lengths_known && (job.is_plain() || job.rest != LastBatch::Keep) {
        for (reader, count) in counts.iter().enumerate() {
            prop_assert_eq!(job.loader(layouts[0], reader).steps(), Some(*count));
        }
    }

    if !job.resampled && !job.endless && job.is_plain() {
        once(job, &together, total, all)?;
    }
    let once_each = job.sizes.len() == 1 && job.passes == 1 && job.is_plain();
    if job.rest == LastBatch::Keep && lengths_known && !job.endless && once_each {
        let planned = job.loader(one, 0).datasets().next().unwrap().digest(job.epoch).unwrap();
        let seen = digest(&ends);
        prop_assert_eq!((planned.samples(), planned.content()), (seen.samples(), seen.content()));
    }

    // The job stops in the first layout and resumes in the second layout. Both runs together return the same
    // items as a job that does not stop.
    let (before, states) = run(job, layouts[0], None, stop.min(steps)).unwrap();
    let states: Vec<State> = states.iter().map(|state| state.to_string().parse().unwrap()).collect();
    // Readers are at different positions if empty batches were dropped, or if batches continue past the empty
    // slots of ended streams.
    let apart = states.iter().any(|state| place(state) != place(&states[0]));
    let merged = State::merge(states.clone()).unwrap();
    let merged: State = merged.to_string().parse().unwrap();
    let (after, last) = run(job, layouts[1], Some(&merged), steps).unwrap();
    let mut resumed = global(&before);
    for (end, items) in global(&after) {
        let batch = resumed.entry(end).or_default();
        prop_assert!(batch.is_empty() || uneven || apart, "a batch comes twice");
        batch.extend(items);
    }
    resumed.values_mut().for_each(|items| items.sort_unstable());
    if uneven {
        if !job.resampled && job.is_plain() {
            once(job, &resumed, total, all)?;
        }
    } else {
        // Some readers may have passed a batch before the stop, while others had not. Such a batch is put
        // together from items before the stop and items after the stop.
        prop_assert_eq!(&resumed, &expected);
        prop_assert_eq!(digest(&last), digest(&ends));
        prop_assert_eq!(ledger(&last), ledger(&ends));
    }

    // After the stop, one process reads the rest of the sequence in order.
    if !job.resampled {
        let sequence = Job { rest: if uneven { LastBatch::Keep } else { job.rest }, ..job.clone() };
        let (sequence, _) = run(&sequence, one, None, steps).unwrap();
        let whole = in_order(&sequence[0]);
        let different = whole.iter().collect::<std::collections::BTreeSet<_>>().len() == whole.len();
        let left = without(whole, before.iter().map(in_order));
        let (alone, _) = run(job, one, Some(&merged), steps).unwrap();
        let alone = in_order(&alone[0]);
        if (uneven || apart) && !different {
            // Several items may be equal, so it is unknown which of the equal items were read before the
            // stop.
        } else if uneven {
            prop_assert!(left.starts_with(&alone) && left.len() < alone.len() + all as usize);
        } else {
            prop_assert_eq!(&alone, &left);
        }
    }

    // Skipping steps without reading gives the same remaining batches.
    if lengths_known && job.is_plain() {
        skips(job, layouts, (&merged, stop.min(steps)), (&whole[0], digest(&ends)))?;
    }

    // The job also resumes in the first layout. Each reader resumes twice: from its own state, and from the
    // merged state.
    if stop.is_multiple_of(3) {
        for (reader, state) in states.iter().enumerate() {
            let mut batches = job.loader(layouts[0], reader).restore(state).unwrap();
            let mut resumed = before[reader].clone();
            resumed.extend(take(&mut batches, steps).unwrap());
            prop_assert_eq!(&resumed, &found[reader]);
            prop_assert_eq!(batches.state().digest(), first_ends[reader].digest());
            let mut batches = job.loader(layouts[0], reader).restore(&merged).unwrap();
            let rest = take(&mut batches, steps).unwrap();
            let all: Vec<_> = before[reader].values().chain(rest.values()).collect();
            prop_assert_eq!(all, found[reader].values().collect::<Vec<_>>());
            prop_assert_eq!(batches.state().digest(), first_ends[reader].digest());
        }
    }
    Ok(())
}

/// Skips steps after a state, and resumes with the second layout.
fn skips(
    job: &Job,
    layouts: [ReaderLayout; 2],
    (state, taken): (&State, u64),
    (whole, all): (&Taken, Digest),
) -> Result<(), TestCaseError> {
    // Sequence numbers at which batches end. Some batches may be padding only.
    let steps: Vec<u64> = whole.keys().copied().collect();
    let left = steps.len() as u64 - taken.min(steps.len() as u64);
    let keeps = job.rest == LastBatch::Keep && !job.endless;
    for skip in [1, left / 2, left.saturating_sub(1)] {
        if skip == 0 || skip > left {
            continue;
        }
        let until = if job.endless { STEPS } else { u64::MAX };
        // If empty batches are left out, readers have different numbers of steps.
        if keeps {
            let (unskipped, _) = run(job, layouts[1], Some(state), until).unwrap();
            let skip = skip.min(unskipped.iter().map(|taken| taken.len() as u64).max().unwrap_or(0));
            let (after, _) = run(job, layouts[1], Some(&state.clone().skip(skip)), until).unwrap();
            for (after, unskipped) in after.iter().zip(&unskipped) {
                prop_assert!(after.iter().eq(unskipped.iter().skip(skip as usize)));
            }
            continue;
        }
        let state: State = state.clone().skip(skip).to_string().parse().unwrap();
        let (after, states) = run(job, layouts[1], Some(&state), until).unwrap();
        let behind = steps[(taken + skip - 1) as usize];
        let mut rest = global(std::slice::from_ref(whole));
        rest.retain(|end, _| *end > behind);
        prop_assert_eq!(global(&after), rest);
        let digest: Digest = states.iter().map(State::digest).sum();
        prop_assert_eq!(digest.samples() + digest.skipped(), all.samples());
    }
    Ok(())
}

/// Fails unless each sample is read once in each pass. With `LastBatch::Drop`, samples may be missing: fewer
/// than one batch if the job has one dataset and one pass. With `LastBatch::Repeat`, samples may be repeated.
fn once(job: &Job, together: &Taken, total: usize, all: u64) -> Result<(), TestCaseError> {
    let mut seen: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (key, text, _) in together.values().flatten() {
        *seen.entry((key, text)).or_default() += 1;
    }
    let count = seen.values().sum::<u64>() as usize;
    use LastBatch::{Drop, Repeat};
    match job.rest {
        Drop if job.passes > 1 || job.sizes.len() > 1 => prop_assert!(count <= total),
        Drop => prop_assert!(count <= total && count + all as usize > total, "{} of {}", count, total),
        // `Repeat` fills empty slots with repeated samples. Their number is not checked.
        Repeat if job.sizes.len() > 1 => prop_assert!(count >= total),
        Repeat => prop_assert!(count >= total, "{} of {}", count, total),
        _ => prop_assert_eq!(count, total),
    }
    let most = if job.rest == Repeat { u64::MAX } else { job.passes };
    prop_assert!(seen.values().all(|times| *times <= most), "{:?}", seen);
    prop_assert!(job.rest == Drop || seen.len() == job.sizes.iter().flatten().sum::<usize>());
    Ok(())
}

/// Number of cases, unless `SHARDSTREAM_CASES` sets another number.
const CASES: u32 = 1000;
/// The cases are divided among this number of tests.
const RUNS: u32 = 2;

/// Tries one share of the cases. Each run has another seed; a failure prints the seed and the smallest
/// failing job.
fn try_jobs(run: u32) {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let seed = number("SHARDSTREAM_SEED").unwrap_or_else(|| RandomState::new().hash_one(run));
    let cases = number("SHARDSTREAM_CASES").map_or(CASES, |cases| cases as u32) / RUNS;
    println!("{cases} cases, SHARDSTREAM_SEED={seed}");
    let seed_of_run = seed.wrapping_add(u64::from(run));
    let config = Config {
        cases,
        rng_seed: RngSeed::Fixed(seed_of_run),
        failure_persistence: None,
        ..Config::default()
    };
    let result =
        TestRunner::new(config).run(&cases_of_jobs(), |(job, layouts, stop)| holds(&job, layouts, stop));
    if let Err(error) = result {
        panic!("with SHARDSTREAM_SEED={seed}: {error}");
    }
}

#[test]
fn any_ranks_stopped_anywhere_read_one_sequence() {
    try_jobs(0);
}

/// The second half of the cases, which the test harness can run on another core.
#[test]
fn any_ranks_stopped_anywhere_read_one_sequence_in_more_cases() {
    try_jobs(1);
}
