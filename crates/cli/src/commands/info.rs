//! `shardstream info`

use crate::context::Context;
use crate::distribution::{Distribution, DistributionSummary};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::field::{self, FieldContent, FieldKind};
use crate::options::{IndexedPatterns, JsonOption, ThreadsOption};
use crate::parallel::for_each_shard;
use crate::samples::{self, ShardProgress};
use crate::table::Table;
use crate::text;
use serde::Serialize;
use shardstream::codec::Decoder;
use shardstream::index::ShardIndex;
use shardstream::{Error, ErrorKind, Index, Result, Sample, SecretUrl, ShardList, Value};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Show what shards contain: samples, bytes, fields with their types and sizes.
///
/// If the pattern is `-`, an uncompressed archive is read from stdin. --fast cannot read from stdin.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    patterns: IndexedPatterns,
    /// Read only the first COUNT samples.
    #[arg(short = 'n', long = "samples", value_name = "COUNT", conflicts_with_all = ["fast", "index"])]
    samples: Option<u64>,
    /// Read only the headers of the archives, not the fields. The types then come from the field names.
    #[arg(long, conflicts_with = "index")]
    fast: bool,
    #[command(flatten)]
    json: JsonOption,
    #[command(flatten)]
    threads: ThreadsOption,
}

/// The values of one field, over many samples.
#[derive(Debug, Clone, Default)]
struct FieldSummary {
    sizes: Distribution,
    /// Number of values of each type, such as `jpeg` or `float32 [3]`.
    types: BTreeMap<String, u64>,
    heights: Distribution,
    widths: Distribution,
}

/// The content of one shard, or of all shards.
#[derive(Debug, Clone, Default)]
struct ShardContents {
    samples: u64,
    /// Sizes of the samples whose size is known. An index may have only the number of samples of a shard.
    sizes: Distribution,
    bytes: u64,
    fields: BTreeMap<String, FieldSummary>,
}

/// Maximum number of types that are listed for a field. Arrays with different shapes count as different
/// types.
const MAX_TYPES: usize = 8;
/// Once a field has [`MAX_TYPES`] types, the values of all further types are counted under this name.
const OTHER: &str = "other";

