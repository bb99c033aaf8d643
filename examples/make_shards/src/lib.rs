//! What the tools that make training shards share: see the README beside the manifest.

pub mod cifar;
pub mod error;
pub mod imagenet;
pub mod plan;
pub mod progress;
pub mod series;
pub mod summary;
pub mod tree;

pub use error::{Error, Result};

use std::process::ExitCode;

/// How a program ends: an error is shown with its causes.
pub fn exit(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let causes =
                std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
            eprintln!("error: {}", causes.map(ToString::to_string).collect::<Vec<_>>().join(": "));
            ExitCode::FAILURE
        }
    }
}

/// Runs on so many threads; 0: as many as there are cores.
///
/// # Errors
/// Those of the work, and [`Error::Usage`] if there cannot be so many.
pub fn on_threads<T: Send>(threads: usize, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|error| Error::Usage(format!("cannot start {threads} threads: {error}")))?.install(work)
}
