//! A chunk: some consecutive samples of a source, and what the stages made of them.

use crate::loader::event::{StageInput, StreamEvent};
use crate::panic::catch;
use crate::store::ReadAheadMemory;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// What the stages made of consecutive samples of one source.
#[derive(Debug)]
pub(super) struct Chunk<T> {
    pub(super) items: Vec<StreamEvent<T>>,
    /// Number of items in them.
    pub(super) outputs: usize,
    /// Their memory in the budget, held until all of them have been given out.
    pub(super) memory: ReadAheadMemory,
}

/// Reading stops after this time, even if the chunk is not full.
const LONG: Duration = Duration::from_millis(5);

/// How much of a source is read at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkLimits {
    pub(super) samples: usize,
    /// The last sample may exceed it.
    pub(super) bytes: usize,
}

impl ChunkLimits {
    /// The smaller of both.
    pub(super) fn at_most(self, other: ChunkLimits) -> Self {
        ChunkLimits { samples: self.samples.min(other.samples), bytes: self.bytes.min(other.bytes) }
    }
}

/// Whether a source has more to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceStatus {
    /// It has: the chunk is full.
    Ready,
    /// Not yet: its bytes are on their way, or the next pass is not allowed yet.
    Pending,
    /// It has ended.
    Ended,
}

/// A source of samples.
pub(super) trait PollSamples {
    /// The next sample or event, without blocking.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamEvent>>;
}

/// Reads a chunk of a source and calls `map` with each sample. Stops early if it would have to wait. Returns
/// the chunk, the bytes of the samples that were read, and whether the source has more. A panic ends the
/// source, and is the last error in its chunk.
pub(super) fn read_chunk<T>(
    source: &mut impl PollSamples,
    limits: ChunkLimits,
    cx: &mut Context<'_>,
    mut map: impl FnMut(StageInput) -> T,
) -> (Vec<StreamEvent<T>>, usize, SourceStatus) {
    let (mut items, mut bytes, start) = (Vec::with_capacity(limits.samples), 0_usize, Instant::now());
    // One `catch` for all samples: with one for each, every sample would be moved once more.
    let status = catch(|| {
        while items.len() < limits.samples && bytes < limits.bytes {
            match source.poll_read(cx) {
                Poll::Pending => return SourceStatus::Pending,
                Poll::Ready(Some(StreamEvent::Input(input))) => {
                    bytes = bytes.saturating_add(input.bytes());
                    items.push(StreamEvent::Input(map(input)));
                    // Most samples may have been filtered out, or a disk may be slow.
                    if items.len() % 8 == 0 && start.elapsed() > LONG {
                        break;
                    }
                }
                Poll::Ready(Some(StreamEvent::Fault(fault))) => {
                    // Consecutive errors are given out one by one: an unreadable stream must not read on
                    // before the caller has seen why.
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
    (items, bytes, status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::loader::event::{InputOrigin, StreamFault};
    use crate::sample::Sample;
    use std::task::Waker;

    /// Samples of these sizes. 0 is a wait, 13 an error, 66 a panic.
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
        let (mut source, mut found) = (Sizes(sizes.to_vec()), Vec::new());
        loop {
            let limits = ChunkLimits { samples, bytes };
            let (items, _, status) =
                read_chunk(&mut source, limits, &mut Context::from_waker(Waker::noop()), |input| input);
            let shown = items.iter().map(|item| match item {
                StreamEvent::Input(input) => input.sample.key().to_owned(),
                StreamEvent::Fault(..) => "fault".into(),
                StreamEvent::Fatal(error) => error.to_string(),
                StreamEvent::End => "end".into(),
            });
            found.push(shown.collect::<Vec<_>>().join(" "));
            if status == SourceStatus::Ended {
                return found;
            }
        }
    }

    #[test]
    fn consecutive_errors_are_handed_on_one_by_one() {
        let found = chunks(&[1, 13, 1, 1, 13, 13, 13, 13, 1], 100, usize::MAX);
        assert_eq!(found, ["1 fault 1 1 fault fault", "fault", "fault", "1 end"]);
    }

    #[test]
    fn a_chunk_is_bounded_in_samples_and_in_bytes() {
        assert_eq!(chunks(&[1, 2, 3, 4, 5], 2, usize::MAX), ["1 2", "3 4", "5 end"]);
        assert_eq!(chunks(&[990, 990, 990], 100, 1000), ["990", "990", "990", "end"]);
    }

    #[test]
    fn a_chunk_ends_before_a_wait() {
        assert_eq!(chunks(&[1, 2, 0, 0, 3], 100, usize::MAX), ["1 2", "", "3 end"]);
    }

    #[test]
    fn a_panic_comes_after_what_was_read() {
        let found = chunks(&[20, 21, 66, 22], 100, usize::MAX);
        assert_eq!(found, ["20 21 a pipeline thread panicked: on purpose"]);
    }
}
