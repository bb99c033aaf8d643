//! Reads the samples of the input shards in any order, by byte range.

use crate::failure::other_error;
use crate::field_edit::FieldEdit;
use crate::input::Input;
use crate::input_hash::InputHash;
use crate::interrupt::{Interrupt, interrupted};
use crate::open_readers::OpenReaders;
use crate::shard_reader::ShardReader;
use crate::write_job::SampleSource;
use shardstream::error::FailureClass;
use shardstream::index::ShardIndex;
use shardstream::prelude::*;
use shardstream::store::{Body, ObjectVersion};
use shardstream::tar::{Read, SampleParser, read};
use shardstream::write::{ArchiveSize, TarWriter};
use shardstream::{ErrorKind, Result};
use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of bytes of one request, unless a single sample is larger.
const MAX_READ: u64 = 4 << 20;
/// Maximum number of bytes between two samples of one request. These bytes are read and discarded, because a
/// second request would take longer.
const MAX_GAP: u64 = 256 << 10;

/// Number of ranges of remote shards that all threads together read at a time.
const CONCURRENT_READS: usize = 32;

/// Size of a block of a tar archive.
const BLOCK: u64 = 512;
/// Size of the headers of a member whose name has up to 100 bytes.
const SHORT_NAME: u64 = BLOCK;
/// Size of the headers of a member whose name has more than 100 bytes.
const LONG_NAME: u64 = 3 * BLOCK;
/// Size of the largest headers that are written for one member.
const LONGEST_NAME: u64 = 11 * BLOCK;

/// A sample of the input: the number of its shard, and its number in the index of that shard.
pub(crate) type SamplePosition = (u32, u32);

/// Samples of the input shards in a given order.
#[derive(Debug)]
pub(crate) struct RangeSamples(Arc<RangeReader>);

/// Changes that are made to the samples.
#[derive(Debug, Default)]
pub(crate) struct OutputEdit {
    pub(crate) fields: FieldEdit,
    /// Whether the samples' numbers in the output become their keys.
    pub(crate) rekey: bool,
}

#[derive(Debug)]
struct RangeReader {
    reader: ShardReader,
    input: Arc<Input>,
    order: Vec<SamplePosition>,
    edit: FieldEdit,
    /// See [`OutputEdit::rekey`].
    rekey: bool,
    /// Number of ranges that each thread reads at a time.
    concurrent_reads: usize,
    /// Readers of shards whose samples have no byte ranges.
    open_readers: OpenReaders,
    interrupt: Interrupt,
}

/// Adjacent samples of one shard that are read in one request.
#[derive(Debug)]
struct SampleRun {
    shard: u32,
    /// Numbers of the samples, ascending.
    samples: Vec<u64>,
    /// Bytes from the first to the last sample; `None` if the samples have no byte ranges.
    range: Option<Range<u64>>,
    /// Whether the reader is closed after this run. It is kept open only if the first sample after the
    /// requested samples is in the same shard.
    is_last: bool,
}

impl RangeSamples {
    /// The samples of `input` in the given order. `threads` threads will read them at the same time.
    pub(crate) fn new(
        reader: ShardReader,
        input: Arc<Input>,
        order: Vec<SamplePosition>,
        edit: OutputEdit,
        threads: usize,
        open_readers: OpenReaders,
        interrupt: &Interrupt,
    ) -> Self {
        let concurrent_reads = if input.is_remote() { (CONCURRENT_READS / threads).max(1) } else { 1 };
        let OutputEdit { fields: edit, rekey } = edit;
        RangeSamples(Arc::new(RangeReader {
            reader,
            input,
            order,
            edit,
            rekey,
            concurrent_reads,
            open_readers,
            interrupt: interrupt.clone(),
        }))
    }

    /// Adds the members of the output sample `number` to the size of an archive. If the keys are not known,
    /// the headers are assumed to be as long as in the input.
    pub(crate) fn add_members(&self, number: usize, size: &mut ArchiveSize) {
        let inner = &*self.0;
        let Some((shard, sample)) = inner.order.get(number).copied() else { return };
        if let Some(key) = inner.key(number) {
            for (field, bytes) in inner.sizes(number).unwrap_or_default() {
                size.add(&key, &field, bytes);
            }
            return;
        }
        let headers = inner.headers(shard, sample).unwrap_or_default();
        let fields = inner.shard(shard).and_then(|shard| shard.fields(u64::from(sample)));
        for (at, (field, bytes)) in fields.into_iter().flatten().enumerate() {
            let Some(name) = inner.edit.name(field) else { continue };
            let header = headers.get(at).copied().unwrap_or(0).clamp(SHORT_NAME, LONGEST_NAME);
            // A renamed field with a longer name may need the headers of a long name.
            let minimum = if name.len() > field.len() { LONG_NAME } else { SHORT_NAME };
            size.add_member(header.max(minimum), bytes);
        }
    }

