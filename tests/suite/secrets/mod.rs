//! The secrets in URLs do not appear in anything that the crate prints, saves or uses as a file name. The
//! tests put a secret wherever a URL can be given, and search for it in all output.

#[cfg(all(feature = "http", feature = "s3"))]
mod echoes;
#[cfg(feature = "http")]
mod reading;

use bytes::Bytes;
use futures::future::{self, BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt};
use shardstream::dataset::Shards;
use shardstream::index::AutoIndex;
use shardstream::store::object_store::memory::InMemory;
use shardstream::store::{GetOptions, GetResponse, ObjectInfo, Source, Store};
use shardstream::write::{ShardPattern, ShardWriter};
use shardstream::{Dataset, Error, ErrorKind, Index, Loader, Result, Sample, SecretUrl, ShardList, Topology};
use std::fmt::{Debug, Display};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

const SECRET: &str = "S3CRET";
/// `me:S3CRET` and `S3CRET:` in base64, as headers contain them.
const SENT: [&str; 2] = ["bWU6UzNDUkVU", "UzNDUkVU"];

/// URLs of the object `name` on `host`, with a secret at every possible position.
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

/// The collected output, in which no secret may appear.
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

    /// Collects the value of a result or its error.
    fn result<T: Debug>(&mut self, what: impl Display, result: Result<T>) {
        match result {
            Ok(value) => self.debug(&what, &value),
            Err(error) => self.error(&what, &error),
        }
    }

    /// Collects the names and contents of all files below a directory, and returns their number.
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

/// A source without objects.
#[derive(Debug)]
struct Empty;

impl Source for Empty {
    fn get(&self, _: &str, _: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        future::ready(Err(ErrorKind::NotFound("it is empty".into()).into())).boxed()
    }

    fn list(&self, _: &str) -> BoxStream<'static, Result<ObjectInfo>> {
        stream::empty().boxed()
    }
}

