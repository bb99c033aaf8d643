//! What the two processes say to each other: one JSON document on each line.

use serde::{Deserialize, Serialize};
use shardstream::{Error, Result, State};
use std::io::{self, BufRead, Write};
use std::path::PathBuf;

/// To the trainer, on standard output.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The first line: where the slabs are. They are the trainer's to map, and have no name any more once it
    /// has said [`Request::Mapped`].
    Slabs {
        /// The file of each slab.
        files: Vec<PathBuf>,
        /// The bytes of each.
        size: u64,
    },
    /// A batch lies in a slab, which is the trainer's until it says [`Request::Free`].
    Batch(Announced),
    /// There are no more batches.
    End {
        /// Whether the batches were there when they were asked for.
        report: String,
    },
    /// There are no more batches, because something is wrong.
    Error(String),
}

/// Where a batch lies.
#[derive(Debug, Serialize)]
pub struct Announced {
    /// Which slab, from 0.
    pub slab: usize,
    /// The rows that are samples; others are padding.
    pub valid: usize,
    /// Where the data were when this batch was trained on.
    pub state: Option<State>,
    /// What is in the slab.
    pub tensors: Vec<Placed>,
}

/// Where a tensor lies in its slab.
#[derive(Debug, Serialize)]
pub struct Placed {
    /// The column.
    pub name: String,
    /// The type of its numbers, under the name that NumPy has for it.
    pub dtype: String,
    /// The length of each axis.
    pub shape: Vec<usize>,
    /// The byte where it begins.
    pub offset: u64,
}

/// From the trainer, on standard input.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// The trainer has mapped the slabs, and needs their names no more.
    Mapped,
    /// The trainer wants the next batch.
    Next,
    /// Nothing can read this slab any more.
    Free(usize),
    /// The trainer needs no more batches.
    Stop,
}

/// Says something.
///
/// # Errors
/// When nobody reads any more.
pub fn say(mut output: impl Write, answer: &Answer) -> io::Result<()> {
    let line = serde_json::to_string(answer)?;
    writeln!(output, "{line}")?;
    output.flush()
}

/// What is said, until the other side has gone.
pub fn listen(input: impl BufRead) -> impl Iterator<Item = Result<Request>> {
    input.lines().map(|line| serde_json::from_str(&line.map_err(Error::step)?).map_err(Error::step))
}
