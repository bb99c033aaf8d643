//! The command line.

use clap::Parser;
use resnet::artifact::Artifact;
use resnet::checkpoint::{Checkpoints, Saver};
use resnet::data::{self, Data, Sets, Split};
use resnet::error::with_causes;
use resnet::model::Model;
use resnet::progress::Task;
use resnet::schedule::Schedule;
use resnet::shards::{self, Counts, Shards};
use resnet::train::{self, Options, Start};
use resnet::{Error, Result, plugin, synthetic};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Train a ResNet on TPU, GPU or CPU.
///
/// Without arguments it trains ResNet-8 on built-in synthetic images, on a TPU if there is one, else on the
/// CPU, whose plugin is downloaded the first time (64 MB).
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Path of a PJRT plugin (a shared library)
    #[arg(long, value_name = "PATH")]
    plugin: Option<PathBuf>,
    /// Exported network: resnet8, resnet8x8 (on 8 devices), resnet18, or a path without its endings
    #[arg(long, value_name = "NAME|PATH", default_value = "resnet8")]
    artifact: String,
    /// Training shards, as gs://bucket/train-{000000..000009}.tar; without it, synthetic images
    #[arg(long, value_name = "URL", requires = "val_shards")]
    shards: Option<String>,
    /// Validation shards
    #[arg(long, value_name = "URL", requires = "shards")]
    val_shards: Option<String>,
    /// Passes over the training data
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    epochs: u64,
    /// The most steps per epoch; 0: all
    #[arg(long, default_value_t = 0)]
    steps: u64,
    /// Steps between lines of the log; 0: none
    #[arg(long, default_value_t = 10)]
    log_steps: u64,
    /// Of the first weights, the order and the augmentation
    #[arg(long, default_value_t = 1)]
    seed: i32,
    /// Highest learning rate; it falls to zero until the end of the last epoch, in the first only if --steps says
    /// how long that is
    #[arg(long, default_value_t = 0.2)]
    lr: f32,
    /// Steps until the learning rate is at its highest
    #[arg(long, default_value_t = 30)]
    warmup: u64,
    /// Threads that decode; 0: as many as there are cores
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Samples in the shuffle buffer of each of up to 4 streams
    #[arg(long, default_value_t = 512)]
    shuffle: usize,
    /// Where the training is saved, network and state of the data together: a directory, or gs://bucket/prefix
    #[arg(long, value_name = "URL")]
    checkpoint: Option<String>,
    /// Steps between checkpoints; 0: only at the end of each epoch
    #[arg(long, default_value_t = 0, requires = "checkpoint")]
    checkpoint_steps: u64,
    /// Go on from the newest checkpoint, or start if there is none
    #[arg(long, requires = "checkpoint")]
    resume: bool,
    /// Compile for a TPU topology, for example v3:2x2, say how large the code is, and stop; needs libtpu
    /// but no TPU
    #[arg(long, value_name = "TOPOLOGY")]
    compile_only: Option<String>,
    /// Where the synthetic shards are put and indexes are kept; the user's cache directory unless set
    #[arg(long, value_name = "PATH")]
    work_dir: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.compile_only {
        Some(topology) => compile_only(&args, topology),
        None => train(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {}", with_causes(&e));
            ExitCode::FAILURE
        }
    }
}

