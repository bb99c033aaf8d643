//! `shardstream stats`

mod images;
mod labels;

use crate::context::Context;
use crate::distribution::{Distribution, DistributionSummary};
use crate::failure::Failure;
use crate::field::{FieldContent, FieldKind};
use crate::options::{JsonOption, Patterns, ThreadsOption};
use crate::parallel::for_each_shard;
use crate::samples::ShardProgress;
use crate::table::{Table, bars};
use crate::text;
use images::{ChannelSums, ImageStats};
use labels::{LabelCounts, LabelSpec};
use serde::Serialize;
use shardstream::codec::Decoder;
use shardstream::{Result, Sample, SecretUrl, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Count labels, measure lengths and sizes, and compute mean and standard deviation of images.
///
/// If the pattern is `-`, an uncompressed archive is read from stdin.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    patterns: Patterns,
    /// The field whose values are counted. To count a value inside JSON, give FIELD:PATH, such as
    /// json:annotation.label [default: cls].
    #[arg(long, value_name = "FIELD")]
    label: Option<String>,
    /// Number of labels to show, the most frequent first.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    top: usize,
    /// Number of images to decode for mean and standard deviation, divided evenly among the shards.
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    images: u64,
    #[command(flatten)]
    json: JsonOption,
    #[command(flatten)]
    threads: ThreadsOption,
}

/// Statistics of one shard, or of all shards.
#[derive(Debug, Default)]
struct Stats {
    samples: u64,
    labels: LabelCounts,
    bytes: BTreeMap<String, Distribution>,
    /// By field, the lengths of its values: a text's number of characters, an array's number of elements.
    lengths: BTreeMap<String, Distribution>,
    heights: BTreeMap<String, Distribution>,
    widths: BTreeMap<String, Distribution>,
    channels: BTreeMap<String, ChannelSums>,
}

/// The document that `--json` writes.
#[derive(Debug, Serialize)]
struct StatsDocument {
    samples: u64,
    label: String,
    labels: BTreeMap<String, u64>,
    unlabelled: u64,
    fields: BTreeMap<String, StatsField>,
}

#[derive(Debug, Serialize)]
struct StatsField {
    samples: u64,
    bytes: DistributionSummary,
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<DistributionSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    height: Option<DistributionSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    width: Option<DistributionSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    images: Option<ImageStats>,
}

pub(crate) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    let shards = options.patterns.shards_or_stdin(context)?;
    let label = Arc::new(LabelSpec::new(options.label.as_deref().unwrap_or("cls")));
    let (images, count) = (options.images, shards.len().max(1) as u64);
    let progress = ShardProgress::start(context, "stats", shards.len());
    let (reader, interrupt) = (context.reader.clone(), context.interrupt.clone());
    let (label_spec, each_sample) = (Arc::clone(&label), progress.clone());
    let work = move |number: usize, url: &SecretUrl| {
        let images_of_shard = images / count + u64::from((number as u64) < images % count);
        let (mut stats, decoder) = (Stats::default(), Decoder::new());
        for sample in reader.samples(url)? {
            if interrupt.is_set() {
                break;
            }
            stats.add_sample(&sample?, &label_spec, images_of_shard, &decoder)?;
            each_sample.add_sample();
        }
        Ok(stats)
    };
    let mut total = Stats::default();
    for_each_shard(&shards, options.threads.count(), &context.interrupt, work, |_, stats| {
        progress.add_shard();
        total.merge(stats);
        Ok(())
    })?;
    drop(progress);
    if options.label.is_some() && total.labels.is_empty() {
        let message =
            format!("none of {} has a label {:?}", text::counted(total.samples, "sample"), label.spec());
        return Err(Failure::Failed(message));
    }
    match options.json.json {
        true => context.output.document(&total.document(&label)),
        false => total.show(&label, options.top, context),
    }
}

fn merge(into: &mut BTreeMap<String, Distribution>, from: &BTreeMap<String, Distribution>) {
    for (name, distribution) in from {
        into.entry(name.clone()).or_default().merge(distribution);
    }
}

fn add(into: &mut BTreeMap<String, Distribution>, name: &str, number: u64) {
    if !into.contains_key(name) {
        into.insert(name.to_owned(), Distribution::default());
    }
    if let Some(distribution) = into.get_mut(name) {
        distribution.add(number);
    }
}

