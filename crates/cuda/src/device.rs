//! [`CudaDevice`]: a GPU and its primary context.

use crate::driver::Context;
use crate::error::CudaError;
use std::fmt;
use std::path::Path;

/// A GPU, used through its primary context. In a process, CUDA's runtime, PyTorch, `cudarc` and candle share
/// the primary context.
///
/// Clones are handles of the same device and can be sent to other threads. The context is released when the
/// last clone and the last pinned batch are dropped.
#[derive(Clone)]
pub struct CudaDevice {
    context: Context,
    ordinal: usize,
}

impl CudaDevice {
    /// Opens a device by its ordinal, from 0, among the devices that the process sees
    /// (`CUDA_VISIBLE_DEVICES`). A process that feeds several GPUs opens only one of them: memory that is
    /// pinned through one device is pinned for all devices.
    ///
    /// # Errors
    /// [`CudaError::NoDriver`] and [`CudaError::NoDevice`], which say what to do; [`CudaError::Call`] if the
    /// driver refuses a call.
    pub fn open(ordinal: usize) -> Result<Self, CudaError> {
        Ok(CudaDevice { context: Context::open(ordinal)?, ordinal })
    }

    /// Opens a device with the driver's library at `library`, for drivers that the dynamic linker does not
    /// find.
    ///
    /// # Errors
    /// The errors of [`open`](CudaDevice::open), and [`CudaError::NotADriver`].
    ///
    /// # Safety
    /// The library must be NVIDIA's driver, or a library whose functions have the same names as the driver's
    /// functions and do the same work. Loading the library runs its code.
    #[allow(unsafe_code, reason = "only the caller knows what the library is")]
    pub unsafe fn open_with(library: impl AsRef<Path>, ordinal: usize) -> Result<Self, CudaError> {
        // SAFETY: the caller guarantees that the library is as `Context::open_with` requires.
        let context = unsafe { Context::open_with(library.as_ref(), ordinal) }?;
        Ok(CudaDevice { context, ordinal })
    }

    /// The device's ordinal, as given to [`open`](CudaDevice::open).
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaDevice({})", self.ordinal)
    }
}