    /// Checks that one shard can hold these samples.
    ///
    /// # Errors
    /// For a sample without fields, two fields with the same name, an invalid name, and duplicate keys.
    pub(crate) fn check(&self, samples: Range<usize>) -> Result<()> {
        let inner = &*self.0;
        let mut writer = TarWriter::new(io::sink());
        for number in samples {
            let Some((shard, sample)) = inner.order.get(number).copied() else { continue };
            let input_key = inner.input.key(shard, sample);
            // If the keys are not known, only the fields are checked.
            let key = inner.key(number).unwrap_or_else(|| Cow::Owned(number.to_string()));
            let mut edited = Sample::new(&*key);
            let located = |error: shardstream::Error| {
                let error = match input_key {
                    Some(key) => error.with_key(key),
                    None => error,
                };
                match inner.input.urls.get(shard as usize) {
                    Some(url) => error.in_shard(url.expose_secret()),
                    None => error,
                }
            };
            for (field, _) in inner.sizes(number).unwrap_or_default() {
                if edited.set(field.clone(), Value::from(b"")).is_some() {
                    return Err(located(other_error(format!(
                        "two fields of sample {sample} would have the name {field:?}"
                    ))));
                }
            }
            if edited.is_empty() {
                let what = format!("no field of sample {sample} is left: keep at least one field");
                return Err(located(other_error(what)));
            }
            writer.write(&edited).map_err(|error| match input_key {
                Some(_) => located(error),
                None => located(other_error(format!("sample {sample} cannot be written: {}", error.kind()))),
            })?;
        }
        Ok(())
    }

    /// A hash of the input shards, of the keys, if they are known, and of the order of the samples.
    pub(crate) fn hash(&self) -> InputHash {
        let RangeReader { input, order, .. } = &*self.0;
        let mut hash = InputHash::default();
        for ((shard, url), object) in input.shards.iter().zip(&input.urls).zip(&input.objects) {
            // Only the file name is hashed, because other machines may mount the bucket at another path.
            let url = url.to_string();
            hash.text(url.rsplit('/').next().unwrap_or(&url));
            hash.number(shard.bytes().unwrap_or(0));
            hash.text(ObjectVersion::unmarked(object.version.as_deref().unwrap_or_default()));
        }
        // If the keys are not known, this loop hashes nothing. So a run with keys and a run without keys have
        // different plans.
        for keys in input.keys.iter().flatten() {
            hash.number(keys.len() as u64);
            keys.iter().for_each(|key| hash.text(key));
        }
        for (shard, sample) in order {
            let size = self.0.shard(*shard).and_then(|shard| shard.size_of(u64::from(*sample)));
            [u64::from(*shard), u64::from(*sample), size.unwrap_or(0)]
                .into_iter()
                .for_each(|n| hash.number(n));
        }
        hash
    }
}

impl RangeReader {
    /// Size of the headers of each member of an input sample; `None` if the index has no offsets.
    fn headers(&self, shard: u32, sample: u32) -> Option<Vec<u64>> {
        let (shard, sample) = (self.shard(shard)?, u64::from(sample));
        let mut before = shard.range(sample..sample + 1)?.start;
        let header = |(_, content): (&str, Range<u64>)| {
            let headers = content.start.saturating_sub(before);
            before = content.end.checked_next_multiple_of(BLOCK)?;
            Some(headers)
        };
        shard.members(sample)?.map(header).collect()
    }

