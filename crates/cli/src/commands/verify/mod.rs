//! `shardstream verify`

mod bad_list;
mod log;
mod report;
mod resume_point;
mod shard;

use crate::context::Context;
use crate::empty_fields::EmptyFields;
use crate::failure::Failure;
use crate::field;
use crate::options::{IndexedPatterns, JsonOption, ThreadsOption};
use crate::parallel::for_each_shard;
use crate::samples::ShardProgress;
use crate::text;
use bad_list::BadList;
use log::{VerifyLog, fingerprint};
use report::{Finding, ShardReport};
use serde::Serialize;
use shard::Verifier;
use shardstream::{SecretUrl, ShardList};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

/// Look for damage in archives, samples and fields, and compare with an index.
///
/// Each shard is read to its end, past damaged samples and headers. Finds missing, truncated and overwritten
/// shards; damaged headers; samples with two members of the same extension; samples whose members are not
/// adjacent; members that are not plain files; empty fields; and samples without a field that nearly all
/// samples have. If a part of a shard could not be verified, that is a finding too (not_verified). With
/// --decode, also finds fields that cannot be decoded. With --index, also finds shards and samples that
/// differ from the index; bytes are compared if the index has checksums. The exit code is 3 if anything was
/// found.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    patterns: IndexedPatterns,
    /// Decode every field of a known type. Pickles are never loaded.
    #[arg(long)]
    decode: bool,
    /// With --decode: minimum length of the shorter side of an image.
    #[arg(long, value_name = "PIXELS", requires = "decode")]
    min_side: Option<u32>,
    /// Fields that every sample must have. Without this option: the fields that nearly all samples have.
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',')]
    require: Vec<String>,
    /// Every sample must have the fields that at least this share of the samples has. With a share above 1,
    /// no field is required.
    #[arg(long, value_name = "SHARE", default_value_t = 0.9, conflicts_with = "require")]
    common: f64,
    #[command(flatten)]
    empty: EmptyFields,
    /// Keys must be unique over all shards, not only within each shard.
    #[arg(long, conflicts_with = "resume")]
    unique_keys: bool,
    /// Record verified shards in this file, and skip recorded shards that have not changed.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Write a list of the bad samples to this path or URL, for `reshard --without`: one line of JSON per
    /// sample, with its shard, its key, and why it is listed. Needs memory for the keys of all samples.
    #[arg(long, value_name = "LIST")]
    to_list: Option<String>,
    #[command(flatten)]
    json: JsonOption,
    #[command(flatten)]
    threads: ThreadsOption,
}

/// The summary, which is the last line of `--json`.
#[derive(Debug, Serialize)]
struct VerifySummary {
    shards: u64,
    samples: u64,
    bytes: u64,
    /// Number of shards whose report is from an earlier run.
    resumed: u64,
    findings: u64,
    /// Number of findings of each kind.
    kinds: BTreeMap<String, u64>,
    /// Number of shards that could not be read for a reason that is not damage.
    unread: u64,
    /// Number of undamaged shards without samples.
    without_samples: u64,
}

pub(crate) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    context.output.ignore_closed_pipe();
    let (shards, index) = options.patterns.shards(context)?;
    // The log records these options, because a run with other options must not use the log's reports.
    let checks = format!(
        "limits {:?}, decode {}, min_side {:?}, empty {:?}, index {}{}",
        context.reader.limits,
        options.decode,
        options.min_side,
        options.empty.names(),
        index.as_ref().map_or_else(|| Ok("none".to_owned()), fingerprint)?,
        if options.to_list.is_some() { ", list" } else { "" }
    );
    let log = options.resume.as_deref().map(|path| VerifyLog::open(path, &checks)).transpose()?.map(Arc::new);
    let progress = ShardProgress::start(context, "verify", shards.len());
    let verifier = Verifier {
        progress: progress.clone(),
        reader: context.reader.clone(),
        interrupt: context.interrupt.clone(),
        index,
        decode: options.decode,
        min_side: options.min_side.unwrap_or(0),
        empty: options.empty.clone(),
        keys: options.unique_keys,
        lists: options.to_list.is_some(),
    };
    let mut verification = Verification::new(&options, context, &shards);
    let work = move |_: usize, url: &SecretUrl| verifier.verify(url, log.as_deref());
    for_each_shard(&shards, options.threads.count(), &context.interrupt, work, |number, report| {
        if report.resumed {
            progress.add_samples(report.samples);
        }
        progress.add_shard();
        verification.add(number, report)
    })?;
    drop(progress);
    verification.finish()
}

