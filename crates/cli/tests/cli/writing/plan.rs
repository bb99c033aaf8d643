//! `shardstream plan`

use crate::program::{demo, failure, output};
use serde_json::{Value, json};
use shardstream::prelude::*;
use std::path::Path;

/// Returns the document of `plan --json` for all shards of `data`.
fn plan_document(directory: &Path, options: &[&str]) -> Value {
    let plan = [&["plan", "data", "--json"], options].concat();
    serde_json::from_str(&output(directory, &plan)).unwrap()
}

/// Writes one shard for each number of samples in `sizes`.
fn shards_of(sizes: &[usize]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("data")).unwrap();
    for (number, size) in sizes.iter().enumerate() {
        let file = std::fs::File::create(dir.path().join(format!("data/{number}.tar"))).unwrap();
        let mut writer = shardstream::write::TarWriter::new(file);
        for sample in 0..*size {
            writer.write(&Sample::new(format!("{number}-{sample}")).with("cls", 1)).unwrap();
        }
        writer.finish().unwrap();
    }
    dir
}

#[test]
fn the_plan_says_what_each_rank_reads() {
    let dir = demo();
    output(dir.path(), &["index", "build", "data", "--to", "i.json"]);
    let plan = ["plan", "data", "--index", "i.json", "--world-size", "2", "--streams", "4", "--batch", "3"];
    let plan = [&plan[..], &["--last-batch", "drop"]].concat();
    let json: Value = serde_json::from_str(&output(
        dir.path(),
        &[&plan[..], &["--json", "--samples-per-second", "1000", "--price-per-gb", "0.09", "--shuffle", "2"]]
            .concat(),
    ))
    .unwrap();
    assert_eq!((&json["samples"], &json["shards"], &json["steps"]), (&12.into(), &3.into(), &2.into()));
    let ranks = json["ranks"].as_array().unwrap();
    assert_eq!(ranks.iter().map(|rank| rank["samples"].as_u64().unwrap()).collect::<Vec<_>>(), [6, 6]);
    // Each byte is read once. The rank with the last sample of a shard also reads the end of the archive.
    let bytes: u64 = ranks.iter().map(|rank| rank["bytes"].as_u64().unwrap()).sum();
    assert_eq!((bytes, json["bytes_per_epoch"].as_u64()), (61_440, Some(61_440)));
    assert_eq!(json["bytes_per_second"].as_f64(), Some(5_120_000.0));
    assert_eq!(json["shuffle_bytes_per_rank"].as_u64(), Some(2 * 2 * 5_120));
    assert_eq!(json["fitting_world_sizes"], json!([1, 2, 4]));
    let text = output(dir.path(), &plan);
    for line in ["steps             2 per epoch on each rank", "ranks that fit    1, 2, 4", "   1        2"] {
        assert!(text.contains(line), "{text}");
    }
    let error = failure(dir.path(), &["plan", "data", "--world-size", "2", "--streams", "3"], 1);
    assert!(error.contains("use 2 or 4 streams"), "{error}");
}

