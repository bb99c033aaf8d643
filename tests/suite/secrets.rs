//! Secrets of URLs are in nothing that the crate prints, saves or names a file by: planted wherever a URL can be given, and
//! searched for in everything that comes out.

use crate::support::archive;
use crate::support::server::{Reply, Request, Server};
use bytes::Bytes;
use futures::future::{self, BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt};
use shardstream::collate::{Columns, Scalar};
use shardstream::dataset::Shards;
use shardstream::store::object_store::memory::InMemory;
use shardstream::store::{Cache, GetOptions, GetResponse, ObjectInfo, Source, Store};
use shardstream::tar::{Outline, SampleParser};
use shardstream::write::{ShardPattern, ShardWriter};
use shardstream::{Dataset, Error, ErrorKind, Index, Loader, Result, Sample, SecretUrl, ShardList, Topology};
use std::fmt::{Debug, Display};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

const SECRET: &str = "S3CRET";
/// `me:S3CRET` and `S3CRET:` as they are sent.
const SENT: [&str; 2] = ["bWU6UzNDUkVU", "UzNDUkVU"];

/// URLs of the object `name` on `host`, with a secret in each place where one can be.
fn urls(host: &str, name: &str) -> Vec<String> {
    vec![
        format!("http://me:S3CRET@{host}/{name}"),
        format!("http://S3CRET@{host}/{name}"),
        format!("http://me:x@S3CRET@{host}/{name}"),
        format!("http://me:S3CRET@{host}/{name}?sig=S3CRET#S3CRET"),
        format!("http://{host}/{name}?sig=S3CRET"),
        format!("http://{host}/{name}?X-Amz-Credential=S3CRET%2Fa&X-Amz-Signature=S3CRET"),
        format!("http://{host}/{name}?X-Goog-Signature=S3CRET@host/S3CRET"),
        format!("http://{host}/{name}?access_token=S3CRET"),
        format!("http://{host}/{name}?S3CRET"),
        format!("http://{host}?sig=S3CRET/{name}"),
        format!("http://me:S3CRET@{host}?a@b=S3CRET"),
    ]
}

/// Everything that was seen, of which nothing may have a secret.
#[derive(Default)]
struct Seen(Vec<(String, String)>);

impl Seen {
    fn text(&mut self, what: impl Display, text: impl Into<String>) {
        self.0.push((what.to_string(), text.into()));
    }

    fn debug(&mut self, what: impl Display, value: &dyn Debug) {
        self.text(&what, format!("{value:?}"));
        self.text(&what, format!("{value:#?}"));
    }

    fn error(&mut self, what: impl Display, error: &Error) {
        self.debug(&what, error);
        self.debug(&what, error.kind());
        self.debug(&what, error.location());
        self.text(&what, format!("{error} {error:#} {}", error.kind()));
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            self.debug(&what, &error);
            self.text(&what, error.to_string());
            cause = error.source();
        }
    }

    /// What must not have worked, or may.
    fn result<T: Debug>(&mut self, what: impl Display, result: Result<T>) {
        match result {
            Ok(value) => self.debug(&what, &value),
            Err(error) => self.error(&what, &error),
        }
    }

    /// The names of all files below a directory, and their contents.
    fn directory(&mut self, path: &Path) -> usize {
        let mut files = 0;
        for entry in std::fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            self.text("the name of a file", path.to_string_lossy());
            if path.is_dir() {
                files += self.directory(&path);
            } else {
                files += 1;
                let content = std::fs::read(&path).unwrap();
                self.text(path.display(), String::from_utf8_lossy(&content));
            }
        }
        files
    }

    fn check(&self, least: usize) {
        assert!(self.0.len() >= least, "only {} things were seen", self.0.len());
        for (what, text) in &self.0 {
            let secret = [SECRET].iter().chain(&SENT).find(|secret| text.contains(**secret));
            assert!(secret.is_none(), "{what} shows {secret:?}: {text}");
        }
    }
}

fn dataset(urls: &[String], store: &Store) -> Dataset {
    let shards = ShardList::from_urls(urls);
    Dataset::builder(shards).store(store.clone()).topology(Topology::single()).build().unwrap()
}

