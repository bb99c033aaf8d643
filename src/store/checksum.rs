//! Checksums that stores keep of whole objects, checked while the bytes pass.

use crate::{ErrorKind, Result};
use std::fmt;

/// A checksum of a whole object, as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Checksum {
    /// CRC-32C (Castagnoli), as Google Cloud Storage keeps of every object.
    Crc32c(u32),
    /// MD5 (RFC 1321), as Azure keeps of many objects.
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

/// Sums the bytes of an object up, from the first to the last.
#[derive(Debug)]
pub(super) struct Check {
    expected: Checksum,
    sum: Sum,
}

enum Sum {
    Crc32c(u32),
    Md5(Box<md5::Md5>),
}

impl fmt::Debug for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Crc32c(_) => "Crc32c",
            Self::Md5(_) => "Md5",
        })
    }
}

impl Check {
    pub(super) fn new(expected: Checksum) -> Self {
        let sum = match expected {
            Checksum::Crc32c(_) => Sum::Crc32c(0),
            Checksum::Md5(_) => Sum::Md5(Box::default()),
        };
        Check { expected, sum }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        match &mut self.sum {
            Sum::Crc32c(sum) => *sum = crc32c::crc32c_append(*sum, bytes),
            Sum::Md5(sum) => md5::Digest::update(&mut **sum, bytes),
        }
    }

    /// Whether all bytes together were those that are stored.
    pub(super) fn end(self) -> Result<()> {
        let received = match self.sum {
            Sum::Crc32c(sum) => Checksum::Crc32c(sum),
            Sum::Md5(sum) => Checksum::Md5(md5::Digest::finalize(*sum).into()),
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

    fn check(expected: Checksum, parts: &[&[u8]]) -> Result<()> {
        let mut check = Check::new(expected);
        parts.iter().for_each(|part| check.add(part));
        check.end()
    }

    /// The check values of the two algorithms: RFC 3720 (B.4) and RFC 1321 (A.5).
    #[test]
    fn sums_are_those_of_the_standards() {
        let crc = Checksum::Crc32c(0xe306_9283);
        let md5 = Checksum::Md5([
            0x90, 0x01, 0x50, 0x98, 0x3c, 0xd2, 0x4f, 0xb0, 0xd6, 0x96, 0x3f, 0x7d, 0x28, 0xe1, 0x7f, 0x72,
        ]);
        check(crc, &[b"123", b"", b"456789"]).unwrap();
        check(md5, &[b"a", b"bc"]).unwrap();
        assert_eq!(md5.to_string(), "md5 900150983cd24fb0d6963f7d28e17f72");
    }

    #[test]
    fn another_byte_is_another_sum() {
        let error = check(Checksum::Crc32c(0xe306_9283), &[b"123456788"]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Damaged { expected, .. } if expected == "crc32c e3069283"));
        assert!(check(Checksum::Md5([0; 16]), &[]).is_err());
    }
}
