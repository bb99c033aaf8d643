//! `shardstream extract`

use crate::context::Context;
use crate::failure::Failure;
use crate::files;
use crate::interrupt::Stop;
use crate::options::{Patterns, ThreadsOption};
use crate::parallel::for_each_shard;
use crate::samples::{self, ShardProgress};
use crate::text;
use clap::ValueEnum;
use md5::{Digest, Md5};
use shardstream::shards::glob::Glob;
use shardstream::store::Store;
use shardstream::{Result, Sample, SecretUrl, ShardList};
use std::collections::HashSet;
use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

/// Write the fields of samples as files named KEY.FIELD.
///
/// Keys with / make directories. A key that would lead out of the directory (with .. or a leading /) is
/// refused. Two samples of one name are an error, except with --existing skip, which writes one of them. Each
/// file appears under its name when it is whole.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    patterns: Patterns,
    /// Where to: a directory, or the URL of one.
    #[arg(long, value_name = "DIR")]
    to: String,
    /// Only samples of these keys; wildcards are allowed.
    #[arg(long, value_name = "KEY,…", value_delimiter = ',')]
    keys: Vec<String>,
    /// Only these fields.
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',')]
    fields: Vec<String>,
    /// The most samples that are written.
    #[arg(short = 'n', long = "samples", value_name = "COUNT")]
    samples: Option<u64>,
    /// What to do where a file is there already.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = ExistingFiles::Fail)]
    existing: ExistingFiles,
    #[command(flatten)]
    threads: ThreadsOption,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExistingFiles {
    /// End with an error: it may be of another shard.
    Fail,
    /// Leave it as it is: to resume.
    Skip,
    /// Write it again.
    Replace,
}

/// Which fields are written, and where.
struct Extraction {
    store: Store,
    to: String,
    keys: Vec<Glob>,
    fields: Vec<String>,
    existing: ExistingFiles,
    /// MD5 of the names of all files of this run.
    names: Mutex<HashSet<[u8; 16]>>,
}

/// What was written.
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
        store: context.store.clone(),
        to: options.to.clone(),
        keys,
        fields: options.fields.clone(),
        existing: options.existing,
        names: Mutex::default(),
    };
    let total = match options.samples {
        Some(most) => first(&extraction, &shards, most, context)?,
        None => all(extraction, &shards, options.threads.count(), context)?,
    };
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

fn first(
    extraction: &Extraction,
    shards: &ShardList,
    most: u64,
    context: &Context,
) -> Result<ExtractCounts, Failure> {
    let mut total = ExtractCounts::default();
    if most > 0 {
        samples::in_order(shards, context, "extract", |sample| {
            extraction.write(&sample, &mut total)?;
            Ok(if total.samples == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
    }
    Ok(total)
}

fn all(
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
        for sample in samples::of_shard(&extraction.store, url)? {
            stopped.check()?;
            extraction.write(&sample?, &mut written)?;
            each.sample();
        }
        Ok(written)
    };
    let guard = stop.clone();
    let work = move |_: usize, url: &SecretUrl| Ok(guard.guard(|| write(url)));
    for_each_shard(shards, threads, &context.interrupt, work, |_, written| {
        progress.shard();
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
    /// Whether this sample is the first one of this run with the name. Two threads may ask at the same time.
    fn claim(&self, name: &str) -> bool {
        let hash = Md5::digest(name).into();
        self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(hash)
    }

    /// Writes the fields of a sample that are wanted.
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
            if let Some(why) = files::leads_out(&name) {
                let message = format!("the name {name:?} {why}, and is not written");
                return Err(sample.locate(io::Error::new(io::ErrorKind::InvalidInput, message).into()));
            }
            if !self.claim(&name) {
                if self.existing == ExistingFiles::Skip {
                    written.skipped += 1;
                    continue;
                }
                let message =
                    format!("two samples have the name {name:?}: extract their shards to two places");
                return Err(sample.locate(io::Error::new(io::ErrorKind::AlreadyExists, message).into()));
            }
            let place = files::below(&self.to, &name);
            let replace = self.existing == ExistingFiles::Replace;
            let is_written = (replace || !files::exists(&self.store, &place)?)
                && files::write(&self.store, &place, bytes, replace)
                    .map_err(|error| sample.locate(error.in_member(name.clone())))?;
            if is_written {
                written.files += 1;
                written.bytes += bytes.len() as u64;
            } else if self.existing == ExistingFiles::Skip {
                written.skipped += 1;
            } else {
                let message = format!("{} is there already: see --existing", SecretUrl::from(place));
                let error = io::Error::new(io::ErrorKind::AlreadyExists, message);
                return Err(sample.locate(error.into()));
            }
        }
        Ok(())
    }
}
