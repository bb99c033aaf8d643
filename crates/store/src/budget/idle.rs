//! Tells when the readers of a budget do not need the link, so that a cache may prefetch.

use super::Budget;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;

/// Prefetching may use the budget's connections and memory divided by this number, in addition to what the
/// readers use.
const PREFETCH_DIVISOR: u64 = 8;

impl Budget {
    /// The budget for fetches while this budget is [idle](Budget::idle). It is a separate budget, so that
    /// background fetches neither take a connection from a reader nor affect the tuned number of requests.
    pub(crate) fn for_prefetch(&self) -> Budget {
        let connections = self.0.connections / PREFETCH_DIVISOR as usize;
        let new = || Budget::new(connections.max(1), (self.0.bytes / PREFETCH_DIVISOR).max(1));
        self.0.prefetch.get_or_init(new).clone()
    }

    /// Waits until no request is in flight and no reader waits. Then either all bytes that readers want have
    /// been requested, or there is no memory for more.
    pub(crate) async fn idle(&self) {
        self.wait_until(|| !self.is_awaited() && self.state().schedule.connections() == 0).await;
    }

    /// Waits until a reader waits for bytes.
    pub(crate) async fn awaited(&self) {
        self.wait_until(|| self.is_awaited()).await;
    }

    fn is_awaited(&self) -> bool {
        self.0.waiting.load(Relaxed) > 0
    }

    async fn wait_until(&self, is_true: impl Fn() -> bool) {
        let mut changes = self.0.changes.subscribe();
        // Pairs with the fence in `note_change`: either `note_change` sees this receiver, or this function
        // sees the new state.
        fence(SeqCst);
        // Never fails, since the sender is part of the budget.
        while !is_true() && changes.changed().await.is_ok() {}
    }

    /// Wakes the tasks that wait in [`idle`](Self::idle) or [`awaited`](Self::awaited).
    pub(super) fn note_change(&self) {
        fence(SeqCst);
        if self.0.changes.receiver_count() > 0 {
            self.0.changes.send_replace(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Gauge;
    use futures::FutureExt;

    #[test]
    fn a_budget_is_idle_while_no_request_is_in_flight_and_no_reader_waits() {
        let budget = Budget::new(8, 100);
        let is_idle = || budget.idle().now_or_never().is_some();
        let is_awaited = || budget.awaited().now_or_never().is_some();
        assert!(is_idle() && !is_awaited());
        let object = budget.queue(&Gauge::default()).next_object();
        let grants = object.request(0..1000, Some(60), usize::MAX);
        let grant = grants.try_recv().unwrap();
        assert!(!is_idle() && !is_awaited(), "a request is in flight");
        let (idle, awaited) = (budget.idle().shared(), budget.awaited().shared());
        assert!(idle.clone().now_or_never().is_none() && awaited.clone().now_or_never().is_none());
        drop(grant.connection);
        assert!(idle.now_or_never().is_some(), "the memory has no room for more");
        let waiting = object.wait();
        assert!(!is_idle() && awaited.now_or_never().is_some());
        drop(waiting);
        assert!(is_idle() && !is_awaited());
    }

    #[test]
    fn objects_in_a_reserved_position_are_requested_before_later_objects() {
        let budget = Budget::new(1, 1000);
        let queue = budget.queue(&Gauge::default());
        let (first, place, last) = (queue.next_object(), queue.place(), queue.next_object());
        let begin = |object: &super::super::QueuedObject| object.request(0..10, None, 1);
        let (first, last) = ((begin(&first), first), (begin(&last), last));
        let in_place = [place.next_object(), place.clone().next_object()];
        let in_place = in_place.map(|object| (begin(&object), object));
        for (grants, _) in [&first, &in_place[0], &in_place[1], &last] {
            assert!(grants.try_recv().is_ok());
        }
    }
}
