//! Decompresses shards. The suffix of a URL determines the compression.

use super::compression::Compression;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use futures::stream::BoxStream;
#[cfg(any(feature = "gzip", feature = "zstd"))]
use shardstream_base::file_kind::{HEAD, not_compressed};

/// A decompressor. There is one for each enabled feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decompressor {
    #[cfg(feature = "gzip")]
    Gzip,
    #[cfg(feature = "zstd")]
    Zstd,
}

/// Limit on the decompressed size, given the compressed size. No archive of samples exceeds the limit, but a
/// few crafted bytes (a decompression bomb) could keep a reader busy for days.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expansion {
    /// Number of decompressed bytes per compressed byte.
    pub(super) ratio: u32,
    /// Number of additional decompressed bytes that are always allowed.
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

/// Suffixes of known compressions that are not supported.
const UNREADABLE: [&str; 9] = [".bz2", ".tbz", ".tbz2", ".xz", ".txz", ".lzma", ".lz4", ".br", ".z"];

impl Decompressor {
    /// Selects the decompressor of the object at `url` by its suffix, without the query of an HTTP URL.
    /// Returns `None` if the object is not compressed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::UnsupportedCompression`] for unsupported compressions, and for compressions whose feature
    /// is disabled.
    pub(super) fn of(url: &str) -> Result<Option<Self>> {
        match Compression::of(url) {
            Some(Compression::Gzip) => return gzip().map(Some),
            Some(Compression::Zstd) => return zstd().map(Some),
            None => {}
        }
        let name = super::object_url::ObjectUrl::parse(url).file_name().to_ascii_lowercase();
        if let Some(suffix) = UNREADABLE.iter().find(|suffix| name.ends_with(*suffix)) {
            let hint = format!("{suffix} shards cannot be read: compress them with zstd or gzip instead");
            return Err(ErrorKind::UnsupportedCompression(hint).into());
        }
        Ok(None)
    }

    #[cfg(any(feature = "gzip", feature = "zstd"))]
    fn name(self) -> &'static str {
        match self {
            #[cfg(feature = "gzip")]
            Self::Gzip => "gzip",
            #[cfg(feature = "zstd")]
            Self::Zstd => "zstd",
        }
    }

    /// Decompresses `chunks`, on the thread that polls the result.
    #[cfg(any(feature = "gzip", feature = "zstd"))]
    pub(super) fn decode(
        self,
        chunks: BoxStream<'static, Result<Bytes>>,
        expansion: Expansion,
    ) -> BoxStream<'static, Result<Bytes>> {
        use async_compression::futures::bufread;
        use futures::TryStreamExt;

        let compressed = checked_beginning(chunks, self.name());
        let compressed = compressed.map_err(std::io::Error::other).into_async_read();
        let (compressed, consumed) = reader::CountedReader::new(compressed);
        let limit = |compression| reader::ExpansionLimit::new(compression, expansion, consumed);
        // Without `multiple_members`, both decoders would end after the first of several concatenated members
        // or frames.
        match self {
            #[cfg(feature = "gzip")]
            Self::Gzip => {
                let mut decoder = bufread::GzipDecoder::new(compressed);
                decoder.multiple_members(true);
                reader::into_chunks(decoder, limit("gzip"))
            }
            #[cfg(feature = "zstd")]
            Self::Zstd => {
                let mut decoder = bufread::ZstdDecoder::new(compressed);
                decoder.multiple_members(true);
                reader::into_chunks(decoder, limit("zstd"))
            }
        }
    }

    /// Without any feature for a compression, this type has no values.
    #[cfg(not(any(feature = "gzip", feature = "zstd")))]
    pub(super) fn decode(
        self,
        _: BoxStream<'static, Result<Bytes>>,
        _: Expansion,
    ) -> BoxStream<'static, Result<Bytes>> {
        match self {}
    }
}

/// Returns the same chunks, or an error if their first bytes are not the beginning of data with this
/// compression.
#[cfg(any(feature = "gzip", feature = "zstd"))]
fn checked_beginning(
    mut chunks: BoxStream<'static, Result<Bytes>>,
    compression: &'static str,
) -> BoxStream<'static, Result<Bytes>> {
    use futures::stream::{self, StreamExt};

    let first = async move {
        let (mut head, mut received) = (Vec::new(), Vec::new());
        while head.len() < HEAD
            && let Some(chunk) = chunks.next().await
        {
            let Ok(bytes) = &chunk else {
                received.push(chunk);
                break;
            };
            head.extend_from_slice(&bytes[..bytes.len().min(HEAD - head.len())]);
            received.push(chunk);
        }
        if let Some(error) = not_compressed(&head, compression) {
            received = vec![Err(error.at_offset(0))];
        }
        stream::iter(received).chain(chunks)
    };
    stream::once(first).flatten().boxed()
}

#[cfg(feature = "gzip")]
fn gzip() -> Result<Decompressor> {
    Ok(Decompressor::Gzip)
}

