//! Detects the topology from the environment variables of launchers.

mod environment;
mod tpu_vm;

use super::{Launcher, Topology, bad};
use crate::error::Result;
use environment::{
    Environment, Member, NumericVariable, SET_BOTH, SLICES_ADDRESS, check_range, in_slice, topology,
};

/// The variables of a launcher that sets both the rank and the world size. If several names are listed, the
/// first one that is set is used.
struct LauncherVariables {
    launcher: Launcher,
    rank: &'static str,
    world_size: &'static str,
    local_rank: &'static [&'static str],
    local_world_size: &'static [&'static str],
}

const EXPLICIT: LauncherVariables = LauncherVariables {
    launcher: Launcher::Explicit,
    rank: "SHARDSTREAM_RANK",
    world_size: "SHARDSTREAM_WORLD_SIZE",
    local_rank: &["SHARDSTREAM_LOCAL_RANK"],
    local_world_size: &["SHARDSTREAM_LOCAL_WORLD_SIZE"],
};

const TORCHRUN: LauncherVariables = LauncherVariables {
    launcher: Launcher::Torchrun,
    rank: "RANK",
    world_size: "WORLD_SIZE",
    local_rank: &["LOCAL_RANK"],
    local_world_size: &["LOCAL_WORLD_SIZE"],
};

const OPEN_MPI: LauncherVariables = LauncherVariables {
    launcher: Launcher::OpenMpi,
    rank: "OMPI_COMM_WORLD_RANK",
    world_size: "OMPI_COMM_WORLD_SIZE",
    local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
    local_world_size: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
};

const PMI: LauncherVariables = LauncherVariables {
    launcher: Launcher::Pmi,
    rank: "PMI_RANK",
    world_size: "PMI_SIZE",
    local_rank: &["PMI_LOCAL_RANK", "MPI_LOCALRANKID"],
    local_world_size: &["PMI_LOCAL_SIZE", "MPI_LOCALNRANKS"],
};

/// Variables in which users set the world size if their launcher sets only a rank.
const WORLD_SIZES: &[&str] = &["SHARDSTREAM_WORLD_SIZE", "WORLD_SIZE"];

type Detector = fn(&Environment) -> Result<Option<Topology>>;

/// The detectors in order: the first one that finds a topology is used. The user's variables are first, then
/// inner launchers before outer ones (`torchrun` inside of a Slurm step, for instance).
const DETECTORS: [Detector; 8] = [
    |environment| rank_and_size(environment, &EXPLICIT),
    |environment| rank_and_size(environment, &TORCHRUN),
    |environment| rank_and_size(environment, &OPEN_MPI),
    |environment| rank_and_size(environment, &PMI),
    slurm,
    // `detect` queries the metadata server later if the variables are incomplete.
    |environment| if environment.on_tpu_vm && partly_tpu(environment) { Ok(None) } else { tpu(environment) },
    |environment| rank_only(environment, Launcher::Pmix, "PMIX_RANK", WORLD_SIZES),
    |environment| {
        let sizes = [WORLD_SIZES, &["COMPLETIONS"]].concat();
        rank_only(environment, Launcher::Kubernetes, "JOB_COMPLETION_INDEX", &sizes)
    },
];

