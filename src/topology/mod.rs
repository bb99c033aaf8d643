//! The rank and worker of a process, set by the program or detected from the environment.
//!
//! A *rank* is one process of a training job, a *worker* one of several readers in that process. Processes do
//! not communicate: the job's launcher sets the environment variables of each process, and
//! [`Topology::detect`] reads them. Incomplete or contradictory variables are an error, because a process
//! that takes itself for rank 0 of 1 by mistake trains on the data of all other processes.

mod detect;
mod metadata_server;

use crate::error::{Error, ErrorKind, Result};
use std::fmt;

/// The rank of this process in a training job, and the number of a worker within this process.
///
/// ```
/// use shardstream::Topology;
///
/// let topology = Topology::new(3, 8)?.with_worker(1, 2)?;
/// assert_eq!((topology.rank(), topology.world_size()), (3, 8));
/// assert_eq!(topology.to_string(), "rank 3 of 8, worker 1 of 2");
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias = "DistributedSampler")]
pub struct Topology {
    rank: usize,
    world_size: usize,
    /// The data-parallel rank. Ranks with the same data-parallel rank read the same samples.
    group: usize,
    /// The number of data-parallel ranks.
    groups: usize,
    local_rank: Option<usize>,
    local_world_size: Option<usize>,
    worker: usize,
    workers: usize,
    launcher: Launcher,
}

/// The source of a process's rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Launcher {
    /// Nothing: this is a single process.
    Single,
    /// The program itself, through [`Topology::new`].
    Program,
    /// The variables `SHARDSTREAM_RANK` and `SHARDSTREAM_WORLD_SIZE`.
    Explicit,
    /// torchrun, or another launcher that sets `RANK` and `WORLD_SIZE`.
    Torchrun,
    /// Open MPI.
    OpenMpi,
    /// MPICH, Intel MPI, and other launchers that speak PMI.
    Pmi,
    /// A launcher that speaks PMIx.
    Pmix,
    /// A Slurm job step.
    Slurm,
    /// The runtime of a Cloud TPU slice, or of several slices.
    Tpu,
    /// The metadata server of a TPU VM, through [`Topology::detect_on_tpu_vm`].
    TpuVm,
    /// An indexed Job of Kubernetes.
    Kubernetes,
}

impl Topology {
    /// A single process with one worker.
    #[must_use]
    pub const fn single() -> Self {
        Topology {
            rank: 0,
            world_size: 1,
            group: 0,
            groups: 1,
            local_rank: Some(0),
            local_world_size: Some(1),
            worker: 0,
            workers: 1,
            launcher: Launcher::Single,
        }
    }

    /// The process `rank` of `world_size`, with one worker.
    ///
    /// # Errors
    /// [`ErrorKind::Topology`] unless `rank < world_size`.
    pub fn new(rank: usize, world_size: usize) -> Result<Self> {
        check_number("rank", rank, world_size)?;
        let launcher = Launcher::Program;
        Ok(Topology {
            rank,
            world_size,
            group: rank,
            groups: world_size,
            local_rank: None,
            local_world_size: None,
            launcher,
            ..Self::single()
        })
    }

    /// Sets the number of the worker within its process, and the number of workers of each process.
    ///
    /// # Errors
    /// [`ErrorKind::Topology`] unless `worker < workers`.
    pub fn with_worker(self, worker: usize, workers: usize) -> Result<Self> {
        check_number("worker", worker, workers)?;
        if self.world_size.checked_mul(workers).is_none() {
            return Err(bad(format!("{} ranks with {workers} workers each are too many", self.world_size)));
        }
        Ok(Topology { worker, workers, ..self })
    }

