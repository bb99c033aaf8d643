//! Errors of finding a plugin.

use crate::cuda;
use shardstream_pjrt::PjrtError;
use shardstream_pjrt::fetch::FetchError;
use std::path::PathBuf;

/// An error of finding, downloading or loading a plugin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    /// A path given by the user is not a file.
    #[error("{from} is {path}, which is not a file")]
    NoFile {
        /// The option or variable that has the path.
        from: &'static str,
        /// The path.
        path: PathBuf,
    },
    /// No CPU plugin is published for this platform.
    #[error("no CPU plugin is published for {platform}: give the path of another PJRT plugin with --plugin")]
    Platform {
        /// Operating system and processor.
        platform: String,
    },
    /// No environment variable sets a cache directory.
    #[error("no cache directory: set SHARDSTREAM_CACHE, XDG_CACHE_HOME or HOME")]
    NoCache,
    /// The cached plugin cannot be loaded.
    #[error(
        "the plugin in the cache cannot be loaded; if it is damaged, delete {folder} to download it again"
    )]
    Cached {
        /// The folder of the plugin.
        folder: PathBuf,
        /// The cause.
        source: PjrtError,
    },
    /// A plugin outside the cache cannot be loaded.
    #[error(transparent)]
    Load(PjrtError),
    /// No libtpu was found; a TPU needs it.
    #[error(
        "no libtpu found, which a TPU needs: install it (pip install libtpu) in the environment of python3, \
         or set TPU_LIBRARY_PATH, or give --plugin, such as --plugin cpu"
    )]
    NoLibtpu,
    /// The GPU's driver is too old.
    #[error(
        "the driver of this machine's GPU is {found}, and the CUDA plugin needs {} or newer",
        cuda::OLDEST_DRIVER
    )]
    Driver {
        /// This machine's driver.
        found: cuda::Driver,
    },
    /// No CUDA plugin is published for this platform.
    #[error("no CUDA plugin is published for {platform}: give the path of another PJRT plugin with --plugin")]
    CudaPlatform {
        /// Operating system and processor.
        platform: String,
    },
    /// A plugin could not be downloaded.
    #[error(transparent)]
    Wheel(#[from] FetchError),
}
