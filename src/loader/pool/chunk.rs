//! What is read of a source at once, and what became of it.

use crate::adapters::catch;
use crate::error::Error;
use crate::loader::event::{Input, Read};
use crate::store::ReadAheadMemory;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// What a source gives: samples, or later their items, and the events between them.
#[derive(Debug)]
pub(super) enum Fed<T> {
    Input(T),
    /// A failure between the samples of the stream, in this pass.
    Fault(u64, Error),
    /// A failure after which nothing that comes could be right.
    Fatal(Error),
    End,
}

/// What the samples of one source in a row became, in their order.
#[derive(Debug)]
pub(super) struct Chunk<T> {
    pub(super) items: Vec<Fed<T>>,
    /// How many items are to come of them.
    pub(super) outputs: usize,
    /// The memory of the budget that they take until all of them have been given out.
    pub(super) memory: ReadAheadMemory,
}

/// A chunk that took so long is long enough.
const LONG: Duration = Duration::from_millis(5);

/// How much is read of a source at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) samples: usize,
    /// It may be more by one sample.
    pub(super) bytes: usize,
}

/// Why no more was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// It was enough.
    More,
    /// What comes next is on its way, or not wanted yet.
    Wait,
    /// Nothing comes any more.
    Over,
}

/// Where samples are read from.
pub(super) trait Reads {
    /// The next sample, or what is in its place, without waiting for it.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Read>>;
}

/// Reads so much of a source, unless there is a wait, and calls `map` with each sample. Says what that gave,
/// how many bytes of samples were read, and what is to be expected then. A panic is the last that comes.
pub(super) fn read<T>(
    source: &mut impl Reads,
    bounds: Bounds,
    cx: &mut Context<'_>,
    mut map: impl FnMut(Input) -> T,
) -> (Vec<Fed<T>>, usize, Then) {
    let (mut items, mut bytes, begun) = (Vec::with_capacity(bounds.samples), 0_usize, Instant::now());
    // One for all of them: a sample is large, and would be moved out of each.
    let then = catch(|| {
        while items.len() < bounds.samples && bytes < bounds.bytes {
            match source.poll_read(cx) {
                Poll::Pending => return Then::Wait,
                Poll::Ready(Some(Read::Input(input))) => {
                    bytes = bytes.saturating_add(input.bytes());
                    items.push(Fed::Input(map(input)));
                    // Most may have been left out, or a disk be slow.
                    if items.len() % 8 == 0 && begun.elapsed() > LONG {
                        break;
                    }
                }
                Poll::Ready(Some(Read::Fault(pass, error))) => {
                    // Errors in a row are not collected: a stream of which nothing can be read tries again
                    // only when somebody has seen why.
                    let in_a_row = matches!(items.last(), None | Some(Fed::Fault(..)));
                    items.push(Fed::Fault(pass, error));
                    if in_a_row {
                        break;
                    }
                }
                Poll::Ready(Some(Read::Fatal(error))) => {
                    items.push(Fed::Fatal(error));
                    return Then::Over;
                }
                Poll::Ready(Some(Read::End)) => {
                    items.push(Fed::End);
                    break;
                }
                Poll::Ready(None) => {
                    items.push(Fed::End);
                    return Then::Over;
                }
            }
        }
        Then::More
    });
    let then = then.unwrap_or_else(|panic| {
        items.push(Fed::Fatal(panic));
        Then::Over
    });
    (items, bytes, then)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::loader::event::Origin;
    use crate::sample::Sample;
    use std::task::Waker;

    /// Samples of these sizes: 13 is an error, and 0 a wait.
    struct Sizes(Vec<usize>);

    impl Reads for Sizes {
        fn poll_read(&mut self, _: &mut Context<'_>) -> Poll<Option<Read>> {
            if self.0.is_empty() {
                return Poll::Ready(None);
            }
            match self.0.remove(0) {
                0 => Poll::Pending,
                13 => Poll::Ready(Some(Read::Fault(0, ErrorKind::Checksum.into()))),
                66 => panic!("on purpose"),
                size => {
                    let sample = Sample::new(size.to_string()).with("bin", vec![0; size]);
                    Poll::Ready(Some(Read::Input(Input { origin: Origin::default(), sample })))
                }
            }
        }
    }

    fn chunks(sizes: &[usize], samples: usize, bytes: usize) -> Vec<String> {
        let (mut source, mut found) = (Sizes(sizes.to_vec()), Vec::new());
        loop {
            let bounds = Bounds { samples, bytes };
            let (items, _, then) =
                read(&mut source, bounds, &mut Context::from_waker(Waker::noop()), |input| input);
            let shown = items.iter().map(|item| match item {
                Fed::Input(input) => input.sample.key().to_owned(),
                Fed::Fault(..) => "fault".into(),
                Fed::Fatal(error) => error.to_string(),
                Fed::End => "end".into(),
            });
            found.push(shown.collect::<Vec<_>>().join(" "));
            if then == Then::Over {
                return found;
            }
        }
    }

    #[test]
    fn errors_in_a_row_are_handed_on_one_by_one() {
        let found = chunks(&[1, 13, 1, 1, 13, 13, 13, 13, 1], 100, usize::MAX);
        assert_eq!(found, ["1 fault 1 1 fault fault", "fault", "fault", "1 end"]);
    }

    #[test]
    fn a_chunk_is_bounded_in_samples_and_in_bytes() {
        assert_eq!(chunks(&[1, 2, 3, 4, 5], 2, usize::MAX), ["1 2", "3 4", "5 end"]);
        assert_eq!(chunks(&[990, 990, 990], 100, 1000), ["990", "990", "990", "end"]);
    }

    #[test]
    fn a_chunk_ends_where_the_rest_would_have_to_be_waited_for() {
        assert_eq!(chunks(&[1, 2, 0, 0, 3], 100, usize::MAX), ["1 2", "", "3 end"]);
    }

    #[test]
    fn a_panic_comes_after_what_was_read() {
        let found = chunks(&[20, 21, 66, 22], 100, usize::MAX);
        assert_eq!(found, ["20 21 a pipeline thread panicked: on purpose"]);
    }
}
