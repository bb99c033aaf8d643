//! Bytes that are made ready on a thread of their own, ahead of whoever reads them.

use super::buffer;
use super::runtime;
use crate::{Result, wait};
use bytes::Bytes;
use futures::future::{Either, select};
use futures::stream::{self, BoxStream, Stream, StreamExt};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// How many bytes are made ready ahead, if chunks are full buffers.
const AHEAD: usize = 512 << 10;

/// A chunk that took longer was not in memory: from there it takes 20 to 50 microseconds.
const LONG: Duration = Duration::from_millis(1);
/// Number of slow chunks, less a quarter of the fast ones, from which on a thread reads ahead.
const MOST_LONG: u32 = 3;

/// A stream that may block, or be busy, polled on a thread of its own, a few chunks ahead.
pub(super) fn elsewhere(mut chunks: BoxStream<'static, Result<Bytes>>) -> BoxStream<'static, Result<Bytes>> {
    let reading = async move {
        let (sender, receiver) = async_channel::bounded(AHEAD / buffer::size());
        let task = runtime::spawn_blocking(move || {
            let send = async {
                while let Some(chunk) = chunks.next().await {
                    if sender.send(chunk?).await.is_err() {
                        break;
                    }
                }
                Ok(())
            };
            // Bytes that nobody wants any more may never come.
            match wait::block_on(select(pin!(send), pin!(sender.closed())))? {
                Either::Left((end, _)) => end,
                Either::Right(_) => Ok(()),
            }
        });
        delivered(receiver, task)
    };
    stream::once(reading).flatten().boxed()
}

/// The chunks that a task sends, then the error with which it ended, if any.
fn delivered(
    receiver: async_channel::Receiver<Bytes>,
    task: Result<runtime::Task<()>>,
) -> BoxStream<'static, Result<Bytes>> {
    let end = stream::once(async { task?.await }).filter_map(async |end: Result<()>| end.err().map(Err));
    receiver.map(Ok).chain(end).boxed()
}

/// Reads where it is asked for: from memory that takes less than to hand a chunk over. Where reads turn out
/// to wait for a disk or a file system far away, a thread does it from then on, and whoever asks can do
/// something else.
pub(super) fn while_quick(
    chunks: Box<dyn Iterator<Item = Result<Bytes>> + Send>,
) -> impl Stream<Item = Result<Bytes>> + Send + Unpin {
    WhileQuick { chunks: Chunks::Here(chunks), score: 0 }
}

/// Most files that are read ahead in a process: what they hold is in no budget.
const MOST_FILES: usize = 64;

/// The permission for one of them.
#[derive(Debug)]
struct Permit;

static FILES: AtomicUsize = AtomicUsize::new(0);

impl Permit {
    fn ask() -> Option<Self> {
        let more = |files: usize| (files < MOST_FILES).then_some(files + 1);
        FILES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        FILES.fetch_sub(1, Ordering::Relaxed);
    }
}

struct WhileQuick {
    chunks: Chunks,
    score: u32,
}

enum Chunks {
    Here(Box<dyn Iterator<Item = Result<Bytes>> + Send>),
    Elsewhere(BoxStream<'static, Result<Bytes>>, Permit),
}

impl Stream for WhileQuick {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let this = &mut *self;
        let chunks = match &mut this.chunks {
            Chunks::Here(chunks) => chunks,
            Chunks::Elsewhere(chunks, _) => return chunks.poll_next_unpin(cx),
        };
        let begun = Instant::now();
        let chunk = chunks.next();
        this.score = match begun.elapsed() > LONG {
            true => this.score + 4,
            false => this.score.saturating_sub(1),
        };
        if this.score >= 4 * MOST_LONG
            && let Some(permit) = Permit::ask()
        {
            let rest = std::mem::replace(chunks, Box::new(std::iter::empty()));
            this.chunks = Chunks::Elsewhere(elsewhere(stream::iter(rest).boxed()), permit);
        }
        Poll::Ready(chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on_stream;
    use std::thread;

    #[test]
    fn slow_reads_go_to_a_thread_and_nothing_is_lost() {
        let here = thread::current().id();
        for (pause, moves) in [(0, false), (3, true)] {
            let (threads, seen) = std::sync::mpsc::channel();
            let chunks = (0..40u8).map(move |at| {
                thread::sleep(Duration::from_millis(pause));
                threads.send(thread::current().id()).unwrap();
                Ok(Bytes::from(vec![at]))
            });
            let found = block_on_stream(while_quick(Box::new(chunks)));
            let found: Vec<u8> = found.map(|chunk| chunk.unwrap()[0]).collect();
            assert_eq!(found, (0..40).collect::<Vec<u8>>());
            // A machine that is busy may make any of them slow.
            if moves {
                assert_eq!(seen.iter().filter(|thread| *thread == here).count(), MOST_LONG as usize);
            }
        }
    }
}
