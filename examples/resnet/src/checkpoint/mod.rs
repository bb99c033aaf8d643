//! Saves and resumes trainings. Rank 0 writes the network and the state of its data into one object, so that
//! both are always of the same step. Each other rank writes an object with the state of its own data.

mod document;
mod error;
mod listing;
mod part;
mod saved;
mod saver;
mod version;

pub use document::{Checkpoint, Identity, Inputs};
pub use error::CheckpointError;
pub use saved::SavedCheckpoint;
pub use saver::Saver;

use crate::artifact::{Artifact, StateBuffer};
use crate::causes::with_causes;
use crate::report::{Progress, Summary};
use listing::{Listing, ObjectName};
use part::{PartError, RankPart};
use shardstream::prelude::*;
use shardstream::store::ObjectUrl;
use shardstream::tar::{SampleParser, read};
use shardstream::write::TarWriter;
use shardstream::{ErrorKind, SecretUrl, State};
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Whether a training resumes, and from which checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Resume {
    /// Start a new training, in a directory without checkpoints
    #[value(skip)]
    No,
    /// Resume from the newest checkpoint; a damaged checkpoint is an error
    Newest,
    /// Resume from the newest checkpoint that is not damaged
    Auto,
}

impl From<bool> for Resume {
    fn from(resume: bool) -> Self {
        if resume { Self::Newest } else { Self::No }
    }
}

/// The checkpoints of one training, in a directory or bucket.
///
/// With one process, a checkpoint is one object, named after the step: `checkpoint-00000120.tar`. With
/// several processes, each process writes one object, since it knows only the state of its own data. Rank 0
/// writes `checkpoint-00000120.rank-00000-of-00008.tar`, which also contains the model's weights and the
/// optimizer's state; rank 3 writes `checkpoint-00000120.rank-00003-of-00008.json`. The checkpoint is
/// complete when the objects of all ranks exist. On resume each process reads all objects, so the number of
/// processes may change.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    store: Store,
    /// URL of the directory, without a slash at the end.
    url: String,
    identity: Identity,
    inputs: Inputs,
    buffers: Vec<StateBuffer>,
    keep: usize,
    topology: Topology,
    /// The highest step of the damaged checkpoints that `begin` skipped; 0 for none.
    damaged: Arc<AtomicU64>,
}

impl Checkpoints {
    /// The checkpoints in `url`: a directory, or a prefix such as `gs://bucket/prefix`. Nothing is read yet.
    pub fn new(url: &str, artifact: &Artifact, seed: i32, inputs: Inputs) -> Result<Self, CheckpointError> {
        let bad = |reason| CheckpointError::Place { url: url.into(), reason };
        let trimmed = url.trim_end_matches('/');
        if trimmed.is_empty() {
            return Err(bad("give a directory, or a bucket with a prefix"));
        }
        if ObjectUrl::parse(url).is_file_url() {
            // For a `file:` URL, listings return paths, so the listed names would not begin with `url`.
            return Err(bad("give the path without file:"));
        }
        Ok(Self {
            store: Store::default(),
            url: trimmed.into(),
            identity: Identity::new(&artifact.manifest, seed),
            inputs,
            buffers: artifact.manifest.state.clone(),
            keep: 0,
            topology: Topology::single(),
            damaged: Arc::default(),
        })
    }

    /// Keeps the last `keep` complete checkpoints (0: all) and the checkpoint of the best epoch. Older
    /// checkpoints are deleted after a new checkpoint has been written. While other ranks still write the
    /// newest checkpoint, one more checkpoint is kept.
    pub fn keep(self, keep: usize) -> Self {
        Self { keep, ..self }
    }

    /// Marks the checkpoints as checkpoints of a dry run. No training can resume from a checkpoint of a dry
    /// run.
    pub fn dry(self, is_dry: bool) -> Self {
        if is_dry { Self { identity: self.identity.dry(), ..self } } else { self }
    }

    /// Sets the rank of this process and the number of processes.
    pub fn topology(self, topology: Topology) -> Self {
        Self { topology, ..self }
    }

    /// Also records the option `name` and its `value` in each checkpoint. Call this function for options that
    /// change the results of later steps. A training that resumes may have another value than its checkpoint;
    /// [`begin`](Self::begin) then writes a line about the change.
    pub fn input(self, name: &str, value: impl ToString) -> Self {
        Self { inputs: self.inputs.with(name, value), ..self }
    }

