//! One logical stream: its shards, opened and parsed one after the other.

use super::{Dataset, Stop};
use crate::error::Result;
use crate::sample::Sample;
use crate::store::{Body, redacted};
use crate::tar::{self, Read, SampleParser};
use bytes::Bytes;
use futures::stream::{BoxStream, Stream, StreamExt};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The samples of one logical stream, as a blocking iterator; see [`Dataset::read`].
#[derive(Debug)]
#[must_use = "a reader reads nothing unless it is iterated"]
pub struct ShardReader {
    shards: Opener,
    current: Option<Read<Body>>,
}

impl ShardReader {
    pub(super) fn new(dataset: Dataset, epoch: u64, order: Vec<usize>) -> Self {
        let shards = Opener { dataset, epoch, order: order.into_iter(), stop: None };
        ShardReader { shards, current: None }
    }

    /// Lets `stop` end this reader. `number` tells it from the other readers of the same `stop`.
    pub(crate) fn stopped_by(mut self, stop: Stop, number: usize) -> Self {
        self.shards.stop = Some((stop, number));
        self
    }

    /// The same samples as a stream for any executor.
    pub fn into_stream(self) -> ShardReaderStream {
        let current = self.current.map(|read| read.map_chunks(|body| body.into_stream().boxed()));
        ShardReaderStream { shards: self.shards, current }
    }
}

impl Iterator for ShardReader {
    type Item = Result<Sample>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(read) = &mut self.current {
                match read.next() {
                    Some(item) => return Some(item),
                    None => self.current = None,
                }
            }
            match self.shards.open_next()? {
                Ok((body, parser)) => self.current = Some(tar::read(body, parser)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The samples of one logical stream, as a [`Stream`]; see [`ShardReader::into_stream`].
#[must_use = "a stream does nothing unless it is polled"]
pub struct ShardReaderStream {
    shards: Opener,
    current: Option<Read<BoxStream<'static, Result<Bytes>>>>,
}

impl Stream for ShardReaderStream {
    type Item = Result<Sample>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(read) = &mut this.current {
                match ready!(read.poll_next_unpin(cx)) {
                    Some(item) => return Poll::Ready(Some(item)),
                    None => this.current = None,
                }
            }
            match this.shards.open_next() {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok((body, parser))) => {
                    this.current = Some(tar::read(body.into_stream().boxed(), parser));
                }
            }
        }
    }
}

impl fmt::Debug for ShardReaderStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardReaderStream").field("shards", &self.shards).finish_non_exhaustive()
    }
}

/// What both faces share: which shard comes next, and opening it.
#[derive(Debug)]
struct Opener {
    dataset: Dataset,
    epoch: u64,
    order: std::vec::IntoIter<usize>,
    stop: Option<(Stop, usize)>,
}

impl Opener {
    fn open_next(&mut self) -> Option<Result<(Body, SampleParser)>> {
        let inner = &*self.dataset.0;
        // The plan deals the places in this very list.
        let number = *inner.numbers.get(self.order.next()?)?;
        let url = inner.shards.get(number)?;
        let body = match inner.store.open(url) {
            Ok(body) => body,
            Err(error) => return Some(Err(error)),
        };
        if let Some((stop, reader)) = &self.stop
            && !stop.reads(*reader, body.stopper())
        {
            return None;
        }
        let parser = SampleParser::new(redacted(url)).at(self.epoch, number as u64).with_limits(inner.limits);
        Some(Ok((body, parser)))
    }
}
