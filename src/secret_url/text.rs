//! Texts of servers and libraries, without the secrets of URLs in them.

use super::parts::{scheme_start, secrets};
use super::{HIDDEN, shown};

/// Minimum length of a value that is searched for in texts. Shorter ones would be found in words.
const MIN_VALUE: usize = 6;

/// Hides the secrets of URLs in the text of a server or a library.
pub(crate) fn redact_text(text: &str) -> String {
    let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '`');
    let mut shown_text = String::with_capacity(text.len());
    let mut before = "";
    for word in text.split_inclusive(is_end) {
        let (word, end) = word.split_at(word.trim_end_matches(is_end).len());
        let (start, url) = word.split_at(word.find("://").map_or(0, |at| scheme_start(word, at)));
        shown_text.push_str(start);
        match hidden_in_word(before, url) {
            Some(at) => shown_text.extend([&url[..at], HIDDEN]),
            None => shown_text.push_str(&shown(url)),
        }
        shown_text.push_str(end);
        before = word;
    }
    shown_text
}

/// Hides the secrets of URLs in the text of a response to requests for `urls`, and the values of their
/// secrets wherever they occur.
pub(crate) fn redact_answer(text: &str, urls: &[&str]) -> String {
    let mut text = redact_text(text);
    for url in urls {
        for range in secrets(url) {
            // A password may contain a `=` too.
            let values = url[range].split(['&', ':']);
            let values = values.flat_map(|pair| [Some(pair), pair.split_once('=').map(|(_, value)| value)]);
            for value in values.flatten().filter(|value| value.len() >= MIN_VALUE) {
                let decoded = percent_encoding::percent_decode_str(value).decode_utf8_lossy();
                text = text.replace(value, HIDDEN).replace(&*decoded, HIDDEN);
            }
        }
    }
    text
}

/// The start of the secret in a word that is no URL: the query of a path, the value of an option whose name
/// is that of a secret, or the word behind `Basic` or `Bearer` in an `Authorization`.
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
