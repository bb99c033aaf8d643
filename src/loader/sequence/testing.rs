//! `Listed`: sources of listed events, for tests.

use super::SourceOutputs;
use crate::ErrorKind;
use crate::loader::event::{FailedStep, LoaderEvent, SampleFault, SourcePass, Tag};
use std::collections::VecDeque;

pub(super) fn item(number: u32) -> LoaderEvent<u32> {
    LoaderEvent::Item(Tag::default(), number)
}

pub(super) fn fault() -> LoaderEvent<u32> {
    LoaderEvent::Fault(SampleFault {
        source: SourcePass::default(),
        failed: FailedStep::Map,
        after_success: false,
        error: ErrorKind::Checksum.into(),
    })
}

pub(super) fn fatal() -> LoaderEvent<u32> {
    LoaderEvent::Fatal(ErrorKind::Checksum.into())
}

/// The events of each source.
pub(super) struct Listed {
    events: Vec<VecDeque<LoaderEvent<u32>>>,
    /// The items of each source when it is repeated.
    repeats: Vec<Vec<u32>>,
}

impl Listed {
    pub(super) fn events(sources: impl IntoIterator<Item = Vec<LoaderEvent<u32>>>) -> Self {
        Listed { events: sources.into_iter().map(VecDeque::from).collect(), repeats: Vec::new() }
    }

    pub(super) fn items(sources: impl IntoIterator<Item = Vec<u32>>) -> Self {
        Listed::events(sources.into_iter().map(|items| items.into_iter().map(item).collect()))
    }

    /// Allows the sources to be repeated, each with the items that are listed now.
    pub(super) fn repeated(mut self) -> Self {
        let number = |event: &LoaderEvent<u32>| match event {
            LoaderEvent::Item(_, number) => Some(*number),
            _ => None,
        };
        self.repeats = self.events.iter().map(|events| events.iter().filter_map(number).collect()).collect();
        self
    }
}

impl SourceOutputs for Listed {
    type Item = u32;

    fn next(&mut self, source: usize) -> Option<LoaderEvent<u32>> {
        self.events[source].pop_front()
    }

    fn repeat(&mut self, source: usize, _: u64) -> bool {
        let Some(items) = self.repeats.get(source) else { return false };
        self.events[source].extend(items.iter().copied().map(item));
        true
    }
}