pub(crate) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    let (shards, index) = match options.fast {
        true => options.patterns.shards(context)?,
        false => options.patterns.shards_or_stdin(context)?,
    };
    let mut total = ShardContents::default();
    let mut samples_per_shard = Distribution::default();
    match (options.samples, index) {
        (Some(count), _) => {
            let decoder = Decoder::new();
            samples::in_order(&shards, context, "info", |sample| {
                if total.samples < count {
                    total.add_sample(&sample, &decoder);
                }
                Ok(if total.samples >= count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
        }
        (None, index) => {
            let progress = ShardProgress::start(context, "info", shards.len());
            // Samples from headers or an index are counted when their shard is done.
            let is_counted = options.fast || index.is_some();
            let (interrupt, reader, fast) = (context.interrupt.clone(), context.reader.clone(), options.fast);
            let each_sample = progress.clone();
            let work = move |_: usize, url: &SecretUrl| match (&index, fast) {
                (Some(index), _) => of_index(index, url, &interrupt),
                (None, true) => {
                    let builder = reader.index_builder().threads(1);
                    of_index(&builder.build(&ShardList::from_urls([url.clone()]))?, url, &interrupt)
                }
                (None, false) => {
                    let (decoder, mut contents) = (Decoder::new(), ShardContents::default());
                    for sample in reader.samples(url)? {
                        if interrupt.is_set() {
                            break;
                        }
                        contents.add_sample(&sample?, &decoder);
                        each_sample.add_sample();
                    }
                    contents.bytes = reader.size(url)?;
                    Ok(contents)
                }
            };
            for_each_shard(&shards, options.threads.count(), &context.interrupt, work, |_, contents| {
                if is_counted {
                    progress.add_samples(contents.samples);
                }
                progress.add_shard();
                samples_per_shard.add(contents.samples);
                total.merge(&contents);
                Ok(())
            })?;
        }
    }
    let is_part = options.samples.is_some();
    field::warn_of_odd_names(total.samples, total.fields.values().map(|field| field.sizes.count));
    match options.json.json {
        true => context.output.document(&total.document(shards.len(), &samples_per_shard, is_part)),
        false => total.show(shards.len(), &samples_per_shard, is_part, context),
    }
}

/// The content of a shard, as its index says.
fn of_index(index: &Index, url: &SecretUrl, interrupt: &Interrupt) -> Result<ShardContents> {
    let shard: &ShardIndex = index.get(url.expose_secret()).ok_or_else(|| {
        let message = "the index does not have this shard: build the index again";
        Error::from(ErrorKind::Config(message.into())).in_shard(url)
    })?;
    let bytes = shard.bytes().unwrap_or(0);
    let mut contents = ShardContents { samples: shard.samples(), bytes, ..ShardContents::default() };
    if shard.size_of(0).is_none() {
        // The index has only the number of samples. The loop below would do nothing, for up to 2^64 samples.
        return Ok(contents);
    }
    for number in 0..shard.samples() {
        if number % 4096 == 0 && interrupt.is_set() {
            return Err(ErrorKind::Stopped.into());
        }
        if let Some(size) = shard.size_of(number) {
            contents.sizes.add(size);
        }
        for (name, size) in shard.fields(number).into_iter().flatten() {
            contents.fields.entry(name.to_owned()).or_default().add(size, FieldKind::of(name).to_string());
        }
    }
    Ok(contents)
}

impl FieldSummary {
    fn add(&mut self, size: u64, kind: String) {
        self.sizes.add(size);
        self.count(kind, 1);
    }

    /// Counts values of a type.
    fn count(&mut self, kind: String, count: u64) {
        let kind = match self.types.len() >= MAX_TYPES && !self.types.contains_key(&kind) {
            true => OTHER.to_owned(),
            false => kind,
        };
        *self.types.entry(kind).or_default() += count;
    }

    /// The types by frequency, the most frequent first, and [`OTHER`] last.
    fn kinds(&self) -> Vec<(&str, u64)> {
        let mut types: Vec<(&str, u64)> = self.types.iter().map(|(kind, count)| (&**kind, *count)).collect();
        types.sort_by_key(|(kind, count)| (*kind == OTHER, std::cmp::Reverse(*count)));
        types
    }

    /// The types on one line, each with its share of the values if there are several types, and the sizes of
    /// images.
    fn described(&self) -> String {
        let kinds = self.kinds();
        let kind = |(kind, count): &(&str, u64)| match kinds.len() {
            1 => (*kind).to_owned(),
            _ => format!("{kind} ({})", text::percent(*count, self.sizes.count)),
        };
        let mut line = kinds.iter().map(kind).collect::<Vec<String>>().join(", ");
        if self.heights.count > 0 {
            let pixels = |number: u64| number.to_string();
            line += &format!(", height {}, width {}", self.heights.line(pixels), self.widths.line(pixels));
        }
        line
    }
}

/// The type of a value, such as `jpeg` or `float32 [3]`.
fn kind(field: &str, content: &Result<FieldContent>) -> String {
    match content {
        Ok(FieldContent::Image(format, _)) => (*format).to_owned(),
        Ok(FieldContent::Value(Value::Array(array))) => format!("{} {:?}", array.dtype(), array.shape()),
        Ok(FieldContent::Value(_) | FieldContent::Bytes) => FieldKind::of(field).to_string(),
        Err(_) => format!("no {}", FieldKind::of(field)),
    }
}

/// The document that `--json` writes.
#[derive(Debug, Serialize)]
struct InfoDocument<'a> {
    shards: usize,
    samples: u64,
    /// Whether only the first samples were read.
    is_part: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    shard_bytes: Option<u64>,
    /// Sizes of the samples whose size is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    sample_bytes: Option<DistributionSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    samples_per_shard: Option<DistributionSummary>,
    fields: BTreeMap<&'a str, InfoField<'a>>,
}

#[derive(Debug, Serialize)]
struct InfoField<'a> {
    samples: u64,
    bytes: DistributionSummary,
    types: &'a BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    height: Option<DistributionSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    width: Option<DistributionSummary>,
}

