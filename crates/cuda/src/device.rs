//! A device and its primary context.

use crate::driver::Context;
use crate::error::CudaError;
use std::fmt;
use std::path::Path;

/// A GPU, through its primary context: the one that CUDA's runtime, PyTorch, `cudarc` and candle use in the
/// same process.
///
/// Clones are handles of the same device, for any thread. The context is released when the last of them and
/// the last pinned batch are dropped.
#[derive(Clone)]
pub struct CudaDevice {
    context: Context,
    ordinal: usize,
}

impl CudaDevice {
    /// Opens a device by its number among those that the process sees (`CUDA_VISIBLE_DEVICES`), from 0. A
    /// process that feeds several GPUs needs one of them: memory is pinned for all.
    ///
    /// # Errors
    /// [`CudaError::NoDriver`] and [`CudaError::NoDevice`], which say what to do; an error of the driver.
    pub fn open(ordinal: usize) -> Result<Self, CudaError> {
        Ok(CudaDevice { context: Context::open(ordinal)?, ordinal })
    }

    /// Opens a device with the driver at a path, where the dynamic linker does not find it.
    ///
    /// # Errors
    /// As [`open`](CudaDevice::open), and [`CudaError::NotADriver`].
    ///
    /// # Safety
    /// The library is NVIDIA's driver, or one whose functions of these names do the same. Its code runs when
    /// it is loaded.
    #[allow(unsafe_code, reason = "only the caller knows what the library is")]
    pub unsafe fn open_with(library: impl AsRef<Path>, ordinal: usize) -> Result<Self, CudaError> {
        // SAFETY: the caller's promise.
        let context = unsafe { Context::open_with(library.as_ref(), ordinal) }?;
        Ok(CudaDevice { context, ordinal })
    }

    /// The number of the device.
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
