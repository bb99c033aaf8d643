//! Host memory that is mapped for direct copies to devices.

use super::Client;
use super::error::PjrtError;
use std::ptr::NonNull;

/// A mapping of host memory for the devices of a client. The memory is pinned, so that the devices copy from
/// the memory directly, without a staging buffer.
///
/// Dropping the mapping unmaps the memory. A mapping keeps the client alive.
#[derive(Debug)]
pub struct DmaMapping {
    client: Client,
    start: NonNull<u8>,
}

// SAFETY: the pointer is only handed to the plugin, and several threads may use a client of the plugin at the
// same time.
unsafe impl Send for DmaMapping {}
// SAFETY: as above; no method uses the pointer through a shared reference.
unsafe impl Sync for DmaMapping {}

impl Client {
    /// Maps `memory` for the devices of this client (`PJRT_Client_DmaMap`). `memory` should consist of whole
    /// pages: CUDA maps pages, and refuses a page that is mapped already.
    ///
    /// Returns an error if the plugin cannot map memory. Uploads work without a mapping.
    ///
    /// # Safety
    ///
    /// `memory` stays allocated until the mapping is dropped, and the mapping is dropped only when no
    /// transfer from the memory is under way.
    pub unsafe fn dma_map(&self, memory: NonNull<[u8]>) -> Result<DmaMapping, PjrtError> {
        let start = memory.cast::<u8>();
        let mut args = args!(PJRT_Client_DmaMap_Args {
            client: self.as_ptr(),
            data: start.as_ptr().cast(),
            size: memory.len(),
        });
        // SAFETY: the client is alive; the memory is allocated, by the caller's promise.
        unsafe { call!(self.plugin(), PJRT_Client_DmaMap, args) }?;
        Ok(DmaMapping { client: self.clone(), start })
    }
}

impl Drop for DmaMapping {
    fn drop(&mut self) {
        let mut args = args!(PJRT_Client_DmaUnmap_Args {
            client: self.client.as_ptr(),
            data: self.start.as_ptr().cast(),
        });
        // SAFETY: the client is alive, and has mapped the memory. Only this `drop` unmaps the memory. No
        // transfer from the memory is under way: the caller of `dma_map` has promised this.
        let _ = unsafe { call!(self.client.plugin(), PJRT_Client_DmaUnmap, args) };
    }
}
