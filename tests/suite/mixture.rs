//! Mixtures from valid documents and from documents with mistakes.

use crate::support::Every;
use proptest::prelude::*;
use shardstream::index::AutoIndex;
use shardstream::loader::LoaderBuilder;
use shardstream::mixture::{IndexPlace, Mixture, NamedStages};
use shardstream::prelude::*;
use shardstream::state::Changes;
use shardstream::{ErrorKind, Result};
use std::path::Path;

/// Writes shards of 6 samples each.
fn write(directory: &Path, name: &str, shards: usize) {
    let pattern = format!("{}/{name}-%d.tar", directory.display());
    let mut writer = ShardWriter::builder(&pattern).max_count(6).build().unwrap();
    let text = |number: usize| format!("{name} {number}\nand more");
    (0..6 * shards)
        .try_for_each(|number| {
            writer.write(&Sample::new(format!("{name}{number:03}")).with("txt", text(number)))
        })
        .unwrap();
    writer.finish().unwrap();
}

fn text(samples: LoaderBuilder<Sample>) -> LoaderBuilder<String> {
    samples.decode(Decoder::new()).map(|mut sample| sample.take::<String>("txt"))
}

fn lines(samples: LoaderBuilder<Sample>) -> LoaderBuilder<String> {
    text(samples).flat_map(|text| Ok(text.lines().map(str::to_owned).collect::<Vec<_>>()))
}

fn stages() -> NamedStages<String> {
    NamedStages::new().with("text", text).with("lines", lines)
}

fn alone(dataset: shardstream::dataset::DatasetBuilder) -> shardstream::dataset::DatasetBuilder {
    dataset.topology(Topology::single())
}

fn rows(loader: &Loader<Batch<String>>, count: usize) -> Vec<Vec<String>> {
    loader.epochs(0).take(count).map(|batch| batch.unwrap().into_items()).collect()
}

const DOCUMENT: &str = r#"
streams = 2
seed = 42
shuffle = 9
stages = "text"

[[dataset]]
name = "web"
shards = "web-{0..3}.tar"
weight = 3
index = true
keep_shards = true

[[dataset]]
name = "books"
shards = ["books-*.tar", "more-0.tar"]
weight = 0
passes = 2
seed = 7
shuffle = 4
shuffle_shards = false
stages = "lines"

[[dataset]]
name = "code"
shards = "code-0.tar::code-1.tar"
index = "kept/code.json"

[[change]]
from = 30
weights = { books = 2 }

[[change]]
from = 61
weights = { web = 1, code = 0 }
"#;

#[test]
fn a_document_describes_the_same_mix_as_the_builder() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path();
    [("web", 4), ("books", 3), ("more", 1), ("code", 2)]
        .iter()
        .for_each(|(name, shards)| write(home, name, *shards));
    std::fs::create_dir(home.join("kept")).unwrap();
    std::fs::write(home.join("mixture.toml"), DOCUMENT).unwrap();
    let mixture = Mixture::load(home.join("mixture.toml")).unwrap();
    let loader = mixture.builder(&stages(), alone).unwrap().threads(0).batch(5).build().unwrap();

    let at = |pattern: &str| format!("{}/{pattern}", home.display());
    let dataset =
        |pattern: String, seed| Dataset::builder(pattern).topology(Topology::single()).streams(2).seed(seed);
    let kept = AutoIndex::at(at("kept/code.json"));
    let web = dataset(at("web-{0..3}.tar"), 42).shuffle_shards(true).keep_shards(true);
    let web = web.auto_index(AutoIndex::beside());
    let books = dataset(format!("{}::{}", at("books-*.tar"), at("more-0.tar")), 7);
    let code = dataset(at("code-{0,1}.tar"), 42).shuffle_shards(true).auto_index(kept);
    let [web, books, code] = [web, books, code].map(|dataset| Loader::builder(dataset.build().unwrap()));
    let parts =
        [text(web.shuffle(9).weight(3)), lines(books.shuffle(4).weight(0).passes(2)), text(code.shuffle(9))];
    let mix = Loader::mix(parts).weights_from(30, [3, 2, 1]).weights_from(61, [1, 2, 0]);
    let expected = mix.threads(0).batch(5).build().unwrap();
    assert_eq!(rows(&loader, 20), rows(&expected, 20));
    assert!(home.join("kept/code.json").exists(), "the index was kept where the document says");
    // Both loaders have the same order, so a state of one loader restores in the other loader.
    let state = loader.epochs(0).nth(7).unwrap().unwrap().state().unwrap().clone();
    let later: Vec<_> =
        expected.restore(&state).unwrap().take(9).map(|batch| batch.unwrap().into_items()).collect();
    assert_eq!(later, rows(&loader, 17)[8..]);
    assert_eq!(
        mixture.datasets[2].index,
        Some(IndexPlace::At(shardstream::SecretUrl::from("kept/code.json")))
    );
}

