//! Throughput of reading samples from `gs://`: from a local server over simulated links, or from a bucket.
//!
//! ```text
//! cargo bench --bench gcs --features gcs
//! SHARDSTREAM_BENCH_URL='gs://bucket/train-{000000..000015}.tar' cargo bench --bench gcs --features gcs
//! ```
//!
//! The group `loopback, TLS` reads from nginx with a self-made certificate, and is skipped if `nginx` or
//! `openssl` is not installed. The throughput is in bytes of the shards per second of wall time. The server
//! and the link run in a process of their own, which shares the machine's cores with the reader.
//! `benches/compare/network.py` compares this crate with other readers, over links that the kernel simulates.

mod support;

use criterion::{Criterion, SamplingMode, Throughput};
use shardstream::prelude::*;
use std::ffi::OsStr;
use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use std::{env, io};
use support::link::{self, LinkSettings};
use support::server;
use support::tls::TlsServer;

/// Environment variable: the group that a child process measures. The address of that group's server is in
/// `STORAGE_EMULATOR_HOST`.
const GROUP: &str = "SHARDSTREAM_BENCH_GROUP";
const URL: &str = "SHARDSTREAM_BENCH_URL";

/// Samples per shard. A small shard has 13 MB, a large one 106 MB.
const SMALL: usize = 128;
const LARGE: usize = 1070;
const SHARDS: usize = 16;
const STREAMS: usize = 8;

const DELAY: Duration = Duration::from_millis(10);

/// The names of the groups, with their links.
fn links() -> [(&'static str, LinkSettings); 4] {
    let delayed = LinkSettings { delay: DELAY, ..LinkSettings::default() };
    [
        ("loopback", LinkSettings::default()),
        ("20 ms", delayed),
        ("20 ms, 50 MB per s per connection", LinkSettings { connection_rate: Some(50e6), ..delayed }),
        ("20 ms, 1 Gbit per s line", LinkSettings { link_rate: Some(125e6), ..delayed }),
    ]
}

/// A shard with samples of about 98 KB.
fn shard(samples: usize) -> Arc<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let noise: Vec<u8> =
        (0..200_000_u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    for sample in 0..samples {
        let size = 60_000 + sample * 7919 % 76_000;
        let fields =
            [("cls", &b"123"[..]), ("jpg", &noise[..size]), ("json", br#"{"width": 500, "height": 375}"#)];
        for (field, content) in fields {
            let mut header = tar::Header::new_ustar();
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, format!("{sample:08}.{field}"), content).unwrap();
        }
    }
    Arc::new(archive.into_inner().unwrap())
}

/// Measures the blocking iterator and a loader over the shards of a pattern.
fn measure(c: &mut Criterion, group: &str, shards: &str, pattern: &str) {
    let dataset =
        |streams| Dataset::builder(pattern).streams(streams).topology(Topology::single()).build().unwrap();
    let one = dataset(1);
    let store = Store::default();
    let sizes =
        one.shards().iter().map(|url| store.stat(url.expose_secret()).unwrap().size.unwrap_or_default());
    let mut group = c.benchmark_group(group);
    group.throughput(Throughput::Bytes(sizes.sum())).sample_size(10).sampling_mode(SamplingMode::Flat);
    group.warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_secs(3));
    group.bench_function(format!("samples, {shards}"), |b| {
        b.iter(|| one.samples(0).results().map(|sample| black_box(sample.unwrap()).size()).sum::<usize>())
    });
    let streams = STREAMS.min(one.shards().len());
    let loader = Loader::builder(dataset(streams)).shuffle(50).batch(64).build().unwrap();
    group.bench_function(format!("loader, {shards}"), |b| {
        b.iter(|| loader.epoch(0).map(|batch| black_box(batch.unwrap()).len()).sum::<usize>())
    });
    group.finish();
}

/// Measures each group in a process of its own, since the groups need different server addresses in the
/// environment.
fn measure_all() -> io::Result<()> {
    let (small, large) = (shard(SMALL), shard(LARGE));
    let numbered = |name: &'static str, content: Arc<Vec<u8>>| {
        (0..SHARDS).map(move |number| (format!("{name}-{number:03}.tar"), Arc::clone(&content)))
    };
    let objects = numbered("small", Arc::clone(&small)).chain(numbered("large", large));
    let server = server::start(objects)?;
    for (group, settings) in links() {
        let address = if group == "loopback" { server } else { link::start(server, settings)? };
        measure_child(group, &address.to_string(), &[])?;
    }
    match TlsServer::start(numbered("small", small)) {
        Ok(server) => {
            let authority = server.authority();
            let trusted = [("SSL_CERT_FILE", authority.as_os_str())];
            measure_child("loopback, TLS", &format!("https://{}", server.address), &trusted)
        }
        Err(error) => {
            eprintln!("the group `loopback, TLS` is skipped: {error}");
            Ok(())
        }
    }
}

/// Measures a group in a process of its own, which reads from the server at this address.
fn measure_child(group: &str, server: &str, variables: &[(&str, &OsStr)]) -> io::Result<()> {
    let status = Command::new(env::current_exe()?)
        .args(env::args_os().skip(1))
        .env("STORAGE_EMULATOR_HOST", server)
        .env(GROUP, group)
        .envs(variables.iter().copied())
        .status()?;
    assert!(status.success(), "{group}: {status}");
    Ok(())
}

fn main() -> io::Result<()> {
    let (url, group) = (env::var(URL), env::var(GROUP));
    if url.is_err() && group.is_err() {
        return measure_all();
    }
    let mut criterion = Criterion::default().configure_from_args();
    match (url, group) {
        (Ok(url), _) => measure(&mut criterion, "bucket", "shards", &url),
        (_, group) => {
            let group = group.unwrap_or_default();
            measure(
                &mut criterion,
                &group,
                "13 MB",
                &format!("gs://bench/small-{{000..{:03}}}.tar", SHARDS - 1),
            );
            if group == "20 ms" {
                measure(&mut criterion, &group, "106 MB", "gs://bench/large-{000..007}.tar");
            }
        }
    }
    criterion.final_summary();
    Ok(())
}
