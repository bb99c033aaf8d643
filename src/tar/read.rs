//! Drives a shard parser: turns an iterator of chunks into an iterator of samples, and a stream of chunks
//! into a stream of samples.

use super::parser::{Parsed, SampleParser};
use super::shard_parser::ShardParser;
use crate::error::{Error, Result};
use crate::sample::Sample;
use bytes::Bytes;
use futures::Stream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The samples of one shard; see [`read`].
///
/// It is an [`Iterator`] if the chunks come from an iterator, and a [`Stream`] if they come from a stream.
#[derive(Debug)]
#[must_use = "a reader does nothing unless it is iterated or polled"]
pub struct Read<C, P = SampleParser> {
    chunks: C,
    parser: P,
    done: bool,
}

/// Reads the samples of one shard from its uncompressed bytes, in chunks of any size. The parser is a
/// [`SampleParser`] for a tar archive, or a [`FormatParser`](crate::formats::FormatParser).
///
/// After an error of one sample, the next item is the next sample. Damage to the archive or an error of the
/// source of chunks ends the iterator or stream.
///
/// ```
/// use shardstream::Sample;
/// use shardstream::tar::{SampleParser, read};
///
/// let archive = std::fs::read("docs/data/digits-000000.tar")?;
/// let chunks = archive.chunks(4096).map(|chunk| Ok(chunk.to_vec().into()));
/// let samples = read(chunks, SampleParser::new("digits-000000.tar")).collect::<Result<Vec<Sample>, _>>()?;
/// assert_eq!(samples[0].key(), "000000");
/// # Ok::<(), shardstream::Error>(())
/// ```
pub fn read<C, P: ShardParser>(chunks: C, parser: P) -> Read<C, P> {
    Read { chunks, parser, done: false }
}

impl<C, P: ShardParser> Read<C, P> {
    /// Whether the whole archive was read, up to the end of the chunks. False before the end, and also if
    /// damage or an error of the source of chunks ended the iterator or stream.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.parser.is_complete()
    }

    /// The same reader, with the source of chunks replaced by `convert(chunks)`.
    pub(crate) fn map_chunks<D>(self, convert: impl FnOnce(C) -> D) -> Read<D, P> {
        Read { chunks: convert(self.chunks), parser: self.parser, done: self.done }
    }

    /// The next sample; `poll` polls the source for the next chunk.
    pub(crate) fn poll_sample(
        &mut self,
        mut poll: impl FnMut(&mut C) -> Poll<Option<Result<Bytes>>>,
    ) -> Poll<Option<Result<Sample>>> {
        loop {
            if let Some(item) = self.step() {
                return Poll::Ready(item);
            }
            let chunk = ready!(poll(&mut self.chunks));
            if let Err(error) = self.feed(chunk) {
                return Poll::Ready(Some(Err(error)));
            }
        }
    }

    /// The parser's next item. The outer `None` means that the parser needs a chunk.
    fn step(&mut self) -> Option<Option<Result<Sample>>> {
        if self.done {
            return Some(None);
        }
        match self.parser.next() {
            Ok(Parsed::NeedInput) => None,
            Ok(Parsed::Sample(sample)) => Some(Some(Ok(sample))),
            Ok(Parsed::End) => {
                self.done = true;
                Some(None)
            }
            Err(error) => Some(Some(Err(error))),
        }
    }

    /// Passes to the parser what the source returned: the next chunk, the end, or an error.
    fn feed(&mut self, chunk: Option<Result<Bytes>>) -> Result<()> {
        match chunk {
            Some(Ok(chunk)) => self.parser.push(chunk),
            None => self.parser.finish(),
            Some(Err(error)) => {
                self.done = true;
                return Err(self.parser.broken(error));
            }
        }
        Ok(())
    }
}

impl<C: Iterator<Item = Result<Bytes>>, P: ShardParser> Iterator for Read<C, P> {
    type Item = Result<Sample, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.step() {
                return item;
            }
            let chunk = self.chunks.next();
            if let Err(error) = self.feed(chunk) {
                return Some(Err(error));
            }
        }
    }
}

impl<C: Stream<Item = Result<Bytes>> + Unpin, P: ShardParser + Unpin> Stream for Read<C, P> {
    type Item = Result<Sample, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_sample(|chunks| Pin::new(chunks).poll_next(cx))
    }
}
