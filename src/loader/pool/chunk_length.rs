//! `ChunkLength`: the number of samples in the next chunk of a source.
//!
//! With long chunks, threads hand over chunks less often than with short chunks; short chunks need less
//! memory and are ready sooner. So the length adapts: it starts at 8 samples, is doubled (up to 512) after a
//! chunk that took less than 0.4 ms, and halved after one that took more than 1 ms. Bytes and items are
//! limited as well.

use super::chunk::ChunkLimits;
use std::time::Duration;

/// Maximum number of samples in a chunk. With a maximum of 16 samples, two fifths of the time for small
/// samples were spent on passing chunks between threads.
const MAX_SAMPLES: usize = 512;
/// Number of samples in the first chunk of a source. It is small, because the time for a sample is not known
/// yet and the sequence waits for the chunk.
pub(super) const FIRST_SAMPLES: usize = 8;
/// Maximum bytes of samples in a chunk. If samples are large, processing a chunk takes much longer than
/// passing it to another thread. Longer chunks would therefore save little time, and need much memory.
const MAX_BYTES: usize = 512 << 10;
/// Maximum bytes of samples in a chunk for which the budget has no memory.
pub(super) const MAX_BYTES_WITHOUT_MEMORY: usize = 64 << 10;
/// Maximum bytes of the rows that result from a chunk.
pub(super) const MAX_ROW_BYTES: usize = 4 << 20;
/// Maximum number of items that result from a chunk.
const MAX_OUTPUTS: u64 = 1024;

/// After a chunk that takes longer than this, the next chunk is shorter, so that all threads finish at about
/// the same time.
pub(super) const LONG: Duration = Duration::from_millis(1);
/// After a chunk that takes less time than this, the next chunk is longer.
pub(super) const SHORT: Duration = Duration::from_micros(400);
/// A sample that takes less time than this is mapped right after it is read, while it is in the CPU cache.
/// Slower samples are mapped when the whole chunk has been read and the source has been released, so that
/// another thread can read the source meanwhile.
pub(super) const QUICK: Duration = Duration::from_micros(5);

/// The length of the next chunk of one source, computed from its earlier chunks.
#[derive(Debug)]
pub(super) struct ChunkLength {
    max_samples: usize,
    expected_bytes: u64,
    is_quick: bool,
    /// Whether the budget had memory for the last chunk.
    had_memory: bool,
    /// Number of samples that were mapped.
    inputs: u64,
    /// Number of items that resulted from the mapped samples.
    outputs: u64,
}

impl Default for ChunkLength {
    fn default() -> Self {
        ChunkLength {
            max_samples: FIRST_SAMPLES,
            expected_bytes: MAX_BYTES as u64,
            is_quick: false,
            had_memory: false,
            inputs: 0,
            outputs: 0,
        }
    }
}

impl ChunkLength {
    /// Bytes that the next chunk is expected to have.
    pub(super) fn expected_bytes(&self) -> u64 {
        self.expected_bytes
    }

    /// Whether the samples of the last chunk were [`QUICK`].
    pub(super) fn is_quick(&self) -> bool {
        self.is_quick
    }

    /// Sets whether the budget has memory for the next chunk.
    pub(super) fn set_had_memory(&mut self, had_memory: bool) {
        self.had_memory = had_memory;
    }

    /// The limits of the next chunk, if items have rows of `row_bytes` bytes.
    pub(super) fn limits(&self, row_bytes: usize) -> ChunkLimits {
        // Mean number of items of a sample; 1 before the first chunk.
        let outputs = if self.inputs == 0 { 1 } else { self.outputs.div_ceil(self.inputs).max(1) };
        let rows = row_bytes.saturating_mul(usize::try_from(outputs).unwrap_or(usize::MAX)).max(1);
        let items = usize::try_from(MAX_OUTPUTS / outputs).unwrap_or(usize::MAX);
        ChunkLimits {
            samples: self.max_samples.min(MAX_ROW_BYTES / rows).min(items).max(1),
            bytes: if self.had_memory { MAX_BYTES } else { MAX_BYTES_WITHOUT_MEMORY },
        }
    }

    /// Records that a chunk of `bytes` bytes was read.
    pub(super) fn read(&mut self, bytes: u64) {
        // A chunk for which the budget had no memory is cut short. So its size may lower the expectation, but
        // not below `MAX_BYTES`, and never raises it.
        self.expected_bytes = match self.had_memory {
            true => bytes,
            false => self.expected_bytes.min(bytes.max(MAX_BYTES as u64)),
        };
    }

    /// Records that a chunk of `samples` samples was read and mapped in the time `took`, and that `outputs`
    /// items resulted from it.
    pub(super) fn mapped(&mut self, samples: usize, outputs: usize, took: Duration) {
        self.inputs = self.inputs.saturating_add(samples as u64);
        self.outputs = self.outputs.saturating_add(outputs as u64);
        if took > LONG {
            self.max_samples = (samples / 2).max(1);
        } else if took < SHORT && samples >= self.max_samples {
            self.max_samples = self.max_samples.saturating_mul(2).min(MAX_SAMPLES);
        }
        self.is_quick = took < QUICK * u32::try_from(samples).unwrap_or(u32::MAX);
    }
}