#[test]
fn a_state_resumes_under_a_changed_document() {
    let dir = tempfile::tempdir().unwrap();
    ["web", "books", "code"].iter().for_each(|name| write(dir.path(), name, 4));
    let document = |names: &[(&str, u32)]| {
        let dataset = |(name, weight): &(&str, u32)| {
            format!("[[dataset]]\nname = \"{name}\"\nshards = \"{name}-*.tar\"\nweight = {weight}\n")
        };
        let text =
            format!("streams = 2\nstages = \"text\"\n{}", names.iter().map(dataset).collect::<String>());
        let mixture = Mixture::from_toml(&text).unwrap().in_directory(dir.path());
        mixture.builder(&stages(), alone).unwrap().threads(0).batch(4).build().unwrap()
    };
    let first = document(&[("web", 1), ("books", 1)]);
    let mut batches = first.epochs(0);
    let mut books: Vec<String> =
        batches.by_ref().take(3).flat_map(|batch| batch.unwrap().into_items()).collect();
    let second = document(&[("code", 1), ("books", 3)]);
    let changes = Changes::new().added("code").removed("web");
    let (later, report) = second.restore_changed(&batches.state(), &changes).unwrap();
    assert!(report.to_string().contains("books continues after 6 items"), "{report}");
    books.extend(later.take(6).flat_map(|batch| batch.unwrap().into_items()));
    books.retain(|text| text.starts_with("books"));
    books.sort_unstable();
    books.dedup();
    assert_eq!(books.len(), 6 + 18, "24 of 24 samples, none of them twice");
}

fn refused<T>(found: Result<T>, why: &str) {
    let Err(error) = found else { panic!("it is taken, in spite of {why}") };
    assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error:?}");
    assert!(error.to_string().contains(why), "{why:?} in {error}");
}

#[test]
fn mistakes_in_a_document_are_named_with_a_suggestion() {
    let wrong = |from: &str, to: &str, why: &str| {
        assert!(DOCUMENT.contains(from), "{from}");
        refused(Mixture::from_toml(&DOCUMENT.replacen(from, to, 1)), why);
    };
    wrong(
        "streams =",
        "steams =",
        "a mixture has no key `steams` (did you mean `streams`?): it has streams, seed",
    );
    wrong("weight = 3", "wieght = 3", "dataset `web` has no key `wieght` (did you mean `weight`?)");
    wrong("passes = 2", "topology = 2", "dataset `books` has no key `topology`: it has name, shards");
    wrong("from = 30", "form = 30", "a change has no key `form` (did you mean `from`?)");
    wrong("[[change]]", "[[changes]]", "a mixture has no key `changes` (did you mean `change`?)");
    wrong(
        "{ books = 2 }",
        "{ boks = 2 }",
        "are of `boks` (did you mean `books`?), which is none of the datasets",
    );
    wrong("seed = 42", "seed = -1", "line 3: ");
    wrong("seed = 42", "seed = ", "line 3: ");
    wrong("weight = 3", "weight = 3.5", "line 10: ");
    wrong("name = \"web\"\n", "", "missing field `name`");
    wrong("[\"books-*.tar\", \"more-0.tar\"]", "[]", "dataset `books` has no shards");
    wrong("index = true", "index = 7", "`true` for an index beside the shards, or where it is kept");
    wrong("\"web-{0..3}.tar\"", "7", "a pattern, or a list of patterns");
    refused(Mixture::from_toml(""), "missing field `dataset`");
    assert!(matches!(Mixture::load("/nowhere/mixture.toml").unwrap_err().kind(), ErrorKind::Io(_)));
}

