//! Index documents of this crate and of `wids`, and invalid index documents.

use super::*;
use crate::support::Every;
use crate::support::python::Python;
use crate::support::read_content;
use shardstream::index::AutoIndex;
use shardstream::{Dataset, Topology};
use std::fs;

fn saved(index: &Index, place: &Path) -> String {
    index.save(&Store::default(), place.to_str().unwrap()).unwrap();
    fs::read_to_string(place).unwrap()
}

#[test]
fn a_saved_index_loads_unchanged() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::default();
    let infos = write(ShardWriter::builder(pattern(&dir.path().join("shards"), ".tar")), &motley());
    let index: Index = infos.iter().collect();
    for place in
        [dir.path().join("i.json"), dir.path().join("shards/i.json"), elsewhere.path().join("i.json")]
    {
        let text = saved(&index, &place);
        assert_eq!(Index::load(&store, place.to_str().unwrap()).unwrap(), index);
        let below = place.starts_with(dir.path());
        assert_eq!(
            text.contains(dir.path().to_str().unwrap()),
            !below,
            "URLs below the directory of the index are relative"
        );
        let url = format!("file://{}", place.to_str().unwrap());
        assert_eq!(Index::load(&store, &url).unwrap().samples(), 40);
    }
    let counts = saved(&index.counts(), &dir.path().join("counts.json"));
    assert!(!counts.contains("layout"));
    let counts = Index::load(&store, dir.path().join("counts.json").to_str().unwrap()).unwrap();
    assert_eq!((counts.samples(), counts.get(&infos[0].url).unwrap().range(0..1)), (40, None));

    // The dataset and its index are moved together.
    fs::rename(dir.path().join("shards"), elsewhere.path().join("moved")).unwrap();
    let place = elsewhere.path().join("moved/i.json");
    let moved = Index::load(&store, place.to_str().unwrap()).unwrap();
    let url = moved.shards()[1].to_string();
    assert!(fs::exists(&url).unwrap());
    assert_eq!(moved.get(&url).unwrap().range(2..3), index.get(&infos[1].url).unwrap().range(2..3));
}

#[test]
fn a_compact_index_loads_like_a_json_index() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::default();
    let infos = write(ShardWriter::builder(pattern(&dir.path().join("shards"), ".tar")), &motley());
    let index: Index = infos.iter().collect();
    let json = saved(&index, &dir.path().join("shards/i.json"));
    for place in [dir.path().join("shards/i.shidx"), elsewhere.path().join("i.shidx")] {
        let path = place.to_str().unwrap();
        index.save(&store, path).unwrap();
        assert_eq!(Index::load(&store, path).unwrap(), index);
        let bytes = fs::read(&place).unwrap();
        assert!(2 * bytes.len() < json.len(), "{} of {} bytes", bytes.len(), json.len());
        fs::write(&place, &bytes[..bytes.len() - 1]).unwrap();
        let error = Index::load(&store, path).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Index(_)) && error.to_string().contains("i.shidx"),
            "{error}"
        );
        // A load recognises the format by the content. Only a save chooses the format by the extension.
        fs::write(&place, &bytes).unwrap();
        fs::rename(&place, place.with_extension("json")).unwrap();
        assert_eq!(Index::load(&store, place.with_extension("json").to_str().unwrap()).unwrap(), index);
    }
    assert!(index.save(&store, dir.path().join("i.shidx.gz").to_str().unwrap()).is_err());

    // The dataset and its index are moved together.
    index.save(&store, dir.path().join("shards/i.shidx").to_str().unwrap()).unwrap();
    fs::rename(dir.path().join("shards"), elsewhere.path().join("moved")).unwrap();
    let moved = Index::load(&store, elsewhere.path().join("moved/i.shidx").to_str().unwrap()).unwrap();
    assert!(moved.shards().iter().every(|url| fs::exists(url.expose_secret()).unwrap()));
}

