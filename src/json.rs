//! Estimates the memory of a parsed JSON document before it is parsed, to refuse a document that needs too
//! much memory.
//!
//! A few bytes of text can need hundreds of bytes of memory: `{"":0}` is parsed to a map whose node has room
//! for eleven entries. So the length of the text does not bound the memory. One pass over the text counts the
//! strings, elements, lists and maps that a parser allocates memory for. The true amount may be up to twice
//! the estimate, if lists have just grown or another crate enables the feature `preserve_order` of
//! `serde_json`.

/// Default limit of the memory of one parsed document.
pub(crate) const DEFAULT_LIMIT: u64 = 512 << 20;

/// The part of a document's memory limit that does not depend on its length.
const SMALL: u64 = 256 << 20;
/// The memory limit grows by this number for each stored (possibly compressed) byte of the document.
const PER_BYTE: u64 = 64;
/// The estimated memory of a document is at most this number of bytes for each byte of its text. If even this
/// bound is within the limit, the text is not scanned.
const MOST_PER_BYTE: u64 = 256;

/// The types that a document is parsed into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParsedAs {
    /// `serde_json::Value`, or a type that the caller defines.
    Values,
    /// A type of this crate: lists of numbers and texts under known keys.
    Lists,
}

/// The estimated memory in bytes for each part of a document, including the spare capacity of growing lists.
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

/// The memory limit of a document of `stored` bytes, which may be compressed.
pub(crate) fn limit_of(stored: u64) -> u64 {
    SMALL.saturating_add(stored.saturating_mul(PER_BYTE))
}

/// The estimated memory of the document if it exceeds `limit`, otherwise `None`. Counting stops as soon as
/// the estimate exceeds the limit.
pub(crate) fn excess(text: &[u8], parsed_as: ParsedAs, limit: u64) -> Option<u64> {
    if (text.len() as u64).saturating_mul(MOST_PER_BYTE) <= limit {
        return None;
    }
    let Costs { element, text: string, list, map, entry } = parsed_as.costs();
    let mut memory = 0_u64;
    let mut rest = text;
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
        // The text is padded, because no estimate is made for a short text.
        let padded = format!("{text}{}", " ".repeat(100));
        excess(padded.as_bytes(), ParsedAs::Values, 0).map_or(0, |_| {
            (0..100_000).find(|limit| excess(padded.as_bytes(), ParsedAs::Values, *limit).is_none()).unwrap()
        })
    }

    #[test]
    fn strings_elements_lists_and_maps_are_counted() {
        assert_eq!(estimate("7"), 0);
        assert_eq!(estimate(r#""a,[{:\"\\""#), 32 + 9);
        assert_eq!(estimate(r#"[1, [], "b"]"#), 144 + 64 + 144 + 64 + 33);
        assert_eq!(estimate(r#"{"a": {}}"#), 648 + 33 + 120 + 648);
        assert_eq!(estimate(r#""not closed\"#), 32 + 111);
    }

    #[test]
    fn the_parsed_size_is_limited_and_not_the_length_of_the_text() {
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
