//! Saving a training and going on from there: the network and the state of the data in one object, so that the two
//! cannot come from different steps.

mod document;
mod saver;

pub use document::{Checkpoint, Identity, Inputs};
pub use saver::{Saved, Saver};

use crate::artifact::{Artifact, StateBuffer};
use crate::train::Options;
use shardstream::ErrorKind;
use shardstream::prelude::*;
use shardstream::tar::{SampleParser, read};
use shardstream::write::TarWriter;
use std::io::{self, BufWriter, Write};
use std::time::Instant;

/// Why a checkpoint cannot be written or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The place is not one that can be listed and written to.
    #[error("cannot keep checkpoints in {url:?}: {reason}")]
    Place {
        /// The place.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The place cannot be looked at.
    #[error("cannot list the checkpoints in {url}")]
    List {
        /// The place.
        url: String,
        /// Why.
        source: shardstream::Error,
    },
    /// A new training would mix its checkpoints with those of an older one.
    #[error(
        "{newest} is there already: --resume goes on from it; to start anew, remove it or choose another place"
    )]
    Exists {
        /// The newest one.
        newest: String,
    },
    /// It could not be written.
    #[error("cannot write the checkpoint {url}")]
    Write {
        /// The object.
        url: String,
        /// Why.
        source: shardstream::Error,
    },
    /// It could not be read.
    #[error(
        "cannot read the checkpoint {url}; if it is damaged, remove it: --resume then takes the one before it"
    )]
    Read {
        /// The object.
        url: String,
        /// Why.
        source: shardstream::Error,
    },
    /// What was read is not what was written.
    #[error("the checkpoint {url} is damaged ({reason}): remove it, and --resume takes the one before it")]
    Damaged {
        /// The object.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// It was written by a newer program.
    #[error("the checkpoint {url} is of version {version}, and this program knows {}", document::VERSION)]
    Version {
        /// The object.
        url: String,
        /// Of the checkpoint.
        version: u64,
    },
    /// It is of another training.
    #[error("the checkpoint {url} is of another training ({})", differences.join("; "))]
    Other {
        /// The object.
        url: String,
        /// What is not the same.
        differences: Vec<String>,
    },
    /// The batches carry no state.
    #[error("the data does not say its state, without which no checkpoint can be made")]
    NoState,
    /// The thread that writes panicked; its message is on the standard error.
    #[error("the thread that writes checkpoints panicked")]
    Panicked,
    /// No thread could be had.
    #[error("cannot start the thread that writes checkpoints")]
    Thread(#[from] io::Error),
}

/// The result of saving and loading.
pub type Result<T> = std::result::Result<T, Error>;

/// The checkpoints of one training: objects `checkpoint-00000120.tar`, by step, in a directory or bucket.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    store: Store,
    /// Without a slash at the end.
    url: String,
    identity: Identity,
    inputs: Inputs,
    buffers: Vec<StateBuffer>,
}

impl Checkpoints {
    /// Those at `url`: a directory, or `gs://bucket/prefix` and its like. Nothing is looked at yet.
    pub fn new(url: &str, artifact: &Artifact, seed: i32, options: &Options) -> Result<Self> {
        let bad = |reason| Error::Place { url: url.into(), reason };
        let trimmed = url.trim_end_matches('/');
        if trimmed.is_empty() {
            return Err(bad("name a directory, or a bucket with a prefix"));
        }
        if url.starts_with("file:") {
            // Listing gives such URLs in another spelling, by which an object could not be told from one below it.
            return Err(bad("write the path without file:"));
        }
        Ok(Self {
            store: Store::default(),
            url: trimmed.into(),
            identity: Identity::new(&artifact.manifest, seed),
            inputs: Inputs::new(options),
            buffers: artifact.manifest.state.clone(),
        })
    }

    /// Where a training starts: from the newest checkpoint, if that is wanted and there is one, and else from nothing.
    ///
    /// A checkpoint that cannot be used is an error, never passed over: what the training would then repeat, and with
    /// which weights, is for people to decide.
    pub fn begin(&self, resume: bool, out: &mut dyn Write) -> crate::Result<Option<Checkpoint>> {
        let Some(url) = self.newest()? else {
            if resume {
                writeln!(out, "no checkpoint in {}: starting from the beginning", self.url)?;
            }
            return Ok(None);
        };
        if !resume {
            return Err(Error::Exists { newest: url }.into());
        }
        let (checkpoint, changed) = self.load(&url)?;
        for change in changed {
            writeln!(out, "changed since the checkpoint: {change}")?;
        }
        writeln!(out, "resumed from {url}: {}", checkpoint.place(self.inputs.epochs))?;
        Ok(Some(checkpoint))
    }

    /// The URL of the one with most steps.
    pub fn newest(&self) -> Result<Option<String>> {
        let objects = match self.store.list(&self.url) {
            // The directory is made with the first checkpoint.
            Err(e) if matches!(e.kind(), ErrorKind::NotFound(_)) => vec![],
            listed => listed.map_err(|source| Error::List { url: self.url.clone(), source })?,
        };
        let number = |url: &str| number(url.strip_prefix(&self.url)?.strip_prefix(std::path::is_separator)?);
        let numbered = objects.into_iter().filter_map(|object| Some((number(&object.url)?, object.url)));
        Ok(numbered.max().map(|(_, url)| url))
    }

    /// Reads a checkpoint; with what has changed since of the options that a training may change.
    pub fn load(&self, url: &str) -> Result<(Checkpoint, Vec<String>)> {
        let samples = self.samples(url).map_err(|source| Error::Read { url: url.into(), source })?;
        document::decode(samples, url, &self.identity, &self.inputs, &self.buffers)
    }

    fn samples(&self, url: &str) -> shardstream::Result<Vec<Sample>> {
        read(self.store.open(url)?, SampleParser::new(url)).collect()
    }

    /// Writes a checkpoint, which appears whole or not at all. Blocks.
    pub fn write(&self, checkpoint: Checkpoint) -> Result<Saved> {
        let start = Instant::now();
        let url = format!("{}/{}", self.url, name(checkpoint.progress.steps()));
        let what = checkpoint.title();
        let write = || {
            let sample = document::encode(checkpoint, &self.identity, &self.inputs, &self.buffers)?;
            let mut tar = TarWriter::new(BufWriter::new(self.store.create(&url)?));
            tar.write(&sample)?;
            let object = tar.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
            Ok(object.finish()?.size)
        };
        let bytes = write().map_err(|source| Error::Write { url: url.clone(), source })?;
        Ok(Saved { what, bytes, time: start.elapsed(), url })
    }
}

/// The name sorts by step.
fn name(step: u64) -> String {
    format!("checkpoint-{step:08}.tar")
}

/// The step of a name.
fn number(of: &str) -> Option<u64> {
    let step = of.strip_prefix("checkpoint-")?.strip_suffix(".tar")?.parse().ok()?;
    (name(step) == of).then_some(step)
}

#[cfg(test)]
mod tests;
