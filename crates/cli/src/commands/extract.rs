//! `shardstream extract`

use crate::context::Context;
use crate::failure::Failure;
use crate::files;
use crate::input::Input;
use crate::interrupt::Stop;
use crate::open_readers::OpenReaders;
use crate::options::{IndexedPatterns, ThreadsOption};
use crate::parallel::for_each;
use crate::range_samples::{OutputEdit, RangeSamples, SamplePosition};
use crate::samples::{self, ShardProgress};
use crate::shard_reader::ShardReader;
use crate::text;
use crate::write_job::SampleSource;
use clap::ValueEnum;
use md5::{Digest, Md5};
use shardstream::shards::glob::Glob;
use shardstream::store::{ObjectUrl, remove_partial_files};
use shardstream::{Index, Result, Sample, SecretUrl, ShardList};
use std::collections::HashSet;
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex, PoisonError};

/// Write the fields of samples as files named KEY.FIELD.
///
/// A / in a key makes a directory. A key that leads out of the directory (with .. or a leading /) is an
/// error. Two files with the same name are an error; with --existing skip, only one of them is written. Each
/// file appears under its name when it is complete, and all files are on the disk when the command ends. If
/// the pattern is `-`, an uncompressed archive is read from stdin.
///
/// With --index, only the bytes of the written samples are read. An index has no keys, so --keys then reads
/// the headers of all shards first.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    patterns: IndexedPatterns,
    /// The target: a directory, or its URL.
    #[arg(long, value_name = "DIR")]
    to: String,
    /// Only samples with these keys; wildcards are allowed.
    #[arg(long, value_name = "KEY,…", value_delimiter = ',')]
    keys: Vec<String>,
    /// Only these fields.
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',')]
    fields: Vec<String>,
    /// Maximum number of samples that are written.
    #[arg(short = 'n', long = "samples", value_name = "COUNT")]
    samples: Option<u64>,
    /// What to do if a file already exists.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = ExistingFiles::Fail)]
    existing: ExistingFiles,
    #[command(flatten)]
    threads: ThreadsOption,
}

/// What to do with a file that already exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExistingFiles {
    /// Fail, since the file may be from another shard.
    Fail,
    /// Keep the file, to resume an extraction. An empty file is written again unless the field is empty,
    /// because a power failure can leave empty files.
    Skip,
    /// Replace the file.
    Replace,
}

/// What to write, and where.
struct Extraction {
    reader: ShardReader,
    to: String,
    keys: Vec<Glob>,
    fields: Vec<String>,
    existing: ExistingFiles,
    /// MD5 hashes of the names of all files of this run.
    names: Mutex<HashSet<[u8; 16]>>,
    /// Local directories from which partial files of killed runs were removed.
    clean: Mutex<HashSet<String>>,
}

/// Numbers of samples read and written.
#[derive(Debug, Default, Clone, Copy)]
struct ExtractCounts {
    read: u64,
    samples: u64,
    files: u64,
    skipped: u64,
    bytes: u64,
}

pub(crate) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    let (shards, index) = options.patterns.shards_or_stdin(context)?;
    let keys = options.keys.iter().map(|key| Glob::new(key)).collect::<Result<_>>()?;
    let extraction = Extraction {
        reader: context.reader.clone(),
        to: options.to.clone(),
        keys,
        fields: options.fields.clone(),
        existing: options.existing,
        names: Mutex::default(),
        clean: Mutex::default(),
    };
    let threads = options.threads.count();
    let total = match (options.samples, index) {
        (count, Some(index)) => {
            let samples = WantedSamples::find(&extraction, &shards, &index, count, threads, context)?;
            extract_all(extraction, samples, threads, context)
        }
        (Some(count), None) => extract_first(&extraction, &shards, count, context),
        (None, None) => {
            let reader = context.reader.clone();
            extract_all(extraction, WholeShards { shards, reader }, threads, context)
        }
    };
    // The files are synced after a failure too, because a later run with `--existing skip` keeps these files.
    let synced = files::sync_file_system(&options.to);
    let total = total?;
    synced?;
    if !options.keys.is_empty() && total.samples == 0 {
        return Err(Failure::Failed(format!(
            "none of {} samples has a key of --keys",
            text::number(total.read)
        )));
    }
    if !options.fields.is_empty() && total.samples > 0 && total.files + total.skipped == 0 {
        return Err(Failure::Failed(format!(
            "none of {} has a field of --fields",
            text::counted(total.samples, "sample")
        )));
    }
    let skipped = match total.skipped {
        0 => String::new(),
        skipped => format!(", {} skipped", text::counted(skipped, "file")),
    };
    context.output.line(format_args!(
        "{} of {}, {}{skipped}",
        text::counted(total.files, "file"),
        text::counted(total.samples, "sample"),
        text::bytes(total.bytes)
    ))
}

