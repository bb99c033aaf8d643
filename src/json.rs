//! Bounds the memory that a JSON document takes once it is parsed, before it is parsed.
//!
//! A few bytes of text can take hundreds in memory: `{"":0}` is a map with a node for eleven entries. So the
//! length of a text says little about what is held of it. The estimate here counts what a parser allocates
//! memory for, in one pass over the text. It may take up to about twice as much, where lists have just grown,
//! or where another crate has `serde_json` keep the order of maps.

/// The largest memory of a document of any type, unless the caller says otherwise: 512 MiB.
pub(crate) const DEFAULT_LIMIT: u64 = 512 << 20;

/// Memory that any document may take.
const SMALL: u64 = 256 << 20;
/// Memory that a document may take for each byte that is stored of it.
const PER_BYTE: u64 = 64;
/// The estimate is at most this for each byte of text.
const MOST_PER_BYTE: u64 = 256;

/// What a document is parsed into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParsedAs {
    /// `serde_json::Value`, or a type of the caller's.
    Values,
    /// A type of this crate: lists of numbers and texts, and keys that are known.
    Lists,
}

/// Bytes of memory, with what is left free as lists grow.
struct Costs {
    element: u64,
    text: u64,
    list: u64,
    map: u64,
    entry: u64,
}

impl ParsedAs {
    fn costs(self) -> Costs {
        match self {
            ParsedAs::Values => Costs { element: 64, text: 32, list: 144, map: 648, entry: 120 },
            ParsedAs::Lists => Costs { element: 16, text: 48, list: 96, map: 400, entry: 0 },
        }
    }
}

/// The memory that a document may take of which `stored` bytes are stored, which may be compressed.
pub(crate) fn limit_of(stored: u64) -> u64 {
    SMALL.saturating_add(stored.saturating_mul(PER_BYTE))
}

/// An estimate of the memory that the document takes, if that is more than `limit`. It is the estimate up to
/// the place where it exceeds the limit.
pub(crate) fn excess(text: &[u8], parsed_as: ParsedAs, limit: u64) -> Option<u64> {
    if (text.len() as u64).saturating_mul(MOST_PER_BYTE) <= limit {
        return None;
    }
    let Costs { element, text: string, list, map, entry } = parsed_as.costs();
    let (mut memory, mut rest) = (0_u64, text);
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        memory += match byte {
            b'"' => {
                let length = length_of_string(rest);
                rest = rest.get(length + 1..).unwrap_or_default();
                string + length as u64
            }
            b',' => element,
            b'[' => list,
            b'{' => map,
            b':' => entry,
            _ => continue,
        };
        if memory > limit {
            return Some(memory);
        }
    }
    None
}

/// The number of bytes of a string up to its closing quote.
fn length_of_string(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(text: &str) -> u64 {
        // Long enough that the text is looked at.
        let padded = format!("{text}{}", " ".repeat(100));
        excess(padded.as_bytes(), ParsedAs::Values, 0).map_or(0, |_| {
            (0..100_000).find(|limit| excess(padded.as_bytes(), ParsedAs::Values, *limit).is_none()).unwrap()
        })
    }

    #[test]
    fn what_takes_memory_is_counted() {
        assert_eq!(estimate("7"), 0);
        assert_eq!(estimate(r#""a,[{:\"\\""#), 32 + 9);
        assert_eq!(estimate(r#"[1, [], "b"]"#), 144 + 64 + 144 + 64 + 33);
        assert_eq!(estimate(r#"{"a": {}}"#), 648 + 33 + 120 + 648);
        assert_eq!(estimate(r#""not closed\"#), 32 + 111);
    }

    #[test]
    fn a_document_is_bounded_by_what_is_held_of_it() {
        for bomb in [r#"{"":0},"#, "[],", "{},", "[[0]],", r#""","#] {
            let text = format!("[{}0]", bomb.repeat(200_000));
            assert!(excess(text.as_bytes(), ParsedAs::Values, 4 << 20).is_some(), "{bomb}");
            assert!(excess(text.as_bytes(), ParsedAs::Values, text.len() as u64 * 256).is_none(), "{bomb}");
        }
        let long = format!("\"{}\"", "x".repeat(6 << 20));
        assert!(excess(long.as_bytes(), ParsedAs::Values, 8 << 20).is_none());
        let numbers = format!("[{}0]", "1000,".repeat(1 << 20));
        assert!(excess(numbers.as_bytes(), ParsedAs::Lists, limit_of(0)).is_none());
    }
}
