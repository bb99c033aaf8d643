//! A device and its primary context.

use crate::driver::Context;
use crate::error::CudaError;
use std::fmt;
use std::path::Path;

/// The driver's library, as the dynamic linker knows it.
const DRIVER: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

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
        CudaDevice::open_with(DRIVER, ordinal)
    }

    /// Opens a device with the driver at a path, where the dynamic linker does not find it.
    ///
    /// This runs the library's code, so the path must be one that the user trusts.
    ///
    /// # Errors
    /// As [`open`](CudaDevice::open), and [`CudaError::NotADriver`].
    pub fn open_with(library: impl AsRef<Path>, ordinal: usize) -> Result<Self, CudaError> {
        Ok(CudaDevice { context: Context::open(library.as_ref(), ordinal)?, ordinal })
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
