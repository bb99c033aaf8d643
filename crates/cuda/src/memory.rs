//! [`PinnedMemory`]: pins the memory of batches.

use crate::device::CudaDevice;
use crate::driver::Registration;
use shardstream::tensor::BatchMemory;
use std::any::Any;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Pins the memory of batches (`cuMemHostRegister`), for
/// [`Columns::memory`](shardstream::collate::Columns::memory).
///
/// Memory is pinned when it is allocated. Batches reuse memory, so memory is allocated and pinned only a few
/// times in a run. Memory is unpinned when neither the loader nor a view of a batch holds it any more; any
/// thread may unpin it.
///
/// If memory cannot be pinned, the loader returns an error in place of the batch. With
/// [`optional`](PinnedMemory::optional), it logs a warning instead, and batches are in ordinary memory.
#[derive(Debug, Clone)]
pub struct PinnedMemory {
    device: CudaDevice,
    is_required: bool,
    pinned: Arc<AtomicUsize>,
}

impl PinnedMemory {
    /// Pins memory for copies to this device and to all other devices of the process.
    #[must_use]
    pub fn new(device: &CudaDevice) -> Self {
        PinnedMemory { device: device.clone(), is_required: true, pinned: Arc::default() }
    }

    /// Uses ordinary memory where memory cannot be pinned. Copies from ordinary memory to the device are
    /// slower.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.is_required = false;
        self
    }

    /// The number of bytes that this value and its clones have pinned now.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.pinned.load(Relaxed)
    }
}

impl BatchMemory for PinnedMemory {
    fn pin(&self, memory: &[u8]) -> Result<Box<dyn Any + Send + Sync>, Box<dyn Error + Send + Sync>> {
        let registration = self.device.context().register(memory, self.bytes())?;
        let bytes = registration.bytes;
        self.pinned.fetch_add(bytes, Relaxed);
        let counted = Counted { bytes, pinned: Arc::clone(&self.pinned) };
        Ok(Box::new(Slab { _registration: registration, _counted: counted }))
    }

    fn is_required(&self) -> bool {
        self.is_required
    }
}

/// The pinned memory of one tensor of a batch. Fields are dropped in order: the memory is unpinned first, and
/// its bytes are subtracted from the count afterwards.
struct Slab {
    _registration: Registration,
    _counted: Counted,
}

/// Bytes that were added to the count of [`PinnedMemory::bytes`]. Dropping this value subtracts them.
struct Counted {
    bytes: usize,
    pinned: Arc<AtomicUsize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.pinned.fetch_sub(self.bytes, Relaxed);
    }
}