#[test]
fn patterns_and_lists_show_no_secret() {
    let mut seen = Seen::default();
    let wrong = |url: &str| {
        let (start, end) = url.split_at(url.find("/t").or(url.find('?')).unwrap_or(url.len()));
        [
            format!("{start}{{0..3{end}"),
            format!("{start}}}{end}"),
            format!("{start}/{{0..99999999}}{end}"),
            format!("{start}/${{NOWHERE_TO_BE_FOUND}}{end}"),
            format!("{start}/*{end}"),
            format!("a.tar::{url}::b{{"),
            format!("{url}::"),
            format!("{url}::gs://bucket/*.tar"),
            format!("{{gs://bucket,{start}}}{end}::{{"),
            format!(" {url}{{"),
        ]
    };
    for url in urls("host", "t-{0..2}.tar").iter().chain(&[
        "s3://AKIA:S3CRET@bucket/t-{0..2}.tar".into(),
        "s3://AKIA:S3/CRET+S3CRET@bucket/t-{0..2}.tar".into(),
        "az://container/t-{0..2}.tar?sv=1&sig=S3CRET".into(),
        "odd://S3CRET@host/t-{0..2}.tar?S3CRET".into(),
        "pipe:curl -H 'Authorization: Bearer S3CRET' https://me:S3CRET@host/t-{0..2}.tar?S3CRET".into(),
    ]) {
        let literal = ShardList::from_urls([&**url, "a.tar", url]);
        seen.debug("a list", &literal);
        seen.text("a list", literal.to_string());
        literal.iter().for_each(|url| seen.text("an item", format!("{url} {url:?} {url:>99}")));
        seen.debug("items", &literal.iter().collect::<Vec<_>>());
        seen.debug("a pattern", &Shards::from(&**url));
        seen.debug("a list as shards", &Shards::from(literal.clone()));
        seen.debug("a builder", &Dataset::builder(&**url));
        seen.debug("a builder", &Dataset::builder(literal));
        seen.debug("a URL", &SecretUrl::from(url));
        for pattern in wrong(url).iter().chain([url]) {
            seen.result(pattern, ShardList::expand(pattern));
            seen.result(pattern, pattern.parse::<ShardList>());
            seen.result(pattern, ShardList::from_lines(&format!("# list\n{pattern}\n")));
            seen.result(pattern, ShardList::from_listing(pattern, ["gs://bucket/x".into()]));
            seen.result(pattern, Dataset::builder(pattern).topology(Topology::single()).build());
            seen.result(pattern, ShardPattern::new(pattern));
            // A secret that comes with a variable.
            for of_variable in
                ["${BASE}{", "${BASE}/*", "a::${BASE}/${NOWHERE_TO_BE_FOUND}", "${BASE}::${BASE}"]
            {
                let base = |name: &str| (name == "BASE").then(|| pattern.clone());
                seen.result(pattern, ShardList::expand_with(of_variable, base));
            }
        }
        for name in ["t-%06d.tar", "t.tar", "t-%d-%d.tar", "t-%06d.zip", "t-%x.tar"] {
            let pattern = url.replace("t-{0..2}.tar", name);
            let builder = ShardWriter::builder(&pattern);
            seen.debug("the builder of a writer", &builder);
            seen.result("a writer", builder.build());
            seen.result("the names of shards", ShardPattern::new(&pattern));
        }
    }
    seen.check(5000);
}

/// What is asked for, repeated in all ways in which servers do.
fn echo(status: u16, request: &Request) -> Reply {
    let (target, query) = (&request.target, request.query());
    let sent = request.header("authorization").unwrap_or_default();
    let value = query.split('&').next().unwrap_or_default().split_once('=').map_or(query, |(_, value)| value);
    let text = match query.len() % 2 {
        0 => format!(
            "<Error><Code>Nope</Code><Message>{target} is not at http://me:S3CRET@host{target}, and {sent} is no \
             good, nor is \"{value}\" or {query}</Message></Error>"
        ),
        _ => serde_json::json!({"error": "no", "error_description": format!("{target} ({value}) {sent}")})
            .to_string(),
    };
    Reply::new(status, text)
}

