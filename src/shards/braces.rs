//! Brace notation: `train-{000..146}.tar` is 147 names.
//!
//! The rules are those of Bash, as far as Python's package `braceexpand` follows them, because that is what
//! WebDataset URLs are written for:
//!
//! | pattern | expands to |
//! |---|---|
//! | `s-{000..003}` | `s-000 s-001 s-002 s-003`: a leading zero pads all to the longest operand |
//! | `{3..0}`, `{-1..1}` | `3 2 1 0`, `-1 0 1` |
//! | `{0..10..4}`, `{10..1..3}` | `0 4 8`, `10 7 4 1`: the step's sign is ignored, a step of 0 is 1 |
//! | `{a..e..2}`, `{Y..b}` | `a c e`, `Y Z a b`: letters only |
//! | `{a,b}{1..2}`, `{a,b{1,2}}`, `x{,y}` | `a1 a2 b1 b2`, `a b1 b2`, `x xy` |
//! | `{x}`, `{}`, `{1..a}` | left as they are |
//! | `\{`, `\,`, `\\` | the character itself, without its meaning |
//!
//! As in `braceexpand`, escapes are taken off once for each level of braces. Unlike there, a `}` before its
//! `{` is an error, and so are an expansion without reasonable bounds and a range of digits other than 0 to
//! 9, such as `{٠..٩}`, which Python counts and Bash leaves as it is.

use crate::error::{Error, ErrorKind, Result};

/// The deepest nesting of braces.
const MAX_DEPTH: usize = 100;
/// The most digits to which a number is padded; what the standard library formats is limited, too.
const MAX_WIDTH: usize = 1000;
/// The most bytes that an expansion may take in all.
const MAX_BYTES: u64 = 1 << 30;

/// Expands the braces of `pattern` to at most `limit` strings.
///
/// ```
/// use shardstream::shards::braces;
///
/// assert_eq!(braces::expand("{08..10}.{a,b}", 100)?, ["08.a", "08.b", "09.a", "09.b", "10.a", "10.b"]);
/// # Ok::<(), shardstream::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Pattern`] when braces are not balanced or nested more than 100 deep, when a number does not
/// fit 64 bits, is padded to more than 1000 digits or has digits other than 0 to 9, and when there would be
/// more than `limit` strings or 1 GiB of them. What is too large costs no memory: it is counted before it is
/// made.
pub fn expand(pattern: &str, limit: usize) -> Result<Vec<String>> {
    expand_traced(pattern, &mut Budget::new(limit)).map_err(|fault| fault.in_pattern(pattern))
}

/// What is wrong with a pattern, and at which byte.
#[derive(Debug)]
pub(super) struct Fault {
    position: usize,
    message: String,
}

impl Fault {
    pub(super) fn new(position: usize, message: impl Into<String>) -> Self {
        Fault { position, message: message.into() }
    }

    /// The same fault, in the text whose bytes are at `origin`.
    pub(super) fn traced(self, origin: &[usize]) -> Self {
        Fault { position: origin[self.position], ..self }
    }

    pub(super) fn in_pattern(self, pattern: &str) -> Error {
        ErrorKind::Pattern { pattern: pattern.into(), position: self.position, message: self.message }.into()
    }
}

/// How much may still be made.
pub(super) struct Budget {
    limit: usize,
    left: Size,
}

impl Budget {
    pub(super) fn new(limit: usize) -> Self {
        Budget { limit, left: Size { count: limit as u64, bytes: MAX_BYTES } }
    }
}

/// [`expand`], for callers who expand several patterns on one budget.
pub(super) fn expand_traced(pattern: &str, budget: &mut Budget) -> Result<Vec<String>, Fault> {
    let parsed = Parser { text: pattern, at: 0 }.sequence(0)?;
    parsed.charge(budget)?;
    Ok(parsed.expand())
}

/// Parts that follow each other: their options multiply.
struct Sequence<'a>(Vec<Part<'a>>);

