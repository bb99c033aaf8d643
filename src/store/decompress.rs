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
    ) -> BoxStream<'static, Result<Bytes>> {
        use async_compression::futures::bufread;
        use futures::TryStreamExt;

        let compressed = chunks.map_err(std::io::Error::other).into_async_read();
        // Without `multiple_members` both decoders end after the first of several concatenated members or frames.
        match self {
            #[cfg(feature = "gzip")]
            Self::Gzip => {
                let mut decoder = bufread::GzipDecoder::new(compressed);
                decoder.multiple_members(true);
                chunked::read(decoder)
            }
            #[cfg(feature = "zstd")]
            Self::Zstd => {
                let mut decoder = bufread::ZstdDecoder::new(compressed);
                decoder.multiple_members(true);
                chunked::read(decoder)
            }
        }
    }

    /// Without a compression compiled in there is no value of this type.
    #[cfg(not(any(feature = "gzip", feature = "zstd")))]
    pub(super) fn decode(self, _: BoxStream<'static, Result<Bytes>>) -> BoxStream<'static, Result<Bytes>> {
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
    use crate::{Error, Result};
    use bytes::{Bytes, BytesMut};
    use futures::io::{AsyncRead, AsyncReadExt};
    use futures::stream::{self, BoxStream, StreamExt};
    use std::io;

    /// Bytes that are decompressed at once. Samples share a chunk; those that straddle two are copied.
    const CHUNK: usize = 512 << 10;
    /// The rest of a chunk below which it isn't worth filling.
    const SMALL: usize = 16 << 10;

    pub(super) fn read(
        decoder: impl AsyncRead + Unpin + Send + 'static,
    ) -> BoxStream<'static, Result<Bytes>> {
        stream::try_unfold((decoder, BytesMut::new()), async |(mut decoder, mut space)| {
            if space.len() < SMALL {
                space = BytesMut::zeroed(CHUNK);
            }
            let length = decoder.read(&mut space).await.map_err(unwrapped)?;
            let chunk = space.split_to(length).freeze();
            Ok((length > 0).then_some((chunk, (decoder, space))))
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
            Body::from_chunks(chunks).compressed(Compression::of("a.TGZ")?).read_all()
        }

        #[test]
        fn reads_all_members_however_they_are_split() {
            let compressed = [gz(b"one"), gz(b""), gz(b"two")].concat();
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
        fn the_error_of_the_source_comes_through() {
            let broken = vec![Ok(Bytes::from(gz(b"one"))), Err(ErrorKind::Checksum.into())];
            let body = Body::from_chunks(broken).compressed(Some(Compression::Gzip));
            assert!(matches!(body.read_all().unwrap_err().kind(), ErrorKind::Checksum));
        }
    }

    #[cfg(feature = "zstd")]
    mod zstd {
        use super::super::*;
        use crate::store::Body;

        fn read(compressed: &[u8]) -> Result<Bytes> {
            let compression = Compression::of("gs://b/a.tar.zst")?;
            Body::from_chunks([Ok(Bytes::copy_from_slice(compressed))]).compressed(compression).read_all()
        }

        #[test]
        fn reads_all_frames_and_reports_truncation() {
            let frame = |bytes: &[u8]| ::zstd::encode_all(bytes, 3).unwrap();
            let first = frame(b"one");
            let compressed = [first.clone(), frame(b"two")].concat();
            assert_eq!(read(&compressed).unwrap(), "onetwo");
            for end in (1..compressed.len()).filter(|end| *end != first.len()) {
                assert!(read(&compressed[..end]).is_err(), "{end}");
            }
        }
    }
}
