//! A small trainer to learn from: tar shards → loader → feed → step → checkpoint → resume.
//!
//! Read the code from `run` down. It trains a network with one hidden layer to distinguish horizontal
//! stripes, vertical stripes and checkerboards. The step is a StableHLO program, `step.mlir`, which a PJRT
//! plugin compiles for its device. The device is the CPU, or the device of the plugin in `PJRT_PLUGIN`.

use shardstream::codec::Array;
use shardstream::collate::TensorBatch;
use shardstream::loader::Batches;
use shardstream::prelude::*;
use shardstream::{Error, Rng};
use shardstream_pjrt::{
    Buffer, Client, CompileOptions, Executable, PjrtError, Plugin, Signature, Spec, fetch,
};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Any error ends the program with its message.
type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// The step that the device runs. Its shapes match the constants below.
const PROGRAM: &str = include_str!("step.mlir");

/// Height and width of a picture.
const SIZE: usize = 16;
/// Pictures per step.
const BATCH: usize = 64;
/// Number of classes: horizontal stripes, vertical stripes, checkerboard.
const CLASSES: usize = 3;
/// Name and shape of each array of weights, in the order of the program's arguments.
const WEIGHTS: [(&str, &[usize]); 4] =
    [("w1", &[SIZE * SIZE * 3, 64]), ("b1", &[64]), ("w2", &[64, CLASSES]), ("b2", &[CLASSES])];

/// The seed of the initial weights and of the order of the samples.
const SEED: u64 = 1;
/// Number of steps between two checkpoints.
const CHECKPOINT_STEPS: u64 = 50;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    // train_pjrt [STEPS [DIRECTORY]]
    let mut arguments = std::env::args().skip(1);
    let steps: u64 = arguments.next().map_or(Ok(200), |steps| steps.parse())?;
    let dir = PathBuf::from(arguments.next().unwrap_or("target/train_pjrt".into()));

    let shards = write_shards(&dir.join("data"))?;
    let loader = open_loader(&shards)?;

    // The newest checkpoint of an earlier run, or the start of a new training.
    let start = match newest_checkpoint(&dir)? {
        Some(path) => {
            let checkpoint = Checkpoint::load(&path)?;
            println!("resumed from {} after step {}", path.display(), checkpoint.state.batches());
            checkpoint
        }
        None => Checkpoint { weights: initial_weights(), state: loader.epochs(0).state() },
    };
    let end = start.state.batches() + steps;
    // The batches after the state: the rest of the current epoch, then all later epochs. `start` begins to
    // read the first batches, while the step is compiled.
    let mut batches = loader.restore(&start.state)?;
    batches.start();

    // If the directory cannot be written, the program fails now, and not at the first checkpoint.
    let writable = dir.join("writable");
    std::fs::write(&writable, b"")
        .and_then(|()| std::fs::remove_file(&writable))
        .map_err(|error| format!("no checkpoint can be written to {}: {error}", dir.display()))?;

    let client = open_device()?;
    let step = compile(&client)?;
    train(batches, &client, &step, start.weights, end, &dir)
}

// ---- shards ----

/// Writes 1024 pictures into four shards, unless the shards exist. Returns the pattern of their names.
fn write_shards(dir: &Path) -> Result<String> {
    let pattern = format!("{}/train-%06d.tar", dir.display());
    if !dir.join("train-000003.tar").exists() {
        // A shard gets its final name when it is complete, so an interrupted run leaves no partial shard.
        let mut writer = ShardWriter::builder(&pattern).max_count(256).build()?;
        for number in 0..1024 {
            let class = number % CLASSES as u64;
            let sample = Sample::new(format!("{number:06}"));
            writer.write(&sample.with("png", picture(class, number)?.to_png()?).with("cls", class as i64))?;
        }
        writer.finish()?;
    }
    Ok(format!("{}/train-{{000000..000003}}.tar", dir.display()))
}

