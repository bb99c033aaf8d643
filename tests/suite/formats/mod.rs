//! Shards in other formats than tar have the same order, states and lengths as tar shards. JSON lines are
//! read in the forms in which users write them.

#[path = "../../../examples/own_format.rs"]
mod own_format;
mod refused;

use crate::support::Every;
use bytes::{Buf, Bytes};
use proptest::prelude::*;
use shardstream::dataset::{DatasetBuilder, Side};
use shardstream::formats::{
    FormatParser, JsonLines, Parsed, ParserStart, ReaderChunks, SamplePlace, ShardFormat, ShardParser, read,
};
use shardstream::index::AutoIndex;
use shardstream::loader::{Batches, Failures, LoaderBuilder, OnError};
use shardstream::prelude::*;
use shardstream::tar::Limits;
use shardstream::{ErrorKind, Position, Result};
use std::path::Path;

const SIZES: [usize; 5] = [7, 12, 1, 9, 6];

fn line(shard: usize, number: usize) -> String {
    format!(r#"{{"id": "s{shard}-{number}", "text": "{}"}}"#, "ab ".repeat(1 + (shard * 5 + number) % 9))
}

/// Writes the same samples as JSON lines with this suffix, and as tar shards with a field `json`. Returns
/// both patterns.
fn write(directory: &Path, suffix: &str) -> [String; 2] {
    for (shard, size) in SIZES.into_iter().enumerate() {
        let lines: Vec<String> = (0..size).map(|number| line(shard, number)).collect();
        let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>().into_bytes();
        let bytes = match suffix {
            #[cfg(feature = "gzip")]
            "jsonl.gz" => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                std::io::Write::write_all(&mut encoder, &text).unwrap();
                encoder.finish().unwrap()
            }
            #[cfg(feature = "zstd")]
            "jsonl.zst" => zstd::encode_all(&text[..], 1).unwrap(),
            _ => text,
        };
        std::fs::write(directory.join(format!("{shard}.{suffix}")), bytes).unwrap();
        let sample = |(number, line): (usize, &String)| {
            Sample::new(format!("{number:09}")).with("json", line.clone().into_bytes())
        };
        let samples: Vec<Sample> = lines.iter().enumerate().map(sample).collect();
        std::fs::write(directory.join(format!("{shard}.tar")), crate::support::archive(&samples)).unwrap();
    }
    [suffix, "tar"].map(|suffix| format!("{}/{{0..4}}.{suffix}", directory.display()))
}

fn suffixes() -> Vec<&'static str> {
    let mut suffixes = vec!["jsonl", "ndjson"];
    suffixes.extend(cfg!(feature = "gzip").then_some("jsonl.gz"));
    suffixes.extend(cfg!(feature = "zstd").then_some("jsonl.zst"));
    suffixes
}

fn dataset(pattern: &str) -> DatasetBuilder {
    Dataset::builder(pattern).shuffle_shards(true).streams(2).seed(11)
}

type Item = (String, Position, Vec<u8>);

fn items(dataset: DatasetBuilder) -> LoaderBuilder<Item> {
    Loader::builder(dataset.build().unwrap()).shuffle(6).threads(2).map(|sample| {
        let json = sample.get("json").and_then(Value::as_bytes).unwrap().to_vec();
        Ok((sample.key().to_owned(), sample.position(), json))
    })
}

fn loader(dataset: DatasetBuilder) -> Loader<Batch<Item>> {
    items(dataset).batch(4).build().unwrap()
}

fn batches(batches: Batches<Batch<Item>>) -> Vec<Vec<Item>> {
    batches.map(|batch| batch.unwrap().into_items()).collect()
}

fn samples(bytes: &[u8], format: &dyn ShardFormat, limits: Limits) -> Vec<Result<Sample>> {
    let parser = FormatParser::of(format, "s.jsonl", limits);
    read([Ok(Bytes::copy_from_slice(bytes))].into_iter(), parser).collect()
}

fn lines_of(bytes: &[u8]) -> Vec<String> {
    let samples = samples(bytes, &JsonLines::new(), Limits::default()).into_iter().map(Result::unwrap);
    samples
        .map(|sample| String::from_utf8_lossy(sample.get("json").unwrap().as_bytes().unwrap()).into())
        .collect()
}

