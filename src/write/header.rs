//! Writes the header blocks of a member.
//!
//! A member has one ustar header block if its name and size fit. Otherwise a PAX header (two or more blocks)
//! precedes the ustar header. The PAX header has the `path` if the name is too long or is not ASCII (ustar
//! defines no encoding of names, PAX uses UTF-8). It has the `size` if the size is 8 GiB or more. For names
//! of up to 100 ASCII characters, the headers are byte for byte the same as those that Python's `webdataset`
//! writes with `mtime=0`.

use super::options::TarOptions;
use ::tar::{EntryType, Header};

/// Size in bytes of a block of a tar archive.
pub(super) const BLOCK: usize = 512;

/// The largest number that eleven octal digits can represent.
const MAX_OCTAL_SIZE: u64 = 0o777_7777_7777;

/// Appends the header blocks of the member `name` of `size` bytes.
pub(super) fn push_headers(out: &mut Vec<u8>, name: &str, size: u64, options: &TarOptions) {
    let (fitting, records) = fitting(name, size);
    if !records.is_empty() {
        let length = records.len() as u64;
        push_header(out, ("", "././@PaxHeader"), length, EntryType::XHeader, options);
        out.extend_from_slice(&records);
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    let (prefix, name) = fitting.unwrap_or(("", shortened(name)));
    push_header(out, (prefix, name), size, EntryType::Regular, options);
}

/// Number of bytes that [`push_headers`] appends.
pub(super) fn headers_length(name: &str, size: u64) -> u64 {
    let (_, records) = fitting(name, size);
    let blocks = match records.len() {
        0 => 1,
        bytes => 2 + bytes.div_ceil(BLOCK),
    };
    (blocks * BLOCK) as u64
}

/// Returns the two ustar fields of the name, or `None` if the name does not fit into them. Also returns the
/// PAX records: one for a name that does not fit, and one for a size that does not fit.
fn fitting(name: &str, size: u64) -> (Option<(&str, &str)>, Vec<u8>) {
    let fitting = if name.is_ascii() { split(name) } else { None };
    let mut records = Vec::new();
    if fitting.is_none() {
        push_record(&mut records, "path", name);
    }
    if size > MAX_OCTAL_SIZE {
        push_record(&mut records, "size", &size.to_string());
    }
    (fitting, records)
}

/// Splits a name into the two ustar fields: a prefix of at most 155 bytes and a name of at most 100 bytes.
/// The slash between prefix and name is left out. Returns `None` if the name does not fit.
fn split(name: &str) -> Option<(&str, &str)> {
    if name.len() <= 100 {
        return Some(("", name));
    }
    let slash = name.as_bytes()[..name.len().min(156)].iter().rposition(|&byte| byte == b'/')?;
    let (prefix, rest) = (&name[..slash], &name[slash + 1..]);
    (!prefix.is_empty() && rest.len() <= 100).then_some((prefix, rest))
}

/// The beginning of a long name, for the ustar header: tools without PAX support show this name.
fn shortened(name: &str) -> &str {
    let end = (0..=name.len().min(100)).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0);
    &name[..end]
}

/// Appends a PAX record, `LENGTH KEYWORD=VALUE\n`, where the length includes its own digits.
fn push_record(records: &mut Vec<u8>, keyword: &str, value: &str) {
    let rest = format!(" {keyword}={value}\n");
    let mut length = rest.len();
    while length != rest.len() + length.to_string().len() {
        length = rest.len() + length.to_string().len();
    }
    records.extend_from_slice(format!("{length}{rest}").as_bytes());
}

fn push_header(out: &mut Vec<u8>, name: (&str, &str), size: u64, kind: EntryType, options: &TarOptions) {
    let mut header = Header::new_ustar();
    header.set_mode(options.mode & 0o7777);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(size);
    header.set_mtime(options.mtime);
    header.set_entry_type(kind);
    let ustar = header.as_ustar_mut().expect("made as a ustar header");
    let put = |field: &mut [u8], text: &str| field[..text.len()].copy_from_slice(text.as_bytes());
    put(&mut ustar.prefix, name.0);
    put(&mut ustar.name, name.1);
    put(&mut ustar.uname, "bigdata");
    put(&mut ustar.gname, "bigdata");
    header.set_cksum();
    let sum = header.cksum().expect("the checksum was set just now");
    // POSIX tools write the checksum as six digits, NUL, space.
    header.as_old_mut().cksum.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    out.extend_from_slice(header.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// The name and size that the `tar` crate reads, and the length of the headers in bytes.
    fn read(name: &str, size: u64) -> (String, u64, usize) {
        let mut bytes = Vec::new();
        push_headers(&mut bytes, name, size, &TarOptions::new());
        let headers = bytes.len();
        assert_eq!(headers as u64, headers_length(name, size));
        let mut archive = ::tar::Archive::new(bytes.chain(std::io::repeat(0)));
        let entry = archive.entries().unwrap().next().unwrap().unwrap();
        (String::from_utf8(entry.path_bytes().into_owned()).unwrap(), entry.size(), headers)
    }

    #[test]
    fn names_that_do_not_fit_get_a_pax_header() {
        let dir = "d".repeat(155);
        for (name, blocks) in [
            ("a.jpg".to_owned(), 1),
            ("k".repeat(100), 1),
            ("k".repeat(101), 3),
            (format!("{dir}/{}", "k".repeat(100)), 1),
            (format!("{dir}/{}", "k".repeat(101)), 3),
            (format!("{dir}d/{}", "k".repeat(100)), 3),
            (format!("a/b/{}", "k".repeat(100)), 1),
            (format!("a/b/{}", "k".repeat(101)), 3),
            ("猫.jpg".to_owned(), 3),
            (format!("d{}", "猫".repeat(50)), 3),
            ("k".repeat(4000), 2 + 8),
        ] {
            assert_eq!(read(&name, 7), (name, 7, blocks * BLOCK));
        }
    }

    #[test]
    fn the_length_of_a_pax_record_includes_itself() {
        for length in [0, 1, 89, 90, 91, 92, 988, 989, 990, 991, 992, 4096] {
            let mut record = Vec::new();
            push_record(&mut record, "path", &"v".repeat(length));
            let text = String::from_utf8(record).unwrap();
            assert_eq!(text.split(' ').next().unwrap().parse(), Ok(text.len()));
        }
    }

    #[test]
    fn sizes_from_eight_gibibytes_get_a_pax_header() {
        assert_eq!(read("a.bin", MAX_OCTAL_SIZE), ("a.bin".into(), MAX_OCTAL_SIZE, BLOCK));
        assert_eq!(read("a.bin", MAX_OCTAL_SIZE + 1), ("a.bin".into(), MAX_OCTAL_SIZE + 1, 3 * BLOCK));
        assert_eq!(read("a.bin", 1 << 50), ("a.bin".into(), 1 << 50, 3 * BLOCK));
    }
}
