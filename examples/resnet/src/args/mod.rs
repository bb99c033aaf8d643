//! The command line.

mod data;
mod network;
mod number;
mod output;
mod processes;
mod training;

pub use data::DataArgs;
pub use network::NetworkArgs;
pub use output::OutputArgs;
pub use processes::ProcessArgs;
pub use training::TrainingArgs;

use crate::artifact::{Artifact, Wanted};
use crate::compile::CacheLocation;
use crate::data::{DataOptions, Sets, Waiting};
use crate::devices::Join;
use crate::error::{Error, Result};
use crate::plugin;
use crate::schedule::Schedule;
use crate::train::TrainOptions;
use clap::Parser;
use shardstream::Topology;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Train a ResNet from tar shards on TPU, GPU or CPU.
///
/// Without arguments it trains ResNet-8 on built-in synthetic images, on a TPU or an NVIDIA GPU if there is
/// one, else on the CPU. The plugin for GPU (3.2 GB) or CPU (64 MB) is downloaded the first time.
///
/// SIGTERM and SIGINT stop the training after the current step. --checkpoint says where a checkpoint is then
/// saved; the same command with --resume resumes from it. A second signal ends the program at once.
///
/// Exit codes: 0 all epochs are done; 1 an error; 2 wrong options; 3 the accuracy is below --target-accuracy;
/// 4 a step took longer than --step-timeout; 74 the network, a store or a disk failed; 75 stopped by a
/// signal; 128 + N ended by a second signal, whose number is N.
#[derive(Debug, Clone, Parser)]
#[command(version)]
pub struct Args {
    // The groups clear their own `about`, which would replace the description of the program.
    /// The options of reading data.
    #[command(flatten)]
    pub data: DataArgs,
    /// The options of the program and its devices.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// The options of the training.
    #[command(flatten)]
    pub training: TrainingArgs,
    /// The options of the log, the checkpoints and the other outputs.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The options of the job's processes.
    #[command(flatten)]
    pub processes: ProcessArgs,
}

impl Args {
    /// The rank of this process and the number of processes.
    pub fn topology(&self) -> Result<Topology> {
        Ok(match (self.processes.rank, self.processes.world_size) {
            (Some(rank), Some(ranks)) => Topology::new(rank, ranks)?,
            // Without a launcher, the rank comes from the metadata server of a Cloud TPU VM.
            _ if plugin::is_on_tpu(self.network.plugin.as_ref())? => Topology::detect_on_tpu_vm()?,
            _ => Topology::detect()?,
        })
    }

    /// Opens or chooses the artifact to train.
    pub fn artifact(&self) -> Result<Artifact> {
        let wanted = Wanted {
            model: self.network.model.clone(),
            size: self.network.image_size,
            dtype: self.network.dtype,
            batch: self.network.batch_size,
            devices: self.network.devices,
        };
        Ok(match &self.network.artifact {
            Some(name) => Artifact::open(name)?,
            None if wanted == Wanted::default() => Artifact::open("resnet8")?,
            None => Artifact::choose(&wanted)?,
        })
    }

    /// The options of the training loop.
    pub fn train_options(&self, topology: Topology) -> TrainOptions {
        TrainOptions {
            epochs: self.training.epochs,
            steps: self.training.steps,
            log_steps: self.output.log_steps,
            schedule: Schedule {
                peak: self.training.lr,
                warmup: self.training.warmup,
                decay: self.training.decay,
            },
            weight_decay: self.training.weight_decay,
            label_smoothing: self.training.label_smoothing,
            momentum: self.training.momentum,
            depth: self.data.depth,
            topology,
        }
    }

    /// The options of the input pipeline, for a process with `devices` devices.
    pub fn data_options(
        &self,
        artifact: &Artifact,
        devices: usize,
        topology: Topology,
        waiting: Waiting,
    ) -> DataOptions {
        let m = &artifact.manifest;
        DataOptions {
            seed: self.training.seed as u64,
            batch: m.local_batch(devices),
            size: m.size,
            classes: m.classes,
            workers: self.data.workers,
            shuffle: self.data.shuffle,
            streams: self.data.streams,
            keep_shards: self.data.keep_shards,
            prefetch: self.data.prefetch,
            topology,
            skip_bad: self.data.skip_bad,
            indexes: Sets { train: self.data.index.clone(), validation: self.data.val_index.clone() },
            index_cache: self.work_dir().ok().map(|dir| dir.join("index")),
            memory: None,
            waiting,
        }
    }

