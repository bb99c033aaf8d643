//! Saving a training and resuming from there: the network and the state of the data in one object, so that
//! the two cannot come from different steps.

mod document;
mod listing;
mod part;
mod saver;

pub use document::{Checkpoint, Identity, Inputs};
pub use saver::{Saved, Saver};

use crate::artifact::{Artifact, StateBuffer};
use crate::report::{Progress, Summary};
use crate::train::Options;
use listing::{Listing, Name};
use part::{Part, Refused};
use shardstream::prelude::*;
use shardstream::tar::{SampleParser, read};
use shardstream::write::TarWriter;
use shardstream::{ErrorKind, SecretUrl, State};
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Why a checkpoint cannot be written or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The place is not one that can be listed and written to.
    #[error("cannot keep checkpoints in {url:?}: {reason}")]
    Place {
        /// The place.
        url: SecretUrl,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The place cannot be looked at.
    #[error("cannot list the checkpoints in {url}")]
    List {
        /// The place.
        url: SecretUrl,
        /// Why.
        source: shardstream::Error,
    },
    /// A new training would mix its checkpoints with those of an older one.
    #[error(
        "{newest} is there already: --resume resumes from it; to start anew, remove it or choose another \
         place"
    )]
    Exists {
        /// The newest one.
        newest: SecretUrl,
    },
    /// It could not be written.
    #[error("cannot write the checkpoint {url}")]
    Write {
        /// The object.
        url: SecretUrl,
        /// Why.
        source: shardstream::Error,
    },
    /// It could not be read.
    #[error(
        "cannot read the checkpoint {url}; if it is damaged, remove it: --resume then takes the one before it"
    )]
    Read {
        /// The object.
        url: SecretUrl,
        /// Why.
        source: shardstream::Error,
    },
    /// What was read is not what was written.
    #[error("the checkpoint {url} is damaged ({reason}): remove it, and --resume takes the one before it")]
    Damaged {
        /// The object.
        url: SecretUrl,
        /// What is wrong with it.
        reason: String,
    },
    /// A rank died before it had written its part.
    #[error("the checkpoint {url} is incomplete: {missing} is missing")]
    Incomplete {
        /// The object of the first rank.
        url: SecretUrl,
        /// That of another.
        missing: SecretUrl,
    },
    /// It was written by an older or newer trainer.
    #[error(
        "the checkpoint {url} is of version {version}, and this trainer reads version {}: finish that \
         training with the trainer that began it, or start anew in another place",
        document::VERSION
    )]
    Version {
        /// The object.
        url: SecretUrl,
        /// Of the checkpoint.
        version: u64,
    },
    /// It is of another training.
    #[error("the checkpoint {url} is of another training ({})", differences.join("; "))]
    Other {
        /// The object.
        url: SecretUrl,
        /// What is not the same.
        differences: Vec<String>,
    },
    /// Another rank may have resumed from another one.
    #[error(
        "the checkpoint {newest} was completed while the ranks of the job were starting, and others may have \
         resumed from it: start all ranks again"
    )]
    Changed {
        /// The newest.
        newest: SecretUrl,
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

impl Error {
    /// Whether the checkpoint itself is damaged, so that no further try can read it.
    fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { .. } | Self::Incomplete { .. } => true,
            Self::Read { source, .. } => Failures::damage().contains(source.kind()),
            _ => false,
        }
    }
}

/// Whether a training resumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Resume {
    /// It starts anew, in a place without checkpoints.
    #[value(skip)]
    No,
    /// From the newest checkpoint; one that is damaged is an error
    Newest,
    /// From the newest checkpoint that is not damaged
    Auto,
}

impl From<bool> for Resume {
    fn from(resume: bool) -> Self {
        if resume { Self::Newest } else { Self::No }
    }
}

/// The result of saving and loading.
pub type Result<T> = std::result::Result<T, Error>;

