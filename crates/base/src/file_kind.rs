//! Recognises, from a file's first bytes, that it is no shard, or is not compressed as its name says.

use crate::error::{Error, ErrorKind};
use crate::secret_url::redact_text;

/// Number of first bytes that identify a file: the size of a tar header.
pub const HEAD: usize = 512;

/// Number of characters of the first line that a message shows.
const MAX_SHOWN: usize = 80;
/// Number of bytes of a binary file that a message shows.
const MAX_BINARY: usize = 16;
/// A word of at least this length that has letters and digits may be a secret, and is hidden.
const MIN_SECRET: usize = 20;

/// A kind of file: its first bytes, its name, and what to do about it.
type Signature = (&'static [u8], &'static str, &'static str);

const COMPRESSED: [Signature; 5] = [
    (b"\x1f\x8b\x08", "gzip", "whose name must end in .tar.gz or .tgz to be read"),
    (b"\x28\xb5\x2f\xfd", "zstd", "whose name must end in .tar.zst or .tzst to be read"),
    (b"BZh", "bzip2", "which cannot be read: compress it with zstd or gzip instead"),
    (b"\xfd7zXZ\0", "xz", "which cannot be read: compress it with zstd or gzip instead"),
    (b"\x04\x22\x4d\x18", "lz4", "which cannot be read: compress it with zstd or gzip instead"),
];

const REPACK: &str = ": unpack it and write its files to tar shards";
const CONVERT: &str = ": only tar shards are read, so convert it";
const PARQUET: &str = ": read it by the format of the crate `shardstream-parquet`";
const DOWNLOAD: &str = ": a server sent it in place of the shard, so look at it, and fetch the shard again";
const SINGLE: &str = ": shards are tar archives of such files";
const NO_SHARD: &str = ": if it is in the directory of the shards, leave it out of their pattern";

const LFS: Signature =
    (b"version https://git-lfs", "a Git LFS pointer", ": run `git lfs pull` to fetch the file itself");

const BINARY: [Signature; 14] = [
    (b"PK\x03\x04", "a zip archive", REPACK),
    (b"PK\x05\x06", "a zip archive", REPACK),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", REPACK),
    (b"Rar!", "a RAR archive", REPACK),
    (b"PAR1", "a Parquet file", PARQUET),
    (b"ARROW1", "an Arrow file", CONVERT),
    (b"\x89HDF", "an HDF5 file", CONVERT),
    (b"SQLite format 3", "an SQLite database", CONVERT),
    (b"\x89PNG", "a PNG picture", SINGLE),
    (b"\xff\xd8\xff", "a JPEG picture", SINGLE),
    (b"\x93NUMPY", "an npy file", SINGLE),
    (b"%PDF", "a PDF document", SINGLE),
    (b"RIFF", "a RIFF file", SINGLE),
    (b"\x7fELF", "a program", NO_SHARD),
];

/// The error of a file whose first bytes, `head`, are not a tar header. `None` if the file may be a damaged
/// or truncated tar archive.
pub fn not_a_tar(head: &[u8]) -> Option<Error> {
    if let Some((_, name, hint)) = find(&COMPRESSED, head) {
        let message = format!(
            "this is no plain tar archive but {name} data, {hint} (if its name says another compression, it \
             was compressed twice)"
        );
        return Some(ErrorKind::UnsupportedCompression(message).into());
    }
    if may_be_tar(head) {
        return None;
    }
    let (found, remedy) = match kind(head) {
        Some(kind) => kind,
        // The file may be cut within the name of its first header.
        None if head.len() < HEAD && !is_text(head, 100) => return None,
        None if is_text(head, 0) => ("a text", NO_SHARD),
        // The beginning of the shard may be damaged, and the rest intact.
        None => return None,
    };
    Some(no(found, "tar archive", remedy, head))
}

/// Checks a file whose name says that it is compressed by `compression`. If its first bytes, `head`, show
/// another known kind of file, returns the error for it.
pub fn not_compressed(head: &[u8], compression: &'static str) -> Option<Error> {
    let is_skippable =
        compression == "zstd" && head.len() >= 4 && head[0] >> 4 == 5 && head[1..4] == *b"\x2a\x4d\x18";
    if let Some((_, name, _)) = find(&COMPRESSED, head) {
        return (*name != compression).then(|| {
            let message = format!(
                "this is {name} data, and its name says {compression}: rename it, or compress it as its name \
                 says"
            );
            ErrorKind::UnsupportedCompression(message).into()
        });
    }
    if is_skippable {
        return None;
    }
    let expected = if compression == "gzip" { "gzip data" } else { "zstd data" };
    if head.len() >= HEAD && head[257..262] == *b"ustar" {
        let remedy = ": its name says that it is compressed, so rename it to end in .tar, or compress it";
        return Some(no("a plain tar archive", expected, remedy, head));
    }
    let (found, remedy) = kind(head)?;
    Some(no(found, expected, remedy, head))
}

/// Checks a file whose name says that it has JSON lines. If `line` shows another known kind of file, returns
/// the error for it. `line` is the first line that is not empty, or the beginning of that line.
pub fn not_json_lines(line: &[u8]) -> Option<Error> {
    let head = &line[..line.len().min(HEAD)];
    // Text may have `ustar` at this offset, but it has no zero bytes.
    let is_tar = head.get(257..262) == Some(b"ustar") && head.contains(&0);
    let (found, remedy) = match find(&COMPRESSED, head) {
        Some((_, "gzip", _)) => ("gzip data", ": rename it to end in .jsonl.gz"),
        Some((_, "zstd", _)) => ("zstd data", ": rename it to end in .jsonl.zst"),
        Some(_) => ("compressed data", ": only gzip and zstd are read, so compress it with one of them"),
        None if is_tar => ("a plain tar archive", ": rename it to end in .tar"),
        None => foreign(head)?,
    };
    Some(no(found, "JSON lines", remedy, head))
}

fn no(found: &'static str, expected: &'static str, remedy: &'static str, head: &[u8]) -> Error {
    ErrorKind::NotAnArchive { found, expected, remedy, beginning: beginning(head) }.into()
}

fn find<'a>(signatures: &'a [Signature], head: &[u8]) -> Option<&'a Signature> {
    signatures.iter().find(|(magic, ..)| head.starts_with(magic))
}

