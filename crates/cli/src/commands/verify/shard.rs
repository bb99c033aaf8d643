//! Verifies one shard.

use super::log::VerifyLog;
use super::report::{FieldSet, Finding, ImageSizes, ShardReport};
use super::resume_point::{self, ResumePoint};
use crate::empty_fields::EmptyFields;
use crate::field::{FieldKind, is_image_file};
use crate::interrupt::Interrupt;
use crate::samples::ShardProgress;
use crate::shard_reader::ShardReader;
use bytes::Bytes;
use shardstream::codec::Decoder;
use shardstream::image::{Image, ImageMode};
use shardstream::index::ShardIndex;
use shardstream::store::{Body, ObjectVersion};
use shardstream::tar::{Read, read};
use shardstream::{Error, ErrorKind, Index, Result, Sample, SecretUrl};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The settings and tools with which every shard is verified.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) reader: ShardReader,
    pub(super) interrupt: Interrupt,
    pub(super) progress: ShardProgress,
    pub(super) index: Option<Index>,
    pub(super) decode: bool,
    /// Minimum length of the shorter side of an image, in pixels.
    pub(super) min_side: u32,
    pub(super) empty: EmptyFields,
    /// Whether reports include the keys of samples and the hashes of these keys (`--unique-keys`).
    pub(super) keys: bool,
    /// Whether reports include, for each set of fields, the keys of its samples (`--to-list`).
    pub(super) lists: bool,
}

/// Whether an error is not damage of the shard, but a fault of the network, credentials or the machine, or a
/// missing feature.
fn is_unrelated(error: &Error) -> bool {
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
            | ErrorKind::SourcePanicked(_)
    )
}

/// Maximum number of times that reading resumes in a shard. There must be a limit, since random bytes may
/// look like headers.
const MAX_RESUMES: usize = 100;

/// The state while a shard is read.
struct ShardReading<'a> {
    /// The object's version when it was looked up. Only this version is read.
    object: &'a ObjectVersion,
    /// The index with which samples are compared. `None` without an index, after a sample that differs from
    /// the index, and after damage if the numbers of the later samples are not known.
    index: Option<&'a ShardIndex>,
    /// The samples, grouped by the sorted names of their fields.
    fields: BTreeMap<Vec<String>, FieldSet>,
    decoder: Decoder,
    /// Whether a sample could not be read.
    is_broken: bool,
}

