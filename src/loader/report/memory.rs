//! `MemoryReport`: the memory of a run, by owner.

use crate::collate::Collator;
use crate::memory::Gauge;
use crate::read_buffer::read_buffers;
use serde::Serialize;
use std::fmt;

/// Bytes of memory that a run holds at the time of its [report](super::Report), by owner.
///
/// Samples, and bytes received from the network, are slices of read buffers: do not add the read buffers of
/// the process to the other values.
///
/// Not counted: samples in lists of items ([`Batch`](crate::adapters::Batch)), the outputs of maps, rows of
/// an incomplete batch, tensors that a column allocates itself
/// ([`PackedTokens`](crate::collate::PackedTokens)), indexes, and the stacks of threads.
///
/// ```
/// use shardstream::prelude::*;
///
/// let dataset = Dataset::builder("docs/data/digits-{000000..000003}.tar").build()?;
/// let loader = Loader::builder(dataset).batch(4).build()?;
/// let mut batches = loader.epoch(0);
/// let batch = batches.next().unwrap()?;
/// let memory = batches.report().memory;
/// println!("{memory}");
/// for (owner, bytes) in memory.owners() {
///     println!("{owner}: {bytes}");
/// }
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MemoryReport {
    /// Bytes that were requested from the network and not read yet, whether or not they were received. A
    /// range counts as a whole until its last byte was read.
    pub network: u64,
    /// Samples that the threads have read ahead: they are being mapped, or wait for their batch.
    pub samples: u64,
    /// Samples in shuffle buffers.
    pub shuffled: u64,
    /// Tensors of batches that wait for the trainer or that the trainer still holds. All runs of a loader
    /// share them.
    pub tensors: u64,
    /// Idle tensors, kept for reuse. All runs of a loader share them.
    pub idle_tensors: u64,
    /// Read buffers of the whole process that are in use. They hold bytes of files, not of servers'
    /// responses.
    pub read_buffers: u64,
    /// Idle read buffers of the whole process, kept for reuse.
    pub idle_read_buffers: u64,
}

impl MemoryReport {
    /// The names of the owners with their bytes. Memory that belongs to the whole process is last.
    pub fn owners(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("network", self.network),
            ("samples", self.samples),
            ("shuffled", self.shuffled),
            ("tensors", self.tensors),
            ("idle tensors", self.idle_tensors),
            ("read buffers of the process", self.read_buffers),
            ("idle read buffers of the process", self.idle_read_buffers),
        ]
        .into_iter()
    }
}

/// One line for a log, with the owners whose memory is not 0.
impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory:")?;
        let mut between = " ";
        for (owner, bytes) in self.owners().filter(|(_, bytes)| *bytes > 0) {
            write!(f, "{between}{owner} {:.1} MB", bytes as f64 / 1e6)?;
            between = ", ";
        }
        if between == " " { f.write_str(" nothing") } else { Ok(()) }
    }
}

/// The counters for a [`MemoryReport`].
#[derive(Debug, Clone, Default)]
pub(in crate::loader) struct MemoryGauges {
    pub(in crate::loader) network: Gauge,
    pub(in crate::loader) samples: Gauge,
    /// One gauge for each shuffle buffer.
    pub(in crate::loader) shuffled: Vec<Gauge>,
    /// The owners of the tensors' memory.
    pub(in crate::loader) collators: Vec<Collator>,
}

impl MemoryGauges {
    pub(in crate::loader) fn report(&self) -> MemoryReport {
        let (read_buffers, idle_read_buffers) = read_buffers();
        MemoryReport {
            network: self.network.bytes(),
            samples: self.samples.bytes(),
            shuffled: self.shuffled.iter().map(Gauge::bytes).sum(),
            tensors: self.collators.iter().map(Collator::bytes_in_use).sum(),
            idle_tensors: self.collators.iter().map(Collator::bytes_idle).sum(),
            read_buffers,
            idle_read_buffers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_the_owners_with_memory() {
        let nothing = MemoryReport::default();
        assert_eq!(nothing.to_string(), "memory: nothing");
        let some = MemoryReport { samples: 1_500_000, idle_read_buffers: 20_000_000, ..nothing };
        let line = "memory: samples 1.5 MB, idle read buffers of the process 20.0 MB";
        assert_eq!(some.to_string(), line);
    }
}
