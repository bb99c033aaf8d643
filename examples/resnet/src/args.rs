//! The command line.

use crate::artifact::{Artifact, DType, Wanted};
use crate::checkpoint::Resume;
use crate::compile;
use crate::data::{self, Sets, Waiting};
use crate::devices::Join;
use crate::error::{Error, Result};
use crate::pjrt::PluginOption;
use crate::plugin;
use crate::profile;
use crate::rendezvous::Address;
use crate::schedule::{Decay, Schedule};
use crate::train::Options;
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
/// SIGTERM and SIGINT stop it after the current step: with --checkpoint it is saved there, and the same
/// command with --resume resumes it. A second signal ends it at once.
///
/// Exit codes: 0 all epochs are done; 1 an error; 2 wrong options; 3 the accuracy is below --target-accuracy;
/// 4 a step took longer than --step-timeout; 75 stopped by a signal; 128 + number of the signal after a
/// second one.
#[derive(Debug, Clone, Parser)]
#[command(version)]
pub struct Args {
    /// Training shards, as gs://bucket/train-{000000..000639}.tar or data/train-*.tar; without it, synthetic
    /// images
    #[arg(long, value_name = "URL", requires = "val_shards", help_heading = "Data")]
    pub shards: Option<String>,
    /// Validation shards
    #[arg(long, value_name = "URL", requires = "shards", help_heading = "Data")]
    pub val_shards: Option<String>,
    /// The index of the training shards, as `shardstream create --index` writes it; without it they are read
    /// for it once
    #[arg(long, value_name = "URL", requires = "shards", help_heading = "Data")]
    pub index: Option<String>,
    /// The index of the validation shards
    #[arg(long, value_name = "URL", requires = "shards", help_heading = "Data")]
    pub val_index: Option<String>,
    /// Single files DIR/CLASS/*.jpg in random order in place of shards: to compare with
    #[arg(
        long,
        value_name = "DIR",
        requires = "val_folder",
        conflicts_with = "shards",
        help_heading = "Data"
    )]
    pub folder: Option<PathBuf>,
    /// Single files for validation
    #[arg(long, value_name = "DIR", requires = "folder", help_heading = "Data")]
    pub val_folder: Option<PathBuf>,
    /// Threads that decode; 0: about as many as there are cores, or more where they wait
    #[arg(long, visible_alias = "threads", default_value_t = 0, help_heading = "Data")]
    pub workers: usize,
    /// Samples in the shuffle buffer of each stream
    #[arg(long, default_value_t = 512, help_heading = "Data")]
    pub shuffle: usize,
    /// Logical streams of all processes together, of which the order depends; 0: 8, or the next multiple of
    /// the processes that 8 divides. Say it where the number of processes may change
    #[arg(long, default_value_t = 0, help_heading = "Data")]
    pub streams: usize,
    /// Batches that are prepared ahead on the host; 0: 2, or as many as help in 512 MiB
    #[arg(long, value_name = "BATCHES", default_value_t = 0, help_heading = "Data")]
    pub prefetch: usize,
    /// Batches that wait on the devices
    #[arg(long, value_name = "BATCHES", default_value_t = 2, value_parser = at_least_one, help_heading = "Data")]
    pub depth: usize,
    /// Damaged training images that are skipped by each process in an epoch; one more is an error, as is the
    /// first one with 0. Without it, one image in a thousand is skipped
    #[arg(long, value_name = "IMAGES", conflicts_with = "folder", help_heading = "Data")]
    pub skip_bad: Option<u64>,
    /// Where the synthetic shards are put and indexes are kept; the user's cache directory unless set
    #[arg(long, value_name = "PATH", help_heading = "Data")]
    pub work_dir: Option<PathBuf>,

    /// Exported program, by name (resnet8, resnet50-224-bf16-x8 …) or path without its endings; without it,
    /// the built-in one that the other options of this group tell, and resnet8 if there are none
    #[arg(long, value_name = "NAME|PATH", help_heading = "Network")]
    pub artifact: Option<String>,
    /// Network: resnet8, resnet18, resnet20, resnet50
    #[arg(long, conflicts_with = "artifact", help_heading = "Network")]
    pub model: Option<String>,
    /// Height and width of the images: 32, 224
    #[arg(long, value_name = "PIXELS", conflicts_with = "artifact", help_heading = "Network")]
    pub image_size: Option<usize>,
    /// f32 or bf16
    #[arg(long, conflicts_with = "artifact", help_heading = "Network")]
    pub dtype: Option<DType>,
    /// Images for each device and step
    #[arg(long, value_name = "IMAGES", conflicts_with = "artifact", help_heading = "Network")]
    pub batch_size: Option<usize>,
    /// Devices of all processes together
    #[arg(long, conflicts_with = "artifact", help_heading = "Network")]
    pub devices: Option<usize>,
    /// cpu, cuda or tpu, or the path of a PJRT plugin (a shared library); without it, that of a TPU or GPU of
    /// this machine, else of the CPU. Those for cuda (3.2 GB) and cpu (64 MB) are downloaded the first time
    #[arg(long, value_name = "KIND|PATH", help_heading = "Network")]
    pub plugin: Option<plugin::Choice>,
    /// An option that the plugin opens its devices with; may be given several times
    #[arg(long = "plugin-option", value_name = "NAME=VALUE", help_heading = "Network")]
    pub plugin_options: Vec<PluginOption>,
    /// Where compiled programs are kept for the next start: a directory that nobody else can write to, or
    /// `off`; `compiled` in the work directory unless set
    #[arg(long, value_name = "DIR|off", help_heading = "Network")]
    pub compile_cache: Option<compile::Place>,
    /// Compile for TPU topologies, for example v3:2x2,v5e:2x4, say how large the code is, and stop; needs
    /// libtpu but no TPU
    #[arg(long, value_name = "TOPOLOGY,...", value_delimiter = ',', help_heading = "Network")]
    pub compile_only: Vec<String>,

    /// Passes over the training data
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..), help_heading = "Training")]
    pub epochs: u64,
    /// The most steps per epoch; 0: all
    #[arg(long, default_value_t = 0, help_heading = "Training")]
    pub steps: u64,
    /// Of the first weights, the order and the augmentation
    #[arg(long, default_value_t = 1, help_heading = "Training")]
    pub seed: i32,
    /// Weights that a new training begins with: a safetensors file with torchvision's names, as
    /// --save-weights writes it; a last layer of other classes is left out. A training that is resumed does
    /// not read it
    #[arg(long, value_name = "FILE|URL", conflicts_with = "dry_run", help_heading = "Training")]
    pub init_from: Option<String>,
    /// Highest learning rate
    #[arg(long, default_value_t = 0.2, value_parser = positive, help_heading = "Training")]
    pub lr: f32,
    /// Steps until the learning rate is at its highest
    #[arg(long, value_name = "STEPS", default_value_t = 30, help_heading = "Training")]
    pub warmup: u64,
    /// How the learning rate falls: cosine (to zero at the end of the last epoch), constant,
    /// step:EPOCHS:DIVISOR, exponential:EPOCHS:DIVISOR
    #[arg(long, default_value_t = Decay::Cosine, help_heading = "Training")]
    pub decay: Decay,
    /// Of the weights, not of biases and batch norm
    #[arg(long, default_value_t = 5e-4, value_parser = not_negative, help_heading = "Training")]
    pub weight_decay: f32,
    /// The share of the target that is spread over all classes
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = below_one, help_heading = "Training")]
    pub label_smoothing: f32,
    /// Nesterov momentum
    #[arg(long, default_value_t = 0.9, value_parser = below_one, help_heading = "Training")]
    pub momentum: f32,
    /// The best validation accuracy that is wanted; a training that ends below it has exit code 3
    #[arg(long, value_name = "PERCENT", value_parser = percentage, help_heading = "Training")]
    pub target_accuracy: Option<f64>,

    /// Steps between lines of the log; 0: none
    #[arg(long, default_value_t = 10, help_heading = "Log and checkpoints")]
    pub log_steps: u64,
    /// TensorBoard events and a copy of the log: a directory, or gs://bucket/prefix
    #[arg(long, value_name = "URL", help_heading = "Log and checkpoints")]
    pub log_dir: Option<String>,
    /// Serve metrics of the trainer and the loader to Prometheus at http://ADDRESS/metrics; each process of
    /// --spawn at a port of its own, from this one on. Needs the feature metrics
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Log and checkpoints")]
    pub metrics: Option<SocketAddr>,
    /// The wait after which a warning says what it is for, and on which rank; 0: none
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60.0,
        value_parser = seconds,
        help_heading = "Log and checkpoints"
    )]
    pub stall_warning: f64,
    /// The wait after which the process ends with exit code 4, so that its launcher starts the job again; 0:
    /// never
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0.0,
        value_parser = seconds,
        help_heading = "Log and checkpoints"
    )]
    pub step_timeout: f64,
    /// Record what the devices do in --profile-steps, for XProf and TensorBoard, where the plugin has a
    /// profiler: a directory, or gs://bucket/prefix
    #[arg(long, value_name = "URL", conflicts_with = "dry_run", help_heading = "Log and checkpoints")]
    pub profile: Option<String>,
    /// The steps to record, counted from the start of this process
    #[arg(
        long,
        value_name = "FIRST-LAST",
        default_value = "10-14",
        requires = "profile",
        help_heading = "Log and checkpoints"
    )]
    pub profile_steps: profile::Steps,
    /// The numbers of the summary as JSON
    #[arg(long, value_name = "FILE", help_heading = "Log and checkpoints")]
    pub summary: Option<PathBuf>,
    /// Weights and batch-norm statistics after the last epoch, as a safetensors file with torchvision's
    /// names, also of a training that is done already; model.safetensors in a directory
    #[arg(long, value_name = "FILE|URL", conflicts_with = "dry_run", help_heading = "Log and checkpoints")]
    pub save_weights: Option<String>,
    /// Where the training is saved, network and state of the data together: a directory, or
    /// gs://bucket/prefix
    #[arg(long, value_name = "URL", help_heading = "Log and checkpoints")]
    pub checkpoint: Option<String>,
    /// Steps between checkpoints; 0: only at the end of each epoch
    #[arg(long, default_value_t = 0, requires = "checkpoint", help_heading = "Log and checkpoints")]
    pub checkpoint_steps: u64,
    /// How many checkpoints are kept beside that of the best epoch; 0: all
    #[arg(
        long,
        value_name = "CHECKPOINTS",
        default_value_t = 0,
        requires = "checkpoint",
        help_heading = "Log and checkpoints"
    )]
    pub keep: usize,
    /// Resume from the newest checkpoint, or start if there is none; with `auto`, from the newest that is not
    /// damaged
    #[arg(
        long,
        value_name = "WHICH",
        num_args = 0..=1,
        default_missing_value = "newest",
        requires = "checkpoint",
        help_heading = "Log and checkpoints"
    )]
    pub resume: Option<Resume>,

    /// Number of processes to start on this host, each with its part of the devices
    #[arg(long, value_name = "PROCESSES", value_parser = at_least_one, help_heading = "Processes")]
    pub spawn: Option<usize>,
    /// Which process this is, from 0; without it, what the launcher has put into the environment
    #[arg(long, requires = "world_size", help_heading = "Processes")]
    pub rank: Option<usize>,
    /// How many processes there are
    #[arg(long, requires = "rank", conflicts_with = "spawn", help_heading = "Processes")]
    pub world_size: Option<usize>,
    /// Where rank 0 is, the same for all processes: it listens there, and GPU processes find each other;
    /// without it, what the launcher has put into the environment
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "spawn", help_heading = "Processes")]
    pub coordinator: Option<Address>,
    /// How long a GPU process waits for the other ones at the start
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 300.0,
        value_parser = seconds,
        help_heading = "Processes"
    )]
    pub join_timeout: f64,
    /// Feed the devices and compute nothing: every step takes MS milliseconds. Shows whether the data is
    /// fast enough for such a step
    #[arg(
        long,
        value_name = "MS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0",
        help_heading = "Processes"
    )]
    pub dry_run: Option<f64>,
}

