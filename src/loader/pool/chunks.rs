//! Samples travel from thread to thread in chunks, so that small ones don't pay for a hand-over each.

use super::memory::{Permit, QueueMemory};
use crate::adapters::catch;
use crate::error::{Error, Result};
use crate::loader::event::Read;
use std::{iter, vec};

/// What travels in chunks.
pub(super) trait Travels: Sized {
    /// How many bytes wait with it.
    fn bytes(&self) -> usize;

    /// How many bytes more it is likely to become on its way.
    fn grown(&self) -> usize;

    /// Whether a chunk ends behind it, after what came before it in the chunk.
    fn ends_chunk(&self, before: Option<&Self>) -> bool;

    /// A failure after which nothing comes.
    fn fatal(error: Error) -> Self;
}

impl Travels for Read {
    fn bytes(&self) -> usize {
        match self {
            Read::Input(input) => input.bytes(),
            _ => 0,
        }
    }

    fn grown(&self) -> usize {
        0
    }

    fn ends_chunk(&self, before: Option<&Self>) -> bool {
        // Errors in a row are not collected: a stream of which nothing can be read tries again only when
        // somebody has seen why.
        matches!((self, before), (Read::End, _) | (Read::Fault(..), None | Some(Read::Fault(..))))
    }

    fn fatal(error: Error) -> Self {
        Read::Fatal(error)
    }
}

/// What there is for a chunk.
pub(super) enum Next<T> {
    Item(T),
    /// Nothing without a wait.
    Later,
    End,
}

/// Items in a row, and the memory that they take.
#[derive(Debug)]
pub(super) struct Chunk<T> {
    pub(super) items: Vec<T>,
    permit: Permit,
}

impl<T> Chunk<T> {
    pub(super) fn map<U>(self, map: impl FnMut(T) -> U) -> Chunk<U> {
        Chunk { items: self.items.into_iter().map(map).collect(), permit: self.permit }
    }
}

/// A chunk is full at so many samples: with 16, two fifths of the time for small ones went into the
/// hand-over.
const SAMPLES: usize = 128;
/// Or at so many bytes: for large samples a hand-over costs nothing, and chunks of them would fill the
/// memory.
pub(super) const BYTES: usize = 512 << 10;
/// The same where the budget has no room for it.
const BYTES_NEEDED: usize = 64 << 10;

/// Or when what becomes of the samples takes so many bytes.
const BYTES_OUT: usize = 4 << 20;

/// Cuts the items of an iterator into chunks. A panic becomes the last item of the last one.
///
/// Waits until `memory` is there for another chunk.
pub(super) fn chunks<T: Travels>(
    mut items: impl Iterator<Item = T>,
    memory: QueueMemory,
) -> impl Iterator<Item = Result<Chunk<T>>> {
    chunks_of(move |_| items.next().map_or(Next::End, Next::Item), memory)
}

/// The same for what `next` gives, which is told whether it may wait: where it may not, the chunk ends before
/// it is full.
pub(super) fn chunks_of<T: Travels>(
    next: impl FnMut(bool) -> Next<T>,
    mut memory: QueueMemory,
) -> impl Iterator<Item = Result<Chunk<T>>> {
    let mut source = Some(next);
    let mut capacity = 0;
    iter::from_fn(move || {
        let permit = source.as_ref().map(|_| memory.ask())?;
        let mut permit = match permit {
            Ok(permit) => permit,
            Err(error) => {
                source = None;
                return Some(Err(error));
            }
        };
        let most = if permit.is_roomy() { BYTES } else { BYTES_NEEDED };
        // A chunk is mostly as long as the one before it.
        let (mut chunk, mut bytes, mut more) = (Vec::with_capacity(capacity), 0_usize, 0_usize);
        // One for the whole chunk: an item is large, and would be moved out of each.
        let filled = catch(|| {
            let Some(next) = source.as_mut() else { return };
            while chunk.len() < SAMPLES && bytes < most && more < BYTES_OUT {
                let item = match next(chunk.is_empty()) {
                    Next::Item(item) => item,
                    Next::Later => break,
                    Next::End => {
                        source = None;
                        break;
                    }
                };
                bytes = bytes.saturating_add(item.bytes());
                more = more.saturating_add(item.grown());
                let ends = item.ends_chunk(chunk.last());
                chunk.push(item);
                if ends {
                    break;
                }
            }
        });
        if let Err(panic) = filled {
            source = None;
            chunk.push(T::fatal(panic));
        }
        capacity = chunk.len();
        memory.made(&mut permit, bytes.saturating_add(size_of_val(&*chunk)));
        (!chunk.is_empty()).then_some(Ok(Chunk { items: chunk, permit }))
    })
}