/// Extracts the first `count` samples that match.
fn extract_first(
    extraction: &Extraction,
    shards: &ShardList,
    count: u64,
    context: &Context,
) -> Result<ExtractCounts, Failure> {
    let mut total = ExtractCounts::default();
    if count > 0 {
        samples::in_order(shards, context, "extract", |sample| {
            extraction.write(&sample, &mut total)?;
            Ok(if total.samples == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
    }
    Ok(total)
}

/// Samples, divided into parts that threads extract in parallel.
trait SampleParts: Send + Sync + 'static {
    /// Number of parts.
    fn len(&self) -> usize;

    /// Passes the samples of a part to `take`.
    fn read(&self, part: usize, take: &mut dyn FnMut(Sample) -> Result<()>) -> Result<()>;

    /// Number of the shards' samples that are in no part, because they are not extracted.
    fn others(&self) -> u64 {
        0
    }
}

/// All samples; each shard is a part.
struct WholeShards {
    shards: ShardList,
    reader: ShardReader,
}

impl SampleParts for WholeShards {
    fn len(&self) -> usize {
        self.shards.len()
    }

    fn read(&self, part: usize, take: &mut dyn FnMut(Sample) -> Result<()>) -> Result<()> {
        self.reader.samples(&self.shards[part])?.try_for_each(|sample| take(sample?))
    }
}

/// The selected samples of indexed shards. Only their byte ranges are read.
struct WantedSamples {
    samples: RangeSamples,
    /// For each shard that has selected samples, the indices of these samples in `samples`.
    parts: Vec<Range<usize>>,
    others: u64,
}

impl WantedSamples {
    /// Finds the first `count` selected samples, or all of them if `count` is `None`.
    fn find(
        extraction: &Extraction,
        shards: &ShardList,
        index: &Index,
        count: Option<u64>,
        threads: usize,
        context: &Context,
    ) -> Result<Self, Failure> {
        let input = match extraction.keys.is_empty() {
            true => {
                Input::load(shards, Some(index), threads, context)?.check_unchanged(threads, context)?
            }
            false => Input::with_keys(shards, index, threads, context)?,
        };
        let wanted = input.samples().filter(|(_, _, key)| key.is_none_or(|key| extraction.wants(key)));
        let count = count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
        let order: Vec<SamplePosition> =
            wanted.take(count).map(|(shard, sample, _)| (shard, sample)).collect();
        let mut end = 0;
        let parts = order.chunk_by(|one, next| one.0 == next.0).map(|part| {
            end += part.len();
            end - part.len()..end
        });
        let (parts, others) = (parts.collect(), (input.samples().count() - order.len()) as u64);
        let (reader, input) = (context.reader.clone(), Arc::new(input));
        let open_readers = OpenReaders::new(false);
        let interrupt = &context.interrupt;
        let samples =
            RangeSamples::new(reader, input, order, OutputEdit::default(), threads, open_readers, interrupt);
        Ok(WantedSamples { samples, parts, others })
    }
}

impl SampleParts for WantedSamples {
    fn len(&self) -> usize {
        self.parts.len()
    }

    fn read(&self, part: usize, take: &mut dyn FnMut(Sample) -> Result<()>) -> Result<()> {
        self.samples.read(self.parts[part].clone(), take)
    }

    fn others(&self) -> u64 {
        self.others
    }
}

/// Extracts all samples, several parts at a time.
fn extract_all(
    extraction: Extraction,
    samples: impl SampleParts,
    threads: usize,
    context: &Context,
) -> Result<ExtractCounts, Failure> {
    let parts = samples.len();
    let progress = ShardProgress::start(context, "extract", parts);
    let (extraction, stop) = (Arc::new(extraction), Stop::new(&context.interrupt));
    let mut total = ExtractCounts { read: samples.others(), ..ExtractCounts::default() };
    let (each, stopped) = (progress.clone(), stop.clone());
    let write = move |part| {
        let mut written = ExtractCounts::default();
        samples.read(part, &mut |sample| {
            stopped.check()?;
            extraction.write(&sample, &mut written)?;
            each.add_sample();
            Ok(())
        })?;
        Ok(written)
    };
    let guard = stop.clone();
    let work = move |part: usize| Ok(guard.guard(|| write(part)));
    for_each(parts, threads, &context.interrupt, work, |_, written| {
        progress.add_shard();
        stop.finish()?;
        let ExtractCounts { read, samples, files, skipped, bytes } = written.unwrap_or_default();
        total.read += read;
        total.samples += samples;
        total.files += files;
        total.skipped += skipped;
        total.bytes += bytes;
        Ok(())
    })?;
    Ok(total)
}

impl Extraction {
    /// Reserves the name of a file. Returns false if another sample of this run has reserved the name.
    fn claim(&self, name: &str) -> bool {
        let hash = Md5::digest(name).into();
        self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(hash)
    }

    /// Removes partial files of killed runs from the directory of a file, once per directory.
    fn remove_partial(&self, place: &SecretUrl) {
        let (directory, _) = ObjectUrl::from(place).split_last();
        let mut clean = self.clean.lock().unwrap_or_else(PoisonError::into_inner);
        if !clean.contains(directory) {
            remove_partial_files(directory, |_| true);
            clean.insert(directory.to_owned());
        }
    }

    fn wants(&self, key: &str) -> bool {
        self.keys.is_empty() || self.keys.iter().any(|wanted| wanted.matches(key))
    }

    /// Writes the selected fields of a sample.
    fn write(&self, sample: &Sample, written: &mut ExtractCounts) -> Result<()> {
        written.read += 1;
        if !self.wants(sample.key()) {
            return Ok(());
        }
        written.samples += 1;
        for (field, value) in sample.fields() {
            if !self.fields.is_empty() && !self.fields.iter().any(|wanted| wanted == field) {
                continue;
            }
            let Some(bytes) = value.as_bytes() else { continue };
            let name = format!("{}.{field}", sample.key());
            let place = ObjectUrl::parse(&self.to).join(&name).map_err(|error| sample.locate(error))?;
            if !self.claim(&name) {
                if self.existing == ExistingFiles::Skip {
                    written.skipped += 1;
                    continue;
                }
                let message = format!(
                    "two samples have the name {name:?}: extract their shards to different directories"
                );
                return Err(sample.locate(io::Error::new(io::ErrorKind::AlreadyExists, message).into()));
            }
            self.remove_partial(&place);
            let place = place.expose_secret();
            let replace = self.existing == ExistingFiles::Replace
                || self.existing == ExistingFiles::Skip && !bytes.is_empty() && files::is_empty(place)?;
            let is_written = (replace || !files::exists(&self.reader.store, place)?)
                && files::write(&self.reader.store, place, bytes, replace)
                    .map_err(|error| sample.locate(error.in_member(name.clone())))?;
            if is_written {
                written.files += 1;
                written.bytes += bytes.len() as u64;
            } else if self.existing == ExistingFiles::Skip {
                written.skipped += 1;
            } else {
                let message = format!(
                    "{} already exists: --existing skip keeps it, --existing replace replaces it",
                    SecretUrl::from(place)
                );
                let error = io::Error::new(io::ErrorKind::AlreadyExists, message);
                return Err(sample.locate(error.into()));
            }
        }
        Ok(())
    }
}
