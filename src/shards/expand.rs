//! Expands a pattern to URLs: splits it at `::`, then replaces `${NAME}`, then expands braces. Errors contain
//! their byte position in the original pattern.

use super::braces::{ExpansionBudget, PatternFault, expand_traced};
use super::glob;
use crate::error::{Error, ErrorKind, Result};
use std::ops::Range;

/// Maximum depth to which the values of variables may contain other variables.
const MAX_ROUNDS: usize = 10;
/// Maximum length in bytes of a text after its variables were replaced.
const MAX_LENGTH: usize = 1 << 20;

/// How wildcards are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wildcards {
    /// Wildcards are an error.
    Refused,
    /// Wildcards are kept for a later listing. In the URL of a web server, a wildcard is an error, because
    /// web servers cannot be listed.
    Listed,
}

/// Appends the URLs of `pattern` to `urls`.
pub(super) fn expand(
    pattern: &str,
    variable: &dyn Fn(&str) -> Option<String>,
    wildcards: Wildcards,
    budget: &mut ExpansionBudget,
    urls: &mut Vec<String>,
) -> Result<()> {
    let mut offset = 0;
    for piece in pattern.split("::") {
        let before = urls.len();
        let text = Traced::new(piece, offset).substitute_all(pattern, variable)?;
        let expanded = expand_traced(&text.text, budget);
        urls.extend(expanded.map_err(|fault| fault.traced(&text.origin).in_pattern(pattern))?);
        if urls[before..].iter().any(String::is_empty) {
            return Err(PatternFault::new(offset, "this expands to an empty URL").in_pattern(pattern));
        }
        if let Some(fault) = text.wildcard_fault(&urls[before..], wildcards) {
            return Err(fault.in_pattern(pattern));
        }
        offset += piece.len() + "::".len();
    }
    Ok(())
}

/// A text, and for each byte of the text its position in the original pattern.
#[derive(Default)]
struct Traced {
    text: String,
    origin: Vec<usize>,
}

impl Traced {
    fn new(piece: &str, offset: usize) -> Self {
        Traced { text: piece.to_owned(), origin: (offset..offset + piece.len()).collect() }
    }

    fn substitute_all(mut self, pattern: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        for _ in 0..MAX_ROUNDS {
            if find_variable(&self.text, 0).is_none() {
                return Ok(self);
            }
            self = self.substitute(pattern, variable)?;
        }
        match find_variable(&self.text, 0) {
            None => Ok(self),
            Some(at) => {
                let message = format!(
                    "the values of variables refer to further variables more than {MAX_ROUNDS} deep: check \
                     for variables that refer to each other"
                );
                Err(PatternFault::new(self.origin[at.start], message).in_pattern(pattern))
            }
        }
    }

    /// The error for the first of `urls` with a wildcard that is not allowed. `urls` is the expansion of this
    /// text.
    fn wildcard_fault(&self, urls: &[String], wildcards: Wildcards) -> Option<PatternFault> {
        if !self.text.contains(glob::WILDCARDS) {
            return None;
        }
        urls.iter().find_map(|url| {
            let (at, message) = match (glob::star_of_web(url), wildcards) {
                (Some(at), _) => (
                    at,
                    "a web server cannot be listed: name the shards with braces, as in `s-{000..146}.tar`, \
                     or pass URLs whose names contain a `*` to `ShardList::from_urls`",
                ),
                (None, Wildcards::Refused) => (
                    glob::first_wildcard(url)?,
                    "wildcards need a listing, but nothing is listed here: pass the pattern to \
                     `Dataset::builder` or `dataset::Shards::resolve`, or pass names that contain such \
                     characters to `ShardList::from_urls`",
                ),
                (None, Wildcards::Listed) => return None,
            };
            let wildcard = url[at..].chars().next()?;
            let number = url[..at].matches(wildcard).count();
            let position =
                |number| self.text.match_indices(wildcard).nth(number).map(|(at, _)| self.origin[at]);
            // If the text has alternatives in braces, this may be the position of a wildcard that belongs to
            // another URL.
            Some(PatternFault::new(position(number).or_else(|| position(0))?, message))
        })
    }

    /// Replaces each `${NAME}` once.
    fn substitute(&self, pattern: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let mut replaced = Traced::default();
        let mut done = 0;
        while let Some(found) = find_variable(&self.text, done) {
            let name = &self.text[found.start + "${".len()..found.end - "}".len()];
            let value = variable(name).ok_or_else(|| missing(pattern, name))?;
            let origin = self.origin[found.start];
            replaced.copy(self, done..found.start);
            replaced.text.push_str(&value);
            replaced.origin.resize(replaced.text.len(), origin);
            if replaced.text.len() > MAX_LENGTH {
                let message = format!("variables make this longer than {MAX_LENGTH} bytes");
                return Err(PatternFault::new(origin, message).in_pattern(pattern));
            }
            done = found.end;
        }
        replaced.copy(self, done..self.text.len());
        Ok(replaced)
    }