impl Topology {
    /// Detects the topology from the environment of this process: see [`detect_from`](Topology::detect_from).
    ///
    /// # Errors
    /// As [`detect_from`](Topology::detect_from).
    pub fn detect() -> Result<Self> {
        // A value that is not Unicode is reported as a value that is not a number.
        Self::detect_from(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// Detects the topology from environment variables. The first launcher of this table whose variables are
    /// set is used:
    ///
    /// | launcher | variables |
    /// |---|---|
    /// | explicit | `SHARDSTREAM_RANK`, `SHARDSTREAM_WORLD_SIZE`, `SHARDSTREAM_LOCAL_RANK`, `SHARDSTREAM_LOCAL_WORLD_SIZE` |
    /// | torchrun | `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE` |
    /// | Open MPI | `OMPI_COMM_WORLD_RANK`, `_SIZE`, `_LOCAL_RANK`, `_LOCAL_SIZE` |
    /// | PMI | `PMI_RANK`, `PMI_SIZE`; `PMI_LOCAL_RANK` or `MPI_LOCALRANKID`, `PMI_LOCAL_SIZE` or `MPI_LOCALNRANKS` |
    /// | Slurm | within a job step: `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS` or `SLURM_NTASKS`, `SLURM_LOCALID` |
    /// | Cloud TPU | `TPU_WORKER_ID`, `TPU_WORKER_HOSTNAMES`, and `MEGASCALE_SLICE_ID`, `MEGASCALE_NUM_SLICES` |
    /// | PMIx | `PMIX_RANK`, and a world size that you set |
    /// | Kubernetes | `JOB_COMPLETION_INDEX`, and a world size that you set |
    ///
    /// `WORKER` and `NUM_WORKERS` set the worker, with any launcher. Without any of the variables of the
    /// table, the topology is that of a single process. The page `docs/topology.md` of the repository has the
    /// details.
    ///
    /// ```
    /// use shardstream::topology::{Launcher, Topology};
    ///
    /// let environment = [("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "3"), ("SLURM_STEP_NUM_TASKS", "8")];
    /// let topology = Topology::detect_from(|name| {
    ///     environment.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.to_string())
    /// })?;
    /// assert_eq!((topology.rank(), topology.world_size()), (3, 8));
    /// assert_eq!(topology.launcher(), Launcher::Slurm);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Topology`](crate::ErrorKind::Topology) if a variable of the chosen launcher is not a
    /// number, lacks its counterpart, is out of range or contradicts another variable. The message names the
    /// variable and says what to do.
    pub fn detect_from(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        detect(&lookup, false)
    }

    /// As [`detect`](Topology::detect), for a process on a Cloud TPU VM: if the environment does not contain
    /// the rank, queries the metadata server of the machine.
    ///
    /// No environment variable has the rank on a TPU VM outside GKE. This function reads
    /// `agent-worker-number`, `worker-network-endpoints` and `tpu-env` from the server, as JAX does. In a job
    /// of several slices, `MEGASCALE_SLICE_ID` and `MEGASCALE_NUM_SLICES` are read from the environment or
    /// `tpu-env`. `GCE_METADATA_HOST` names another server; `TPU_SKIP_MDS_QUERY` disables the query.
    ///
    /// Blocks: each attribute takes up to three requests of up to two seconds each.
    ///
    /// ```no_run
    /// use shardstream::Topology;
    ///
    /// let topology = Topology::detect_on_tpu_vm()?;
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`detect_from`](Topology::detect_from). [`ErrorKind::Topology`](crate::ErrorKind::Topology) is also
    /// returned if the server cannot be reached, is not Google's, lacks an attribute, or contradicts the
    /// environment.
    pub fn detect_on_tpu_vm() -> Result<Self> {
        Self::detect_on_tpu_vm_from(|name| {
            std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
        })
    }

    /// [`detect_on_tpu_vm`](Topology::detect_on_tpu_vm), with the variables of `lookup` in place of the
    /// environment.
    ///
    /// # Errors
    /// As [`detect_on_tpu_vm`](Topology::detect_on_tpu_vm).
    pub fn detect_on_tpu_vm_from(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        detect(&lookup, true)
    }
}

/// Reads the environment. If it does not contain the rank and `on_tpu_vm` is set, queries the metadata
/// server.
fn detect(lookup: &dyn Fn(&str) -> Option<String>, on_tpu_vm: bool) -> Result<Topology> {
    // `TPU_SKIP_MDS_QUERY` disables the query of the server.
    let on_tpu_vm = on_tpu_vm && lookup("TPU_SKIP_MDS_QUERY").is_none();
    let environment = Environment { lookup, on_tpu_vm };
    let mut found = DETECTORS.iter().find_map(|detector| detector(&environment).transpose()).transpose()?;
    if found.is_none() && on_tpu_vm {
        found = tpu_vm::detect(&environment)?;
    }
    let topology = found.unwrap_or(Topology::single());
    check_lone_world_size(&environment, topology)?;
    match environment.pair("WORKER", "NUM_WORKERS")? {
        Some(worker) => topology.with_worker(worker.number, worker.count),
        None => Ok(topology),
    }
}

fn with_local(
    topology: Topology,
    rank: Option<NumericVariable<'_>>,
    world_size: Option<NumericVariable<'_>>,
) -> Result<Option<Topology>> {
    if let (Some(rank), Some(world_size)) = (rank, world_size) {
        check_range(rank, world_size.value, world_size.name)?;
    }
    let [local_rank, local_world_size] = [rank, world_size].map(|number| number.map(|it| it.value));
    Topology { local_rank, local_world_size, ..topology }.checked_local().map(Some)
}

fn rank_and_size(environment: &Environment, names: &LauncherVariables) -> Result<Option<Topology>> {
    // If the user sets a world size without a rank, another launcher sets the rank: see
    // `check_lone_world_size`.
    let user_sets = WORLD_SIZES.contains(&names.world_size);
    if user_sets && !environment.has(names.rank) {
        return Ok(None);
    }
    let Some(process) = environment.pair(names.rank, names.world_size)? else { return Ok(None) };
    let topology = topology(names.launcher, process.number, process.count)?;
    with_local(topology, environment.first(names.local_rank)?, environment.first(names.local_world_size)?)
}

/// Checks a world size that the user set without a rank. It must agree with the detected launcher, which
/// would otherwise silently override it.
fn check_lone_world_size(environment: &Environment, topology: Topology) -> Result<()> {
    for LauncherVariables { rank, world_size, .. } in [EXPLICIT, TORCHRUN] {
        if environment.has(rank) || matches!(topology.launcher, Launcher::Explicit) {
            continue;
        }
        let Some(NumericVariable { name, value }) = environment.number(world_size)? else { continue };
        if topology.launcher == Launcher::Single {
            return Err(bad(format!("{name} is set, but {rank} is not: set both, or unset {name}")));
        }
        if value != topology.world_size {
            return Err(bad(format!("{name}={value}, but this is {topology}: {SET_BOTH}, or unset {name}")));
        }
    }
    Ok(())
}

/// The topology of a Slurm job step, which `srun` started. The batch script itself is one process, although
/// Slurm sets `SLURM_NTASKS` for it too.
fn slurm(environment: &Environment) -> Result<Option<Topology>> {
    if !environment.has("SLURM_STEP_ID") {
        return Ok(None);
    }
    let sizes = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"];
    let (Some(rank), Some(size)) = (environment.number("SLURM_PROCID")?, environment.first(&sizes)?) else {
        return Err(bad(format!(
            "SLURM_STEP_ID is set, but not both of SLURM_PROCID and SLURM_STEP_NUM_TASKS: {SET_BOTH}, \
             or unset SLURM_STEP_ID"
        )));
    };
    check_range(rank, size.value, size.name)?;
    let topology = topology(Launcher::Slurm, rank.value, size.value)?;
    // Not SLURM_NTASKS_PER_NODE: that is the requested number, and a host can have fewer tasks than
    // requested.
    let local_size =
        match (environment.lookup)("SLURM_STEP_TASKS_PER_NODE").zip(environment.number("SLURM_NODEID")?) {
            Some((counts, node)) => slurm_count(&counts, node.value),
            None => None,
        };
    let local_size = local_size.map(|value| NumericVariable { name: "SLURM_STEP_TASKS_PER_NODE", value });
    with_local(topology, environment.number("SLURM_LOCALID")?, local_size)
}

/// The number of tasks on a node, from Slurm's notation: `2(x3),1` means 2, 2, 2, 1.
fn slurm_count(counts: &str, node: usize) -> Option<usize> {
    let mut nodes_before = node;
    for group in counts.split(',') {
        let (count, times) = match group.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')')?.parse().ok()?),
            None => (group, 1),
        };
        match nodes_before.checked_sub(times) {
            Some(rest) => nodes_before = rest,
            None => return count.parse().ok(),
        }
    }
    None
}