#[test]
fn json_lines_have_the_order_of_tar_shards_and_resume_anywhere() {
    for suffix in suffixes() {
        let dir = tempfile::tempdir().unwrap();
        let patterns = write(dir.path(), suffix);
        for indexed in [false, true] {
            let [lines, archives] = patterns.each_ref().map(|pattern| {
                let dataset = dataset(pattern);
                if indexed {
                    dataset.auto_index(AutoIndex::in_directory(dir.path().join("index")))
                } else {
                    dataset
                }
            });
            let expected = batches(loader(archives).epoch(0));
            let loader = loader(lines);
            assert_eq!(batches(loader.epoch(0)), expected, "{suffix} {indexed}");
            for stop in 0..=expected.len() {
                let mut read = loader.epoch(0);
                assert!(stop == 0 || read.by_ref().take(stop).every(|batch| batch.is_ok()));
                let state = read.state();
                drop(read);
                assert_eq!(
                    batches(loader.restore(&state).unwrap()),
                    expected[stop..],
                    "{suffix} {indexed} {stop}"
                );
            }
        }
    }
}

#[test]
fn an_index_of_json_lines_says_where_each_line_is() {
    let dir = tempfile::tempdir().unwrap();
    let pattern = &write(dir.path(), "jsonl")[0];
    let shards = ShardList::expand(pattern).unwrap();
    let built = Index::builder().checksums(true).build(&shards).unwrap();
    for name in ["index.json", "index.shidx"] {
        let url = dir.path().join(name).display().to_string();
        built.save(&Store::default(), &url).unwrap();
        let index = Index::load(&Store::default(), &url).unwrap();
        assert_eq!((index.samples(), &index), (35, &built), "{name}");
        for (shard, url) in shards.iter().enumerate() {
            let (entry, bytes) =
                (index.get(url.expose_secret()).unwrap(), std::fs::read(url.expose_secret()).unwrap());
            for number in 0..SIZES[shard] {
                let (name, range) = entry.members(number as u64).unwrap().next().unwrap();
                let found = &bytes[range.start as usize..range.end as usize];
                assert_eq!((name, found), ("json", line(shard, number).as_bytes()));
                let range = entry.range(number as u64..number as u64 + 1).unwrap();
                assert_eq!(bytes[range.start as usize..range.end as usize], [found, b"\n"].concat());
            }
        }
        let dataset = dataset(pattern).index(index).checksums(true).build().unwrap();
        assert_eq!(dataset.samples(0).results().filter(|sample| sample.is_ok()).count(), 35);
    }
    // Checksums reveal that a line has changed, although the file has the same size as before.
    let first = shards[1].expose_secret();
    let text = std::fs::read_to_string(first).unwrap().replacen("ab", "xy", 1);
    std::fs::write(first, text).unwrap();
    let dataset = dataset(pattern).index(built.without_versions()).checksums(true).build().unwrap();
    let errors: Vec<_> = dataset.samples(0).results().filter_map(Result::err).collect();
    assert!(matches!(errors[..], [ref error] if matches!(error.kind(), ErrorKind::SampleChecksum { .. })));
    assert_eq!(errors[0].location().offset(), Some(0), "{}", errors[0]);
}

#[test]
fn a_mixture_and_a_join_take_both_formats() {
    let dir = tempfile::tempdir().unwrap();
    let [lines, archives] = write(dir.path(), "jsonl");
    let mixed = || {
        let mixed = Loader::mix([items(dataset(&lines)), items(dataset(&archives))]);
        mixed.batch(4).build().unwrap()
    };
    let whole = batches(mixed().epoch(0));
    assert_eq!(whole.iter().map(Vec::len).sum::<usize>(), 70);
    let mut begun = mixed().epoch(0);
    assert!(begun.by_ref().take(7).every(|batch| batch.is_ok()));
    assert_eq!(batches(mixed().restore(&begun.state()).unwrap()), whole[7..]);

    let joined = dataset(&archives).join(Side::new(&*lines).prefix("line."));
    let joined = joined.build().unwrap();
    assert!(joined.samples(0).results().every(|sample| {
        let sample = sample.unwrap();
        sample.get("json").unwrap().as_bytes() == sample.get("line.json").unwrap().as_bytes()
    }));
}

#[test]
fn texts_of_json_lines_are_packed_into_rows_and_resume() {
    let dir = tempfile::tempdir().unwrap();
    let pattern = &write(dir.path(), "jsonl")[0];
    let loader = Loader::builder(dataset(pattern).build().unwrap())
        .decode(Decoder::new())
        .map(|sample| match sample.get("json") {
            Some(Value::Json(json)) => {
                Ok(json["text"].as_str().unwrap().bytes().map(u32::from).collect::<Vec<_>>())
            }
            other => panic!("{other:?}"),
        })
        .pack(32)
        .map(|row| Ok(format!("{row:?}")))
        .batch(2)
        .build()
        .unwrap();
    let rows = |batches: Batches<Batch<String>>| {
        batches.map(|batch| batch.unwrap().into_items()).collect::<Vec<_>>()
    };
    let whole = rows(loader.epoch(0));
    assert!(whole.len() > 3);
    let mut begun = loader.epoch(0);
    assert!(begun.by_ref().take(2).every(|batch| batch.is_ok()));
    assert_eq!(rows(loader.restore(&begun.state()).unwrap()), whole[2..]);
}

