//! The messages between the two processes: one JSON document per line.

use serde::{Deserialize, Serialize};
use shardstream::{Error, Result, State};
use std::io::{self, BufRead, Write};
use std::path::PathBuf;

/// A message to the trainer, on standard output.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The first message: the files of the slabs, which the trainer maps. They lose their names after
    /// [`Request::Mapped`].
    Slabs {
        /// The file of each slab.
        files: Vec<PathBuf>,
        /// Size of each slab in bytes.
        size: u64,
    },
    /// A batch is in a slab, which the trainer owns until [`Request::Free`].
    Batch(Announced),
    /// There are no more batches.
    End {
        /// Reports whether the batches were ready when requested.
        report: String,
    },
    /// There are no more batches, because of an error.
    Error(String),
}

/// A batch in a slab.
#[derive(Debug, Serialize)]
pub struct Announced {
    /// Number of the slab, from 0.
    pub slab: usize,
    /// Number of rows that are samples; the others are padding.
    pub valid: usize,
    /// The state of the data after this batch.
    pub state: Option<State>,
    /// The tensors in the slab.
    pub tensors: Vec<Placed>,
}

/// A tensor in a slab.
#[derive(Debug, Serialize)]
pub struct Placed {
    /// Name of the column.
    pub name: String,
    /// NumPy's name of the element type.
    pub dtype: String,
    /// The length of each axis.
    pub shape: Vec<usize>,
    /// Offset of its first byte.
    pub offset: u64,
}

/// A message from the trainer, on standard input.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// The trainer has mapped the slabs, and no longer needs their names.
    Mapped,
    /// The trainer requests the next batch.
    Next,
    /// Nothing reads this slab any more.
    Free(usize),
    /// The trainer needs no more batches.
    Stop,
}

/// Writes a message.
///
/// # Errors
/// Fails if the reader is gone.
pub fn say(mut output: impl Write, answer: &Answer) -> io::Result<()> {
    let line = serde_json::to_string(answer)?;
    writeln!(output, "{line}")?;
    output.flush()
}

/// Reads messages until the other side is gone.
pub fn listen(input: impl BufRead) -> impl Iterator<Item = Result<Request>> {
    input.lines().map(|line| serde_json::from_str(&line.map_err(Error::step)?).map_err(Error::step))
}
