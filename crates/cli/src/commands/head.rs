//! `shardstream head`

use crate::contact_sheet::{ContactSheet, half_blocks};
use crate::context::Context;
use crate::documents::check_sheet;
use crate::failure::Failure;
use crate::field::{FieldKind, FieldPreview};
use crate::options::{IndexedPatterns, JsonOption};
use crate::samples;
use crate::text;
use serde::Serialize;
use shardstream::codec::Decoder;
use shardstream::Sample;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Show the first samples: their keys and fields.
///
/// Texts, numbers and JSON are shown as text, images by format and size, and arrays by type, shape and first
/// numbers. If the pattern is `-`, an uncompressed archive is read from stdin.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    patterns: IndexedPatterns,
    /// Number of samples to show.
    #[arg(short = 'n', long = "samples", value_name = "COUNT", default_value_t = 10)]
    samples: u64,
    /// Only these fields.
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',')]
    fields: Vec<String>,
    /// Write a contact sheet of the samples' images: a PNG, at a path or URL.
    #[arg(long, value_name = "PNG")]
    sheet: Option<String>,
    /// The longer side of an image on the sheet, in pixels.
    #[arg(long, value_name = "PIXELS", default_value_t = 160)]
    #[arg(value_parser = clap::value_parser!(u32).range(8..=4096))]
    side: u32,
    /// Number of images in a row of the sheet.
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=256))]
    columns: u32,
    /// Show images as coloured blocks in a terminal with 24-bit colour.
    #[arg(long, conflicts_with = "json")]
    terminal: bool,
    #[command(flatten)]
    json: JsonOption,
}

/// A sample in the output of `--json`.
#[derive(Serialize)]
struct HeadRecord<'a> {
    shard: &'a str,
    key: &'a str,
    fields: BTreeMap<&'a str, FieldPreview>,
}

/// Maximum number of pixels of a contact sheet: enough for 10,000 images of 160 x 160 pixels.
const MAX_SHEET_PIXELS: u64 = 1 << 28;
/// Width of an image in a terminal, in characters.
const TERMINAL_COLUMNS: u32 = 48;

pub(crate) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    if let Some(place) = &options.sheet {
        check_sheet(place, context)?;
    }
    let (shards, index) = options.patterns.shards_or_stdin(context)?;
    let decoder = Decoder::new();
    let mut sheet = options.sheet.as_ref().map(|_| ContactSheet::new(options.side, options.columns));
    let mut left = options.samples;
    if left > 0 {
        samples::as_indexed(&shards, index.as_ref(), context, "head", |sample| {
            show(&sample, &options, &decoder, context)?;
            if let Some(sheet) = &mut sheet {
                add_images(&sample, &options, sheet)?;
            }
            left -= 1;
            Ok(if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
    }
    if options.samples > 0 && left == options.samples && !options.json.json {
        context.output.line(format_args!("no samples in {}", text::counted(shards.len() as u64, "shard")))?;
    }
    let (Some(place), Some(sheet)) = (&options.sheet, &sheet) else { return Ok(()) };
    if sheet.len() == 0 {
        return Err(Failure::Failed("no sheet was written: the samples have no images".into()));
    }
    let png = sheet.image()?.to_png().map_err(shardstream::Error::from)?;
    context.store.put(place, &png)?;
    Ok(())
}

fn is_wanted(field: &str, options: &Options) -> bool {
    options.fields.is_empty() || options.fields.iter().any(|wanted| wanted == field)
}

/// Prints a sample.
fn show(sample: &Sample, options: &Options, decoder: &Decoder, context: &Context) -> Result<(), Failure> {
    let wanted = sample.fields().filter(|(field, _)| is_wanted(field, options));
    let fields = wanted.filter_map(|(field, value)| Some((field, value.as_bytes()?)));
    if options.json.json {
        let fields = fields.map(|(field, bytes)| (field, FieldPreview::of(field, bytes, decoder))).collect();
        return context.output.record(&HeadRecord { shard: sample.shard(), key: sample.key(), fields });
    }
    context.output.line(format_args!("{}  {}", sample.key(), sample.shard()))?;
    let width = sample.fields().map(|(field, _)| field.chars().count()).max().unwrap_or(0);
    for (field, bytes) in fields {
        let shown = FieldPreview::of(field, bytes, decoder);
        context.output.line(format_args!("  {:width$}  {}", field, shown.line))?;
        if options.terminal
            && shown.kind == FieldKind::Image
            && let Ok(blocks) = half_blocks(bytes, TERMINAL_COLUMNS)
        {
            context.output.bytes(blocks.as_bytes())?;
        }
    }
    Ok(())
}

/// Adds the images of a sample to the sheet.
fn add_images(sample: &Sample, options: &Options, sheet: &mut ContactSheet) -> Result<(), Failure> {
    for (field, value) in sample.fields() {
        if FieldKind::of(field) != FieldKind::Image || !is_wanted(field, options) {
            continue;
        }
        if let Some(bytes) = value.as_bytes() {
            sheet.add(bytes).map_err(|error| sample.locate(error))?;
        }
        if sheet.len() as u64 * u64::from(options.side).pow(2) > MAX_SHEET_PIXELS {
            let message = "the sheet would have more than 268 million pixels: give a smaller -n or --side";
            return Err(Failure::Usage(message.into()));
        }
    }
    Ok(())
}
