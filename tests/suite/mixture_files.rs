//! Mixtures from YAML files of webdataset and Energon; weights that follow from sizes; epochs with several
//! passes.

use crate::support::python::Python;
use crate::support::root;
use proptest::prelude::*;
use shardstream::mixture::{IndexPlace, Mixture, NamedStages};
use shardstream::prelude::*;
use shardstream::{ErrorKind, Result};
use std::fs;
use std::path::Path;

/// The files in `tests/data/mixtures`, and two prepared datasets: `web` with 4 shards for training and one
/// for tests, 6 samples each; and `books` with 2 shards.
fn prepared() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path();
    for (name, shards) in [("web", 5), ("books", 2)] {
        fs::create_dir_all(home.join(name).join(".nv-meta")).unwrap();
        let mut writer = ShardWriter::builder(format!("{}/{name}/{name}-%d.tar", home.display()))
            .max_count(6)
            .build()
            .unwrap();
        for number in 0..6 * shards {
            writer.write(&Sample::new(format!("{name}{number:03}")).with("txt", name)).unwrap();
        }
        writer.finish().unwrap();
        let counts: Vec<String> = (0..shards).map(|shard| format!("\"{name}-{shard}.tar\": 6")).collect();
        let info = format!("{{\"energon_version\": \"7\", \"shard_counts\": {{{}}}}}", counts.join(", "));
        fs::write(home.join(name).join(".nv-meta/.info.json"), info).unwrap();
    }
    let web = "split_parts:\n  train: [\"web-{0..4}.tar\"]\n  val: []\n  test:\n  - web-4.tar\nexclude: ";
    fs::write(home.join("web/.nv-meta/split.yaml"), format!("{web}[]\n")).unwrap();
    fs::write(home.join("web/.nv-meta/excluded.yaml"), format!("{web}[web-4.tar]\n")).unwrap();
    let split = "split_parts: {pretrain: ['books-{0,1}.tar']}\nexclude:\n";
    fs::write(home.join("books/.nv-meta/split.yaml"), split).unwrap();
    fs::write(home.join("books/.nv-meta/other.yaml"), "split_parts: {train: ['books-1.tar']}").unwrap();
    let files = root().join("tests/data/mixtures");
    fs::create_dir(home.join("inner")).unwrap();
    for file in ["webdataset.yaml", "energon_v1.yaml", "energon_v2.yaml", "inner/both.yaml"] {
        fs::copy(files.join(file), home.join(file)).unwrap();
    }
    dir
}

/// For each dataset: its name, its patterns relative to `home`, its weight, passes and size.
type Summary = (String, Vec<String>, u32, u64, Option<u64>);

fn summary(mixture: &Mixture, home: &Path) -> Vec<Summary> {
    let home = format!("{}/", home.display());
    let shard = |shard: &shardstream::SecretUrl| {
        let path = shard.expose_secret().replace("/./", "/").replace("inner/../", "");
        path.strip_prefix(&home).unwrap_or(&path).to_owned()
    };
    let dataset = |dataset: &shardstream::mixture::MixedDataset| {
        let shards = dataset.shards.iter().map(shard).collect();
        (dataset.name.clone(), shards, dataset.weight, dataset.passes, dataset.size)
    };
    mixture.datasets.iter().map(dataset).collect()
}

fn dataset(name: &str, shards: &[&str], weight: u32, passes: u64, size: Option<u64>) -> Summary {
    (name.into(), shards.iter().map(|shard| (*shard).into()).collect(), weight, passes, size)
}

const WEB: [&str; 5] = ["web/web-0.tar", "web/web-1.tar", "web/web-2.tar", "web/web-3.tar", "web/web-4.tar"];
const BOOKS: [&str; 2] = ["books/books-0.tar", "books/books-1.tar"];

#[test]
fn metadatasets_are_read_as_energon_reads_them() {
    let dir = prepared();
    let home = dir.path();
    let split = |file: &str, split: &str| {
        let mixture = Mixture::load_split(home.join(file), split).unwrap();
        (summary(&mixture, home), mixture.temperature)
    };
    let web = |weight, passes| dataset("web", &WEB, weight, passes, Some(30));
    let books = |weight, passes| dataset("books", &BOOKS, weight, passes, Some(12));
    let test = dataset("web", &["web/web-4.tar"], 1, 1, Some(6));
    assert_eq!(split("energon_v1.yaml", "train"), (vec![web(2, 1), books(1, 1)], None));
    assert_eq!(split("energon_v1.yaml", "val"), (vec![test.clone()], None));
    assert_eq!(split("energon_v2.yaml", "val"), (vec![test], None));
    // The shares of nested blends are multiplied: 1/2, 1/2 * 1/4 and 1/2 * 3/4.
    let again = dataset("web-2", &WEB, 1, 1, Some(30));
    let other = dataset("books", &["books/books-1.tar"], 3, 1, Some(6));
    assert_eq!(split("energon_v2.yaml", "train"), (vec![web(4, 1), again, other], None));
    assert_eq!(split("energon_v2.yaml", "epochs"), (vec![web(1, 1), books(1, 3)], Some(1.0)));
    assert_eq!(Mixture::load(home.join("energon_v1.yaml")).unwrap().datasets.len(), 2);
}

