//! Speed at which the kernel copies a file from the page cache into memory. `read()` copies into buffers at
//! several offsets within a page. For comparison, the store reads the same file.
//!
//! `cargo bench --bench read`. On AMD's Zen, the offsets 16 and 48 are slower than the others.

use bytes::BytesMut;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use shardstream::store::Store;
use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Seek};
use std::time::Duration;

const SIZE: usize = 64 << 20;
const CHUNK: usize = 512 << 10;
const PAGE: usize = 4096;

fn benches(c: &mut Criterion) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.bin");
    std::fs::write(&path, vec![7; SIZE]).unwrap();

    let mut group = c.benchmark_group("read");
    group.throughput(Throughput::Bytes(SIZE as u64)).sample_size(20);
    group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    let mut memory = BytesMut::zeroed(CHUNK + 2 * PAGE);
    let page = memory.as_ptr().addr().wrapping_neg() % PAGE;
    for offset in [0, 16, 48, 64, 256] {
        let buffer = &mut memory[page + offset..][..CHUNK];
        let mut file = File::open(&path).unwrap();
        group.bench_function(BenchmarkId::new("offset in the page", offset), |b| {
            b.iter(|| {
                file.rewind().unwrap();
                while file.read(buffer).unwrap() > 0 {}
            })
        });
    }
    let (store, path) = (Store::default(), path.to_str().unwrap());
    group.bench_function("store", |b| {
        b.iter(|| store.open(path).unwrap().map(|chunk| black_box(chunk.unwrap()).len()).sum::<usize>())
    });
}

criterion_group!(all, benches);
criterion_main!(all);
