//! Bytes per second of copies to a GPU, from batches in ordinary and in pinned memory.
//!
//! `cargo bench -p shardstream-cuda --bench upload -- [--copies] [--jpeg PATTERN] [--threads N]` prints
//! Markdown tables:
//!
//! - copies of batches of 256 pictures of 224 x 224 x 3, as `u8` and as `bf16`;
//! - the time to pin and unpin a batch's memory;
//! - loaders that copy their batches to the device. They read shards of raw pixels, which the benchmark
//!   writes, and the shards of `--jpeg`. The samples in the shards of `--jpeg` have the fields `jpg` and
//!   `cls`.

use clap::Parser;
use cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use rustix::time::{ClockId, clock_gettime};
use shardstream::collate::TensorBatch;
use shardstream::half::bf16;
use shardstream::prelude::*;
use shardstream_cuda::{CudaDevice, InFlight, PinnedMemory};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

const BATCH: usize = 256;
const PIXELS: usize = 224 * 224 * 3;
/// Copies alternate between this many batches: together they are larger than the CPU's caches.
const BATCHES: usize = 4;
const COPIES: usize = 40;
const ROUNDS: usize = 3;
/// Maximum number of copies in flight, after which the loop waits for the oldest copy.
const AHEAD: usize = 2;
/// Shards of raw pixels.
const SHARDS: usize = 16;
const SAMPLES_PER_SHARD: usize = 256;

#[derive(Parser)]
struct Options {
    /// Only measure copies, without loaders.
    #[arg(long)]
    copies: bool,
    /// Shards of JPEG files.
    #[arg(long)]
    jpeg: Option<String>,
    /// Threads of the loaders.
    #[arg(long, default_value_t = 14)]
    threads: usize,
    /// Seconds that each loader runs.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Folder for the shards of raw pixels (0.6 GB).
    #[arg(long, default_value = "/dev/shm")]
    scratch: std::path::PathBuf,
    /// Cargo passes this flag to benchmarks.
    #[arg(long)]
    bench: bool,
}

/// The CPU time of this process or thread, depending on the clock, in seconds.
fn cpu(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_secs_f64()
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

struct Gpu {
    device: CudaDevice,
    stream: Arc<CudaStream>,
}

/// One number per round of copies.
#[derive(Default)]
struct Rates {
    gb_per_second: Vec<f64>,
    /// CPU seconds of the thread that copies.
    cpu_per_gb: Vec<f64>,
}

impl Gpu {
    fn open() -> Outcome<Self> {
        let device = CudaDevice::open(0)?;
        let stream = CudaContext::new(0)?.new_stream()?;
        Ok(Gpu { device, stream })
    }

    fn buffer(&self, bytes: usize) -> Outcome<CudaSlice<u8>> {
        Ok(self.stream.alloc_zeros(bytes)?)
    }

    /// Copies the sources in turn, and waits for the last copy.
    fn copy(&self, sources: &[&[u8]], to: &mut CudaSlice<u8>, rates: &mut Rates) -> Outcome<()> {
        self.stream.synchronize()?;
        let (begun, used) = (Instant::now(), cpu(ClockId::ThreadCPUTime));
        for source in sources.iter().cycle().take(COPIES) {
            self.stream.memcpy_htod(*source, to)?;
        }
        // The CPU time is measured before `synchronize`, which may spin; a trainer does not spin, but waits
        // for an event.
        let used = cpu(ClockId::ThreadCPUTime) - used;
        self.stream.synchronize()?;
        let gigabytes = (COPIES * sources[0].len()) as f64 / 1e9;
        rates.gb_per_second.push(gigabytes / begun.elapsed().as_secs_f64());
        rates.cpu_per_gb.push(used / gigabytes);
        Ok(())
    }
}

/// A column with the pixels of the field `bin`, unchanged.
fn raw(bytes_per_number: usize) -> Columns {
    if bytes_per_number == 1 {
        Columns::new().with_fn("image", [224, 224, 3], |sample: &Sample, pixels: &mut [u8]| {
            let bytes = sample.field("bin")?.as_bytes().map_or(&[][..], |bytes| &bytes[..]);
            pixels.copy_from_slice(&bytes[..pixels.len()]);
            Ok(())
        })
    } else {
        Columns::new().with_fn("image", [224, 224, 3], |sample: &Sample, pixels: &mut [bf16]| {
            let bytes = sample.field("bin")?.as_bytes().map_or(&[][..], |bytes| &bytes[..]);
            pixels.iter_mut().zip(bytes).for_each(|(pixel, byte)| *pixel = bf16::from_f32(f32::from(*byte)));
            Ok(())
        })
    }
}

fn noise(number: usize) -> Vec<u8> {
    let mut state = number as u64 * 2 + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..PIXELS).map(|_| next()).collect()
}