    /// The key of an output sample, if it is known.
    fn key(&self, number: usize) -> Option<Cow<'_, str>> {
        if self.rekey {
            return Some(Cow::Owned(format!("{number:09}")));
        }
        let (shard, sample) = *self.order.get(number)?;
        self.input.key(shard, sample).map(Cow::Borrowed)
    }

    fn shard(&self, number: u32) -> Option<&ShardIndex> {
        self.input.shards.get(number as usize)
    }

    /// The name and size of each field of an output sample.
    fn sizes(&self, number: usize) -> Option<Vec<(String, u64)>> {
        let (shard, sample) = *self.order.get(number)?;
        let fields = self.shard(shard)?.fields(u64::from(sample))?;
        let named = fields.filter_map(|(field, size)| Some((self.edit.name(field)?.to_owned(), size)));
        Some(named.collect())
    }

    /// Groups output samples into runs of samples that are near each other in the same input shard.
    fn runs(&self, samples: Range<usize>) -> Vec<SampleRun> {
        let mut runs: Vec<SampleRun> = Vec::new();
        let next_shard = self.order.get(samples.end).map(|(shard, _)| *shard);
        for &(number, sample) in self.order.get(samples).unwrap_or_default() {
            let (Some(shard), sample) = (self.shard(number), u64::from(sample)) else { continue };
            let range = shard.range(sample..sample + 1);
            if let Some(run) = runs.last_mut().filter(|run| run.shard == number)
                && run.samples.last().is_some_and(|last| *last < sample)
            {
                match (&mut run.range, &range) {
                    (None, None) => {
                        run.samples.push(sample);
                        continue;
                    }
                    (Some(before), Some(next))
                        if next.start.saturating_sub(before.end) <= MAX_GAP
                            && next.end - before.start <= MAX_READ =>
                    {
                        run.samples.push(sample);
                        before.end = next.end;
                        continue;
                    }
                    _ => {}
                }
            }
            runs.push(SampleRun { shard: number, samples: vec![sample], range, is_last: true });
        }
        if let Some(run) = runs.last_mut() {
            run.is_last = next_shard != Some(run.shard);
        }
        runs
    }

    /// Reads a run, and passes each edited sample to `take`.
    fn read(&self, run: &SampleRun, take: &mut dyn FnMut(Sample) -> Result<()>) -> Result<()> {
        let (number, input) = (run.shard as usize, &self.input);
        let (Some(shard), Some(url), Some(object)) =
            (self.shard(run.shard), input.urls.get(number), input.objects.get(number))
        else {
            return Ok(());
        };
        let (url, first) = (url.expose_secret(), run.samples.first().copied().unwrap_or(0));
        let parser = SampleParser::new(url).with_limits(self.reader.limits);
        let Some(range) = &run.range else {
            // A compressed shard has no byte ranges. An open reader continues from its position; a new reader
            // begins at the first byte.
            let end = run.samples.last().map_or(first, |last| last + 1);
            let (open_reader, reader_use) = self.open_readers.begin(run.shard, first, end);
            let mut samples = match open_reader {
                Some(samples) => samples,
                None => read(self.reader.store.open(url)?.of_version(object), parser),
            };
            self.take_samples(run, shard, url, &mut samples, take)?;
            if !run.is_last {
                reader_use.keep(samples);
            }
            return Ok(());
        };
        let parser = parser.starting(shard.position_of(first).unwrap_or(first), range.start);
        let is_cut = shard.bytes() != Some(range.end);
        let body = self.reader.store.open_range(url, range.clone(), object)?;
        let mut samples = read(body, if is_cut { parser.cut() } else { parser });
        self.take_samples(run, shard, url, &mut samples, take)
    }

    /// Edits the samples of a run and passes them to `take`. Drops samples that are not in the run.
    fn take_samples(
        &self,
        run: &SampleRun,
        shard: &ShardIndex,
        url: &str,
        samples: &mut Read<Body>,
        take: &mut dyn FnMut(Sample) -> Result<()>,
    ) -> Result<()> {
        let mut wanted = run.samples.iter().copied().peekable();
        for sample in samples {
            // Checked for each sample, because a compressed shard may have many samples before the run.
            if self.interrupt.is_set() {
                return Err(interrupted());
            }
            let sample = match sample {
                // Damaged samples are left out. If one of the wanted samples is damaged, the code after this
                // loop finds that it was not read.
                Err(error) if self.input.damaged.is_some() && is_damage(&error) => continue,
                sample => sample?,
            };
            let Some(next) = wanted.peek().copied() else { break };
            if shard.position_of(next) != Some(sample.position().sample) {
                continue;
            }
            wanted.next();
            shard.check(&sample).map_err(|error| error.in_shard(url))?;
            take(self.edit.apply(sample)?)?;
            if wanted.peek().is_none() {
                break;
            }
        }
        match wanted.next() {
            None => Ok(()),
            Some(missing) => Err(stale(url, missing)),
        }
    }
}

fn is_damage(error: &shardstream::Error) -> bool {
    error.kind().failure_class() == Some(FailureClass::Damage)
}

/// The error for a shard that lacks a sample of its index.
fn stale(url: &str, sample: u64) -> shardstream::Error {
    let what = format!("the shard has no sample {sample}, but the index has: build the index again");
    shardstream::Error::from(ErrorKind::Index(what)).in_shard(url)
}

/// The same sample with another key.
fn with_key(sample: &Sample, key: &str) -> Sample {
    let mut renamed = Sample::new(key);
    for (field, value) in sample.fields() {
        // `set` returns the old value of the field. The fields have different names, so there is no old
        // value.
        drop(renamed.set(field.to_owned(), value.clone()));
    }
    renamed
}

impl SampleSource for RangeSamples {
    fn read(&self, samples: Range<usize>, take: &mut dyn FnMut(Sample) -> Result<()>) -> Result<()> {
        let (inner, runs) = (&self.0, self.0.runs(samples.clone()));
        let mut numbers = samples;
        let mut rekeyed = |sample: Sample| {
            let key = numbers.next().filter(|_| inner.rekey).and_then(|number| inner.key(number));
            take(match key {
                Some(key) => with_key(&sample, &key),
                None => sample,
            })
        };
        let take = &mut rekeyed;
        let have_ranges = runs.iter().all(|run| run.range.is_some());
        if inner.concurrent_reads <= 1 || runs.len() <= 1 || !have_ranges {
            return runs.iter().try_for_each(|run| inner.read(run, take));
        }
        let (reader, reads) = (Arc::clone(inner), inner.concurrent_reads);
        let samples = runs.into_iter().map(Ok).pipeline().par_map(reads, move |run: SampleRun| {
            let mut samples = Vec::with_capacity(run.samples.len());
            reader.read(&run, &mut |sample| {
                samples.push(sample);
                Ok(())
            })?;
            Ok(samples)
        });
        for samples in samples.ahead(reads) {
            samples?.into_iter().try_for_each(&mut *take)?;
        }
        Ok(())
    }
}
