//! Blocking calls within a source. The futures of a source run on the I/O threads. A blocking call on such a
//! thread would wait for work of the same thread, so the call is an error.

use crate::support::shards::{memory, put, url, write};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, StreamExt};
use shardstream::feed::Feed;
use shardstream::prelude::*;
use shardstream::store::{GetOptions, GetResponse, ObjectWriter, Source};
use shardstream::{ErrorKind, Index, Result};
use std::fmt;
use std::io::Write;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

type Call = dyn Fn(&Store) -> Result<String> + Send + Sync;

/// A source that makes a blocking call for each request, and responds with the outcome of the call.
struct Calling {
    store: Store,
    call: Arc<Call>,
    /// Whether the call is made on a thread that may block, instead of an I/O thread.
    elsewhere: bool,
}

impl fmt::Debug for Calling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Calling")
    }
}

impl Source for Calling {
    fn get(&self, _: &str, _: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let (store, call) = (self.store.clone(), Arc::clone(&self.call));
        let elsewhere = self.elsewhere;
        async move {
            let outcome = match elsewhere {
                true => tokio::task::spawn_blocking(move || call(&store)).await.unwrap(),
                false => call(&store),
            };
            let body = stream::iter([outcome.map(Into::into)]).boxed();
            Ok(GetResponse::new(body))
        }
        .boxed()
    }
}

fn dataset(store: &Store) -> Dataset {
    let shards = ShardList::from_urls([url(0), url(1)]);
    Dataset::builder(shards).store(store.clone()).topology(Topology::single()).streams(2).build().unwrap()
}

fn counted<T>(items: impl Iterator<Item = Result<T>>) -> Result<String> {
    items.map(|item| item.map(drop)).collect::<Result<Vec<_>>>().map(|items| items.len().to_string())
}

fn written(mut object: Box<dyn ObjectWriter>) -> Result<String> {
    object.write_all(b"new")?;
    object.finish().map(|info| info.size.to_string())
}

#[test]
fn every_blocking_call_on_an_io_thread_is_an_error() {
    let calls: Vec<(&str, &str, Arc<Call>)> = vec![
        ("read_all", "4", Arc::new(|store| Ok(store.open("mem://note")?.read_all()?.len().to_string()))),
        ("next", "1", Arc::new(|store| counted(store.open("mem://note")?))),
        ("stat", "Some(4)", Arc::new(|store| Ok(format!("{:?}", store.stat("mem://note")?.size)))),
        ("list", "2", Arc::new(|store| Ok(store.list("mem://train")?.len().to_string()))),
        ("delete", "()", Arc::new(|store| Ok(format!("{:?}", store.delete("mem://none")?)))),
        ("create", "3", Arc::new(|store| written(store.create("mem://new")?))),
        ("samples", "9", Arc::new(|store| counted(dataset(store).samples(0)))),
        ("prefetch", "9", Arc::new(|store| counted(dataset(store).samples(0).prefetch(1)))),
        (
            "batches",
            "2",
            Arc::new(|store| counted(Loader::builder(dataset(store)).batch(5).build()?.epoch(0))),
        ),
        (
            "batches here",
            "2",
            Arc::new(|store| counted(Loader::builder(dataset(store)).threads(0).batch(5).build()?.epoch(0))),
        ),
        (
            "feed",
            "2",
            Arc::new(|store| {
                counted(Feed::new(Loader::builder(dataset(store)).batch(5).build()?.epoch(0), Ok))
            }),
        ),
        (
            "index",
            "2",
            Arc::new(|store| {
                let shards = ShardList::from_urls([url(0), url(1)]);
                Ok(Index::builder().store(store.clone()).build(&shards)?.len().to_string())
            }),
        ),
        (
            "wildcards",
            "2",
            Arc::new(|store| {
                let dataset = Dataset::builder("mem://train/*.tar").store(store.clone());
                Ok(dataset.topology(Topology::single()).build()?.shards().len().to_string())
            }),
        ),
    ];
    for (name, expected, call) in calls {
        for elsewhere in [false, true] {
            let store = memory();
            write(&store, &[4, 5]);
            put(&store, "mem://note", b"four");
            let source = Calling { store, call: Arc::clone(&call), elsewhere };
            let store = Store::builder().with_source("calling://", Arc::new(source)).build().unwrap();
            let (done, waiting) = mpsc::channel();
            thread::spawn(move || {
                let _ = done.send(store.open("calling://it").and_then(|body| body.read_all()));
            });
            let outcome = waiting.recv_timeout(Duration::from_secs(60));
            let outcome = outcome.unwrap_or_else(|_| panic!("{name}: it waits for itself"));
            if elsewhere {
                assert_eq!(outcome.unwrap(), expected, "{name}");
                continue;
            }
            let error = outcome.expect_err(name);
            assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{name}: {error:?}");
            let text = format!("{error:#}");
            assert!(text.contains("a blocking call on a thread of shardstream's I/O runtime"), "{text}");
            assert!(text.contains("tokio::task::spawn_blocking"), "{text}");
        }
    }
}

/// Calls that do not wait are allowed: reading a file, and reading bytes in memory.
#[test]
fn calls_that_do_not_block_are_allowed() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("note");
    std::fs::write(&path, "four").unwrap();
    let path = path.display().to_string();
    let call: Arc<Call> = Arc::new(move |store| {
        let body = store.open(&path)?.read_all()?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    });
    let source = Calling { store: Store::default(), call, elsewhere: false };
    let store = Store::builder().with_source("calling://", Arc::new(source)).build().unwrap();
    assert_eq!(store.open("calling://it").unwrap().read_all().unwrap(), "four");
}