fn at_least_one(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1 is needed".into()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

fn number(
    text: &str,
    range: impl std::ops::RangeBounds<f64>,
    what: &str,
) -> std::result::Result<f64, String> {
    let number: f64 = text.parse().map_err(|error| format!("{error}"))?;
    // NaN is in no range.
    if range.contains(&number) { Ok(number) } else { Err(format!("{what} is needed")) }
}

fn positive(text: &str) -> std::result::Result<f32, String> {
    number(text, f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX), "a number above 0")
        .map(|number| number as f32)
}

fn not_negative(text: &str) -> std::result::Result<f32, String> {
    number(text, 0.0..=f64::from(f32::MAX), "a number of at least 0").map(|number| number as f32)
}

fn below_one(text: &str) -> std::result::Result<f32, String> {
    number(text, 0.0..0.999_999, "a number from 0 to below 1").map(|number| number as f32)
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    number(text, 0.0..=86_400.0, "a number of seconds, at most a day,")
}

fn percentage(text: &str) -> std::result::Result<f64, String> {
    number(text, 0.0..=100.0, "a percentage from 0 to 100")
}

impl Args {
    /// Who this process is.
    pub fn topology(&self) -> Result<Topology> {
        Ok(match (self.rank, self.world_size) {
            (Some(rank), Some(ranks)) => Topology::new(rank, ranks)?,
            // Where no launcher tells the rank, the metadata server of a Cloud TPU VM does.
            _ if plugin::is_on_tpu(self.plugin.as_ref())? => Topology::detect_on_tpu_vm()?,
            _ => Topology::detect()?,
        })
    }