#[test]
fn lines_are_cut_as_other_readers_of_json_lines_do() {
    for (bytes, expected) in [
        (&b""[..], &[][..]),
        (b"\n\r\n \t\r\n", &[]),
        (b"{}\n[1]\n", &["{}", "[1]"]),
        (b"{}\r\n[1]\r\n", &["{}", "[1]"]),
        (b"{}\n\n\n[1]", &["{}", "[1]"]),
        (b"\xef\xbb\xbf{}\n\xef\xbb\xbf1\n", &["{}", "\u{feff}1"]),
        (b" {} \n", &[" {} "]),
        (b"1\r2\n", &["1\r2"]),
    ] {
        assert_eq!(lines_of(bytes), expected, "{}", bytes.escape_ascii());
    }
}

#[test]
fn a_line_that_is_no_json_is_an_error_where_it_is_decoded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.jsonl").display().to_string();
    std::fs::write(&path, b"{\"a\": 1}\n{\"a\": \"\xff\"}\nnot json\n{\"a\": 2}\n{\"a\":").unwrap();
    let dataset = Dataset::builder(&*path).build().unwrap();
    assert!(dataset.samples(0).results().every(|sample| sample.is_ok()));
    let decoded: Vec<_> = dataset.samples(0).decode(Decoder::new()).results().collect();
    let numbers: Vec<bool> = decoded.iter().map(Result::is_ok).collect();
    assert_eq!(numbers, [true, false, false, true, false]);
    for error in decoded.into_iter().filter_map(Result::err) {
        assert!(matches!(error.kind(), ErrorKind::Decode { .. }), "{error}");
        assert!(error.to_string().contains("a.jsonl") && error.location().key().is_some(), "{error}");
    }
    let failures = OnError::skip(Failures::decode());
    let loader = Loader::builder(dataset).on_error(failures).decode(Decoder::new()).batch(1).build().unwrap();
    assert_eq!(loader.epoch(0).map(Result::unwrap).count(), 2);
}

#[test]
fn a_line_beyond_the_limit_is_an_error_and_the_next_one_follows() {
    let mut limits = Limits::default();
    limits.sample = 10;
    let text = [&b"1\n"[..], &[b'x'; 11], b"\n2\n", &[b'y'; 10], b"\n", &[b'z'; 5000]].concat();
    for cut in [1, 3, 4, 12, text.len()] {
        let parser = FormatParser::of(&JsonLines::new(), "s.jsonl", limits);
        let chunks = text.chunks(cut).map(|chunk| Ok(Bytes::copy_from_slice(chunk)));
        let found: Vec<_> = read(chunks, parser).collect();
        let numbers: Vec<_> =
            found.iter().map(|it| it.as_ref().ok().map(|it| it.position().sample)).collect();
        assert_eq!(numbers, [Some(0), None, Some(2), Some(3), None], "{cut}");
        let error = found[1].as_ref().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TooLarge { size: 11, limit: 10, .. }), "{error:?}");
        assert_eq!((error.location().shard(), error.location().offset()), (Some("s.jsonl"), Some(2)));
    }
}

