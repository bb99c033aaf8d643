//! What the launchers of training jobs say in the environment.

mod tpu_vm;

use super::{Launcher, Topology, bad};
use crate::error::Result;

/// A launcher that says everything in variables of its own. Of several names, the first that is set counts.
struct Names {
    launcher: Launcher,
    rank: &'static str,
    world_size: &'static str,
    local_rank: &'static [&'static str],
    local_world_size: &'static [&'static str],
}

const EXPLICIT: Names = Names {
    launcher: Launcher::Explicit,
    rank: "SHARDSTREAM_RANK",
    world_size: "SHARDSTREAM_WORLD_SIZE",
    local_rank: &["SHARDSTREAM_LOCAL_RANK"],
    local_world_size: &["SHARDSTREAM_LOCAL_WORLD_SIZE"],
};

const TORCHRUN: Names = Names {
    launcher: Launcher::Torchrun,
    rank: "RANK",
    world_size: "WORLD_SIZE",
    local_rank: &["LOCAL_RANK"],
    local_world_size: &["LOCAL_WORLD_SIZE"],
};

const OPEN_MPI: Names = Names {
    launcher: Launcher::OpenMpi,
    rank: "OMPI_COMM_WORLD_RANK",
    world_size: "OMPI_COMM_WORLD_SIZE",
    local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
    local_world_size: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
};

const PMI: Names = Names {
    launcher: Launcher::Pmi,
    rank: "PMI_RANK",
    world_size: "PMI_SIZE",
    local_rank: &["PMI_LOCAL_RANK", "MPI_LOCALRANKID"],
    local_world_size: &["PMI_LOCAL_SIZE", "MPI_LOCALNRANKS"],
};

/// World sizes that people set for launchers which tell a rank alone.
const WORLD_SIZES: &[&str] = &["SHARDSTREAM_WORLD_SIZE", "WORLD_SIZE"];

const SET_BOTH: &str = "set SHARDSTREAM_RANK and SHARDSTREAM_WORLD_SIZE";

type Detector = fn(&Environment) -> Result<Option<Topology>>;

/// In the order in which they count: what the user says, then what starts processes within what.
const DETECTORS: [Detector; 8] = [
    |environment| named(environment, &EXPLICIT),
    |environment| named(environment, &TORCHRUN),
    |environment| named(environment, &OPEN_MPI),
    |environment| named(environment, &PMI),
    slurm,
    // Where the variables do not suffice, the metadata server is asked.
    |environment| if environment.on_tpu_vm && partly_tpu(environment) { Ok(None) } else { tpu(environment) },
    |environment| rank_only(environment, Launcher::Pmix, "PMIX_RANK", WORLD_SIZES),
    |environment| {
        let sizes = [WORLD_SIZES, &["COMPLETIONS"]].concat();
        rank_only(environment, Launcher::Kubernetes, "JOB_COMPLETION_INDEX", &sizes)
    },
];

/// Reads the environment, and with `on_tpu_vm` asks the metadata server where that does not tell the rank.
pub(super) fn detect(lookup: &dyn Fn(&str) -> Option<String>, on_tpu_vm: bool) -> Result<Topology> {
    // Then the environment alone counts.
    let on_tpu_vm = on_tpu_vm && lookup("TPU_SKIP_MDS_QUERY").is_none();
    let environment = Environment { lookup, on_tpu_vm };
    let mut found = DETECTORS.iter().find_map(|detector| detector(&environment).transpose()).transpose()?;
    if found.is_none() && on_tpu_vm {
        found = tpu_vm::detect(&environment)?;
    }
    let topology = found.unwrap_or(Topology::single());
    check_lone_world_size(&environment, topology)?;
    match environment.pair("WORKER", "NUM_WORKERS")? {
        Some((worker, workers)) => topology.with_worker(worker, workers),
        None => Ok(topology),
    }
}

struct Environment<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
    /// Whether the metadata server may be asked.
    on_tpu_vm: bool,
}

/// A number and the variable that holds it.
#[derive(Clone, Copy)]
struct Number<'a> {
    name: &'a str,
    value: usize,
}

