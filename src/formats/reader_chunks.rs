//! Chunks of bytes from any reader.

use crate::error::{ErrorKind, Result};
use bytes::Bytes;
use std::io;

/// Size in bytes of the largest chunk.
const CHUNK: usize = 256 << 10;

/// Reads chunks for [`read`](super::read) from any reader, such as standard input, a socket or a
/// decompressor.
///
/// A reader can be read only once, so there is no second epoch and no state to resume from. A
/// [`Dataset`](crate::Dataset) cannot read from a reader, because it opens shards more than once: write the
/// bytes to a file instead.
///
/// ```
/// use shardstream::formats::{FormatParser, JsonLines, ReaderChunks, read};
/// use shardstream::tar::Limits;
///
/// let input = "{\"text\": \"one\"}\n".as_bytes(); // std::io::stdin(), for example
/// let parser = FormatParser::of(&JsonLines::new(), "standard input", Limits::default());
/// let samples = read(ReaderChunks::new(input), parser).collect::<shardstream::Result<Vec<_>>>()?;
/// assert_eq!(samples[0].shard(), "standard input");
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing is read unless it is iterated"]
pub struct ReaderChunks<R> {
    reader: Option<R>,
    /// Bytes are read into this buffer. A chunk is a copy of only the bytes that were read, so that the chunk
    /// of a short read takes little memory.
    buffer: Vec<u8>,
}

impl<R: io::Read> ReaderChunks<R> {
    /// Returns the chunks of this reader, up to its end or its first error.
    pub fn new(reader: R) -> Self {
        ReaderChunks { reader: Some(reader), buffer: vec![0; CHUNK] }
    }
}

impl<R: io::Read> Iterator for ReaderChunks<R> {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        let reader = self.reader.as_mut()?;
        loop {
            match reader.read(&mut self.buffer) {
                Ok(0) => {
                    self.reader = None;
                    return None;
                }
                Ok(length) => return Some(Ok(Bytes::copy_from_slice(&self.buffer[..length]))),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.reader = None;
                    return Some(Err(ErrorKind::Io(error).into()));
                }
            }
        }
    }
}
