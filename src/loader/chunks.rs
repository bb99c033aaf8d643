//! Samples travel from thread to thread in chunks, so that small ones don't pay for a hand-over each.

use crate::adapters::catch;
use crate::error::Result;
use crate::sample::Sample;
use std::iter;

/// Items, and errors in their places among them.
pub(super) type Chunk<T> = Vec<Result<T>>;

/// A chunk is full at so many samples: with 16, two fifths of the time for small ones went into the hand-over.
const SAMPLES: usize = 128;
/// Or at so many bytes: for large samples a hand-over costs nothing, and chunks of them would fill the memory.
const BYTES: usize = 512 << 10;

/// Cuts `samples` into chunks. A panic becomes the last item of the last one.
pub(super) fn chunks<I>(samples: I) -> impl Iterator<Item = Result<Chunk<Sample>>>
where
    I: Iterator<Item = Result<Sample>>,
{
    let mut samples = Some(samples);
    let mut capacity = 0;
    iter::from_fn(move || {
        // A chunk is mostly as long as the one before it.
        let (mut chunk, mut bytes) = (Chunk::with_capacity(capacity), 0_usize);
        while chunk.len() < SAMPLES && bytes < BYTES {
            let item = match catch(|| samples.as_mut()?.next()) {
                Ok(item) => item,
                Err(panic) => {
                    samples = None;
                    Some(Err(panic))
                }
            };
            let Some(item) = item else { break };
            bytes = bytes.saturating_add(item.as_ref().map_or(0, Sample::size));
            chunk.push(item);
        }
        capacity = chunk.len();
        (!chunk.is_empty()).then_some(Ok(chunk))
    })
}

/// The items again. An error in place of a chunk is an item too.
pub(super) fn unchunked<T>(
    chunks: impl Iterator<Item = Result<Chunk<T>>>,
) -> impl Iterator<Item = Result<T>> {
    chunks.flat_map(|chunk| chunk.unwrap_or_else(|error| vec![Err(error)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn samples(sizes: impl IntoIterator<Item = usize>) -> impl Iterator<Item = Result<Sample>> {
        sizes.into_iter().map(|size| match size {
            13 => Err(ErrorKind::Checksum.into()),
            _ => Ok(Sample::new(size.to_string()).with("bin", vec![0; size])),
        })
    }

    fn shown(items: impl Iterator<Item = Result<Sample>>) -> Vec<String> {
        items.map(|item| item.map_or_else(|error| error.to_string(), |sample| sample.key().into())).collect()
    }

    #[test]
    fn a_chunk_is_bounded_in_samples_and_in_bytes() {
        let sizes = |sizes: Vec<usize>| chunks(samples(sizes)).map(|c| c.unwrap().len()).collect::<Vec<_>>();
        assert_eq!(sizes(vec![1; 2 * SAMPLES + 3]), [SAMPLES, SAMPLES, 3]);
        assert_eq!(sizes(vec![BYTES; 3]), [1, 1, 1]);
        assert_eq!(sizes(vec![BYTES / 2, BYTES / 2 + 1, 1]), [2, 1]);
        assert_eq!(sizes(vec![]), [0; 0]);
    }

    #[test]
    fn nothing_changes_its_place() {
        let items = || samples((0..100).map(|n| if n % 9 == 4 { 13 } else { n * 1000 }));
        assert_eq!(shown(unchunked(chunks(items()))), shown(items()));
    }

    #[test]
    fn a_panic_comes_after_what_was_read() {
        let items = samples(20..).inspect(|item| assert!(item.as_ref().unwrap().key() != "23", "on purpose"));
        let found = shown(unchunked(chunks(items)));
        assert_eq!(found, ["20", "21", "22", "a pipeline thread panicked: on purpose"]);
    }
}
