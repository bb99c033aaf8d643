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

/// How much may come out of so many compressed bytes: no archive of samples gives more, but a few bytes can be made that
/// keep a reader busy for days.
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

        let limit = chunked::Limit::new(expansion);
        let received = limit.received();
        let compressed = chunks.inspect_ok(received).map_err(std::io::Error::other).into_async_read();
        // Without `multiple_members` both decoders end after the first of several concatenated members or frames.
        match self {
            #[cfg(feature = "gzip")]
            Self::Gzip => {
                let mut decoder = bufread::GzipDecoder::new(compressed);
                decoder.multiple_members(true);
                chunked::read(decoder, limit)
            }
            #[cfg(feature = "zstd")]
            Self::Zstd => {
                let mut decoder = bufread::ZstdDecoder::new(compressed);
                decoder.multiple_members(true);
                chunked::read(decoder, limit)
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
    use crate::store::buffer::{Buffer, SIZE};
    use crate::{Error, ErrorKind, Result};
    use bytes::Bytes;
    use futures::io::{AsyncRead, AsyncReadExt};
    use futures::stream::{self, BoxStream, StreamExt};
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// Holds what comes out against what went in.
    pub(super) struct Limit {
        expansion: Expansion,
        received: Arc<AtomicU64>,
        given: u64,
    }

    impl Limit {
        pub(super) fn new(expansion: Expansion) -> Self {
            Limit { expansion, received: Arc::default(), given: 0 }
        }

        /// Is told of what goes in.
        pub(super) fn received(&self) -> impl FnMut(&Bytes) + Send + 'static {
            let received = Arc::clone(&self.received);
            move |chunk| {
                received.fetch_add(chunk.len() as u64, Relaxed);
            }
        }

        fn give(&mut self, length: usize) -> Result<()> {
            self.given += length as u64;
            let Expansion { ratio, spare } = self.expansion;
            let limit = self.received.load(Relaxed).saturating_mul(ratio.into()).saturating_add(spare);
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
            let length = decoder.read(&mut buffer).await.map_err(unwrapped)?;
            limit.give(length)?;
            // Little comes where the compressed bytes come slowly; then the buffer is of use again.
            let (chunk, kept) = match length < SIZE / 8 {
                true => (Bytes::copy_from_slice(&buffer[..length]), Some(buffer)),
                false => (buffer.freeze_first(length), None),
            };
            Ok((length > 0).then_some((chunk, (decoder, limit, kept))))
        })
        .boxed()
    }

    /// The error that stopped the compressed bytes, or the decoder's own.
    fn unwrapped(error: io::Error) -> Error {
        error.downcast::<Error>().unwrap_or_else(Error::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_compressions_by_suffix() {
        for plain in ["a.tar", "gz", "https://h/a.tar?file=b.gz", "a.gz/b.tar"] {
            assert_eq!(Compression::of(plain).unwrap(), None, "{plain}");
        }
        for unreadable in ["a.tar.bz2", "a.TAR.XZ", "https://h/a.tar.lz4?x=1", "https://h/a%2Etar%2Ebz2"] {
            let error = Compression::of(unreadable).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::UnsupportedCompression(_)), "{unreadable}");
        }
    }

    #[test]
    #[cfg(not(feature = "zstd"))]
    fn names_the_missing_feature() {
        assert!(Compression::of("a.tar.zst").unwrap_err().to_string().contains("feature `zstd`"));
    }

    #[cfg(feature = "gzip")]
    mod gzip {
        use super::super::*;
        use crate::store::Body;
        use std::io::Write;

        fn gz(bytes: &[u8]) -> Vec<u8> {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }

        fn read(compressed: &[u8], chunk: usize) -> Result<Bytes> {
            let chunks: Vec<_> =
                compressed.chunks(chunk).map(|part| Ok(Bytes::copy_from_slice(part))).collect();
            Body::from_chunks(chunks).compressed(Compression::of("a.TGZ")?, Expansion::default()).read_all()
        }

        #[test]
        fn reads_all_members_however_they_are_split() {
            let compressed = [gz(b""), gz(b"one"), gz(b""), gz(b""), gz(b"two"), gz(b"")].concat();
            for chunk in 1..=compressed.len() {
                assert_eq!(read(&compressed, chunk).unwrap(), "onetwo", "chunks of {chunk}");
            }
        }

        #[test]
        fn a_truncation_anywhere_is_an_error() {
            let first = gz(b"one");
            let compressed = [first.clone(), gz(b"two")].concat();
            for end in (1..compressed.len()).filter(|end| *end != first.len()) {
                let error = read(&compressed[..end], 7).unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::Io(_)), "{end}");
            }
        }

        #[test]
        fn a_bomb_is_an_error() {
            let bomb = gz(&vec![0; 8 << 20]);
            super::assert_bomb(Compression::Gzip, &bomb, 20);
            let members: Vec<u8> = std::iter::repeat_n(gz(&vec![0; 1 << 20]), 9).flatten().collect();
            super::assert_bomb(Compression::Gzip, &members, 20);
        }

        #[test]
        fn the_error_of_the_source_comes_through() {
            let broken = vec![Ok(Bytes::from(gz(b"one"))), Err(ErrorKind::Checksum.into())];
            let body = Body::from_chunks(broken).compressed(Some(Compression::Gzip), Expansion::default());
            assert!(matches!(body.read_all().unwrap_err().kind(), ErrorKind::Checksum));
        }
    }

    #[cfg(feature = "zstd")]
    mod zstd {
        use super::super::*;
        use crate::store::Body;

        fn frame(bytes: &[u8]) -> Vec<u8> {
            ::zstd::encode_all(bytes, 3).unwrap()
        }

        fn read(compressed: &[u8], chunk: usize) -> Result<Bytes> {
            let chunks: Vec<_> =
                compressed.chunks(chunk).map(|part| Ok(Bytes::copy_from_slice(part))).collect();
            let compression = Compression::of("gs://b/a.tar.zst")?;
            Body::from_chunks(chunks).compressed(compression, Expansion::default()).read_all()
        }

        #[test]
        fn reads_all_frames_however_they_are_split() {
            let compressed = [frame(b""), frame(b"one"), frame(b""), frame(b""), frame(b"two")].concat();
            for chunk in 1..=compressed.len() {
                assert_eq!(read(&compressed, chunk).unwrap(), "onetwo", "chunks of {chunk}");
            }
        }

        #[test]
        fn a_truncation_anywhere_is_an_error() {
            let first = frame(b"one");
            let compressed = [first.clone(), frame(b"two")].concat();
            for end in (1..compressed.len()).filter(|end| *end != first.len()) {
                let error = read(&compressed[..end], 7).unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::Io(_)), "{end}: {error:?}");
            }
        }

        #[test]
        fn a_bomb_is_an_error() {
            super::assert_bomb(Compression::Zstd, &frame(&vec![0; 8 << 20]), 100);
            let frames: Vec<u8> = std::iter::repeat_n(frame(&vec![0; 2 << 20]), 9).flatten().collect();
            super::assert_bomb(Compression::Zstd, &frames, 1000);
        }
    }

    /// Gives no more than it may, and then says so; with a higher limit it is like any other object.
    #[cfg(any(feature = "gzip", feature = "zstd"))]
    fn assert_bomb(compression: Compression, bytes: &[u8], ratio: u32) {
        use crate::store::Body;
        let spare = 1 << 20;
        let most = bytes.len() as u64 * u64::from(ratio) + spare;
        let read = |ratio| {
            let chunks: Vec<_> = bytes.chunks(100).map(|part| Ok(Bytes::copy_from_slice(part))).collect();
            let body = Body::from_chunks(chunks);
            let mut given = 0;
            for chunk in body.compressed(Some(compression), Expansion { ratio, spare }) {
                given += chunk?.len() as u64;
                assert!(given <= bytes.len() as u64 * u64::from(ratio) + spare);
            }
            Ok::<_, Error>(given)
        };
        let error = read(ratio).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::TooLarge { what: "decompressed data", size, limit } if size > limit && *limit <= most),
            "{error:?}"
        );
        assert!(read(1_000_000).unwrap() > most);
    }
}