impl ShardContents {
    fn add_sample(&mut self, sample: &Sample, decoder: &Decoder) {
        self.samples += 1;
        self.sizes.add(sample.size() as u64);
        for (name, value) in sample.fields() {
            let Some(bytes) = value.as_bytes() else { continue };
            if !self.fields.contains_key(name) {
                self.fields.insert(name.to_owned(), FieldSummary::default());
            }
            let Some(field) = self.fields.get_mut(name) else { continue };
            let content = FieldContent::of(name, bytes, decoder);
            field.add(bytes.len() as u64, kind(name, &content));
            if let Ok(FieldContent::Image(_, size)) = content {
                field.heights.add(size.height.into());
                field.widths.add(size.width.into());
            }
        }
    }

    fn merge(&mut self, other: &ShardContents) {
        self.samples += other.samples;
        self.sizes.merge(&other.sizes);
        self.bytes = self.bytes.saturating_add(other.bytes);
        for (name, other) in &other.fields {
            let field = self.fields.entry(name.clone()).or_default();
            field.sizes.merge(&other.sizes);
            field.heights.merge(&other.heights);
            field.widths.merge(&other.widths);
            for (kind, count) in &other.types {
                field.count(kind.clone(), *count);
            }
        }
    }

    fn document(
        &self,
        shards: usize,
        samples_per_shard: &Distribution,
        is_part: bool,
    ) -> InfoDocument<'_> {
        let summary =
            |numbers: &Distribution| if numbers.count > 0 { Some(numbers.summary()) } else { None };
        let fields = self.fields.iter().map(|(name, field)| {
            let document = InfoField {
                samples: field.sizes.count,
                bytes: field.sizes.summary(),
                types: &field.types,
                height: summary(&field.heights),
                width: summary(&field.widths),
            };
            (&**name, document)
        });
        InfoDocument {
            shards,
            samples: self.samples,
            is_part,
            shard_bytes: (!is_part).then_some(self.bytes),
            sample_bytes: summary(&self.sizes),
            samples_per_shard: summary(samples_per_shard),
            fields: fields.collect(),
        }
    }

    fn show(
        &self,
        shards: usize,
        samples_per_shard: &Distribution,
        is_part: bool,
        context: &Context,
    ) -> Result<(), Failure> {
        let out = &context.output;
        let (shards, samples) = (shards as u64, self.samples);
        match is_part {
            true => out.line(format_args!(
                "the first {} of {}",
                text::counted(samples, "sample"),
                text::counted(shards, "shard")
            ))?,
            false => out.line(format_args!(
                "{} of {} ({} each), {}",
                text::counted(shards, "shard"),
                text::counted(samples, "sample"),
                samples_per_shard.line(text::number),
                text::bytes(self.bytes)
            ))?,
        }
        if samples == 0 {
            return Ok(());
        }
        let known = self.sizes.count;
        if known == 0 {
            return out.lines("\nfields and sizes: not known, since the index has only numbers of samples");
        }
        if !self.fields.is_empty() {
            let mut table = Table::new(&["field", ">samples", ">share", ">mean size", "type"]);
            for (name, field) in &self.fields {
                table.row([
                    name.clone(),
                    text::number(field.sizes.count),
                    text::percent(field.sizes.count, known),
                    text::bytes(field.sizes.mean() as u64),
                    field.described(),
                ]);
            }
            out.lines(format_args!("\n{table}"))?;
        }
        let part = match known == samples {
            true => String::new(),
            false => format!(", known of {}", text::counted(known, "sample")),
        };
        out.lines(format_args!("\nsize of a sample: {}{part}", self.sizes.line(text::bytes)))?;
        out.lines(self.sizes.histogram(text::bytes))
    }
}
