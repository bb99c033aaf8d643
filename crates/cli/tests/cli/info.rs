//! `shardstream info`

use crate::program::{demo, failure, output, write};
use serde_json::Value as Json;

#[test]
fn info_sums_up_the_samples_fields_and_sizes() {
    let dir = demo();
    let shown = output(dir.path(), &["info", "data"]);
    assert!(shown.starts_with("3 shards of 12 samples (4 each), 61.4 kB\n"), "{shown}");
    assert!(shown.contains("field  samples  share  mean size  type\n"), "{shown}");
    assert!(shown.contains("cls         12  100 %        1 B  integer\n"), "{shown}");
    assert!(shown.contains("png, height 6 to 8, mean 7, width 8\n"), "{shown}");
    assert!(shown.contains("100 B to 200 B  12  ████████████████████████████████████████\n"), "{shown}");
}

#[test]
fn json_is_one_document() {
    let dir = demo();
    let read = |arguments: &[&str]| -> Json {
        serde_json::from_str(&output(dir.path(), &[&["info", "--json", "data"], arguments].concat())).unwrap()
    };
    let whole = read(&[]);
    assert_eq!(
        (&whole["shards"], &whole["samples"], &whole["shard_bytes"]),
        (&3.into(), &12.into(), &61440.into())
    );
    assert_eq!(whole["fields"]["png"]["height"], serde_json::json!({"min": 6, "mean": 7.0, "max": 8}));
    assert_eq!(whole["fields"]["cls"]["types"], serde_json::json!({"integer": 12}));
    let part = read(&["-n", "5"]);
    assert_eq!(
        (&part["samples"], &part["is_part"], &part["shard_bytes"]),
        (&5.into(), &true.into(), &Json::Null)
    );
}

#[test]
fn sizes_from_headers_equal_those_from_an_index() {
    let dir = demo();
    output(dir.path(), &["index", "build", "data", "--to", "index.json"]);
    let whole: Json = serde_json::from_str(&output(dir.path(), &["info", "--json", "data"])).unwrap();
    for how in [&["--fast"][..], &["--index", "index.json"]] {
        let shown = output(dir.path(), &[&["info", "--json", "data"], how].concat());
        let fast: Json = serde_json::from_str(&shown).unwrap();
        for name in ["samples", "shard_bytes", "sample_bytes", "samples_per_shard"] {
            assert_eq!(fast[name], whole[name], "{name}");
        }
        for field in ["png", "cls", "txt", "json"] {
            assert_eq!(fast["fields"][field]["bytes"], whole["fields"][field]["bytes"], "{field}");
        }
        assert_eq!(fast["fields"]["png"]["types"], serde_json::json!({"image": 12}));
    }
    failure(dir.path(), &["info", "--fast", "-n", "1", "data"], 2);
}

#[test]
fn compressed_shards_have_sizes_but_no_offsets() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("%d.tar.gz"), 4, 4);
    let read: Json = serde_json::from_str(&output(dir.path(), &["info", "--json", "0.tar.gz"])).unwrap();
    output(dir.path(), &["index", "build", "0.tar.gz", "--to", "i.json"]);
    for how in [&["--fast"][..], &["--index", "i.json"]] {
        let shown = output(dir.path(), &[&["info", "--json", "0.tar.gz"], how].concat());
        let shown: Json = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["sample_bytes"], read["sample_bytes"]);
        assert_eq!(shown["fields"]["png"]["bytes"], read["fields"]["png"]["bytes"]);
    }
    assert!(output(dir.path(), &["info", "0.tar.gz"]).contains("png, height 6 to 8"));
}

#[test]
fn an_index_with_only_numbers_of_samples_has_no_sizes() {
    let dir = demo();
    output(dir.path(), &["index", "build", "data", "--to", "i.json"]);
    output(dir.path(), &["index", "export-wids", "i.json", "--to", "wids.json"]);
    let shown = output(dir.path(), &["info", "data", "--index", "wids.json"]);
    assert!(shown.starts_with("3 shards of 12 samples (4 each)"), "{shown}");
    assert!(
        shown.ends_with("fields and sizes: not known, since the index has only numbers of samples\n"),
        "{shown}"
    );
    let shown = output(dir.path(), &["info", "--json", "data", "--index", "wids.json"]);
    let shown: Json = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["samples"], &shown["sample_bytes"]), (&12.into(), &Json::Null));
}
