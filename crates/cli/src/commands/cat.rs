//! `shardstream cat`

use crate::context::Context;
use crate::failure::Failure;
use crate::field::{FieldKind, name_of};
use crate::options::IndexedPatterns;
use crate::samples;
use crate::text;
use shardstream::Sample;
use std::ops::ControlFlow;

/// Write one field to stdout, as it is stored.
///
/// Writes the field of one sample (--key or --nth), or of all samples in order. If it writes all samples,
/// each text, number and JSON document that does not end in a line break gets one. If the pattern
/// is `-`, an uncompressed archive is read from stdin.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    patterns: IndexedPatterns,
    /// The field. Semicolons separate alternatives, as in "jpg;png".
    #[arg(long, value_name = "FIELD")]
    field: String,
    /// Only the sample with this key. With an --index that was built with `index build --keys`, only the
    /// bytes of the sample are read.
    #[arg(long, value_name = "KEY", conflicts_with = "nth")]
    key: Option<String>,
    /// Only the sample with this number, counted from 0 in the order of the shards. With --index, only the
    /// bytes of the sample are read.
    #[arg(long, value_name = "NUMBER")]
    nth: Option<u64>,
}

pub(crate) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    let (shards, index) = options.patterns.shards_or_stdin(context)?;
    if let (Some(index), Some(nth)) = (&index, options.nth) {
        return match samples::nth(&shards, index, nth, context)? {
            Some(sample) => write(&sample, &options.field, true, context),
            None => Err(Failure::Failed(format!("there is no sample {nth} in the index, counted from 0"))),
        };
    }
    if let (Some(index), Some(place), Some(key)) = (&index, options.patterns.index_place(), &options.key)
        && let Some(sample) = samples::by_key(&shards, (index, place), key, context)?
    {
        return write(&sample, &options.field, true, context);
    }
    let is_one = options.key.is_some() || options.nth.is_some();
    let (mut number, mut has_written) = (0, false);
    samples::as_indexed(&shards, index.as_ref(), context, "cat", |sample| {
        let is_selected = match (&options.key, options.nth) {
            (Some(key), _) => sample.key() == key,
            (None, Some(nth)) => number == nth,
            (None, None) => true,
        };
        number += 1;
        if !is_selected {
            return Ok(ControlFlow::Continue(()));
        }
        // A single sample must have the field; if all samples are written, at least one of them must have it.
        if is_one || sample.get(&options.field).is_some() {
            write(&sample, &options.field, is_one, context)?;
            has_written = true;
        }
        Ok(if is_one { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    match (has_written, &options.key, options.nth) {
        (true, ..) => Ok(()),
        (false, Some(key), _) => Err(Failure::Failed(format!("no sample has the key {key:?}"))),
        (false, None, Some(nth)) => {
            let samples = text::counted(number, "sample");
            Err(Failure::Failed(format!("there is no sample {nth}: there are {samples}, counted from 0")))
        }
        (false, None, None) => {
            Err(Failure::Failed(format!("none of {number} samples has a field {:?}", options.field)))
        }
    }
}

fn write(sample: &Sample, spec: &str, is_one: bool, context: &Context) -> Result<(), Failure> {
    let value = sample.field(spec)?;
    let name = name_of(sample, value).unwrap_or(spec);
    let Some(bytes) = value.as_bytes() else { return Ok(()) };
    let is_text = FieldKind::of(name).is_text() && !name.to_ascii_lowercase().ends_with(".gz");
    if context.output.is_terminal() && !is_text && std::str::from_utf8(bytes).is_err() {
        let message = format!("the field {name:?} is not text: write it to a file, as in `> out.{name}`");
        return Err(Failure::Failed(message));
    }
    context.output.field(bytes)?;
    match !is_one && is_text && !bytes.ends_with(b"\n") {
        true => context.output.bytes(b"\n"),
        false => Ok(()),
    }
}
