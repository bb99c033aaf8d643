//! Verifies the checksum of an object while the object is read. The store keeps this checksum.

use crate::{ErrorKind, Result};
use std::fmt;

/// A checksum of the stored bytes of a whole object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Checksum {
    /// CRC-32C (Castagnoli). Google Cloud Storage has it for every object.
    Crc32c(u32),
    /// MD5 (RFC 1321). Azure has it for many objects.
    Md5([u8; 16]),
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crc32c(sum) => write!(f, "crc32c {sum:08x}"),
            Self::Md5(sum) => {
                f.write_str("md5 ")?;
                sum.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

/// Computes the checksum of an object from its chunks, and compares it with the expected one.
#[derive(Debug)]
pub(super) struct ChecksumVerifier {
    expected: Checksum,
    sum: RunningSum,
}

enum RunningSum {
    Crc32c(u32),
    Md5(Box<md5::Md5>),
}

impl fmt::Debug for RunningSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Crc32c(_) => "Crc32c",
            Self::Md5(_) => "Md5",
        })
    }
}

impl ChecksumVerifier {
    pub(super) fn new(expected: Checksum) -> Self {
        let sum = match expected {
            Checksum::Crc32c(_) => RunningSum::Crc32c(0),
            Checksum::Md5(_) => RunningSum::Md5(Box::default()),
        };
        ChecksumVerifier { expected, sum }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        match &mut self.sum {
            RunningSum::Crc32c(sum) => *sum = crc32c::crc32c_append(*sum, bytes),
            RunningSum::Md5(sum) => md5::Digest::update(&mut **sum, bytes),
        }
    }

    /// Compares the checksum of all bytes with the expected one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Damaged`] if the checksums differ.
    pub(super) fn finish(self) -> Result<()> {
        let received = match self.sum {
            RunningSum::Crc32c(sum) => Checksum::Crc32c(sum),
            RunningSum::Md5(sum) => Checksum::Md5(md5::Digest::finalize(*sum).into()),
        };
        match received == self.expected {
            true => Ok(()),
            false => {
                let (expected, received) = (self.expected.to_string(), received.to_string());
                Err(ErrorKind::Damaged { expected, received }.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verify(expected: Checksum, parts: &[&[u8]]) -> Result<()> {
        let mut verifier = ChecksumVerifier::new(expected);
        parts.iter().for_each(|part| verifier.add(part));
        verifier.finish()
    }

    /// The check values of the two algorithms: RFC 3720 (B.4) and RFC 1321 (A.5).
    #[test]
    fn checksums_match_the_standards() {
        let crc = Checksum::Crc32c(0xe306_9283);
        let md5 = Checksum::Md5([
            0x90, 0x01, 0x50, 0x98, 0x3c, 0xd2, 0x4f, 0xb0, 0xd6, 0x96, 0x3f, 0x7d, 0x28, 0xe1, 0x7f, 0x72,
        ]);
        verify(crc, &[b"123", b"", b"456789"]).unwrap();
        verify(md5, &[b"a", b"bc"]).unwrap();
        assert_eq!(md5.to_string(), "md5 900150983cd24fb0d6963f7d28e17f72");
    }

    #[test]
    fn a_changed_byte_is_an_error() {
        let error = verify(Checksum::Crc32c(0xe306_9283), &[b"123456788"]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Damaged { expected, .. } if expected == "crc32c e3069283"));
        assert!(verify(Checksum::Md5([0; 16]), &[]).is_err());
    }
}