impl Environment<'_> {
    fn has(&self, name: &str) -> bool {
        (self.lookup)(name).is_some()
    }

    fn number<'n>(&self, name: &'n str) -> Result<Option<Number<'n>>> {
        let Some(text) = (self.lookup)(name) else { return Ok(None) };
        match text.trim().parse() {
            Ok(value) => Ok(Some(Number { name, value })),
            Err(_) => Err(bad(format!("{name}={text:?} is not a number: set it to one, or unset it"))),
        }
    }

    fn first<'n>(&self, names: &[&'n str]) -> Result<Option<Number<'n>>> {
        names.iter().find_map(|name| self.number(name).transpose()).transpose()
    }

    /// Two numbers of which both or none must be set.
    fn pair(&self, part: &str, whole: &str) -> Result<Option<(usize, usize)>> {
        match (self.number(part)?, self.number(whole)?) {
            (Some(part), Some(whole)) => {
                check_range(part, whole.value, whole.name)?;
                Ok(Some((part.value, whole.value)))
            }
            (None, None) => Ok(None),
            (given, _) => {
                let (set, unset) = if given.is_some() { (part, whole) } else { (whole, part) };
                Err(bad(format!("{set} is set, but {unset} is not: set both, or unset {set}")))
            }
        }
    }

    /// The length of a list whose items stand apart by commas.
    fn list_length(&self, name: &str) -> Result<usize> {
        let list = (self.lookup)(name).unwrap_or_default();
        if list.split(',').any(|item| item.trim().is_empty()) {
            return Err(bad(format!("{name}={list:?} is not a list of hosts: set it to one, or unset it")));
        }
        Ok(list.split(',').count())
    }
}

fn check_range(part: Number<'_>, whole: usize, whole_name: &str) -> Result<()> {
    let Number { name, value } = part;
    if value < whole {
        return Ok(());
    }
    Err(bad(format!("{name}={value} must be less than {whole_name}={whole}, since the first is 0")))
}

fn topology(launcher: Launcher, rank: usize, world_size: usize) -> Result<Topology> {
    Ok(Topology { launcher, ..Topology::new(rank, world_size)? })
}

fn with_local(
    topology: Topology,
    rank: Option<Number<'_>>,
    world_size: Option<Number<'_>>,
) -> Result<Option<Topology>> {
    if let (Some(rank), Some(world_size)) = (rank, world_size) {
        check_range(rank, world_size.value, world_size.name)?;
    }
    let [local_rank, local_world_size] = [rank, world_size].map(|number| number.map(|it| it.value));
    Topology { local_rank, local_world_size, ..topology }.checked_local().map(Some)
}

fn named(environment: &Environment, names: &Names) -> Result<Option<Topology>> {
    // A world size alone is not a launcher's doing: see `check_lone_world_size`.
    let user_sets = WORLD_SIZES.contains(&names.world_size);
    if user_sets && !environment.has(names.rank) {
        return Ok(None);
    }
    let Some((rank, world_size)) = environment.pair(names.rank, names.world_size)? else { return Ok(None) };
    let topology = topology(names.launcher, rank, world_size)?;
    with_local(topology, environment.first(names.local_rank)?, environment.first(names.local_world_size)?)
}

/// A world size without its rank must be what another launcher says, or it would be ignored without a word.
fn check_lone_world_size(environment: &Environment, topology: Topology) -> Result<()> {
    for Names { rank, world_size, .. } in [EXPLICIT, TORCHRUN] {
        if environment.has(rank) || matches!(topology.launcher, Launcher::Explicit) {
            continue;
        }
        let Some(Number { name, value }) = environment.number(world_size)? else { continue };
        if topology.launcher == Launcher::Single {
            return Err(bad(format!("{name} is set, but {rank} is not: set both, or unset {name}")));
        }
        if value != topology.world_size {
            return Err(bad(format!("{name}={value}, but this is {topology}: {SET_BOTH}, or unset {name}")));
        }
    }
    Ok(())
}

/// Slurm tells the number of tasks to the batch script too, which is one process: only within a step that
/// `srun` started is it the number of processes.
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
    // SLURM_NTASKS_PER_NODE is what was asked for, and a host can have fewer.
    let local_size =
        match (environment.lookup)("SLURM_STEP_TASKS_PER_NODE").zip(environment.number("SLURM_NODEID")?) {
            Some((counts, node)) => slurm_count(&counts, node.value),
            None => None,
        };
    let local_size = local_size.map(|value| Number { name: "SLURM_STEP_TASKS_PER_NODE", value });
    with_local(topology, environment.number("SLURM_LOCALID")?, local_size)
}