#[test]
fn an_epoch_of_a_metadataset_has_each_dataset_as_often_as_it_says() {
    let dir = prepared();
    let mixture = Mixture::load_split(dir.path().join("energon_v2.yaml"), "epochs").unwrap();
    let (counts, texts) = counts_of_an_epoch(&mixture);
    assert_eq!(counts, [("books".to_owned(), 3 * 12), ("web".to_owned(), 30)]);
    // Each third of the epoch has books and web in the ratio 36 : 30.
    for start in [0, 22, 44] {
        let books = texts[start..start + 22].iter().filter(|text| *text == "books").count();
        assert!((10..=14).contains(&books), "{books} of 22 from {start} on");
    }
}

/// The number of samples of each dataset in an epoch, and the dataset of each sample in order.
fn counts_of_an_epoch(mixture: &Mixture) -> (Vec<(String, usize)>, Vec<String>) {
    let stages = NamedStages::new().with("text", |samples| {
        samples.decode(Decoder::new()).map(|mut sample| sample.take::<String>("txt"))
    });
    let alone =
        |dataset: shardstream::dataset::DatasetBuilder| dataset.topology(Topology::single()).streams(1);
    let loader = mixture.builder(&stages, alone).unwrap().threads(0).batch(7).build().unwrap();
    let texts: Vec<String> = loader.epoch(0).flat_map(|batch| batch.unwrap().into_items()).collect();
    let mut sorted = texts.clone();
    sorted.sort_unstable();
    let counts = sorted.chunk_by(|one, other| one == other).map(|equal| (equal[0].clone(), equal.len()));
    (counts.collect(), texts)
}

#[test]
fn a_specification_of_webdataset_is_one_dataset_of_all_shards() {
    let mixture = Mixture::load(root().join("tests/data/mixtures/webdataset.yaml")).unwrap();
    let shards = ["data/train/web-{0..3}.tar", "data/books/en-{0,1}.tar", "data/books/de-0.tar"];
    assert_eq!(summary(&mixture, Path::new("")), [dataset("web+books", &shards, 1, 1, None)]);
    assert!(mixture.shuffle_shards);
}

#[test]
#[ignore = "needs Python with webdataset"]
fn webdataset_reads_the_same_shards_of_a_specification() {
    let file = root().join("tests/data/mixtures/webdataset.yaml");
    let mixture = Mixture::load(&file).unwrap();
    let patterns: Vec<&str> = mixture.datasets[0].shards.iter().map(|shard| shard.expose_secret()).collect();
    let shards = ShardList::expand(&patterns.join("::")).unwrap();
    let mut shards: Vec<String> = shards.iter().map(|shard| shard.to_string()).collect();
    shards.sort_unstable();
    assert_eq!(Python::find().specification(&file), shards);
}