/// The `kind` of a finding that reports samples without a field.
const MISSING_FIELD: &str = "missing_field";

/// Reports that the field `missing` is absent from those samples that have exactly the fields `fields`.
struct MissingField {
    finding: Finding,
    fields: Vec<String>,
    missing: String,
}

/// The findings so far, over all shards.
struct Verification<'a> {
    options: &'a Options,
    context: &'a Context,
    shards: &'a ShardList,
    summary: VerifySummary,
    /// For each set of fields, the number of samples with exactly these fields, and the first such sample.
    fields: BTreeMap<Vec<String>, report::FieldSet>,
    /// Maps the hash of each key to the number of the last shard that has the key.
    keys: HashMap<u64, u32>,
    images: BTreeMap<String, report::ImageSizes>,
    /// The list of bad samples, with `--to-list`.
    list: Option<BadList>,
}

impl<'a> Verification<'a> {
    fn new(options: &'a Options, context: &'a Context, shards: &'a ShardList) -> Self {
        let summary = VerifySummary {
            shards: 0,
            samples: 0,
            bytes: 0,
            resumed: 0,
            findings: 0,
            kinds: BTreeMap::new(),
            unread: 0,
            without_samples: 0,
        };
        Verification {
            options,
            context,
            shards,
            summary,
            fields: BTreeMap::new(),
            keys: HashMap::new(),
            images: BTreeMap::new(),
            list: options.to_list.as_ref().map(|_| BadList::default()),
        }
    }

