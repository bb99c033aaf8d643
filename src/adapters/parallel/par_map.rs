//! `par_map`: a map on several threads that keeps the order.
//!
//! A thread takes the next item of the source and the next entry of the queue under one lock, so the queue
//! has the order of the source. The thread releases the lock, maps the item, and sends the result through the
//! entry's channel. The length of the queue bounds the number of items prepared in advance.

use super::{Background, QueueEntry, ThreadedQueue};
use crate::panic::{catch, drop_caught};
use crate::{ErrorKind, Result};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;

/// Default number of items per thread that are prepared in advance.
const AHEAD_PER_THREAD: usize = 4;

pub(in crate::adapters) fn par_map<I, T, U, F>(source: I, threads: usize, f: F) -> Background<U>
where
    I: Iterator<Item = Result<T>> + Send + 'static,
    F: Fn(T) -> Result<U> + Send + Sync + 'static,
    U: Send + 'static,
{
    Background::new(threads.saturating_mul(AHEAD_PER_THREAD).max(1), move |ahead| {
        if threads == 0 {
            return Err(ErrorKind::Config("a map on 0 threads: give it at least 1".into()).into());
        }
        let work = Arc::new(SharedMap { source: Mutex::new(Some(source)), f });
        let works = (0..threads).map(|_| {
            let work = Arc::clone(&work);
            move |queue| work.run(&queue)
        });
        ThreadedQueue::start("shardstream-map", ahead, works)
    })
}

/// The source and the closure, shared by the threads.
struct SharedMap<I, F> {
    /// `None` once the source has ended or the queue is closed.
    source: Mutex<Option<I>>,
    f: F,
}

impl<I, F> SharedMap<I, F> {
    /// Maps items until the source ends or the queue is closed.
    fn run<T, U>(&self, queue: &Sender<QueueEntry<U>>)
    where
        I: Iterator<Item = Result<T>>,
        F: Fn(T) -> Result<U>,
    {
        while let Some((item, entry)) = self.take(queue) {
            let done = catch(|| (self.f)(item)).unwrap_or_else(Err);
            // Sending fails only if the receiver was dropped together with the queue.
            let _ = entry.send(done);
        }
    }

