//! Speed of parsing tar archives, compared with the `tar` crate: large members (110 KB), small members (1
//! KB), and small members with the pax header that Python's `webdataset` writes before each member by
//! default.
//!
//! `cargo bench --bench tar`. The throughput is in members. This crate returns bodies as slices, whereas
//! `tar` copies them, so only the comparison of small members is meaningful.

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use shardstream::tar::{Event, SampleParser, Walker, read};
use std::hint::black_box;
use std::io::Read;

const CHUNK: usize = 256 << 10;

/// An archive of `count` members of `size` bytes each. Each sample has two members.
fn archive(count: usize, size: usize, pax: bool) -> Bytes {
    let mut archive = tar::Builder::new(Vec::new());
    let body: Vec<u8> = (0..size).map(|offset| offset as u8).collect();
    for number in 0..count {
        if pax {
            let mtime = format!("{}.25", 1_700_000_000 + number);
            archive.append_pax_extensions([("mtime", mtime.as_bytes())]).unwrap();
        }
        let mut header = tar::Header::new_ustar();
        header.set_size(size as u64);
        let name = format!("{:08}.{}", number / 2, ["cls", "jpg"][number % 2]);
        archive.append_data(&mut header, name, &body[..]).unwrap();
    }
    archive.into_inner().unwrap().into()
}

fn chunks(archive: &Bytes) -> impl Iterator<Item = Bytes> {
    (0..archive.len()).step_by(CHUNK).map(|start| archive.slice(start..archive.len().min(start + CHUNK)))
}

fn walk(mut chunks: impl Iterator<Item = Bytes>) -> usize {
    let mut walker = Walker::new();
    let mut total = 0;
    loop {
        match walker.next().unwrap() {
            Event::NeedInput => match chunks.next() {
                Some(chunk) => walker.push(chunk),
                None => walker.finish(),
            },
            Event::Body(body) => total += black_box(body).len(),
            Event::End => return total,
            _ => {}
        }
    }
}

fn tar_crate(archive: &Bytes) -> usize {
    let mut archive = tar::Archive::new(&archive[..]);
    let mut total = 0;
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        black_box(entry.path_bytes());
        let mut body = Vec::with_capacity(entry.size() as usize);
        entry.read_to_end(&mut body).unwrap();
        total += black_box(body).len();
    }
    total
}

fn tar_crate_without_bodies(archive: &Bytes) -> usize {
    let mut archive = tar::Archive::new(&archive[..]);
    archive.entries().unwrap().map(|entry| black_box(entry.unwrap().path_bytes()).len()).sum()
}

fn benches(c: &mut Criterion) {
    for (name, count, size, pax) in
        [("110KB", 1_000, 110_000, false), ("1KB", 50_000, 1_000, false), ("1KB-pax", 50_000, 1_000, true)]
    {
        let archive = archive(count, size, pax);
        let mut group = c.benchmark_group(format!("walk-{name}"));
        group.throughput(Throughput::Elements(count as u64)).sample_size(20);
        group.bench_function("shardstream, one chunk", |b| b.iter(|| walk([archive.clone()].into_iter())));
        group.bench_function(BenchmarkId::new("shardstream, chunks of", "256KiB"), |b| {
            b.iter(|| walk(chunks(&archive)))
        });
        group.bench_function("shardstream, grouped into samples", |b| {
            b.iter(|| {
                read(chunks(&archive).map(Ok), SampleParser::new("s"))
                    .map(|s| s.unwrap().len())
                    .sum::<usize>()
            })
        });
        group.bench_function("tar crate", |b| b.iter(|| tar_crate(&archive)));
        group.bench_function("tar crate, bodies skipped", |b| b.iter(|| tar_crate_without_bodies(&archive)));
        group.finish();
    }
}

criterion_group!(all, benches);
criterion_main!(all);
