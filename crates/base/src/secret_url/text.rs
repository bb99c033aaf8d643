//! Texts without the secrets of the URLs in them.

use super::parts::scheme_start;
use super::{HIDDEN, shown};
use std::borrow::Cow;

/// Hides whatever looks like a secret in a text from outside the crate: the secrets of URLs, queries of
/// paths, values of parameters whose names say that the values are secret, and the word after `Basic` or
/// `Bearer`.
pub fn redact_text(text: &str) -> String {
    each_word(text, |before, word| match hidden_in_word(before, word) {
        Some(at) => format!("{}{HIDDEN}", &word[..at]).into(),
        None => shown(word),
    })
}

/// Hides the secrets of URLs (`scheme://…`) in a text of this crate or of the user's code, and nothing else.
pub fn redact_urls(text: &str) -> String {
    each_word(text, |_, word| if word.contains("://") { shown(word) } else { word.into() })
}

/// Replaces each word of a text by `show(previous word, word)`. If a word contains a URL, only the part from
/// the URL on is passed and replaced.
fn each_word(text: &str, show: impl for<'a> Fn(&str, &'a str) -> Cow<'a, str>) -> String {
    let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '`');
    let mut shown_text = String::with_capacity(text.len());
    let mut before = "";
    for word in text.split_inclusive(is_end) {
        let (word, end) = word.split_at(word.trim_end_matches(is_end).len());
        let (start, url) = word.split_at(word.find("://").map_or(0, |at| scheme_start(word, at)));
        shown_text.push_str(start);
        shown_text.push_str(&show(before, url));
        shown_text.push_str(end);
        before = word;
    }
    shown_text
}

/// The start of the secret in a word that is not a URL. The secret is the query of a path, the value of a
/// parameter whose name says that it is secret, or the whole word if it follows `Basic` or `Bearer`.
fn hidden_in_word(before: &str, word: &str) -> Option<usize> {
    if word.contains("://") {
        return None;
    }
    let is_token = |word: &str| word.len() >= 8 && word[1..].contains(|c: char| !c.is_ascii_lowercase());
    if ["basic", "bearer"].iter().any(|name| before.eq_ignore_ascii_case(name))
        && word.is_ascii()
        && is_token(word)
    {
        return Some(0);
    }
    if let Some((path, query)) = word.split_once('?')
        && query.contains('=')
    {
        return Some(path.len() + 1);
    }
    let secret_names = ["sig", "signature", "token", "secret", "password", "credential", "_key"];
    let mut at = 0;
    for pair in word.split('&') {
        if let Some((name, value)) = pair.split_once('=')
            && !value.is_empty()
            && secret_names.iter().any(|end| name.to_ascii_lowercase().ends_with(end))
        {
            return Some(at + name.len() + 1);
        }
        at += pair.len() + 1;
    }
    None
}
