//! Brace notation: `train-{000..146}.tar` expands to 147 names.
//!
//! The rules are those of Bash, as implemented by Python's package `braceexpand`, which WebDataset uses:
//!
//! | pattern | expands to |
//! |---|---|
//! | `s-{000..003}` | `s-000 s-001 s-002 s-003`: a leading zero pads all numbers to the longest operand |
//! | `{3..0}`, `{-1..1}` | `3 2 1 0`, `-1 0 1` |
//! | `{0..10..4}`, `{10..1..3}` | `0 4 8`, `10 7 4 1`: the step's sign is ignored, a step of 0 is 1 |
//! | `{a..e..2}`, `{Y..b}` | `a c e`, `Y Z a b`: letters only |
//! | `{a,b}{1..2}`, `{a,b{1,2}}`, `x{,y}` | `a1 a2 b1 b2`, `a b1 b2`, `x xy` |
//! | `{x}`, `{}`, `{1..a}` | unchanged |
//! | `\{`, `\,`, `\\` | the character itself, without its special meaning |
//!
//! As in `braceexpand`, escapes are removed once for each level of braces. There are three differences from
//! `braceexpand`: a `}` before its `{` is an error; an expansion that is too large is an error; and a range
//! with digits other than 0 to 9, such as `{٠..٩}`, is an error (Python expands such a range, Bash does not).

use crate::error::{Error, ErrorKind, Result};

/// Maximum depth of nested braces.
const MAX_DEPTH: usize = 100;
/// Maximum number of digits to which a number is padded. The formatting functions of the standard library
/// have a limit too.
const MAX_WIDTH: usize = 1000;
/// Maximum total size of an expansion in bytes.
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
/// [`ErrorKind::Pattern`] if braces are not balanced or are nested more than 100 deep; if a number does not
/// fit into 64 bits, is padded to more than 1000 digits or has digits other than 0 to 9; or if the expansion
/// would have more than `limit` strings or 1 GiB. The size is computed before any string is made, so no
/// memory is allocated for an expansion that is too large.
pub fn expand(pattern: &str, limit: usize) -> Result<Vec<String>> {
    expand_traced(pattern, &mut ExpansionBudget::new(limit)).map_err(|fault| fault.in_pattern(pattern))
}

/// An error in a pattern, with its byte position.
#[derive(Debug)]
pub(super) struct PatternFault {
    position: usize,
    message: String,
}

impl PatternFault {
    pub(super) fn new(position: usize, message: impl Into<String>) -> Self {
        PatternFault { position, message: message.into() }
    }

    /// The same fault with its position in the original text. Byte `i` of the current text is byte
    /// `origin[i]` of the original text.
    pub(super) fn traced(self, origin: &[usize]) -> Self {
        PatternFault { position: origin[self.position], ..self }
    }

    pub(super) fn in_pattern(self, pattern: &str) -> Error {
        ErrorKind::Pattern { pattern: pattern.into(), position: self.position, message: self.message }.into()
    }
}

/// The maximum size of all further expansions together.
pub(super) struct ExpansionBudget {
    limit: usize,
    left: ExpansionSize,
}

impl ExpansionBudget {
    pub(super) fn new(limit: usize) -> Self {
        ExpansionBudget { limit, left: ExpansionSize { count: limit as u64, bytes: MAX_BYTES } }
    }
}

/// Like [`expand`], but subtracts the size of the expansion from `budget`, which several patterns can share.
pub(super) fn expand_traced(
    pattern: &str,
    budget: &mut ExpansionBudget,
) -> Result<Vec<String>, PatternFault> {
    let parsed = BraceParser { text: pattern, at: 0 }.sequence(0)?;
    parsed.charge(budget)?;
    Ok(parsed.expand())
}

/// Parts that follow each other. Each part has a number of options. The product of these numbers is the
/// number of expansions.
struct PartSequence<'a>(Vec<PatternPart<'a>>);

struct PatternPart<'a> {
    position: usize,
    kind: PartKind<'a>,
}