#[test]
fn keys_are_numbers_or_a_member() {
    let keys = |bytes: &[u8]| -> Vec<std::result::Result<String, String>> {
        let samples = samples(bytes, &JsonLines::new().key("id"), Limits::default()).into_iter();
        samples
            .map(|sample| sample.map(|it| it.key().to_owned()).map_err(|error| error.to_string()))
            .collect()
    };
    let good =
        b"{\"id\": \"a/b\", \"x\": [{}]}\n{\"x\": 1, \"id\": 18446744073709551615}\n{\"id\": 1, \"id\": -2}";
    assert_eq!(keys(good), ["a/b", "18446744073709551615", "-2"].map(|key| Ok(key.to_owned())));
    for (line, why) in [
        (r#"{"name": "s3cret"}"#, "no member \"id\""),
        (r#"{"id": {"s3cret": 1}}"#, "neither text nor a whole number"),
        (r#"{"id": 1.5}"#, "neither text nor a whole number"),
        (r#"{"id": ""}"#, "neither text nor a whole number"),
        (r#""s3cret""#, "not a JSON object"),
        (r#"{"id": "s3cret" "#, "not JSON"),
        (r#"{"id": 1} s3cret"#, "not JSON"),
    ] {
        let error = keys(line.as_bytes()).pop().unwrap().unwrap_err();
        assert!(error.contains(why) && error.contains("s.jsonl") && !error.contains("s3cret"), "{error}");
    }
    let dir = tempfile::tempdir().unwrap();
    let shards = ShardList::expand(&write(dir.path(), "jsonl")[0]).unwrap();
    let keys = Index::builder().format(JsonLines::new().key("id")).build_keys(&shards).unwrap();
    assert_eq!(keys.find("s3-4").unwrap(), [(3, 4)]);
}

#[test]
fn a_directory_of_json_lines_is_its_shards_unless_there_are_archives() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "jsonl");
    let count = |at: &Path| Dataset::builder(at.to_str().unwrap()).build().unwrap().shards().len();
    let first = |at: &Path| Dataset::builder(at.to_str().unwrap()).build().unwrap().shards()[0].to_string();
    assert!(count(dir.path()) == 5 && first(dir.path()).ends_with("0.tar"));
    (0..5).for_each(|shard| std::fs::remove_file(dir.path().join(format!("{shard}.tar"))).unwrap());
    assert!(count(dir.path()) == 5 && first(dir.path()).ends_with("0.jsonl"));
}

#[test]
fn any_reader_is_read_once_as_a_shard() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "jsonl");
    let open = |name: &str| std::fs::File::open(dir.path().join(name)).unwrap();
    for name in ["1.tar", "1.jsonl"] {
        let parser = FormatParser::by_name(name, Limits::default());
        let mut samples = read(ReaderChunks::new(open(name)), parser);
        assert_eq!(samples.by_ref().map(Result::unwrap).count(), 12, "{name}");
        assert!(samples.is_complete(), "{name}");
    }
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("unplugged"))
        }
    }
    let chunks = ReaderChunks::new(std::io::Read::chain(&b"1\n2"[..], Broken));
    let found: Vec<_> = read(chunks, FormatParser::by_name("s.jsonl", Limits::default())).collect();
    let [Ok(_), Err(error)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((error.location().shard(), error.location().offset()), (Some("s.jsonl"), Some(3)));
    let error = Dataset::builder("-").build().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)) && error.to_string().contains("read again"));
}

/// A format in which each byte is a sample, except `!`, which is an error. Its parser reports sample offsets
/// that are `lie` bytes too low.
#[derive(Debug, Clone, Copy)]
struct EachByte {
    lie: u64,
    is_stuck: bool,
}

#[derive(Debug)]
struct ByteParser {
    format: EachByte,
    chunk: Bytes,
    offset: u64,
    is_finished: bool,
}

impl ShardFormat for EachByte {
    fn parser(&self, start: &ParserStart) -> Box<dyn ShardParser> {
        let (chunk, offset) = (Bytes::new(), start.offset);
        Box::new(ByteParser { format: *self, chunk, offset, is_finished: false })
    }
}

impl ShardParser for ByteParser {
    fn push(&mut self, chunk: Bytes) {
        self.chunk = [&self.chunk[..], &chunk[..]].concat().into();
    }

    fn finish(&mut self) {
        self.is_finished = !self.format.is_stuck;
    }

    fn next(&mut self) -> Result<Parsed> {
        if self.chunk.is_empty() {
            return Ok(if self.is_finished { Parsed::End } else { Parsed::NeedInput });
        }
        self.offset += 1;
        match self.chunk.get_u8() {
            b'!' => {
                Err(shardstream::Error::from(ErrorKind::Format("a bad byte".into()))
                    .at_offset(self.offset - 1))
            }
            byte => Ok(Parsed::Sample(Sample::new(format!("{}", self.offset - 1)).with("json", vec![byte]))),
        }
    }

    fn place(&self) -> Option<SamplePlace> {
        let offset = self.offset - 1 - self.format.lie.min(self.offset - 1);
        Some(SamplePlace::new(offset, std::iter::once(offset..offset + 1)))
    }
}

