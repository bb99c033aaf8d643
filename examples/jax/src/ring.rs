//! A ring of slabs: files in memory that the trainer maps, each for one batch at a time.
//!
//! A slab is written with `pwrite`, not through a mapping: that needs no `unsafe`, and is the one copy that a
//! batch costs on its way. The trainer sees what is written, because the page cache is the file on a file
//! system in memory.

use crate::wire::{Announced, Placed};
use async_channel::{Receiver, Sender};
use shardstream::collate::TensorBatch;
use shardstream::{Error, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::{Builder, TempPath};

/// Tensors begin at multiples of this, as in memory: frameworks that take memory as it is want it aligned.
const ALIGN: u64 = 256;

/// What a slab is overwritten with.
const POISON: u8 = 0xa5;

/// The slabs. Clones are the same ring.
#[derive(Debug, Clone)]
pub struct Ring(Arc<Slabs>);

#[derive(Debug)]
struct Slabs {
    files: Vec<File>,
    size: u64,
    poison: bool,
    /// Slabs that nobody reads.
    free: (Sender<usize>, Receiver<usize>),
}

impl Ring {
    /// Makes `slabs` files in `directory`, each for a batch as `first`, and says what they are called. The
    /// names go when the paths are dropped; the memory goes with the last process that has it open or mapped.
    ///
    /// With `poison` a slab is overwritten as soon as it comes back. Nothing changes for a trainer that hands
    /// slabs back when it may.
    ///
    /// # Errors
    /// When the directory takes no files of the size.
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

    /// The bytes of a slab.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// Writes a batch into a slab that nobody reads, and waits for one if need be.
    ///
    /// # Errors
    /// When the ring is [closed](Ring::close), and when the batch is larger than the first one.
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

    /// Takes a slab back.
    ///
    /// # Errors
    /// When there is no such slab.
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

    /// Nobody will hand anything back: whoever waits for a slab gets an error.
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

/// Where each tensor of a batch lies in a slab, and how many bytes that takes.
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

/// The directory for slabs where it is not said: memory.
#[must_use]
pub fn shared_memory() -> PathBuf {
    PathBuf::from("/dev/shm")
}