#[test]
fn unsupported_keys_of_a_metadataset_are_named_with_their_line() {
    let dir = prepared();
    let home = dir.path();
    let text = fs::read_to_string(home.join("energon_v2.yaml")).unwrap();
    let wrong = |from: &str, to: &str, split: &str, why: &str| {
        assert!(text.contains(from), "{from}");
        fs::write(home.join("wrong.yaml"), text.replacen(from, to, 1)).unwrap();
        refused(Mixture::load_split(home.join("wrong.yaml"), split), why);
    };
    wrong("repetitions: 3", "repetitions: 2.5", "epochs", "line 21: `repetitions` of 2.5 are not supported");
    wrong("weight: 1", "weight: 0", "train", "line 7: a `weight` of 0: leave the dataset out");
    wrong("weight: 1", "weight: x", "train", "line 7: `weight` must be a number");
    wrong("weight: 1", "subset: {range: [0%, 50%]}", "train", "line 7: `subset` is not supported");
    wrong("weight: 1", "subflavors: {a: b}", "train", "line 7: `subflavors` is not supported");
    wrong(
        "weight: 1",
        "wieght: 2",
        "train",
        "line 7: a reference to a dataset has no key `wieght` (did you mean",
    );
    wrong("weight: 1", "repetitions: 2", "train", "line 7: `repetitions` is not supported: it belongs to");
    wrong(
        "multiplier: 1",
        "multiplier: -1",
        "train",
        "line 8: `shuffle_over_epochs_multiplier` is not supported",
    );
    // Without the key `shuffle_over_epochs_multiplier`, shuffling is on by default. `null` would disable
    // shuffling, and is refused.
    let why = "line 8: `shuffle_over_epochs_multiplier` is not supported";
    wrong("multiplier: 1", "multiplier: null", "train", why);
    wrong("weight: 1", "weight: 010", "train", "line 7: `weight` is `010`: leave its leading zeros out");
    wrong("blend:", "join:", "train", "line 5: `join` is not supported");
    wrong("./inner/both.yaml", "./inner", "train", "line 9: ");
    wrong("./inner/both.yaml", "s3://b/x", "train", "line 9: a `path` that is a URL is not supported");
    wrong("./inner/both.yaml", "wrong.yaml", "train", "wrong.yaml contains itself");
    wrong("MetadatasetV2", "MetadatasetV3", "train", "line 2: the class `MetadatasetV3` is not supported");
    wrong("path: ./web\n    split_part: test", "blend: []", "val", "line 12: a blend has no datasets");
    wrong("split_part: test", "split_part: tset", "val", "split.yaml: line 2: there is no split part `tset`");
    wrong("__class__", "__klass__", "train", "line 2: a metadataset has no key `__klass__`");
    refused(
        Mixture::load_split(home.join("energon_v2.yaml"), "trian"),
        "no split `trian` (did you mean `train`?)",
    );
    refused(
        Mixture::load_split(home.join("webdataset.yaml"), "val"),
        "line 2: it has no `splits`, so no `val`",
    );
    refused(Mixture::load_split("mixture.toml", "val"), "mixture.toml is no metadataset");
    refused(Mixture::from_yaml("x: 1"), "line 1: it is neither a specification of webdataset");
    // An error in another file names that file and its line.
    let inner = fs::read_to_string(home.join("inner/both.yaml")).unwrap();
    fs::write(home.join("inner/both.yaml"), inner.replace("weight: 3", "weight: -3")).unwrap();
    let why = "inner/both.yaml: line 9: a `weight` of -3";
    refused(Mixture::load(home.join("energon_v2.yaml")), why);
    refused(Mixture::load(home.join("energon_v2.yaml")), "the mixture: line 9: ");
}

#[test]
fn excluded_shards_are_left_out_and_excluded_samples_are_an_error() {
    let dir = prepared();
    let home = dir.path();
    let spec = "splits: {train: {datasets: [{path: web, split_config: excluded.yaml}]}}";
    fs::write(home.join("few.yaml"), spec).unwrap();
    let mixture = Mixture::load(home.join("few.yaml")).unwrap();
    assert_eq!(summary(&mixture, home), [dataset("web", &WEB[..4], 1, 1, Some(24))]);
    let split = home.join("web/.nv-meta/excluded.yaml");
    let text = fs::read_to_string(&split).unwrap();
    fs::write(&split, text.replace("exclude: [web-4.tar]", "exclude: [web-4.tar/web024]")).unwrap();
    let why = "excluded.yaml: line 6: excluded samples, such as `web-4.tar/web024`, are not";
    refused(Mixture::load(home.join("few.yaml")), why);
    // The name of a shard in a subdirectory contains a `/`. Such a shard can be excluded as a whole, but its
    // single samples cannot be excluded.
    fs::create_dir(home.join("web/part")).unwrap();
    fs::rename(home.join("web/web-4.tar"), home.join("web/part/web-4.tar")).unwrap();
    let info = home.join("web/.nv-meta/.info.json");
    fs::write(&info, fs::read_to_string(&info).unwrap().replace("web-4.tar", "part/web-4.tar")).unwrap();
    let text = text.replace("\"web-{0..4}.tar\"", "\"web-{0..3}.tar\", part/web-4.tar");
    fs::write(&split, text.replace("exclude: [web-4.tar]", "exclude: [part/web-4.tar]")).unwrap();
    let mixture = Mixture::load(home.join("few.yaml")).unwrap();
    assert_eq!(summary(&mixture, home), [dataset("web", &WEB[..4], 1, 1, Some(24))]);
    fs::write(&split, text.replace("exclude: [web-4.tar]", "exclude: [part/web-4.tar/web024]")).unwrap();
    refused(Mixture::load(home.join("few.yaml")), "such as `part/web-4.tar/web024`, are not");
}