/// The number of a node in Slurm's notation: `2(x3),1` is 2, 2, 2, 1.
fn slurm_count(counts: &str, node: usize) -> Option<usize> {
    let mut left = node;
    for group in counts.split(',') {
        let (count, times) = match group.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')')?.parse().ok()?),
            None => (group, 1),
        };
        match left.checked_sub(times) {
            Some(rest) => left = rest,
            None => return count.parse().ok(),
        }
    }
    None
}

/// Whether the variables of a TPU worker do not suffice, and the metadata server has the rest.
fn partly_tpu(environment: &Environment) -> bool {
    let has_id = ["TPU_WORKER_ID", "CLOUD_TPU_TASK_ID"].iter().any(|name| environment.has(name));
    // The server knows nothing of several processes on a host.
    let has_all = has_id && environment.has("TPU_WORKER_HOSTNAMES");
    !has_all && !environment.has("TPU_PROCESS_ADDRESSES")
}

/// The slices of a TPU job have their own numbers, and the workers of each slice theirs.
fn tpu(environment: &Environment) -> Result<Option<Topology>> {
    const PROCESSES: &str = "TPU_PROCESS_ADDRESSES";
    const HOSTS: &str = "TPU_WORKER_HOSTNAMES";
    let slices = environment.pair("MEGASCALE_SLICE_ID", "MEGASCALE_NUM_SLICES")?;
    let (ids, list) = if environment.has(PROCESSES) {
        (["CLOUD_TPU_TASK_ID", "TPU_WORKER_ID"], PROCESSES)
    } else {
        (["TPU_WORKER_ID", "CLOUD_TPU_TASK_ID"], HOSTS)
    };
    let id = environment.first(&ids)?;
    let (id, workers) = match (id, environment.has(list)) {
        (None, false) if slices.is_none() && !environment.has(SLICES_ADDRESS) => return Ok(None),
        (Some(id), true) => (id, environment.list_length(list)?),
        (id, _) => {
            let unset = if id.is_none() { ids[0] } else { list };
            return Err(bad(format!(
                "TPU variables are set, but {unset} is not, so this worker's place is not known: {SET_BOTH}"
            )));
        }
    };
    check_range(id, workers, &format!("the length of {list}"))?;
    let topology = in_slice(environment, Launcher::Tpu, (id.value, workers), slices)?;
    if topology.world_size == 1
        && let Some(Number { name, value: index @ 1.. }) = environment.number("JOB_COMPLETION_INDEX")?
    {
        return Err(bad(format!(
            "{list} names one TPU worker, but {name}={index}: if the pods of this Job train together, {SET_BOTH}; \
             if each trains alone, set them to 0 and 1"
        )));
    }
    Ok(Some(topology))
}

/// Set where the slices of a job find each other.
const SLICES_ADDRESS: &str = "MEGASCALE_COORDINATOR_ADDRESS";

/// A worker of a slice, which is one of `slices` if the job has several.
fn in_slice(
    environment: &Environment,
    launcher: Launcher,
    (worker, workers): (usize, usize),
    slices: Option<(usize, usize)>,
) -> Result<Topology> {
    if slices.is_none() && environment.has(SLICES_ADDRESS) {
        return Err(bad(format!(
            "{SLICES_ADDRESS} is set, so the job has several slices, but MEGASCALE_SLICE_ID and \
             MEGASCALE_NUM_SLICES are not: set them, or {SET_BOTH}"
        )));
    }
    let (slice, slices) = slices.unwrap_or((0, 1));
    let world_size = workers.checked_mul(slices);
    let world_size = world_size.ok_or_else(|| bad(format!("MEGASCALE_NUM_SLICES={slices} is too large")))?;
    topology(launcher, slice * workers + worker, world_size)
}

/// A launcher that tells the rank, but not the number of ranks.
fn rank_only(
    environment: &Environment,
    launcher: Launcher,
    rank: &str,
    world_sizes: &[&str],
) -> Result<Option<Topology>> {
    let Some(rank) = environment.number(rank)? else { return Ok(None) };
    let Some(size) = environment.first(world_sizes)? else {
        return Err(bad(format!(
            "{} is set, but {launcher} does not tell the number of processes: set SHARDSTREAM_WORLD_SIZE to it",
            rank.name
        )));
    };
    check_range(rank, size.value, size.name)?;
    topology(launcher, rank.value, size.value).map(Some)
}

#[cfg(test)]
mod tests;
