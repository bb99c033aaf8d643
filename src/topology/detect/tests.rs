//! The topologies that are detected from the environment variables of launchers.

use super::*;
use crate::error::ErrorKind;
use proptest::prelude::*;

/// Detects the topology from variables such as `RANK=1 WORLD_SIZE=2`. In a value, `_` is read as a space.
fn run(variables: &str) -> Result<Topology> {
    let all: Vec<(&str, &str)> = variables.split(' ').filter_map(|it| it.split_once('=')).collect();
    Topology::detect_from(|name| {
        all.iter().find(|(key, _)| *key == name).map(|(_, value)| value.replace('_', " "))
    })
}

#[test]
fn the_variables_of_every_launcher_are_detected() {
    use Launcher::*;
    let (some, none) = (Some, None);
    for (variables, launcher, (rank, world_size), local) in [
        ("", Single, (0, 1), (some(0), some(1))),
        ("HOME=x RANK0=3", Single, (0, 1), (some(0), some(1))),
        ("SHARDSTREAM_RANK=1 SHARDSTREAM_WORLD_SIZE=2", Explicit, (1, 2), (none, none)),
        ("RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4", Torchrun, (5, 8), (some(1), some(4))),
        ("RANK=_5_ WORLD_SIZE=8", Torchrun, (5, 8), (none, none)),
        (
            "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 \
             OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_RANK=2",
            OpenMpi,
            (2, 4),
            (some(0), some(2)),
        ),
        ("PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2", Pmi, (2, 4), (some(0), some(2))),
        ("PMI_RANK=2 PMI_SIZE=4 PMI_LOCAL_RANK=1 PMI_LOCAL_SIZE=2", Pmi, (2, 4), (some(1), some(2))),
        (
            "SLURM_STEP_ID=0 SLURM_PROCID=6 SLURM_STEP_NUM_TASKS=7 SLURM_NTASKS=9 SLURM_LOCALID=0 \
             SLURM_NODEID=3 SLURM_STEP_TASKS_PER_NODE=2(x3),1 PMIX_RANK=6",
            Slurm,
            (6, 7),
            (some(0), some(1)),
        ),
        ("SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=1", Slurm, (1, 2), (some(1), none)),
        // A batch script is a single process, although Slurm sets `SLURM_NTASKS` for it.
        ("SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_LOCALID=0", Single, (0, 1), (some(0), some(1))),
        ("TPU_WORKER_ID=2 TPU_WORKER_HOSTNAMES=a,b,c,d JOB_COMPLETION_INDEX=2", Tpu, (2, 4), (none, none)),
        ("TPU_WORKER_ID=0 TPU_WORKER_HOSTNAMES=localhost", Tpu, (0, 1), (none, none)),
        (
            "TPU_WORKER_ID=1 TPU_WORKER_HOSTNAMES=a,b MEGASCALE_SLICE_ID=2 MEGASCALE_NUM_SLICES=3",
            Tpu,
            (5, 6),
            (none, none),
        ),
        ("CLOUD_TPU_TASK_ID=3 TPU_PROCESS_ADDRESSES=l:1,l:2,l:3,l:4", Tpu, (3, 4), (none, none)),
        (
            "CLOUD_TPU_TASK_ID=3 TPU_PROCESS_ADDRESSES=l:1,l:2,m:1,m:2 TPU_WORKER_ID=1 \
             TPU_WORKER_HOSTNAMES=l,m",
            Tpu,
            (3, 4),
            (none, none),
        ),
        ("JOB_COMPLETION_INDEX=3 SHARDSTREAM_WORLD_SIZE=4", Kubernetes, (3, 4), (none, none)),
        ("JOB_COMPLETION_INDEX=3 WORLD_SIZE=4", Kubernetes, (3, 4), (none, none)),
        ("JOB_COMPLETION_INDEX=3 COMPLETIONS=4", Kubernetes, (3, 4), (none, none)),
        ("PMIX_RANK=3 WORLD_SIZE=4", Pmix, (3, 4), (none, none)),
    ] {
        let topology = run(variables).unwrap();
        assert_eq!(topology.launcher(), launcher, "{variables}");
        assert_eq!((topology.rank(), topology.world_size()), (rank, world_size), "{variables}");
        assert_eq!((topology.local_rank(), topology.local_world_size()), local, "{variables}");
        assert_eq!((topology.worker(), topology.workers()), (0, 1));
    }
}

