//! Throughput from local shards (in the page cache) to the trainer, without decoding. Measures the blocking
//! API, the asynchronous API, and a loader with a shuffle and batches.
//!
//! `cargo bench --bench pipeline`. The throughput is in samples per second of wall time, and the loader's
//! threads share the machine's cores. `benches/compare` measures CPU time, and compares with other readers.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures::StreamExt as _;
use futures::executor::block_on;
use shardstream::prelude::*;
use std::fs::File;
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

const SHARDS: usize = 4;

/// A kind of dataset.
struct Kind {
    name: &'static str,
    samples: usize,
    /// The fields of each sample, with their sizes in bytes.
    members: &'static [(&'static str, usize)],
    /// Whether each member has the pax header that Python's `webdataset` writes by default.
    pax: bool,
}

const KINDS: [Kind; 4] = [
    Kind { name: "json-1KB-pax", samples: 40_000, members: &[("json", 1_000)], pax: true },
    Kind { name: "json-1KB", samples: 40_000, members: &[("json", 1_000)], pax: false },
    Kind { name: "cifar-2KB-pax", samples: 20_000, members: &[("cls", 1), ("png", 2_200)], pax: true },
    Kind { name: "imagenet-100KB-pax", samples: 2_000, members: &[("cls", 3), ("jpg", 100_000)], pax: true },
];

impl Kind {
    /// Writes the shards into `directory`, and returns their pattern.
    fn write(&self, directory: &Path) -> String {
        let content = vec![7; 100_000];
        for shard in 0..SHARDS {
            let path = directory.join(format!("{}-{shard}.tar", self.name));
            let mut archive = tar::Builder::new(File::create(path).unwrap());
            for sample in (shard..self.samples).step_by(SHARDS) {
                for &(field, size) in self.members {
                    if self.pax {
                        archive.append_pax_extensions([("mtime", &b"1700000000.1234567"[..])]).unwrap();
                    }
                    let mut header = tar::Header::new_ustar();
                    header.set_size(size as u64);
                    archive
                        .append_data(&mut header, format!("{sample:08}.{field}"), &content[..size])
                        .unwrap();
                }
            }
            archive.finish().unwrap();
        }
        format!("{}-{{0..{}}}.tar", directory.join(self.name).display(), SHARDS - 1)
    }
}

fn dataset(pattern: &str, streams: usize) -> Dataset {
    Dataset::builder(pattern).streams(streams).build().unwrap()
}

fn benches(c: &mut Criterion) {
    let directory = tempfile::tempdir().unwrap();
    for kind in KINDS {
        let pattern = kind.write(directory.path());
        let mut group = c.benchmark_group(kind.name);
        group.throughput(Throughput::Elements(kind.samples as u64)).sample_size(10);
        group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));

        let one = dataset(&pattern, 1);
        group.bench_function("samples", |b| {
            b.iter(|| one.samples(0).results().map(|sample| black_box(sample.unwrap()).len()).sum::<usize>())
        });
        group.bench_function("stream", |b| {
            let count = |sum: usize, sample: shardstream::Result<Sample>| async move {
                sum + black_box(sample.unwrap()).len()
            };
            b.iter(|| block_on(one.stream(0).fold(0, count)))
        });
        for (streams, threads) in [(2, 1), (4, 2)] {
            let loader = Loader::builder(dataset(&pattern, streams)).shuffle(1000).threads(threads);
            let loader = loader.batch(64).build().unwrap();
            let name = BenchmarkId::new("loader", format!("{streams} streams, {threads} threads"));
            group.bench_function(name, |b| {
                b.iter(|| loader.epoch(0).map(|batch| black_box(batch.unwrap()).len()).sum::<usize>())
            });
        }
        group.finish();
    }
}

criterion_group!(all, benches);
criterion_main!(all);
