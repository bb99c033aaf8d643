//! Values that a device still reads.

use crate::device::CudaDevice;
use crate::driver::{Event, Unrecorded};
use crate::error::CudaError;
use std::ffi::c_void;
use std::fmt;

/// A batch, or another value, that is kept until the work of a stream has ended: copies from its memory.
///
/// A copy from pinned memory returns before the device has read the memory. If the batch were dropped then,
/// the loader would write the next one into the same memory, and the device would get a mixture of both.
///
/// Dropping this value waits for the work.
#[must_use = "dropping it waits for the device"]
pub struct InFlight<T> {
    /// `None` only while it is taken apart.
    value: Option<T>,
    event: Event,
}

impl CudaDevice {
    /// Keeps `value` until the device has done all that is in `stream` now. Call it behind the copies.
    ///
    /// # Errors
    /// An error of the driver. The value is dropped when the work of the stream has ended; if the driver
    /// cannot say when that is, never.
    ///
    /// # Safety
    /// `stream` is a stream (`CUstream`) of this device's primary context that exists, or null for the
    /// default stream: `CudaStream::cu_stream` of `cudarc`, `torch.cuda.Stream.cuda_stream`.
    #[allow(unsafe_code, reason = "only the caller knows whether the stream exists")]
    pub unsafe fn in_flight<T>(&self, stream: *mut c_void, value: T) -> Result<InFlight<T>, CudaError> {
        // SAFETY: the caller's promise.
        match unsafe { self.context().record(stream) } {
            Ok(event) => Ok(InFlight { value: Some(value), event }),
            Err(Unrecorded { error, is_done }) => {
                if !is_done {
                    std::mem::forget(value);
                }
                Err(error)
            }
        }
    }
}

impl<T> InFlight<T> {
    /// Whether the work has ended, so that [`wait`](InFlight::wait) returns at once.
    ///
    /// # Errors
    /// An error of the driver, also of earlier work of the device.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        self.event.is_done()
    }

    /// Waits for the work, and returns the value.
    ///
    /// # Errors
    /// An error of the driver, also of earlier work of the device. The value is never dropped then, since the
    /// device might still read it.
    pub fn wait(mut self) -> Result<T, CudaError> {
        let waited = self.event.wait();
        match (waited, self.value.take()) {
            (Ok(()), Some(value)) => Ok(value),
            (Ok(()), None) => unreachable!("it is taken here alone, and by `drop`"),
            (Err(error), value) => {
                std::mem::forget(value);
                Err(error)
            }
        }
    }
}

impl<T> Drop for InFlight<T> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take()
            && self.event.wait().is_err()
        {
            std::mem::forget(value);
        }
    }
}

impl<T> fmt::Debug for InFlight<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("is_done", &self.is_done().ok()).finish()
    }
}
