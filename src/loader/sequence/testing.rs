//! Sources for tests: lists of events.

use super::Outputs;
use crate::ErrorKind;
use crate::loader::event::{Event, Fault, From, Tag};
use std::collections::VecDeque;

pub(super) fn item(number: u32) -> Event<u32> {
    Event::Item(Tag::default(), number)
}

pub(super) fn fault() -> Event<u32> {
    Event::Fault(Fault { from: From::default(), error: ErrorKind::Checksum.into() })
}

pub(super) fn fatal() -> Event<u32> {
    Event::Fatal(ErrorKind::Checksum.into())
}

/// The events of each source.
pub(super) struct Listed {
    events: Vec<VecDeque<Event<u32>>>,
    /// What comes when a source begins again.
    again: Vec<Vec<u32>>,
}

impl Listed {
    pub(super) fn events(sources: impl IntoIterator<Item = Vec<Event<u32>>>) -> Self {
        Listed { events: sources.into_iter().map(VecDeque::from).collect(), again: Vec::new() }
    }

    pub(super) fn items(sources: impl IntoIterator<Item = Vec<u32>>) -> Self {
        Listed::events(sources.into_iter().map(|items| items.into_iter().map(item).collect()))
    }

    /// The same, that can begin again.
    pub(super) fn repeated(mut self) -> Self {
        let number = |event: &Event<u32>| match event {
            Event::Item(_, number) => Some(*number),
            _ => None,
        };
        self.again = self.events.iter().map(|events| events.iter().filter_map(number).collect()).collect();
        self
    }
}

impl Outputs for Listed {
    type Item = u32;

    fn next(&mut self, source: usize) -> Option<Event<u32>> {
        self.events[source].pop_front()
    }

    fn again(&mut self, source: usize, _: u64) -> bool {
        let Some(items) = self.again.get(source) else { return false };
        self.events[source].extend(items.iter().copied().map(item));
        true
    }
}
