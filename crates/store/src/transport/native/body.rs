//! The body of a response, as a stream of pooled buffers.

use super::connection::HttpConnection;
use super::head::Framing;
use super::pool;
use crate::read_buffer::{ReadBuffer, size};
use crate::transport::fault::malformed;
use crate::{Error, Result};
use bytes::Bytes;
use futures::stream::Stream;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// Time for which received bytes wait for more to fill their buffer. Each chunk wakes its reader and pins its
/// buffer, so that few large chunks are cheaper; on a line so slow that this time counts, it does not matter.
const FILL_TIME: Duration = Duration::from_millis(20);
/// The same for the first bytes of a body: a reader may be waiting for them, and they are slow on every line.
const FIRST_FILL_TIME: Duration = Duration::from_millis(1);
/// Number of bytes for which [`FIRST_FILL_TIME`] holds.
const FIRST_BYTES: usize = 1 << 20;

/// The body of a response, without its transfer coding. Dropping it before its end closes the connection.
pub(super) struct ResponseBody {
    /// `None` after the end.
    connection: Option<HttpConnection>,
    framing: Framing,
    /// Whether the connection may be used again.
    keep_alive: bool,
    buffer: ReadBuffer,
    /// An error that is returned after the bytes received before it.
    failed: Option<Error>,
    /// Number of bytes returned so far.
    returned: usize,
    fill_timer: FillTimer,
}

/// A timer that is allocated when it is first polled.
#[derive(Default)]
struct FillTimer {
    sleep: Option<Pin<Box<Sleep>>>,
    running: bool,
}

impl FillTimer {
    fn stop(&mut self) {
        self.running = false;
    }

    /// Ready when `time` has passed since the first poll after a [`stop`](FillTimer::stop).
    fn poll(&mut self, cx: &mut Context<'_>, time: Duration) -> Poll<()> {
        let end = || Instant::now() + time;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end())));
        if !self.running {
            sleep.as_mut().reset(end());
            self.running = true;
        }
        sleep.as_mut().poll(cx)
    }
}

impl ResponseBody {
    /// `keep_alive` says whether the server keeps the connection open.
    pub(super) fn new(mut connection: HttpConnection, framing: Framing, keep_alive: bool) -> Self {
        let received = connection.take_received();
        let mut body = ResponseBody {
            connection: Some(connection),
            framing,
            keep_alive,
            buffer: ReadBuffer::default(),
            failed: None,
            returned: 0,
            fill_timer: FillTimer::default(),
        };
        let mut first = &received[..];
        if let Framing::Length(left) = body.framing
            && first.len() as u64 > left
        {
            // Bytes beyond the announced length belong to no response.
            first = &first[..usize::try_from(left).unwrap_or(first.len())];
            body.found_surplus();
        }
        if !first.is_empty() {
            body.buffer = buffer(&body.framing);
            body.buffer.extend_from_slice(first);
        }
        body.process(0);
        body
    }

    /// Processes the bytes of the buffer from `from` on: decodes them, and notices the end of the body.
    fn process(&mut self, from: usize) {
        let ended = match &mut self.framing {
            Framing::Length(left) => {
                *left = left.saturating_sub((self.buffer.len() - from) as u64);
                *left == 0
            }
            Framing::Chunked(decoder) => match decoder.decode(&mut self.buffer[from..]) {
                Ok(decoded) => {
                    let (surplus, done) = (from + decoded.used < self.buffer.len(), decoder.is_done());
                    self.buffer.truncate(from + decoded.kept);
                    if surplus {
                        self.found_surplus();
                    }
                    done
                }
                Err(why) => {
                    self.buffer.truncate(from);
                    return self.fail(malformed(why));
                }
            },
            Framing::Close => false,
        };
        if ended {
            self.end();
        }
    }

    /// Called when the server has sent bytes behind this response: its connections are not reused.
    fn found_surplus(&mut self) {
        self.keep_alive = false;
        if let Some(connection) = &self.connection {
            pool::distrust(connection.origin());
        }
    }

    fn end(&mut self) {
        if let Some(connection) = self.connection.take().filter(|_| self.keep_alive) {
            pool::put(connection);
        }
    }

    fn fail(&mut self, error: Error) {
        self.connection = None;
        self.failed = Some(error);
    }

    /// Waits until the buffer is full or has waited long enough, or the body ends or fails.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(connection) = &mut self.connection {
            if self.buffer.capacity() == 0 {
                self.buffer = buffer(&self.framing);
            }
            let from = self.buffer.len();
            if from == size() {
                break;
            }
            let room = match self.framing {
                Framing::Length(left) => usize::try_from(left).unwrap_or(usize::MAX).min(size() - from),
                _ => size() - from,
            };
            match connection.poll_read(cx, &mut self.buffer, room) {
                Poll::Ready(Ok(0)) if matches!(self.framing, Framing::Close) => self.end(),
                Poll::Ready(Ok(0)) => {
                    let error = io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the server closed the connection in the middle of a body",
                    );
                    self.fail(error.into());
                }
                Poll::Ready(Ok(_)) => self.process(from),
                // Whatever it is, it may pass: the handshake has succeeded.
                Poll::Ready(Err(error)) => self.fail(error.into()),
                Poll::Pending if from == 0 => return Poll::Pending,
                Poll::Pending => {
                    let is_first = self.returned < FIRST_BYTES;
                    ready!(self.fill_timer.poll(cx, if is_first { FIRST_FILL_TIME } else { FILL_TIME }));
                    break;
                }
            }
        }
        Poll::Ready(())
    }
}

/// A buffer for bytes that have not been received yet.
fn buffer(framing: &Framing) -> ReadBuffer {
    ReadBuffer::with_room(match framing {
        Framing::Length(left) => *left,
        Framing::Chunked(_) | Framing::Close => u64::MAX,
    })
}

impl Stream for ResponseBody {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        ready!(self.poll_fill(cx));
        self.fill_timer.stop();
        if self.buffer.is_empty() {
            return Poll::Ready(self.failed.take().map(Err));
        }
        self.returned = self.returned.saturating_add(self.buffer.len());
        Poll::Ready(Some(Ok(std::mem::take(&mut self.buffer).freeze())))
    }
}
