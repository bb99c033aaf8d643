//! `shardstream extract`

use crate::context::Context;
use crate::failure::Failure;
use crate::files;
use crate::interrupt::Stop;
use crate::options::{Patterns, ThreadsOption};
use crate::parallel::for_each_shard;
use crate::samples::{self, ShardProgress};
use crate::shard_reader::ShardReader;
use crate::text;
use clap::ValueEnum;
use md5::{Digest, Md5};
use shardstream::shards::glob::Glob;
use shardstream::store::{ObjectUrl, remove_partial_files};
use shardstream::{Result, Sample, SecretUrl, ShardList};
use std::collections::HashSet;
use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

/// Write the fields of samples as files named KEY.FIELD.
///
/// A / in a key makes a directory. A key that would lead out of the directory (with .. or a leading /) is
/// refused. Two files of the same name are an error, except with --existing skip, which writes one of them.
/// Each file appears under its name when it is complete, and all are on the disk when the command ends.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    patterns: Patterns,
    /// The target: a directory, or its URL.
    #[arg(long, value_name = "DIR")]
    to: String,
    /// Only samples with these keys; wildcards are allowed.
    #[arg(long, value_name = "KEY,…", value_delimiter = ',')]
    keys: Vec<String>,
    /// Only these fields.
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',')]
    fields: Vec<String>,
    /// Maximum number of samples written.
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
    /// Fail, since it may be from another shard.
    Fail,
    /// Keep it, to resume an extraction. An empty file in the place of one that is not is written again: a
    /// power failure leaves such files.
    Skip,
    /// Replace it.
    Replace,
}

/// The fields to write, and their target.
struct Extraction {
    reader: ShardReader,
    to: String,
    keys: Vec<Glob>,
    fields: Vec<String>,
    existing: ExistingFiles,
    /// MD5 hashes of the names of all files of this run.
    names: Mutex<HashSet<[u8; 16]>>,
    /// The local directories without partial files of killed runs.
    clean: Mutex<HashSet<String>>,
}

/// What was read and written.
#[derive(Debug, Default, Clone, Copy)]
struct ExtractCounts {
    read: u64,
    samples: u64,
    files: u64,
    skipped: u64,
    bytes: u64,
}

pub(crate) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    let shards = options.patterns.shards(context)?;
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
    let total = match options.samples {
        Some(count) => extract_first(&extraction, &shards, count, context),
        None => extract_all(extraction, &shards, options.threads.count(), context),
    };
    // After a failure as well: --existing skip keeps these files.
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
        skipped => format!(", {} that were there", text::counted(skipped, "file")),
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

/// Extracts all samples, several shards at a time.
fn extract_all(
    extraction: Extraction,
    shards: &ShardList,
    threads: usize,
    context: &Context,
) -> Result<ExtractCounts, Failure> {
    let progress = ShardProgress::start(context, "extract", shards.len());
    let (extraction, stop) = (Arc::new(extraction), Stop::new(&context.interrupt));
    let mut total = ExtractCounts::default();
    let (each, stopped) = (progress.clone(), stop.clone());
    let write = move |url: &SecretUrl| {
        let mut written = ExtractCounts::default();
        for sample in extraction.reader.samples(url)? {
            stopped.check()?;
            extraction.write(&sample?, &mut written)?;
            each.add_sample();
        }
        Ok(written)
    };
    let guard = stop.clone();
    let work = move |_: usize, url: &SecretUrl| Ok(guard.guard(|| write(url)));
    for_each_shard(shards, threads, &context.interrupt, work, |_, written| {
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
    /// Reserves the name of a file. Returns false if another sample of this run has it.
    fn claim(&self, name: &str) -> bool {
        let hash = Md5::digest(name).into();
        self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(hash)
    }

    /// Removes partial files that killed runs left beside the file, once for each directory.
    fn remove_partial(&self, place: &SecretUrl) {
        let (directory, _) = ObjectUrl::from(place).split_last();
        let mut clean = self.clean.lock().unwrap_or_else(PoisonError::into_inner);
        if !clean.contains(directory) {
            remove_partial_files(directory, |_| true);
            clean.insert(directory.to_owned());
        }
    }

    /// Writes the selected fields of a sample.
    fn write(&self, sample: &Sample, written: &mut ExtractCounts) -> Result<()> {
        written.read += 1;
        if !self.keys.is_empty() && !self.keys.iter().any(|key| key.matches(sample.key())) {
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
                let message =
                    format!("two samples have the name {name:?}: extract their shards to two places");
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
                let message = format!("{} already exists: see --existing", SecretUrl::from(place));
                let error = io::Error::new(io::ErrorKind::AlreadyExists, message);
                return Err(sample.locate(error.into()));
            }
        }
        Ok(())
    }
}