struct Part<'a> {
    position: usize,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Literal(&'a str),
    Numbers { start: i64, end: i64, step: u64, width: usize },
    Letters { start: u8, end: u8, step: u64 },
    Choice(Vec<Sequence<'a>>),
}

/// How much something expands to. Saturates.
#[derive(Clone, Copy)]
struct Size {
    count: u64,
    bytes: u64,
}

impl Size {
    const ONE: Size = Size { count: 1, bytes: 0 };

    fn times(self, other: Size) -> Size {
        Size {
            count: self.count.saturating_mul(other.count),
            bytes: (self.bytes.saturating_mul(other.count))
                .saturating_add(other.bytes.saturating_mul(self.count)),
        }
    }

    fn plus(self, other: Size) -> Size {
        Size { count: self.count.saturating_add(other.count), bytes: self.bytes.saturating_add(other.bytes) }
    }
}

impl Sequence<'_> {
    fn size(&self) -> Size {
        self.0.iter().fold(Size::ONE, |size, part| size.times(part.kind.size()))
    }

    fn charge(&self, budget: &mut Budget) -> Result<(), Fault> {
        let mut size = Size::ONE;
        for part in &self.0 {
            size = size.times(part.kind.size());
            let (what, limit) = match size {
                Size { count, .. } if count > budget.left.count => ("names", budget.limit as u64),
                Size { bytes, .. } if bytes > budget.left.bytes => ("bytes", MAX_BYTES),
                _ => continue,
            };
            return Err(Fault::new(
                part.position,
                format!("from here on there are more than {limit} {what} in all"),
            ));
        }
        budget.left.count -= size.count.min(budget.left.count);
        budget.left.bytes -= size.bytes;
        Ok(())
    }

    fn expand(&self) -> Vec<String> {
        let mut all = vec![String::new()];
        for part in &self.0 {
            match &*part.kind.options() {
                [only] => all.iter_mut().for_each(|head| head.push_str(only)),
                options => {
                    let joined = |head: &String, tail: &String| [head.as_str(), tail].concat();
                    all = all
                        .iter()
                        .flat_map(|head| options.iter().map(move |tail| joined(head, tail)))
                        .collect();
                }
            }
        }
        all.iter_mut().for_each(unescape);
        all
    }
}

impl Kind<'_> {
    fn size(&self) -> Size {
        let evenly = |count: u64, length: usize| Size { count, bytes: count.saturating_mul(length as u64) };
        match self {
            Kind::Literal(text) => evenly(1, text.len()),
            Kind::Numbers { start, end, step, width } => {
                let longest = [start, end].map(|n| n.to_string().len());
                evenly(
                    (start.abs_diff(*end) / step).saturating_add(1),
                    longest[0].max(longest[1]).max(*width),
                )
            }
            Kind::Letters { start, end, step } => evenly(u64::from(start.abs_diff(*end)) / step + 1, 1),
            Kind::Choice(alternatives) => {
                alternatives.iter().map(Sequence::size).fold(Size { count: 0, bytes: 0 }, Size::plus)
            }
        }
    }

    fn options(&self) -> Vec<String> {
        match self {
            Kind::Literal(text) => vec![(*text).to_owned()],
            &Kind::Numbers { start, end, step, width } => walk(i128::from(start), i128::from(end), step)
                .map(|number| format!("{number:0width$}"))
                .collect(),
            &Kind::Letters { start, end, step } => walk(i128::from(start), i128::from(end), step)
                .map(|index| char::from(ALPHABET[index as usize]).to_string())
                .collect(),
            Kind::Choice(alternatives) => alternatives.iter().flat_map(Sequence::expand).collect(),
        }
    }
}

/// The numbers from `start` to `end`, both included, upwards or downwards.
fn walk(start: i128, end: i128, step: u64) -> impl Iterator<Item = i128> {
    let (count, step) = ((start - end).abs() / i128::from(step), i128::from(step));
    (0..=count).map(move |i| if start < end { start + i * step } else { start - i * step })
}

