//! The rank of a TPU VM by the metadata server, where no launcher has set variables.

use super::environment::{Environment, Number, SET_BOTH, check_range, in_slice};
use crate::error::Result;
use crate::topology::metadata::Server;
use crate::topology::{Launcher, Topology, bad};

/// The number of this worker, and how many its slice has.
struct Place {
    worker: usize,
    workers: usize,
    /// The number of the slice, and how many the job has; `None` where the server has neither.
    slices: Option<(usize, usize)>,
}

/// Asks the metadata server. What the environment has besides must agree.
pub(super) fn detect(environment: &Environment) -> Result<Option<Topology>> {
    let server = Server::new((environment.lookup)("GCE_METADATA_HOST"))?;
    let place = ask(&server)?;
    for name in ["TPU_WORKER_ID", "CLOUD_TPU_TASK_ID"] {
        if let Some(Number { value, .. }) = environment.number(name)? {
            agree(name, value, "agent-worker-number", place.worker)?;
        }
    }
    let hosts = "TPU_WORKER_HOSTNAMES";
    if environment.has(hosts) {
        let told = "the number of worker-network-endpoints";
        agree(&format!("the length of {hosts}"), environment.list_length(hosts)?, told, place.workers)?;
    }
    let said = environment.pair("MEGASCALE_SLICE_ID", "MEGASCALE_NUM_SLICES")?;
    if let (Some(said), Some(told)) = (said, place.slices) {
        agree("MEGASCALE_SLICE_ID", said.0, "that of tpu-env", told.0)?;
        agree("MEGASCALE_NUM_SLICES", said.1, "that of tpu-env", told.1)?;
    }
    let Place { worker, workers, slices } = place;
    in_slice(environment, Launcher::TpuVm, (worker, workers), said.or(slices)).map(Some)
}

fn agree(name: &str, said: usize, told_name: &str, told: usize) -> Result<()> {
    if said == told {
        return Ok(());
    }
    Err(bad(format!(
        "{name} is {said} in the environment, but by the metadata server {told_name} is {told}: unset it, or \
         {SET_BOTH}"
    )))
}

fn ask(server: &Server) -> Result<Place> {
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
    // Each is name:identifier:address.
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
    let this = Number { name: "agent-worker-number", value: worker };
    check_range(this, workers, "the number of worker-network-endpoints")?;
    // Lines as WORKER_ID: '3'. What is not set is absent or empty.
    let env = attribute("tpu-env")?;
    let of_env = |name: &str| {
        let lines = env.lines().filter_map(|line| line.split_once(':'));
        let found = lines.into_iter().find(|(key, _)| key.trim() == name);
        let value = found.map(|(_, value)| value.trim().trim_matches(['\'', '"']));
        value.filter(|value| !value.is_empty()).map(|value| number(name, value)).transpose()
    };
    if let Some(id) = of_env("WORKER_ID")?.filter(|id| *id != worker) {
        return Err(bad(format!(
            "by the metadata server agent-worker-number is {worker}, but WORKER_ID of tpu-env is {id}: \
             {SET_BOTH}"
        )));
    }
    let slices = match (of_env("MEGASCALE_SLICE_ID")?, of_env("MEGASCALE_NUM_SLICES")?) {
        (Some(slice), Some(slices)) => {
            check_range(Number { name: "MEGASCALE_SLICE_ID", value: slice }, slices, "MEGASCALE_NUM_SLICES")?;
            Some((slice, slices))
        }
        (None, None) => None,
        _ => {
            return Err(bad(format!(
                "tpu-env of the metadata server has one of MEGASCALE_SLICE_ID and MEGASCALE_NUM_SLICES, but \
                 not the other: {SET_BOTH}"
            )));
        }
    };
    Ok(Place { worker, workers, slices })
}
