//! [`CudaError`].

use std::path::PathBuf;

/// An error of NVIDIA's driver, or of loading it.
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
        /// The library's name or path.
        library: PathBuf,
        /// The dynamic linker's error.
        source: libloading::Error,
    },
    /// The library lacks a function that every driver since CUDA 11 has.
    #[error(
        "{} has no function {function}: it is not NVIDIA's driver, or it is older than CUDA 11",
        library.display()
    )]
    NotADriver {
        /// The library's name or path.
        library: PathBuf,
        /// The missing function.
        function: &'static str,
    },
    /// The device does not exist.
    #[error(
        "no CUDA device {ordinal}: this process sees {present} devices; check `nvidia-smi` and \
         CUDA_VISIBLE_DEVICES"
    )]
    NoDevice {
        /// The requested device, counted from 0.
        ordinal: usize,
        /// The number of devices that the process sees.
        present: usize,
    },
    /// The system refuses to pin more memory. After this error a loader does not try to pin memory again. To
    /// try again, make a new loader.
    #[error(
        "cannot pin {bytes} bytes for batches; {pinned} bytes are pinned already ({name}): hold fewer \
         or smaller batches, raise the limit of locked memory (`ulimit -l`, `docker run --ulimit \
         memlock=-1`), or accept ordinary memory with `PinnedMemory::optional`; then make a new loader"
    )]
    LockedMemory {
        /// The number of bytes to pin.
        bytes: usize,
        /// The number of bytes that this [`PinnedMemory`](crate::PinnedMemory) has pinned already.
        pinned: usize,
        /// The driver's name of the error, such as `CUDA_ERROR_OUT_OF_MEMORY`.
        name: String,
    },
    /// The driver refused a call.
    #[error("{call}: {message} ({name})")]
    Call {
        /// The driver's function.
        call: &'static str,
        /// The driver's name of the error, such as `CUDA_ERROR_INVALID_VALUE`.
        name: String,
        /// The driver's description.
        message: String,
    },
}
