//! `Yaml`: a YAML document as a tree. Every value has the number of its line.

use super::names::suggestion;
use saphyr_parser::{Event, Parser, ScalarStyle};

/// Maximum depth of nested lists and maps.
const MAX_DEPTH: usize = 64;

/// A value with the number of its line, from 1.
#[derive(Debug)]
pub(super) struct Yaml {
    pub(super) line: usize,
    pub(super) value: YamlValue,
}

#[derive(Debug)]
pub(super) enum YamlValue {
    /// A text, and whether it is quoted.
    Scalar(String, bool),
    List(Vec<Yaml>),
    Map(Vec<YamlEntry>),
}

/// A key of a map, and its value.
#[derive(Debug)]
pub(super) struct YamlEntry {
    pub(super) line: usize,
    pub(super) key: String,
    pub(super) value: Yaml,
}

/// A list or map that has not ended.
enum OpenNode {
    /// The line, and the values that have been added.
    List(usize, Vec<Yaml>),
    /// The line, the entries that have been added, and, if a value comes next, the key of this value with its
    /// line.
    Map(usize, Vec<YamlEntry>, Option<(String, usize)>),
}

impl Yaml {
    /// Parses a document.
    ///
    /// # Errors
    /// A message with the line, if the text is not YAML, or has several documents, a repeated key, a key that
    /// is not text, an alias or a tag. No mixture needs aliases or tags, and with aliases the tree could be
    /// far larger than the text.
    pub(super) fn parse(text: &str) -> Result<Yaml, String> {
        let mut parser = Parser::new_from_str(text);
        let (mut root, mut open) = (None, Vec::new());
        while let Some(event) = parser.next_event() {
            let (event, span) =
                event.map_err(|error| format!("line {}: {}", error.marker().line(), error.info()))?;
            let line = span.start.line();
            let unsupported = |what: &str| Err(format!("line {line}: {what}"));
            let node = match event {
                Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => continue,
                Event::DocumentStart(_) if root.is_some() => return unsupported("a second document begins"),
                Event::DocumentStart(_) => continue,
                Event::Alias(_) => return unsupported("an alias (`*`) is not supported: repeat the value"),
                Event::Scalar(_, _, _, Some(tag))
                | Event::SequenceStart(_, Some(tag))
                | Event::MappingStart(_, Some(tag)) => {
                    return unsupported(&format!("the tag `{tag}` is not supported"));
                }
                Event::SequenceStart(..) | Event::MappingStart(..) if open.len() >= MAX_DEPTH => {
                    return unsupported(&format!("values are nested more than {MAX_DEPTH} deep"));
                }
                Event::SequenceStart(..) => {
                    open.push(OpenNode::List(line, Vec::new()));
                    continue;
                }
                Event::MappingStart(..) => {
                    open.push(OpenNode::Map(line, Vec::new(), None));
                    continue;
                }
                Event::Scalar(text, style, ..) => {
                    let value = YamlValue::Scalar(text.into_owned(), style != ScalarStyle::Plain);
                    Yaml { line, value }
                }
                Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                    Some(OpenNode::List(line, list)) => Yaml { line, value: YamlValue::List(list) },
                    Some(OpenNode::Map(line, entries, _)) => {
                        check_unique(&entries)?;
                        Yaml { line, value: YamlValue::Map(entries) }
                    }
                    None => continue,
                },
            };
            add_node(node, &mut open, &mut root)?;
        }
        root.ok_or_else(|| "it is empty".to_owned())
    }

    /// An error about this value.
    pub(super) fn error(&self, what: impl std::fmt::Display) -> String {
        format!("line {}: {what}", self.line)
    }

    pub(super) fn map(&self, name: &str) -> Result<&[YamlEntry], String> {
        match &self.value {
            YamlValue::Map(entries) => Ok(entries),
            _ => Err(self.error(format_args!("{name} must be a map"))),
        }
    }

    pub(super) fn list(&self, name: &str) -> Result<&[Yaml], String> {
        match &self.value {
            YamlValue::List(list) => Ok(list),
            _ => Err(self.error(format_args!("{name} must be a list"))),
        }
    }

    pub(super) fn text(&self, name: &str) -> Result<&str, String> {
        match &self.value {
            YamlValue::Scalar(text, _) => Ok(text),
            _ => Err(self.error(format_args!("{name} must be a text"))),
        }
    }

    /// A list of texts, or one text.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<(&Yaml, &str)>, String> {
        let values = match &self.value {
            YamlValue::List(list) => list.as_slice(),
            _ => std::slice::from_ref(self),
        };
        values.iter().map(|value| Ok((value, value.text(name)?))).collect()
    }

    /// A finite number. `010` is an error, because some YAML parsers read it as an octal number.
    pub(super) fn number(&self, name: &str) -> Result<f64, String> {
        let number = match &self.value {
            YamlValue::Scalar(text, false) => {
                let digits = text.trim_start_matches(['+', '-']).as_bytes();
                if let [b'0', b'0'..=b'9', ..] = digits
                    && !digits.contains(&b'.')
                {
                    return Err(self.error(format_args!("{name} is `{text}`: leave its leading zeros out")));
                }
                text.parse().ok().filter(|number: &f64| number.is_finite())
            }
            _ => None,
        };
        number.ok_or_else(|| self.error(format_args!("{name} must be a number")))
    }

    /// Whether the value is `null`.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.value, YamlValue::Scalar(text, false) if matches!(text.as_str(), "" | "~" | "null"))
    }
}