#[test]
fn a_metadataset_that_contains_itself_by_another_path_is_an_error() {
    let dir = prepared();
    let home = dir.path();
    let referring = |to: &str| format!("splits: {{train: {{datasets: [{{path: {to}}}]}}}}");
    fs::write(home.join("a.yaml"), referring("inner/b.yaml")).unwrap();
    fs::write(home.join("inner/b.yaml"), referring("../inner/../a.yaml")).unwrap();
    let why = format!(
        "the mixture: line 1: {}: line 1: {} contains itself",
        home.join("inner/b.yaml").display(),
        home.join("inner/../inner/../a.yaml").display(),
    );
    refused(Mixture::load(home.join("a.yaml")), &why);
    // Each file of this long chain refers to another new file, so no file contains itself.
    for depth in 0..100 {
        fs::write(home.join(format!("deep{depth}.yaml")), referring(&format!("deep{}.yaml", depth + 1)))
            .unwrap();
    }
    fs::write(home.join("deep100.yaml"), referring("web")).unwrap();
    assert!(Mixture::load(home.join("deep40.yaml")).is_ok());
    refused(Mixture::load(home.join("deep0.yaml")), "line 1: metadatasets are nested more than 64 deep");
}

fn refused<T>(found: Result<T>, why: &str) {
    let Err(error) = found else { panic!("it is taken, in spite of {why}") };
    assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error:?}");
    assert!(error.to_string().contains(why), "{why:?} in {error}");
}

#[test]
fn weights_follow_from_sizes_and_a_temperature() {
    let dir = prepared();
    let document = |temperature: &str, more: &str| {
        let text = format!(
            "streams = 1\ntemperature = {temperature}\n[[dataset]]\nname = 'web'\nshards = 'web/web-*.tar'\n\
             index = true\n[[dataset]]\nname = 'books'\nshards = 'books/books-*.tar'\n{more}"
        );
        Mixture::from_toml(&text).map(|mixture| mixture.in_directory(dir.path()))
    };
    let weights = |mixture: Mixture| -> Result<Vec<u64>> {
        let alone = |dataset: shardstream::dataset::DatasetBuilder| dataset.topology(Topology::single());
        let loader = mixture.builder(&NamedStages::samples(), alone)?.batch(1).build()?;
        let header = serde_json::to_value(loader.epochs(0).state()).unwrap();
        let datasets = header["of"]["datasets"].as_array().unwrap();
        Ok(datasets.iter().map(|dataset| dataset["weight"].as_u64().unwrap()).collect())
    };
    let of = |temperature: &str, more: &str| weights(document(temperature, more).unwrap());
    // `web` has 30 samples in its index.
    assert_eq!(of("1.0", "size = 12").unwrap(), [5, 2]);
    assert_eq!(of("2", "size = 120").unwrap(), [1, 2]);
    assert_eq!(of("inf", "size = 1").unwrap(), [1, 1]);
    assert_eq!(of("1.0", "index = true\npasses = 5").unwrap(), [1, 2]);
    assert_eq!(of("1.0", "size = 30\nweight = 7").unwrap(), [1, 7]);
    refused(of("1.0", ""), "dataset `books` has no size for a `temperature`: give it an `index` or a `size`");
    for wrong in ["0", "-1.0", "nan"] {
        refused(document(wrong, ""), "use a number above 0");
    }
    let changed = document("2", "size = 120\n[[change]]\nfrom = 8\nweights = { web = 4 }").unwrap();
    let alone = |dataset: shardstream::dataset::DatasetBuilder| dataset.topology(Topology::single());
    let loader = changed.builder(&NamedStages::samples(), alone).unwrap().batch(3).build().unwrap();
    let state = serde_json::to_value(loader.epochs(0).state()).unwrap();
    assert!(state.to_string().contains("\"weights\":[2,1]"), "{state}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn an_epoch_has_every_sample_of_a_dataset_once_for_each_pass(
        passes in prop::collection::vec(1u64..5, 2), temperature in prop::option::of(0.5f64..5.0),
    ) {
        let dir = prepared();
        let mut mixture = Mixture::load_split(dir.path().join("energon_v2.yaml"), "epochs").unwrap();
        mixture.temperature = temperature;
        for (dataset, passes) in mixture.datasets.iter_mut().zip(&passes) {
            dataset.passes = *passes;
            dataset.index = Some(IndexPlace::Beside);
        }
        let (counts, texts) = counts_of_an_epoch(&mixture);
        let [books, web] = [12 * passes[1] as usize, 30 * passes[0] as usize];
        prop_assert_eq!(counts, [("books".to_owned(), books), ("web".to_owned(), web)]);
        prop_assert_eq!(texts.len(), books + web);
    }
}
