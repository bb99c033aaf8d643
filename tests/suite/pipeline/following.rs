//! In a run of consecutive epochs, the loader requests the next epoch's first shards while it still reads the
//! last shards of the current epoch.

use super::url;
use crate::support::archive;
use bytes::Bytes;
use futures::future::{self, BoxFuture, FutureExt};
use futures::stream::{self, StreamExt};
use shardstream::Result;
use shardstream::prelude::*;
use shardstream::store::Budget;
use shardstream::store::{GetOptions, GetResponse, Source};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const SHARDS: usize = 3;

/// A source of shards with two samples each. It records requests, and the response for the last shard never
/// ends.
#[derive(Debug, Default)]
struct Stuck(Mutex<Vec<String>>);

impl Stuck {
    fn request_count(&self, shard: usize) -> usize {
        self.0.lock().unwrap().iter().filter(|requested| **requested == url(shard)).count()
    }

    /// Waits until a shard was requested `times` times; false if that takes over 10 s.
    fn is_requested(&self, shard: usize, times: usize) -> bool {
        (0..1000).any(|_| {
            thread::sleep(Duration::from_millis(10));
            self.request_count(shard) >= times
        })
    }

    fn loader(self: &Arc<Self>, threads: usize) -> Loader<Batch<Sample>> {
        let store = Store::builder().budget(Budget::new(64, 64 << 20));
        let store = store.with_source("shelf", Arc::clone(self) as _).build().unwrap();
        let list = ShardList::from_urls((0..SHARDS).map(url));
        let dataset = Dataset::builder(list).store(store).topology(Topology::single()).build().unwrap();
        Loader::builder(dataset).threads(threads).batch(1).build().unwrap()
    }
}

impl Source for Stuck {
    fn get(&self, requested: &str, _: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        self.0.lock().unwrap().push(requested.to_owned());
        let samples = [0, 1].map(|number| Sample::new(format!("{number:03}")).with("bin", vec![1; 9]));
        let bytes = Bytes::from(archive(&samples));
        let body = match requested == url(SHARDS - 1) {
            true => stream::once(future::ready(Ok(bytes.slice(..1024)))).chain(stream::pending()).boxed(),
            false => stream::once(future::ready(Ok(bytes))).boxed(),
        };
        // The latency is high, so that the loader requests many shards at the same time.
        async { tokio::time::sleep(Duration::from_millis(20)).await }
            .map(|()| Ok(GetResponse::new(body)))
            .boxed()
    }
}

#[test]
fn the_next_epoch_starts_while_the_last_shard_is_read() {
    let stuck = Arc::<Stuck>::default();
    let mut batches = stuck.loader(1).epochs(0);
    assert!(batches.next().is_some_and(|batch| batch.is_ok()));
    assert!(stuck.is_requested(0, 2), "{stuck:?}");
    drop(batches);
}

#[test]
fn nothing_is_read_after_the_last_epoch() {
    let stuck = Arc::<Stuck>::default();
    let mut batches = stuck.loader(1).epoch(0);
    // Takes all batches before the shard whose response never ends.
    for _ in 0..2 * (SHARDS - 1) {
        assert!(batches.next().is_some_and(|batch| batch.is_ok()));
    }
    assert!(stuck.is_requested(SHARDS - 1, 1), "{stuck:?}");
    thread::sleep(Duration::from_millis(50));
    assert_eq!((0..SHARDS).map(|shard| stuck.request_count(shard)).collect::<Vec<_>>(), [1; SHARDS]);
}
