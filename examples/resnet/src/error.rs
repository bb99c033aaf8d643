//! What can end a training.

use crate::data::DataError;

/// Result of the trainer.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the trainer stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The plugin or a device.
    #[error(transparent)]
    Pjrt(#[from] crate::pjrt::Error),
    /// No plugin could be had.
    #[error(transparent)]
    Plugin(#[from] crate::plugin::Error),
    /// The exported program.
    #[error(transparent)]
    Artifact(#[from] crate::artifact::Error),
    /// The input pipeline.
    #[error("the data failed")]
    Data(#[source] DataError),
    /// A checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] crate::checkpoint::Error),
    /// A state that is not the network's.
    #[error("a state of {got} buffers, and the network has {expected}")]
    State {
        /// Buffers of the network.
        expected: usize,
        /// Buffers of the state.
        got: usize,
    },
    /// A batch that the program cannot take.
    #[error("bad batch: {0}")]
    Batch(String),
    /// The thread that feeds the devices panicked; its message is on the standard error.
    #[error("the feeder thread panicked")]
    FeederPanicked,
    /// The loss is not a number any more.
    #[error("the loss became {loss} at step {step}: try a lower learning rate")]
    Diverged {
        /// Counted from 1, in the epoch.
        step: u64,
        /// What it became.
        loss: f32,
    },
    /// An epoch without a single full batch.
    #[error("the {0} data gave no batch")]
    Empty(&'static str),
    /// The report could not be written.
    #[error("cannot write the report")]
    Output(#[from] std::io::Error),
}

/// The message of an error and of what caused it.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |e| e.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
