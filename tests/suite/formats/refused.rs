//! A dataset is refused if it would be read as samples that the user did not mean.

use super::*;

/// Writes a file and returns its path.
fn put(directory: &Path, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let path = directory.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, bytes).unwrap();
    path.display().to_string()
}

#[test]
fn a_key_that_occurs_twice_in_a_side_is_an_error_also_after_a_restore() {
    let dir = tempfile::tempdir().unwrap();
    let line = |(number, key): (usize, &str)| format!("{{\"id\": \"{key}\", \"n\": {number}}}\n");
    let lines = |keys: &[&str]| keys.iter().copied().enumerate().map(line).collect::<String>();
    let main = put(dir.path(), "main.jsonl", lines(&["a", "b", "c", "d"]));
    let format = || JsonLines::new().key("id");
    // If the keys of the side dataset are unique, every sample is joined. The keys of the main dataset may
    // repeat.
    for (side, expected) in [
        (&["a", "b", "c", "d"][..], Some([0, 1, 2, 3])),
        (&["d", "c", "b", "a"], Some([3, 2, 1, 0])),
        (&["a", "c", "b", "c", "d"], None),
        (&["a", "b", "c", "d", "a"], None),
    ] {
        let side = put(dir.path(), "side.jsonl", lines(side));
        for indexed in [false, true] {
            let dataset = |main: &str| {
                let mut joined = Side::new(&*side).format(format()).prefix("side.");
                let mut dataset = Dataset::builder(main).format(format());
                if indexed {
                    let index = |url: &str| {
                        Index::builder().format(format()).build(&ShardList::from_urls([url])).unwrap()
                    };
                    joined = joined.index(index(&side));
                    dataset = dataset.index(index(main));
                }
                dataset.join(joined).build().unwrap()
            };
            let number = |sample: &Sample| {
                let json = sample.get("side.json").unwrap().as_bytes().unwrap();
                serde_json::from_slice::<serde_json::Value>(json).unwrap()["n"].as_u64().unwrap()
            };
            let loader = || Loader::builder(dataset(&main)).batch(1).build().unwrap();
            // The samples before the first error are the same after a restore from any state.
            for stop in 0..4 {
                let mut begun = loader().epoch(0);
                if !begun.by_ref().take(stop).all(|batch| batch.is_ok()) {
                    break;
                }
                let rest = loader().restore(&begun.state()).unwrap();
                let rest: Vec<_> =
                    rest.map(|batch| batch.map(|batch| number(&batch.into_items()[0]))).collect();
                let numbers: Option<Vec<u64>> = rest.iter().map(|it| it.as_ref().ok().copied()).collect();
                assert_eq!(numbers.as_deref(), expected.as_ref().map(|it| &it[stop..]), "{indexed} {stop}");
                let error = rest.into_iter().find_map(Result::err).map(|error| error.to_string());
                assert!(error.is_none_or(|error| {
                    error.contains("a key occurs twice in this shard of a side")
                        && error.contains("side.jsonl")
                }));
            }
            let repeated = put(dir.path(), "repeated.jsonl", lines(&["a", "b", "a"]));
            if let Some(expected) = expected {
                let samples = dataset(&repeated).samples(0).results();
                let numbers: Vec<u64> = samples.map(|sample| number(&sample.unwrap())).collect();
                assert_eq!(numbers, [expected[0], expected[1], expected[0]]);
            }
        }
    }
}

#[test]
fn wildcards_that_match_archives_and_json_lines_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "jsonl");
    let all = |suffix: &str| format!("{}/{suffix}", dir.path().display());
    for pattern in ["*", "**", "[0-4].*"] {
        let error = Dataset::builder(all(pattern)).build().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NoShards(_)), "{error}");
        assert!(error.to_string().contains("name the suffix, as in *.tar"), "{error}");
    }
    let both = format!("{}::{}", all("*.tar"), all("*.jsonl"));
    assert_eq!(Dataset::builder(both).build().unwrap().shards().len(), 10);
}