fn copies(gpu: &Gpu) -> Outcome<()> {
    println!("## Copies of batches of {BATCH} x 224 x 224 x 3\n");
    println!("| type | MB | from | GB/s | CPU ms per GB, thread that copies |\n|---|--:|---|--:|--:|");
    let pixels = noise(7);
    let samples = || (0..BATCH).map(|number| Sample::new(format!("{number}")).with("bin", &pixels[..]));
    for (name, size) in [("u8", 1), ("bf16", 2)] {
        let ordinary = raw(size);
        let pinned = raw(size).memory(Arc::new(PinnedMemory::new(&gpu.device)));
        let batches = |columns: &Columns| {
            (0..BATCHES).map(|_| columns.collate(samples())).collect::<shardstream::Result<Vec<_>>>()
        };
        let (ordinary, pinned) = (batches(&ordinary)?, batches(&pinned)?);
        let bytes = ordinary[0]["image"].size();
        // A large `Vec` is not aligned to a page, because the allocator puts a header before it.
        let vectors: Vec<Vec<u8>> = ordinary.iter().map(|batch| batch["image"].as_bytes().to_vec()).collect();
        let vectors: Vec<&[u8]> = vectors.iter().map(Vec::as_slice).collect();
        let ordinary: Vec<&[u8]> = ordinary.iter().map(|batch| batch["image"].as_bytes()).collect();
        let pinned: Vec<&[u8]> = pinned.iter().map(|batch| batch["image"].as_bytes()).collect();
        let kinds = [("`Vec`", vectors), ("batch, ordinary", ordinary), ("batch, pinned", pinned)];
        let mut to = gpu.buffer(bytes)?;
        let mut rates: Vec<Rates> = kinds.iter().map(|_| Rates::default()).collect();
        for _ in 0..ROUNDS {
            for ((_, sources), rates) in kinds.iter().zip(&mut rates) {
                gpu.copy(sources, &mut to, rates)?;
            }
        }
        for ((kind, _), rates) in kinds.iter().zip(rates) {
            let (rate, cpu) = (median(rates.gb_per_second), 1000.0 * median(rates.cpu_per_gb));
            println!("| {name} | {:.1} | {kind} | {rate:.1} | {cpu:.2} |", bytes as f64 / 1e6);
        }
    }
    Ok(())
}

/// Measures how long it takes to collate a batch into new ordinary memory, to collate it into new pinned
/// memory, and to unpin the memory.
fn pinning(gpu: &Gpu) -> Outcome<()> {
    let sample = Sample::new("0").with("bin", noise(1));
    let samples = || (0..BATCH).map(|_| sample.clone());
    let (mut plain, mut pinned, mut unpinned) = (vec![], vec![], vec![]);
    for _ in 0..5 {
        let begun = Instant::now();
        drop(raw(1).collate(samples())?);
        plain.push(begun.elapsed().as_secs_f64());
        let columns = raw(1).memory(Arc::new(PinnedMemory::new(&gpu.device)));
        let begun = Instant::now();
        let batch = columns.collate(samples())?;
        pinned.push(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        drop(batch);
        unpinned.push(begun.elapsed().as_secs_f64());
    }
    let [plain, pinned, unpinned] = [plain, pinned, unpinned].map(|times| 1000.0 * median(times));
    println!(
        "\nA batch of {:.1} MB in new memory: {plain:.1} ms to make in ordinary memory, {pinned:.1} ms in \
         pinned memory, {unpinned:.1} ms to unpin.\n",
        (BATCH * PIXELS) as f64 / 1e6
    );
    Ok(())
}

/// Whether a loader's batches are copied to the GPU, and from which kind of memory.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    DryRun,
    Ordinary,
    Pinned,
}

/// Figures of a run of a loader.
struct Run {
    /// Samples per second.
    rate: f64,
    /// CPU seconds per 1,000 samples.
    cpu: f64,
    /// Milliseconds per batch that the trainer's thread spends in the copy call.
    copying: f64,
    /// The share of the steps that waited less than 100 µs for their batch.
    ready: f64,
}