    /// Adds the report of a shard, and prints its findings.
    fn add(&mut self, number: usize, report: ShardReport) -> Result<(), Failure> {
        self.summary.shards += 1;
        self.summary.samples += report.samples;
        self.summary.bytes += report.bytes;
        self.summary.resumed += u64::from(report.resumed);
        self.summary.unread += u64::from(report.unread.is_some());
        if let Some(error) = &report.unread {
            match self.options.json.json {
                true => {
                    let line = serde_json::json!({ "shard": report.url, "unread": error });
                    self.context.output.record(&line)?;
                }
                false => self.context.output.lines(format_args!("not verified: {error}"))?,
            }
        }
        if report.samples == 0 && report.unread.is_none() && report.findings.is_empty() {
            self.summary.without_samples += 1;
            if !self.options.json.json {
                self.context.output.line(format_args!("no samples: {}", report.url))?;
            }
        }
        for finding in &report.findings {
            self.report(finding)?;
        }
        for mut field_set in report.fields {
            if let Some(list) = &mut self.list {
                list.add_keys(&mut field_set);
            }
            match self.fields.get_mut(&field_set.fields) {
                Some(known) => known.samples += field_set.samples,
                None => drop(self.fields.insert(field_set.fields.clone(), field_set)),
            }
        }
        for (field, sides) in report.images {
            self.images.entry(field).or_default().merge(&sides);
        }
        for (hash, key) in report.keys {
            match self.keys.insert(hash, number as u32) {
                Some(first) if first as usize != number => {
                    let other = self.shards.get(first as usize).map(ToString::to_string).unwrap_or_default();
                    let message = format!("the key is in {other} too");
                    self.report(&Finding {
                        shard: report.url.clone(),
                        offset: None,
                        member: None,
                        key: Some(key),
                        kind: "duplicate_key".into(),
                        message,
                    })?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Counts and prints a finding.
    fn report(&mut self, finding: &Finding) -> Result<(), Failure> {
        self.summary.findings += 1;
        *self.summary.kinds.entry(finding.kind.clone()).or_default() += 1;
        if let Some(list) = self.list.as_mut().filter(|_| finding.kind != MISSING_FIELD) {
            list.add(finding)?;
        }
        match self.options.json.json {
            true => self.context.output.record(finding),
            false => self.context.output.line(finding),
        }
    }

    /// The findings about samples without a field that all samples should have.
    fn missing_fields(&self) -> Vec<MissingField> {
        let total: u64 = self.fields.values().map(|field_set| field_set.samples).sum();
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for field_set in self.fields.values() {
            for field in &field_set.fields {
                *counts.entry(field).or_default() += field_set.samples;
            }
        }
        let is_common = |count: u64| count < total && count as f64 >= self.options.common * total as f64;
        let required: Vec<&str> = match &*self.options.require {
            [] => counts.iter().filter(|(_, count)| is_common(**count)).map(|(field, _)| *field).collect(),
            required => required.iter().map(String::as_str).collect(),
        };
        let mut findings = Vec::new();
        for field_set in self.fields.values() {
            for field in &required {
                if field_set.fields.iter().any(|name| name == field) {
                    continue;
                }
                let others = match field_set.samples {
                    1 => String::new(),
                    2 => ", nor does 1 other sample".to_owned(),
                    samples => format!(", nor do {}", text::counted(samples - 1, "other sample")),
                };
                let share = text::percent(counts.get(field).copied().unwrap_or(0), total);
                let finding = Finding {
                    shard: field_set.shard.clone(),
                    offset: None,
                    member: None,
                    key: Some(field_set.key.clone()),
                    kind: MISSING_FIELD.into(),
                    message: format!(
                        "the sample does not have the field {field:?}{others}; {share} of all samples have it"
                    ),
                };
                let (fields, missing) = (field_set.fields.clone(), (*field).to_owned());
                findings.push(MissingField { finding, fields, missing });
            }
        }
        findings
    }

    /// Reports missing fields, writes the list, and prints the summary.
    fn finish(mut self) -> Result<(), Failure> {
        for MissingField { finding, fields, missing } in self.missing_fields() {
            self.report(&finding)?;
            if let Some(list) = &mut self.list {
                list.add_missing(&fields, &missing)?;
            }
        }
        if let Some((list, place)) = self.list.as_ref().zip(self.options.to_list.as_ref()) {
            list.save(place, self.context)?;
        }
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for set in self.fields.values() {
            set.fields.iter().for_each(|field| *counts.entry(field).or_default() += set.samples);
        }
        field::warn_of_odd_names(self.summary.samples, counts.into_values());
        let (out, summary) = (&self.context.output, &self.summary);
        match self.options.json.json {
            true => out.record(&serde_json::json!({ "summary": summary }))?,
            false => {
                for (field, sides) in &self.images {
                    out.line(format_args!("images {field}: {sides}"))?;
                }
                let resumed = match summary.resumed {
                    0 => String::new(),
                    count => format!(", {} of them verified before", text::number(count)),
                };
                let unread = match summary.unread {
                    0 => String::new(),
                    count => format!(", {} not verified", text::counted(count, "shard")),
                };
                out.line(format_args!(
                    "{} of {}, {}{resumed}: {}{unread}",
                    text::counted(summary.shards, "shard"),
                    text::counted(summary.samples, "sample"),
                    text::bytes(summary.bytes),
                    match summary.findings {
                        0 => "no damage found".to_owned(),
                        count => text::counted(count, "finding"),
                    }
                ))?;
                for (kind, count) in &summary.kinds {
                    out.line(format_args!("  {kind}: {}", text::number(*count)))?;
                }
            }
        }
        match (self.summary.findings, self.summary.unread) {
            (0, 0) => Ok(()),
            (0, unread) => {
                Err(Failure::Failed(format!("{} could not be read", text::counted(unread, "shard"))))
            }
            _ => Err(Failure::Damage),
        }
    }
}