    /// The program that is run.
    pub fn artifact(&self) -> Result<Artifact> {
        let wanted = Wanted {
            model: self.model.clone(),
            size: self.image_size,
            dtype: self.dtype,
            batch: self.batch_size,
            devices: self.devices,
        };
        Ok(match &self.artifact {
            Some(name) => Artifact::open(name)?,
            None if wanted == Wanted::default() => Artifact::open("resnet8")?,
            None => Artifact::choose(&wanted)?,
        })
    }

    /// How to train.
    pub fn training(&self, topology: Topology) -> Options {
        Options {
            epochs: self.epochs,
            steps: self.steps,
            log_steps: self.log_steps,
            schedule: Schedule { peak: self.lr, warmup: self.warmup, decay: self.decay },
            weight_decay: self.weight_decay,
            label_smoothing: self.label_smoothing,
            momentum: self.momentum,
            depth: self.depth,
            topology,
        }
    }

    /// How to read, for a process with `devices` devices.
    pub fn data(
        &self,
        artifact: &Artifact,
        devices: usize,
        topology: Topology,
        waiting: Waiting,
    ) -> data::Options {
        let m = &artifact.manifest;
        data::Options {
            seed: self.seed as u64,
            batch: m.local_batch(devices),
            size: m.size,
            classes: m.classes,
            workers: self.workers,
            shuffle: self.shuffle,
            streams: self.streams,
            prefetch: self.prefetch,
            topology,
            skip_bad: self.skip_bad,
            indexes: Sets { train: self.index.clone(), validation: self.val_index.clone() },
            index_cache: self.work_dir().ok().map(|dir| dir.join("index")),
            memory: None,
            waiting,
        }
    }