const ALPHABET: &[u8; 52] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Takes the backslash off every escaped character. One at the end, or before a line feed, stays.
fn unescape(text: &mut String) {
    if !text.contains('\\') {
        return;
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        let escaped = if char == '\\' { chars.next_if(|&next| next != '\n') } else { None };
        plain.push(escaped.unwrap_or(char));
    }
    *text = plain;
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

// All characters with a meaning are ASCII: they are never found inside a longer character, and slices between
// them are valid UTF-8.
impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Reads to the end of the text or, inside braces, to the `,` or `}` that ends this alternative.
    fn sequence(&mut self, depth: usize) -> Result<Sequence<'a>, Fault> {
        let mut parts = Vec::new();
        loop {
            parts.push(self.literal(depth));
            match self.peek() {
                Some(b'{') => self.braces(depth + 1, &mut parts)?,
                Some(b'}') if depth == 0 => {
                    return Err(Fault::new(self.at, "unbalanced braces: this `}` closes nothing"));
                }
                _ => return Ok(Sequence(parts)),
            }
        }
    }

    /// Reads to the next brace, and inside braces to the next comma.
    fn literal(&mut self, depth: usize) -> Part<'a> {
        let position = self.at;
        while let Some(next) = self.peek() {
            match next {
                b'{' | b'}' => break,
                b',' if depth > 0 => break,
                b'\\' => self.at = (self.at + 2).min(self.text.len()),
                _ => self.at += 1,
            }
        }
        Part { position, kind: Kind::Literal(&self.text[position..self.at]) }
    }

    /// Reads from a `{` to its `}`.
    fn braces(&mut self, depth: usize, parts: &mut Vec<Part<'a>>) -> Result<(), Fault> {
        let open = self.at;
        if depth > MAX_DEPTH {
            return Err(Fault::new(open, format!("braces are nested more than {MAX_DEPTH} deep")));
        }
        let mut alternatives = Vec::new();
        loop {
            self.at += 1;
            alternatives.push(self.sequence(depth)?);
            match self.peek() {
                Some(b',') => {}
                Some(_) => break,
                None => return Err(Fault::new(open, "unbalanced braces: this `{` is never closed")),
            }
        }
        let close = self.at;
        self.at += 1;
        let part = |position, kind| Part { position, kind };
        if let Some(range) = range(&self.text[open + 1..close]) {
            parts.push(part(open, range.map_err(|message| Fault::new(open + 1, message))?));
        } else if alternatives.len() > 1 {
            parts.push(part(open, Kind::Choice(alternatives)));
        } else {
            parts.push(part(open, Kind::Literal("{")));
            parts.push(part(open, Kind::Choice(alternatives)));
            parts.push(part(close, Kind::Literal("}")));
        }
        Ok(())
    }
}

/// Reads `1..9`, `a..e`, and either with a `..step`; none when the text is no range.
fn range<'a>(text: &str) -> Option<Result<Kind<'a>, &'static str>> {
    let (start, rest) = text.split_once("..")?;
    let (end, step) = rest.split_once("..").map_or((rest, "1"), |ends| ends);
    if !text.is_ascii() && [start, end, step].into_iter().all(is_numeric) {
        return Some(Err("the digits of a range are 0 to 9"));
    }
    if !is_integer(step) {
        return None;
    }
    // A step too large for the type is larger than any range.
    let step = step.trim_start_matches('-').parse().unwrap_or(u64::MAX).max(1);
    if is_integer(start) && is_integer(end) {
        let width = if is_padded(start) || is_padded(end) { start.len().max(end.len()) } else { 0 };
        return Some(match (start.parse(), end.parse()) {
            (Ok(start), Ok(end)) if width <= MAX_WIDTH => Ok(Kind::Numbers { start, end, step, width }),
            _ => Err("a number of this range has too many digits"),
        });
    }
    Some(Ok(Kind::Letters { start: letter(start)?, end: letter(end)?, step }))
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether it would be an integer if digits of all scripts were digits.
fn is_numeric(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.chars().all(char::is_numeric)
}

fn is_padded(integer: &str) -> bool {
    !matches!(integer, "0" | "-0") && integer.trim_start_matches('-').starts_with('0')
}

