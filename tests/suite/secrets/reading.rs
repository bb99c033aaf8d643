//! No secret is shown while shards are read, nor in any error of reading.

use super::{Seen, dataset, urls};
use crate::support::archive;
use crate::support::server::{Reply, Request, Server};
use shardstream::collate::{Columns, Scalar, TensorBatch};
use shardstream::index::AutoIndex;
use shardstream::loader::LoaderBuilder;
use shardstream::store::{Cache, ObjectVersion, Store};
use shardstream::tar::{Outline, SampleParser};
use shardstream::{Dataset, Index, Loader, Result, Sample, Topology};

/// A response that repeats the request in every way that is known from real servers.
fn echo(status: u16, request: &Request) -> Reply {
    let (target, query) = (&request.target, request.query());
    let sent = request.header("authorization").unwrap_or_default();
    let value = query.split('&').next().unwrap_or_default().split_once('=').map_or(query, |(_, value)| value);
    let text = match query.len() % 2 {
        0 => format!(
            "<Error><Code>Nope</Code><Message>{target} is not at http://me:S3CRET@host{target}, and {sent} \
             is no good, nor is \"{value}\" or {query}</Message></Error>"
        ),
        _ => serde_json::json!({"error": "no", "error_description": format!("{target} ({value}) {sent}")})
            .to_string(),
    };
    Reply::new(status, text)
}

/// A server with readable objects, and with an object for each fault.
fn server() -> Server {
    let samples: Vec<Sample> = (0..40).map(|n| Sample::new(format!("{n:03}")).with("cls", n)).collect();
    let sound = archive(&samples);
    let mut damaged = sound.clone();
    damaged[1024] ^= 1;
    Server::start(move |request| {
        let name = request.path().trim_start_matches('/').trim_end_matches(".tar");
        match name {
            "sound" => Reply::object(request, &sound, "\"v\""),
            "damaged" => Reply::object(request, &damaged, "\"v\""),
            "cut" => Reply::object(request, &sound, "\"v\"").cut(700),
            "replaced" => Reply::object(request, &sound, &format!("\"{}\"", request.number)),
            "coded" => Reply::object(request, &sound, "\"v\"").with("Content-Encoding", "gzip"),
            "garbled" => Reply::raw("HTTP/1.1 S3CRETLY wrong\r\n\r\n"),
            "elsewhere" => {
                Reply::new(302, "").with("Location", format!("ftp://me:S3CRET@host/{}", request.target))
            }
            "around" => {
                Reply::new(302, "").with("Location", format!("/around.tar?sig=S3CRET{}", request.number))
            }
            "moved" => Reply::new(307, "").with("Location", "/403.tar?sig=S3CRET-of-Location"),
            "nowhere" => Reply::new(302, "").with("Location", "http://me:S3CRET@[S3CRET?S3CRET"),
            status => echo(status.parse().unwrap_or(404), request),
        }
    })
}

