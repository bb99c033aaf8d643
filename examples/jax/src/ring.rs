//! A ring of slabs: files in memory that the trainer maps, each for one batch at a time.
//!
//! A slab is written with `pwrite`, not through a mapping. That needs no `unsafe`, and is the only copy of a
//! batch. The trainer sees the written bytes at once, because the file is in memory.

use crate::wire::{Announced, Placed};
use async_channel::{Receiver, Sender};
use shardstream::collate::TensorBatch;
use shardstream::{Error, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::{Builder, TempPath};

/// Alignment of tensors in bytes: frameworks that use memory without a copy need it aligned.
const ALIGN: u64 = 256;

/// The byte that overwrites returned slabs.
const POISON: u8 = 0xa5;

/// A ring of slabs. Clones share it.
#[derive(Debug, Clone)]
pub struct Ring(Arc<Slabs>);

#[derive(Debug)]
struct Slabs {
    files: Vec<File>,
    size: u64,
    poison: bool,
    /// The numbers of the free slabs.
    free: (Sender<usize>, Receiver<usize>),
}

impl Ring {
    /// Creates `slabs` files in `directory`, each large enough for a batch like `first`, and returns their
    /// paths. Dropping a path removes the name; the memory is freed when no process has it open or mapped.
    ///
    /// With `poison` a slab is overwritten as soon as it is returned. That changes nothing for a trainer that
    /// returns slabs only after their last use.
    ///
    /// # Errors
    /// Fails if the directory cannot hold files of this size.
    pub fn new(
        directory: &Path,
        slabs: usize,
        first: &TensorBatch,
        poison: bool,
    ) -> Result<(Self, Vec<TempPath>)> {
        let size = place(first).1.max(ALIGN);
        let (mut files, mut paths) = (Vec::new(), Vec::new());
        let (send, receive) = async_channel::unbounded();
        for slab in 0..slabs {
            let (file, path) = create(directory, size).map_err(|source| {
                Error::step(format!(
                    "cannot make a slab of {size} bytes in {}: {source}",
                    directory.display()
                ))
            })?;
            files.push(file);
            paths.push(path);
            let _ = send.try_send(slab);
        }
        Ok((Ring(Arc::new(Slabs { files, size, poison, free: (send, receive) })), paths))
    }

    /// Size of a slab in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// Writes a batch into a free slab. Waits until there is one.
    ///
    /// # Errors
    /// Fails if the ring is [closed](Ring::close), or if the batch is larger than the first one.
    pub fn put(&self, batch: &TensorBatch) -> Result<Announced> {
        let slabs = &self.0;
        let (tensors, size) = place(batch);
        if size > slabs.size {
            let wrong = format!("a batch of {size} bytes, where the first one has {}", slabs.size);
            return Err(Error::step(format!("{wrong}: use columns of a fixed shape")));
        }
        let slab = slabs.free.1.recv_blocking().map_err(|_| Error::step("the trainer is gone"))?;
        for ((_, tensor), place) in batch.iter().zip(&tensors) {
            slabs.files[slab].write_all_at(tensor.as_bytes(), place.offset).map_err(Error::step)?;
        }
        Ok(Announced { slab, valid: batch.valid(), state: batch.state().cloned(), tensors })
    }

    /// Marks a slab as free.
    ///
    /// # Errors
    /// Fails if there is no such slab.
    pub fn take_back(&self, slab: usize) -> Result<()> {
        let slabs = &self.0;
        let file = slabs.files.get(slab).ok_or_else(|| Error::step(format!("there is no slab {slab}")))?;
        if slabs.poison {
            let size = usize::try_from(slabs.size).map_err(Error::step)?;
            file.write_all_at(&vec![POISON; size], 0).map_err(Error::step)?;
        }
        let _ = slabs.free.0.try_send(slab);
        Ok(())
    }

    /// Closes the ring: no slab will be returned, and waiting for one fails.
    pub fn close(&self) {
        self.0.free.1.close();
    }
}

fn create(directory: &Path, size: u64) -> std::io::Result<(File, TempPath)> {
    let (file, path) =
        Builder::new().prefix("shardstream-").suffix(".slab").tempfile_in(directory)?.into_parts();
    file.set_len(size)?;
    Ok((file, path))
}

/// The layout of a batch in a slab: the position of each tensor, and the total size in bytes.
fn place(batch: &TensorBatch) -> (Vec<Placed>, u64) {
    let mut end = 0;
    let tensors = batch.iter().map(|(name, tensor)| {
        let offset = end;
        end = (offset + tensor.size() as u64).next_multiple_of(ALIGN);
        let (dtype, shape) = (tensor.dtype().to_string(), tensor.shape().to_vec());
        Placed { name: name.to_owned(), dtype, shape, offset }
    });
    (tensors.collect(), end)
}

/// The default directory for slabs, which is in memory.
#[must_use]
pub fn shared_memory() -> PathBuf {
    PathBuf::from("/dev/shm")
}
