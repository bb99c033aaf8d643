//! Opens the devices of a process, alone or as one of several.

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

/// How the processes of a job find each other.
#[derive(Debug, Clone)]
pub struct Join {
    /// The address of rank 0, if given on the command line.
    pub coordinator: Option<Address>,
    /// Maximum wait for the other processes.
    pub timeout: Duration,
}

/// Opens the devices. The user's `options` override those that are set here. Processes of a plugin that can
/// join them wait for each other. `run` describes what must be the same in all of them: the step at which
/// they begin, and their options.
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
    let joins = found.is_gpu();
    if joins {
        let only = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        all.extend(gpu_options(topology, devices / ranks, only.as_deref()));
    }
    all.extend(options.iter().cloned());
    let plugin = found.load()?;
    if !joins || ranks == 1 {
        return Ok(plugin.client(&all)?);
    }
    let env = |name: &str| std::env::var(name).ok();
    let address = match &join.coordinator {
        // The parent's address is right; the command line is that of the parent.
        Some(given) if !spawn::is_spawned() => Some(given.clone()),
        _ => Address::detect(env)?,
    };
    let address = address.ok_or_else(|| {
        Error::Usage(format!(
            "{topology} must find the other processes: say where rank 0 is, with --coordinator HOST:PORT or \
             SHARDSTREAM_COORDINATOR, the same for all"
        ))
    })?;
    let job = job(artifact, ranks);
    let rank = topology.rank();
    let mut at = address.to_string();
    if rank == 0 && !spawn::is_spawned() {
        let server = Server::start(&address.host, address.port, job.clone())?;
        at = server.address().to_string();
        // The plugin of another rank may request a key for as long as this process runs.
        std::mem::forget(server);
    }
    let member = Member::join(&at, job, rank, join.timeout)?;
    member.agree(run, join.timeout)?;
    Ok(plugin.client_of_job(&all, Arc::new(member))?)
}

/// Starts a server for processes that this one spawns, and returns the environment variables by which they
/// find it.
pub fn serve(artifact: &Artifact, processes: usize) -> Result<(Server, Vec<(&'static str, String)>)> {
    // A random token, so that no process joins another job of this host by mistake.
    let random = tempfile::Builder::new().rand_bytes(32).tempfile()?.path().display().to_string();
    let mut job = job(artifact, processes);
    job.token = token(|name| (name == "SHARDSTREAM_JOB_TOKEN").then(|| random.clone()));
    let server = Server::start("127.0.0.1", 0, job)?;
    let address = server.address().to_string();
    Ok((server, vec![("SHARDSTREAM_COORDINATOR", address), ("SHARDSTREAM_JOB_TOKEN", random)]))
}

fn job(artifact: &Artifact, world_size: usize) -> Job {
    let hash = crate::hex(&Sha256::digest(&artifact.step));
    let program = format!("{} ({})", artifact.name, &hash[..12]);
    Job { token: token(|name| std::env::var(name).ok()), program, world_size }
}

/// The options of the CUDA plugin for this process: its rank, and its own GPUs among those of the host.
/// `only` is `CUDA_VISIBLE_DEVICES`; the plugin's numbers are indices into it.
fn gpu_options(topology: &Topology, devices: usize, only: Option<&str>) -> Vec<PluginOption> {
    let mut options: Vec<PluginOption> = Vec::new();
    if topology.world_size() > 1 {
        options.push(("node_id", topology.rank() as i64).into());
        options.push(("num_nodes", topology.world_size() as i64).into());
    }
    let first = match (topology.local_rank(), topology.local_world_size()) {
        _ if topology.world_size() == 1 => Some(0),
        (Some(local), Some(_)) => Some(local * devices),
        _ => None,
    };
    // Slurm and other launchers may have assigned each process its GPUs.
    let given = only.is_some_and(|only| only.split(',').count() == devices);
    if let Some(first) = first.filter(|_| !given) {
        let own = (first..first + devices).map(|device| device as i64).collect();
        options.push(PluginOption { name: "visible_devices".into(), value: OptionValue::Ints(own) });
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_has_its_own_gpus() {
        let options = |topology: Topology, devices, only: Option<&str>| {
            let texts =
                gpu_options(&topology, devices, only).iter().map(ToString::to_string).collect::<Vec<_>>();
            texts.join(" ")
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
