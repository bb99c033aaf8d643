//! Makes training shards from CIFAR-10. See the README beside `Cargo.toml`.

pub mod cifar;
pub mod error;
pub mod progress;
pub mod series;
pub mod summary;

pub use error::{Error, Result};

use std::process::ExitCode;

/// The exit code of the program. Prints an error with its causes.
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
