//! The rank and world size of a TPU VM, read from an imitation of Google's metadata server.

use crate::support::server::{Framing, Reply, Request, Server};
use shardstream::topology::{Launcher, Topology};
use shardstream::{ErrorKind, Result};
use std::time::{Duration, Instant};

const FOUR: &str =
    "unknown:unknown:10.0.0.2,unknown:unknown:10.0.0.3,unknown:unknown:10.0.0.4,unknown:unknown:10.0.0.5";

fn reply(request: &Request, attributes: &[(&str, &str)]) -> Reply {
    let name = request.path().strip_prefix("/computeMetadata/v1/instance/attributes/").unwrap();
    if request.header("metadata-flavor") != Some("Google") {
        return Reply::new(403, "");
    }
    let found = attributes.iter().find(|(key, _)| *key == name);
    found
        .map_or(Reply::new(404, "not found"), |(_, value)| Reply::new(200, *value))
        .with("Metadata-Flavor", "Google")
}

fn detect(server: &Server, variables: &str) -> Result<Topology> {
    let host = format!("127.0.0.1:{}", server.port());
    let all: Vec<(&str, &str)> = variables.split(' ').filter_map(|it| it.split_once('=')).collect();
    Topology::detect_on_tpu_vm_from(|name| match name {
        "GCE_METADATA_HOST" => Some(host.clone()),
        _ => all.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()),
    })
}

/// A metadata server with the worker's number, the hosts of its slice, and `tpu-env`.
fn vm(worker: &'static str, endpoints: &'static str, env: &'static str) -> Server {
    Server::start(move |request| {
        let told =
            [("agent-worker-number", worker), ("worker-network-endpoints", endpoints), ("tpu-env", env)];
        reply(request, &told)
    })
}

fn error(server: &Server, variables: &str) -> String {
    let error = detect(server, variables).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Topology(_)), "{error}");
    let error = error.to_string();
    assert!(error.contains("SHARDSTREAM_RANK") || error.contains("first is 0"), "what to do: {error}");
    error
}

#[test]
fn the_metadata_server_gives_the_rank() {
    for (server, variables, (rank, world_size)) in [
        (vm("2", FOUR, "WORKER_ID: '2'\nTYPE: 'V3'\n"), "", (2, 4)),
        (vm("0", "unknown:unknown:10.0.0.2", "TYPE: 'V3'"), "", (0, 1)),
        (vm("1", FOUR, "MEGASCALE_SLICE_ID: '2'\nMEGASCALE_NUM_SLICES: '3'"), "", (9, 12)),
        (vm("1", FOUR, "TYPE: ''"), "MEGASCALE_SLICE_ID=1 MEGASCALE_NUM_SLICES=2", (5, 8)),
        (vm("1", FOUR, "MEGASCALE_NUM_SLICES: ''"), "TPU_WORKER_ID=1 WORLD_SIZE=4", (1, 4)),
    ] {
        let found = detect(&server, variables).unwrap();
        assert_eq!((found.rank(), found.world_size()), (rank, world_size));
        assert_eq!((found.launcher(), found.local_rank()), (Launcher::TpuVm, None));
        assert_eq!(server.requests().len(), 3);
    }
}

#[test]
fn a_launcher_takes_precedence_over_the_metadata_server() {
    let server = vm("2", FOUR, "");
    for (variables, launcher) in [
        ("SHARDSTREAM_RANK=1 SHARDSTREAM_WORLD_SIZE=2", Launcher::Explicit),
        ("TPU_WORKER_ID=0 TPU_WORKER_HOSTNAMES=a,b", Launcher::Tpu),
        ("TPU_SKIP_MDS_QUERY=1", Launcher::Single),
    ] {
        assert_eq!(detect(&server, variables).unwrap().launcher(), launcher, "{variables}");
    }
    let index = detect(&server, "JOB_COMPLETION_INDEX=0").unwrap_err().to_string();
    assert!(index.contains("set SHARDSTREAM_WORLD_SIZE"), "{index}");
    assert!(server.requests().is_empty());
}

#[test]
fn contradictions_are_errors() {
    let server = vm("2", FOUR, "MEGASCALE_SLICE_ID: '0'\nMEGASCALE_NUM_SLICES: '2'");
    for (variables, named) in [
        ("TPU_WORKER_ID=1", "TPU_WORKER_ID is 1"),
        ("TPU_WORKER_HOSTNAMES=a,b", "the length of TPU_WORKER_HOSTNAMES is 2"),
        ("MEGASCALE_SLICE_ID=1 MEGASCALE_NUM_SLICES=2", "MEGASCALE_SLICE_ID is 1"),
        ("WORLD_SIZE=4", "WORLD_SIZE=4"),
    ] {
        assert!(error(&server, variables).contains(named), "{variables}");
    }
    let one = vm("2", FOUR, "TYPE: 'V3'");
    assert!(error(&one, "MEGASCALE_COORDINATOR_ADDRESS=c").contains("several slices"));
    for (server, named) in [
        (vm("4", FOUR, ""), "agent-worker-number=4"),
        (vm("two", FOUR, ""), "\"two\""),
        (vm("0", "<html>", ""), "no list of workers"),
        (vm("2", FOUR, "WORKER_ID: '3'"), "WORKER_ID of tpu-env is 3"),
        (vm("2", FOUR, "MEGASCALE_SLICE_ID: '3'"), "MEGASCALE_NUM_SLICES"),
    ] {
        assert!(error(&server, "").contains(named), "{named}");
    }
}

#[test]
fn responses_of_another_server_are_errors() {
    let none = Server::start(|request| reply(request, &[]));
    assert!(error(&none, "").contains("no agent-worker-number"));
    let wrong = Server::start(|_| Reply::new(200, "0").with("Metadata-Flavor", "Other"));
    assert!(error(&wrong, "").contains("Metadata-Flavor: Google"));
    let garbage = Server::start(|_| Reply::raw("SSH-2.0-x\r\n\r\n").then_closed());
    assert!(error(&garbage, "").contains("no response of Google's metadata server"));
    let busy = Server::start(|_| Reply::new(503, ""));
    assert!(error(&busy, "").contains("3 attempts: status 503"));
    assert_eq!(busy.requests().len(), 3);
}

#[test]
fn a_request_to_a_slow_metadata_server_is_retried() {
    let slow = Server::start(|request| {
        let told =
            [("agent-worker-number", "1\n"), ("worker-network-endpoints", FOUR), ("tpu-env", "A: 'b'")];
        match request.number {
            0 => reply(request, &told).dripping(1, Duration::from_secs(3)),
            _ => reply(request, &told).framed(Framing::Chunked),
        }
    });
    let start = Instant::now();
    assert_eq!(
        detect(&slow, "").unwrap().to_string(),
        "rank 1 of 4 (from the metadata server of the TPU VM)"
    );
    assert_eq!(slow.requests().len(), 4, "the first was too slow");
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
}