    /// Sets the data-parallel rank of this process and the number of data-parallel ranks. All processes with
    /// the same data-parallel rank read the same samples in the same order.
    ///
    /// Ranks of tensor, pipeline or context parallelism hold parts of one model and need the same samples.
    /// Give each process its data-parallel rank and the number of data-parallel ranks, as the training
    /// framework reports them. By default, all ranks are data-parallel. With `size` data-parallel ranks, a
    /// step consumes one batch of each data-parallel rank, and the number of streams must be a multiple of
    /// `size` times the number of workers; the world size does not matter.
    ///
    /// ```
    /// use shardstream::Topology;
    ///
    /// // 16 ranks, of which every 4 consecutive ones hold the parts of one model (tensor parallelism of 4).
    /// let (rank, parallel) = (6, 4);
    /// let topology = Topology::new(rank, 16)?.with_data_parallel(rank / parallel, 16 / parallel)?;
    /// assert_eq!((topology.reader(), topology.readers()), (1, 4));
    /// assert_eq!(topology.to_string(), "rank 6 of 16, data-parallel rank 1 of 4");
    ///
    /// // Pipeline stages that are not consecutive: ranks 0 to 7 are stage 0, ranks 8 to 15 stage 1.
    /// let topology = Topology::new(11, 16)?.with_data_parallel(11 % 8, 8)?;
    /// assert_eq!((topology.reader(), topology.readers()), (3, 8));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Topology`] unless `rank < size` and `size` divides the world size: all replicas of a
    /// model have the same number of ranks.
    pub fn with_data_parallel(self, rank: usize, size: usize) -> Result<Self> {
        check_number("data-parallel rank", rank, size)?;
        if !self.world_size.is_multiple_of(size) {
            return Err(bad(format!(
                "{size} data-parallel ranks do not divide {} ranks: give the number of replicas of the \
                 model, each of as many ranks",
                self.world_size
            )));
        }
        Ok(Topology { group: rank, groups: size, ..self })
    }

    /// Sets the local rank of this process and the number of processes on its host.
    ///
    /// # Errors
    /// [`ErrorKind::Topology`] unless `local_rank < local_world_size <= world_size`.
    pub fn with_local(self, local_rank: usize, local_world_size: usize) -> Result<Self> {
        Topology { local_rank: Some(local_rank), local_world_size: Some(local_world_size), ..self }
            .checked_local()
    }

    /// The number of this process among all processes, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of processes.
    #[must_use]
    pub fn world_size(&self) -> usize {
        self.world_size
    }

    /// The number of this process among the processes on its host, if known.
    #[must_use]
    pub fn local_rank(&self) -> Option<usize> {
        self.local_rank
    }

    /// The number of processes on this host, if known.
    #[must_use]
    pub fn local_world_size(&self) -> Option<usize> {
        self.local_world_size
    }

    /// The number of the worker in its process, from 0.
    #[must_use]
    pub fn worker(&self) -> usize {
        self.worker
    }

    /// The number of workers of each process.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// The data-parallel rank of this process: processes with the same data-parallel rank read the same
    /// samples. It equals the rank unless [`with_data_parallel`](Topology::with_data_parallel) set it.
    #[must_use]
    pub fn data_parallel_rank(&self) -> usize {
        self.group
    }

    /// The number of data-parallel ranks. It equals the world size unless
    /// [`with_data_parallel`](Topology::with_data_parallel) set it.
    #[must_use]
    pub fn data_parallel_size(&self) -> usize {
        self.groups
    }

    /// The number of this worker among the workers of all data-parallel ranks, from 0:
    /// `data_parallel_rank + data_parallel_size * worker`.
    ///
    /// If shards are split by node and then by worker, shard `i` goes to the reader with the number
    /// `i % readers`.
    #[must_use]
    pub fn reader(&self) -> usize {
        self.group + self.groups * self.worker
    }

    /// The number of workers of all data-parallel ranks together.
    #[must_use]
    pub fn readers(&self) -> usize {
        self.groups * self.workers
    }

    /// The source of the rank.
    #[must_use]
    pub fn launcher(&self) -> Launcher {
        self.launcher
    }

    fn checked_local(self) -> Result<Self> {
        let size = self.local_world_size.unwrap_or(self.world_size);
        if size > self.world_size {
            return Err(bad(format!(
                "{size} processes on this host are more than {} in all",
                self.world_size
            )));
        }
        self.local_rank.map_or(Ok(()), |rank| check_number("local rank", rank, size))?;
        Ok(self)
    }
}

impl Default for Topology {
    fn default() -> Self {
        Self::single()
    }
}

/// `rank 3 of 8, worker 1 of 2 (from torchrun)`.
impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank, self.world_size)?;
        if (self.group, self.groups) != (self.rank, self.world_size) {
            write!(f, ", data-parallel rank {} of {}", self.group, self.groups)?;
        }
        if self.workers > 1 {
            write!(f, ", worker {} of {}", self.worker, self.workers)?;
        }
        match self.launcher {
            Launcher::Single | Launcher::Program => Ok(()),
            launcher => write!(f, " (from {launcher})"),
        }
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Launcher::Single => "nobody",
            Launcher::Program => "the program",
            Launcher::Explicit => "SHARDSTREAM_RANK",
            Launcher::Torchrun => "torchrun",
            Launcher::OpenMpi => "Open MPI",
            Launcher::Pmi => "PMI",
            Launcher::Pmix => "PMIx",
            Launcher::Slurm => "Slurm",
            Launcher::Tpu => "the TPU runtime",
            Launcher::TpuVm => "the metadata server of the TPU VM",
            Launcher::Kubernetes => "Kubernetes",
        })
    }
}