/// Draws stripes or squares of random width, position and colour, with noise. The class does not follow from
/// any single pixel.
fn picture(class: u64, number: u64) -> Result<Image> {
    let mut rng = Rng::new(7, class, number);
    let (width, right, down) = (2 + rng.below(3), rng.below(16), rng.below(16));
    let colours = [0, 1].map(|_| [0; 3].map(|_| 40 + rng.below(160)));
    let mut pixels = Vec::with_capacity(SIZE * SIZE * 3);
    for y in 0..SIZE as u64 {
        for x in 0..SIZE as u64 {
            let (column, row) = ((x + right) / width, (y + down) / width);
            let stripe = [row, column, row + column][class as usize] % 2;
            pixels.extend(colours[stripe as usize].map(|value| (value + rng.below(40)) as u8));
        }
    }
    Ok(Image::new(ImageMode::Rgb8, SIZE as u32, pixels)?)
}

// ---- loader ----

/// A loader that reads the shards in another order in each epoch, and decodes on threads. Its batches have
/// two tensors: pictures, u8 of (64, 16, 16, 3), and classes, i32 of (64).
fn open_loader(shards: &str) -> Result<Loader<TensorBatch>> {
    let dataset = Dataset::builder(shards).shuffle_shards(true).streams(4).seed(SEED).build()?;
    let columns = Columns::new()
        .with("image", ImageColumn::new("png", SIZE as u32))
        .with("label", Scalar::<i32>::new("cls"));
    // The loader returns only full batches, since the program is compiled for one shape.
    Ok(Loader::builder(dataset)
        .shuffle(200)
        .collate(columns)
        .batch(BATCH)
        .last_batch(LastBatch::Drop)
        .build()?)
}

// ---- device ----

/// Opens the devices of the plugin in `PJRT_PLUGIN`, such as `libtpu.so`. Without that variable, opens the
/// devices of XLA's plugin for the CPU, which is downloaded the first time.
fn open_device() -> Result<Client> {
    let plugin = match std::env::var_os("PJRT_PLUGIN") {
        Some(path) => PathBuf::from(path),
        None => fetch::cpu_plugin(&|line| eprintln!("{line}"))?,
    };
    let client = Plugin::load(plugin)?.client(&[])?;
    println!("training on the platform {}", client.platform()?);
    Ok(client)
}

/// Compiles the step for one device. The weights are its state, which it consumes; pictures and classes are
/// its inputs.
fn compile(client: &Client) -> Result<Executable, PjrtError> {
    let signature = Signature {
        state: WEIGHTS.iter().map(|(_, shape)| Spec::of::<f32>(&dims(shape))).collect(),
        inputs: vec![Spec::of::<u8>(&dims(&[BATCH, SIZE, SIZE, 3])), Spec::of::<i32>(&dims(&[BATCH]))],
    };
    client.compile(PROGRAM.as_bytes(), signature, &CompileOptions::default())
}

fn dims(shape: &[usize]) -> Vec<i64> {
    shape.iter().map(|length| *length as i64).collect()
}

/// The initial weights: random numbers, from a range that is smaller for layers with more inputs. Biases are
/// zero.
fn initial_weights() -> Vec<Vec<f32>> {
    let draw = |(number, (_, shape)): (usize, &(&str, &[usize]))| {
        let mut rng = Rng::new(SEED, 0, number as u64);
        let limit = if shape.len() > 1 { (6.0 / shape[0] as f64).sqrt() } else { 0.0 };
        (0..shape.iter().product()).map(|_| (limit * (2.0 * rng.unit() - 1.0)) as f32).collect()
    };
    WEIGHTS.iter().enumerate().map(draw).collect()
}

// ---- feed ----

/// A batch on the device.
struct DeviceBatch {
    images: Buffer,
    labels: Buffer,
    /// The state of the loader after this batch. The feed is some batches ahead of the step, so the loader's
    /// own state would count batches that were not trained on.
    state: State,
}

