//! Memory of a process with many open loaders over HTTP, as a table in Markdown.
//!
//! `cargo bench --bench memory --features http [-- LOADERSxSTREAMS...]`: the default is 1x1, 10x10 and 50x16,
//! where 50x16 means 50 loaders with 16 streams each. Each case is measured with no thread and with one
//! thread per loader. The benchmark reads four batches from each loader, which then stays idle. The server
//! runs in a process of its own, and so does the measurement of each row. Linux only: resident memory is read
//! from `/proc`.

#[path = "support/server.rs"]
mod server;

use shardstream::loader::Batches;
use shardstream::prelude::*;
use shardstream::store::Budget;
use std::io::{self, BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const SHARDS: usize = 16;
/// Samples per shard: about 98 KB each, 20 MB in all.
const SAMPLES: usize = 200;
const BATCHES: usize = 4;
const BATCH: usize = 32;

/// Environment variable: the role of a child process, `server` or `ADDRESS LOADERS STREAMS THREADS`.
const ROLE: &str = "SHARDSTREAM_BENCH_MEMORY";

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test` runs this program too, without the argument.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return Ok(());
    }
    if let Ok(role) = std::env::var(ROLE) {
        match role.split(' ').collect::<Vec<_>>()[..] {
            ["server"] => serve()?,
            [address, loaders, streams, threads] => {
                measure(address, loaders.parse().unwrap(), streams.parse().unwrap(), threads.parse().unwrap())
            }
            _ => panic!("{role}"),
        }
        return Ok(());
    }
    let cases = arguments.iter().filter_map(|argument| {
        let (loaders, streams) = argument.split_once('x')?;
        Some((loaders.parse().ok()?, streams.parse().ok()?))
    });
    let mut cases: Vec<(usize, usize)> = cases.collect();
    if cases.is_empty() {
        cases = vec![(1, 1), (10, 10), (50, 16)];
    }
    let mut server = Server(child("server").stdout(Stdio::piped()).spawn()?);
    let mut address = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut address)?;
    println!(
        "| loaders × streams | threads each | RSS, MB | in the budget | of it network | samples | beyond the \
         budget, KiB for each stream |\n|---|--:|--:|--:|--:|--:|--:|"
    );
    for (loaders, streams) in cases {
        for threads in [0, 1] {
            let role = format!("{} {loaders} {streams} {threads}", address.trim());
            assert!(child(&role).status()?.success());
        }
    }
    Ok(())
}

fn child(role: &str) -> Command {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.arg("--bench").env(ROLE, role);
    child
}

/// The server's process. Dropping it kills the process.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server for the shards, prints the server's address, and waits forever.
fn serve() -> io::Result<()> {
    let mut archive = tar::Builder::new(Vec::new());
    for sample in 0..SAMPLES {
        let content = vec![sample as u8; 60_000 + sample * 7919 % 76_000];
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, format!("{sample:08}.jpg"), &content[..])?;
    }
    let shard = Arc::new(archive.into_inner()?);
    let address = server::start((0..SHARDS).map(|number| (format!("{number:06}.tar"), Arc::clone(&shard))))?;
    println!("{address}");
    loop {
        thread::park();
    }
}

/// Reads some batches with each loader, leaves the loaders idle, and prints the row for this case.
fn measure(address: &str, loaders: usize, streams: usize, threads: usize) {
    let shards = format!("http://{address}/{{000000..{:06}}}.tar", SHARDS - 1);
    let dataset = Dataset::builder(shards).streams(streams).topology(Topology::single()).build().unwrap();
    let loader = Loader::builder(dataset).threads(threads).batch(BATCH).prefetch(1).build().unwrap();
    let open: Vec<Batches<Batch<Sample>>> = (0..loaders)
        .map(|_| {
            let mut batches = loader.clone().epochs(0);
            batches.by_ref().take(BATCHES).for_each(|batch| assert_eq!(batch.unwrap().len(), BATCH));
            batches
        })
        .collect();
    thread::sleep(Duration::from_secs(3));
    let (network, samples) = open
        .iter()
        .map(|batches| batches.report().memory)
        .fold((0, 0), |(network, samples), memory| (network + memory.network, samples + memory.samples));
    let in_use = Budget::process().in_use();
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let beyond = in_use.saturating_sub(256 << 20) / 1024 / (loaders * streams) as u64;
    println!(
        "| {loaders} × {streams} | {threads} | {:.0} | {:.0} | {:.0} | {:.0} | {beyond} |",
        megabytes(resident()),
        megabytes(in_use),
        megabytes(network),
        megabytes(samples)
    );
}

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}
