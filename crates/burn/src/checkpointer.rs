//! Saves the state of the data with the checkpoints of burn's `Learner`.

use crate::loader::ShardLoader;
use burn::train::checkpoint::{Checkpoint, Checkpointer, CheckpointerError};
use shardstream::State;
use std::fmt;
use std::path::{Path, PathBuf};

/// A burn checkpointer that also saves and restores the state of a [`ShardLoader`]: see
/// [`ShardLoader::checkpointer`].
pub struct StateCheckpointer<C, O> {
    inner: C,
    loader: ShardLoader<O>,
    directory: PathBuf,
}

impl<O: Send + 'static> ShardLoader<O> {
    /// Wraps `inner`, burn's checkpointer of the model. The state of this loader is saved with the model, as
    /// `data-<epoch>.json` in `directory`, and deleted with the model's checkpoint. A restore checks that the
    /// loader has the shards, seed and pipeline of the checkpoint, and continues with the next epoch.
    ///
    /// Call this once for each `Learner`: from then on the epochs of the loader are counted from 1, as a new
    /// `Learner` counts them. Each process needs a directory of its own, as for burn's own checkpoints.
    ///
    /// ```
    /// use burn::train::checkpoint::FileCheckpointer;
    /// use burn::train::{LearnerModel, SupervisedTraining};
    /// use shardstream_burn::ShardLoader;
    ///
    /// fn with_checkpoints<M: LearnerModel, O: Send + 'static>(
    ///     training: SupervisedTraining<M>,
    ///     train: &ShardLoader<O>,
    /// ) -> SupervisedTraining<M> {
    ///     let dir = "run/checkpoint";
    ///     training.with_custom_checkpointers(
    ///         train.checkpointer(dir, FileCheckpointer::new(dir, "model")),
    ///         FileCheckpointer::new(dir, "optim"),
    ///         FileCheckpointer::new(dir, "scheduler"),
    ///     )
    /// }
    /// ```
    pub fn checkpointer<C>(&self, directory: impl AsRef<Path>, inner: C) -> StateCheckpointer<C, O> {
        self.begin_learner();
        StateCheckpointer { inner, loader: self.clone(), directory: directory.as_ref().to_path_buf() }
    }
}

impl<C, O> StateCheckpointer<C, O> {
    fn path(&self, epoch: usize) -> PathBuf {
        self.directory.join(format!("data-{epoch}.json"))
    }
}

fn failed(error: impl fmt::Display) -> CheckpointerError {
    CheckpointerError::Unknown(error.to_string())
}

impl<R, C, O> Checkpointer<R> for StateCheckpointer<C, O>
where
    R: Checkpoint,
    C: Checkpointer<R>,
    O: Send + 'static,
{
    fn save(&self, epoch: usize, record: R) -> Result<(), CheckpointerError> {
        let state = self.loader.ended(epoch).ok_or_else(|| {
            failed(format!("epoch {epoch} of burn is not an epoch that the ShardLoader has read to its end"))
        })?;
        std::fs::create_dir_all(&self.directory).map_err(CheckpointerError::IOError)?;
        state.save(self.path(epoch)).map_err(failed)?;
        self.inner.save(epoch, record)
    }

    fn delete(&self, epoch: usize) -> Result<(), CheckpointerError> {
        match std::fs::remove_file(self.path(epoch)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(CheckpointerError::IOError(error));
            }
            _ => {}
        }
        self.inner.delete(epoch)
    }

    fn restore(&self, epoch: usize) -> Result<R, CheckpointerError> {
        let path = self.path(epoch);
        let state = State::load(&path).map_err(failed)?.ok_or_else(|| {
            let path = path.display();
            failed(format!(
                "{path} does not exist: the checkpoint of epoch {epoch} was saved without the state of its \
                 data; restore it with burn's own checkpointers and `ShardLoader::first_epoch({epoch})`"
            ))
        })?;
        let record = self.inner.restore(epoch)?;
        let continued = self.loader.continue_after(state, epoch);
        continued.map_err(|error| failed(format!("{}: {error}", path.display())))?;
        Ok(record)
    }
}

impl<C: fmt::Debug, O> fmt::Debug for StateCheckpointer<C, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StateCheckpointer { inner, loader, directory } = self;
        let mut shown = f.debug_struct("StateCheckpointer");
        shown.field("inner", inner).field("loader", loader).field("directory", directory).finish()
    }
}