    /// Where things are kept from one run to the next.
    pub fn work_dir(&self) -> Result<PathBuf> {
        Ok(self.work_dir.clone().map_or_else(crate::plugin::cache_dir, Ok)?)
    }

    /// The wait after which a warning is due, and that after which the process ends.
    pub fn wait_limits(&self) -> (Option<Duration>, Option<Duration>) {
        let limit = |seconds: f64| (seconds > 0.0).then(|| Duration::from_secs_f64(seconds));
        (limit(self.stall_warning), limit(self.step_timeout))
    }

    /// Where this process serves its metrics.
    pub fn metrics(&self, topology: &Topology) -> Result<Option<SocketAddr>> {
        let Some(mut address) = self.metrics else { return Ok(None) };
        if self.spawn.is_some() {
            let port = address.port().checked_add(topology.rank() as u16);
            let no_port =
                || Error::Usage(format!("--metrics {address}: no port for rank {}", topology.rank()));
            address.set_port(port.ok_or_else(no_port)?);
        }
        Ok(Some(address))
    }

    /// Where compiled programs are kept; `None` for nowhere.
    pub fn compile_cache(&self) -> Option<PathBuf> {
        match &self.compile_cache {
            Some(compile::Place::Off) => None,
            Some(compile::Place::Dir(dir)) => Some(dir.clone()),
            None => self.work_dir().ok().map(|dir| dir.join("compiled")),
        }
    }

