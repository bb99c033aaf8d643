//! Batches on the devices ahead of the step.

use crate::data::{DataError, HostBatch};
use crate::error::{Error, Result};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How many batches wait on the devices.
const AHEAD: usize = 2;

/// A thread that takes batches from an iterator, uploads them and keeps a few ready.
///
/// It iterates over uploaded batches; the first error is the last item. The thread has ended when the feed
/// is dropped, whatever the reason.
#[derive(Debug)]
pub struct Feed<B> {
    /// `None` once there is nothing more to come.
    ready: Option<Receiver<Result<B>>>,
    thread: Option<JoinHandle<()>>,
    waited: Duration,
}

impl<B: Send + 'static> Feed<B> {
    /// Starts the thread. `upload` is called on it.
    pub fn start<I, U>(batches: I, mut upload: U) -> Result<Self>
    where
        I: Iterator<Item = std::result::Result<HostBatch, DataError>> + Send + 'static,
        U: FnMut(HostBatch) -> Result<B> + Send + 'static,
    {
        let (sender, ready) = sync_channel(AHEAD);
        let work = move || {
            for batch in batches {
                let uploaded = batch.map_err(Error::Data).and_then(&mut upload);
                let failed = uploaded.is_err();
                // The other end is gone when the training stops early.
                if sender.send(uploaded).is_err() || failed {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("feeder".into()).spawn(work)?;
        Ok(Self { ready: Some(ready), thread: Some(thread), waited: Duration::ZERO })
    }

    /// How long the caller of `next` has waited in all.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Ends the thread; false if it panicked.
    fn finish(&mut self) -> bool {
        // First let go of the channel, so that a thread that waits for room in it wakes up.
        self.ready = None;
        self.thread.take().is_none_or(|t| t.join().is_ok())
    }
}

impl<B: Send + 'static> Iterator for Feed<B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Result<B>> {
        let start = Instant::now();
        let next = self.ready.as_ref()?.recv();
        self.waited += start.elapsed();
        match next {
            Ok(Ok(batch)) => Some(Ok(batch)),
            Ok(Err(e)) => {
                self.finish();
                Some(Err(e))
            }
            // The channel is also closed by a panic, which must not look like the end of the data.
            Err(_) => (!self.finish()).then_some(Err(Error::FeederPanicked)),
        }
    }
}

impl<B> Drop for Feed<B> {
    fn drop(&mut self) {
        self.ready = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn host(valid: usize) -> std::result::Result<HostBatch, DataError> {
        Ok(HostBatch { images: bytes::Bytes::new(), labels: vec![], valid, state: None })
    }

    #[test]
    fn all_batches_arrive_in_order() {
        let feed = Feed::start((0..20).map(host), |b| Ok(b.valid)).unwrap();
        let got: Vec<usize> = feed.map(Result::unwrap).collect();
        assert_eq!(got, (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn a_data_error_arrives_after_the_batches_before_it_and_ends_the_feed() {
        let batches = (0..5).map(|i| if i == 3 { Err("disk on fire".into()) } else { host(i) });
        let mut feed = Feed::start(batches, |b| Ok(b.valid)).unwrap();
        assert_eq!(feed.by_ref().take(3).map(Result::unwrap).sum::<usize>(), 3);
        assert!(matches!(feed.next(), Some(Err(Error::Data(e))) if e.to_string() == "disk on fire"));
        assert!(feed.next().is_none());
    }

    #[test]
    fn an_upload_error_arrives() {
        let upload = |_| Err::<(), _>(Error::Batch("too small".into()));
        let mut feed = Feed::start((0..5).map(host), upload).unwrap();
        assert!(matches!(feed.next(), Some(Err(Error::Batch(_)))));
        assert!(feed.next().is_none());
    }

    #[test]
    fn a_panic_is_an_error_not_the_end_of_the_data() {
        let batches = (0..5).map(|i| if i == 1 { panic!("expected in this test") } else { host(i) });
        let mut feed = Feed::start(batches, |b| Ok(b.valid)).unwrap();
        assert!(feed.next().unwrap().is_ok());
        assert!(matches!(feed.next(), Some(Err(Error::FeederPanicked))));
        assert!(feed.next().is_none());
    }

    #[test]
    fn stopping_early_joins_the_thread_and_runs_no_further_ahead() {
        let made = Arc::new(AtomicUsize::new(0));
        let counter = made.clone();
        let endless = (0..).map(move |i| {
            counter.fetch_add(1, Ordering::SeqCst);
            host(i)
        });
        let mut feed = Feed::start(endless, |b| Ok(b.valid)).unwrap();
        feed.next().unwrap().unwrap();
        drop(feed);
        let after = made.load(Ordering::SeqCst);
        // One taken, two in the channel, one in hand.
        assert!(after <= 2 + AHEAD, "{after}");
        assert_eq!(Arc::strong_count(&made), 1, "the thread's closure is gone");
    }
}