#[test]
fn a_directory_with_anything_beside_json_lines_needs_a_pattern() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    put(dir.path(), "pictures/metadata.jsonl", "{}\n");
    put(dir.path(), "pictures/0.jpg", "a picture");
    put(dir.path(), "nested/metadata.jsonl", "{}\n");
    put(dir.path(), "nested/000/0.tar", crate::support::archive(&[]));
    for name in ["pictures", "nested", "nested/"] {
        let error = Dataset::builder(at(name)).build().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NoShards(_)), "{error}");
        assert!(error.to_string().contains("/*.jsonl are its JSON lines"), "{error}");
    }
    put(dir.path(), "lines/0.jsonl", "{}\n");
    put(dir.path(), "lines/0.jsonl.index.json", "{}");
    assert_eq!(Dataset::builder(at("lines")).build().unwrap().shards().len(), 1);
    // If the format is given, directories are not searched for shards, as the suffix of shard names is
    // unknown.
    for given in ["lines", "nested/000"] {
        let error = Dataset::builder(at(given)).format(JsonLines::new().key("id")).build().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NoShards(_)), "{error}");
        assert!(error.to_string().contains("give a pattern such as"), "{error}");
    }
}

#[test]
fn files_that_are_no_json_lines_are_refused_at_their_first_line() {
    let dir = tempfile::tempdir().unwrap();
    let archive = crate::support::archive(&[Sample::new("a").with("txt", "one\ntwo\n")]);
    for (bytes, expected) in [
        (&b"\x1f\x8b\x08\0\n..\n"[..], "gzip data"),
        (b"\x28\xb5\x2f\xfd..\n..", "zstd data"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\n", "a Git LFS pointer"),
        (b"\n<!DOCTYPE html>\n<html>\n", "an HTML page"),
        (&archive, "a plain tar archive"),
    ] {
        for cut in [1, 3, bytes.len()] {
            let parser = FormatParser::by_name("s.jsonl", Limits::default());
            let mut found = read(bytes.chunks(cut).map(|chunk| Ok(Bytes::copy_from_slice(chunk))), parser);
            let error = found.next().unwrap().unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::NotAnArchive { expected: "JSON lines", .. }),
                "{error}"
            );
            assert!(error.to_string().contains(expected) && error.location().offset().is_some(), "{error}");
            assert!(found.next().is_none() && !found.is_complete(), "{expected}");
        }
        let url = put(dir.path(), "s.jsonl", bytes);
        assert_eq!(Dataset::builder(&*url).build().unwrap().samples(0).results().count(), 1);
        assert!(Index::builder().build(&ShardList::from_urls([&*url])).is_err());
    }
    // Only the beginning of a file is searched for signs of other formats.
    assert_eq!(lines_of(b"{}\n<html>\nBZh\n"), ["{}", "<html>", "BZh"]);
}

/// A format in which each byte is a sample with a number.
#[derive(Debug, Clone, Copy)]
struct Numbers(EachByte);

#[derive(Debug)]
struct NumberParser(Box<dyn ShardParser>);

impl ShardFormat for Numbers {
    fn parser(&self, start: &ParserStart) -> Box<dyn ShardParser> {
        Box::new(NumberParser(self.0.parser(start)))
    }
}

impl ShardParser for NumberParser {
    fn push(&mut self, chunk: Bytes) {
        self.0.push(chunk);
    }

    fn finish(&mut self) {
        self.0.finish();
    }

    fn next(&mut self) -> Result<Parsed> {
        Ok(match self.0.next()? {
            Parsed::Sample(sample) => {
                let byte = sample.get("json").unwrap().as_bytes().unwrap()[0];
                Parsed::Sample(Sample::new(sample.key()).with("cls", i64::from(byte)))
            }
            other => other,
        })
    }
}

#[test]
fn checksums_of_values_that_are_not_bytes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let url = put(dir.path(), "0.x", "abc");
    let shards = ShardList::from_urls([&*url]);
    let format = Numbers(EachByte { lie: 0, is_stuck: false });
    assert_eq!(Index::builder().format(format).build(&shards).unwrap().samples(), 3);
    let error = Index::builder().format(format).checksums(true).build(&shards).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    for text in ["`cls`", "index without checksums", "0.x"] {
        assert!(error.to_string().contains(text), "{error}");
    }
    let auto = AutoIndex::in_directory(dir.path().join("index"));
    let error = Dataset::builder(&*url).format(format).auto_index(auto).checksums(true).build().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
}

#[test]
fn a_saved_index_of_one_format_is_not_that_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let url = put(dir.path(), "0.jsonl", "ab\nc\n");
    let dataset = || Dataset::builder(&*url).auto_index(AutoIndex::in_directory(dir.path().join("index")));
    let format = EachByte { lie: 0, is_stuck: false };
    for _ in 0..2 {
        assert_eq!(dataset().build().unwrap().len(), Some(2));
        assert_eq!(dataset().format(format).build().unwrap().len(), Some(5));
    }
}
