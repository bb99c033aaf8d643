//! Compressed shards, told by the suffix of their URL.

use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use futures::stream::BoxStream;

/// A compression that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    #[cfg(feature = "gzip")]
    Gzip,
    #[cfg(feature = "zstd")]
    Zstd,
}

/// How much may come out of a number of compressed bytes: no archive of samples gives more, but a few bytes
/// can be made that keep a reader busy for days.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expansion {
    /// Bytes for each compressed byte that has come.
    pub(super) ratio: u32,
    /// Bytes beyond that.
    #[cfg_attr(
        not(any(feature = "gzip", feature = "zstd")),
        allow(dead_code, reason = "nothing is decompressed")
    )]
    pub(super) spare: u64,
}

impl Default for Expansion {
    fn default() -> Self {
        Expansion { ratio: 1000, spare: 64 << 20 }
    }
}

/// The suffixes of compressions that are known but never read.
const UNREADABLE: [&str; 9] = [".bz2", ".tbz", ".tbz2", ".xz", ".txz", ".lzma", ".lz4", ".br", ".z"];

impl Compression {
    /// The compression of the object at `url`, by its suffix; the query of a web address does not count.
    pub(super) fn of(url: &str) -> Result<Option<Self>> {
        let name = super::location::file_name(url).to_ascii_lowercase();
        let ends = |suffixes: &[&str]| suffixes.iter().any(|suffix| name.ends_with(suffix));
        if ends(&[".gz", ".tgz"]) {
            return gzip().map(Some);
        }
        if ends(&[".zst", ".tzst"]) {
            return zstd().map(Some);
        }
        if let Some(suffix) = UNREADABLE.iter().find(|suffix| name.ends_with(*suffix)) {
            let hint = format!("{suffix} shards cannot be read: compress them with zstd or gzip instead");
            return Err(ErrorKind::UnsupportedCompression(hint).into());
        }
        Ok(None)
    }

    /// Decompresses where it is polled.
    #[cfg(any(feature = "gzip", feature = "zstd"))]
    pub(super) fn decode(
        self,
        chunks: BoxStream<'static, Result<Bytes>>,
        expansion: Expansion,
    ) -> BoxStream<'static, Result<Bytes>> {
        use async_compression::futures::bufread;
        use futures::TryStreamExt;

        let compressed = chunks.map_err(std::io::Error::other).into_async_read();
        let (compressed, used) = chunked::Counted::new(compressed);
        let limit = |compression| chunked::Limit::new(compression, expansion, used);
        // Without `multiple_members` both decoders end after the first of several concatenated members or
        // frames.
        match self {
            #[cfg(feature = "gzip")]
            Self::Gzip => {
                let mut decoder = bufread::GzipDecoder::new(compressed);
                decoder.multiple_members(true);
                chunked::read(decoder, limit("gzip"))
            }
            #[cfg(feature = "zstd")]
            Self::Zstd => {
                let mut decoder = bufread::ZstdDecoder::new(compressed);
                decoder.multiple_members(true);
                chunked::read(decoder, limit("zstd"))
            }
        }
    }

    /// Without a compression compiled in there is no value of this type.
    #[cfg(not(any(feature = "gzip", feature = "zstd")))]
    pub(super) fn decode(
        self,
        _: BoxStream<'static, Result<Bytes>>,
        _: Expansion,
    ) -> BoxStream<'static, Result<Bytes>> {
        match self {}
    }
}

#[cfg(feature = "gzip")]
fn gzip() -> Result<Compression> {
    Ok(Compression::Gzip)
}

#[cfg(not(feature = "gzip"))]
fn gzip() -> Result<Compression> {
    Err(missing(".gz", "gzip"))
}

#[cfg(feature = "zstd")]
fn zstd() -> Result<Compression> {
    Ok(Compression::Zstd)
}

#[cfg(not(feature = "zstd"))]
fn zstd() -> Result<Compression> {
    Err(missing(".zst", "zstd"))
}

