//! A document takes no more memory than its limit, no matter what its text or its compressed bytes claim.

use crate::support::Every;
use crate::support::shards::{memory, write};
use shardstream::codec::Decoder;
use shardstream::collate::{Columns, Scalar};
use shardstream::error::SizeLimit;
use shardstream::index::Index;
use shardstream::store::Store;
use shardstream::{Dataset, Loader, Topology};
use shardstream::{ErrorKind, Sample, State};
use std::error::Error as _;
use std::io::Write;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// About `bytes` bytes of text: a list of small maps, each of which takes hundreds of bytes of memory.
fn bomb(bytes: usize) -> Vec<u8> {
    let mut text = br#"{"":0},"#.repeat(bytes / 7);
    text.insert(0, b'[');
    text.extend(b"0]");
    text
}

#[test]
fn a_field_is_refused_before_it_is_parsed() {
    let compressed = gzip(&bomb(30 << 20));
    assert!(compressed.len() < 100_000);
    for (field, bytes) in [("json.gz", compressed), ("json", bomb(30 << 20)), ("a.jsn", bomb(30 << 20))] {
        let error = Decoder::new().decode_field(field, &bytes.into()).unwrap_err();
        let cause = error.source().unwrap().downcast_ref::<shardstream::Error>().unwrap();
        assert!(
            matches!(cause.kind(), ErrorKind::TooLarge { limit, .. } if *limit == 512 << 20),
            "{field}: {error:#}"
        );
        assert!(format!("{error:#}").contains("`Decoder::max_size`"), "{error:#}");
    }
    let sample = Sample::new("k").with("json", bomb(30 << 20));
    let error = sample.json::<Vec<serde_json::Value>>("json").unwrap_err();
    assert!(format!("{error:#}").contains("a parsed JSON document of"), "{error:#}");
    let columns = Columns::new().with("x", Scalar::<i32>::new("json").at("/x"));
    let error = columns.collate([sample]).unwrap_err();
    assert!(format!("{error:#}").contains("a parsed JSON document of"), "{error:#}");
    // A lower limit refuses a smaller document too, and documents within the limit are read.
    let small = Decoder::new().max_size(1 << 20);
    assert!(small.decode_field("json", &bomb(1 << 20).into()).is_err());
    assert!(small.decode_field("json", &bomb(4 << 10).into()).is_ok());
    assert!(Decoder::new().decode_field("json", &bomb(3 << 20).into()).is_ok());
    let numbers = format!("[{}1]", "123456,".repeat(400_000));
    assert!(Decoder::new().decode_field("json", &numbers.into_bytes().into()).is_ok());
}

#[test]
fn the_memory_of_an_index_is_proportional_to_its_stored_size() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index.json.gz");
    let head =
        br#"{"wids_version":1,"shardlist":[{"url":"a.tar","nsamples":1,"layout":{"fields":[],"shapes":["#;
    let text = [&head[..], &b"[],".repeat(20 << 20), b"[]]}}]}"].concat();
    std::fs::write(&path, gzip(&text)).unwrap();
    assert!(path.metadata().unwrap().len() < 200_000);
    let load = || Index::load(&Store::default(), path.to_str().unwrap()).unwrap_err();
    assert!(matches!(load().kind(), ErrorKind::TooLarge { what: SizeLimit::ParsedIndex, .. }), "{}", load());
    // The document of a large shard, with the sizes of 400,001 samples, is within the limit.
    let sizes = format!("{}1", "123456,".repeat(400_000));
    let document = format!(
        r#"{{"wids_version":1,"shardlist":[{{"url":"a.tar","nsamples":400001,"filesize":99999999999,
        "layout":{{"fields":["a"],"shapes":[[0,0,512]],"runs":[0,400001],"sizes":[{sizes}]}}}}]}}"#
    );
    assert_eq!(Index::from_json(document.as_bytes(), "").unwrap().samples(), 400_001);
}

#[test]
fn an_index_claims_no_more_samples_than_the_shard_has_room_for() {
    let entry = |url: &str, samples: u64| {
        let text = format!(
            r#"{{"wids_version":1,"shardlist":[{{"url":"{url}","nsamples":{samples},"filesize":10240}}]}}"#
        );
        Index::from_json(text.as_bytes(), "").map(|index| index.samples())
    };
    let error = entry("a.tar", 1 << 40).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Index(_)), "{error}");
    assert!(error.to_string().contains("no room for that many samples"), "{error}");
    assert_eq!(entry("a.tar", 20).unwrap(), 20);
    assert_eq!(entry("a.tar.gz", 2000).unwrap(), 2000);
}

/// The limit also applies to the compact form of an index.
#[test]
fn the_memory_of_a_compact_index_is_proportional_to_its_stored_size() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index.shidx.gz");
    let number = |mut number: usize| {
        let mut bytes = Vec::new();
        while number >= 0x80 {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    };
    let frame = |content: &[u8]| {
        let (length, sum) = ((content.len() as u32).to_le_bytes(), crc32c::crc32c(content).to_le_bytes());
        [&length, &sum, content].concat()
    };
    let shapes = 40 << 20;
    // The layout of the shard `a` has no fields, but many empty shapes.
    let shard = [&[4, 0, 0, 1, b'a', 0, 1, 0][..], &number(shapes), &vec![0; shapes]].concat();
    let document = [b"\x89SHIDX\r\n\x01".to_vec(), frame(&[1]), frame(&shard)].concat();
    std::fs::write(&path, gzip(&document)).unwrap();
    let error = Index::load(&Store::default(), path.to_str().unwrap()).unwrap_err().to_string();
    assert!(error.contains("it takes far more memory than its stored size"), "{error}");
}

/// An index may claim any number of samples. Therefore, a dataset must not allocate memory for each claimed
/// sample.
#[test]
fn planning_a_dataset_allocates_nothing_per_sample() {
    let store = memory();
    let shards = write(&store, &[3, 3]);
    let shard = r#"{"url":"mem://train/00000N.tar","nsamples":1099511627776}"#;
    let entries = [0, 1].map(|n| shard.replace('N', &n.to_string())).join(",");
    let document = format!(r#"{{"wids_version":1,"shardlist":[{entries}]}}"#);
    let index = Index::from_json(document.as_bytes(), "").unwrap();
    let dataset = Dataset::builder(shards).store(store).topology(Topology::single()).index(index);
    let dataset = dataset.streams(2).shuffle_shards(true).build().unwrap();
    assert_eq!(dataset.len(), Some(1 << 41));
    let loader = Loader::builder(dataset).threads(1).batch(1 << 10).build().unwrap();
    assert_eq!(loader.steps(), Some(1 << 31));
    let errors: Vec<_> = loader.epoch(0).filter_map(Result::err).take(2).collect();
    assert!(errors.iter().every(|error| matches!(error.kind(), ErrorKind::Stale { .. })), "{errors:?}");
}

/// The error names DALI as the tool that wrote the index.
#[test]
fn an_index_of_another_tool_is_named() {
    let error = Index::from_json(b"v1.2 2\n512 1 0 1\njpg 512 10 a.jpg\n", "").unwrap_err().to_string();
    assert!(error.contains("NVIDIA DALI (wds2idx)") && error.contains("index build"), "{error}");
}

#[test]
fn a_state_is_refused_before_it_is_parsed() {
    let text = String::from_utf8(bomb(40 << 20)).unwrap();
    let error = text.parse::<State>().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::State(_)), "{error}");
}
