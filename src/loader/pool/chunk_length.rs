//! How long the next chunk of a source is.
//!
//! A long chunk costs less for the hand-over between threads, and a short one takes less memory and is sooner
//! ready. So a chunk that is done in less than 0.4 ms makes the next one of its source twice as long, from 8
//! to 512 samples, and one that takes longer than 1 ms halves it. Bytes and items are limited as well.

use super::chunk::ChunkLimits;
use std::time::Duration;

/// Maximum number of samples in a chunk. With 16, two fifths of the time for small samples went into the
/// hand-over between threads.
const MAX_SAMPLES: usize = 512;
/// The same for the first chunk of a source: the time per sample is not known yet, and the sequence waits.
pub(super) const FIRST_SAMPLES: usize = 8;
/// Maximum bytes of samples in a chunk. The hand-over of large samples costs next to nothing, and long chunks
/// of them would take much memory.
const MAX_BYTES: usize = 512 << 10;
/// The same if the budget has no memory for the chunk.
pub(super) const MAX_BYTES_WITHOUT_MEMORY: usize = 64 << 10;
/// Maximum bytes of the rows that a chunk becomes.
pub(super) const MAX_ROW_BYTES: usize = 4 << 20;
/// Maximum number of items that a chunk becomes.
const MAX_OUTPUTS: u64 = 1024;

/// A chunk that takes longer makes the next one shorter, so that all threads finish at about the same time.
pub(super) const LONG: Duration = Duration::from_millis(1);
/// A chunk that takes less makes the next one longer.
pub(super) const SHORT: Duration = Duration::from_micros(400);
/// Samples that take less than this are mapped while they are read. Otherwise the source is released first,
/// so that another thread can read on; but keeping the samples until then costs time for memory that leaves
/// the cache.
pub(super) const QUICK: Duration = Duration::from_micros(5);

/// The length of the next chunk of one source, from those before it.
#[derive(Debug)]
pub(super) struct ChunkLength {
    max_samples: usize,
    expected_bytes: u64,
    is_quick: bool,
    /// Whether the budget had memory for the last chunk.
    had_memory: bool,
    /// Number of samples that were mapped, and number of items that they gave.
    inputs: u64,
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
    /// Bytes that the next chunk is likely to have.
    pub(super) fn expected_bytes(&self) -> u64 {
        self.expected_bytes
    }

    /// Whether the samples of the last chunk were [`QUICK`].
    pub(super) fn is_quick(&self) -> bool {
        self.is_quick
    }

    /// Says whether the budget has memory for the next chunk.
    pub(super) fn set_had_memory(&mut self, had_memory: bool) {
        self.had_memory = had_memory;
    }

    /// The limits of the next chunk, if items have rows of `row_bytes` bytes.
    pub(super) fn limits(&self, row_bytes: usize) -> ChunkLimits {
        // Before the first chunk, assume one item for each sample.
        let outputs = if self.inputs == 0 { 1 } else { self.outputs.div_ceil(self.inputs).max(1) };
        let rows = row_bytes.saturating_mul(usize::try_from(outputs).unwrap_or(usize::MAX)).max(1);
        let items = usize::try_from(MAX_OUTPUTS / outputs).unwrap_or(usize::MAX);
        ChunkLimits {
            samples: self.max_samples.min(MAX_ROW_BYTES / rows).min(items).max(1),
            bytes: if self.had_memory { MAX_BYTES } else { MAX_BYTES_WITHOUT_MEMORY },
        }
    }

    /// Says that a chunk of this many bytes was read.
    pub(super) fn read(&mut self, bytes: u64) {
        // A chunk without memory was cut short. It only tells that the one before it was unusually large.
        self.expected_bytes = match self.had_memory {
            true => bytes,
            false => self.expected_bytes.min(bytes.max(MAX_BYTES as u64)),
        };
    }

    /// Says that a chunk of `samples` samples was read and mapped in the time `took`, and gave `outputs`
    /// items.
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
