//! The events in a program's log (`tracing`), and the metrics that a Prometheus exporter serves.

#[path = "support/mod.rs"]
mod support;

use futures::future::BoxFuture;
use shardstream::loader::{Failures, OnError};
use shardstream::prelude::*;
use shardstream::store::{GetOptions, GetResponse, Source};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::archive;
use tracing_subscriber::fmt::MakeWriter;

/// A log in memory.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Log;

    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}

/// A source of one shard. The second request fails, and the third takes 700 ms.
#[derive(Debug)]
struct Unsteady {
    shard: Vec<u8>,
    requests: AtomicUsize,
}

impl Source for Unsteady {
    fn get(&self, _: &str, options: GetOptions) -> BoxFuture<'static, shardstream::Result<GetResponse>> {
        let (number, shard) = (self.requests.fetch_add(1, Ordering::Relaxed), self.shard.clone());
        Box::pin(async move {
            match number {
                1 => return Err(io::Error::new(io::ErrorKind::ConnectionReset, "reset on purpose").into()),
                2 => tokio::time::sleep(Duration::from_millis(700)).await,
                _ => {}
            }
            let size = shard.len() as u64;
            let range = options.range.unwrap_or(0..size);
            let range = range.start.min(size)..range.end.min(size);
            let part = bytes::Bytes::from(shard).slice(range.start as usize..range.end as usize);
            let mut response = GetResponse::new(Box::pin(futures::stream::iter([Ok(part)]))).with_size(size);
            (response.version, response.range) = (Some("1".into()), Some(range));
            Ok(response)
        })
    }
}

/// The value of a counter or gauge in the exporter's text.
fn value(scrape: &str, name: &str) -> f64 {
    let line = scrape.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {scrape}")).trim().parse().unwrap()
}

#[test]
fn log_and_metrics_record_reading_and_faults() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false);
    let subscriber = subscriber.with_max_level(tracing::Level::TRACE).finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let exporter = metrics_exporter_prometheus::PrometheusBuilder::new().install_recorder().unwrap();

    let samples: Vec<_> = (0..40).map(|n| Sample::new(format!("{n:04}")).with("cls", n)).collect();
    let source = Unsteady { shard: archive(&samples), requests: AtomicUsize::new(0) };
    let store = Store::builder()
        .with_source("https://flaky/", Arc::new(source))
        .retry_pause(Duration::from_millis(1));
    let store = store.range_size(8 << 10).ranges_in_flight(1).build().unwrap();
    let dataset = Dataset::builder(ShardList::from_urls(["https://flaky/a.tar?signature=abc"]))
        .store(store)
        .build()
        .unwrap();
    let odd = |sample: Sample| match sample.position().sample {
        7 => Err(shardstream::ErrorKind::Step("seven is odd".into()).into()),
        _ => Ok(sample),
    };
    let loader = Loader::builder(dataset).map(odd).threads(1).batch(5);
    let loader = loader.on_error(OnError::skip(Failures::step())).stall_after(Duration::from_millis(300));
    let loader = loader.build().unwrap();
    let batches = loader.epoch(0);
    assert_eq!(batches.map(|batch| batch.unwrap().len()).sum::<usize>(), 39);

    let dir = tempfile::tempdir().unwrap();
    let pattern = dir.path().join("out-%d.tar").display().to_string();
    let mut writer = ShardWriter::builder(&pattern).max_count(2).build().unwrap();
    (0..3).for_each(|n| writer.write(&Sample::new(n.to_string()).with("cls", n)).unwrap());
    drop(writer);
    let mut finished = ShardWriter::builder(&pattern).build().unwrap();
    finished.write(&Sample::new("0").with("cls", 0)).unwrap();
    finished.finish().unwrap();

    let text = log.text();
    assert_eq!(text.matches("a ShardWriter is dropped without `finish`").count(), 1, "{text}");
    for event in [
        "out-1.tar samples=1",
        "shardstream: a run over the data begins threads=1 streams=1",
        "shardstream: a shard is being read",
        " INFO shardstream: a request failed and is retried",
        "reset on purpose",
        " WARN collect: shardstream: a sample was skipped",
        "seven is odd",
        " WARN shardstream: the trainer waits for a batch",
        "no response yet",
        "shardstream: a run over the data has ended items=39 batches=8",
    ] {
        assert!(text.contains(event), "no `{event}` in {text}");
    }
    assert!(!text.contains("abc"), "no secret may be in a log: {text}");

    // If `shuffle` is set but `shuffle_shards` is not, the loader logs a warning.
    let warning = "every epoch begins with the same shards";
    let shards = ShardList::from_urls(["a.tar", "b.tar"]);
    for (shuffle, shuffle_shards, is_warned) in [(0, false, false), (100, true, false), (100, false, true)] {
        let dataset = Dataset::builder(shards.clone()).shuffle_shards(shuffle_shards).build().unwrap();
        drop(Loader::builder(dataset).shuffle(shuffle).batch(5).build().unwrap().epochs(0));
        assert_eq!(log.text().contains(warning), is_warned, "{shuffle} {shuffle_shards}");
    }

    let scraped = exporter.render();
    for (name, expected) in [
        ("shardstream_batches_total", 8.0),
        ("shardstream_items_total", 39.0),
        ("shardstream_retries_total", 1.0),
        ("shardstream_skipped_samples_total", 1.0),
        ("shardstream_batch_wait_seconds_count", 8.0),
    ] {
        assert_eq!(value(&scraped, name), expected, "{name} in {scraped}");
    }
    assert!(value(&scraped, "shardstream_received_bytes_total") >= 40_960.0, "{scraped}");
    assert!(scraped.contains("shardstream_memory_bytes{owner=\"samples\"}"), "{scraped}");
    assert!(scraped.contains("shardstream_threads"), "{scraped}");
}