/// Recognises the kind of a file. Returns the name of the kind, and what to do about the file.
fn kind(head: &[u8]) -> Option<(&'static str, &'static str)> {
    let is_json = || matches!(text_of(head), [b'{' | b'[', ..]) && is_text(head, 0);
    let json = ("JSON", ": if it is an index or a list, leave it out of the pattern of shards");
    foreign(head).or_else(|| is_json().then_some(json))
}

/// As [`kind`], but does not recognise JSON.
fn foreign(head: &[u8]) -> Option<(&'static str, &'static str)> {
    let known = |&(_, found, remedy): &Signature| (found, remedy);
    if head.starts_with(LFS.0) {
        return Some(known(&LFS));
    }
    if let Some(signature) = find(&BINARY, head) {
        return Some(known(signature));
    }
    let text = text_of(head);
    let begins =
        |with: &str| text.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with.as_bytes()));
    if begins("<!doctype html") || begins("<html") {
        return Some(("an HTML page", DOWNLOAD));
    }
    (begins("<?xml") || begins("<error")).then_some(("an XML document", DOWNLOAD))
}

/// The bytes without a byte order mark and white space at their beginning.
fn text_of(head: &[u8]) -> &[u8] {
    head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start()
}

/// Whether these bytes may be a damaged tar header: `ustar` is at its offset, or all numbers are octal.
fn may_be_tar(head: &[u8]) -> bool {
    let is_octal = |byte: &u8| matches!(byte, b'0'..=b'7' | b' ' | 0);
    let numbers = head.get(100..156).unwrap_or_default();
    head.len() >= HEAD
        && (head[257..262] == *b"ustar"
            || numbers.iter().all(is_octal) && numbers.iter().any(u8::is_ascii_digit))
}

/// Whether these bytes are text that has a line break or more than `long` bytes.
fn is_text(head: &[u8], long: usize) -> bool {
    // `head` may end within a character.
    let valid = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    let is_control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    !valid.contains(is_control) && (valid.contains('\n') || valid.len() > long)
}

/// The first line for a message: control characters are escaped, and possible secrets are hidden.
fn beginning(head: &[u8]) -> String {
    if !is_text(head, 0) {
        return head[..head.len().min(MAX_BINARY)].escape_ascii().to_string();
    }
    let text = String::from_utf8_lossy(head);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    // The values of a JSON document may be tokens.
    let line = match line.strip_prefix(['{', '[']).is_some().then(|| line.find(':')).flatten() {
        Some(colon) => format!("{}…", &line[..=colon]),
        None => line.to_owned(),
    };
    let shown = redact_text(&line);
    let words = shown.split_inclusive([' ', '"', '\'', '<', '>', '=', '&', ',']).map(|word| {
        let is_secret = word.len() >= MIN_SECRET
            && !word.contains('/')
            && word.contains(|c: char| c.is_ascii_digit())
            && word.contains(|c: char| c.is_ascii_alphabetic());
        if is_secret { "…" } else { word }
    });
    let words: String = words.collect();
    let mut shown: String = words.chars().take(MAX_SHOWN).flat_map(escaped).collect();
    if words.chars().count() > MAX_SHOWN {
        shown.push('…');
    }
    shown
}