#[test]
fn the_inner_launcher_wins() {
    let mut variables = "JOB_COMPLETION_INDEX=1 COMPLETIONS=2".to_owned();
    for (more, launcher) in [
        ("", Launcher::Kubernetes),
        (" TPU_WORKER_ID=0 TPU_WORKER_HOSTNAMES=a,b", Launcher::Tpu),
        (" SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=3", Launcher::Slurm),
        (" PMI_RANK=0 PMI_SIZE=4", Launcher::Pmi),
        (" OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=5", Launcher::OpenMpi),
        (" RANK=0 WORLD_SIZE=6", Launcher::Torchrun),
        (" SHARDSTREAM_RANK=0 SHARDSTREAM_WORLD_SIZE=7", Launcher::Explicit),
    ] {
        variables += more;
        assert_eq!(run(&variables).unwrap().launcher(), launcher, "{variables}");
    }
}

#[test]
fn incomplete_or_contradictory_variables_are_errors_that_name_the_variable() {
    for (variables, named) in [
        ("RANK=1", "WORLD_SIZE"),
        ("WORLD_SIZE=8", "RANK"),
        ("SHARDSTREAM_RANK=1", "SHARDSTREAM_WORLD_SIZE"),
        ("SHARDSTREAM_WORLD_SIZE=2", "SHARDSTREAM_RANK"),
        ("SHARDSTREAM_RANK=1 RANK=1 WORLD_SIZE=2", "SHARDSTREAM_WORLD_SIZE"),
        ("RANK=8 WORLD_SIZE=8", "RANK=8"),
        ("RANK=0 WORLD_SIZE=0", "WORLD_SIZE=0"),
        ("RANK= WORLD_SIZE=8", "RANK=\"\""),
        ("RANK=-1 WORLD_SIZE=8", "RANK=\"-1\""),
        ("RANK=one WORLD_SIZE=8", "RANK=\"one\""),
        ("RANK=0 WORLD_SIZE=1e3", "WORLD_SIZE=\"1e3\""),
        ("RANK=0 WORLD_SIZE=8 LOCAL_RANK=x", "LOCAL_RANK"),
        ("RANK=0 WORLD_SIZE=8 LOCAL_RANK=4 LOCAL_WORLD_SIZE=4", "LOCAL_RANK=4"),
        ("RANK=0 WORLD_SIZE=8 LOCAL_RANK=0 LOCAL_WORLD_SIZE=9", "9 processes"),
        ("OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK"),
        ("PMI_RANK=4", "PMI_SIZE"),
        ("PMIX_RANK=0", "SHARDSTREAM_WORLD_SIZE"),
        ("SLURM_STEP_ID=0 SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS"),
        ("SLURM_STEP_ID=0 SLURM_NTASKS=1", "SLURM_PROCID"),
        ("SLURM_STEP_ID=0 SLURM_PROCID=2 SLURM_NTASKS=2", "SLURM_PROCID=2"),
        ("SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 WORLD_SIZE=16", "WORLD_SIZE=16"),
        ("TPU_WORKER_ID=1", "TPU_WORKER_HOSTNAMES"),
        ("CLOUD_TPU_TASK_ID=1", "TPU_WORKER_HOSTNAMES"),
        ("TPU_WORKER_HOSTNAMES=a,b", "TPU_WORKER_ID"),
        ("TPU_WORKER_ID=2 TPU_WORKER_HOSTNAMES=a,b", "TPU_WORKER_ID=2"),
        ("TPU_WORKER_ID=0 TPU_WORKER_HOSTNAMES=a,", "TPU_WORKER_HOSTNAMES"),
        ("TPU_WORKER_ID=0 TPU_WORKER_HOSTNAMES=", "TPU_WORKER_HOSTNAMES"),
        ("TPU_WORKER_ID=0 TPU_WORKER_HOSTNAMES=a MEGASCALE_SLICE_ID=1", "MEGASCALE_NUM_SLICES"),
        ("MEGASCALE_SLICE_ID=1 MEGASCALE_NUM_SLICES=2", "TPU_WORKER_ID"),
        (
            "TPU_WORKER_ID=0 TPU_WORKER_HOSTNAMES=a,b MEGASCALE_COORDINATOR_ADDRESS=c",
            "MEGASCALE_COORDINATOR_ADDRESS is set",
        ),
        ("MEGASCALE_COORDINATOR_ADDRESS=c", "TPU_WORKER_ID"),
        ("TPU_WORKER_ID=0 TPU_WORKER_HOSTNAMES=localhost JOB_COMPLETION_INDEX=3", "JOB_COMPLETION_INDEX=3"),
        ("TPU_WORKER_ID=0 TPU_WORKER_HOSTNAMES=localhost WORLD_SIZE=4", "WORLD_SIZE=4"),
        ("JOB_COMPLETION_INDEX=0", "SHARDSTREAM_WORLD_SIZE"),
        ("JOB_COMPLETION_INDEX=4 COMPLETIONS=4", "JOB_COMPLETION_INDEX=4"),
        ("JOB_COMPLETION_INDEX=1 SHARDSTREAM_WORLD_SIZE=4 WORLD_SIZE=8", "WORLD_SIZE=8"),
        ("WORKER=1", "NUM_WORKERS"),
        ("NUM_WORKERS=1", "WORKER"),
        ("WORKER=2 NUM_WORKERS=2", "WORKER=2"),
    ] {
        let error = run(variables).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Topology(_)), "{variables}");
        assert!(error.to_string().contains(named), "{variables}: {error}");
    }
}