/// The items again. An error in place of a chunk loses what was in it: nothing after it can be right.
pub(super) fn unchunked<T: Travels>(
    chunks: impl Iterator<Item = Result<Chunk<T>>>,
) -> impl Iterator<Item = T> {
    chunks.flat_map(|chunk| chunk.map_or_else(|error| Unchunked::failed(T::fatal(error)), Unchunked::new))
}

/// What is left of a chunk.
pub(super) struct Unchunked<T> {
    items: vec::IntoIter<T>,
    _permit: Option<Permit>,
}

impl<T> Unchunked<T> {
    /// The chunk leaves its queue.
    pub(super) fn new(chunk: Chunk<T>) -> Self {
        let Chunk { items, mut permit } = chunk;
        permit.taken_out();
        Unchunked { items: items.into_iter(), _permit: Some(permit) }
    }

    fn failed(item: T) -> Self {
        Unchunked { items: vec![item].into_iter(), _permit: None }
    }
}

impl<T> Iterator for Unchunked<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.items.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::loader::event::{Input, Origin};
    use crate::sample::Sample;
    use crate::store::Budget;

    /// Memory for all that is read ahead, or only for what is needed.
    fn memory(bytes: u64) -> QueueMemory {
        QueueMemory::new(&Budget::new(1, bytes), 1, BYTES)
    }

    fn samples(sizes: impl IntoIterator<Item = usize>) -> impl Iterator<Item = Read> {
        sizes.into_iter().map(move |size| match size {
            13 => Read::Fault(0, ErrorKind::Checksum.into()),
            _ => {
                let sample = Sample::new(size.to_string()).with("bin", vec![0; size]);
                Read::Input(Input { origin: Origin::default(), sample }.into())
            }
        })
    }

    #[test]
    fn errors_in_a_row_are_handed_on_one_by_one() {
        let sizes = [1, 13, 1, 1, 13, 13, 13, 13, 1];
        let chunks: Vec<_> =
            chunks(samples(sizes), memory(u64::MAX)).map(|chunk| chunk.unwrap().items.len()).collect();
        assert_eq!(chunks, [6, 1, 1, 1]);
    }

    fn shown(items: impl Iterator<Item = Read>) -> Vec<String> {
        let shown = |read: Read| match read {
            Read::Input(input) => input.sample.key().to_owned(),
            Read::Fault(_, error) | Read::Fatal(error) => error.to_string(),
            Read::End => "end".into(),
        };
        items.map(shown).collect()
    }

    #[test]
    fn a_chunk_is_bounded_in_samples_and_in_bytes() {
        for (room, most) in [(u64::MAX, BYTES), (0, BYTES_NEEDED)] {
            let sizes = |sizes: Vec<usize>| {
                let chunks = chunks(samples(sizes), memory(room));
                chunks.map(|chunk| chunk.unwrap().items.len()).collect::<Vec<_>>()
            };
            assert_eq!(sizes(vec![1; 2 * SAMPLES + 3]), [SAMPLES, SAMPLES, 3]);
            assert_eq!(sizes(vec![most; 3]), [1, 1, 1]);
            assert_eq!(sizes(vec![most / 2, most / 2 + 1, 1]), [2, 1]);
            assert_eq!(sizes(vec![]), [0; 0]);
        }
    }

    #[test]
    fn a_chunk_ends_where_the_rest_would_have_to_be_waited_for() {
        let mut reads = samples([1, 2, 3]).collect::<Vec<_>>().into_iter();
        let mut calls = 0;
        let next = |may_wait: bool| {
            calls += 1;
            if calls == 3 && !may_wait { Next::Later } else { reads.next().map_or(Next::End, Next::Item) }
        };
        let chunks = chunks_of(next, memory(u64::MAX));
        assert_eq!(chunks.map(|chunk| chunk.unwrap().items.len()).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn nothing_changes_its_place() {
        let items = || samples((0..100).map(|n| if n % 9 == 4 { 13 } else { n * 1000 }));
        assert_eq!(shown(unchunked(chunks(items(), memory(u64::MAX)))), shown(items()));
    }

    #[test]
    fn a_panic_comes_after_what_was_read() {
        let items = samples(20..).inspect(|read| {
            assert!(!matches!(read, Read::Input(input) if input.sample.key() == "23"), "on purpose");
        });
        let found = shown(unchunked(chunks(items, memory(u64::MAX))));
        assert_eq!(found, ["20", "21", "22", "a pipeline thread panicked: on purpose"]);
    }
}