#[test]
fn patterns_and_shard_lists_hide_secrets() {
    let mut seen = Seen::default();
    // These sources stand in for real buckets.
    let sources = ["gs", "s3", "az", "odd"].into_iter();
    let store = sources.fold(Store::builder(), |store, scheme| store.with_source(scheme, Arc::new(Empty)));
    let store = store.retries(0).build().unwrap();
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
            let builder = Dataset::builder(pattern).store(store.clone()).topology(Topology::single());
            seen.result(pattern, builder.build());
            seen.result(pattern, ShardPattern::new(pattern));
            // The secret comes from an environment variable.
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

#[test]
fn indexes_and_serde_hide_secrets() {
    let mut seen = Seen::default();
    for url in urls("host", "t.tar") {
        for text in [
            format!(
                r#"{{"wids_version":1,"shardlist":[{{"url":"{url}","nsamples":1}},
                    {{"url":"{url}","nsamples":2}}]}}"#
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

/// Writes to custom object stores, under a prefix that contains a password.
#[test]
fn writing_neither_shows_nor_saves_secrets() {
    let mut seen = Seen::default();
    let directory = tempfile::tempdir().unwrap();
    for (prefix, query) in
        [("https://me:S3CRET@host", ""), ("odd://S3CRET@host", ""), ("https://host", "?sig=S3CRET.tar")]
    {
        let builder = Store::builder().with_object_store(prefix, Arc::new(InMemory::new()));
        seen.debug(prefix, &builder);
        let store = builder.build().unwrap();
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
        assert_eq!(data.samples(0).results().map(|sample| seen.result(prefix, sample)).count(), 5);
        seen.debug(prefix, &(data.shards(), &store, store.report()));
        seen.text(prefix, store.report().to_string());
    }
    seen.directory(directory.path());
    seen.check(100);
}

/// A source whose errors contain the whole URL.
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

/// A source that panics with the URL in its message.
#[derive(Debug)]
struct Panics;

impl Source for Panics {
    fn get(&self, url: &str, _: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        panic!("{url} is too much for it");
    }
}

/// The messages of a custom source are shown without secrets. The error value itself is passed on unchanged.
#[test]
fn errors_of_custom_sources_hide_secrets() {
    let mut seen = Seen::default();
    let store = Store::builder().retries(0).with_source("http", Arc::new(Chatty)).build().unwrap();
    for url in urls("host", "t.tar") {
        let loader = Loader::builder(dataset(std::slice::from_ref(&url), &store)).batch(2).build().unwrap();
        let pattern = format!("{}-%d.tar", url.replace('%', ""));
        let write = |mut writer: ShardWriter| {
            writer.write(&Sample::new("a").with("cls", 1))?;
            writer.finish().map(drop)
        };
        let panics = Arc::new(Panics);
        let panicking = Store::builder().retries(0).with_source("http", panics).build().unwrap();
        for result in [
            panicking.open(&url).unwrap().read_all().map(drop),
            store.open(&url).unwrap().read_all().map(drop),
            store.stat(&url).map(drop),
            store.list(&url).map(drop),
            store.create(&url).and_then(|object| object.finish().map(drop)),
            store.delete(&url),
            loader.epoch(0).next().unwrap().map(drop),
            Index::builder().store(store.clone()).build(&ShardList::from_urls([&*url])).map(drop),
            auto_indexed(&store, &url),
            ShardWriter::builder(pattern).store(store.clone()).build().and_then(write),
        ] {
            let error = result.unwrap_err();
            seen.text(&url, format!("{error} {error:#} {error:?} {error:#?} {:?}", error.location()));
        }
        seen.debug(&url, &ObjectInfo::new(&*url, 7));
    }
    seen.check(50);
}

/// Builds a dataset of the shard at `url`, with its index stored at the same URL.
fn auto_indexed(store: &Store, url: &str) -> Result<()> {
    let builder = Dataset::builder(ShardList::from_urls([url])).store(store.clone());
    builder.topology(Topology::single()).auto_index(AutoIndex::at(url)).build().map(drop)
}

/// Errors of the user's functions are shown unchanged, even if they contain words that look like secrets.
#[test]
fn errors_of_the_users_functions_are_shown_as_they_are() {
    let place = tempfile::tempdir().unwrap();
    let shard = place.path().join("a.tar");
    let samples: Vec<Sample> = (0..4).map(|n| Sample::new(n.to_string()).with("cls", n)).collect();
    std::fs::write(&shard, crate::support::archive(&samples)).unwrap();
    let dataset = || dataset(&[shard.to_str().unwrap().to_owned()], &Store::default());
    let text = "next_token=50257 is beyond signature=4, Basic Training-2, /k?sig=1";
    let fail = move |_: Sample| -> Result<Sample> { Err(Error::step(text)) };
    let loader = Loader::builder(dataset()).map(fail).batch(2).build().unwrap();
    let error = loader.epoch(0).next().unwrap().unwrap_err();
    assert!(format!("{error:#}").contains(text) && format!("{error:?}").contains(text), "{error:?}");
    let skipping = shardstream::loader::OnError::skip(shardstream::loader::Failures::all());
    let loader = Loader::builder(dataset()).map(fail).on_error(skipping).batch(2).build().unwrap();
    let mut batches = loader.epoch(0);
    batches.by_ref().for_each(drop);
    let state = serde_json::to_string(&batches.state()).unwrap();
    assert!(state.contains(text), "{state}");
    let panics = |_: Sample| -> Result<Sample> { panic!("next_token={}", 50257) };
    let loader = Loader::builder(dataset()).map(panics).batch(2).build().unwrap();
    let error = loader.epoch(0).next().unwrap().unwrap_err();
    assert!(error.to_string().contains("next_token=50257"), "{error}");
}

#[test]
fn hints_at_misspelt_schemes_hide_secrets() {
    let mut seen = Seen::default();
    let store = Store::default();
    for (url, meant) in [
        ("gcs://S3CRET@bucket/x?S3CRET", "`gs://[redacted]@bucket/x?[redacted]`"),
        ("gcs://bucket/x.tar", "`gs://bucket/x.tar`"),
        ("S3:/bucket/X.tar", "`s3://bucket/X.tar`"),
        ("GS:/bucket/x", "`gs://bucket/x`"),
        ("s3:/bucket/x", "`s3://bucket/x`"),
        ("HTTPS:/me:S3CRET@host/x?sig=S3CRET", "`https://[redacted]@host/x?[redacted]`"),
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
    let error = store.open("odd-scheme://x/y").unwrap_err().to_string();
    assert!(!error.contains("did you mean") && error.contains("the schemes are"), "{error}");
    assert!(
        ["s3:", "S3:", "GS:", "HTTPS:"].iter().all(|name| !Path::new(name).exists()),
        "nothing was made of it"
    );
    seen.check(100);
}
