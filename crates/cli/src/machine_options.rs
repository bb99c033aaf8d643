//! The rank of this machine among the machines that write a series together.

use crate::failure::Failure;
use shardstream::topology::{Launcher, Topology};
use std::path::Path;
use std::sync::OnceLock;

/// Options for several machines that write a series together.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct MachineOptions {
    /// Rank of this machine, from 0: it writes the shards RANK, RANK + WORLD_SIZE and so on. `auto` takes
    /// rank and world size from the environment that torchrun, Slurm, MPI and other launchers set. On a Cloud
    /// TPU VM without such an environment, `auto` asks the metadata server.
    #[arg(long, value_name = "RANK|auto", value_parser = rank_option)]
    rank: Option<RankOption>,
    /// Number of machines that write the shards, all with the same options. Implies --resume, as `--rank
    /// auto` does.
    #[arg(long, value_name = "COUNT", requires = "rank")]
    world_size: Option<usize>,
    /// The result of [`rank`](Self::rank), kept so that the metadata server is asked only once.
    #[arg(skip)]
    detected: OnceLock<MachineRank>,
}

/// The value of `--rank`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RankOption {
    Auto,
    Number(usize),
}

fn rank_option(text: &str) -> Result<RankOption, String> {
    match text {
        "auto" => Ok(RankOption::Auto),
        _ => text.parse().map(RankOption::Number).map_err(|_| "expected a number or auto".into()),
    }
}

/// The rank of this machine, and the number of machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MachineRank {
    pub(crate) rank: usize,
    pub(crate) world_size: usize,
}

impl MachineOptions {
    /// The rank of this machine. Without `--rank`, this is rank 0 of 1 machine.
    ///
    /// # Errors
    /// [`Failure::Usage`] if the rank is out of range or cannot be detected.
    pub(crate) fn rank(&self) -> Result<MachineRank, Failure> {
        if let Some(rank) = self.detected.get() {
            return Ok(*rank);
        }
        let rank = self.rank_from(detect)?;
        Ok(*self.detected.get_or_init(|| rank))
    }

    /// Whether other machines may write shards of the series too.
    pub(crate) fn are_several(&self) -> bool {
        self.rank == Some(RankOption::Auto) || self.world_size.is_some_and(|count| count > 1)
    }

    fn rank_from(&self, detect: impl Fn() -> shardstream::Result<Topology>) -> Result<MachineRank, Failure> {
        let usage = |what: String| Err(Failure::Usage(what));
        let (rank, world_size) = match (self.rank, self.world_size) {
            (None, _) => (0, 1),
            (Some(RankOption::Number(_)), None) => return usage("--rank needs --world-size".into()),
            (Some(RankOption::Number(rank)), Some(world_size)) => (rank, world_size),
            (Some(RankOption::Auto), Some(_)) => {
                return usage("--rank auto also sets the world size: leave out --world-size".into());
            }
            (Some(RankOption::Auto), None) => {
                let topology = detect().map_err(|error| Failure::Usage(format!("--rank auto: {error}")))?;
                if topology.launcher() == Launcher::Single {
                    // As rank 0 of 1, every machine would write all shards.
                    let what = "--rank auto: the environment does not have the rank: give --rank and \
                                --world-size, or set SHARDSTREAM_RANK and SHARDSTREAM_WORLD_SIZE";
                    return usage(what.into());
                }
                (topology.rank(), topology.world_size())
            }
        };
        match rank < world_size {
            true => Ok(MachineRank { rank, world_size }),
            false => usage(format!("--rank {rank}: with --world-size {world_size}, ranks count from 0")),
        }
    }
}

/// Detects the rank from the environment. On a Cloud TPU VM, also asks the metadata server if the environment
/// has no rank.
///
/// The server is asked only if the machine has a TPU or if `GCE_METADATA_HOST` names the server: on other
/// machines the request would wait for its time-out.
fn detect() -> shardstream::Result<Topology> {
    match has_tpu(Path::new("/dev")) || std::env::var_os("GCE_METADATA_HOST").is_some() {
        true => Topology::detect_on_tpu_vm(),
        false => Topology::detect(),
    }
}

/// Whether the directory `dev` has the device files of a TPU, such as `accel0` or `vfio/0`.
fn has_tpu(dev: &Path) -> bool {
    let is_numbered = |name: &str, prefix: &str| {
        let number = name.strip_prefix(prefix);
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let has_numbered = |directory: &Path, prefix: &str| {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.file_name())
            .any(|name| name.to_str().is_some_and(|name| is_numbered(name, prefix)))
    };
    has_numbered(dev, "accel") || has_numbered(&dev.join("vfio"), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tpus_are_recognised_by_their_device_files() {
        let dev = tempfile::tempdir().unwrap();
        let (accelerators, vfio) = (dev.path().join("accel"), dev.path().join("vfio"));
        std::fs::create_dir(&vfio).unwrap();
        std::fs::write(vfio.join("vfio"), "").unwrap();
        std::fs::write(&accelerators, "").unwrap();
        assert!(!has_tpu(dev.path()) && !has_tpu(&dev.path().join("none")));
        std::fs::write(vfio.join("0"), "").unwrap();
        assert!(has_tpu(dev.path()));
        std::fs::remove_dir_all(&vfio).unwrap();
        std::fs::write(dev.path().join("accel3"), "").unwrap();
        assert!(has_tpu(dev.path()));
    }

    #[test]
    fn ranks_are_given_or_detected() {
        let slurm = [("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "3"), ("SLURM_STEP_NUM_TASKS", "8")];
        let rank = |rank: Option<RankOption>, world_size, variables: &[(&str, &str)]| {
            let find = |name: &str| variables.iter().find(|(variable, _)| *variable == name);
            let detect = || Topology::detect_from(|name| find(name).map(|(_, value)| (*value).to_owned()));
            let machines = MachineOptions { rank, world_size, detected: OnceLock::new() };
            machines.rank_from(detect).map(|MachineRank { rank, world_size }| (rank, world_size)).ok()
        };
        let (number, auto) = (|number| Some(RankOption::Number(number)), Some(RankOption::Auto));
        // Only `--rank auto` uses the environment.
        assert_eq!(rank(None, None, &slurm), Some((0, 1)));
        assert_eq!(rank(number(1), Some(2), &slurm), Some((1, 2)));
        assert_eq!(rank(auto, None, &slurm), Some((3, 8)));
        assert_eq!(rank(auto, None, &[("RANK", "1"), ("WORLD_SIZE", "2")]), Some((1, 2)));
        assert_eq!(rank(auto, None, &[]), None);
        assert_eq!(rank(auto, None, &[("RANK", "1")]), None);
        assert_eq!(rank(auto, Some(8), &slurm), None);
        assert_eq!((rank(number(2), Some(2), &[]), rank(number(0), None, &[])), (None, None));
        assert_eq!(
            (rank_option("auto"), rank_option("7")),
            (Ok(RankOption::Auto), Ok(RankOption::Number(7)))
        );
        assert!(rank_option("first").is_err() && rank_option("-1").is_err());
    }
}
