//! Verifying one shard.

use super::log::{VerifyLog, place_of};
use super::resume_point::{self, ResumePoint};
use super::report::{Finding, FieldSet, ShardReport};
use crate::field::FieldKind;
use crate::interrupt::Interrupt;
use crate::samples::{self, ShardProgress};
use bytes::Bytes;
use shardstream::codec::Decoder;
use shardstream::image::{Image, ImageMode};
use shardstream::index::ShardIndex;
use shardstream::store::{Body, ObjectVersion, Store};
use shardstream::tar::{Read, SampleParser, read};
use shardstream::{Error, ErrorKind, Index, Result, Sample, SecretUrl};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What every shard is verified with.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) store: Store,
    pub(super) interrupt: Interrupt,
    pub(super) progress: ShardProgress,
    pub(super) index: Option<Index>,
    pub(super) decode: bool,
    /// The least pixels of an image's shorter side.
    pub(super) min_side: u32,
    pub(super) may_be_empty: Vec<String>,
    /// Whether the keys are wanted.
    pub(super) keys: bool,
}

/// Whether an error says nothing of the shard: the network, credentials, the machine, a missing feature.
fn is_elsewhere(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Io(_)
            | ErrorKind::Store(_)
            | ErrorKind::Busy { .. }
            | ErrorKind::Denied(_)
            | ErrorKind::Unsupported(_)
            | ErrorKind::UnsupportedScheme { .. }
            | ErrorKind::UnsupportedCompression(_)
            | ErrorKind::Config(_)
            | ErrorKind::Stopped
            | ErrorKind::Panicked(_)
    )
}

/// The most times that reading resumes in a shard: noise may look like headers here and there.
const MOST_RESUMED: usize = 100;

/// What is known while a shard is read.
#[derive(Default)]
struct ShardReading<'a> {
    /// What the samples are compared with.
    index: Option<&'a ShardIndex>,
    /// Sets of fields, and how many samples have them.
    fields: BTreeMap<Vec<String>, FieldSet>,
    decoder: Decoder,
    /// Whether a sample could not be read.
    is_broken: bool,
}

/// Whether damage ends the archive for a parser.
fn ends_shard(error: &Error) -> bool {
    match error.kind() {
        // That of a member which is there and not accepted has its name.
        ErrorKind::Header(_) => error.location().member().is_none(),
        kind => matches!(
            kind,
            ErrorKind::Checksum
                | ErrorKind::ArchiveEnd(_)
                | ErrorKind::Decompress { .. }
                | ErrorKind::Changed { .. }
                | ErrorKind::Damaged { .. }
        ),
    }
}

impl Verifier {
    /// What is wrong with a shard; from the log if it was verified before.
    ///
    /// # Errors
    /// [`ErrorKind::Stopped`] if the program was interrupted, and a log that cannot be written.
    pub(super) fn verify(&self, url: &SecretUrl, log: Option<&VerifyLog>) -> Result<ShardReport> {
        let mut report = ShardReport { url: url.to_string(), place: place_of(url), ..ShardReport::default() };
        let object = match self.store.stat(url.expose_secret()) {
            Ok(object) => object,
            Err(error) => {
                report.fault(&error);
                return Ok(report);
            }
        };
        report.bytes = object.size.unwrap_or(0);
        report.version = object.version.clone();
        if let Some(known) =
            log.and_then(|log| log.get(&report.place, report.bytes, report.version.as_deref()))
        {
            return Ok(known);
        }
        self.read(url, &object, &mut report)?;
        if let Some(log) = log
            && report.unread.is_none()
        {
            log.add(&report)?;
        }
        Ok(report)
    }

    fn read(&self, url: &SecretUrl, object: &ObjectVersion, report: &mut ShardReport) -> Result<()> {
        let mut reading = ShardReading { index: self.indexed(url, object, report), ..ShardReading::default() };
        let mut samples = match samples::of_shard(&self.store, url) {
            Ok(samples) => samples,
            Err(error) => {
                report.fault(&error);
                return Ok(());
            }
        };
        for _ in 0..=MOST_RESUMED {
            let mut damage = None;
            for sample in samples {
                if self.interrupt.is_set() {
                    return Err(ErrorKind::Stopped.into());
                }
                match sample {
                    Ok(sample) => self.sample(&sample, &mut reading, report),
                    Err(error) => {
                        reading.is_broken = true;
                        report.fault(&error);
                        damage = error.location().offset().filter(|_| ends_shard(&error));
                    }
                }
            }
            let Some(damage) = damage else { break };
            match self.resume(damage, url, &mut reading, report) {
                Ok(Some(behind)) => samples = behind,
                Ok(None) => break,
                Err(error) if matches!(error.kind(), ErrorKind::Stopped) => return Err(error),
                Err(error) => {
                    report.fault(&error);
                    break;
                }
            }
        }
        if let Some(shard) = reading.index
            && !reading.is_broken
            && report.samples < shard.stored_samples()
        {
            let then = format!("it had {} samples", shard.stored_samples());
            let now = format!("it has {}", report.samples);
            report.fault(&ErrorKind::Stale { then, now }.into());
        }
        report.fields = reading.fields.into_values().collect();
        Ok(())
    }

