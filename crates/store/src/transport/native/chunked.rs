//! The chunked transfer coding (RFC 9112, 7.1), decoded in place.

/// Maximum number of bytes of extensions and trailers in one body. They are skipped.
const MAX_SKIPPED: usize = 64 << 10;

/// Decodes a chunked body piece by piece.
#[derive(Debug, Default)]
pub(super) struct ChunkedDecoder {
    state: ChunkedState,
    /// Bytes of extensions and trailers so far.
    skipped: usize,
}

/// The part of the coding that the next byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkedState {
    /// The size of the next chunk: its value so far, whether a digit was read, and whether the digits have
    /// ended.
    Size {
        size: u64,
        digits: bool,
        ended: bool,
    },
    Extension {
        size: u64,
    },
    SizeEnd {
        size: u64,
    },
    Data {
        left: u64,
    },
    DataEnd,
    DataEndLine,
    /// A line behind the last chunk, and whether the next byte is its first.
    Trailer {
        first: bool,
    },
    TrailerEnd {
        last: bool,
    },
    Done,
}

impl Default for ChunkedState {
    fn default() -> Self {
        ChunkedState::Size { size: 0, digits: false, ended: false }
    }
}

/// The result of decoding some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    /// Number of bytes of the body, which are now at the front.
    pub(super) kept: usize,
    /// Number of bytes consumed. It is less than all of them only if the body has ended.
    pub(super) used: usize,
}

impl ChunkedDecoder {
    pub(super) fn is_done(&self) -> bool {
        self.state == ChunkedState::Done
    }

