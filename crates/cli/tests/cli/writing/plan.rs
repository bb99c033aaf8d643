//! `shardstream plan`

use crate::program::{demo, failure, output};
use serde_json::Value;

#[test]
fn what_each_rank_reads() {
    let dir = demo();
    let plan =
        ["plan", "data", "--world-size", "2", "--streams", "4", "--batch", "3", "--last-batch", "drop"];
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
    assert_eq!(json["fitting_world_sizes"], serde_json::json!([1, 2, 4]));
    let text = output(dir.path(), &plan);
    for line in ["steps             2 an epoch on each rank", "ranks that fit    1, 2, 4", "   1        2"] {
        assert!(text.contains(line), "{text}");
    }
    let error = failure(dir.path(), &["plan", "data", "--world-size", "2", "--streams", "3"], 1);
    assert!(error.contains("use 2 or 4 streams"), "{error}");
}