impl YamlEntry {
    /// An error about this key.
    pub(super) fn error(&self, what: impl std::fmt::Display) -> String {
        format!("line {}: {what}", self.line)
    }

    /// The error that `what` has no key of this name. It lists `known`, the keys that `what` has.
    pub(super) fn unknown(&self, what: &str, known: &[&str]) -> String {
        let (key, list) = (&self.key, known.join(", "));
        let nearest = suggestion(key, known.iter().copied());
        self.error(format_args!("{what} has no key `{key}`{nearest}: it has {list}"))
    }
}

/// The value of the key `key`; `None` if the map lacks the key.
pub(super) fn entry<'a>(entries: &'a [YamlEntry], key: &str) -> Option<&'a Yaml> {
    entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
}

/// Adds a value to the innermost open list or map.
fn add_node(node: Yaml, open: &mut [OpenNode], root: &mut Option<Yaml>) -> Result<(), String> {
    match open.last_mut() {
        None => *root = Some(node),
        Some(OpenNode::List(_, list)) => list.push(node),
        Some(OpenNode::Map(_, entries, next)) => match next.take() {
            Some((key, line)) => entries.push(YamlEntry { line, key, value: node }),
            None => *next = Some((node.text("a key")?.to_owned(), node.line)),
        },
    }
    Ok(())
}

/// Checks that no key of a map is repeated.
fn check_unique(entries: &[YamlEntry]) -> Result<(), String> {
    let mut sorted: Vec<&YamlEntry> = entries.iter().collect();
    sorted.sort_by(|one, other| one.key.cmp(&other.key));
    match sorted.windows(2).find(|pair| pair[0].key == pair[1].key) {
        Some(pair) => {
            let (first, key) = (pair[0].line, &pair[1].key);
            Err(pair[1].error(format_args!("the key `{key}` is also in line {first}")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_numbers_of_their_lines() {
        let yaml = Yaml::parse("a:\n- x\n- 'y'\nb: {c: 1.5,\n  d: ~}\n").unwrap();
        let entries = yaml.map("it").unwrap();
        let [a, b] = ["a", "b"].map(|key| entry(entries, key).unwrap());
        let texts: Vec<_> = a.texts("a").unwrap().into_iter().map(|(at, text)| (at.line, text)).collect();
        assert_eq!(texts, [(2, "x"), (3, "y")]);
        let inner = b.map("b").unwrap();
        assert_eq!((inner[0].line, inner[0].value.number("c").unwrap()), (4, 1.5));
        assert!(inner[1].line == 5 && inner[1].value.is_null());
    }

    #[test]
    fn numbers_that_may_be_octal_are_errors() {
        let yaml = Yaml::parse("[0, -0, 0.5, 00.5, 10, +1, 010, -010, 00, 08]").unwrap();
        let numbers = yaml.list("it").unwrap().iter().map(|value| value.number("it"));
        let (right, wrong): (Vec<_>, Vec<_>) = numbers.partition(Result::is_ok);
        let right: Vec<f64> = right.into_iter().flatten().collect();
        assert_eq!(right, [0.0, 0.0, 0.5, 0.5, 10.0, 1.0]);
        assert_eq!(wrong[0], Err("line 1: it is `010`: leave its leading zeros out".to_owned()));
        assert_eq!(wrong.len(), 4);
    }

    #[test]
    fn unsupported_documents_are_errors_with_their_line() {
        let deep = "[".repeat(100);
        for (text, why) in [
            ("", "it is empty"),
            ("a: 1\nb: 2\na: 3", "line 3: the key `a` is also in line 1"),
            ("a: &x 1\nb: *x", "line 2: an alias"),
            ("a: !!python/object:os.system x", "line 1: the tag"),
            ("a: 1\n---\nb: 2", "line 2: a second document begins"),
            ("[a]: 1", "line 1: a key must be a text"),
            ("a: [1", "line 2: while parsing a flow sequence"),
            ("x: 1\n\ty: 2", "line 1: while scanning a plain scalar, found a tab"),
            (&deep, "nested more than 64 deep"),
        ] {
            let error = Yaml::parse(text).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }
}
