//! Opens the devices of a process. The process may be one of several in a job.

use crate::artifact::Artifact;
use crate::error::{Error, Result};
use crate::plugin::FoundPlugin;
use crate::rendezvous::{Address, Job, Member, Server, token};
use crate::spawn;
use sha2::{Digest, Sha256};
use shardstream::Topology;
use shardstream_pjrt::{Client, OptionValue, PluginOption};
use std::sync::Arc;
use std::time::Duration;

/// The options by which the processes of a job find each other.
#[derive(Debug, Clone)]
pub struct Join {
    /// The address of rank 0, if given on the command line.
    pub coordinator: Option<Address>,
    /// Maximum wait for the other processes.
    pub timeout: Duration,
}

/// Opens the devices. The user's `options` override the options that this function sets. If the job has
/// several processes and they use GPUs, this function joins this process to the job and waits for the other
/// processes. On other devices, this function joins no job. `run` describes what must be the same in all
/// processes: the first step and the options.
pub fn open(
    found: &FoundPlugin,
    artifact: &Artifact,
    topology: &Topology,
    options: &[PluginOption],
    join: &Join,
    run: &str,
) -> Result<Client> {
    let (devices, ranks) = (artifact.manifest.devices, topology.world_size());
    let mut all = found.client_options(devices / ranks);
    let needs_rendezvous = found.is_gpu();
    if needs_rendezvous {
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        all.extend(gpu_options(topology, devices / ranks, visible.as_deref()));
    }
    all.extend(options.iter().cloned());
    let plugin = found.load()?;
    if !needs_rendezvous || ranks == 1 {
        return Ok(plugin.client(&all)?);
    }
    let env = |name: &str| std::env::var(name).ok();
    let address = match &join.coordinator {
        // A spawned process has its parent's command line, but must connect to its parent's server, whose
        // address is in the environment.
        Some(given) if !spawn::is_spawned() => Some(given.clone()),
        _ => Address::detect(env)?,
    };
    let address = address.ok_or_else(|| {
        Error::Usage(format!(
            "{topology} must find the other processes: give the address of rank 0 with --coordinator \
             HOST:PORT or SHARDSTREAM_COORDINATOR, the same in all processes"
        ))
    })?;
    let job = job(artifact, ranks);
    let rank = topology.rank();
    let mut server_address = address.to_string();
    if rank == 0 && !spawn::is_spawned() {
        let server = Server::start(&address.host, address.port, job.clone())?;
        server_address = server.address().to_string();
        // The server is never dropped: the plugin of another rank may request a key at any time.
        std::mem::forget(server);
    }
    let member = Member::join(&server_address, job, rank, join.timeout)?;
    member.agree(run, join.timeout)?;
    Ok(plugin.client_of_job(&all, Arc::new(member))?)
}

/// Starts a server for the processes that the current process spawns. Also returns the environment variables
/// with which the spawned processes find the server.
pub fn serve(artifact: &Artifact, processes: usize) -> Result<(Server, Vec<(&'static str, String)>)> {
    // The token is random, so that no process joins another job of this host by mistake.
    let random = tempfile::Builder::new().rand_bytes(32).tempfile()?.path().display().to_string();
    let mut job = job(artifact, processes);
    job.token = token(|name| match name {
        "SHARDSTREAM_JOB_TOKEN" => Some(random.clone()),
        _ => None,
    });
    let server = Server::start("127.0.0.1", 0, job)?;
    let address = server.address().to_string();
    Ok((server, vec![("SHARDSTREAM_COORDINATOR", address), ("SHARDSTREAM_JOB_TOKEN", random)]))
}

fn job(artifact: &Artifact, world_size: usize) -> Job {
    let hash = crate::hex(&Sha256::digest(&artifact.step));
    let program = format!("{} ({})", artifact.name, &hash[..12]);
    Job { token: token(|name| std::env::var(name).ok()), program, world_size }
}

/// The options of the CUDA plugin for this process: its rank, and its own GPUs among the GPUs of the host.
/// `visible` is the list in `CUDA_VISIBLE_DEVICES`; the plugin's option has indices into that list.
fn gpu_options(topology: &Topology, devices: usize, visible: Option<&str>) -> Vec<PluginOption> {
    let mut options: Vec<PluginOption> = Vec::new();
    if topology.world_size() > 1 {
        options.push(("node_id", topology.rank() as i64).into());
        options.push(("num_nodes", topology.world_size() as i64).into());
    }
    // Slurm and other launchers may have assigned each process its own GPUs.
    if visible.is_some_and(|visible| visible.split(',').count() == devices) {
        return options;
    }
    let first = match (topology.local_rank(), topology.local_world_size()) {
        _ if topology.world_size() == 1 => 0,
        (Some(local), Some(_)) => local * devices,
        _ => return options,
    };
    let own = (first..first + devices).map(|device| device as i64).collect();
    options.push(PluginOption { name: "visible_devices".into(), value: OptionValue::Ints(own) });
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_has_its_own_gpus() {
        let options = |topology: Topology, devices, visible: Option<&str>| {
            let options = gpu_options(&topology, devices, visible);
            options.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        let single = Topology::single();
        assert_eq!(options(single, 2, None), "visible_devices=[0,1]");
        assert_eq!(options(single, 2, Some("4,7")), "");
        let second = Topology::new(5, 8).unwrap().with_local(1, 4).unwrap();
        assert_eq!(options(second, 2, None), "node_id=5 num_nodes=8 visible_devices=[2,3]");
        assert_eq!(options(second, 1, Some("GPU-1")), "node_id=5 num_nodes=8");
        assert_eq!(options(second, 1, Some("0,1,2,3")), "node_id=5 num_nodes=8 visible_devices=[1]");
        let alone_on_its_host = Topology::new(1, 2).unwrap().with_local(0, 1).unwrap();
        let own = "node_id=1 num_nodes=2 visible_devices=[0,1,2,3]";
        assert_eq!(options(alone_on_its_host, 4, None), own);
        assert_eq!(options(Topology::new(1, 2).unwrap(), 4, None), "node_id=1 num_nodes=2");
    }
}
