//! The differences from Python's `webdataset` that `docs/webdataset.md` lists: unusual shards, and what each
//! library reads from them. `differential.rs` tests the shards that both libraries read alike.

use crate::support::python::Python;
use crate::support::read_samples;
use shardstream::codec::Decoder;
use shardstream::{Error, Result, Sample, Value};
use std::path::Path;

/// The name of a shard that `differences.py` writes; what `webdataset` reads from it; what this crate reads
/// from it. Each result lists the samples with their fields, or one decoded field, and then the error that
/// ended the reading, if any.
type Row = (&'static str, &'static str, &'static str);

/// Some rows are cases in which one would expect a difference, and there is none.
const ROWS: &[Row] = &[
    ("cut_at_a_member.tar", "a: txt cls; b: txt", "a: txt cls; Truncated"),
    ("cut_in_a_header.tar", "a: txt cls; b: txt", "a: txt cls; Truncated"),
    ("bad_checksum.tar", "a: txt cls", "Checksum"),
    ("no_end.tar", "a: txt cls; b: txt cls", "a: txt cls; Truncated"),
    ("half_an_end.tar", "a: txt cls; b: txt cls", "a: txt cls; Truncated"),
    ("no_bytes.tar", "ReadError", "Truncated"),
    ("zeros.tar", "", ""),
    ("two_archives.tar", "a: txt cls; b: txt cls", "a: txt cls; ArchiveEnd"),
    ("bytes_after_the_end.tar", "a: txt cls; b: txt cls", "a: txt cls; ArchiveEnd"),
    ("cut.tar.gz", "a: txt cls; b: txt", "a: txt cls; Decompress"),
    ("two_members.tar.gz", "ReadError", "a: txt cls; b: txt cls"),
    ("two_members_of_two_samples.tar.gz", "a: txt cls", "a: txt cls; b: txt cls"),
    ("zeros_after.tar.gz", "a: txt cls; b: txt cls", "a: txt cls; Decompress"),
    ("scattered.tar", "a: txt; b: txt; a: cls; c: txt", "a: txt; b: txt; ScatteredSample; c: txt"),
    ("duplicate.tar", "ValueError", "DuplicateMember; b: txt"),
    ("hard_link.tar", "a: txt; b: txt", "Header; b: txt"),
    ("symbolic_link.tar", "a: txt; b: txt", "Header; b: txt"),
    ("hidden.tar", "d/a: txt; d/: _a.txt", "d/a: txt"),
    ("sparse.tar", "a: txt", "Header"),
    ("key_field.tar", "ValueError", "a: __key__ txt; b: txt"),
    ("url_field.tar", "ValueError", "a: txt __url__; b: txt"),
    ("bad_field.tar", "b: txt", "a: __bad__ txt; b: txt"),
    ("not_utf8.tar", "aÿ: txt; b: txt", "Header; b: txt"),
    ("pax_path_with_a_slash.tar", "a: txt; b: txt", "a: txt; b: txt"),
    ("two_pax_headers.tar", "a: txt", "Header"),
    ("global_header_alone.tar", "ReadError", ""),
    ("multi_volume.tar", "b: txt", "Header"),
    ("gzip_named.tar", "a: txt cls; b: txt cls", "UnsupportedCompression"),
    ("bzip2.tar.bz2", "a: txt cls; b: txt cls", "UnsupportedCompression"),
    ("xz.tar.xz", "a: txt cls; b: txt cls", "UnsupportedCompression"),
    ("json_null.tar", "bytes 6e756c6c", "json null"),
    ("json_nan.tar", "json [NaN]", "Decode"),
    ("json_1e400.tar", "json [Infinity]", "Decode"),
    ("json_lone_surrogate.tar", "json [\"\\ud800\"]", "Decode"),
    ("json_depth_200.tar", "json [[[[[[[[[[[[[[[[[[[[…", "Decode"),
    ("json_utf16.tar", "json [1]", "Decode"),
    ("json_beyond_64_bits.tar", "json [18446744073709551617]", "json [1.8446744073709552e+19]"),
    ("cls_beyond_64_bits.tar", "int 9223372036854775808", "Decode"),
    ("class.tar", "bytes 37", "int 7"),
    ("gz_members.tar", "text texttext", "text texttext"),
    ("gz_padding.tar", "text text", "text text"),
    (
        "gz_of_an_unknown_field.tar",
        "bytes 74657874",
        "bytes 1f8b08000000000002032b49ad280100c7a78b3b04000000",
    ),
    ("npy_without_byte_order.tar", "array float32 0000803f", "array float32 0000803f"),
    ("npy_native_byte_order.tar", "array float32 0000803f", "array float32 0000803f"),
    ("npy_complex.tar", "array complex64 0000803f00000040", "Decode"),
    ("npy_text.tar", "array <U1 61000000", "Decode"),
    ("npy_records.tar", "array [('a', '<i2')] 0100", "Decode"),
    ("npy_objects.tar", "DecodingError", "Pickle"),
    ("npz_twice.tar", "arrays a=02", "Decode"),
    ("npz_renamed.tar", "DecodingError", "Decode"),
    ("pickle.tar", "int 7", "Pickle"),
    ("msgpack.tar", "int 7", "bytes 07"),
    ("pgm_maxval_100.tar", "pixels ff80", "pixels ff80"),
    ("pgm_maxval_1000.tar", "pixels ff", "pixels 80"),
    ("pgm_maxval_65535.tar", "pixels ff", "pixels 80"),
    ("pgm_of_no_width.tar", "DecodingError", "Decode"),
    ("png_16_bits_grey.tar", "pixels ff", "pixels 80"),
    ("jpg_cut.tar", "pixels (32, 32)", "Decode"),
];

fn kind(error: &Error) -> String {
    let kind = format!("{:?}", error.kind());
    kind.split(|c: char| !c.is_alphanumeric()).next().unwrap().to_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn shown(value: &Value) -> String {
    match value {
        Value::Bytes(bytes) => format!("bytes {}", hex(bytes)),
        Value::Text(text) => format!("text {text}"),
        Value::Int(int) => format!("int {int}"),
        Value::Json(json) => format!("json {json}"),
        Value::Array(array) => format!("array {} {}", array.dtype(), hex(array.data())),
        #[cfg(feature = "image")]
        Value::Image(image) => format!("pixels {}", hex(image.as_u8().expect("8 bits were requested"))),
        other => panic!("{}", other.type_name()),
    }
}

/// What this crate reads from a shard. A sample with the key `k` has a single field; for this sample, the
/// result has the field's decoded value.
fn ours(path: &Path) -> String {
    let decoder = Decoder::new();
    #[cfg(feature = "image")]
    let decoder = decoder.images(shardstream::image::ImageMode::L8);
    let show = |sample: Sample| -> Result<String> {
        if sample.key() != "k" {
            let fields: Vec<&str> = sample.fields().map(|(name, _)| name).collect();
            return Ok(format!("{}: {}", sample.key(), fields.join(" ")));
        }
        let sample = decoder.decode(sample)?;
        let (_, value) = sample.fields().next().expect("it has one field");
        Ok(shown(value))
    };
    let url = path.to_str().unwrap();
    if let Err(error) = shardstream::store::Store::default().open(url) {
        return kind(&error);
    }
    let samples = read_samples(path).into_iter().map(|sample| sample.and_then(show));
    samples.map(|shown| shown.unwrap_or_else(|error| kind(&error))).collect::<Vec<_>>().join("; ")
}

/// Whether a row needs a feature that this build lacks.
fn is_left_out(name: &str) -> bool {
    let gzip = name.ends_with(".gz") || name.starts_with("gz_");
    let image = ["pgm_", "png_", "jpg_"].iter().any(|kind| name.starts_with(kind));
    let npz = name.starts_with("npz_");
    gzip && !cfg!(feature = "gzip") || image && !cfg!(feature = "image") || npz && !cfg!(feature = "npz")
}

#[test]
#[ignore = "needs Python with webdataset: see CONTRIBUTING.md"]
fn each_library_reads_odd_shards_as_documented() {
    let python = Python::find();
    let dir = tempfile::tempdir().unwrap();
    let theirs = python.differences(dir.path());
    let theirs = theirs.as_object().unwrap();
    let mut wrong = Vec::new();
    for (name, there, here) in ROWS.iter().filter(|row| !is_left_out(row.0)) {
        let found = (theirs[*name].as_str().unwrap(), &*ours(&dir.path().join(name)));
        if found != (*there, *here) {
            wrong.push(format!("({name:?}, {:?}, {:?}),", found.0, found.1));
        }
    }
    for name in theirs.keys().filter(|name| ROWS.iter().all(|row| row.0 != **name)) {
        let here = if is_left_out(name) { String::new() } else { ours(&dir.path().join(name)) };
        wrong.push(format!("({name:?}, {:?}, {here:?}), has no row", theirs[name].as_str().unwrap()));
    }
    assert!(wrong.is_empty(), "these rows, and the page, should say:\n{}", wrong.join("\n"));
}
