//! The chunked transfer coding (RFC 9112, 7.1), taken apart in place.

/// Bytes that extensions and trailers of one body may take: nobody needs them.
const SPARE: usize = 64 << 10;

/// Where in the coding the next byte is.
#[derive(Debug, Default)]
pub(super) struct Chunked {
    state: State,
    /// Bytes of extensions and trailers so far.
    spare: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The length of the next chunk; whether a digit of it was read, and whether it has ended.
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
    /// A line behind the last chunk, of which this is the first byte or not.
    Trailer {
        first: bool,
    },
    TrailerEnd {
        last: bool,
    },
    Done,
}

impl Default for State {
    fn default() -> Self {
        State::Size { size: 0, digits: false, ended: false }
    }
}

/// What a run of bytes came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    /// Bytes of the body, which now are at the front.
    pub(super) kept: usize,
    /// Bytes that belong to the coding; fewer than there were only if it has ended.
    pub(super) used: usize,
}

impl Chunked {
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Moves the bytes of the body to the front of `bytes`, which continue what came before.
    pub(super) fn decode(&mut self, bytes: &mut [u8]) -> Result<Decoded, &'static str> {
        let (mut kept, mut used) = (0, 0);
        while used < bytes.len() && !self.is_done() {
            if let State::Data { left } = &mut self.state {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len() - used);
                bytes.copy_within(used..used + length, kept);
                (kept, used) = (kept + length, used + length);
                *left -= length as u64;
                if *left == 0 {
                    self.state = State::DataEnd;
                }
            } else {
                self.state = self.after(bytes[used])?;
                used += 1;
            }
        }
        Ok(Decoded { kept, used })
    }

    fn after(&mut self, byte: u8) -> Result<State, &'static str> {
        if matches!(self.state, State::Extension { .. } | State::Trailer { .. }) {
            self.spare += 1;
            if self.spare > SPARE {
                return Err("the extensions and trailers of a chunked body are too long");
            }
        }
        Ok(match (self.state, byte) {
            (State::Size { size, ended: false, .. }, digit) if digit.is_ascii_hexdigit() => {
                let digit = char::from(digit).to_digit(16).unwrap_or_default();
                let size = size.checked_mul(16).ok_or("the length of a chunk is too large")?;
                State::Size { size: size | u64::from(digit), digits: true, ended: false }
            }
            (State::Size { size, digits: true, .. }, b' ' | b'\t') => {
                State::Size { size, digits: true, ended: true }
            }
            (State::Size { size, digits: true, .. }, b';') => State::Extension { size },
            (State::Size { size, digits: true, .. } | State::Extension { size }, b'\r') => {
                State::SizeEnd { size }
            }
            (State::Size { .. }, _) => return Err("a chunk has no length"),
            (State::Extension { size }, byte) if byte == b'\t' || !byte.is_ascii_control() => {
                State::Extension { size }
            }
            (State::SizeEnd { size: 0 }, b'\n') => State::Trailer { first: true },
            (State::SizeEnd { size }, b'\n') => State::Data { left: size },
            (State::DataEnd, b'\r') => State::DataEndLine,
            (State::DataEndLine, b'\n') => State::default(),
            (State::Trailer { first }, b'\r') => State::TrailerEnd { last: first },
            (State::Trailer { .. }, byte) if byte == b'\t' || !byte.is_ascii_control() => {
                State::Trailer { first: false }
            }
            (State::TrailerEnd { last: true }, b'\n') => State::Done,
            (State::TrailerEnd { last: false }, b'\n') => State::Trailer { first: true },
            _ => return Err("a line of a chunked body does not end as lines do"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The body, and how much of `bytes` it took, when they come in pieces of the lengths that `cuts` gives.
    fn decoded(bytes: &[u8], cuts: &[usize]) -> Result<(Vec<u8>, usize), &'static str> {
        let (mut decoder, mut body, mut used) = (Chunked::default(), Vec::new(), 0);
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
            assert!(decoded(&[endless.as_bytes(), &vec![b'a'; SPARE + 1]].concat(), &[]).is_err());
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
