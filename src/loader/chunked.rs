//! How samples go from thread to thread: many small ones, or a few large ones, at a time.

use crate::adapters::{Batch, Stage};
use crate::error::Result;
use crate::sample::Sample;

/// A chunk is full with so many samples: enough that a small one pays next to nothing for the hand-over.
const SAMPLES: usize = 128;
/// A chunk is also full with so many bytes, which bounds the memory, and the time that a chunk takes to map.
const BYTES: usize = 512 << 10;

/// The stage that collects samples into chunks.
#[derive(Debug, Default)]
pub(super) struct Chunked {
    samples: Vec<Sample>,
    bytes: usize,
}

impl Chunked {
    fn take(&mut self) -> Batch<Sample> {
        self.bytes = 0;
        // The next chunk will be much like this one.
        let capacity = self.samples.len();
        std::mem::replace(&mut self.samples, Vec::with_capacity(capacity)).into()
    }
}

impl Stage<Sample> for Chunked {
    type Out = Batch<Sample>;

    fn push(&mut self, sample: Sample) -> Option<Result<Batch<Sample>>> {
        self.bytes += sample.size();
        self.samples.push(sample);
        (self.samples.len() >= SAMPLES || self.bytes >= BYTES).then(|| Ok(self.take()))
    }

    fn drain(&mut self) -> Option<Result<Batch<Sample>>> {
        (!self.samples.is_empty()).then(|| Ok(self.take()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::IteratorExt;

    fn chunks(samples: usize, size: usize) -> Vec<usize> {
        let samples = (0..samples).map(|at| Ok(Sample::new(at.to_string()).with("bin", vec![0; size])));
        samples.stage(Chunked::default()).map(|chunk| chunk.unwrap().len()).collect()
    }

    #[test]
    fn a_chunk_is_bounded_in_samples_and_in_bytes() {
        assert_eq!(chunks(300, 0), [128, 128, 44]);
        assert_eq!(chunks(12, 100 << 10), [6, 6]);
        assert_eq!(chunks(2, 1 << 20), [1, 1], "a sample of any size is a chunk");
        assert!(chunks(0, 0).is_empty());
    }
}