    /// Takes an item from the source and adds an entry for it to the queue.
    fn take<T, U>(&self, queue: &Sender<QueueEntry<U>>) -> Option<(T, oneshot::Sender<Result<U>>)>
    where
        I: Iterator<Item = Result<T>>,
    {
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let item = match source.as_mut() {
                Some(source) if !queue.is_closed() => catch(|| source.next()),
                _ => Ok(None),
            };
            if !matches!(item, Ok(Some(_))) {
                // If dropping the source panics, the panic must not replace the item or error.
                drop(drop_caught(source.take()));
            }
            match item {
                Ok(None) => return None,
                Ok(Some(Ok(item))) => {
                    let (sender, promised) = oneshot::channel();
                    queue.blocking_send(QueueEntry::Promised(promised)).ok()?;
                    return Some((item, sender));
                }
                Ok(Some(Err(error))) | Err(error) => {
                    queue.blocking_send(QueueEntry::Ready(Err(error))).ok()?
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::IteratorExt;
    use crate::adapters::testing::{fault, oks, show, show_stream};
    use futures::{FutureExt as _, StreamExt as _};
    use std::sync::{Barrier, mpsc};
    use std::thread;
    use std::time::Duration;

    fn items() -> impl Iterator<Item = Result<i32>> + Send + 'static {
        (0..120).map(|n| if n % 17 == 16 { fault("bad") } else { Ok(n) })
    }

    /// A function that takes longer for some items than for other items, and fails for some items.
    fn slow(n: i32) -> Result<i32> {
        let mut rng = crate::Rng::new(n as u64, 0, 0);
        thread::sleep(Duration::from_micros(rng.below(1500)));
        if n % 10 == 3 { fault("three") } else { Ok(n * n) }
    }

    #[test]
    fn the_order_does_not_depend_on_the_number_of_threads() {
        let expected = show(items().pipeline().map(slow));
        for threads in 1..=8 {
            assert_eq!(show(items().pipeline().par_map(threads, slow)), expected, "{threads} threads");
        }
        for (threads, ahead) in [(1, 1), (3, 1), (8, 2), (2, 1000)] {
            let map = || items().pipeline().par_map(threads, slow).ahead(ahead);
            assert_eq!(show(map()), expected);
            assert_eq!(show_stream(map().into_stream()), expected);
        }
    }

    #[test]
    fn the_threads_work_at_the_same_time() {
        let meet = Barrier::new(3);
        let out = show(oks(0..9).into_iter().pipeline().par_map(3, move |n: i32| {
            meet.wait();
            Ok(n)
        }));
        assert_eq!(out.len(), 9);
    }

    #[test]
    fn a_panic_of_the_function_replaces_its_item_by_an_error() {
        let map = || {
            oks(0..40).into_iter().pipeline().par_map(4, |n: i32| {
                assert!(n % 20 != 7, "bad {n}");
                Ok(n)
            })
        };
        let out = show(map());
        for (at, item) in out.iter().enumerate() {
            match item {
                Ok(n) => assert_eq!(*n, at as i32),
                Err(error) => assert_eq!(*error, format!("a pipeline thread panicked: bad {at}")),
            }
        }
        assert_eq!(out.iter().filter(|item| item.is_err()).count(), 2);
        assert_eq!(out.len(), 40);
        assert_eq!(show_stream(map().into_stream()), out);
    }

    #[test]
    fn a_panic_of_the_source_is_the_last_item() {
        for threads in [1, 4] {
            let source = oks(0..40).into_iter().inspect(|n| assert!(*n.as_ref().unwrap() < 20));
            let out = show(source.pipeline().par_map(threads, slow));
            assert_eq!(out.len(), 21);
            assert!(out[20].as_ref().unwrap_err().contains("panicked"));
        }
    }

    #[test]
    fn dropping_the_iterator_joins_the_threads() {
        let alive = Arc::new(());
        for asked in [0, 1, 5] {
            let (in_source, in_map) = (Arc::clone(&alive), Arc::clone(&alive));
            let source = (0..).map(move |n: i32| {
                let _ = &in_source;
                Ok(n)
            });
            let mut map = source.pipeline().par_map(4, move |n| {
                let _ = &in_map;
                slow(n)
            });
            assert_eq!(map.by_ref().take(asked).count(), asked);
            drop(map);
            assert_eq!(Arc::strong_count(&alive), 1, "all threads have ended and dropped what they held");
        }
    }

    #[test]
    fn items_are_prepared_only_after_the_first_call_and_up_to_the_bound() {
        let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let source = (0..1000).map(move |n| {
            counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Ok(n)
        });
        let mut map = source.pipeline().par_map(3, |n: i32| Ok(n)).ahead(5);
        assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 0);
        assert_eq!(map.next().unwrap().unwrap(), 0);
        drop(map);
        let asked = Arc::into_inner(asked).expect("the source is dropped").into_inner();
        assert!((1..=7).contains(&asked), "one given out, five in the queue, one in hand: {asked}");
    }

    #[test]
    fn threads_work_inside_another_executor() {
        futures::executor::block_on(async {
            assert_eq!(oks(0..10).into_iter().pipeline().par_map(2, |n: i32| Ok(n)).count(), 10);
        });
    }

    /// The stream is polled only once, before the item is computed. So the item is still in the stream when
    /// the stream is dropped.
    #[test]
    fn a_panic_of_a_dropped_item_does_not_reach_the_code_that_drops_the_stream() {
        struct Bomb;

        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }

        let ((begun, has_begun), (go, gone)) = (mpsc::channel(), mpsc::channel());
        let (sent, is_sent) = mpsc::channel();
        let gone = Mutex::new(gone);
        let source = (0..2).map(Ok).inspect(move |n| {
            // There is one thread: it has sent item 0 before it takes item 1.
            if matches!(n, Ok(1)) {
                sent.send(()).unwrap();
            }
        });
        let mut map = source.pipeline().par_map(1, move |n: i32| match n {
            0 => {
                begun.send(()).unwrap();
                gone.lock().unwrap().recv().unwrap();
                Ok(Bomb)
            }
            _ => fault("no other"),
        });
        map.start();
        has_begun.recv().unwrap();
        let mut stream = map.into_stream();
        assert!(stream.next().now_or_never().is_none());
        go.send(()).unwrap();
        is_sent.recv().unwrap();
        drop(stream);
    }

    #[test]
    fn zero_threads_are_an_error() {
        let mut map = oks(0..3).into_iter().pipeline().par_map(0, |n: i32| Ok(n));
        assert!(matches!(map.next().unwrap().unwrap_err().kind(), ErrorKind::Config(_)));
        assert!(map.next().is_none());
    }
}
