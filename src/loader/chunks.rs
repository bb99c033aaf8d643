//! Samples travel from thread to thread in chunks, so that small ones don't pay for a hand-over each.

use super::event::Event;
use super::memory::{Permit, QueueMemory};
use crate::adapters::catch;
use crate::error::Result;
use crate::sample::Sample;
use std::{iter, vec};

/// Events in a row, and the memory that they take.
#[derive(Debug)]
pub(super) struct Chunk<T> {
    pub(super) events: Vec<Event<T>>,
    permit: Permit,
}

impl<T> Chunk<T> {
    pub(super) fn map<U>(self, map: impl FnMut(Event<T>) -> Event<U>) -> Chunk<U> {
        Chunk { events: self.events.into_iter().map(map).collect(), permit: self.permit }
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

/// Cuts `events` into chunks. A panic becomes the last item of the last one.
///
/// Errors in a row are not collected: a stream of which nothing can be read tries again only when somebody
/// has seen why.
///
/// Each sample becomes `grown` bytes more on its way. Waits until `memory` is there for another chunk.
pub(super) fn chunks<I>(
    events: I,
    grown: usize,
    mut memory: QueueMemory,
) -> impl Iterator<Item = Result<Chunk<Sample>>>
where
    I: Iterator<Item = Event<Sample>>,
{
    let mut events = Some(events);
    let mut capacity = 0;
    iter::from_fn(move || {
        let permit = events.as_ref().map(|_| memory.ask())?;
        let mut permit = match permit {
            Ok(permit) => permit,
            Err(error) => {
                events = None;
                return Some(Err(error));
            }
        };
        let most = if permit.is_roomy() { BYTES } else { BYTES_NEEDED };
        // A chunk is mostly as long as the one before it.
        let (mut chunk, mut bytes, mut more) = (Vec::with_capacity(capacity), 0_usize, 0_usize);
        // One for the whole chunk: an event is large, and would be moved out of each.
        let filled = catch(|| {
            let Some(events) = events.as_mut() else { return };
            while chunk.len() < SAMPLES && bytes < most && more < BYTES_OUT {
                let Some(event) = events.next() else { break };
                if let Event::Item(_, Ok(sample)) = &event {
                    bytes = bytes.saturating_add(sample.size());
                    more = more.saturating_add(grown);
                }
                let again = matches!((&event, chunk.last()), (Event::Fault(_), None | Some(Event::Fault(_))));
                chunk.push(event);
                if again {
                    break;
                }
            }
        });
        if let Err(panic) = filled {
            events = None;
            chunk.push(Event::Fatal(panic));
        }
        capacity = chunk.len();
        memory.made(&mut permit, bytes.saturating_add(size_of_val(&*chunk)));
        (!chunk.is_empty()).then_some(Ok(Chunk { events: chunk, permit }))
    })
}

/// The events again. An error in place of a chunk loses what was in it: nothing after it can be right.
pub(super) fn unchunked<T>(chunks: impl Iterator<Item = Result<Chunk<T>>>) -> impl Iterator<Item = Event<T>> {
    chunks.flat_map(|chunk| match chunk {
        Ok(Chunk { events, mut permit }) => {
            permit.taken_out();
            Unchunked { events: events.into_iter(), _permit: Some(permit) }
        }
        Err(error) => Unchunked { events: vec![Event::Fatal(error)].into_iter(), _permit: None },
    })
}

/// What is left of a chunk.
struct Unchunked<T> {
    events: vec::IntoIter<Event<T>>,
    _permit: Option<Permit>,
}

impl<T> Iterator for Unchunked<T> {
    type Item = Event<T>;

    fn next(&mut self) -> Option<Event<T>> {
        self.events.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.events.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::loader::event::Tag;
    use crate::sample::Position;
    use crate::store::Budget;

    /// Memory for all that is read ahead, or only for what is needed.
    fn memory(bytes: u64) -> QueueMemory {
        QueueMemory::new(&Budget::new(1, bytes), 1, BYTES)
    }

    fn samples(sizes: impl IntoIterator<Item = usize>) -> impl Iterator<Item = Event<Sample>> {
        let tag = || Tag { slot: 0, dataset: 0, lane: 0, pass: 0, position: Position::default(), note: None };
        sizes.into_iter().map(move |size| match size {
            13 => Event::Fault(ErrorKind::Checksum.into()),
            _ => Event::Item(tag(), Ok(Sample::new(size.to_string()).with("bin", vec![0; size]))),
        })
    }

    #[test]
    fn errors_in_a_row_are_handed_on_one_by_one() {
        let sizes = [1, 13, 1, 1, 13, 13, 13, 13, 1];
        let chunks: Vec<_> =
            chunks(samples(sizes), 0, memory(u64::MAX)).map(|chunk| chunk.unwrap().events.len()).collect();
        assert_eq!(chunks, [6, 1, 1, 1]);
    }

    fn shown(events: impl Iterator<Item = Event<Sample>>) -> Vec<String> {
        let shown = |event: Event<Sample>| match event {
            Event::Item(_, Ok(sample)) => sample.key().to_owned(),
            Event::Fault(error) | Event::Fatal(error) => error.to_string(),
            other => format!("{other:?}"),
        };
        events.map(shown).collect()
    }

    #[test]
    fn a_chunk_is_bounded_in_samples_and_in_bytes() {
        for (room, most) in [(u64::MAX, BYTES), (0, BYTES_NEEDED)] {
            let sizes = |sizes: Vec<usize>| {
                let chunks = chunks(samples(sizes), 0, memory(room));
                chunks.map(|chunk| chunk.unwrap().events.len()).collect::<Vec<_>>()
            };
            assert_eq!(sizes(vec![1; 2 * SAMPLES + 3]), [SAMPLES, SAMPLES, 3]);
            assert_eq!(sizes(vec![most; 3]), [1, 1, 1]);
            assert_eq!(sizes(vec![most / 2, most / 2 + 1, 1]), [2, 1]);
            assert_eq!(sizes(vec![]), [0; 0]);
        }
    }

    #[test]
    fn nothing_changes_its_place() {
        let items = || samples((0..100).map(|n| if n % 9 == 4 { 13 } else { n * 1000 }));
        assert_eq!(shown(unchunked(chunks(items(), 0, memory(u64::MAX)))), shown(items()));
    }

    #[test]
    fn a_panic_comes_after_what_was_read() {
        let items = samples(20..).inspect(|event| {
            assert!(!matches!(event, Event::Item(_, Ok(sample)) if sample.key() == "23"), "on purpose");
        });
        let found = shown(unchunked(chunks(items, 0, memory(u64::MAX))));
        assert_eq!(found, ["20", "21", "22", "a pipeline thread panicked: on purpose"]);
    }
}
