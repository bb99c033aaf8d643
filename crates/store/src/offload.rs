//! Moves blocking or busy streams to separate threads, which read ahead of the consumer.

use super::runtime;
use crate::read_buffer;
use crate::{Result, wait};
use bytes::Bytes;
use futures::future::{Either, select};
use futures::stream::{self, BoxStream, Stream, StreamExt};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Maximum number of bytes that are read ahead. A chunk that is shorter than a read buffer counts as a full
/// buffer.
const READ_AHEAD: usize = 512 << 10;

/// A read that takes longer than this was not served from the page cache: a read from there takes 20 to 50
/// microseconds.
const SLOW: Duration = Duration::from_millis(1);
/// A thread begins to read ahead when the number of slow chunks, minus a quarter of the number of fast
/// chunks, reaches this number.
const MAX_SLOW: u32 = 3;

/// Polls a stream on a separate thread, a few chunks ahead, because the stream may block or be busy.
pub(super) fn offload(mut chunks: BoxStream<'static, Result<Bytes>>) -> BoxStream<'static, Result<Bytes>> {
    let reading = async move {
        let (sender, receiver) = async_channel::bounded(READ_AHEAD / read_buffer::size());
        let task = runtime::spawn_blocking(move || {
            let send = async {
                while let Some(chunk) = chunks.next().await {
                    if sender.send(chunk?).await.is_err() {
                        break;
                    }
                }
                Ok(())
            };
            // The next chunk may never come, so the thread also ends when the receiver is dropped.
            match wait::block_on(select(pin!(send), pin!(sender.closed())))? {
                Either::Left((end, _)) => end,
                Either::Right(_) => Ok(()),
            }
        });
        with_task_error(receiver, task)
    };
    stream::once(reading).flatten().boxed()
}

/// The chunks that a task sends, followed by the error with which the task ended, if any.
fn with_task_error(
    receiver: async_channel::Receiver<Bytes>,
    task: Result<runtime::Task<()>>,
) -> BoxStream<'static, Result<Bytes>> {
    let end = stream::once(async { task?.await }).filter_map(async |end: Result<()>| end.err().map(Err));
    receiver.map(Ok).chain(end).boxed()
}

/// Reads chunks in `poll_next`, which may block: a read from the page cache takes less time than a hand-over
/// between threads. If reads turn out to wait for a disk or a remote file system, moves them to a thread, so
/// that the caller can do other work meanwhile.
pub(super) fn offload_when_slow(
    chunks: Box<dyn Iterator<Item = Result<Bytes>> + Send>,
) -> impl Stream<Item = Result<Bytes>> + Send + Unpin {
    OffloadWhenSlow { reads: SlowReads::Inline(chunks), score: 0 }
}

/// Maximum number of files that a process reads ahead. No budget limits the memory of the bytes that are read
/// ahead, so the number of files is limited.
const MAX_FILES: usize = 64;

/// Permission to read one file ahead.
#[derive(Debug)]
struct OffloadPermit;

static FILES: AtomicUsize = AtomicUsize::new(0);

impl OffloadPermit {
    fn try_acquire() -> Option<Self> {
        let add = |files: usize| (files < MAX_FILES).then_some(files + 1);
        FILES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok().map(|_| OffloadPermit)
    }
}

impl Drop for OffloadPermit {
    fn drop(&mut self) {
        FILES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// See [`offload_when_slow`].
struct OffloadWhenSlow {
    reads: SlowReads,
    /// Increases by 4 for each slow chunk, and decreases by 1 for each fast one.
    score: u32,
}

enum SlowReads {
    /// The caller reads.
    Inline(Box<dyn Iterator<Item = Result<Bytes>> + Send>),
    /// A thread reads ahead.
    Offloaded(BoxStream<'static, Result<Bytes>>, OffloadPermit),
}

impl Stream for OffloadWhenSlow {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let this = &mut *self;
        let chunks = match &mut this.reads {
            SlowReads::Inline(chunks) => chunks,
            SlowReads::Offloaded(chunks, _) => return chunks.poll_next_unpin(cx),
        };
        let start = Instant::now();
        let chunk = chunks.next();
        this.score = match start.elapsed() > SLOW {
            true => this.score + 4,
            false => this.score.saturating_sub(1),
        };
        if this.score >= 4 * MAX_SLOW
            && let Some(permit) = OffloadPermit::try_acquire()
        {
            let rest = std::mem::replace(chunks, Box::new(std::iter::empty()));
            this.reads = SlowReads::Offloaded(offload(stream::iter(rest).boxed()), permit);
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
    fn slow_reads_move_to_a_thread_and_lose_no_chunk() {
        let here = thread::current().id();
        for (pause, moves) in [(0, false), (3, true)] {
            let (thread, threads) = std::sync::mpsc::channel();
            let chunks = (0..40u8).map(move |at| {
                thread::sleep(Duration::from_millis(pause));
                thread.send(thread::current().id()).unwrap();
                Ok(Bytes::from(vec![at]))
            });
            let found = block_on_stream(offload_when_slow(Box::new(chunks)));
            let found: Vec<u8> = found.map(|chunk| chunk.unwrap()[0]).collect();
            assert_eq!(found, (0..40).collect::<Vec<u8>>());
            // If the chunks have no pause, nothing is asserted: on a busy machine, any chunk may be slow.
            if moves {
                assert_eq!(threads.iter().filter(|id| *id == here).count(), MAX_SLOW as usize);
            }
        }
    }
}
