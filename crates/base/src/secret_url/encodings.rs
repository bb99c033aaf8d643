//! The encodings in which text from outside the crate may repeat a secret that was sent with a request.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// All characters except those that RFC 3986 calls unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The characters that encoders of paths escape: all reserved characters except `/`, `:` and `@`.
const OF_PATH: &AsciiSet = &RESERVED.remove(b'/').remove(b':').remove(b'@');

/// All texts that may repeat a sent value: the value itself, its percent-decoded text, and the encodings of
/// both for URLs, JSON, XML and `Debug`. Base64 encodes only the decoded text.
pub(super) fn encodings(value: &str) -> Vec<String> {
    let decoded = percent_decode_str(value).decode_utf8_lossy().into_owned();
    let mut all = vec![value.to_owned()];
    for plain in [value, &decoded] {
        // Base64 may also be written without padding.
        all.extend([plain.to_owned(), plain.trim_end_matches('=').to_owned()]);
        all.push(utf8_percent_encode(plain, RESERVED).to_string());
        all.push(utf8_percent_encode(plain, OF_PATH).to_string());
        all.push(utf8_percent_encode(plain, RESERVED).to_string().replace("%20", "+"));
        let json = serde_json::to_string(plain).unwrap_or_default();
        let json = json.trim_matches('"').to_owned();
        all.extend([json.replace('/', "\\/"), json]);
        let debug = format!("{plain:?}");
        all.push(debug.trim_matches('"').to_owned());
        let xml = plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        all.push(xml.replace('"', "&quot;").replace('\'', "&apos;"));
        all.push(xml.replace('"', "&quot;").replace('\'', "&#39;"));
        all.push(xml);
    }
    all.extend(base64(decoded.as_bytes()));
    all.retain(|value| !value.is_empty());
    all
}

/// The base64 of bytes in both alphabets, without the padding.
pub(super) fn base64(bytes: &[u8]) -> [String; 2] {
    let encode = |alphabet: &[u8; 64]| -> String {
        let mut text = String::with_capacity(bytes.len() * 4 / 3 + 1);
        for group in bytes.chunks(3) {
            let number = group.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
            let number = number << (8 * (3 - group.len()));
            let digits = (0..=group.len()).map(|digit| number >> (18 - 6 * digit) & 63);
            text.extend(digits.map(|digit| char::from(alphabet[digit as usize])));
        }
        text
    };
    [encode(STANDARD), encode(OF_URLS)]
}

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const OF_URLS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Decodes text from base64 in the standard alphabet, with or without padding.
pub(super) fn from_base64(text: &str) -> Option<String> {
    let (mut bytes, mut number, mut bits) = (Vec::new(), 0_u32, 0);
    for digit in text.trim_end_matches('=').bytes() {
        let value = STANDARD.iter().position(|letter| *letter == digit)?;
        number = (number << 6 | value as u32) & 0xfff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((number >> bits & 0xff) as u8);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_agrees_with_rfc_4648() {
        for (text, expected) in
            [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy"), ("~~?", "fn4/")]
        {
            assert_eq!(base64(text.as_bytes())[0], expected);
            assert_eq!(from_base64(expected).as_deref(), Some(text));
        }
        assert_eq!(base64(b"~~?")[1], "fn4_");
        assert_eq!(from_base64("bWU6czNjcmV0").as_deref(), Some("me:s3cret"));
        assert_eq!(from_base64("!"), None);
    }
}