enum PartKind<'a> {
    Literal(&'a str),
    Numbers { start: i64, end: i64, step: u64, width: usize },
    Letters { start: u8, end: u8, step: u64 },
    Choice(Vec<PartSequence<'a>>),
}

/// The size of an expansion, with saturating arithmetic.
#[derive(Clone, Copy)]
struct ExpansionSize {
    /// Number of strings.
    count: u64,
    bytes: u64,
}

impl ExpansionSize {
    const ONE: ExpansionSize = ExpansionSize { count: 1, bytes: 0 };

    fn times(self, other: ExpansionSize) -> ExpansionSize {
        ExpansionSize {
            count: self.count.saturating_mul(other.count),
            bytes: (self.bytes.saturating_mul(other.count))
                .saturating_add(other.bytes.saturating_mul(self.count)),
        }
    }

    fn plus(self, other: ExpansionSize) -> ExpansionSize {
        ExpansionSize {
            count: self.count.saturating_add(other.count),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

impl PartSequence<'_> {
    fn size(&self) -> ExpansionSize {
        self.0.iter().fold(ExpansionSize::ONE, |size, part| size.times(part.kind.size()))
    }

    fn charge(&self, budget: &mut ExpansionBudget) -> Result<(), PatternFault> {
        let mut size = ExpansionSize::ONE;
        for part in &self.0 {
            size = size.times(part.kind.size());
            let (what, limit) = match size {
                ExpansionSize { count, .. } if count > budget.left.count => ("names", budget.limit as u64),
                ExpansionSize { bytes, .. } if bytes > budget.left.bytes => ("bytes", MAX_BYTES),
                _ => continue,
            };
            return Err(PatternFault::new(
                part.position,
                format!("here the expansion exceeds the limit of {limit} {what}"),
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

impl PartKind<'_> {
    fn size(&self) -> ExpansionSize {
        let evenly =
            |count: u64, length: usize| ExpansionSize { count, bytes: count.saturating_mul(length as u64) };
        match self {
            PartKind::Literal(text) => evenly(1, text.len()),
            PartKind::Numbers { start, end, step, width } => {
                let longest = [start, end].map(|n| n.to_string().len());
                evenly(
                    (start.abs_diff(*end) / step).saturating_add(1),
                    longest[0].max(longest[1]).max(*width),
                )
            }
            PartKind::Letters { start, end, step } => evenly(u64::from(start.abs_diff(*end)) / step + 1, 1),
            PartKind::Choice(alternatives) => alternatives
                .iter()
                .map(PartSequence::size)
                .fold(ExpansionSize { count: 0, bytes: 0 }, ExpansionSize::plus),
        }
    }

    fn options(&self) -> Vec<String> {
        match self {
            PartKind::Literal(text) => vec![(*text).to_owned()],
            &PartKind::Numbers { start, end, step, width } => walk(i128::from(start), i128::from(end), step)
                .map(|number| format!("{number:0width$}"))
                .collect(),
            &PartKind::Letters { start, end, step } => walk(i128::from(start), i128::from(end), step)
                .map(|index| char::from(ALPHABET[index as usize]).to_string())
                .collect(),
            PartKind::Choice(alternatives) => alternatives.iter().flat_map(PartSequence::expand).collect(),
        }
    }
}

/// The numbers from `start` to `end`, both included, ascending or descending.
fn walk(start: i128, end: i128, step: u64) -> impl Iterator<Item = i128> {
    let (count, step) = ((start - end).abs() / i128::from(step), i128::from(step));
    (0..=count).map(move |i| if start < end { start + i * step } else { start - i * step })
}

const ALPHABET: &[u8; 52] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Removes the backslash of every escaped character. A backslash at the end or before a line feed is kept.
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

struct BraceParser<'a> {
    text: &'a str,
    at: usize,
}

// All special characters are ASCII: they never occur inside a longer character, and slices between them are
// valid UTF-8.
impl<'a> BraceParser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Parses to the end of the text. Inside braces, parses to the `,` or `}` that ends this alternative.
    fn sequence(&mut self, depth: usize) -> Result<PartSequence<'a>, PatternFault> {
        let mut parts = Vec::new();
        loop {
            parts.push(self.literal(depth));
            match self.peek() {
                Some(b'{') => self.braces(depth + 1, &mut parts)?,
                Some(b'}') if depth == 0 => {
                    return Err(PatternFault::new(self.at, "unbalanced braces: this `}` has no `{`"));
                }
                _ => return Ok(PartSequence(parts)),
            }
        }
    }

    /// Parses to the next brace. Inside braces, also stops at the next comma.
    fn literal(&mut self, depth: usize) -> PatternPart<'a> {
        let position = self.at;
        while let Some(next) = self.peek() {
            match next {
                b'{' | b'}' => break,
                b',' if depth > 0 => break,
                b'\\' => self.at = (self.at + 2).min(self.text.len()),
                _ => self.at += 1,
            }
        }
        PatternPart { position, kind: PartKind::Literal(&self.text[position..self.at]) }
    }

    /// Parses from a `{` to its `}`.
    fn braces(&mut self, depth: usize, parts: &mut Vec<PatternPart<'a>>) -> Result<(), PatternFault> {
        let open = self.at;
        if depth > MAX_DEPTH {
            return Err(PatternFault::new(open, format!("braces are nested more than {MAX_DEPTH} deep")));
        }
        let mut alternatives = Vec::new();
        loop {
            self.at += 1;
            alternatives.push(self.sequence(depth)?);
            match self.peek() {
                Some(b',') => {}
                Some(_) => break,
                None => return Err(PatternFault::new(open, "unbalanced braces: this `{` is never closed")),
            }
        }
        let close = self.at;
        self.at += 1;
        let part = |position, kind| PatternPart { position, kind };
        if let Some(range) = range(&self.text[open + 1..close]) {
            parts.push(part(open, range.map_err(|message| PatternFault::new(open + 1, message))?));
        } else if alternatives.len() > 1 {
            parts.push(part(open, PartKind::Choice(alternatives)));
        } else {
            parts.push(part(open, PartKind::Literal("{")));
            parts.push(part(open, PartKind::Choice(alternatives)));
            parts.push(part(close, PartKind::Literal("}")));
        }
        Ok(())
    }
}

/// Parses `1..9` and `a..e`, with or without a `..step`. Returns `None` if the text is not a range.
fn range<'a>(text: &str) -> Option<Result<PartKind<'a>, &'static str>> {
    let (start, rest) = text.split_once("..")?;
    let (end, step) = rest.split_once("..").unwrap_or((rest, "1"));
    if !text.is_ascii() && [start, end, step].into_iter().all(is_numeric) {
        return Some(Err("the digits of a range are 0 to 9"));
    }
    if !is_integer(step) {
        return None;
    }
    // A step that does not fit into 64 bits is larger than any range.
    let step = step.trim_start_matches('-').parse().unwrap_or(u64::MAX).max(1);
    if is_integer(start) && is_integer(end) {
        let width = if is_padded(start) || is_padded(end) { start.len().max(end.len()) } else { 0 };
        return Some(match (start.parse(), end.parse()) {
            (Ok(start), Ok(end)) if width <= MAX_WIDTH => Ok(PartKind::Numbers { start, end, step, width }),
            _ => Err("a number of this range has too many digits"),
        });
    }
    Some(Ok(PartKind::Letters { start: letter(start)?, end: letter(end)?, step }))
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether the text is an integer in digits of any script.
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
mod tests;