#[cfg(not(feature = "gzip"))]
fn gzip() -> Result<Decompressor> {
    Err(missing(".gz", "gzip"))
}

#[cfg(feature = "zstd")]
fn zstd() -> Result<Decompressor> {
    Ok(Decompressor::Zstd)
}

#[cfg(not(feature = "zstd"))]
fn zstd() -> Result<Decompressor> {
    Err(missing(".zst", "zstd"))
}

#[allow(dead_code, reason = "unused when all formats are compiled in")]
fn missing(suffix: &str, feature: &str) -> Error {
    let hint = format!("to read {suffix} shards, enable the feature `{feature}` of shardstream");
    ErrorKind::UnsupportedCompression(hint).into()
}

/// Turns a decoder into a stream of chunks, and limits its output.
#[cfg(any(feature = "gzip", feature = "zstd"))]
mod reader {
    use super::Expansion;
    use crate::error::{Error, ErrorKind, Result, SizeLimit};
    use crate::read_buffer::{ReadBuffer, size};
    use bytes::Bytes;
    use futures::io::{AsyncBufRead, AsyncRead, AsyncReadExt};
    use futures::stream::{self, BoxStream, StreamExt};
    use std::io;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::task::{Context, Poll};

    /// A reader of compressed bytes that counts the consumed bytes.
    pub(super) struct CountedReader<R> {
        bytes: R,
        consumed: Arc<AtomicU64>,
    }

    impl<R> CountedReader<R> {
        pub(super) fn new(bytes: R) -> (Self, Arc<AtomicU64>) {
            let consumed = Arc::<AtomicU64>::default();
            (CountedReader { bytes, consumed: Arc::clone(&consumed) }, consumed)
        }
    }

    impl<R: AsyncBufRead + Unpin> AsyncBufRead for CountedReader<R> {
        fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
            Pin::new(&mut self.get_mut().bytes).poll_fill_buf(cx)
        }

        fn consume(mut self: Pin<&mut Self>, length: usize) {
            self.consumed.fetch_add(length as u64, Relaxed);
            Pin::new(&mut self.bytes).consume(length);
        }
    }

    impl<R: AsyncRead + Unpin> AsyncRead for CountedReader<R> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &mut [u8],
        ) -> Poll<io::Result<usize>> {
            let read = Pin::new(&mut self.bytes).poll_read(cx, buffer);
            if let Poll::Ready(Ok(length)) = read {
                self.consumed.fetch_add(length as u64, Relaxed);
            }
            read
        }
    }

    /// Limits the number of decompressed bytes in proportion to the compressed bytes consumed so far.
    pub(super) struct ExpansionLimit {
        compression: &'static str,
        expansion: Expansion,
        consumed: Arc<AtomicU64>,
        produced: u64,
    }

    impl ExpansionLimit {
        pub(super) fn new(compression: &'static str, expansion: Expansion, consumed: Arc<AtomicU64>) -> Self {
            ExpansionLimit { compression, expansion, consumed, produced: 0 }
        }

        /// Converts an error of the decoder. If an error of the compressed stream caused it, returns the
        /// stream's error. Otherwise the data is damaged: [`ErrorKind::Decompress`].
        fn convert_error(&self, error: io::Error) -> Error {
            let (compression, offset) = (self.compression, self.consumed.load(Relaxed));
            let damaged = |source| ErrorKind::Decompress { compression, offset, source }.into();
            error.downcast::<Error>().unwrap_or_else(damaged)
        }

        /// Adds `length` decompressed bytes, and checks the limit.
        fn add(&mut self, length: usize) -> Result<()> {
            self.produced += length as u64;
            let Expansion { ratio, spare } = self.expansion;
            let limit = self.consumed.load(Relaxed).saturating_mul(ratio.into()).saturating_add(spare);
            match self.produced > limit {
                true => {
                    Err(ErrorKind::TooLarge { what: SizeLimit::DecompressedData, size: self.produced, limit }
                        .into())
                }
                false => Ok(()),
            }
        }
    }

    pub(super) fn into_chunks(
        decoder: impl AsyncRead + Unpin + Send + 'static,
        limit: ExpansionLimit,
    ) -> BoxStream<'static, Result<Bytes>> {
        stream::try_unfold((decoder, limit, None), async |(mut decoder, mut limit, unused)| {
            let mut buffer = unused.unwrap_or_else(ReadBuffer::full);
            let length = decoder.read(&mut buffer).await.map_err(|error| limit.convert_error(error))?;
            limit.add(length)?;
            // Short reads are common when compressed bytes arrive slowly. Copying their bytes lets the next
            // read use the same buffer.
            let (chunk, unused) = match length < size() / 8 {
                true => (Bytes::copy_from_slice(&buffer[..length]), Some(buffer)),
                false => (buffer.freeze_first(length), None),
            };
            Ok((length > 0).then_some((chunk, (decoder, limit, unused))))
        })
        .boxed()
    }
}

#[cfg(test)]
mod tests;