impl Verifier {
    /// Verifies a shard, or returns its report from the log.
    ///
    /// # Errors
    /// [`ErrorKind::Stopped`] if the program was interrupted; errors of writing the log.
    pub(super) fn verify(&self, url: &SecretUrl, log: Option<&VerifyLog>) -> Result<ShardReport> {
        let place = log.and_then(|log| log.place(url));
        let mut report = ShardReport { url: url.to_string(), place, ..ShardReport::default() };
        let object = match self.reader.store.stat(url.expose_secret()) {
            Ok(object) => object,
            Err(error) => {
                report.add_error(&error);
                return Ok(report);
            }
        };
        report.bytes = object.size.unwrap_or(0);
        report.version = object.version.clone();
        if let Some(known) = log.and_then(|log| log.get(report.place.as_deref()?, &object)) {
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

    /// Reads all samples of a shard.
    fn read(&self, url: &SecretUrl, object: &ObjectVersion, report: &mut ShardReport) -> Result<()> {
        let mut reading = ShardReading {
            object,
            index: self.indexed(url, object, report),
            fields: BTreeMap::new(),
            decoder: Decoder::new(),
            is_broken: false,
        };
        let mut samples = match self.reader.store.open(url.expose_secret()) {
            Ok(body) => read(body.of_version(object), self.reader.parser(url)),
            Err(error) => {
                report.add_error(&error);
                return Ok(());
            }
        };
        let mut resumes = 0;
        loop {
            let mut last_error = None;
            for sample in &mut samples {
                if self.interrupt.is_set() {
                    return Err(ErrorKind::Stopped.into());
                }
                last_error = None;
                match sample {
                    Ok(sample) => self.check_sample(&sample, &mut reading, report),
                    Err(error) => {
                        reading.is_broken = true;
                        report.add_error(&error);
                        last_error = Some(error);
                    }
                }
            }
            // After an error of the network, `report.unread` is set already, and reading does not resume.
            let damage = last_error.filter(|_| !samples.is_complete() && report.unread.is_none());
            let Some(damage) = damage else { break };
            let at = damage.location().offset().unwrap_or(0);
            if resumes == MAX_RESUMES {
                let why = format!("the shard is damaged in more than {MAX_RESUMES} places");
                report.not_verified(at, &why);
                break;
            }
            resumes += 1;
            match self.resume(&damage, at, url, &mut reading, report) {
                Ok(Some(rest)) => samples = rest,
                Ok(None) => break,
                Err(error) if matches!(error.kind(), ErrorKind::Stopped) => return Err(error),
                Err(error) => {
                    report.add_error(&error);
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
            report.add_error(&ErrorKind::Stale { then, now }.into());
        }
        report.fields = reading.fields.into_values().collect();
        let index = self.index.as_ref().and_then(|index| index.get(url.expose_secret()));
        report.add_other_version(index, url, object);
        Ok(())
    }

    /// Resumes reading after damage at the byte `at`. Returns `None` if nothing after it can be read.
    fn resume(
        &self,
        damage: &Error,
        at: u64,
        url: &SecretUrl,
        reading: &mut ShardReading<'_>,
        report: &mut ShardReport,
    ) -> Result<Option<Read<Body>>> {
        let start = match damage.kind() {
            // In an unsorted archive, samples after the damage may have members before it.
            _ if self.reader.limits.unsorted > 0 => {
                report.not_verified(at, "with --limit unsorted, reading cannot resume after damage");
                return Ok(None);
            }
            // The shard ends here, or is not an archive.
            ErrorKind::Truncated { .. } | ErrorKind::NotAnArchive { .. } => return Ok(None),
            ErrorKind::Decompress { offset, .. } => {
                report.resumed_at(None);
                if *offset < report.bytes {
                    report.not_verified(at, "compressed data cannot be read after damage");
                }
                return Ok(None);
            }
            _ => {
                let store = &self.reader.store;
                resume_point::after(at, url, reading.index, reading.object, store, &self.interrupt)
            }
        };
        let start = match start {
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported(_)) => {
                report.not_verified(at, "reading cannot resume in the middle of this shard");
                return Ok(None);
            }
            start => start?,
        };
        report.resumed_at(start.as_ref());
        let Some(ResumePoint { offset, sample }) = start else { return Ok(None) };
        if sample.is_none() {
            // The number of lost samples is not known, so the numbers of later samples are not known either.
            reading.index = None;
        }
        let body =
            self.reader.store.open_range(url.expose_secret(), offset..u64::MAX, reading.object)?;
        let parser = self.reader.parser(url).starting(sample.unwrap_or(report.samples), offset);
        Ok(Some(read(body, parser)))
    }

    fn check_sample(&self, sample: &Sample, reading: &mut ShardReading<'_>, report: &mut ShardReport) {
        report.samples += 1;
        self.progress.add_sample();
        if let Some(shard) = reading.index
            && let Err(error) = shard.check(sample)
        {
            report.add_error(&error);
            // After one sample that differs from the index, all later samples differ too: report only the
            // first.
            reading.index = reading.index.filter(|_| !matches!(error.kind(), ErrorKind::Stale { .. }));
        }
        let mut names: Vec<String> = sample.fields().map(|(name, _)| name.to_owned()).collect();
        names.sort_unstable();
        let field_set = reading.fields.entry(names).or_insert_with_key(|names| FieldSet {
            fields: names.clone(),
            samples: 0,
            shard: report.url.clone(),
            key: sample.key().to_owned(),
            keys: Vec::new(),
        });
        field_set.samples += 1;
        if self.lists {
            field_set.keys.push(sample.key().to_owned());
        }
        self.check_fields(sample, &reading.decoder, report);
        if self.keys {
            let mut hasher = DefaultHasher::new();
            sample.key().hash(&mut hasher);
            report.keys.push((hasher.finish(), sample.key().to_owned()));
        }
    }

    /// The index of the shard, if there is an index. Adds a finding if the shard has changed or is not
    /// indexed.
    fn indexed(
        &self,
        url: &SecretUrl,
        object: &ObjectVersion,
        report: &mut ShardReport,
    ) -> Option<&ShardIndex> {
        let index = self.index.as_ref()?;
        let Some(shard) = index.get(url.expose_secret()) else {
            report.add_finding("not_indexed", None, "the index does not have this shard".into());
            return None;
        };
        if let Err(error) = shard.check_object(url.expose_secret(), object) {
            report.add_error(&error);
        }
        Some(shard)
    }

    fn check_fields(&self, sample: &Sample, decoder: &Decoder, report: &mut ShardReport) {
        for (name, value) in sample.fields() {
            let Some(bytes) = value.as_bytes() else { continue };
            if bytes.is_empty() {
                if !self.empty.allow(name) {
                    let message = format!("the field {name:?} is empty");
                    report.add_finding("empty_field", Some((sample.key(), name)), message);
                }
                continue;
            }
            if self.decode
                && let Err(error) = self.decode(sample, (name, bytes), decoder, report)
            {
                let error = sample.locate(error).in_member(format!("{}.{name}", sample.key()));
                report.add_error(&error);
            }
        }
    }

    /// Decodes a field, and checks the size of an image.
    fn decode(
        &self,
        sample: &Sample,
        (name, bytes): (&str, &Bytes),
        decoder: &Decoder,
        report: &mut ShardReport,
    ) -> Result<()> {
        match FieldKind::of(name) {
            FieldKind::Image if is_image_file(name) => {
                let image =
                    Image::decode(bytes, ImageMode::Rgb8).map_err(|error| Error::decode(name, error))?;
                let (height, width) = (image.height(), image.width());
                if height.min(width) < self.min_side {
                    let message = format!("the image has height {height}, width {width}");
                    report.add_finding("small_image", Some((sample.key(), name)), message);
                }
                if !report.images.contains_key(name) {
                    report.images.insert(name.to_owned(), ImageSizes::default());
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
    /// Adds an error: damage as a finding, and any other error as the reason why the shard was not read.
    fn add_error(&mut self, error: &Error) {
        match is_unrelated(error) {
            true => self.unread = Some(format!("{error:#}")),
            false => {
                let mut finding = Finding::of(error, &self.url);
                // A missing shard has no offsets.
                finding.offset = finding.offset.filter(|_| !matches!(error.kind(), ErrorKind::NotFound(_)));
                self.findings.push(finding);
            }
        }
    }

    /// If there are findings, and the shard's version differs from the version in the index, inserts a
    /// finding about the version before all other findings. If there are no findings, all checksums match the
    /// index: the content is unchanged, and a new version is no finding.
    fn add_other_version(&mut self, shard: Option<&ShardIndex>, url: &SecretUrl, object: &ObjectVersion) {
        let Some(shard) = shard.filter(|_| !self.findings.is_empty()) else { return };
        let indexed = shard.object_at(url.expose_secret());
        if indexed.compare(object).is_different() && shard.check_object(url.expose_secret(), object).is_ok() {
            let kind = ErrorKind::Stale { then: indexed.to_string(), now: object.to_string() };
            self.findings.insert(0, Finding::of(&kind.into(), &self.url));
        }
    }

    /// Appends to the last finding the byte at which reading resumed.
    fn resumed_at(&mut self, start: Option<&ResumePoint>) {
        let Some(finding) = self.findings.last_mut() else { return };
        let more = match start {
            Some(ResumePoint { offset, .. }) => format!("; reading resumed at byte {offset}"),
            None => "; nothing after it can be read".to_owned(),
        };
        finding.message.push_str(&more);
    }

    /// Adds the finding that the shard was not verified from the byte `from` to its end.
    fn not_verified(&mut self, from: u64, why: &str) {
        self.findings.push(Finding {
            shard: self.url.clone(),
            offset: Some(from),
            member: None,
            key: None,
            kind: "not_verified".into(),
            message: format!("nothing from here to the end of the shard was verified: {why}"),
        });
    }

    /// Adds a finding for which the library has no error. `field` is the key of a sample and the name of a
    /// field.
    fn add_finding(&mut self, kind: &str, field: Option<(&str, &str)>, message: String) {
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