/// A character, escaped if it is not printable: it could control a terminal.
fn escaped(c: char) -> impl Iterator<Item = char> {
    let is_plain = matches!(c, '"' | '\'' | '\\');
    is_plain.then_some(c).into_iter().chain((!is_plain).then(|| c.escape_debug()).into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(head: &[u8], expected: &[&str]) {
        let error = not_a_tar(head).expect("no archive").to_string();
        for text in expected {
            assert!(error.contains(text), "{error:?} lacks {text:?}");
        }
    }

    #[test]
    fn common_files_that_are_no_shards_are_recognised() {
        check(
            b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n",
            &["a Git LFS pointer", "`git lfs pull`", "version https://git-lfs.github.com/spec/v1"],
        );
        check(b"\n<!DOCTYPE html>\n<html>", &["an HTML page", "<!DOCTYPE html>"]);
        check(b"<?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code>", &["an XML document"]);
        check(b"<Error><Code>AccessDenied</Code></Error>", &["AccessDenied"]);
        check(b"{\"a\": [1, 2]}\n", &["JSON", "{\"a\":…"]);
        check(b"PAR1\x15\x04", &["a Parquet file", "shardstream-parquet"]);
        check(b"PK\x03\x04....", &["a zip archive"]);
        check(&[b'x'; HEAD], &["a text", "xxxx"]);
        assert!(not_a_tar(&[7; HEAD]).is_none(), "damage");
    }

    #[test]
    fn the_shown_beginning_is_bounded_and_has_no_secrets() {
        let long = format!("{}\n", "é\u{1b}[31m ".repeat(300));
        check(long.replace('\u{1b}', "e").as_bytes(), &["…"]);
        for secret in [
            "{\"access_token\": \"ya29.short\"}",
            "Location: https://host/a?X-Amz-Signature=ya29.short",
            "token=ya29.short",
            "key AKIA0ya29.short0123456789 is wrong",
        ] {
            let error = not_a_tar(format!("{secret}\n").as_bytes()).unwrap().to_string();
            assert!(!error.contains("ya29.short"), "{error}");
        }
        let error = not_a_tar(&[b"PAR1", &[0xf3; HEAD][..]].concat()).unwrap().to_string();
        assert!(error.len() < 300 && error.is_ascii(), "{error}");
    }

    #[test]
    fn damaged_and_truncated_archives_get_no_error() {
        let mut header = [0; HEAD];
        header[..5].copy_from_slice(b"a.txt");
        header[100..108].copy_from_slice(b"0000644\0");
        assert!(not_a_tar(&header).is_none() && not_a_tar(b"a.txt").is_none() && not_a_tar(b"").is_none());
        header[257..262].copy_from_slice(b"ustar");
        assert!(not_a_tar(&header).is_none());
        let error = not_compressed(&header, "gzip").unwrap().to_string();
        assert!(
            error.contains("a plain tar archive") && error.contains("rename it to end in .tar"),
            "{error}"
        );
    }

    #[test]
    fn files_that_are_not_json_lines_are_recognised() {
        let tar = [&b"a.txt"[..], &[0; 252], b"ustar"].concat();
        for (line, expected) in [
            (&b"\x1f\x8b\x08\0"[..], "this is gzip data, and no JSON lines"),
            (b"\x28\xb5\x2f\xfd", "rename it to end in .jsonl.zst"),
            (b"BZh9", "compress it"),
            (b"version https://git-lfs.github.com/spec/v1", "`git lfs pull`"),
            (b"<!DOCTYPE html>", "an HTML page"),
            (b"<Error><Code>AccessDenied</Code></Error>", "an XML document"),
            (b"\x89PNG\r", "a PNG picture"),
            (&tar, "rename it to end in .tar"),
        ] {
            let error = not_json_lines(line).expect("no JSON lines").to_string();
            assert!(error.contains(expected), "{error}");
        }
        let text = [&[b' '; 257][..], b"ustar"].concat();
        for line in [&b"{\"a\": \"<html>\"}"[..], b"[1]", b"7", b"no JSON", b"", b"\xef\xbb\xbf{}", &text] {
            assert!(not_json_lines(line).is_none(), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn a_compression_other_than_the_name_says_is_an_error() {
        assert!(not_compressed(b"\x1f\x8b\x08\0", "gzip").is_none());
        assert!(not_compressed(b"\x52\x2a\x4d\x18", "zstd").is_none());
        assert!(not_compressed(b"\x9f\x8b\x08\0", "gzip").is_none(), "damage");
        let error = not_compressed(b"\x28\xb5\x2f\xfd", "gzip").unwrap().to_string();
        assert!(error.contains("this is zstd data, and its name says gzip"), "{error}");
        assert!(not_compressed(b"<html>", "zstd").unwrap().to_string().contains("an HTML page"));
    }
}