/// A server of objects that can be read, and of all that can go wrong.
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
fn reading_shows_and_saves_no_secret() {
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
        for (number, url) in urls(&host, &format!("{name}.tar")).into_iter().enumerate() {
            let what = format!("{name}: {url}");
            let place = directory.path().join(format!("{name}-{number}"));
            let cache = Cache::builder(place.join("cache")).build().unwrap();
            let store = || Store::builder().retries(0).range_size(8000);
            for store in [store().build(), store().cache(cache.clone()).build()] {
                let body = store.open(&url).unwrap();
                seen.debug(&what, &body);
                seen.result(&what, body.read_all().map(|bytes| bytes.len()));
                seen.result(&what, store.open_range(&url, 5..9).and_then(|body| body.read_all()));
                seen.result(&what, store.stat(&url));
                seen.result(&what, store.list(&url));
                seen.result(&what, store.delete(&url));
                seen.result(&what, store.create(&url).and_then(|object| object.finish()));

                let data = dataset(&[url.clone()], &store);
                seen.debug(&what, &data);
                seen.debug(&what, data.shards());
                seen.debug(&what, &data.samples(0));
                seen.debug(&what, &data.stream(0));
                data.samples(0).for_each(|sample| seen.result(&what, sample));
                let sample = data.samples(0).find_map(Result::ok);
                seen.text(&what, sample.as_ref().map(Sample::shard).unwrap_or_default());

                let loader = Loader::builder(data.clone());
                seen.debug(&what, &loader);
                let missing = loader.collate_in_twos("none");
                missing.epoch(0).for_each(|batch| seen.result(&what, batch));
                let loader = Loader::builder(data.clone()).batch(2);
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
                seen.result(&what, Index::load(&store, &url));
                seen.result(&what, Index::from_json(b"{}", &url).and_then(|index| index.save(&store, &url)));
            }
            cache.flush();
            seen.debug(&what, &(&cache, cache.warning()));
            seen.debug(&what, &SampleParser::new(&*url));
            seen.debug(&what, &Outline::new(&*url));
        }
    }
    // The index of each, and what the cache keeps of it.
    assert!(seen.directory(directory.path()) >= 2 * kept && kept >= 10, "{kept}");
    seen.check(10_000);
}

/// Loaders of batches of one column.
trait InTwos {
    fn collate_in_twos(
        self,
        field: &str,
    ) -> Loader<shardstream::collate::Row, shardstream::collate::TensorBatch>;
}

impl InTwos for shardstream::loader::LoaderBuilder<Sample> {
    fn collate_in_twos(
        self,
        field: &str,
    ) -> Loader<shardstream::collate::Row, shardstream::collate::TensorBatch> {
        self.batch(2).collate(Columns::new().with("x", Scalar::<f32>::new(field)))
    }
}