    /// Loads the newest checkpoint, from which a training resumes; `None` if there is no checkpoint. With
    /// [`Resume::No`], a complete checkpoint is an error.
    ///
    /// Incomplete checkpoints are skipped, with a line in the log; with [`Resume::Auto`] damaged checkpoints
    /// are skipped as well. In all other cases in which the newest checkpoint cannot be used, this function
    /// returns an error: the user should decide whether to resume from an older checkpoint and repeat the
    /// steps since then.
    pub fn begin(
        &self,
        resume: impl Into<Resume>,
        out: &mut dyn Write,
    ) -> Result<Option<Checkpoint>, CheckpointError> {
        let resume = resume.into();
        let listing = self.listing()?;
        let (complete, incomplete) = listing.newest();
        for incomplete in incomplete {
            writeln!(out, "skipped a checkpoint in {}: {incomplete}", SecretUrl::from(&self.url))
                .map_err(CheckpointError::Output)?;
        }
        for url in complete {
            if resume == Resume::No {
                return Err(CheckpointError::Exists { newest: url.into() });
            }
            match (resume, self.begin_at(url, out)) {
                (Resume::Auto, Err(error)) if error.is_damage() => {
                    writeln!(out, "skipped a checkpoint: {}", with_causes(&error))
                        .map_err(CheckpointError::Output)?;
                    if let Some(step) = self.step(url) {
                        self.damaged.fetch_max(step, Ordering::Relaxed);
                    }
                }
                (_, begun) => return begun.map(Some),
            }
        }
        if resume != Resume::No {
            writeln!(out, "no checkpoint in {}: starting from the beginning", SecretUrl::from(&self.url))
                .map_err(CheckpointError::Output)?;
        }
        Ok(None)
    }

    /// Loads the checkpoint at `url`, in any directory, and logs which options have changed since it was
    /// written. With several ranks, `url` is the URL of the first rank's object.
    pub fn begin_at(&self, url: &str, out: &mut dyn Write) -> Result<Checkpoint, CheckpointError> {
        let (checkpoint, changed) = self.load(url)?;
        for change in changed {
            writeln!(out, "changed since the checkpoint: {change}").map_err(CheckpointError::Output)?;
        }
        writeln!(
            out,
            "resumed from {}: {}",
            SecretUrl::from(url),
            checkpoint.describe_position(self.inputs.epochs)
        )
        .map_err(CheckpointError::Output)?;
        Ok(checkpoint)
    }

    /// Writes an empty object and deletes it. If no checkpoint can be written to this directory, the training
    /// fails at its start, and not when the first checkpoint is due.
    pub fn try_place(&self) -> Result<(), CheckpointError> {
        // The object's name is not the name of a checkpoint: if deleting the object fails, the object must
        // not look like a checkpoint.
        let url = format!("{}/writable.rank-{}", self.url, self.topology.rank());
        let written = self.store.put(&url, b"").and_then(|_| self.store.delete(&url));
        written.map_err(|source| CheckpointError::Write { url: SecretUrl::from(&url), source })
    }

    /// The URL of the complete checkpoint with the highest step.
    pub fn newest(&self) -> Result<Option<String>, CheckpointError> {
        Ok(self.listing()?.newest().0.first().map(|url| (*url).to_owned()))
    }

    /// Fails if the newest checkpoint is not `listed`, the checkpoint that an earlier call of
    /// [`newest`](Self::newest) returned. In that case, ranks that started at different times may have
    /// resumed from different checkpoints.
    pub fn check_newest(&self, listed: Option<&str>) -> Result<(), CheckpointError> {
        match self.newest()? {
            Some(newest) if Some(newest.as_str()) != listed => {
                Err(CheckpointError::Changed { newest: newest.into() })
            }
            _ => Ok(()),
        }
    }

    /// The step in the name of a checkpoint of this directory.
    fn step(&self, url: &str) -> Option<u64> {
        Listing::new(&self.url, [url.to_owned()]).steps().next()
    }

    fn listing(&self) -> Result<Listing, CheckpointError> {
        let objects = match self.store.list(&self.url) {
            // The directory is created when the first checkpoint is written.
            Err(e) if matches!(e.kind(), ErrorKind::NotFound(_)) => vec![],
            listed => {
                listed.map_err(|source| CheckpointError::List { url: SecretUrl::from(&self.url), source })?
            }
        };
        Ok(Listing::new(&self.url, objects.into_iter().map(|object| object.url)))
    }