#[allow(dead_code, reason = "unused when all compressions are compiled in")]
fn missing(suffix: &str, feature: &str) -> Error {
    let hint = format!("to read {suffix} shards, enable the feature `{feature}` of shardstream");
    ErrorKind::UnsupportedCompression(hint).into()
}

/// From a decoder back to a stream of chunks.
#[cfg(any(feature = "gzip", feature = "zstd"))]
mod chunked {
    use super::Expansion;
    use crate::store::buffer::{Buffer, size};
    use crate::{Error, ErrorKind, Result};
    use bytes::Bytes;
    use futures::io::{AsyncBufRead, AsyncRead, AsyncReadExt};
    use futures::stream::{self, BoxStream, StreamExt};
    use std::io;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::task::{Context, Poll};

    /// Compressed bytes, and how many of them the decoder has used up.
    pub(super) struct Counted<R> {
        bytes: R,
        used: Arc<AtomicU64>,
    }

    impl<R> Counted<R> {
        pub(super) fn new(bytes: R) -> (Self, Arc<AtomicU64>) {
            let used = Arc::<AtomicU64>::default();
            (Counted { bytes, used: Arc::clone(&used) }, used)
        }
    }

    impl<R: AsyncBufRead + Unpin> AsyncBufRead for Counted<R> {
        fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
            Pin::new(&mut self.get_mut().bytes).poll_fill_buf(cx)
        }

        fn consume(mut self: Pin<&mut Self>, length: usize) {
            self.used.fetch_add(length as u64, Relaxed);
            Pin::new(&mut self.bytes).consume(length);
        }
    }

    impl<R: AsyncRead + Unpin> AsyncRead for Counted<R> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &mut [u8],
        ) -> Poll<io::Result<usize>> {
            let read = Pin::new(&mut self.bytes).poll_read(cx, buffer);
            if let Poll::Ready(Ok(length)) = read {
                self.used.fetch_add(length as u64, Relaxed);
            }
            read
        }
    }

    /// Holds what comes out against what went in.
    pub(super) struct Limit {
        compression: &'static str,
        expansion: Expansion,
        used: Arc<AtomicU64>,
        given: u64,
    }

    impl Limit {
        pub(super) fn new(compression: &'static str, expansion: Expansion, used: Arc<AtomicU64>) -> Self {
            Limit { compression, expansion, used, given: 0 }
        }

        /// The error that stopped the compressed bytes, or else the decoder's own, which says that they are
        /// damaged.
        fn located(&self, error: io::Error) -> Error {
            let (compression, offset) = (self.compression, self.used.load(Relaxed));
            let damaged = |source| ErrorKind::Decompress { compression, offset, source }.into();
            error.downcast::<Error>().unwrap_or_else(damaged)
        }

        fn give(&mut self, length: usize) -> Result<()> {
            self.given += length as u64;
            let Expansion { ratio, spare } = self.expansion;
            let limit = self.used.load(Relaxed).saturating_mul(ratio.into()).saturating_add(spare);
            match self.given > limit {
                true => {
                    Err(ErrorKind::TooLarge { what: "decompressed data", size: self.given, limit }.into())
                }
                false => Ok(()),
            }
        }
    }

    pub(super) fn read(
        decoder: impl AsyncRead + Unpin + Send + 'static,
        limit: Limit,
    ) -> BoxStream<'static, Result<Bytes>> {
        stream::try_unfold((decoder, limit, None), async |(mut decoder, mut limit, kept)| {
            let mut buffer = kept.unwrap_or_else(Buffer::full);
            let length = decoder.read(&mut buffer).await.map_err(|error| limit.located(error))?;
            limit.give(length)?;
            // Little comes where the compressed bytes come slowly; then the buffer is of use again.
            let (chunk, kept) = match length < size() / 8 {
                true => (Bytes::copy_from_slice(&buffer[..length]), Some(buffer)),
                false => (buffer.freeze_first(length), None),
            };
            Ok((length > 0).then_some((chunk, (decoder, limit, kept))))
        })
        .boxed()
    }
}

#[cfg(test)]
mod tests;
