//! A chunk: consecutive samples of one source, and the outputs of the stages for them.

use crate::loader::event::{StageInput, StreamEvent};
use crate::panic::catch;
use crate::store::ReadAheadMemory;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The outputs of the stages for consecutive samples of one source.
#[derive(Debug)]
pub(super) struct Chunk<T> {
    pub(super) items: Vec<StreamEvent<T>>,
    /// Number of items that result from the events.
    pub(super) outputs: usize,
    /// The chunk's reservation in the memory budget. It is released when the sequence has taken all events.
    pub(super) memory: ReadAheadMemory,
}

/// Reading a chunk stops after this time, even if the chunk is not full.
const MAX_READ_TIME: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkLimits {
    pub(super) samples: usize,
    /// Reading stops after the sample that reaches this limit.
    pub(super) bytes: usize,
}

impl ChunkLimits {
    /// For each limit, the smaller of the two values.
    pub(super) fn at_most(self, other: ChunkLimits) -> Self {
        ChunkLimits { samples: self.samples.min(other.samples), bytes: self.bytes.min(other.bytes) }
    }
}

/// Whether a source has more to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceStatus {
    /// The source may have more samples: reading stopped because the chunk was full.
    Ready,
    /// The source waits for bytes, or for the permission to start the next pass.
    Pending,
    Ended,
}

pub(super) trait PollSamples {
    /// The next sample or event, without blocking.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamEvent>>;
}

pub(super) struct ChunkRead<T> {
    pub(super) items: Vec<StreamEvent<T>>,
    /// Bytes of the samples that were read.
    pub(super) bytes: usize,
    pub(super) status: SourceStatus,
}

/// Reads a chunk from a source and calls `map` with each sample. Stops early instead of waiting. A panic ends
/// the source, and is the last error in its chunk.
pub(super) fn read_chunk<T>(
    source: &mut impl PollSamples,
    limits: ChunkLimits,
    cx: &mut Context<'_>,
    mut map: impl FnMut(StageInput) -> T,
) -> ChunkRead<T> {
    let mut items = Vec::with_capacity(limits.samples);
    let mut bytes = 0_usize;
    let start = Instant::now();
    // One `catch` for all samples: a `catch` for each would move every sample once more.
    let status = catch(|| {
        while items.len() < limits.samples && bytes < limits.bytes {
            match source.poll_read(cx) {
                Poll::Pending => return SourceStatus::Pending,
                Poll::Ready(Some(StreamEvent::Input(input))) => {
                    bytes = bytes.saturating_add(input.bytes());
                    items.push(StreamEvent::Input(map(input)));
                    // Reading may be slow because most samples are filtered out, or because of the disk.
                    if items.len() % 8 == 0 && start.elapsed() > MAX_READ_TIME {
                        break;
                    }
                }
                Poll::Ready(Some(StreamEvent::Fault(fault))) => {
                    // Consecutive errors end the chunk, so that the caller sees the first errors of an
                    // unreadable stream before the stream is read further.
                    let in_a_row = matches!(items.last(), None | Some(StreamEvent::Fault(..)));
                    items.push(StreamEvent::Fault(fault));
                    if in_a_row {
                        break;
                    }
                }
                Poll::Ready(Some(StreamEvent::Fatal(error))) => {
                    items.push(StreamEvent::Fatal(error));
                    return SourceStatus::Ended;
                }
                Poll::Ready(Some(StreamEvent::End)) => {
                    items.push(StreamEvent::End);
                    break;
                }
                Poll::Ready(None) => {
                    items.push(StreamEvent::End);
                    return SourceStatus::Ended;
                }
            }
        }
        SourceStatus::Ready
    });
    let status = status.unwrap_or_else(|panic| {
        items.push(StreamEvent::Fatal(panic));
        SourceStatus::Ended
    });
    ChunkRead { items, bytes, status }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::loader::event::{InputOrigin, StreamFault};
    use crate::sample::Sample;
    use std::task::Waker;

    /// A source of samples of these sizes. 0 is a wait, 13 an error, 66 a panic.
    struct Sizes(Vec<usize>);

    impl PollSamples for Sizes {
        fn poll_read(&mut self, _: &mut Context<'_>) -> Poll<Option<StreamEvent>> {
            if self.0.is_empty() {
                return Poll::Ready(None);
            }
            match self.0.remove(0) {
                0 => Poll::Pending,
                13 => {
                    let error = ErrorKind::Checksum.into();
                    let fault = StreamFault { pass: 0, after_success: false, error };
                    Poll::Ready(Some(StreamEvent::Fault(fault)))
                }
                66 => panic!("on purpose"),
                size => {
                    let sample = Sample::new(size.to_string()).with("bin", vec![0; size]);
                    Poll::Ready(Some(StreamEvent::Input(StageInput {
                        origin: InputOrigin::default(),
                        sample,
                    })))
                }
            }
        }
    }

    fn chunks(sizes: &[usize], samples: usize, bytes: usize) -> Vec<String> {
        let mut source = Sizes(sizes.to_vec());
        let mut chunks = Vec::new();
        loop {
            let limits = ChunkLimits { samples, bytes };
            let ChunkRead { items, status, .. } =
                read_chunk(&mut source, limits, &mut Context::from_waker(Waker::noop()), |input| input);
            let shown = items.iter().map(|item| match item {
                StreamEvent::Input(input) => input.sample.key().to_owned(),
                StreamEvent::Fault(..) => "fault".into(),
                StreamEvent::Fatal(error) => error.to_string(),
                StreamEvent::End => "end".into(),
            });
            chunks.push(shown.collect::<Vec<_>>().join(" "));
            if status == SourceStatus::Ended {
                return chunks;
            }
        }
    }

    #[test]
    fn consecutive_errors_are_in_chunks_of_their_own() {
        let chunks = chunks(&[1, 13, 1, 1, 13, 13, 13, 13, 1], 100, usize::MAX);
        assert_eq!(chunks, ["1 fault 1 1 fault fault", "fault", "fault", "1 end"]);
    }

    #[test]
    fn a_chunk_is_limited_in_samples_and_in_bytes() {
        assert_eq!(chunks(&[1, 2, 3, 4, 5], 2, usize::MAX), ["1 2", "3 4", "5 end"]);
        assert_eq!(chunks(&[990, 990, 990], 100, 1000), ["990", "990", "990", "end"]);
    }

    #[test]
    fn a_chunk_ends_before_a_wait() {
        assert_eq!(chunks(&[1, 2, 0, 0, 3], 100, usize::MAX), ["1 2", "", "3 end"]);
    }

    #[test]
    fn a_panic_follows_the_samples_that_were_read_before() {
        let chunks = chunks(&[20, 21, 66, 22], 100, usize::MAX);
        assert_eq!(chunks, ["20 21 a pipeline thread panicked: on purpose"]);
    }
}
