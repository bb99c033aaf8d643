//! `prefetch`: runs the source in advance on another thread.

use super::{Background, QueueEntry, ThreadedQueue};
use crate::Result;
use crate::panic::catch;
use tokio::sync::mpsc::Sender;

pub(crate) fn prefetch<I, T>(source: I, ahead: usize) -> Background<T>
where
    I: Iterator<Item = Result<T>> + Send + 'static,
    T: Send + 'static,
{
    Background::new(ahead, |ahead| {
        ThreadedQueue::start("shardstream-prefetch", ahead, [move |queue| fill(source, &queue)])
    })
}

/// Sends the items of the source until it ends or panics, or until the queue is closed.
fn fill<T>(mut source: impl Iterator<Item = Result<T>>, queue: &Sender<QueueEntry<T>>) {
    while !queue.is_closed() {
        let (item, ended) = match catch(|| source.next()) {
            Ok(None) => return,
            Ok(Some(item)) => (item, false),
            Err(panic) => (Err(panic), true),
        };
        if queue.blocking_send(QueueEntry::Ready(item)).is_err() || ended {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ErrorKind;
    use crate::adapters::IteratorExt;
    use crate::adapters::testing::{fault, oks, show, show_stream};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[test]
    fn items_and_order_are_the_same_as_those_of_the_source() {
        let items = || [oks(0..50), vec![fault("bad")], oks(50..99)].into_iter().flatten();
        for ahead in [1, 2, 1000, usize::MAX] {
            assert_eq!(show(items().pipeline().prefetch(ahead)), show(items()));
            assert_eq!(show_stream(items().pipeline().prefetch(ahead).into_stream()), show(items()));
        }
    }

    #[test]
    fn items_are_prepared_only_after_the_first_call_and_up_to_the_bound() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let source = (0..1000).map(move |n| {
            counter.fetch_add(1, Ordering::SeqCst);
            Ok(n)
        });
        let mut items = source.pipeline().prefetch(3);
        assert_eq!(asked.load(Ordering::SeqCst), 0);
        assert!(format!("{items:?}").contains("New"));
        assert_eq!(items.next().unwrap().unwrap(), 0);
        drop(items);
        let asked = Arc::into_inner(asked).expect("the thread has ended and dropped the source").into_inner();
        assert!((1..=5).contains(&asked), "one given out, three in the queue, one in hand: {asked}");
    }

    #[test]
    fn start_prepares_items_before_the_first_call() {
        let (sender, asked) = std::sync::mpsc::channel();
        let mut items = (0..1000).inspect(move |n| sender.send(*n).unwrap()).map(Ok).pipeline().prefetch(3);
        items.start();
        items.start();
        assert!((0..4).map(|_| asked.recv().unwrap()).eq(0..4), "three in the queue, and one in hand");
        assert!(asked.recv_timeout(Duration::from_millis(20)).is_err(), "it waits for room");
        assert_eq!(show(items.by_ref().take(10)), show(oks(0..10).into_iter()));
        drop(items);
        let mut none = oks(0..3).into_iter().pipeline().prefetch(0);
        none.start();
        assert!(matches!(none.next().unwrap().unwrap_err().kind(), ErrorKind::Config(_)));
        assert!(none.next().is_none());
    }

    #[test]
    fn a_panic_of_a_dropped_item_does_not_reach_the_caller() {
        struct Panics;
        impl Drop for Panics {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }
        let (sender, asked) = std::sync::mpsc::channel();
        let mut items =
            (0..9).inspect(move |n| sender.send(*n).unwrap()).map(|_| Ok(Panics)).pipeline().prefetch(3);
        items.start();
        assert!((0..4).map(|_| asked.recv().unwrap()).eq(0..4), "three in the queue, and one in hand");
        drop(items);
        assert!(asked.recv().is_err(), "the thread has ended");
    }

    #[test]
    fn zero_items_in_advance_are_an_error() {
        let mut items = oks(0..3).into_iter().pipeline().prefetch(0);
        assert!(matches!(items.next().unwrap().unwrap_err().kind(), ErrorKind::Config(_)));
        assert!(items.next().is_none());
        assert_eq!(show_stream(oks(0..3).into_iter().pipeline().prefetch(0).into_stream()).len(), 1);
    }

    #[test]
    fn a_panic_of_the_source_is_the_last_item() {
        let source = || oks(0..9).into_iter().inspect(|n| assert!(*n.as_ref().unwrap() < 3, "no {n:?}"));
        let out = show(source().pipeline().prefetch(2));
        assert_eq!(out[..3], [Ok(0), Ok(1), Ok(2)]);
        assert_eq!(out[3], Err("a pipeline thread panicked: no Ok(3)".into()));
        assert_eq!(out.len(), 4);
        assert_eq!(show_stream(source().pipeline().prefetch(2).into_stream()), out);
    }
}