fn train(args: &Args) -> Result<()> {
    let artifact = Artifact::open(&args.artifact)?;
    let found = plugin::find(args.plugin.as_deref())?;
    let client = found.load()?.client(&found.client_options(artifact.manifest.devices))?;
    let m = &artifact.manifest;
    // Not println!, which panics when nobody reads any more.
    let mut out = std::io::stdout();
    writeln!(
        out,
        "{} on {} of {} {} devices (plugin: {}), {} images of {}x{} per step",
        m.model,
        m.devices,
        client.devices(),
        client.platform()?,
        found.how,
        m.global_batch(),
        m.size,
        m.size,
    )?;
    let options = Options {
        epochs: args.epochs,
        steps: args.steps,
        log_steps: args.log_steps,
        schedule: Schedule { peak: args.lr, warmup: args.warmup },
    };
    let sets = open(args, &artifact)?;
    let place = args.checkpoint.as_ref();
    let place = place.map(|url| Checkpoints::new(url, &artifact, args.seed, &options)).transpose()?;
    let checkpoint = place.as_ref().map(|place| place.begin(args.resume, &mut out)).transpose()?.flatten();
    let task = Task::spinner("compiling");
    let mut model = Model::new(&client, &artifact, args.seed)?;
    task.done();
    if let Some(checkpoint) = &checkpoint {
        model.restore(&checkpoint.tensors)?;
    }
    let start = checkpoint.as_ref().map(Start::from).unwrap_or_default();
    let mut saver = place.map(|place| Saver::new(place, args.checkpoint_steps));
    train::train(&mut model, &options, &sets, start, saver.as_mut(), &mut out)?;
    Ok(())
}

/// The data for training and for validation.
fn open(args: &Args, artifact: &Artifact) -> Result<Sets> {
    let m = &artifact.manifest;
    let work_dir = args.work_dir.clone().map_or_else(plugin::cache_dir, Ok);
    let index_cache = work_dir.as_ref().ok().map(|dir| dir.join("index"));
    let shards = match (&args.shards, &args.val_shards) {
        (Some(train), Some(validation)) => Shards { train: train.clone(), validation: validation.clone() },
        _ if (m.size, m.classes) != (synthetic::SIZE, synthetic::CLASSES.len()) => {
            let message = format!(
                "the built-in images are {0}x{0} of {1} classes, and the program wants {2}x{2} of {3}: \
                 give it --shards and --val-shards",
                synthetic::SIZE,
                synthetic::CLASSES.len(),
                m.size,
                m.classes
            );
            return Err(Error::Data(message.into()));
        }
        _ => shards::synthetic(&work_dir?, Counts::default()).map_err(Error::Data)?,
    };
    let mut out = std::io::stdout();
    writeln!(out, "training shards   {}\nvalidation shards {}", shards.train, shards.validation)?;
    let options = data::Options {
        seed: args.seed as u64,
        batch: m.global_batch(),
        size: m.size,
        classes: m.classes,
        threads: args.threads,
        shuffle: args.shuffle,
        index_cache,
    };
    let open = |shards: &str, split| Data::open(shards, split, &options).map_err(Error::Data);
    let train = open(&shards.train, Split::Train)?;
    let validation = open(&shards.validation, Split::Validation)?;
    // An hour of training should not end at a slip in the name of the validation shards.
    validation.batches(0).next().ok_or(Error::Empty("validation"))?.map_err(Error::Data)?;
    Ok(Sets { train, validation })
}

fn compile_only(args: &Args, topology: &str) -> Result<()> {
    let artifact = Artifact::open(&args.artifact)?;
    let found = plugin::find_compiler(args.plugin.as_deref())?;
    if !plugin::tpu_present("/dev".as_ref()) && std::env::var_os("TPU_SKIP_MDS_QUERY").is_none() {
        // Off a TPU VM libtpu would ask the cloud's metadata server for minutes.
        // SAFETY: no other thread runs yet; the plugin, which starts some, is loaded after this.
        unsafe { std::env::set_var("TPU_SKIP_MDS_QUERY", "1") };
    }
    let plugin = found.load()?;
    let options = artifact.manifest.compile_options();
    for (name, code) in [("step", &artifact.step), ("eval", &artifact.eval)] {
        let start = Instant::now();
        let bytes = plugin.compile_for(topology, code, &options)?;
        writeln!(
            std::io::stdout(),
            "{} of {} for {topology}: {bytes} bytes of code, compiled in {:.1} s",
            name,
            artifact.name,
            start.elapsed().as_secs_f64(),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
        assert!(Args::try_parse_from(["resnet", "--shards", "x.tar"]).is_err());
        assert!(Args::try_parse_from(["resnet", "--epochs", "0"]).is_err());
        for without_place in [&["--resume"][..], &["--checkpoint-steps", "5"]] {
            assert!(Args::try_parse_from(["resnet"].iter().chain(without_place)).is_err());
        }
    }
}