/// The checkpoints of one training, in a directory or bucket.
///
/// Of a training of one process a checkpoint is one object, `checkpoint-00000120.tar`, by step. Several
/// processes, of which each has the state of its own data alone, write one object each: the first one
/// `checkpoint-00000120.rank-00000-of-00008.tar`, with the network, the others
/// `checkpoint-00000120.rank-00003-of-00008.json`. It is complete when all are there. Each process reads all
/// of them, so that any number of processes can continue.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    store: Store,
    /// Without a slash at the end.
    url: String,
    identity: Identity,
    inputs: Inputs,
    buffers: Vec<StateBuffer>,
    keep: usize,
    topology: Topology,
    /// The highest step of a damaged one that was passed over.
    damaged: Arc<AtomicU64>,
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
            // Listing gives such URLs in another spelling, by which an object could not be told from one
            // below it.
            return Err(bad("write the path without file:"));
        }
        Ok(Self {
            store: Store::default(),
            url: trimmed.into(),
            identity: Identity::new(&artifact.manifest, seed),
            inputs: Inputs::new(options),
            buffers: artifact.manifest.state.clone(),
            keep: 0,
            topology: Topology::single(),
            damaged: Arc::default(),
        })
    }

    /// Keeps the last `keep` complete ones (0: all) and that of the best epoch; older ones are deleted when a
    /// new one has been written. While other ranks still write the newest there may be one more.
    pub fn keep(self, keep: usize) -> Self {
        Self { keep, ..self }
    }

    /// Those of dry runs, which have learnt nothing.
    pub fn dry(self, is_dry: bool) -> Self {
        if is_dry { Self { identity: self.identity.dry(), ..self } } else { self }
    }

    /// As one of several processes.
    pub fn topology(self, topology: Topology) -> Self {
        Self { topology, ..self }
    }

    /// Says of one more option that the steps to come depend on, and that may change, what it is.
    pub fn input(self, name: &str, value: impl ToString) -> Self {
        Self { inputs: self.inputs.with(name, value), ..self }
    }

    /// Where a training starts: from the newest checkpoint, if that is wanted and there is one, and else from
    /// nothing.
    ///
    /// Incomplete ones are passed over, and the log says so; with [`Resume::Auto`] damaged ones too. Any
    /// other checkpoint that cannot be used is an error, never passed over: what the training would then
    /// repeat, and with which weights, is for people to decide.
    pub fn begin(&self, resume: impl Into<Resume>, out: &mut dyn Write) -> crate::Result<Option<Checkpoint>> {
        let resume = resume.into();
        let listing = self.listing()?;
        let (complete, incomplete) = listing.newest();
        for incomplete in incomplete {
            writeln!(out, "passed over in {}: {incomplete}", SecretUrl::from(&self.url))?;
        }
        for url in complete {
            if resume == Resume::No {
                return Err(Error::Exists { newest: url.into() }.into());
            }
            match (resume, self.begin_at(url, out)) {
                (Resume::Auto, Err(crate::Error::Checkpoint(error))) if error.is_damage() => {
                    writeln!(out, "passed over: {}", crate::error::with_causes(&error))?;
                    if let Some(step) = self.step(url) {
                        self.damaged.fetch_max(step, Ordering::Relaxed);
                    }
                }
                (_, begun) => return begun.map(Some),
            }
        }
        if resume != Resume::No {
            writeln!(out, "no checkpoint in {}: starting from the beginning", SecretUrl::from(&self.url))?;
        }
        Ok(None)
    }

    /// Starts a training from the checkpoint at `url` (of the first rank, if there are several), wherever it
    /// lies.
    pub fn begin_at(&self, url: &str, out: &mut dyn Write) -> crate::Result<Checkpoint> {
        let (checkpoint, changed) = self.load(url)?;
        for change in changed {
            writeln!(out, "changed since the checkpoint: {change}")?;
        }
        writeln!(out, "resumed from {}: {}", SecretUrl::from(url), checkpoint.place(self.inputs.epochs))?;
        Ok(checkpoint)
    }

    /// The URL of the complete one with most steps.
    pub fn newest(&self) -> Result<Option<String>> {
        Ok(self.listing()?.newest().0.first().map(|url| (*url).to_owned()))
    }

    /// Checks that the newest one is the one that was listed before: ranks that started at other moments may
    /// else resume from different ones.
    pub fn check_newest(&self, listed: Option<&str>) -> Result<()> {
        match self.newest()? {
            Some(newest) if Some(newest.as_str()) != listed => Err(Error::Changed { newest: newest.into() }),
            _ => Ok(()),
        }
    }

    /// The step that the name of a checkpoint in this place tells.
    fn step(&self, url: &str) -> Option<u64> {
        Listing::new(&self.url, [url.to_owned()]).steps().next()
    }

    fn listing(&self) -> Result<Listing> {
        let objects = match self.store.list(&self.url) {
            // The directory is made with the first checkpoint.
            Err(e) if matches!(e.kind(), ErrorKind::NotFound(_)) => vec![],
            listed => listed.map_err(|source| Error::List { url: SecretUrl::from(&self.url), source })?,
        };
        Ok(Listing::new(&self.url, objects.into_iter().map(|object| object.url)))
    }

    /// Reads a checkpoint, with the parts of all ranks; and what has changed since of the options that a
    /// training may change.
    pub fn load(&self, url: &str) -> Result<(Checkpoint, Vec<String>)> {
        let damaged = |reason| Error::Damaged { url: url.into(), reason };
        let samples = self.samples(url).map_err(|source| Error::Read { url: url.into(), source })?;
        let first = document::decode(samples, url, &self.identity, &self.inputs, &self.buffers)?;
        let document::First { mut checkpoint, ranks, changed } = first;
        let step = checkpoint.progress.steps();
        let mut states = vec![checkpoint.data.clone()];
        for rank in 1..ranks {
            let part = listing::part(url, rank, ranks)
                .ok_or_else(|| damaged(format!("it is of {ranks} ranks, and its name does not say so")))?;
            states.push(self.part(url, &part, (step, rank, ranks))?);
        }
        checkpoint.data = State::merge(states).map_err(|e| damaged(format!("its data: {e}")))?;
        match checkpoint.split() {
            Some(reason) => Err(damaged(reason)),
            None => Ok((checkpoint, changed)),
        }
    }

    fn samples(&self, url: &str) -> shardstream::Result<Vec<Sample>> {
        read(self.store.open(url)?, SampleParser::new(url)).collect()
    }

    /// The data of another rank than the first, `of` the checkpoint at `first`.
    fn part(&self, first: &str, url: &str, of: (u64, usize, usize)) -> Result<State> {
        let bytes = match self.store.open(url).and_then(|body| body.read_all()) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound(_)) => {
                return Err(Error::Incomplete { url: first.into(), missing: url.into() });
            }
            read => read.map_err(|source| Error::Read { url: url.into(), source })?,
        };
        let damaged = |reason| Error::Damaged { url: url.into(), reason };
        let Part { step, rank, ranks, data } = Part::decode(&bytes).map_err(|refused| match refused {
            Refused::Damaged(reason) => damaged(reason),
            Refused::Version(version) => Error::Version { url: url.into(), version },
        })?;
        if (step, rank, ranks) != of {
            return Err(damaged(format!("it is of step {step} and rank {rank} of {ranks}")));
        }
        Ok(data)
    }

    /// Writes what this rank has to write of a checkpoint, an object that appears whole or not at all, and
    /// deletes old checkpoints. Blocks.
    pub fn write(&self, checkpoint: Checkpoint) -> Result<Saved> {
        let start = Instant::now();
        let (rank, ranks) = (self.topology.rank(), self.topology.world_size());
        let step = checkpoint.progress.steps();
        let best = best(&checkpoint.progress);
        let url = format!("{}/{}", self.url, Name { step, rank, ranks });
        let what = checkpoint.title();
        let bytes = match rank {
            0 => self.write_first(checkpoint, &url),
            _ => self.write_part(Part { step, rank, ranks, data: checkpoint.data }, &url),
        };
        let bytes = bytes.map_err(|source| Error::Write { url: SecretUrl::from(&url), source })?;
        let time = start.elapsed();
        let failed = if rank == 0 { self.clean(step, best) } else { vec![] };
        Ok(Saved { what, step, bytes, time, url, unwritten: None, failed })
    }

    fn write_first(&self, checkpoint: Checkpoint, url: &str) -> shardstream::Result<u64> {
        let Self { identity, inputs, buffers, .. } = self;
        let sample = document::encode(checkpoint, self.topology.world_size(), identity, inputs, buffers)?;
        let mut tar = TarWriter::new(BufWriter::new(self.store.create(url)?));
        tar.write(&sample)?;
        let object = tar.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(object.finish()?.size)
    }

    fn write_part(&self, part: Part, url: &str) -> shardstream::Result<u64> {
        let mut object = self.store.create(url)?;
        object.write_all(&part.encode()?)?;
        Ok(object.finish()?.size)
    }

    /// Deletes what is no longer wanted when the checkpoint at `step` has been written. Returns what could
    /// not be done: space that is lost is no reason to stop.
    fn clean(&self, step: u64, best: Option<u64>) -> Vec<String> {
        let listing = match self.listing() {
            Ok(listing) => listing,
            Err(e) => {
                return vec![format!("cannot look for old checkpoints: {}", crate::error::with_causes(&e))];
            }
        };
        // A damaged one looks complete: before there is a sound one of a later step, what the training was
        // resumed from may be the last.
        let damaged = self.damaged.load(Ordering::Relaxed);
        if damaged > 0 && listing.complete_steps().all(|complete| complete <= damaged) {
            return vec![];
        }
        self.delete(&listing.obsolete(step, self.topology.world_size(), self.keep, best))
    }

    fn delete(&self, urls: &[&str]) -> Vec<String> {
        let deleted = urls.iter().map(|url| (url, self.store.delete(url)));
        deleted
            .filter_map(|(url, result)| {
                Some(format!("cannot delete the old {}: {:#}", SecretUrl::from(*url), result.err()?))
            })
            .collect()
    }
}

/// The step at the end of the epoch of the best validation accuracy.
fn best(progress: &Progress) -> Option<u64> {
    let Progress { epochs, time, .. } = progress.clone();
    let (_, best) = Summary { epochs, time }.best()?;
    Some(progress.epochs[..best].iter().map(|epoch| epoch.steps).sum())
}

#[cfg(test)]
mod tests;