impl Stats {
    /// Adds a sample. Decodes an image of the sample if fewer than `images` images of the same field have
    /// been decoded.
    fn add_sample(
        &mut self,
        sample: &Sample,
        label: &LabelSpec,
        images: u64,
        decoder: &Decoder,
    ) -> Result<()> {
        self.samples += 1;
        self.labels.add(label.of(sample)?);
        for (name, value) in sample.fields() {
            let Some(bytes) = value.as_bytes() else { continue };
            add(&mut self.bytes, name, bytes.len() as u64);
            let kind = FieldKind::of(name);
            if !matches!(kind, FieldKind::Image | FieldKind::Text | FieldKind::Array) {
                continue;
            }
            match FieldContent::of(name, bytes, decoder).map_err(|error| sample.locate(error))? {
                FieldContent::Image(_, size) => {
                    add(&mut self.heights, name, size.height.into());
                    add(&mut self.widths, name, size.width.into());
                    let channels = self.channels.entry(name.to_owned()).or_default();
                    if channels.images < images {
                        channels.add(name, bytes).map_err(|error| sample.locate(error))?;
                    }
                }
                FieldContent::Value(Value::Text(text)) => {
                    add(&mut self.lengths, name, text.chars().count() as u64);
                }
                FieldContent::Value(Value::Array(array)) => {
                    let elements = array.data().len() / array.dtype().size();
                    add(&mut self.lengths, name, elements as u64);
                }
                FieldContent::Value(_) | FieldContent::Bytes => {}
            }
        }
        Ok(())
    }

    fn merge(&mut self, other: Stats) {
        self.samples += other.samples;
        self.labels.merge(other.labels);
        merge(&mut self.bytes, &other.bytes);
        merge(&mut self.lengths, &other.lengths);
        merge(&mut self.heights, &other.heights);
        merge(&mut self.widths, &other.widths);
        for (name, channels) in other.channels {
            self.channels.entry(name).or_default().merge(&channels);
        }
    }

    fn document(&self, label: &LabelSpec) -> StatsDocument {
        let summary =
            |of: &BTreeMap<String, Distribution>, name: &str| of.get(name).map(Distribution::summary);
        let field = |(name, bytes): (&String, &Distribution)| {
            let document = StatsField {
                samples: bytes.count,
                bytes: bytes.summary(),
                length: summary(&self.lengths, name),
                height: summary(&self.heights, name),
                width: summary(&self.widths, name),
                images: self.channels.get(name).filter(|it| it.images > 0).map(ChannelSums::document),
            };
            (name.clone(), document)
        };
        StatsDocument {
            samples: self.samples,
            label: label.spec().to_owned(),
            labels: self.labels.counts().clone(),
            unlabelled: self.labels.without,
            fields: self.bytes.iter().map(field).collect(),
        }
    }

    fn show(&self, label: &LabelSpec, top: usize, context: &Context) -> Result<(), Failure> {
        let out = &context.output;
        out.line(text::counted(self.samples, "sample"))?;
        if !self.labels.is_empty() {
            let labels = self.labels.by_count();
            out.line("")?;
            out.line(format_args!("{} of {}:", text::counted(labels.len() as u64, "label"), label.spec()))?;
            let shown = &labels[..labels.len().min(top)];
            let counts: Vec<u64> = shown.iter().map(|(_, count)| *count).collect();
            let mut table = Table::bare(&["", ">", ">", ""]);
            for ((label, count), bar) in shown.iter().zip(bars(&counts)) {
                table.row([
                    text::shortened(label, 40),
                    text::number(*count),
                    text::percent(*count, self.samples),
                    bar,
                ]);
            }
            out.lines(&table)?;
            if labels.len() > top {
                let rest: u64 = labels[top..].iter().map(|(_, count)| count).sum();
                let more = text::counted((labels.len() - top) as u64, "more label");
                out.line(format_args!("{more} of {}", text::counted(rest, "sample")))?;
            }
            if self.labels.without > 0 {
                out.line(format_args!("without: {}", text::counted(self.labels.without, "sample")))?;
            }
        }
        for (name, bytes) in &self.bytes {
            let share = text::percent(bytes.count, self.samples);
            out.line("")?;
            out.line(format_args!("{name}: {share} of samples"))?;
            out.line(format_args!("  bytes   {}", bytes.line(text::bytes)))?;
            if let Some(lengths) = self.lengths.get(name) {
                let what = if FieldKind::of(name) == FieldKind::Text { "characters" } else { "elements" };
                out.line(format_args!("  length  {} {what}", lengths.line(text::number)))?;
            }
            if let (Some(heights), Some(widths)) = (self.heights.get(name), self.widths.get(name)) {
                out.line(format_args!("  height  {}", heights.line(text::number)))?;
                out.line(format_args!("  width   {}", widths.line(text::number)))?;
            }
            if let Some(channels) = self.channels.get(name).filter(|channels| channels.images > 0) {
                out.lines(channels)?;
            }
        }
        Ok(())
    }
}