#[test]
fn a_world_size_that_agrees_with_the_launcher_is_accepted() {
    let slurm = "SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 WORLD_SIZE=2";
    assert_eq!(run(slurm).unwrap().launcher(), Launcher::Slurm);
    let explicit = "SHARDSTREAM_RANK=0 SHARDSTREAM_WORLD_SIZE=2 WORLD_SIZE=4";
    assert_eq!(run(explicit).unwrap().world_size(), 2, "SHARDSTREAM_WORLD_SIZE need not agree with others");
}

#[test]
fn the_worker_variables_are_read_with_any_launcher() {
    let topology = run("RANK=1 WORLD_SIZE=2 WORKER=3 NUM_WORKERS=4").unwrap();
    assert_eq!((topology.rank(), topology.readers()), (1, 8));
    assert_eq!((topology.worker(), topology.workers()), (3, 4));
    assert_eq!(topology.to_string(), "rank 1 of 2, worker 3 of 4 (from torchrun)");
    assert_eq!(run("WORKER=1 NUM_WORKERS=2").unwrap().to_string(), "rank 0 of 1, worker 1 of 2");
}

#[test]
fn slurm_task_counts_with_repetitions_are_parsed() {
    for (counts, node, expected) in [
        ("4", 0, Some(4)),
        ("4", 1, None),
        ("2(x3),1", 2, Some(2)),
        ("2(x3),1", 3, Some(1)),
        ("1,2(x2)", 1, Some(2)),
        ("2(x", 0, None),
        ("", 0, None),
    ] {
        assert_eq!(slurm_count(counts, node), expected, "{counts} {node}");
    }
}

proptest! {
    #[test]
    fn a_detected_topology_is_consistent(
        values in proptest::collection::vec(proptest::option::of("[0-9]{1,2}|x|"), 14),
    ) {
        const NAMES: [&str; 14] = [
            "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_STEP_ID", "SLURM_PROCID",
            "SLURM_NTASKS", "SLURM_LOCALID", "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES", "MEGASCALE_SLICE_ID",
            "MEGASCALE_NUM_SLICES", "JOB_COMPLETION_INDEX", "NUM_WORKERS",
        ];
        let lookup = |name: &str| values[NAMES.iter().position(|it| *it == name)?].clone();
        if let Ok(topology) = Topology::detect_from(lookup) {
            prop_assert!(topology.rank() < topology.world_size() && topology.worker() < topology.workers());
            let local_size = topology.local_world_size().unwrap_or(topology.world_size());
            prop_assert!(local_size <= topology.world_size());
            prop_assert!(topology.local_rank().is_none_or(|rank| rank < local_size));
        }
    }
}