#[test]
fn a_dataset_keeps_a_compact_index() {
    let dir = tempfile::tempdir().unwrap();
    write(ShardWriter::builder(pattern(dir.path(), ".tar")), &motley());
    let place = dir.path().join("train.shidx");
    let built = |all: &str| {
        let counted = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counter = std::sync::Arc::clone(&counted);
        let auto = AutoIndex::at(place.to_str().unwrap()).on_shard(move |_| {
            counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        });
        let shards = format!("{}/{all}", dir.path().display());
        let dataset = Dataset::builder(shards).auto_index(auto).topology(Topology::single()).build().unwrap();
        (dataset.len(), dataset.shards().len(), counted.load(std::sync::atomic::Ordering::Relaxed))
    };
    let (samples, shards, read) = built("*");
    assert_eq!((samples, read), (Some(40), shards));
    assert!(fs::read(&place).unwrap().starts_with(b"\x89SHIDX"));
    // The pattern `*` does not read the index as a shard, and no shard is read again.
    assert_eq!(built("*"), (Some(40), shards, 0));
}

#[test]
fn shards_are_found_by_url_and_by_name() {
    let entry = |url: &str, samples: u64| -> ShardIndex {
        serde_json::from_value(serde_json::json!({"url": url, "nsamples": samples})).unwrap()
    };
    let index: Index = [
        entry("gs://b/train/0.tar", 1),
        entry("gs://b/val/0.tar", 2),
        entry("gs://b/val/1.tar", 3),
        entry("https://h/a%20b.tar", 4),
    ]
    .into_iter()
    .collect();
    let samples = |url: &str| index.get(url).map(ShardIndex::samples);
    for (url, expected) in [
        ("gs://b/val/0.tar", Some(2)),
        ("gs://c/0.tar", None),
        ("/data/1.tar", Some(3)),
        ("1.tar", Some(3)),
        ("https://h/a%20b.tar?sig=1", Some(4)),
        ("s3://b/a b.tar", Some(4)),
        ("2.tar", None),
        ("", None),
    ] {
        assert_eq!(samples(url), expected, "{url}");
    }
    assert_eq!((index.len(), index.samples(), index.shards().len()), (4, 10, 4));
}

/// Several shards share the name `0.tar`, so the index finds them by their whole location, however the
/// location is spelled.
#[test]
fn shards_with_the_same_name_are_found_by_their_locations() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().display();
    std::fs::create_dir(dir.path().join("a")).unwrap();
    let urls = ["s3://b/a/0.tar".into(), "s3://b/b/0.tar".into(), format!("{here}/a/0.tar")];
    let entry = |url: &String| serde_json::json!({"url": url, "nsamples": url.len()});
    let index: Index =
        urls.iter().map(|url| serde_json::from_value::<ShardIndex>(entry(url)).unwrap()).collect();
    for (url, found) in [
        ("s3a://b/b/0.tar".into(), Some(&*urls[1])),
        ("s3a://b/c/0.tar".into(), None),
        (format!("file://{here}/a/../a/0.tar"), Some(&*urls[2])),
    ] {
        assert_eq!(index.get(&url).map(ShardIndex::url), found, "{url}");
    }
}

#[test]
fn secrets_are_not_saved() {
    let entry = serde_json::json!({"url": "https://me:s3cret@h/0.tar?sig=s3cret", "nsamples": 1});
    let index: Index = [serde_json::from_value::<ShardIndex>(entry).unwrap()].into_iter().collect();
    let dir = tempfile::tempdir().unwrap();
    let text = saved(&index, &dir.path().join("i.json"));
    assert!(!text.contains("s3cret") && text.contains("\"https://h/0.tar\""), "{text}");
    let index = Index::load(&Store::default(), dir.path().join("i.json").to_str().unwrap()).unwrap();
    assert!(index.get("https://h/0.tar?sig=another").is_some());
}

/// A save drops queries, so the two shards would have one URL, and the index could not be loaded.
#[test]
fn shards_that_differ_only_in_their_queries_are_not_saved() {
    let entry =
        |shard: u64| serde_json::json!({"url": format!("https://h/get?shard={shard}"), "nsamples": shard});
    let index: Index =
        [1, 2].map(|shard| serde_json::from_value::<ShardIndex>(entry(shard)).unwrap()).into_iter().collect();
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("i.json");
    let error = index.save(&Store::default(), place.to_str().unwrap()).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Index(what) if what.ends_with("the shard https://h/get")),
        "{error}"
    );
    assert!(!place.exists());
}