    /// Decodes `bytes`, which follow those of earlier calls, and moves the bytes of the body to their front.
    ///
    /// # Errors
    ///
    /// What is wrong with the coding.
    pub(super) fn decode(&mut self, bytes: &mut [u8]) -> Result<Decoded, &'static str> {
        let (mut kept, mut used) = (0, 0);
        while used < bytes.len() && !self.is_done() {
            if let ChunkedState::Data { left } = &mut self.state {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len() - used);
                bytes.copy_within(used..used + length, kept);
                (kept, used) = (kept + length, used + length);
                *left -= length as u64;
                if *left == 0 {
                    self.state = ChunkedState::DataEnd;
                }
            } else {
                self.state = self.after(bytes[used])?;
                used += 1;
            }
        }
        Ok(Decoded { kept, used })
    }

    /// The state behind `byte`, which is not of a chunk's data.
    fn after(&mut self, byte: u8) -> Result<ChunkedState, &'static str> {
        if matches!(self.state, ChunkedState::Extension { .. } | ChunkedState::Trailer { .. }) {
            self.skipped += 1;
            if self.skipped > MAX_SKIPPED {
                return Err("the extensions and trailers of a chunked body are too long");
            }
        }
        Ok(match (self.state, byte) {
            (ChunkedState::Size { size, ended: false, .. }, digit) if digit.is_ascii_hexdigit() => {
                let digit = char::from(digit).to_digit(16).unwrap_or_default();
                let size = size.checked_mul(16).ok_or("the length of a chunk is too large")?;
                ChunkedState::Size { size: size | u64::from(digit), digits: true, ended: false }
            }
            (ChunkedState::Size { size, digits: true, .. }, b' ' | b'\t') => {
                ChunkedState::Size { size, digits: true, ended: true }
            }
            (ChunkedState::Size { size, digits: true, .. }, b';') => ChunkedState::Extension { size },
            (ChunkedState::Size { size, digits: true, .. } | ChunkedState::Extension { size }, b'\r') => {
                ChunkedState::SizeEnd { size }
            }
            (ChunkedState::Size { .. }, _) => return Err("a chunk has no length"),
            (ChunkedState::Extension { size }, byte) if byte == b'\t' || !byte.is_ascii_control() => {
                ChunkedState::Extension { size }
            }
            (ChunkedState::SizeEnd { size: 0 }, b'\n') => ChunkedState::Trailer { first: true },
            (ChunkedState::SizeEnd { size }, b'\n') => ChunkedState::Data { left: size },
            (ChunkedState::DataEnd, b'\r') => ChunkedState::DataEndLine,
            (ChunkedState::DataEndLine, b'\n') => ChunkedState::default(),
            (ChunkedState::Trailer { first }, b'\r') => ChunkedState::TrailerEnd { last: first },
            (ChunkedState::Trailer { .. }, byte) if byte == b'\t' || !byte.is_ascii_control() => {
                ChunkedState::Trailer { first: false }
            }
            (ChunkedState::TrailerEnd { last: true }, b'\n') => ChunkedState::Done,
            (ChunkedState::TrailerEnd { last: false }, b'\n') => ChunkedState::Trailer { first: true },
            _ => return Err("a line of a chunked body does not end as lines do"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Decodes `bytes` in pieces of the lengths `cuts`. Returns the body and the number of bytes consumed.
    fn decoded(bytes: &[u8], cuts: &[usize]) -> Result<(Vec<u8>, usize), &'static str> {
        let (mut decoder, mut body, mut used) = (ChunkedDecoder::default(), Vec::new(), 0);
        let mut cuts = cuts.iter().copied().chain([bytes.len()]);
        while used < bytes.len() && !decoder.is_done() {
            let end = (used + cuts.next().unwrap_or(1).max(1)).min(bytes.len());
            let mut piece = bytes[used..end].to_vec();
            let result = decoder.decode(&mut piece)?;
            assert!(result.used == piece.len() || decoder.is_done());
            body.extend_from_slice(&piece[..result.kept]);
            used += result.used;
        }
        if decoder.is_done() { Ok((body, used)) } else { Err("it ends too early") }
    }

    #[test]
    fn extensions_and_trailers_are_passed_over() {
        let bytes =
            b"4;name=\"a;b\"\r\nWiki\r\n05 ;x\r\npedia\r\n0;last\r\nExpires: never\r\nA: b\r\n\r\nHTTP";
        assert_eq!(decoded(bytes, &[]), Ok((b"Wikipedia".to_vec(), bytes.len() - 4)));
        assert_eq!(decoded(b"0\r\n\r\n", &[]), Ok((Vec::new(), 5)));
    }

    #[test]
    fn anything_else_is_refused() {
        for bytes in [
            "\r\n",
            ";\r\n",
            " 1\r\na\r\n0\r\n\r\n",
            "1\na\r\n0\r\n\r\n",
            "1\r\nab\r\n0\r\n\r\n",
            "1\r\na\n0\r\n\r\n",
            "+1\r\na\r\n0\r\n\r\n",
            "0x1\r\na\r\n0\r\n\r\n",
            "1 1\r\na\r\n0\r\n\r\n",
            "1;a\nb\r\na\r\n0\r\n\r\n",
            "10000000000000000\r\na",
            "1\r\na\r\n0\r\nA: b\n\r\n",
            "1\r\na\r\n0\r\n",
            "1\r\na\r\n",
        ] {
            assert!(decoded(bytes.as_bytes(), &[]).is_err(), "{bytes:?}");
        }
        for endless in ["1;", "0\r\n"] {
            assert!(decoded(&[endless.as_bytes(), &vec![b'a'; MAX_SKIPPED + 1]].concat(), &[]).is_err());
        }
    }

    proptest! {
        #[test]
        fn it_is_the_same_however_it_is_cut(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8),
            trailers in 0..3_usize,
            cuts in prop::collection::vec(1..9_usize, 0..60),
        ) {
            let mut bytes = Vec::new();
            for chunk in &chunks {
                bytes.extend_from_slice(format!("{:x};e\r\n", chunk.len()).as_bytes());
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(format!("0\r\n{}\r\n", "A: b\r\n".repeat(trailers)).as_bytes());
            let whole = bytes.len();
            bytes.extend_from_slice(b"more");
            prop_assert_eq!(decoded(&bytes, &cuts), Ok((chunks.concat(), whole)));
        }

        #[test]
        fn any_bytes_are_a_body_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decoded(&bytes, &[3, 1, 4, 1, 5]);
        }
    }
}
