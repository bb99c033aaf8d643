//! Reads columns of each type, encoding and compression.

use crate::{data, row, texts};
use shardstream::codec::DType;
use shardstream::prelude::*;
use shardstream::{Array, Error, ErrorKind, Result};
use shardstream_parquet::Parquet;

/// Files with the same rows in different encodings and compressions.
const KINDS: [&str; 4] =
    ["kinds-plain.parquet", "kinds-dictionary.parquet", "kinds-delta.parquet", "kinds-lz4.parquet"];

fn read(name: &str, format: Parquet) -> Result<Vec<Sample>> {
    let dataset = Dataset::builder(data(name).display().to_string()).format(format).build()?;
    dataset.samples(0).results().collect()
}

/// The sample of row `number` of the table that `kinds()` in `write.py` returns.
fn expected(number: i64) -> Sample {
    let sample = Sample::new(format!("{number:09}")).with("key", format!("k{number}").into_bytes());
    if number % 5 == 3 {
        return sample;
    }
    let scalar = |dtype, bytes: Vec<u8>| Array::new(dtype, vec![], bytes).unwrap();
    let small = number as u8;
    let image = sample
        .with("text", format!("text {}", number % 7).into_bytes())
        .with("blob", [small, 255].repeat(number as usize % 4))
        .with("uuid", vec![small; 16])
        .with("flag", i64::from(number % 3 == 0))
        .with("i8", number - 20)
        .with("u32", (1 << 32) - 1 - number)
        .with("i64", number - (1 << 40))
        .with("f32", scalar(DType::F32, (number as f32 / 4.).to_le_bytes().to_vec()))
        .with("f64", scalar(DType::F64, (0. - number as f64 / 8.).to_le_bytes().to_vec()))
        .with("day", number)
        .with("image.bytes", vec![small]);
    let sample =
        if number % 2 == 1 { image.with("image.path", format!("{number}.png").into_bytes()) } else { image };
    let tokens: Vec<u16> = (0..number as u16 % 6).collect();
    let scores = vec![number as f32 / 2.; number as usize % 3];
    sample
        .with("tokens", Array::from_vec(vec![tokens.len()], tokens).unwrap())
        .with("scores", Array::from_vec(vec![scores.len()], scores).unwrap())
}

#[test]
fn each_encoding_and_compression_gives_the_values_that_were_written() {
    let expected: Vec<_> = (0..40).map(|number| row(&expected(number))).collect();
    for name in KINDS {
        let found: Vec<_> = read(name, Parquet::new()).unwrap().iter().map(row).collect();
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn chosen_columns_are_the_fields_and_a_column_is_the_key() {
    for name in KINDS {
        let format = Parquet::new().columns(["tokens", "image"]).key("key");
        for (number, sample) in read(name, format).unwrap().iter().enumerate() {
            let mut other = expected(number as i64);
            other.retain(|field| field.starts_with("image.") || field == "tokens");
            assert_eq!(row(sample).replacen(&format!("k{number}"), other.key(), 1), row(&other));
            assert_eq!(sample.key(), format!("k{number}"));
        }
        let keyed = read(name, Parquet::new().key("key")).unwrap();
        assert!(keyed.iter().all(|sample| sample.get("key").is_some()), "all columns are fields");
    }
}

#[test]
fn any_row_is_read_by_its_number() {
    for name in KINDS {
        let dataset = Dataset::builder(data(name).display().to_string()).format(Parquet::new());
        let view = dataset.build().unwrap().indexed_view().unwrap();
        assert_eq!(view.len(), 40);
        for number in [0, 39, 15, 16, 31, 32, 7] {
            assert_eq!(row(&view.get(number).unwrap()), row(&expected(number as i64)), "{name}");
        }
        let some: Vec<_> = view.get_many(&[38, 2, 17]).unwrap().iter().map(row).collect();
        assert_eq!(some, [38, 2, 17].map(|number| row(&expected(number))));
    }
}

#[test]
fn texts_are_decoded_and_packed() {
    let dataset = Dataset::builder(texts()).format(Parquet::new().columns(["text"])).build().unwrap();
    let loader = Loader::builder(dataset).decode(Decoder::new()).map(|mut sample| {
        let text: String = sample.take("text")?;
        Ok(text.bytes().map(u32::from).collect::<Vec<_>>())
    });
    let rows = loader.pack(64).map(|row| Ok(format!("{row:?}"))).batch(4).build().unwrap();
    assert!(rows.epoch(0).map(|batch| batch.unwrap().len()).sum::<usize>() > 100);
}

#[test]
fn a_file_without_rows_has_no_samples() {
    let files = ["empty.parquet", "texts-0.parquet"].map(|name| data(name).display().to_string());
    let dataset = Dataset::builder(ShardList::from_urls(files)).format(Parquet::new()).build().unwrap();
    let samples = dataset.samples(0).results().collect::<Result<Vec<_>>>().unwrap();
    assert_eq!((samples.len(), samples[0].position().shard), (150, 1));
}

fn refused(name: &str, format: Parquet) -> Error {
    read(name, format).unwrap_err()
}

#[test]
fn what_cannot_be_read_is_an_error_that_names_the_column() {
    for (name, format, expected) in [
        ("nested.parquet", Parquet::new(), "\"words\" is a list of texts or bytes"),
        ("nested.parquet", Parquet::new().columns(["map"]), "\"map\" is a map"),
        ("nested.parquet", Parquet::new().columns(["txt"]), "no column \"txt\", but \"text\", \"words\""),
        ("nested.parquet", Parquet::new().columns(["text"]).key("id"), "no column \"id\" for keys"),
        ("nested.parquet", Parquet::new().columns([""; 0]), "no column of it is read"),
        ("brotli.parquet", Parquet::new(), "\"text\" of row group 0 is compressed by Brotli"),
        ("write.py", Parquet::new(), "no Parquet file"),
    ] {
        let error = refused(name, format);
        let is_damage = matches!(error.kind(), ErrorKind::Format(_));
        assert!(is_damage || matches!(error.kind(), ErrorKind::Unsupported(_)), "{error:?}");
        assert!(error.to_string().contains(expected) && error.to_string().contains(name), "{error}");
    }
    let texts = read("nested.parquet", Parquet::new().columns(["text"])).unwrap();
    assert_eq!(texts.iter().map(row).collect::<Vec<_>>(), ["000000000 text=b\"a\"", "000000001 text=b\"b\""]);
}

#[test]
fn a_row_without_a_key_is_an_error() {
    let found = read("kinds-plain.parquet", Parquet::new().columns(["key"]).key("text"));
    let error = found.unwrap_err();
    assert!(error.to_string().contains("the column \"text\" of row 3, its key"), "{error}");
}
