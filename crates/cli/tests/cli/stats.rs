//! `shardstream stats`

use crate::program::{demo, failure, output};
use crate::support::member;
use serde_json::Value as Json;
use std::fs;
use tar::EntryType;

#[test]
fn labels_lengths_and_images_are_summed_up() {
    let dir = demo();
    let shown = output(dir.path(), &["stats", "data"]);
    let bar = "█".repeat(40);
    assert!(shown.starts_with("12 samples\n\n3 labels of cls:\n"), "{shown}");
    for label in 0..3 {
        assert!(shown.contains(&format!("{label}  4  33.3 %  {bar}\n")), "{shown}");
    }
    assert!(shown.contains("txt: 100 % of samples\n  bytes   5 B to 15 B, mean 10 B\n"), "{shown}");
    assert!(shown.contains("  length  5 to 15, mean 10 characters\n"), "{shown}");
    assert!(shown.contains("  height  6 to 8, mean 7\n  width   8\n"), "{shown}");
}

#[test]
fn mean_and_deviation_are_those_of_all_pixels() {
    let dir = demo();
    let shown = output(dir.path(), &["stats", "--json", "data"]);
    let stats: Json = serde_json::from_str(&shown).unwrap();
    let images = &stats["fields"]["png"]["images"];
    // Every pixel of sample n has the red value 20 n. The picture has 8 columns and 6 + n % 3 rows.
    let pixels: Vec<f64> =
        (0..12).flat_map(|n: u32| vec![f64::from(20 * n) / 255.0; 8 * (6 + n as usize % 3)]).collect();
    let mean = pixels.iter().sum::<f64>() / pixels.len() as f64;
    let variance = pixels.iter().map(|pixel| (pixel - mean).powi(2)).sum::<f64>() / pixels.len() as f64;
    let near = |json: &Json, expected: f64| (json.as_f64().unwrap() - expected).abs() < 1e-9;
    assert!(near(&images["mean"][0], mean) && near(&images["std"][0], variance.sqrt()), "{images}");
    assert!(near(&images["mean"][1], 100.0 / 255.0) && near(&images["std"][1], 0.0), "{images}");
    assert_eq!(images["images"], 12);
    for count in ["1", "5", "6", "8"] {
        let part = output(dir.path(), &["stats", "--json", "--images", count, "data"]);
        let part: Json = serde_json::from_str(&part).unwrap();
        assert_eq!(part["fields"]["png"]["images"]["images"].to_string(), count);
    }
    let none = output(dir.path(), &["stats", "--images", "0", "data"]);
    assert!(!none.contains("mean    ["), "{none}");
}

#[test]
fn labels_are_taken_from_other_fields_and_documents() {
    let dir = demo();
    let labels = |label: &str| -> Json {
        let shown = output(dir.path(), &["stats", "--json", "--label", label, "data"]);
        serde_json::from_str::<Json>(&shown).unwrap()["labels"].clone()
    };
    assert_eq!(labels("json:from.site"), serde_json::json!({"left": 6, "right": 6}));
    assert_eq!(labels("txt"), serde_json::json!({"a cat": 4, "a dog on a lawn": 4, "two birds": 4}));
    let top = output(dir.path(), &["stats", "--label", "txt", "--top", "1", "data"]);
    assert!(top.contains("2 more labels of 8 samples\n"), "{top}");
    let error = failure(dir.path(), &["stats", "--label", "json:from.nowhere", "data"], 1);
    assert_eq!(error, "shardstream: none of 12 samples has a label \"json:from.nowhere\"\n");
}

#[test]
fn a_label_is_decoded_by_the_name_of_its_field() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = ["a.txt", "a.cls"].map(|name| member(name, EntryType::Regular, b"07")).concat();
    bytes.resize(bytes.len() + 1024, 0);
    fs::write(dir.path().join("a.tar"), bytes).unwrap();
    let shown = output(dir.path(), &["stats", "--json", "a.tar"]);
    let stats: Json = serde_json::from_str(&shown).unwrap();
    assert_eq!(stats["labels"], serde_json::json!({"7": 1}));
}
