//! Throughput of reading samples of 100 KB from local files (in the page cache), alone and beside threads
//! that copy memory all the time, as on a host where every core loads data. Memory bandwidth is then the
//! limit, and bytes that leave the second-level cache between `read` and their use cost most.
//!
//! `cargo bench --bench neighbour`. The throughput is in bytes of the files. The lines `read into …` call the
//! system's `read` with one buffer of that size, and access each cache line once: no reader of files with
//! that buffer size can be faster. The crate chooses its buffer size depending on the machine.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use shardstream::prelude::*;
use std::fs::File;
use std::hint::black_box;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

const SHARDS: usize = 8;
const SAMPLES: usize = 256;
const SIZE: usize = 100_000;

/// Threads that copy memory until this value is dropped.
struct Neighbour {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Neighbour {
    /// Starts one thread fewer than there are cores, but at least one thread.
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let copy = |stop: Arc<AtomicBool>| {
            let (from, mut to) = (vec![1_u8; 128 << 20], vec![0_u8; 128 << 20]);
            while !stop.load(Relaxed) {
                to.copy_from_slice(black_box(&from));
                black_box(&to);
            }
        };
        let threads =
            (1..cores.max(2)).map(|_| Arc::clone(&stop)).map(|stop| thread::spawn(move || copy(stop)));
        let threads = threads.collect();
        Neighbour { stop, threads }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

fn write_shards(directory: &Path) -> Vec<PathBuf> {
    let content = vec![7; SIZE];
    let shard = |shard| {
        let path = directory.join(format!("{shard}.tar"));
        let mut archive = tar::Builder::new(File::create(&path).unwrap());
        for sample in 0..SAMPLES {
            let mut header = tar::Header::new_ustar();
            header.set_size(SIZE as u64);
            archive.append_data(&mut header, format!("{shard}{sample:06}.jpg"), &content[..]).unwrap();
        }
        archive.finish().unwrap();
        path
    };
    (0..SHARDS).map(shard).collect()
}

/// Sums one byte of each cache line.
fn touch(bytes: &[u8]) -> usize {
    bytes.iter().step_by(64).map(|byte| usize::from(*byte)).sum()
}

fn touch_sample(sample: &Sample) -> usize {
    touch(sample.get("jpg").and_then(Value::as_bytes).unwrap())
}

fn benches(c: &mut Criterion) {
    let directory = tempfile::tempdir().unwrap();
    let files = write_shards(directory.path());
    let pattern = format!("{}/{{0..{}}}.tar", directory.path().display(), SHARDS - 1);
    let dataset = |streams| Dataset::builder(pattern.as_str()).streams(streams).build().unwrap();
    for name in ["alone", "beside a neighbour"] {
        let _neighbour = (name != "alone").then(Neighbour::start);
        let mut group = c.benchmark_group(name);
        let bytes: u64 = files.iter().map(|file| file.metadata().unwrap().len()).sum();
        group.throughput(Throughput::Bytes(bytes)).sample_size(10);
        group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
        for size in [64 << 10, 128 << 10, 256 << 10, 512 << 10, 2 << 20] {
            group.bench_function(format!("read into {} KiB", size >> 10), |b| {
                let mut buffer = vec![0; size];
                let mut read = |file: &PathBuf| {
                    let (mut file, mut sum) = (File::open(file).unwrap(), 0);
                    loop {
                        match file.read(&mut buffer).unwrap() {
                            0 => break sum,
                            count => sum += touch(&buffer[..count]),
                        }
                    }
                };
                b.iter(|| files.iter().map(&mut read).sum::<usize>());
            });
        }
        let one = dataset(1);
        group.bench_function("samples", |b| {
            b.iter(|| one.samples(0).results().map(|sample| touch_sample(&sample.unwrap())).sum::<usize>());
        });
        for threads in [0, 1] {
            let loader = Loader::builder(dataset(8)).batch(64).threads(threads).build().unwrap();
            group.bench_function(format!("loader, {threads} threads"), |b| {
                let batch = |batch: shardstream::Result<Batch<Sample>>| {
                    batch.unwrap().iter().map(touch_sample).sum::<usize>()
                };
                b.iter(|| loader.epoch(0).map(batch).sum::<usize>());
            });
        }
        group.finish();
    }
}

criterion_group!(all, benches);
criterion_main!(all);