    fn copy(&mut self, from: &Traced, range: Range<usize>) {
        self.text.push_str(&from.text[range.clone()]);
        self.origin.extend_from_slice(&from.origin[range]);
    }
}

/// The range of the first `${NAME}` from byte `start` on.
fn find_variable(text: &str, start: usize) -> Option<Range<usize>> {
    let in_name = |char: char| char.is_alphanumeric() || char == '_';
    text[start..].match_indices("${").find_map(|(at, open)| {
        let at = start + at;
        let name = &text[at + open.len()..];
        let length = name.find(|char| !in_name(char))?;
        (length > 0 && name[length..].starts_with('}')).then_some(at..at + open.len() + length + 1)
    })
}

fn missing(pattern: &str, name: &str) -> Error {
    ErrorKind::MissingVariable { pattern: pattern.into(), name: name.to_owned() }.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(pattern: &str) -> Result<Vec<String>> {
        let variables = |name: &str| {
            let value = match name {
                "BUCKET" => "gs://b",
                "DIR" => "${BUCKET}/dir",
                "RANGE" => "{0..2}",
                "TWO" => "x::y",
                "OPEN" => "ab{",
                "LOOP" => "a${LOOP}",
                "SAME" => "${SAME}",
                "BOMB" => "${BOMB}${BOMB}${BOMB}${BOMB}${BOMB}${BOMB}${BOMB}${BOMB}",
                "EMPTY" => "",
                "Größe" => "7",
                _ => match name.strip_prefix('N')?.parse::<u32>().ok()? {
                    0 => "end",
                    n => return Some(format!("${{N{}}}", n - 1)),
                },
            };
            Some(value.to_owned())
        };
        let mut urls = Vec::new();
        expand(pattern, &variables, Wildcards::Listed, &mut ExpansionBudget::new(1000), &mut urls)
            .map(|()| urls)
    }

    fn position(pattern: &str) -> usize {
        match run(pattern).unwrap_err().kind() {
            ErrorKind::Pattern { position, pattern: given, .. } => {
                assert_eq!(given, pattern);
                *position
            }
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_pattern_is_split_then_variables_are_replaced_then_braces_expanded() {
        let cases: &[(&str, &[&str])] = &[
            ("a::b{1,2}::c", &["a", "b1", "b2", "c"]),
            ("${DIR}/x", &["gs://b/dir/x"]),
            ("s-${RANGE}", &["s-0", "s-1", "s-2"]),
            ("${TWO}", &["x::y"]),
            ("$HOME/$${BUCKET}", &["$HOME/$gs://b"]),
            ("${}${a-b}${", &[]),
            ("${a b}", &["${a b}"]),
            ("v${Größe}", &["v7"]),
            ("${N9}", &["end"]),
        ];
        for (pattern, expected) in cases {
            assert_eq!(run(pattern).unwrap_or_default(), *expected, "{pattern}");
        }
    }

    #[test]
    fn errors_have_their_position_in_the_original_pattern() {
        assert_eq!(position("a::b{"), 4);
        assert_eq!(position("${BUCKET}/x{"), 11);
        assert_eq!(position("a::x${OPEN}"), 4, "an error in a value is at its variable");
        assert_eq!(position("a::"), 3);
        assert_eq!(position("a::::b"), 3);
        assert_eq!(position("a::${EMPTY}"), 3);
        assert_eq!(position("x{,y}::{,z}"), 7);
        assert_eq!(position("{0..900}::{0..900}"), 10, "the limit is for all pieces together");
    }

    #[test]
    fn circular_and_exploding_variables_are_errors() {
        for pattern in ["x${LOOP}", "x${SAME}", "x${BOMB}", "x${N10}"] {
            assert_eq!(position(pattern), 1, "{pattern}");
        }
    }

    #[test]
    fn a_missing_variable_is_named() {
        let error = run("gs://${BUCKET}/${NOWHERE}").unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::MissingVariable { name, .. } if name == "NOWHERE"),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn expanding_never_panics(pattern in r"(\$|\{|\}|::|\$\{(DIR|RANGE|OPEN|LOOP|TWO)\}|[a,é\\]){0,12}") {
            if let Err(error) = run(&pattern)
                && let ErrorKind::Pattern { position, .. } = error.kind()
            {
                prop_assert!(pattern.is_char_boundary(*position));
            }
        }
    }
}