    /// The directory of files that are kept from one run to the next.
    pub fn work_dir(&self) -> Result<PathBuf> {
        Ok(self.data.work_dir.clone().map_or_else(crate::plugin::cache_dir, Ok)?)
    }

    /// The length of a wait after which the watchdog warns, and the length after which it ends the process.
    pub fn wait_limits(&self) -> WaitLimits {
        let limit = |seconds: f64| match seconds > 0.0 {
            true => Some(Duration::from_secs_f64(seconds)),
            false => None,
        };
        WaitLimits {
            warn_after: limit(self.output.stall_warning),
            end_after: limit(self.output.step_timeout),
        }
    }

    /// The address at which this process serves its metrics; `None` if it serves none.
    pub fn metrics(&self, topology: &Topology) -> Result<Option<SocketAddr>> {
        let Some(mut address) = self.output.metrics else { return Ok(None) };
        if self.processes.spawn.is_some() {
            let port = address.port().checked_add(topology.rank() as u16);
            let no_port = || {
                Error::Usage(format!("--metrics {address}: there is no port for rank {}", topology.rank()))
            };
            address.set_port(port.ok_or_else(no_port)?);
        }
        Ok(Some(address))
    }

    /// The directory of compiled programs; `None` if none are kept.
    pub fn compile_cache(&self) -> Option<PathBuf> {
        match &self.network.compile_cache {
            Some(CacheLocation::Off) => None,
            Some(CacheLocation::Dir(dir)) => Some(dir.clone()),
            None => self.work_dir().ok().map(|dir| dir.join("compiled")),
        }
    }

    /// The options that must be the same in all processes of a job.
    pub fn identity(&self) -> String {
        let TrainingArgs {
            seed,
            lr,
            warmup,
            decay,
            weight_decay,
            label_smoothing,
            momentum,
            epochs,
            steps,
            ..
        } = &self.training;
        format!(
            "--seed {seed} --lr {lr} --warmup {warmup} --decay {decay} --weight-decay {weight_decay} \
             --label-smoothing {label_smoothing} --momentum {momentum} --epochs {epochs} --steps {steps}"
        )
    }

    /// The options by which the processes of a job find each other.
    pub fn join(&self) -> Join {
        Join {
            coordinator: self.processes.coordinator.clone(),
            timeout: Duration::from_secs_f64(self.processes.join_timeout),
        }
    }

    /// The duration of a step in a dry run; `None` if this is not a dry run.
    pub fn dry_step(&self) -> Result<Option<Duration>> {
        let duration = |ms: f64| {
            Duration::try_from_secs_f64(ms / 1000.0)
                .map_err(|_| Error::Usage(format!("--dry-run={ms} is not a number of milliseconds")))
        };
        self.processes.dry_run.map(duration).transpose()
    }
}

