//! Computes the checksum of one sample.

use crate::sample::{Sample, Value};

/// The CRC-32C of a sample. It covers the key and a zero byte. Then, for each field in the order of the
/// shard, it covers the field's name, a zero byte, the field's size in 8 bytes (little-endian), and the
/// field's content.
///
/// Names and sizes are covered too, because tar extension headers can change them, and these headers have no
/// checksum of their own.
pub(crate) fn sample_checksum<'a>(key: &str, fields: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> u32 {
    let mut sum = crc32c::crc32c(key.as_bytes());
    let mut add = |bytes: &[u8]| sum = crc32c::crc32c_append(sum, bytes);
    add(&[0]);
    for (name, content) in fields {
        add(name.as_bytes());
        add(&[0]);
        add(&(content.len() as u64).to_le_bytes());
        add(content);
    }
    sum
}

/// The checksum of a sample with raw fields.
pub(crate) fn checksum_of(sample: &Sample) -> u32 {
    let content = |value| Value::as_bytes(value).map_or(&[][..], |bytes| bytes);
    sample_checksum(sample.key(), sample.fields().map(|(name, value)| (name, content(value))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_covers_key_names_order_and_contents() {
        let fields = [("cls", &b"7"[..]), ("txt", b"hi")];
        let whole = crc32c::crc32c(b"a\0cls\0\x01\0\0\0\0\0\0\x007txt\0\x02\0\0\0\0\0\0\0hi");
        assert_eq!(sample_checksum("a", fields), whole);
        for (key, fields) in [
            ("b", fields),
            ("a", [fields[1], fields[0]]),
            ("a", [("cls", b"7"), ("txt", b"hj")]),
            ("a", [("cls", b"7"), ("tyt", b"hi")]),
            ("a", [("cls", b""), ("7txt", b"hi")]),
        ] {
            assert_ne!(sample_checksum(key, fields), whole, "{key} {fields:?}");
        }
    }
}
