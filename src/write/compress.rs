//! Compresses shards. The suffix of a shard's name selects the method.

use crate::error::{ErrorKind, Result};
use crate::secret_url::shown;
use crate::store::{Compression, shard_stem};
use std::io::{self, Write};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShardCompression {
    None,
    #[cfg(feature = "gzip")]
    Gzip,
    #[cfg(feature = "zstd")]
    Zstd,
}

impl ShardCompression {
    /// The compression that the suffix of a shard's name selects.
    ///
    /// # Errors
    /// [`ErrorKind::UnsupportedCompression`] if the compression is unknown or not compiled in. Writing an
    /// uncompressed shard instead would contradict its name.
    pub(super) fn of(name: &str) -> Result<Self> {
        let unsupported =
            |why: &str| Err(ErrorKind::UnsupportedCompression(format!("{}: {why}", shown(name))).into());
        match Compression::of(name) {
            _ if shard_stem(name).is_none() => {
                unsupported("the name of a shard to write ends in .tar, .tar.gz, .tgz, .tar.zst or .tzst")
            }
            None => Ok(Self::None),
            #[cfg(feature = "gzip")]
            Some(Compression::Gzip) => Ok(Self::Gzip),
            #[cfg(not(feature = "gzip"))]
            Some(Compression::Gzip) => unsupported("writing it needs the feature `gzip`"),
            #[cfg(feature = "zstd")]
            Some(Compression::Zstd) => Ok(Self::Zstd),
            #[cfg(not(feature = "zstd"))]
            Some(Compression::Zstd) => unsupported("writing it needs the feature `zstd`"),
        }
    }
}

/// A writer that compresses. The same input gives the same output: the headers contain no time and no host.
pub(super) enum Compressor<W: Write> {
    None(W),
    #[cfg(feature = "gzip")]
    Gzip(Box<flate2::write::GzEncoder<W>>),
    #[cfg(feature = "zstd")]
    Zstd(zstd::Encoder<'static, W>),
}

impl<W: Write> Compressor<W> {
    pub(super) fn new(compression: ShardCompression, out: W) -> io::Result<Self> {
        Ok(match compression {
            ShardCompression::None => Self::None(out),
            #[cfg(feature = "gzip")]
            ShardCompression::Gzip => {
                let header = flate2::GzBuilder::new().mtime(0).operating_system(255);
                Self::Gzip(Box::new(header.write(out, flate2::Compression::default())))
            }
            #[cfg(feature = "zstd")]
            ShardCompression::Zstd => {
                let mut encoder = zstd::Encoder::new(out, zstd::DEFAULT_COMPRESSION_LEVEL)?;
                // Without a checksum, zstd data with a flipped bit usually decompresses to wrong bytes
                // without an error. Gzip data always has a checksum.
                encoder.include_checksum(true)?;
                Self::Zstd(encoder)
            }
        })
    }

    /// Writes the end of the compressed data, and returns the inner writer.
    pub(super) fn finish(self) -> io::Result<W> {
        match self {
            Self::None(out) => Ok(out),
            #[cfg(feature = "gzip")]
            Self::Gzip(encoder) => encoder.finish(),
            #[cfg(feature = "zstd")]
            Self::Zstd(encoder) => encoder.finish(),
        }
    }

    fn out(&mut self) -> &mut dyn Write {
        match self {
            Self::None(out) => out,
            #[cfg(feature = "gzip")]
            Self::Gzip(encoder) => encoder,
            #[cfg(feature = "zstd")]
            Self::Zstd(encoder) => encoder,
        }
    }
}

impl<W: Write> Write for Compressor<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        // `finish` writes all data; flushing the encoder earlier would only make the compression worse.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suffix_tells_the_compression() {
        assert_eq!(ShardCompression::of("a.tar").unwrap(), ShardCompression::None);
        for name in ["a.tar.bz2", "a.tar.xz", "a.tar.lz4", "a.zip", "a", "a.gz", "tar"] {
            let error = ShardCompression::of(name).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::UnsupportedCompression(_)), "{error}");
        }
        for name in ["a.tar.gz", "a.tgz"] {
            assert_eq!(ShardCompression::of(name).is_ok(), cfg!(feature = "gzip"));
        }
        assert_eq!(ShardCompression::of("a.tar.zst").is_ok(), cfg!(feature = "zstd"));
    }

    #[test]
    fn the_same_input_makes_the_same_output() {
        for name in ["a.tar", "a.tgz", "a.tar.zst"] {
            let Ok(compression) = ShardCompression::of(name) else { continue };
            let compressed = || {
                let mut out = Compressor::new(compression, Vec::new()).unwrap();
                for chunk in [&[1u8; 3000][..], &[], &[2; 5]] {
                    out.write_all(chunk).unwrap();
                }
                out.finish().unwrap()
            };
            assert_eq!(compressed(), compressed());
        }
    }
}
