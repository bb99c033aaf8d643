//! Errors of the driver.

use std::path::PathBuf;

/// An error of NVIDIA's driver, or of its use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The driver's library cannot be loaded.
    #[error(
        "cannot load NVIDIA's driver {}: install it, or name its library with `CudaDevice::open_with`; in a \
         container, start it with GPUs (`docker run --gpus all`)",
        library.display()
    )]
    NoDriver {
        /// The library.
        library: PathBuf,
        /// What the dynamic linker says.
        source: libloading::Error,
    },
    /// The library lacks a function that every driver since CUDA 11 has.
    #[error(
        "{} has no function {function}: it is no driver of NVIDIA's, or older than CUDA 11",
        library.display()
    )]
    NotADriver {
        /// The library.
        library: PathBuf,
        /// The function.
        function: &'static str,
    },
    /// The device does not exist.
    #[error(
        "no CUDA device {ordinal}: this process sees {present}; check `nvidia-smi` and CUDA_VISIBLE_DEVICES"
    )]
    NoDevice {
        /// The number of the device.
        ordinal: usize,
        /// The number of devices that the process sees.
        present: usize,
    },
    /// The system has no more memory that may be pinned. A loader that met this error pins nothing later
    /// either: make a new one.
    #[error(
        "cannot pin {bytes} bytes for batches beside {pinned} that are pinned already ({name}): hold fewer \
         or smaller batches, raise the limit of locked memory (`ulimit -l`, `docker run --ulimit \
         memlock=-1`), or accept ordinary memory with `PinnedMemory::optional`; then make a new loader"
    )]
    LockedMemory {
        /// The number of bytes to pin.
        bytes: usize,
        /// The number of bytes that this [`PinnedMemory`](crate::PinnedMemory) holds pinned.
        pinned: usize,
        /// The driver's name of the error.
        name: String,
    },
    /// The driver refused a call.
    #[error("{call}: {message} ({name})")]
    Call {
        /// The function of the driver.
        call: &'static str,
        /// The driver's name of the error, such as `CUDA_ERROR_INVALID_VALUE`.
        name: String,
        /// The driver's description.
        message: String,
    },
}