/// Starts the transfer of a batch. The device reads the pictures from the loader's own memory, which returns
/// to the loader when the transfer has ended.
fn upload(client: &Client, mut batch: TensorBatch) -> shardstream::Result<DeviceBatch> {
    let state = batch.state().cloned().ok_or_else(|| Error::step("a batch of a loader has a state"))?;
    let images = batch.take("image")?.into_bytes();
    let images = client.upload_bytes(images, &dims(&[BATCH, SIZE, SIZE, 3]), 0).map_err(Error::step)?;
    let labels = client.upload(batch["label"].as_slice::<i32>()?, &dims(&[BATCH]), 0).map_err(Error::step)?;
    Ok(DeviceBatch { images, labels, state })
}

// ---- step ----

/// Trains up to step `end`, starting from the weights `initial`. Saves a checkpoint every `CHECKPOINT_STEPS`
/// steps and at the end.
fn train(
    batches: Batches<TensorBatch>,
    client: &Client,
    step: &Executable,
    initial: Vec<Vec<f32>>,
    end: u64,
    dir: &Path,
) -> Result<()> {
    let uploader = client.clone();
    let mut feed = Feed::new(batches, move |batch| upload(&uploader, batch));
    let mut weights = Vec::new();
    for (values, (_, shape)) in initial.iter().zip(WEIGHTS) {
        weights.push(client.upload(values, &dims(shape), 0)?);
    }
    for batch in feed.by_ref() {
        let DeviceBatch { images, labels, state } = batch?;
        // Arguments and results have one list for each device; here there is one device.
        let mut results = step.run(vec![weights], &[vec![&images, &labels]])?.remove(0);
        let metrics = results.split_off(WEIGHTS.len());
        weights = results;
        let number = state.batches();
        if number.is_multiple_of(10) {
            // Reading a result waits for the step.
            let (loss, correct) = (metrics[0].scalar::<f32>()?, metrics[1].scalar::<f32>()?);
            println!("step {number}: loss {loss:.4}, {:.1} % correct", 100.0 * correct / BATCH as f32);
        }
        if number.is_multiple_of(CHECKPOINT_STEPS) || number >= end {
            let weights = weights.iter().map(Buffer::to_host).collect::<Result<_, PjrtError>>()?;
            let path = Checkpoint { weights, state }.save(dir)?;
            println!("saved {}", path.display());
        }
        if number >= end {
            break;
        }
    }
    println!("{}", feed.report());
    Ok(())
}

// ---- checkpoint ----

/// The weights and the state of the data at the same step, which a training needs to resume exactly.
struct Checkpoint {
    weights: Vec<Vec<f32>>,
    state: State,
}

impl Checkpoint {
    /// Writes the checkpoint as a shard of one sample, with the step in the shard's name. A shard appears
    /// whole or not at all, so the weights and the state of a checkpoint are always of the same step.
    fn save(self, dir: &Path) -> Result<PathBuf> {
        let step = self.state.batches();
        let mut sample = Sample::new("checkpoint").with("state.txt", self.state.to_string());
        for (values, (name, shape)) in self.weights.into_iter().zip(WEIGHTS) {
            sample.set(format!("{name}.npy"), Array::from_vec(shape.to_vec(), values)?);
        }
        let pattern = format!("{}/checkpoint-%06d.tar", dir.display());
        let mut writer = ShardWriter::builder(pattern).start_shard(step).build()?;
        writer.write(&sample)?;
        writer.finish()?;
        Ok(dir.join(format!("checkpoint-{step:06}.tar")))
    }

    fn load(path: &Path) -> Result<Self> {
        let shards = Dataset::builder(path.display().to_string()).build()?;
        let mut sample =
            shards.samples(0).decode(Decoder::new()).next().ok_or("a checkpoint without a sample")??;
        let state = sample.take::<String>("state.txt")?.parse()?;
        let mut weights = Vec::new();
        for (name, _) in WEIGHTS {
            weights.push(sample.take::<Array>(&format!("{name}.npy"))?.to_vec()?);
        }
        Ok(Checkpoint { weights, state })
    }
}

// ---- resume ----

/// The checkpoint with the highest step in a directory, if there is one.
fn newest_checkpoint(dir: &Path) -> Result<Option<PathBuf>> {
    let mut newest = None;
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("checkpoint-") && name.ends_with(".tar") {
            newest = newest.max(Some(path));
        }
    }
    Ok(newest)
}