/// A save writes the document uncompressed, but a load would decompress it because of its name.
#[test]
fn a_plain_index_is_not_saved_under_a_compressed_name() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("i.json.gz");
    let index: Index = std::iter::empty::<ShardIndex>().collect();
    let error = index.save(&Store::default(), place.to_str().unwrap()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    assert!(!place.exists());
}

fn document(shards: &str) -> String {
    format!(r#"{{"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": [{shards}]}}"#)
}

#[test]
fn plain_wids_documents_are_loaded() {
    let text = r#"{"wids_version": 1, "name": "n", "info": {"a": [1]}, "base": "gs://b/d/", "shardlist": [
        {"url": "0.tar", "nsamples": 3, "md5sum": "x", "filesize": 10240, "weight": 0.5},
        {"url": "./x/1.tar", "nsamples": 4}, {"url": "gs://c/2.tar", "nsamples": 0},
        {"url": "/3.tar", "nsamples": 1}]}"#;
    let index = Index::from_json(text.as_bytes(), "/elsewhere").unwrap();
    let urls = ["gs://b/d/0.tar", "gs://b/d/x/1.tar", "gs://c/2.tar", "/3.tar"];
    assert_eq!(index.shards(), ShardList::from_urls(urls));
    let shard = index.get("gs://b/d/0.tar").unwrap();
    assert_eq!((shard.samples(), shard.bytes(), shard.version()), (3, Some(10240), None));
    assert!(shard.range(0..1).is_none() && shard.size_of(0).is_none() && shard.members(0).is_none());
    let relative =
        Index::from_json(document(r#"{"url": "0.tar", "nsamples": 1}"#).as_bytes(), "s3://b").unwrap();
    assert_eq!(relative.iter().next().map(ShardIndex::url), Some("s3://b/0.tar"));
}

#[test]
fn bad_documents_are_errors() {
    let layout = |layout: &str| {
        document(&format!(r#"{{"url": "0.tar", "nsamples": 2, "filesize": 4096, "layout": {layout}}}"#))
    };
    let good = layout(r#"{"fields":["a"],"shapes":[[0,0,512]],"runs":[0,2],"sizes":[1,1]}"#);
    assert_eq!(
        Index::from_json(good.as_bytes(), "").unwrap().get("0.tar").unwrap().range(1..2),
        Some(1024..4096)
    );
    for text in [
        String::new(),
        "[]".into(),
        "{}".into(),
        r#"{"wids_version": 2, "shardlist": []}"#.into(),
        r#"{"__kind__": "other", "wids_version": 1, "shardlist": []}"#.into(),
        r#"{"wids_version": 1}"#.into(),
        r#"{"wids_version": 1, "shardlist": [], "datasets": [{"source_url": "x"}]}"#.into(),
        document(r#"{"url": "", "nsamples": 1}"#),
        document(r#"{"url": "0.tar"}"#),
        document(r#"{"url": "0.tar", "nsamples": -1}"#),
        document(r#"{"url": "0.tar", "nsamples": 1e3}"#),
        document(r#"{"url": "0.tar", "nsamples": 18446744073709551615}"#),
        document(r#"{"url": "0.tar", "nsamples": 1}, {"url": "./0.tar", "nsamples": 2}"#),
        layout(r#"{"fields":["a"],"shapes":[[0,0,512]],"runs":[0,3],"sizes":[1,1,1]}"#),
        layout(r#"{"fields":["a"],"shapes":[[0,0,512]],"runs":[0,2],"sizes":[1]}"#),
        layout(r#"{"fields":["a"],"shapes":[[0,0,512]],"runs":[0,2],"sizes":[1,1,1]}"#),
        layout(r#"{"fields":["a"],"shapes":[[0,0,512]],"runs":[0],"sizes":[1]}"#),
        layout(r#"{"fields":["a"],"shapes":[[0,0,512]],"runs":[1,2],"sizes":[1,1]}"#),
        layout(r#"{"fields":["a"],"shapes":[[0,1,512]],"runs":[0,2],"sizes":[1,1]}"#),
        layout(r#"{"fields":["a"],"shapes":[[0,0,512,0,512]],"runs":[0,2],"sizes":[1,1,1,1]}"#),
        layout(r#"{"fields":["a"],"shapes":[[0,0]],"runs":[0,2],"sizes":[1,1]}"#),
        layout(r#"{"fields":["a"],"shapes":[[0]],"runs":[0,2],"sizes":[]}"#),
        layout(r#"{"fields":["a"],"shapes":[[]],"runs":[0,2],"sizes":[]}"#),
        layout(r#"{"fields":["a"],"shapes":[[0,0,512]],"runs":[0,2],"sizes":[1,4096]}"#),
        layout(r#"{"fields":["a"],"shapes":[[0,0,512]],"runs":[0,2],"sizes":[1,18446744073709551615]}"#),
        layout(r#"{"fields":["a"],"shapes":[[18446744073709551615,0,512]],"runs":[0,2],"sizes":[1,1]}"#),
        document(
            r#"{"url": "0.tar", "nsamples": 1,
                "layout": {"fields":["a"],"shapes":[[0,0,512]],"runs":[0,1],"sizes":[1]}}"#,
        ),
    ] {
        let error = Index::from_json(text.as_bytes(), "").expect_err(&text);
        assert!(matches!(error.kind(), ErrorKind::Index(_)), "{text}: {error}");
    }
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("i.json");
    fs::write(&place, "{}").unwrap();
    let error = Index::load(&Store::default(), place.to_str().unwrap()).unwrap_err();
    assert_eq!(error.location().shard(), place.to_str());
}

/// `wids` reads a dataset with an index that this crate saved, and this crate loads an index that `wids`
/// made.
#[test]
#[ignore = "needs Python with webdataset and wids: see CONTRIBUTING.md"]
fn indexes_are_exchanged_with_wids() {
    let python = Python::with_wids();
    let dir = tempfile::tempdir().unwrap();
    // `wids` only knows plain names.
    let sample =
        |i: usize| Sample::new(format!("d/{i:04}")).with("cls", i as i64).with("seg.png", noise(i * 300));
    let samples: Vec<Sample> = (0..20).map(sample).collect();
    let infos = write(ShardWriter::builder(pattern(dir.path(), ".tar")), &samples);
    let index: Index = infos.iter().collect();
    let (ours, theirs) = (dir.path().join("ours.json"), dir.path().join("theirs.json"));
    saved(&index, &ours);
    let paths: Vec<&Path> = infos.iter().map(|info| Path::new(&info.url)).collect();
    let read = python.wids(&ours, &theirs, &paths);
    let expected: Vec<_> = paths.iter().flat_map(|path| read_content(path)).collect();
    assert_eq!(read, expected);

    let made = Index::load(&Store::default(), theirs.to_str().unwrap()).unwrap();
    assert_eq!(made.shards(), index.shards());
    for (ours, theirs) in index.iter().zip(&made) {
        assert_eq!((ours.samples(), ours.bytes()), (theirs.samples(), theirs.bytes()));
    }
}

/// An index may claim any number of samples. Only a read of the shards notices that samples are missing.
#[test]
fn absurd_counts_neither_hang_nor_allocate() {
    use shardstream::loader::LastBatch;
    use shardstream::prelude::*;
    let dir = tempfile::tempdir().unwrap();
    let infos = write(ShardWriter::builder(pattern(dir.path(), ".tar")), &motley());
    let entry = |info: &ShardInfo| {
        let value = serde_json::json!({"url": info.url, "nsamples": 1_u64 << 40});
        serde_json::from_value::<ShardIndex>(value).unwrap()
    };
    let index: Index = infos.iter().map(entry).collect();
    let dataset =
        Dataset::builder(index.shards()).index(index).streams(4).shuffle_shards(true).build().unwrap();
    assert_eq!(dataset.len(), Some(6 << 40));
    for last in [LastBatch::Keep, LastBatch::Drop] {
        let loader = Loader::builder(dataset.clone())
            .shuffle(10)
            .map(|sample| Ok(sample.key().to_owned()))
            .batch(4)
            .last_batch(last)
            .build()
            .unwrap();
        assert!(loader.steps().is_some());
        let mut stale = 0;
        for batch in loader.epoch(0).take(20) {
            if let Err(error) = batch {
                assert!(matches!(error.kind(), ErrorKind::Stale { .. }), "{error}");
                stale += 1;
            }
        }
        assert!(stale > 0);
    }
}
