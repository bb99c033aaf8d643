//! Which of several machines this is.

use crate::failure::Failure;
use shardstream::topology::{Launcher, Topology};

/// The machines that write the shards of a series together.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct MachineOptions {
    /// Which of several machines this is, from 0: it writes the shards RANK, RANK + WORLD_SIZE and so on.
    /// `auto` takes both from the environment, as torchrun, Slurm, MPI and other launchers set it.
    #[arg(long, value_name = "RANK|auto", value_parser = given)]
    rank: Option<RankOption>,
    /// How many machines write the shards, each with the same options. It implies --resume, as `--rank auto`
    /// does.
    #[arg(long, value_name = "COUNT", requires = "rank")]
    world_size: Option<usize>,
}

/// A rank as it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RankOption {
    Auto,
    Number(usize),
}

fn given(text: &str) -> Result<RankOption, String> {
    match text {
        "auto" => Ok(RankOption::Auto),
        _ => text.parse().map(RankOption::Number).map_err(|_| "expected a number or auto".into()),
    }
}

/// Which of how many machines this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MachineRank {
    pub(crate) rank: usize,
    pub(crate) world_size: usize,
}

impl MachineOptions {
    /// Which machine this is; the only one, unless another was given.
    ///
    /// # Errors
    /// For ranks that are out of range or not told.
    pub(crate) fn rank(&self) -> Result<MachineRank, Failure> {
        self.rank_from(Topology::detect)
    }

    /// Whether others may write shards of the series too.
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
                return usage("--world-size is for a --rank that is a number: auto tells both".into());
            }
            (Some(RankOption::Auto), None) => {
                let topology = detect().map_err(|error| Failure::Usage(format!("--rank auto: {error}")))?;
                if topology.launcher() == Launcher::Single {
                    // Each of several machines would write all shards.
                    let what = "--rank auto: the environment does not tell the rank: give --rank and \
                                --world-size, or set SHARDSTREAM_RANK and SHARDSTREAM_WORLD_SIZE";
                    return usage(what.into());
                }
                (topology.rank(), topology.world_size())
            }
        };
        match rank < world_size {
            true => Ok(MachineRank { rank, world_size }),
            false => usage(format!("--rank {rank}: the ranks of {world_size} machines count from 0")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_given_or_detected() {
        let slurm = [("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "3"), ("SLURM_STEP_NUM_TASKS", "8")];
        let rank = |given: Option<RankOption>, world_size, variables: &[(&str, &str)]| {
            let find = |name: &str| variables.iter().find(|(variable, _)| *variable == name);
            let detect = || Topology::detect_from(|name| find(name).map(|(_, value)| (*value).to_owned()));
            let machines = MachineOptions { rank: given, world_size };
            machines.rank_from(detect).map(|MachineRank { rank, world_size }| (rank, world_size)).ok()
        };
        let (number, auto) = (|number| Some(RankOption::Number(number)), Some(RankOption::Auto));
        // Nothing is detected unless that is asked for.
        assert_eq!(rank(None, None, &slurm), Some((0, 1)));
        assert_eq!(rank(number(1), Some(2), &slurm), Some((1, 2)));
        assert_eq!(rank(auto, None, &slurm), Some((3, 8)));
        assert_eq!(rank(auto, None, &[("RANK", "1"), ("WORLD_SIZE", "2")]), Some((1, 2)));
        assert_eq!(rank(auto, None, &[]), None);
        assert_eq!(rank(auto, None, &[("RANK", "1")]), None);
        assert_eq!(rank(auto, Some(8), &slurm), None);
        assert_eq!((rank(number(2), Some(2), &[]), rank(number(0), None, &[])), (None, None));
        assert_eq!((given("auto"), given("7")), (Ok(RankOption::Auto), Ok(RankOption::Number(7))));
        assert!(given("first").is_err() && given("-1").is_err());
    }
}
