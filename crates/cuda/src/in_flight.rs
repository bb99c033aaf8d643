//! [`InFlight`]: keeps a value while a device reads its memory.

use crate::device::CudaDevice;
use crate::driver::{Event, Unrecorded};
use crate::error::CudaError;
use std::ffi::c_void;
use std::fmt;

/// Keeps a batch, or another value, until all copies that a stream makes from the value's memory have ended.
///
/// A call that copies from pinned memory returns before the device has read the memory. If the batch were
/// dropped at that moment, the loader would write the next batch into the same memory, and the device would
/// get a mixture of the two batches.
///
/// Dropping an `InFlight` waits until the copies have ended.
#[must_use = "dropping it waits for the device"]
pub struct InFlight<T> {
    /// `None` only inside [`InFlight::wait`] and `drop`, which take the value.
    value: Option<T>,
    event: Event,
}

impl CudaDevice {
    /// Keeps `value` until the device has done all work that is in `stream` now. Call this after the calls
    /// that copy from the value's memory.
    ///
    /// # Errors
    /// An error of the driver. The value is then dropped after the stream's work has ended. If the driver
    /// cannot wait for the stream's work, the value is never dropped (its memory leaks).
    ///
    /// # Safety
    /// `stream` must be null, for the default stream, or an existing stream (`CUstream`) of this device's
    /// primary context: `CudaStream::cu_stream` of `cudarc`, `torch.cuda.Stream.cuda_stream`.
    #[allow(unsafe_code, reason = "only the caller knows whether the stream exists")]
    pub unsafe fn in_flight<T>(&self, stream: *mut c_void, value: T) -> Result<InFlight<T>, CudaError> {
        // SAFETY: the caller guarantees that the stream is valid, as `record` requires.
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
    /// Whether the stream's work has ended. [`wait`](InFlight::wait) then returns at once.
    ///
    /// # Errors
    /// An error of the driver. It may also come from earlier work of the device.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        self.event.is_done()
    }

    /// Waits until the stream's work has ended, and returns the value.
    ///
    /// # Errors
    /// An error of the driver, which may also come from earlier work of the device. After an error the value
    /// is never dropped (its memory leaks), since the device might still read its memory.
    pub fn wait(mut self) -> Result<T, CudaError> {
        let waited = self.event.wait();
        match (waited, self.value.take()) {
            (Ok(()), Some(value)) => Ok(value),
            (Ok(()), None) => unreachable!("only `wait` and `drop` take the value"),
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