#[test]
fn reading_neither_shows_nor_saves_secrets() {
    let server = server();
    let host = format!("127.0.0.1:{}", server.port());
    let mut seen = Seen::default();
    let directory = tempfile::tempdir().unwrap();
    let mut kept = 0;
    for name in [
        "sound",
        "damaged",
        "cut",
        "replaced",
        "coded",
        "garbled",
        "elsewhere",
        "around",
        "moved",
        "nowhere",
        "400",
        "401",
        "403",
        "404",
        "500",
        "503",
    ] {
        let every = ["sound", "damaged", "moved", "403", "404"].contains(&name);
        for (number, url) in urls(&host, &format!("{name}.tar")).into_iter().enumerate() {
            // For most names, three URLs suffice: with user and query, with an encoded query, and without a
            // path. Each of these URLs is parsed differently.
            if !every && ![3, 5, 9].contains(&number) {
                continue;
            }
            let what = format!("{name}: {url}");
            let place = directory.path().join(format!("{name}-{number}"));
            let cache = Cache::builder(place.join("cache")).build().unwrap();
            let store = || Store::builder().retries(0).range_size(8000);
            for store in [store().build().unwrap(), store().cache(cache.clone()).build().unwrap()] {
                let body = store.open(&url).unwrap();
                seen.debug(&what, &body);
                seen.result(&what, body.read_all().map(|bytes| bytes.len()));
                seen.result(
                    &what,
                    store.open_range(&url, 5..9, &ObjectVersion::any()).and_then(|body| body.read_all()),
                );
                seen.result(&what, store.stat(&url));
                seen.result(&what, store.list(&url));
                seen.result(&what, store.delete(&url));
                seen.result(&what, store.create(&url).and_then(|object| object.finish()));

                let data = dataset(std::slice::from_ref(&url), &store);
                seen.debug(&what, &data);
                seen.debug(&what, data.shards());
                seen.debug(&what, &data.samples(0));
                seen.debug(&what, &data.stream(0));
                data.samples(0).for_each(|sample| seen.result(&what, sample));
                let sample = data.samples(0).find_map(Result::ok);
                seen.text(&what, sample.as_ref().map(Sample::shard).unwrap_or_default());

                let loader = Loader::builder(data.clone());
                seen.debug(&what, &loader);
                of_missing_field(loader).epoch(0).for_each(|batch| seen.result(&what, batch));
                let loader = Loader::builder(data.clone()).batch(2).build().unwrap();
                seen.debug(&what, &loader);
                let mut batches = loader.epoch(0);
                seen.debug(&what, &batches);
                batches.by_ref().for_each(|batch| seen.result(&what, batch));
                let state = batches.state();
                seen.debug(&what, &state);
                seen.text(&what, serde_json::to_string(&state).unwrap());
                seen.result(&what, loader.restore(&state).map(|rest| rest.count()));
                seen.text(&what, format!("{} {:?}", batches.report(), batches.report()));
                seen.text(&what, format!("{} {:?} {store:?}", store.report(), store.report()));

                let builder =
                    || Index::builder().store(store.clone()).cache(place.join("index")).beside(true);
                seen.debug(&what, &builder());
                let index = builder().build(data.shards());
                if let Ok(index) = &index {
                    kept += 1;
                    let file = place.join("index.json");
                    index.save(&store, file.to_str().unwrap()).unwrap();
                    seen.debug(&what, &Index::load(&store, file.to_str().unwrap()).unwrap().shards());
                    index.iter().for_each(|shard| seen.debug(&what, shard));
                    seen.text(&what, serde_json::to_string(&index.iter().collect::<Vec<_>>()).unwrap());
                    let builder =
                        Dataset::builder(data.shards().clone()).index(index.clone()).store(store.clone());
                    seen.debug(&what, &builder);
                    let data = builder.topology(Topology::single()).build();
                    seen.debug(&what, &data.as_ref().map(|data| data.samples(0).count()));
                }
                seen.result(&what, index);
                let beside = AutoIndex::beside();
                for auto in [
                    beside.clone(),
                    beside.or_in_directory(place.join("auto")),
                    AutoIndex::at(format!("{url}.json")).select("all", |_| true),
                ] {
                    let builder =
                        Dataset::builder(data.shards().clone()).store(store.clone()).auto_index(auto);
                    seen.debug(&what, &builder);
                    seen.result(&what, builder.topology(Topology::single()).build());
                }
                seen.result(&what, Index::load(&store, &url));
                seen.result(&what, Index::from_json(b"{}", &url).and_then(|index| index.save(&store, &url)));
            }
            cache.flush();
            seen.debug(&what, &(&cache, cache.warning()));
            seen.debug(&what, &SampleParser::new(&*url));
            seen.debug(&what, &Outline::new(&*url));
        }
    }
    // For each URL, the index and the cache entry exist.
    assert!(seen.directory(directory.path()) >= 2 * kept && kept >= 10, "{kept}");
    seen.check(5_000);
}

/// A loader whose only column reads a field that is missing.
fn of_missing_field(loader: LoaderBuilder<Sample>) -> Loader<TensorBatch> {
    loader.batch(2).collate(Columns::new().with("x", Scalar::<f32>::new("none"))).build().unwrap()
}
