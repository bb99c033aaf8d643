//! The body of a response, in chunks as large as buffers are.

use super::connection::Connection;
use super::head::Framing;
use super::origin::malformed;
use super::pool;
use crate::store::buffer::{ReadBuffer, size};
use crate::{Error, Result};
use bytes::Bytes;
use futures::stream::{Stream, StreamExt};
use std::future::{self, Future};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// How long what has come waits for more to fill its buffer. Each chunk wakes its readers up and pins its
/// buffer, so that few large ones are better; on a line so slow that this time counts, it does not matter.
const MOMENT: Duration = Duration::from_millis(20);
/// The same for the first of a body, for which someone may be waiting, and which come slowly on every line.
const FIRST_MOMENT: Duration = Duration::from_millis(1);
/// Bytes that are the first of a body.
const FIRST: usize = 1 << 20;

/// How long the end of a body may take that nobody wants.
const PATIENCE: Duration = Duration::from_millis(100);

/// Dropping it before its end closes the connection.
pub(super) struct Body {
    /// `None` after the end.
    connection: Option<Connection>,
    framing: Framing,
    /// Whether the connection may be used again.
    keep: bool,
    buffer: ReadBuffer,
    /// What went wrong, to be told when what came before it has been handed on.
    failed: Option<Error>,
    handed_on: usize,
    moment: Moment,
}

/// A timer that is made when it is first needed.
#[derive(Default)]
struct Moment {
    sleep: Option<Pin<Box<Sleep>>>,
    running: bool,
}

impl Moment {
    fn stop(&mut self) {
        self.running = false;
    }

    /// Whether the moment has passed; it begins with the first poll after a [`stop`](Moment::stop).
    fn poll(&mut self, cx: &mut Context<'_>, length: Duration) -> Poll<()> {
        let end = || Instant::now() + length;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end())));
        if !self.running {
            sleep.as_mut().reset(end());
            self.running = true;
        }
        sleep.as_mut().poll(cx)
    }
}

impl Body {
    /// `keep` says whether the server keeps the connection open.
    pub(super) fn new(mut connection: Connection, framing: Framing, keep: bool) -> Self {
        let received = connection.take_received();
        let mut body = Body {
            connection: Some(connection),
            framing,
            keep,
            buffer: ReadBuffer::default(),
            failed: None,
            handed_on: 0,
            moment: Moment::default(),
        };
        let mut first = &received[..];
        if let Framing::Length(left) = body.framing
            && first.len() as u64 > left
        {
            // More than was announced is not part of any response.
            first = &first[..usize::try_from(left).unwrap_or(first.len())];
            body.surplus();
        }
        if !first.is_empty() {
            body.buffer = buffer(&body.framing);
            body.buffer.extend_from_slice(first);
        }
        body.take_in(0);
        body
    }

    /// Takes note of what the buffer holds from `from` on, and of the end if this is it.
    fn take_in(&mut self, from: usize) {
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
                        self.surplus();
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

    /// Reads a few bytes that nobody wants, so that the connection can be used again; not worth a long wait.
    pub(super) async fn discard(self) {
        if matches!(self.framing, Framing::Length(left) if left <= size() as u64) {
            let _ = tokio::time::timeout(PATIENCE, self.for_each(|_| future::ready(()))).await;
        }
    }

    /// The server has sent more than this response.
    fn surplus(&mut self) {
        self.keep = false;
        if let Some(connection) = &self.connection {
            pool::distrust(connection.origin());
        }
    }

    fn end(&mut self) {
        if let Some(connection) = self.connection.take().filter(|_| self.keep) {
            pool::put(connection);
        }
    }

    fn fail(&mut self, error: Error) {
        self.connection = None;
        self.failed = Some(error);
    }

    /// Waits until the buffer is full, or has waited long enough, or the body ends or fails.
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
                Poll::Ready(Ok(_)) => self.take_in(from),
                Poll::Ready(Err(error)) => self.fail(error.into()),
                Poll::Pending if from == 0 => return Poll::Pending,
                Poll::Pending => {
                    let first = self.handed_on < FIRST;
                    ready!(self.moment.poll(cx, if first { FIRST_MOMENT } else { MOMENT }));
                    break;
                }
            }
        }
        Poll::Ready(())
    }
}

/// A buffer for what is yet to come.
fn buffer(framing: &Framing) -> ReadBuffer {
    ReadBuffer::with_room(match framing {
        Framing::Length(left) => *left,
        Framing::Chunked(_) | Framing::Close => u64::MAX,
    })
}

impl Stream for Body {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        ready!(self.poll_fill(cx));
        self.moment.stop();
        if self.buffer.is_empty() {
            return Poll::Ready(self.failed.take().map(Err));
        }
        self.handed_on = self.handed_on.saturating_add(self.buffer.len());
        Poll::Ready(Some(Ok(std::mem::take(&mut self.buffer).freeze())))
    }
}