    /// What must be the same in all processes, beside the network and where they begin.
    pub fn run(&self) -> String {
        let Self { seed, lr, warmup, decay, weight_decay, label_smoothing, momentum, epochs, steps, .. } =
            self;
        format!(
            "--seed {seed} --lr {lr} --warmup {warmup} --decay {decay} --weight-decay {weight_decay} \
             --label-smoothing {label_smoothing} --momentum {momentum} --epochs {epochs} --steps {steps}"
        )
    }

    /// How processes find each other.
    pub fn join(&self) -> Join {
        Join { coordinator: self.coordinator.clone(), timeout: Duration::from_secs_f64(self.join_timeout) }
    }

    /// How long a step of a dry run takes; none when it is not one.
    pub fn dry_step(&self) -> Result<Option<Duration>> {
        let duration = |ms: f64| {
            Duration::try_from_secs_f64(ms / 1000.0)
                .map_err(|_| Error::Usage(format!("--dry-run={ms}: no time that a step can take")))
        };
        self.dry_run.map(duration).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> std::result::Result<Args, clap::Error> {
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
    fn a_program_is_told_by_what_it_is() {
        let name = |arguments: &[&str]| parse(arguments).unwrap().artifact().unwrap().name;
        assert_eq!(name(&[]), "resnet8");
        assert_eq!(name(&["--model", "resnet8", "--devices", "8", "--dtype", "f32"]), "resnet8-x8");
        let article = ["--model", "resnet50", "--image-size", "32", "--batch-size", "128", "--devices", "8"];
        assert_eq!(name(&article), "resnet50-bf16-x8");
    }

    #[test]
    fn a_dry_step_has_a_time() {
        let step = |arguments: &[&str]| parse(arguments).unwrap().dry_step();
        assert_eq!(step(&[]).unwrap(), None);
        assert_eq!(step(&["--dry-run"]).unwrap(), Some(Duration::ZERO));
        assert_eq!(step(&["--dry-run=84.5"]).unwrap(), Some(Duration::from_micros(84_500)));
        assert!(step(&["--dry-run=-1"]).is_err());
    }

    /// The trainer's command lines in the pages, which need a TPU or a bucket to run: their arguments.
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
        let mut found = Vec::new();
        for page in pages {
            let text = std::fs::read_to_string(root.join(page)).unwrap().replace("\\\n", " ");
            for line in text.lines() {
                let Some((at, program)) = programs.iter().find_map(|name| Some((line.find(name)?, name)))
                else {
                    continue;
                };
                let rest = &line[at + program.len()..];
                let rest = &rest[..ends.iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len())];
                let rest =
                    rest.split_once("-- ").filter(|_| program.starts_with("cargo")).map_or(rest, |own| own.1);
                let words = rest.split_whitespace().filter(|word| *word != "…");
                found.push(words.map(|word| word.trim_matches(['"', '\'']).to_owned()).collect());
            }
        }
        found
    }

    #[test]
    fn the_arguments_of_the_pods_are_options_that_exist() {
        let manifest = include_str!("../deploy/jobset.yaml");
        let arguments = manifest.lines().filter_map(|line| line.trim().strip_prefix("- "));
        let arguments: Vec<&str> = arguments.filter(|argument| argument.starts_with("--")).collect();
        assert!(arguments.len() >= 10, "{arguments:?}");
        assert_eq!(parse(&arguments).unwrap().artifact().unwrap().name, "resnet50-224-bf16-x16");
    }

    #[test]
    fn the_commands_of_the_pages_have_options_that_exist() {
        let commands = documented();
        assert!(commands.len() >= 10, "{commands:?}");
        for command in commands {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            let args = parse(&words).unwrap_or_else(|error| panic!("{command:?}: {error}"));
            let exported = args.artifact.as_ref().is_some_and(|name| name.contains('/'));
            if !exported {
                args.artifact().unwrap_or_else(|error| panic!("{command:?}: {error}"));
            }
        }
    }
}