#[test]
fn a_format_of_ones_own_has_order_states_and_indexes() {
    let dir = tempfile::tempdir().unwrap();
    for (shard, size) in SIZES.into_iter().enumerate() {
        std::fs::write(dir.path().join(format!("{shard}.x")), vec![b'a' + shard as u8; size]).unwrap();
    }
    let pattern = &format!("{}/{{0..4}}.x", dir.path().display());
    let archives = &write(dir.path(), "jsonl")[1];
    // With `lie`, the reported offsets do not ascend. The reader then ignores the offsets and reads the
    // shards from their beginning.
    for lie in [0, 3] {
        for indexed in [false, true] {
            let format = EachByte { lie, is_stuck: false };
            let index = |pattern: &str, own: bool| {
                let shards = ShardList::expand(pattern).unwrap();
                let builder = Index::builder();
                if own { builder.format(format).build(&shards) } else { builder.build(&shards) }.unwrap()
            };
            let own = dataset(pattern).format(format);
            let own = if indexed { own.index(index(pattern, true)) } else { own };
            let tar = dataset(archives);
            let tar = if indexed { tar.index(index(archives, false)) } else { tar };
            let positions = |batches: &[Vec<Item>]| -> Vec<Vec<Position>> {
                batches.iter().map(|batch| batch.iter().map(|item| item.1).collect()).collect()
            };
            let (own, expected) = (loader(own), positions(&batches(loader(tar).epoch(0))));
            assert_eq!(positions(&batches(own.epoch(0))), expected);
            let mut begun = own.epoch(0);
            assert!(begun.by_ref().take(4).every(|batch| batch.is_ok()));
            assert_eq!(positions(&batches(own.restore(&begun.state()).unwrap())), expected[4..]);
        }
    }
}

#[test]
fn errors_of_a_format_of_ones_own_count_as_samples_and_can_be_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.x").display().to_string();
    std::fs::write(&path, b"ab!d").unwrap();
    let format = EachByte { lie: 0, is_stuck: false };
    let dataset = Dataset::builder(&*path).format(format).build().unwrap();
    let found: Vec<_> = dataset.samples(0).results().collect();
    let numbers: Vec<_> = found.iter().map(|it| it.as_ref().ok().map(|it| it.position().sample)).collect();
    assert_eq!(numbers, [Some(0), Some(1), None, Some(3)]);
    let error = found[2].as_ref().unwrap_err().to_string();
    assert!(error.contains("bad data in the shard: a bad byte") && error.contains("0.x"), "{error}");
    let policy = OnError::skip(Failures::damage());
    let loader = Loader::builder(dataset).on_error(policy).batch(1).build().unwrap();
    assert_eq!(loader.epoch(0).map(Result::unwrap).count(), 3);
    let index = Index::builder().format(format).build(&ShardList::from_urls([&*path]));
    assert!(matches!(index.unwrap_err().kind(), ErrorKind::Format(_)));

    let stuck = EachByte { lie: 0, is_stuck: true };
    let dataset = Dataset::builder(&*path).format(stuck).build().unwrap();
    let last = dataset.samples(0).results().last().unwrap().unwrap_err();
    assert!(last.to_string().contains("asks for more bytes"), "{last}");
}

#[test]
fn short_reads_give_short_chunks() {
    struct Single<R>(R);
    impl<R: std::io::Read> std::io::Read for Single<R> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(&mut buffer[..1])
        }
    }
    for chunk in ReaderChunks::new(Single(&b"1\n2\n"[..])) {
        let capacity = chunk.unwrap().try_into_mut().unwrap().capacity();
        assert!(capacity < 64, "{capacity} bytes are kept for one");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A parser that starts at any line returns that line and the lines after it, however the bytes are cut
    /// into chunks.
    #[test]
    fn lines_are_the_same_from_any_place_and_in_any_chunks(
        text in prop::collection::vec(prop::sample::select(b"\n\r {}1\xef\xbb\xbf".to_vec()), 0..60),
        cut in 1usize..9,
    ) {
        let parse = |start: ParserStart| {
            let mut parser = JsonLines::new().parser(&start);
            let mut chunks = text[start.offset as usize..].chunks(cut);
            let mut found = Vec::new();
            loop {
                match parser.next().unwrap() {
                    Parsed::NeedInput => match chunks.next() {
                        Some(chunk) => parser.push(Bytes::copy_from_slice(chunk)),
                        None => parser.finish(),
                    },
                    Parsed::Sample(sample) => {
                        let place = parser.place().unwrap();
                        let bytes = sample.get("json").unwrap().as_bytes().unwrap().clone();
                        let field = place.fields[0].clone();
                        assert_eq!(bytes, text[field.start as usize..field.end as usize]);
                        found.push((sample.key().to_owned(), bytes, place.offset));
                    }
                    _ => return found,
                }
            }
        };
        let whole = parse(ParserStart::new(Limits::default()));
        for (number, (_, _, offset)) in whole.iter().enumerate() {
            let mut start = ParserStart::new(Limits::default());
            (start.sample, start.offset) = (number as u64, *offset);
            prop_assert_eq!(parse(start), whole[number..].to_vec());
        }
    }
}