    /// Reads on behind damage, if anything can be read there.
    fn resume(
        &self,
        damage: u64,
        url: &SecretUrl,
        reading: &mut ShardReading<'_>,
        report: &mut ShardReport,
    ) -> Result<Option<Read<Body>>> {
        let start = resume_point::behind(damage, url, reading.index, &self.store, &self.interrupt)?;
        report.resumed_at(start.as_ref());
        let Some(ResumePoint { offset, sample }) = start else { return Ok(None) };
        if sample.is_none() {
            // How many samples were lost, and with that the number of any other, is not known.
            reading.index = None;
        }
        let body = self.store.open_range(url.expose_secret(), offset..u64::MAX)?;
        let parser = SampleParser::new(url).starting(sample.unwrap_or(report.samples), offset);
        Ok(Some(read(body, parser)))
    }

    fn sample(&self, sample: &Sample, reading: &mut ShardReading<'_>, report: &mut ShardReport) {
        report.samples += 1;
        self.progress.sample();
        if let Some(shard) = reading.index
            && let Err(error) = shard.check(sample)
        {
            report.fault(&error);
            // The samples behind another one all differ.
            reading.index = reading.index.filter(|_| !matches!(error.kind(), ErrorKind::Stale { .. }));
        }
        let mut names: Vec<String> = sample.fields().map(|(name, _)| name.to_owned()).collect();
        names.sort_unstable();
        let having = reading.fields.entry(names).or_insert_with_key(|names| FieldSet {
            fields: names.clone(),
            samples: 0,
            shard: report.url.clone(),
            key: sample.key().to_owned(),
        });
        having.samples += 1;
        self.fields(sample, &reading.decoder, report);
        if self.keys {
            let mut hasher = DefaultHasher::new();
            sample.key().hash(&mut hasher);
            report.keys.push((hasher.finish(), sample.key().to_owned()));
        }
    }

    /// What the index says of the shard, if it is the one that was indexed.
    fn indexed(&self, url: &SecretUrl, object: &ObjectVersion, report: &mut ShardReport) -> Option<&ShardIndex> {
        let index = self.index.as_ref()?;
        let Some(shard) = index.get(url.expose_secret()) else {
            report.found("not_indexed", None, "the index does not know this shard".into());
            return None;
        };
        if let Err(error) = shard.check_object(url.expose_secret(), object) {
            report.fault(&error);
        }
        Some(shard)
    }

    fn fields(&self, sample: &Sample, decoder: &Decoder, report: &mut ShardReport) {
        for (name, value) in sample.fields() {
            let Some(bytes) = value.as_bytes() else { continue };
            if bytes.is_empty() {
                if !self.may_be_empty.iter().any(|field| field == name) {
                    let message = format!("the field {name:?} is empty");
                    report.found("empty_field", Some((sample.key(), name)), message);
                }
                continue;
            }
            if self.decode
                && let Err(error) = self.decode(sample, (name, bytes), decoder, report)
            {
                let error = sample.locate(error).in_member(format!("{}.{name}", sample.key()));
                report.fault(&error);
            }
        }
    }

    fn decode(
        &self,
        sample: &Sample,
        (name, bytes): (&str, &Bytes),
        decoder: &Decoder,
        report: &mut ShardReport,
    ) -> Result<()> {
        match FieldKind::of(name) {
            FieldKind::Image if !name.to_ascii_lowercase().ends_with(".gz") => {
                let image =
                    Image::decode(bytes, ImageMode::Rgb8).map_err(|error| Error::decode(name, error))?;
                let (height, width) = (image.height(), image.width());
                if height.min(width) < self.min_side {
                    let message = format!("the image has height {height}, width {width}");
                    report.found("small_image", Some((sample.key(), name)), message);
                }
                if !report.images.contains_key(name) {
                    report.images.insert(name.to_owned(), super::report::ImageSizes::default());
                }
                if let Some(sides) = report.images.get_mut(name) {
                    sides.add(height, width);
                }
                Ok(())
            }
            FieldKind::Pickle => Ok(()),
            _ => decoder.decode_field(name, bytes).map(drop),
        }
    }
}

impl ShardReport {
    /// Takes in an error: damage is found, and anything else leaves the shard unread.
    fn fault(&mut self, error: &Error) {
        match is_elsewhere(error) {
            true => self.unread = Some(format!("{error:#}")),
            false => {
                let mut finding = Finding::of(error, &self.url);
                // What is not there has no bytes either.
                finding.offset = finding.offset.filter(|_| !matches!(error.kind(), ErrorKind::NotFound(_)));
                self.findings.push(finding);
            }
        }
    }

    /// Says with the last finding where the shard is read again.
    fn resumed_at(&mut self, start: Option<&ResumePoint>) {
        let Some(finding) = self.findings.last_mut() else { return };
        let more = match start {
            Some(ResumePoint { offset, .. }) => format!("; reading resumed at byte {offset}"),
            None => "; nothing behind it can be read".to_owned(),
        };
        finding.message.push_str(&more);
    }

    /// Takes in what the crate has no error for. `field` is the key of a sample and a field of it.
    fn found(&mut self, kind: &str, field: Option<(&str, &str)>, message: String) {
        self.findings.push(Finding {
            shard: self.url.clone(),
            offset: None,
            member: field.map(|(key, name)| format!("{key}.{name}")),
            key: field.map(|(key, _)| key.to_owned()),
            kind: kind.into(),
            message,
        });
    }
}