fn bad(message: impl Into<String>) -> Error {
    ErrorKind::Topology(message.into()).into()
}

/// Checks that `number` is less than `count`. `what` is the name of the number in the error.
fn check_number(what: &str, number: usize, count: usize) -> Result<()> {
    if number < count {
        return Ok(());
    }
    Err(bad(match count {
        0 => format!("{what} {number} of 0: there must be at least one {what}"),
        _ => format!("{what} {number} of {count}: the first is 0, so it must be less than {count}"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_must_be_less_than_the_number_of_ranks() {
        assert!(Topology::new(1, 1).is_err());
        let error = Topology::new(0, 0).unwrap_err().to_string();
        assert!(error.contains("there must be at least one rank"), "{error}");
        assert!(Topology::new(0, 2).unwrap().with_worker(2, 2).is_err());
        assert!(Topology::new(0, 2).unwrap().with_local(0, 3).is_err());
        assert!(Topology::new(0, 2).unwrap().with_local(1, 1).is_err());
        assert!(Topology::new(0, usize::MAX).unwrap().with_worker(0, 2).is_err());
    }

    #[test]
    fn every_worker_of_every_rank_has_its_own_reader_number() {
        let mut seen = Vec::new();
        for rank in 0..3 {
            for worker in 0..4 {
                let topology = Topology::new(rank, 3).unwrap().with_worker(worker, 4).unwrap();
                assert_eq!(topology.readers(), 12);
                seen.push(topology.reader());
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..12).collect::<Vec<_>>());
    }

    #[test]
    fn ranks_with_one_data_parallel_rank_have_the_same_reader_number() {
        let mut seen = std::collections::BTreeMap::<usize, usize>::new();
        for (rank, worker) in (0..12).flat_map(|rank| [(rank, 0), (rank, 1)]) {
            let alone = Topology::new(rank, 12).unwrap();
            let of = |topology: Topology| topology.with_data_parallel(rank / 3, 4).unwrap();
            let topology = of(alone).with_worker(worker, 2).unwrap().with_local(rank % 4, 4).unwrap();
            // The order of the calls does not matter.
            assert_eq!(of(alone.with_local(rank % 4, 4).unwrap().with_worker(worker, 2).unwrap()), topology);
            assert_eq!((topology.rank(), topology.world_size()), (rank, 12));
            assert_eq!((topology.data_parallel_rank(), topology.data_parallel_size()), (rank / 3, 4));
            assert_eq!((topology.local_rank(), topology.readers()), (Some(rank % 4), 8));
            *seen.entry(topology.reader()).or_default() += 1;
        }
        assert_eq!(seen, (0..8).map(|reader| (reader, 3)).collect());
        let alone = Topology::new(5, 8).unwrap();
        assert_eq!(alone.with_data_parallel(5, 8).unwrap(), alone);
        assert_eq!((alone.data_parallel_rank(), alone.data_parallel_size()), (5, 8));
        assert_eq!(alone.to_string(), "rank 5 of 8");
        let text = alone.with_data_parallel(1, 2).unwrap().with_worker(0, 2).unwrap().to_string();
        assert_eq!(text, "rank 5 of 8, data-parallel rank 1 of 2, worker 0 of 2");
    }

    #[test]
    fn data_parallel_ranks_must_divide_the_world_size() {
        let topology = Topology::new(4, 6).unwrap();
        let error = |rank, size| topology.with_data_parallel(rank, size).unwrap_err().to_string();
        assert!(error(1, 4).contains("4 data-parallel ranks do not divide 6 ranks"), "{}", error(1, 4));
        assert!(error(0, 12).contains("do not divide"));
        assert!(error(2, 2).contains("data-parallel rank 2 of 2: the first is 0"));
        assert!(error(0, 0).contains("there must be at least one data-parallel rank"));
        assert!(topology.with_data_parallel(0, 1).is_ok());
    }

    #[test]
    fn an_unknown_local_rank_is_not_guessed() {
        let topology = Topology::new(5, 8).unwrap();
        assert_eq!((topology.local_rank(), topology.local_world_size()), (None, None));
        let topology = topology.with_local(1, 4).unwrap();
        assert_eq!((topology.local_rank(), topology.local_world_size()), (Some(1), Some(4)));
        assert_eq!(Topology::default().local_rank(), Some(0));
    }
}