/// Whether the variables of a TPU worker are incomplete, and the metadata server can supply the missing
/// variables.
fn partly_tpu(environment: &Environment) -> bool {
    let has_id = ["TPU_WORKER_ID", "CLOUD_TPU_TASK_ID"].iter().any(|name| environment.has(name));
    // The server has the number of hosts, but not the number of processes on each host.
    let has_all = has_id && environment.has("TPU_WORKER_HOSTNAMES");
    !has_all && !environment.has("TPU_PROCESS_ADDRESSES")
}

/// The topology from the variables of the TPU runtime, which number the slices and the workers in each slice.
fn tpu(environment: &Environment) -> Result<Option<Topology>> {
    const PROCESSES: &str = "TPU_PROCESS_ADDRESSES";
    const HOSTS: &str = "TPU_WORKER_HOSTNAMES";
    let slice = environment.pair("MEGASCALE_SLICE_ID", "MEGASCALE_NUM_SLICES")?;
    let (ids, list) = if environment.has(PROCESSES) {
        (["CLOUD_TPU_TASK_ID", "TPU_WORKER_ID"], PROCESSES)
    } else {
        (["TPU_WORKER_ID", "CLOUD_TPU_TASK_ID"], HOSTS)
    };
    let id = environment.first(&ids)?;
    let (id, workers) = match (id, environment.has(list)) {
        (None, false) if slice.is_none() && !environment.has(SLICES_ADDRESS) => return Ok(None),
        (Some(id), true) => (id, environment.list_length(list)?),
        (id, _) => {
            let unset = if id.is_none() { ids[0] } else { list };
            return Err(bad(format!(
                "TPU variables are set, but {unset} is not, so this worker's rank is not known: {SET_BOTH}"
            )));
        }
    };
    check_range(id, workers, &format!("the length of {list}"))?;
    let worker = Member { number: id.value, count: workers };
    let topology = in_slice(environment, Launcher::Tpu, worker, slice)?;
    if topology.world_size == 1
        && let Some(NumericVariable { name, value: index @ 1.. }) =
            environment.number("JOB_COMPLETION_INDEX")?
    {
        return Err(bad(format!(
            "{list} names one TPU worker, but {name}={index}: if the pods of this Job train together, \
             {SET_BOTH}; if each trains alone, set them to 0 and 1"
        )));
    }
    Ok(Some(topology))
}

/// The topology from a launcher that sets the rank, but not the number of ranks.
fn rank_only(
    environment: &Environment,
    launcher: Launcher,
    rank: &str,
    world_sizes: &[&str],
) -> Result<Option<Topology>> {
    let Some(rank) = environment.number(rank)? else { return Ok(None) };
    let Some(size) = environment.first(world_sizes)? else {
        return Err(bad(format!(
            "{} is set, but {launcher} does not set the number of processes: set SHARDSTREAM_WORLD_SIZE to \
             it",
            rank.name
        )));
    };
    check_range(rank, size.value, size.name)?;
    topology(launcher, rank.value, size.value).map(Some)
}

#[cfg(test)]
mod tests;
