//! The memory of batches, pinned.

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
/// Memory is pinned when it is allocated, which happens a few times in a run, since later batches reuse it.
/// It is unpinned when nobody holds it any more: neither the loader nor a view of a batch, on whatever thread
/// that is.
///
/// If memory cannot be pinned, the batch is an error. With [`optional`](PinnedMemory::optional), a warning is
/// logged, and batches are in ordinary memory.
#[derive(Debug, Clone)]
pub struct PinnedMemory {
    device: CudaDevice,
    is_required: bool,
    pinned: Arc<AtomicUsize>,
}

impl PinnedMemory {
    /// Memory for copies to this device, and to the others of the process.
    #[must_use]
    pub fn new(device: &CudaDevice) -> Self {
        PinnedMemory { device: device.clone(), is_required: true, pinned: Arc::default() }
    }

    /// Accepts ordinary memory where none can be pinned: copies to the device are slower then.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.is_required = false;
        self
    }

    /// The number of bytes that are pinned now, by this value and its clones.
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

/// The memory of one tensor of a batch: unpinned, and then no longer counted.
struct Slab {
    _registration: Registration,
    _counted: Counted,
}

struct Counted {
    bytes: usize,
    pinned: Arc<AtomicUsize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.pinned.fetch_sub(self.bytes, Relaxed);
    }
}