fn run(gpu: &Gpu, pattern: &str, columns: Columns, kind: Kind, options: &Options) -> Outcome<Run> {
    let columns = match kind {
        Kind::Pinned => columns.memory(Arc::new(PinnedMemory::new(&gpu.device))),
        _ => columns,
    };
    let dataset = Dataset::builder(pattern).shuffle_shards(true).build()?;
    let loader = Loader::builder(dataset).threads(options.threads).batch(BATCH).collate(columns).build()?;
    let mut batches = loader.epochs(0);
    // The first batches are not measured: the loader allocates memory for them.
    let mut bytes = 0;
    for batch in batches.by_ref().take(8) {
        bytes = batch?["image"].size();
    }
    let mut buffers = (0..=AHEAD).map(|_| gpu.buffer(bytes)).collect::<Outcome<Vec<_>>>()?;
    let mut ahead: std::collections::VecDeque<InFlight<TensorBatch>> = Default::default();
    let (begun, used) = (Instant::now(), cpu(ClockId::ProcessCPUTime));
    let (mut count, mut copying, mut ready) = (0, 0.0, 0);
    while begun.elapsed().as_secs_f64() < options.seconds {
        let wait_start = Instant::now();
        let batch = batches.next().ok_or("no batch")??;
        ready += usize::from(wait_start.elapsed() < Duration::from_micros(100));
        count += 1;
        if kind == Kind::DryRun {
            continue;
        }
        let copy_start = Instant::now();
        gpu.stream.memcpy_htod(batch["image"].as_bytes(), &mut buffers[count % (AHEAD + 1)])?;
        copying += copy_start.elapsed().as_secs_f64();
        // SAFETY: the stream exists and belongs to the primary context.
        #[allow(unsafe_code, reason = "a stream of another library")]
        ahead.push_back(unsafe { gpu.device.in_flight(gpu.stream.cu_stream().cast(), batch)? });
        if ahead.len() > AHEAD
            && let Some(oldest) = ahead.pop_front()
        {
            drop(oldest.wait()?);
        }
    }
    drop(ahead);
    let (wall, used) = (begun.elapsed().as_secs_f64(), cpu(ClockId::ProcessCPUTime) - used);
    let samples = (count * BATCH) as f64;
    Ok(Run {
        rate: samples / wall,
        cpu: 1000.0 * used / samples,
        copying: 1000.0 * copying / count as f64,
        ready: ready as f64 / count as f64,
    })
}

fn loaders(gpu: &Gpu, options: &Options) -> Outcome<()> {
    let directory = tempfile::tempdir_in(&options.scratch)?;
    let mut writer = ShardWriter::builder(format!("{}/%02d.tar", directory.path().display()))
        .max_count(SAMPLES_PER_SHARD as u64)
        .build()?;
    let pictures: Vec<Vec<u8>> = (0..16).map(noise).collect();
    for number in 0..SHARDS * SAMPLES_PER_SHARD {
        writer.write(&Sample::new(format!("{number:06}")).with("bin", &pictures[number % 16][..]))?;
    }
    writer.finish()?;
    let crop = RandomResizedCrop::new(224)?;
    let picture = || -> Outcome<ImageColumn> {
        Ok(ImageColumn::new("jpg", 224).then(crop.clone()).then(RandomHorizontalFlip::new(0.5)?))
    };
    let jpeg = Columns::new().with("image", picture()?);
    let normalised = picture()?.dtype(DType::BF16).normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
    let normalised = Columns::new().with("image", normalised);
    let pixels = format!("{}/*.tar", directory.path().display());
    let mut tasks = vec![("pixels, `u8`", pixels.as_str(), raw(1))];
    if let Some(pattern) = &options.jpeg {
        tasks.push(("JPEG, `u8`", pattern, jpeg));
        tasks.push(("JPEG, normalised `bf16`", pattern, normalised));
    }
    println!("## Loaders of {} threads, batches of {BATCH}, {AHEAD} copied ahead\n", options.threads);
    println!(
        "| shards | batches | samples/s | GB/s | CPU s per 1,000 | ms per batch in the copy call | ready |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|");
    let kinds =
        [(Kind::DryRun, "not copied"), (Kind::Ordinary, "ordinary memory"), (Kind::Pinned, "pinned memory")];
    for (task, pattern, columns) in tasks {
        let mut runs: Vec<Vec<Run>> = kinds.iter().map(|_| Vec::new()).collect();
        for _ in 0..ROUNDS {
            for ((kind, _), runs) in kinds.iter().zip(&mut runs) {
                runs.push(run(gpu, pattern, columns.clone(), *kind, options)?);
            }
        }
        let size = if task.contains("bf16") { 2 * PIXELS } else { PIXELS } as f64;
        for ((_, name), runs) in kinds.iter().zip(runs) {
            let figure = |of: fn(&Run) -> f64| median(runs.iter().map(of).collect());
            let (rate, ready) = (figure(|run| run.rate), 100.0 * figure(|run| run.ready));
            println!(
                "| {task} | {name} | {rate:.0} | {:.2} | {:.3} | {:.2} | {ready:.0} % |",
                rate * size / 1e9,
                figure(|run| run.cpu),
                figure(|run| run.copying),
            );
        }
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let options = Options::parse();
    // `cargo test` runs this program too, without the flag `--bench`.
    if !options.bench {
        return Ok(());
    }
    let gpu = Gpu::open()?;
    copies(&gpu)?;
    pinning(&gpu)?;
    if options.copies { Ok(()) } else { loaders(&gpu, &options) }
}