/// Without an index, the ranks of a run take 6, 15, 3 and 9 steps. An earlier version of `plan` showed the
/// same number of steps on each rank, which is right only with an index.
#[test]
fn steps_without_an_index_are_those_of_a_loader_without_it() {
    let dir = shards_of(&[5, 1, 12, 3, 7, 2, 0, 4, 30, 1, 1, 9]);
    output(dir.path(), &["index", "build", "data", "--to", "i.json"]);
    let loaded = |ranks: usize, streams, batch, last, epoch, index: Option<&Index>| -> Vec<u64> {
        let steps = |rank| {
            let dataset = Dataset::builder(dir.path().join("data").display().to_string())
                .topology(Topology::new(rank, ranks).unwrap())
                .streams(streams)
                .shuffle_shards(true);
            let dataset = match index {
                Some(index) => dataset.index(index.clone()),
                None => dataset,
            };
            let loader = Loader::builder(dataset.build().unwrap()).threads(0).batch(batch).last_batch(last);
            loader.uneven_steps(true).build().unwrap().epoch(epoch).map(Result::unwrap).count() as u64
        };
        (0..ranks).map(steps).collect()
    };
    let place = dir.path().join("i.json").display().to_string();
    let index = Index::load(&Default::default(), &place).unwrap();
    for (name, last) in [("keep", LastBatch::Keep), ("drop", LastBatch::Drop), ("pad", LastBatch::Pad)] {
        for (ranks, streams, batch, epoch) in [(4, 4, 2, 0), (2, 12, 2, 3), (3, 6, 7, 1)] {
            let numbers = [ranks, streams, batch, epoch].map(|number: usize| number.to_string());
            let [world_size, streams_option, batch_option, epoch_option] = numbers.each_ref();
            let options = [
                ["--world-size", world_size],
                ["--streams", streams_option],
                ["--batch", batch_option],
                ["--epoch", epoch_option],
                ["--last-batch", name],
            ]
            .concat();
            let steps = |plan: &Value| -> Vec<u64> {
                let ranks = plan["ranks"].as_array().unwrap();
                ranks.iter().map(|rank| rank["steps"].as_u64().unwrap()).collect()
            };
            let what = format!("{options:?}");
            let plan = plan_document(dir.path(), &options);
            let expected = loaded(ranks, streams, batch, last, epoch as u64, None);
            assert_eq!(steps(&plan), expected, "{what}");
            let all_equal = expected.iter().all(|steps| *steps == expected[0]);
            assert_eq!(plan["steps"], if all_equal { expected[0].into() } else { Value::Null }, "{what}");
            let indexed = plan_document(dir.path(), &[&options[..], &["--index", "i.json"]].concat());
            let expected = loaded(ranks, streams, batch, last, epoch as u64, Some(&index));
            assert_eq!(steps(&indexed), expected, "{what}");
            let balance = ["steps", "fewest_steps", "most_steps", "imbalance"];
            assert!(balance.iter().all(|key| plan["with_index"][key] == indexed[key]), "{what}");
            assert!(indexed["with_index"].is_null(), "{what}");
        }
    }
    let text = output(dir.path(), &["plan", "data", "--world-size", "4", "--batch", "2"]);
    for line in [
        "6 to 18 per epoch, depending on the rank; a loader without an index does not know them",
        "with an index     9 to 10 per epoch, depending on the rank; the rank with the most samples has 1.3",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let error = failure(dir.path(), &["plan", "data", "--world-size", "13"], 1);
    assert!(error.contains("12 shards cannot feed 13 ranks") && error.contains("`--index`"), "{error}");
}

#[test]
fn shards_in_the_caches_of_all_nodes_are_counted() {
    let dir = shards_of(&[4; 32]);
    let size = std::fs::metadata(dir.path().join("data/0.tar")).unwrap().len();
    let job = ["--world-size", "8", "--streams", "16", "--nodes", "4"];
    for keep in [&[][..], &["--keep-shards"]] {
        let plan = plan_document(dir.path(), &[&job[..], keep].concat());
        assert_eq!((&plan["nodes"], &plan["node_cache_bytes"]), (&json!(4), &Value::Null));
        // Each node has 4 of 16 streams, with two shards each.
        assert_eq!(plan["kept_bytes_per_node"], 8 * size);
        let orders = plan["orders"].as_array().unwrap();
        assert_eq!(orders[1]["hit_rates"], json!([0.0, 1.0, 1.0, 1.0, 1.0]));
        let second = orders[0]["hit_rates"][1].as_f64().unwrap();
        assert!((0.05..0.6).contains(&second), "{plan}");
        let keeps: Vec<&Value> = orders.iter().map(|order| &order["keep_shards"]).collect();
        assert_eq!(keeps, [false, true]);
        assert!(orders.iter().all(|order| order["repeated_pairs"].as_f64().unwrap() > 0.0));
    }
    let small = plan_document(dir.path(), &[&job[..], &["--node-cache", "1kB"]].concat());
    assert_eq!(small["orders"][1]["hit_rates"], json!([0.0, 0.0, 0.0, 0.0, 0.0]));
    let text = output(dir.path(), &[&["plan", "data"], &job[..]].concat());
    for line in [
        "found in the caches of 4 nodes (of any size, empty before epoch 1)",
        "kept: --keep-shards    0.0 %  100.0 %",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let uneven = failure(dir.path(), &[&["plan", "data"], &job[..4], &["--nodes", "3"]].concat(), 2);
    assert!(uneven.contains("--nodes 3: 8 ranks cannot be divided evenly among the nodes"), "{uneven}");
}
