//! What others say, without the secrets of URLs in it.

use super::parts::{scheme_start, secrets};
use super::{HIDDEN, shown};

/// Shorter values of a URL's secrets are not looked for in texts: they would be found in words.
const SHORTEST: usize = 6;

/// What a server or a library says, without the secrets of URLs in it.
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

/// [`redact_text`] of what is said of requests for `urls`, without the values of their secrets either.
pub(crate) fn redact_answer(text: &str, urls: &[&str]) -> String {
    let mut text = redact_text(text);
    for url in urls {
        for range in secrets(url) {
            // A password may have a `=` too.
            let values = url[range].split(['&', ':']);
            let values = values.flat_map(|pair| [Some(pair), pair.split_once('=').map(|(_, value)| value)]);
            for value in values.flatten().filter(|value| value.len() >= SHORTEST) {
                let decoded = percent_encoding::percent_decode_str(value).decode_utf8_lossy();
                text = text.replace(value, HIDDEN).replace(&*decoded, HIDDEN);
            }
        }
    }
    text
}

/// Where the secret begins in a word that is no URL: the query of a path, the value of an option of a telling
/// name, or what follows the word before it in an `Authorization`.
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
    let telling = ["sig", "signature", "token", "secret", "password", "credential", "_key"];
    let mut at = 0;
    for pair in word.split('&') {
        if let Some((name, value)) = pair.split_once('=')
            && !value.is_empty()
            && telling.iter().any(|end| name.to_ascii_lowercase().ends_with(end))
        {
            return Some(at + name.len() + 1);
        }
        at += pair.len() + 1;
    }
    None
}
