//! Indexes agree with the samples that reading returns, and are built from few bytes.

mod auto;
mod checksums;
mod documents;
mod keeping;
mod keyed;
mod logged;
mod places;
mod reading;
mod selecting;
mod versions;

use crate::support::noise;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt};
use shardstream::index::{Index, ShardIndex};
use shardstream::store::{GetOptions, GetResponse, ObjectInfo, Source, Store};
use shardstream::tar::{SampleParser, read};
use shardstream::write::{ShardInfo, ShardWriter, ShardWriterBuilder};
use shardstream::{ErrorKind, Result, Sample, ShardList};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// In-memory objects, with counts of requests and of the bytes sent.
#[derive(Debug, Default)]
struct CountingSource {
    objects: Mutex<HashMap<String, (Bytes, String)>>,
    requests: AtomicUsize,
    taken: Arc<AtomicUsize>,
}

impl CountingSource {
    fn put(&self, url: &str, content: impl Into<Bytes>) {
        static VERSIONS: AtomicUsize = AtomicUsize::new(0);
        let version = format!("v{}", VERSIONS.fetch_add(1, Ordering::Relaxed));
        self.objects.lock().unwrap().insert(url.to_owned(), (content.into(), version));
    }

    /// Number of requests and of bytes sent since the last call.
    fn take_counts(&self) -> (usize, usize) {
        (self.requests.swap(0, Ordering::SeqCst), self.taken.swap(0, Ordering::SeqCst))
    }

    fn store(self: &Arc<Self>) -> Store {
        Store::builder().with_source("noted", Arc::clone(self) as Arc<dyn Source>).build().unwrap()
    }
}

impl Source for CountingSource {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let found = self.objects.lock().unwrap().get(url).cloned();
        let taken = Arc::clone(&self.taken);
        Box::pin(async move {
            let (content, version) = found.ok_or_else(|| ErrorKind::NotFound("no".into()))?;
            let length = content.len() as u64;
            let range = options.range.unwrap_or(0..length);
            let range = range.start.min(length)..range.end.min(length);
            let part = content.slice(range.start as usize..range.end as usize);
            taken.fetch_add(part.len(), Ordering::SeqCst);
            let body = futures::stream::once(async { Ok(part) }).boxed();
            Ok(GetResponse::new(body).with_size(length).with_version(version).with_range(range))
        })
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<ObjectInfo>> {
        let objects = self.objects.lock().unwrap();
        let below = objects.iter().filter(|(url, _)| url.starts_with(prefix));
        let info = |(url, (content, version)): (&String, &(Bytes, String))| {
            Ok(ObjectInfo::new(url.clone(), content.len() as u64).with_version(version.clone()))
        };
        futures::stream::iter(below.map(info).collect::<Vec<_>>()).boxed()
    }
}

fn build(store: &Store, url: &str) -> Result<ShardIndex> {
    let index = Index::builder().store(store.clone()).build(&ShardList::from_urls([url]))?;
    Ok(index.iter().next().unwrap().clone())
}

fn of_bytes(bytes: Vec<u8>) -> Result<ShardIndex> {
    let noted = Arc::new(CountingSource::default());
    noted.put("noted://s.tar", bytes);
    build(&noted.store(), "noted://s.tar")
}

/// Reads the archive and compares its samples with the index.
fn check(bytes: &[u8], index: &ShardIndex) {
    let samples: Vec<Sample> = read([Ok(Bytes::copy_from_slice(bytes))].into_iter(), SampleParser::new("s"))
        .collect::<Result<_>>()
        .unwrap();
    let count = samples.len() as u64;
    assert_eq!((index.samples(), index.bytes()), (count, Some(bytes.len() as u64)));
    assert_eq!(index.range(0..count).map(|range| range.end), Some(bytes.len() as u64));
    for (number, sample) in (0..).zip(&samples) {
        assert_eq!(index.size_of(number), Some(sample.size() as u64));
        let content = |offset: u64, size: u64| &bytes[offset as usize..(offset + size) as usize];
        let members = index.members(number).unwrap();
        let members: Vec<_> =
            members.map(|(field, at)| (field.to_owned(), content(at.start, at.end - at.start))).collect();
        let fields = sample.fields().map(|(name, value)| (name.to_owned(), &**value.as_bytes().unwrap()));
        assert_eq!(members, fields.collect::<Vec<_>>());

        let range = index.range(number..number + 1).unwrap();
        let piece = Bytes::copy_from_slice(&bytes[range.start as usize..range.end as usize]);
        let parser = SampleParser::new("s").starting(number, range.start);
        let parser = if number + 1 < count { parser.cut() } else { parser };
        let alone: Vec<_> = read([Ok(piece)].into_iter(), parser).collect::<Result<_>>().unwrap();
        assert_eq!((alone.len(), alone[0].position()), (1, sample.position()));
        let shown = |sample: &Sample| {
            let fields = sample.fields().map(|(name, value)| (name.to_owned(), value.as_bytes().cloned()));
            (sample.key().to_owned(), fields.collect::<Vec<_>>())
        };
        assert_eq!(shown(&alone[0]), shown(sample));
    }
    assert!(index.range(0..count + 1).is_none() && index.members(count).is_none());
}

/// Samples with different fields, some with names and sizes that need extension headers.
fn motley() -> Vec<Sample> {
    let sample = |i: usize| {
        let key = match i % 4 {
            0 => format!("{i:05}"),
            1 => format!("{}/{i}", "long/".repeat(30).trim_end_matches('/')),
            2 => format!("猫{i}"),
            _ => format!("{}{i}", "n".repeat(200)),
        };
        let sample = Sample::new(key).with("seg.png", noise(i * 37)).with("cls", i as i64);
        if i.is_multiple_of(3) { sample.with("txt", "") } else { sample }
    };
    (0..40).map(sample).collect()
}

fn write(builder: ShardWriterBuilder, samples: &[Sample]) -> Vec<ShardInfo> {
    let mut writer = builder.max_count(7).build().unwrap();
    samples.iter().for_each(|sample| writer.write(sample).unwrap());
    writer.finish().unwrap()
}

fn built(store: &Store, infos: &[ShardInfo]) -> Index {
    let urls = ShardList::from_urls(infos.iter().map(|info| info.url.clone()));
    Index::builder().store(store.clone()).build(&urls).unwrap()
}

fn pattern(dir: &Path, suffix: &str) -> String {
    dir.join(format!("s-%03d{suffix}")).to_str().unwrap().to_owned()
}
