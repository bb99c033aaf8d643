//! Formats numbers, and text from shards, for people.

use std::borrow::Cow;

/// A size in decimal units, such as `98.3 kB`.
pub(crate) fn bytes(number: u64) -> String {
    scaled(number as f64)
}

/// A byte rate, such as `98.3 MB/s`.
pub(crate) fn bytes_per_second(number: f64) -> String {
    format!("{}/s", scaled(number))
}

fn scaled(number: f64) -> String {
    let mut number = number.max(0.0);
    if number < 999.5 {
        return format!("{number:.0} B");
    }
    for unit in ["kB", "MB", "GB", "TB"] {
        number /= 1000.0;
        if number < 999.95 {
            return format!("{number:.1} {unit}");
        }
    }
    format!("{:.1} PB", number / 1000.0)
}

/// A number with commas between thousands.
pub(crate) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// A number with its noun, such as `1 shard` or `1,000 shards`.
pub(crate) fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", number(count), if count == 1 { "" } else { "s" })
}

/// A share in percent, such as `99.2 %`.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    let share = if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 };
    match share {
        // Rounding must not show 100 % unless the part is the whole, or 0 % unless the part is empty.
        _ if part == whole && whole > 0 => "100 %".to_owned(),
        share if share > 99.9 => "99.9 %".to_owned(),
        share if part > 0 && share < 0.1 => "< 0.1 %".to_owned(),
        share => format!("{share:.1} %"),
    }
}

/// Escapes the control characters in text from a shard, so that the text cannot control the terminal.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    let escape = |character: char| match character.is_control() {
        true => character.escape_default().to_string(),
        false => character.to_string(),
    };
    Cow::Owned(text.chars().map(escape).collect())
}

/// Escapes the control characters in text of several lines, except for line breaks.
pub(crate) fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

/// Escapes the control characters that JSON allows unescaped in strings.
pub(crate) fn printable_json(text: &str) -> Cow<'_, str> {
    let is_raw =
        |character: char| character.is_control() && !character.is_ascii_control() || character == '\u{7f}';
    if !text.chars().any(is_raw) {
        return Cow::Borrowed(text);
    }
    let escape = |character: char| match is_raw(character) {
        true => format!("\\u{:04x}", u32::from(character)),
        false => character.to_string(),
    };
    Cow::Owned(text.chars().map(escape).collect())
}

/// The first `max_characters` characters of a text, on one line. A text that is cut ends in `…`.
pub(crate) fn shortened(text: &str, max_characters: usize) -> String {
    let text = text.trim_end_matches(['\r', '\n']);
    let mut characters = text.chars();
    let mut beginning: String = characters.by_ref().take(max_characters).collect();
    if characters.next().is_some() {
        beginning.pop();
        beginning.push('…');
    }
    printable(&beginning).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_numbers_have_commas() {
        assert_eq!([0, 999, 1000, 98_304].map(bytes), ["0 B", "999 B", "1.0 kB", "98.3 kB"]);
        assert_eq!([999_960, u64::MAX].map(bytes), ["1.0 MB", "18446.7 PB"]);
        assert_eq!(bytes_per_second(999.6), "1.0 kB/s");
        assert_eq!([0, 999, 1000, 1_281_167].map(number), ["0", "999", "1,000", "1,281,167"]);
        assert_eq!((counted(1, "shard"), counted(0, "shard")), ("1 shard".into(), "0 shards".into()));
    }

    #[test]
    fn shares_are_never_rounded_to_0_or_100_percent() {
        let shown = [(0, 3), (1, 3), (3, 3), (9999, 10_000), (1, 10_000), (0, 0)].map(|(a, b)| percent(a, b));
        assert_eq!(shown, ["0.0 %", "33.3 %", "100 %", "99.9 %", "< 0.1 %", "0.0 %"]);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}[31mb\n"), "a\\u{1b}[31mb\\n");
        assert_eq!(printable_lines("a\u{1b}[2J\n  ^"), "a\\u{1b}[2J\n  ^");
        let json = printable_json("{\n\"\u{9b}2J\u{7f}é\": 1}");
        assert_eq!(json, "{\n\"\\u009b2J\\u007fé\": 1}");
        assert_eq!(shortened("a cat\n", 10), "a cat");
        assert_eq!(shortened("a long text", 6), "a lon…");
    }
}