#[test]
fn documents_with_secrets_show_none() {
    let mut seen = Seen::default();
    for url in urls("host", "t.tar") {
        for text in [
            format!(
                r#"{{"wids_version":1,"shardlist":[{{"url":"{url}","nsamples":1}},{{"url":"{url}","nsamples":2}}]}}"#
            ),
            format!(r#"{{"wids_version":1,"shardlist":[{{"url":"{url}","nsamples":"{url}"}}]}}"#),
            format!(r#"{{"wids_version":1,"shardlist":[{{"url":"{url}","nsamples":9999999999999999}}]}}"#),
            format!(r#"{{"wids_version":1,"base":"{url}","shardlist":[{{"url":"a.tar","nsamples":1}}]}}"#),
            format!(r#"{{"wids_version":1,"shardlist":["{url}"]}}"#),
        ] {
            let index = Index::from_json(text.as_bytes(), &url);
            if let Ok(index) = &index {
                seen.debug(&url, &index.shards());
                seen.result(
                    &url,
                    index.get("host/a.tar").ok_or_else(|| ErrorKind::Index(String::new()).into()),
                );
            }
            seen.result(&url, index);
        }
    }
    seen.check(100);
}

/// Buckets of the caller's own, under a prefix with a password in it.
#[test]
fn writing_shows_and_saves_no_secret() {
    let mut seen = Seen::default();
    let directory = tempfile::tempdir().unwrap();
    for (prefix, query) in
        [("https://me:S3CRET@host", ""), ("odd://S3CRET@host", ""), ("https://host", "?sig=S3CRET.tar")]
    {
        let builder = Store::builder().with_object_store(prefix, Arc::new(InMemory::new()));
        seen.debug(prefix, &builder);
        let store = builder.build();
        let infos = Arc::new(Mutex::new(Vec::new()));
        let (noted, pattern) = (Arc::clone(&infos), format!("{prefix}/t-%06d.tar{query}"));
        let writer = ShardWriter::builder(&pattern).store(store.clone()).max_count(2).index(true);
        let writer = writer.on_shard(move |shard| noted.lock().unwrap().push(shard.clone()));
        seen.debug(prefix, &writer);
        let mut writer = writer.build().unwrap();
        for n in 0..5 {
            writer.write(&Sample::new(n.to_string()).with("cls", n)).unwrap();
            seen.debug(prefix, &writer);
        }
        seen.result(prefix, writer.write(&Sample::new("4").with("cls", 1)));
        let shards = writer.finish().unwrap();
        assert!(
            shards[0].url.contains(SECRET) && shards[0].index.url().contains(SECRET),
            "it is the whole URL"
        );
        seen.debug(prefix, &(&shards, infos));
        let index: Index = shards.iter().collect();
        let place = directory.path().join(format!("{}.json", query.len() + prefix.len()));
        seen.result(prefix, index.save(&store, place.to_str().unwrap()));
        seen.debug(prefix, &(&index, index.shards(), index.iter().collect::<Vec<_>>()));
        seen.debug(prefix, &store.list(prefix).unwrap());
        let mut object = store.create(&format!("{prefix}/x{query}")).unwrap();
        object.write_all(b"x").unwrap();
        seen.result(prefix, object.finish());
        seen.result(prefix, store.open(&format!("{prefix}/none{query}")).unwrap().read_all());
        let urls: Vec<String> = shards.iter().map(|shard| shard.url.clone()).collect();
        let data = dataset(&urls, &store);
        assert_eq!(data.samples(0).map(|sample| seen.result(prefix, sample)).count(), 5);
        seen.debug(prefix, &(data.shards(), &store, store.report()));
        seen.text(prefix, store.report().to_string());
    }
    seen.directory(directory.path());
    seen.check(100);
}

/// A source that says the whole URL in all that goes wrong.
#[derive(Debug)]
struct Chatty;

fn chatty<T>(url: &str) -> Result<T> {
    Err(std::io::Error::other(format!("{url} failed, and so did GET {url:?}")).into())
}

impl Source for Chatty {
    fn get(&self, url: &str, _: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        future::ready(chatty(url)).boxed()
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<ObjectInfo>> {
        stream::iter([Ok(ObjectInfo::new(prefix, 7)), chatty(prefix)]).boxed()
    }

    fn put(&self, url: &str, _: BoxStream<'static, Result<Bytes>>) -> BoxFuture<'static, Result<ObjectInfo>> {
        future::ready(chatty(url)).boxed()
    }
}

/// What a source of the caller's own says is shown without the secrets of URLs. Its own errors are as it made them.
#[test]
fn errors_of_other_sources_show_no_secret() {
    let mut seen = Seen::default();
    let store = Store::builder().retries(0).with_source("http", Arc::new(Chatty)).build();
    for url in urls("host", "t.tar") {
        let loader = Loader::builder(dataset(&[url.clone()], &store)).batch(2);
        let pattern = format!("{}-%d.tar", url.replace('%', ""));
        let write = |mut writer: ShardWriter| {
            writer.write(&Sample::new("a").with("cls", 1))?;
            writer.finish().map(drop)
        };
        for result in [
            store.open(&url).unwrap().read_all().map(drop),
            store.stat(&url).map(drop),
            store.list(&url).map(drop),
            store.create(&url).and_then(|object| object.finish().map(drop)),
            store.delete(&url),
            loader.epoch(0).next().unwrap().map(drop),
            Index::builder().store(store.clone()).build(&ShardList::from_urls([&*url])).map(drop),
            ShardWriter::builder(pattern).store(store.clone()).build().and_then(write),
        ] {
            let error = result.unwrap_err();
            seen.text(&url, format!("{error} {error:#} {error:?} {error:#?} {:?}", error.location()));
        }
        seen.debug(&url, &ObjectInfo::new(&*url, 7));
    }
    seen.check(50);
}

#[test]
fn near_misses_of_schemes_show_no_secret() {
    let mut seen = Seen::default();
    let store = Store::default();
    for (url, meant) in [
        ("gcs://S3CRET@bucket/x?S3CRET", "`gs://[redacted]@bucket/x?[redacted]`"),
        ("gcs://bucket/x.tar", "`gs://bucket/x.tar`"),
        ("S3://bucket/X.tar", "`s3://bucket/X.tar`"),
        ("GS:/bucket/x", "`gs://bucket/x`"),
        ("s3:/bucket/x", "`s3://bucket/x`"),
        ("HTTPS://me:S3CRET@host/x?sig=S3CRET", "`https://[redacted]@host/x?[redacted]`"),
        ("https:/me:S3CRET@host/x?sig=S3CRET", "`https://[redacted]@host/x?[redacted]`"),
        ("htps://me:S3CRET@host/x?sig=S3CRET", "`https://[redacted]@host/x?[redacted]`"),
    ] {
        for result in [
            store.open(url).map(drop),
            store.stat(url).map(drop),
            store.list(url).map(drop),
            store.create(url).map(drop),
            dataset(&[url.into()], &store).samples(0).next().unwrap().map(drop),
        ] {
            let error = result.unwrap_err();
            let text = error.to_string();
            assert!(text.contains(&format!("did you mean {meant}")), "{text}");
            seen.error(url, &error);
        }
    }
    let error = store.open("hf://x/y").unwrap_err().to_string();
    assert!(!error.contains("did you mean") && error.contains("the schemes are"), "{error}");
    assert!(!Path::new("s3:").exists() && !Path::new("GS:").exists(), "nothing was made of it");
    seen.check(100);
}
