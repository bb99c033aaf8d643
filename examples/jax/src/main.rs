//! Reads tar shards and puts batches into shared memory, for the JAX trainer that started it: see the README.

mod ring;
mod wire;

use clap::Parser;
use ring::Ring;
use shardstream::loader;
use shardstream::prelude::*;
use std::error::Error;
use std::io::{self, Write};
use std::iter;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use wire::{Announced, Answer, Request, listen, say};

/// Put batches of images from tar shards into shared memory. `train.py` starts this, and talks to it.
#[derive(Debug, Parser)]
struct Args {
    /// Shards of square images (jpg, png, webp) and classes (cls); without it, synthetic images
    #[arg(long, value_name = "URL")]
    shards: Option<String>,
    /// Height and width of the images
    #[arg(long, default_value_t = 32)]
    size: u32,
    /// Images in a batch of this process
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Passes over the data
    #[arg(long, default_value_t = 1)]
    epochs: u64,
    /// Of order and augmentation
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Streams that the data are read in, on all processes together: a multiple of these
    #[arg(long, default_value_t = 8)]
    streams: usize,
    /// Samples in the shuffle buffer of each stream
    #[arg(long, default_value_t = 256)]
    shuffle: usize,
    /// Number of this process among those of the job
    #[arg(long, default_value_t = 0)]
    rank: usize,
    /// Processes of the job
    #[arg(long, default_value_t = 1)]
    ranks: usize,
    /// Batches that shared memory holds at a time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..))]
    slabs: u16,
    /// Where the slabs are
    #[arg(long, value_name = "DIRECTORY", default_value_os_t = ring::shared_memory())]
    slab_dir: PathBuf,
    /// Continue after the batch that this state came with
    #[arg(long, value_name = "FILE")]
    resume_state: Option<PathBuf>,
    /// Overwrite each slab as soon as it comes back, to find a trainer that reads on
    #[arg(long)]
    poison: bool,
    /// Where the synthetic shards are put
    #[arg(long, value_name = "DIRECTORY")]
    #[arg(default_value_os_t = std::env::temp_dir().join("shardstream-synthetic"))]
    work_dir: PathBuf,
}

type Requests = async_channel::Receiver<shardstream::Result<Request>>;
type Batches = Box<dyn Iterator<Item = shardstream::Result<TensorBatch>> + Send>;

fn main() -> ExitCode {
    match feed(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            let message = with_causes(&*e);
            // The reader of either may be gone.
            let _ = say(io::stdout(), &Answer::Error(message.clone()));
            let _ = writeln!(io::stderr(), "jax_feed: {message}");
            ExitCode::FAILURE
        }
    }
}

fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |e| (*e).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Any error that ends the program.
type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// The batches of all epochs, or those after a state.
fn batches(args: &Args) -> Result<Batches, AnyError> {
    let pattern = match &args.shards {
        Some(pattern) => pattern.clone(),
        None => synthetic::shards(&args.work_dir, synthetic::Counts::default())?.train,
    };
    let dataset = Dataset::builder(pattern)
        .topology(Topology::new(args.rank, args.ranks)?)
        .streams(args.streams)
        .shuffle_shards(true)
        .seed(args.seed)
        // With an index all ranks get the same number of batches, and restoring a state reads no shard twice.
        .auto_index(AutoIndex::beside())
        .build()?;
    let image = ImageColumn::new("jpg;jpeg;png;webp", args.size)
        .then(RandomCrop::new(args.size)?.padding(4))
        .then(RandomHorizontalFlip::new(0.5)?);
    let columns = Columns::new().with("image", image).with("label", Scalar::<i32>::new("cls"));
    let loader = Loader::builder(dataset)
        .shuffle(args.shuffle)
        .batch(args.batch)
        .collate(columns)
        .last_batch(LastBatch::Drop)
        .on_error(OnError::skip(Failures::damage() | Failures::decode()).share(0.001, 10_000))
        .build()?;
    let (epoch, rest) = match &args.resume_state {
        Some(file) => {
            let state = State::load(file)?.ok_or_else(|| format!("there is no {}", file.display()))?;
            (state.epoch(), loader.restore(&state)?)
        }
        None => (0, loader.epoch(0)),
    };
    let later = (epoch + 1..args.epochs).flat_map(move |epoch| telling(loader.epoch(epoch)));
    Ok(Box::new(telling(rest).chain(later)))
}

/// Passes on the batches of an epoch, and reports skipped samples on standard error at its end.
fn telling(
    mut batches: loader::Batches<TensorBatch>,
) -> impl Iterator<Item = shardstream::Result<TensorBatch>> + Send {
    iter::from_fn(move || {
        let batch = batches.next();
        let state = batches.state();
        if batch.is_none() && !state.ledger().is_empty() {
            // The reader may be gone.
            let _ = writeln!(io::stderr(), "jax_feed: epoch {}: {}", state.epoch(), state.ledger());
        }
        batch
    })
    .fuse()
}

/// Writes batches into slabs, and announces them when the trainer requests them.
fn feed(args: &Args) -> Result<(), AnyError> {
    let mut batches = batches(args)?;
    let first = batches.next().ok_or("there is not even one full batch left")??;
    let (ring, paths) = Ring::new(&args.slab_dir, usize::from(args.slabs), &first, args.poison)?;
    let files = paths.iter().map(|path| path.to_path_buf()).collect();
    say(io::stdout(), &Answer::Slabs { files, size: ring.size() })?;

    // A thread reads requests at any time, so that a returned slab is filled while the trainer computes.
    let (send, requests) = async_channel::unbounded();
    let listener = ring.clone();
    thread::spawn(move || {
        for request in listen(io::stdin().lock()) {
            let request = match request {
                Ok(Request::Free(slab)) => listener.take_back(slab).err().map(Err),
                other => Some(other),
            };
            if request.is_some_and(|request| send.try_send(request).is_err()) {
                break;
            }
        }
        // The trainer is gone, and returns no more slabs.
        listener.close();
    });
    match requests.recv_blocking() {
        Ok(Ok(Request::Mapped)) => drop(paths),
        Ok(Err(e)) => return Err(e.into()),
        _ => return Err("the trainer is gone before it mapped the slabs".into()),
    }

    let putter = ring.clone();
    let mut feed = Feed::new(iter::once(Ok(first)).chain(batches), move |batch| putter.put(&batch))
        .depth(usize::from(args.slabs));
    // The trainer compiles its step before it requests the first batch.
    feed.start();
    let done = answer(&mut feed, &requests);
    // The thread of the feed may wait for a slab.
    ring.close();
    done
}

/// Responds to each [`Request::Next`] with a batch, until there are none.
fn answer(feed: &mut Feed<Announced>, requests: &Requests) -> Result<(), AnyError> {
    while let Ok(request) = requests.recv_blocking() {
        match request? {
            Request::Next => match feed.next().transpose()? {
                Some(batch) => say(io::stdout(), &Answer::Batch(batch))?,
                None => return Ok(say(io::stdout(), &Answer::End { report: feed.report().to_string() })?),
            },
            Request::Stop => return Ok(()),
            other => return Err(format!("unexpected request {other:?}").into()),
        }
    }
    Err("the trainer is gone in the middle of the data".into())
}