#[test]
fn a_document_that_does_not_fit_the_program_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "web", 2);
    let document = |more: &str| {
        let text = format!("[[dataset]]\nname = \"web\"\nshards = \"web-*.tar\"\n{more}");
        Mixture::from_toml(&text).unwrap().in_directory(dir.path())
    };
    let built = |mixture: &Mixture| mixture.builder(&stages(), alone)?.batch(2).build().map(drop);
    refused(built(&document("")), "dataset `web`: it names no `stages`: set it to one of lines, text");
    refused(
        built(&document("stages = \"txet\"")),
        "dataset `web`: there are no stages `txet` (did you mean `text`?): there are lines, text",
    );
    refused(built(&document("stages = \"text\"\nweight = 0")), "whole numbers from 1 up");
    refused(built(&document("stages = \"text\"\n[[change]]\nfrom = 0\nweights = {}")), "by `weight` of each");
    let strange = document("stages = \"text\"").in_directory("/data/{a,b}");
    refused(built(&strange), "`web-*.tar` is relative to a directory whose name has characters of patterns");
    assert!(document("stages = \"samples\"").builder(&NamedStages::samples(), alone).is_ok());
    let mut pushed = document("stages = \"text\"\n[[change]]\nfrom = 9\nweights = { web = 2 }");
    let mut change = pushed.changes[0].clone();
    (change.from, change.weights) = (20, [("wep".to_owned(), 1)].into());
    pushed.changes.push(change);
    refused(built(&pushed), "are of `wep` (did you mean `web`?), which is none of the datasets");
    pushed.changes.pop();
    let mut dataset = pushed.datasets[0].clone();
    (dataset.name, dataset.shards) = ("books".into(), Vec::new());
    pushed.datasets.push(dataset);
    refused(built(&pushed), "dataset `books` has no shards");
    let none = Mixture::from_toml("dataset = []").unwrap();
    refused(built(&none), "a mix of no datasets");
}

#[test]
fn secrets_of_urls_are_not_shown() {
    let url = "https://me:S3CRET@host/web.tar?sig=S3CRET";
    let text = format!(
        "stages = \"text\"\n[[dataset]]\nname = \"web\"\nshards = \"{url}\"\nindex = \"{url}\"\nseed = 1\n"
    );
    let mixture = Mixture::from_toml(&text).unwrap();
    let error = Mixture::from_toml(&text.replace("seed = 1", &format!("seed = \"{url}\""))).unwrap_err();
    for shown in [format!("{mixture:?} {mixture:#?}"), format!("{error} {error:?} {error:#}")] {
        assert!(shown.contains("host/web.tar") && !shown.contains("S3CRET"), "{shown}");
    }
    let error = Mixture::from_toml(&format!("{text}= {url}")).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("S3CRET"), "{error}");
    let strange = mixture.in_directory("/data/{a,b}");
    assert!(strange.datasets[0].shards[0].expose_secret() == url);
}

#[test]
fn documents_in_the_documentation_are_valid() {
    let pages = [include_str!("../../docs/pipelines.md").to_owned(), {
        let module = include_str!("../../src/mixture/mod.rs");
        module
            .lines()
            .filter_map(|line| line.strip_prefix("//!"))
            .map(|line| format!("{}\n", line.trim()))
            .collect()
    }];
    for page in pages {
        let documents: Vec<&str> =
            page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
        assert_eq!(documents.len(), 1);
        for document in documents {
            let mixture = Mixture::from_toml(document).unwrap();
            assert!(mixture.datasets.len() > 1 && !mixture.changes.is_empty());
        }
    }
}

proptest! {
    #[test]
    fn no_document_panics(
        cut: prop::sample::Index, length in 0usize..9, with in "[a-z0-9\"=\\[\\]{},.\n ]{0,9}",
    ) {
        let at = cut.index(DOCUMENT.len());
        let end = (at + length).min(DOCUMENT.len());
        let text = format!("{}{with}{}", &DOCUMENT[..at], &DOCUMENT[end..]);
        if let Ok(mixture) = Mixture::from_toml(&text) {
            prop_assert!(mixture.datasets.iter().every(|dataset| !dataset.shards.is_empty()));
        }
    }
}