/// The lengths of a wait after which the watchdog acts; `None` if it never does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WaitLimits {
    /// The wait after which a warning is due.
    pub warn_after: Option<Duration>,
    /// The wait after which the process ends.
    pub end_after: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(["resnet"].iter().chain(arguments))
    }

    #[test]
    fn arguments_are_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
        for wrong in [
            &["--shards", "x.tar"][..],
            &["--folder", "x"],
            &["--epochs", "0"],
            &["--depth", "0"],
            &["--resume"],
            &["--checkpoint-steps", "5"],
            &["--keep", "5"],
            &["--rank", "1"],
            &["--artifact", "resnet8", "--model", "resnet8"],
            &["--spawn", "2", "--rank", "0", "--world-size", "2"],
            &["--resume", "oldest", "--checkpoint", "x"],
            &["--decay", "sudden"],
            &["--lr", "NaN"],
            &["--lr", "0"],
            &["--lr=-0.1"],
            &["--weight-decay", "inf"],
            &["--label-smoothing", "1"],
            &["--label-smoothing=-0.1"],
            &["--momentum", "1"],
            &["--momentum=-0.1"],
            &["--momentum", "NaN"],
            &["--target-accuracy", "101"],
            &["--target-accuracy", "NaN"],
            &["--coordinator", "gpu1"],
            &["--coordinator", "gpu1:80", "--spawn", "2"],
            &["--join-timeout=-1"],
            &["--init-from", "x.safetensors", "--dry-run"],
            &["--save-weights", "x.safetensors", "--dry-run"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn options_choose_a_built_in_program() {
        let name = |arguments: &[&str]| parse(arguments).unwrap().artifact().unwrap().name;
        assert_eq!(name(&[]), "resnet8");
        assert_eq!(name(&["--model", "resnet8", "--devices", "8", "--dtype", "f32"]), "resnet8-x8");
        let article = ["--model", "resnet50", "--image-size", "32", "--batch-size", "128", "--devices", "8"];
        assert_eq!(name(&article), "resnet50-bf16-x8");
    }

    #[test]
    fn the_step_of_a_dry_run_has_a_duration() {
        let step = |arguments: &[&str]| parse(arguments).unwrap().dry_step();
        assert_eq!(step(&[]).unwrap(), None);
        assert_eq!(step(&["--dry-run"]).unwrap(), Some(Duration::ZERO));
        assert_eq!(step(&["--dry-run=84.5"]).unwrap(), Some(Duration::from_micros(84_500)));
        assert!(step(&["--dry-run=-1"]).is_err());
    }

    /// The pages show command lines of the trainer, which cannot be run without a TPU or a bucket. Returns
    /// the arguments of each command line.
    fn documented() -> Vec<Vec<String>> {
        let pages = [
            "README.md",
            "docs/tpu.md",
            "docs/gpu.md",
            "examples/resnet/README.md",
            "examples/resnet/export/README.md",
            "examples/resnet/deploy/slurm.sbatch",
            "examples/resnet/deploy/queued-resource.sh",
            "examples/resnet/deploy/skypilot.yaml",
        ];
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let programs = ["./resnet ", "cargo run --release -p resnet "];
        let ends = ["#", "&&", ";", "|", ">", "`", "..."];
        let mut commands = Vec::new();
        for page in pages {
            let text = std::fs::read_to_string(root.join(page)).unwrap().replace("\\\n", " ");
            for line in text.lines() {
                let Some((start, program)) = programs.iter().find_map(|name| Some((line.find(name)?, name)))
                else {
                    continue;
                };
                let rest = &line[start + program.len()..];
                let end = ends.iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
                let arguments = match rest[..end].split_once("-- ") {
                    Some((_, own)) if program.starts_with("cargo") => own,
                    _ => &rest[..end],
                };
                let words = arguments.split_whitespace().filter(|word| *word != "…");
                commands.push(words.map(|word| word.trim_matches(['"', '\'']).to_owned()).collect());
            }
        }
        commands
    }

    #[test]
    fn the_arguments_in_the_kubernetes_manifest_are_valid() {
        let manifest = include_str!("../../deploy/jobset.yaml");
        let arguments = manifest.lines().filter_map(|line| line.trim().strip_prefix("- "));
        let arguments: Vec<&str> = arguments.filter(|argument| argument.starts_with("--")).collect();
        assert!(arguments.len() >= 10, "{arguments:?}");
        assert_eq!(parse(&arguments).unwrap().artifact().unwrap().name, "resnet50-224-bf16-x16");
    }

    #[test]
    fn the_arguments_in_the_pages_are_valid() {
        let commands = documented();
        assert!(commands.len() >= 10, "{commands:?}");
        for command in commands {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            let args = parse(&words).unwrap_or_else(|error| panic!("{command:?}: {error}"));
            let is_path = args.network.artifact.as_ref().is_some_and(|name| name.contains('/'));
            if !is_path {
                args.artifact().unwrap_or_else(|error| panic!("{command:?}: {error}"));
            }
        }
    }
}
