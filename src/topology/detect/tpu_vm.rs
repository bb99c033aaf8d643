//! Reads the rank of a TPU VM from the metadata server if no launcher has set variables.

use super::environment::{Environment, Member, NumericVariable, SET_BOTH, check_range, in_slice};
use crate::error::Result;
use crate::topology::metadata_server::MetadataServer;
use crate::topology::{Launcher, Topology, bad};

/// The position of this worker in its slice, and of the slice in the job.
struct SlicePosition {
    worker: Member,
    /// `None` if the server has neither the number of the slice nor the number of slices.
    slice: Option<Member>,
}

/// Queries the metadata server. Variables that are set in the environment must agree with the server's
/// values.
pub(super) fn detect(environment: &Environment) -> Result<Option<Topology>> {
    let server = MetadataServer::new((environment.lookup)("GCE_METADATA_HOST"))?;
    let SlicePosition { worker, slice: on_server } = query(&server)?;
    for name in ["TPU_WORKER_ID", "CLOUD_TPU_TASK_ID"] {
        if let Some(NumericVariable { value, .. }) = environment.number(name)? {
            check_agreement(name, value, "agent-worker-number", worker.number)?;
        }
    }
    let hosts = "TPU_WORKER_HOSTNAMES";
    if environment.has(hosts) {
        let name = format!("the length of {hosts}");
        let attribute = "the number of worker-network-endpoints";
        check_agreement(&name, environment.list_length(hosts)?, attribute, worker.count)?;
    }
    let in_environment = environment.pair("MEGASCALE_SLICE_ID", "MEGASCALE_NUM_SLICES")?;
    if let (Some(here), Some(there)) = (in_environment, on_server) {
        check_agreement("MEGASCALE_SLICE_ID", here.number, "that of tpu-env", there.number)?;
        check_agreement("MEGASCALE_NUM_SLICES", here.count, "that of tpu-env", there.count)?;
    }
    in_slice(environment, Launcher::TpuVm, worker, in_environment.or(on_server)).map(Some)
}

fn check_agreement(name: &str, in_environment: usize, attribute: &str, on_server: usize) -> Result<()> {
    if in_environment == on_server {
        return Ok(());
    }
    Err(bad(format!(
        "{name} is {in_environment} in the environment, but by the metadata server {attribute} is \
         {on_server}: unset it, or {SET_BOTH}"
    )))
}

fn query(server: &MetadataServer) -> Result<SlicePosition> {
    let attribute = |name: &str| {
        let missing = || {
            bad(format!(
                "the metadata server has no {name}, so this is no Cloud TPU VM of a slice: {SET_BOTH}"
            ))
        };
        server.attribute(name)?.ok_or_else(missing)
    };
    let number = |name: &str, text: &str| {
        let wrong = |_| bad(format!("{name} of the metadata server is {text:?}, and no number: {SET_BOTH}"));
        text.trim().parse::<usize>().map_err(wrong)
    };
    let worker = number("agent-worker-number", &attribute("agent-worker-number")?)?;
    let endpoints = attribute("worker-network-endpoints")?;
    // An endpoint is name:identifier:address.
    let is_endpoint = |text: &str| {
        let address = text.trim().splitn(3, ':').nth(2).unwrap_or_default();
        !address.is_empty() && !text.trim().contains(char::is_whitespace)
    };
    if !endpoints.split(',').all(is_endpoint) {
        let shown: String = endpoints.chars().take(100).collect();
        return Err(bad(format!(
            "worker-network-endpoints of the metadata server is {shown:?}, and no list of workers: {SET_BOTH}"
        )));
    }
    let workers = endpoints.split(',').count();
    let this = NumericVariable { name: "agent-worker-number", value: worker };
    check_range(this, workers, "the number of worker-network-endpoints")?;
    // The attribute has lines such as WORKER_ID: '3'. If a value is not set, its line is absent or empty.
    let env = attribute("tpu-env")?;
    let of_env = |name: &str| {
        let mut lines = env.lines().filter_map(|line| line.split_once(':'));
        let line = lines.find(|(key, _)| key.trim() == name);
        let value = line.map(|(_, value)| value.trim().trim_matches(['\'', '"']));
        value.filter(|value| !value.is_empty()).map(|value| number(name, value)).transpose()
    };
    if let Some(id) = of_env("WORKER_ID")?.filter(|id| *id != worker) {
        return Err(bad(format!(
            "by the metadata server agent-worker-number is {worker}, but WORKER_ID of tpu-env is {id}: \
             {SET_BOTH}"
        )));
    }
    let slice = match (of_env("MEGASCALE_SLICE_ID")?, of_env("MEGASCALE_NUM_SLICES")?) {
        (Some(number), Some(count)) => {
            let this = NumericVariable { name: "MEGASCALE_SLICE_ID", value: number };
            check_range(this, count, "MEGASCALE_NUM_SLICES")?;
            Some(Member { number, count })
        }
        (None, None) => None,
        _ => {
            return Err(bad(format!(
                "tpu-env of the metadata server has one of MEGASCALE_SLICE_ID and MEGASCALE_NUM_SLICES, but \
                 not the other: {SET_BOTH}"
            )));
        }
    };
    Ok(SlicePosition { worker: Member { number: worker, count: workers }, slice })
}