    /// Reads a checkpoint with the parts of all ranks. Also returns a description of each option in
    /// [`Inputs`] that has changed since the checkpoint was written. A checkpoint of another network or seed
    /// is an error.
    pub fn load(&self, url: &str) -> Result<(Checkpoint, Vec<String>), CheckpointError> {
        let damaged = |reason| CheckpointError::Damaged { url: url.into(), reason };
        let samples =
            self.samples(url).map_err(|source| CheckpointError::Read { url: url.into(), source })?;
        let first = document::decode(samples, url, &self.identity, &self.inputs, &self.buffers)?;
        let document::FirstPart { mut checkpoint, ranks, changed } = first;
        let step = checkpoint.progress.steps();
        let mut states = vec![checkpoint.data.clone()];
        for rank in 1..ranks {
            let part = listing::part_url(url, rank, ranks)
                .ok_or_else(|| damaged(format!("it is of {ranks} ranks, and its name is of one process")))?;
            states.push(self.part(url, &part, ObjectName { step, rank, ranks })?);
        }
        checkpoint.data = State::merge(states).map_err(|e| damaged(format!("its data: {e}")))?;
        match checkpoint.divergence() {
            Some(reason) => Err(damaged(reason)),
            None => Ok((checkpoint, changed)),
        }
    }

    fn samples(&self, url: &str) -> shardstream::Result<Vec<Sample>> {
        read(self.store.open(url)?, SampleParser::new(url)).collect()
    }

    /// Reads the object at `url`, which rank 1 or a higher rank has written. Returns the state of that rank's
    /// data. Checks that the object's contents agree with its `expected` name. `first` is the URL of rank 0's
    /// object.
    fn part(&self, first: &str, url: &str, expected: ObjectName) -> Result<State, CheckpointError> {
        let bytes = match self.store.open(url).and_then(|body| body.read_all()) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound(_)) => {
                return Err(CheckpointError::Incomplete { url: first.into(), missing: url.into() });
            }
            read => read.map_err(|source| CheckpointError::Read { url: url.into(), source })?,
        };
        let damaged = |reason| CheckpointError::Damaged { url: url.into(), reason };
        let RankPart { step, rank, ranks, data } =
            RankPart::decode(&bytes).map_err(|refused| match refused {
                PartError::Damaged(reason) => damaged(reason),
                PartError::Version(version) => CheckpointError::Version { url: url.into(), version },
            })?;
        if (ObjectName { step, rank, ranks }) != expected {
            return Err(damaged(format!("it is of step {step} and rank {rank} of {ranks}")));
        }
        Ok(data)
    }

    /// Writes this rank's object of a checkpoint, and deletes old checkpoints. The object appears whole or
    /// not at all. Blocks until the object is written.
    pub fn write(&self, checkpoint: Checkpoint) -> Result<SavedCheckpoint, CheckpointError> {
        let start = Instant::now();
        let (rank, ranks) = (self.topology.rank(), self.topology.world_size());
        let step = checkpoint.progress.steps();
        let best = best(&checkpoint.progress);
        let url = format!("{}/{}", self.url, ObjectName { step, rank, ranks });
        let what = checkpoint.title();
        let bytes = match rank {
            0 => self.write_first(checkpoint, &url),
            _ => self.write_part(RankPart { step, rank, ranks, data: checkpoint.data }, &url),
        };
        let bytes = bytes.map_err(|source| CheckpointError::Write { url: SecretUrl::from(&url), source })?;
        let time = start.elapsed();
        let failed = if rank == 0 { self.delete_obsolete(step, best) } else { vec![] };
        Ok(SavedCheckpoint { what, step, bytes, time, url, unwritten: None, failed })
    }

    fn write_first(&self, checkpoint: Checkpoint, url: &str) -> shardstream::Result<u64> {
        let Self { identity, inputs, buffers, .. } = self;
        let sample = document::encode(checkpoint, self.topology.world_size(), identity, inputs, buffers)?;
        let mut tar = TarWriter::new(BufWriter::new(self.store.create(url)?));
        tar.write(&sample)?;
        let object = tar.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(object.finish()?.size)
    }

    fn write_part(&self, part: RankPart, url: &str) -> shardstream::Result<u64> {
        Ok(self.store.put(url, &part.encode()?)?.size)
    }

    /// Deletes obsolete checkpoints after the checkpoint at `step` has been written. Failures do not end the
    /// training, since a checkpoint that was not deleted only takes space. Returns messages about the
    /// failures.
    fn delete_obsolete(&self, step: u64, best: Option<u64>) -> Vec<String> {
        let listing = match self.listing() {
            Ok(listing) => listing,
            Err(e) => {
                return vec![format!("cannot list old checkpoints: {}", with_causes(&e))];
            }
        };
        // The listing shows a damaged checkpoint as complete. Until there is a complete checkpoint at a later
        // step, nothing is deleted: the checkpoint that the training resumed from may be the only intact one.
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

/// The step at the end of the epoch with the best validation accuracy.
fn best(progress: &Progress) -> Option<u64> {
    let Progress { epochs, time, .. } = progress.clone();
    let (_, best) = Summary { epochs, time }.best()?;
    Some(progress.epochs[..best].iter().map(|epoch| epoch.steps).sum())
}

#[cfg(test)]
mod tests;