fn letter(text: &str) -> Option<u8> {
    let &[byte] = text.as_bytes() else { return None };
    ALPHABET.iter().position(|&letter| letter == byte).map(|index| index as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn fault(pattern: &str, limit: usize) -> (usize, String) {
        match expand(pattern, limit).unwrap_err().kind() {
            ErrorKind::Pattern { position, message, pattern: given } => {
                assert_eq!(given, pattern);
                (*position, message.clone())
            }
            other => panic!("{other}"),
        }
    }

    #[test]
    fn does_what_python_does() {
        let table = include_str!("../../tests/data/braces.json");
        let table: BTreeMap<String, Option<Vec<String>>> = match serde_json::from_str(table).unwrap() {
            serde_json::Value::Object(rows) => rows
                .into_iter()
                .map(|(pattern, expanded)| {
                    let list = expanded.as_array().map(|all| {
                        all.iter().map(|one| one.as_str().unwrap().to_owned()).collect::<Vec<_>>()
                    });
                    (pattern, list)
                })
                .collect(),
            _ => panic!("the table is an object"),
        };
        assert!(table.len() > 1000);
        for (pattern, expected) in table {
            assert_eq!(expand(&pattern, 1000).ok(), expected, "{pattern}");
        }
    }

    #[test]
    fn unbalanced_braces_are_pointed_at() {
        for (pattern, position) in
            [("a{", 1), ("é}", 2), ("a{b{c}", 1), ("{a,b}}", 5), ("}{", 0), ("{a}{b,{c}", 3), (r"{a\}", 0)]
        {
            let (at, message) = fault(pattern, 10);
            assert!(message.starts_with("unbalanced"), "{pattern}: {message}");
            assert_eq!(at, position, "{pattern}");
        }
    }

    #[test]
    fn too_much_is_counted_and_not_made() {
        assert_eq!(fault("x{0..99999999999}", 1000).0, 1);
        assert_eq!(fault(&"{a,b}".repeat(60), 1000).0, 5 * 9);
        assert_eq!(fault("{-9223372036854775808..9223372036854775807}", usize::MAX).0, 0);
        assert_eq!(fault("{1..18446744073709551616}", 1000).0, 1);
        assert!(fault(&"{".repeat(200_000), 1000).1.contains("deep"));
        assert!(fault(&format!("{}x{}", "{a,".repeat(101), "}".repeat(101)), 1000).1.contains("deep"));
        assert!(fault(&format!("{{{}1..2}}", "0".repeat(1 << 20)), 1000).1.contains("digits"));
        assert!(fault(&format!("{}{{1..100000}}", "x".repeat(1 << 20)), usize::MAX).1.contains("bytes"));
        assert_eq!(expand("{1..1000}", 1000).unwrap().len(), 1000);
        assert_eq!(fault("{0..1000}", 1000).0, 0);
    }

    #[test]
    fn digits_of_other_scripts_are_pointed_at() {
        for pattern in ["s-{٠..٣}", "s-{0..٣}", "s-{1..9..٢}", "s-{-１..3}"] {
            let (at, message) = fault(pattern, 100);
            assert!(at == 3 && message.contains("0 to 9"), "{pattern}: {at} {message}");
        }
        assert_eq!(expand("{é..ü}-{٠,٣}", 9).unwrap(), ["{é..ü}-٠", "{é..ü}-٣"]);
    }

    #[test]
    fn a_line_feed_is_not_escaped() {
        assert_eq!(expand("a\\\n{b,c}", 9).unwrap(), ["a\\\nb", "a\\\nc"]);
    }

    proptest! {
        #[test]
        fn never_panics_and_counts_right(pattern in r"([{},\\\-ab é019]|\.\.|\{[0-9]\.\.[0-9]\}){0,24}") {
            match expand(&pattern, 500) {
                Ok(all) => {
                    prop_assert!((1..=500).contains(&all.len()));
                    let counted = Parser { text: &pattern, at: 0 }.sequence(0).unwrap().size();
                    prop_assert_eq!(counted.count, all.len() as u64);
                    prop_assert!(all.iter().map(|one| one.len() as u64).sum::<u64>() <= counted.bytes);
                }
                Err(error) => match error.kind() {
                    ErrorKind::Pattern { position, .. } => prop_assert!(pattern.is_char_boundary(*position)),
                    other => prop_assert!(false, "{other}"),
                },
            }
        }

        #[test]
        fn text_without_braces_stays(text in r"[^{}\\]{0,40}") {
            prop_assert_eq!(expand(&text, 1).unwrap(), [text]);
        }
    }
}
