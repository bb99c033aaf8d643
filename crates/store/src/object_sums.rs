//! Compares objects by checksums, without reading both objects.
//!
//! | store | what it keeps | what a comparison tells |
//! |---|---|---|
//! | Google Cloud Storage | CRC-32C of every object | equal or not |
//! | Azure | MD5 of an object that was written in one request | equal or not |
//! | S3 | ETag: MD5 of an object that was written in one request; of an object that was written in parts, MD5 over the MD5s of its parts, and their number | equal, or unknown: an encrypted object has an ETag of another kind |

use super::checksum::Checksum;
use super::object::PART_SIZE;
use super::object_url::ObjectUrl;
use super::object_version::{ObjectVersion, VersionComparison};
use md5::{Digest, Md5};
use std::fmt::Write;

/// Checksums of an object: either the checksums that its store keeps, or checksums computed from its bytes.
#[doc(hidden)]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectSums {
    pub crc32c: Option<u32>,
    md5: Option<[u8; 16]>,
    /// The ETags that S3 gives to objects with these bytes.
    tags: Vec<String>,
}

impl ObjectSums {
    /// The checksums that the store keeps: `checksum` from the headers of a response, and the ETag if `url`
    /// is a URL of S3.
    pub(super) fn stored(url: &str, object: &ObjectVersion, checksum: Option<Checksum>) -> Self {
        let mut sums = ObjectSums::default();
        match checksum {
            Some(Checksum::Crc32c(sum)) => sums.crc32c = Some(sum),
            Some(Checksum::Md5(sum)) => {
                sums.md5 = Some(sum);
                sums.tags.push(hex(sum));
            }
            None => {}
        }
        if ObjectUrl::parse(url).scheme() == Some("s3") {
            sums.tags.extend(object.strong().and_then(content_tag));
        }
        sums
    }

    /// Whether no checksum is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == ObjectSums::default()
    }

    /// Whether objects with these checksums have the same bytes.
    #[must_use]
    pub fn compare(&self, other: &ObjectSums) -> VersionComparison {
        use VersionComparison::{Different, Same, Unknown};

        let known = |same: bool| if same { Same } else { Different };
        if let (Some(one), Some(other)) = (self.crc32c, other.crc32c) {
            return known(one == other);
        }
        if let (Some(one), Some(other)) = (self.md5, other.md5) {
            return known(one == other);
        }
        match self.tags.iter().any(|tag| other.tags.contains(tag)) {
            true => Same,
            false => Unknown,
        }
    }

    /// Whether one of the ETags belongs to an object that was uploaded in parts.
    fn has_parts(&self) -> bool {
        self.tags.iter().any(|tag| tag.contains('-'))
    }
}

/// An ETag of S3, if it can be a checksum of the content: an MD5, followed by the number of parts if there
/// are parts.
fn content_tag(etag: &str) -> Option<String> {
    let tag = etag.trim_matches('"').to_ascii_lowercase();
    let (sum, parts) = tag.split_once('-').unwrap_or((&tag, "1"));
    // Some servers send zeros for files whose checksum they do not know.
    let is_sum = sum.len() == 32
        && sum.bytes().all(|byte| byte.is_ascii_hexdigit())
        && sum.bytes().any(|byte| byte != b'0');
    (is_sum && parts.bytes().all(|byte| byte.is_ascii_digit())).then_some(tag)
}

fn hex(sum: [u8; 16]) -> String {
    sum.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Computes the checksums of an object from its bytes. MD5 takes several times as long as CRC-32C, so it is
/// computed only if there is an MD5 to compare it with.
#[doc(hidden)]
#[derive(Debug, Clone, Default)]
pub struct RunningSums {
    crc32c: u32,
    size: u64,
    md5: Option<Md5>,
    parts: Option<PartSums>,
}

/// Computes the MD5s of the parts in which this crate uploads an object.
#[derive(Debug, Clone, Default)]
struct PartSums {
    current: Md5,
    /// Number of bytes in the current part.
    size: usize,
    /// MD5 over the MD5s of the earlier parts.
    all: Md5,
    count: u64,
}

impl PartSums {
    fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(PART_SIZE - self.size));
            self.current.update(now);
            self.size += now.len();
            bytes = rest;
            if self.size == PART_SIZE {
                self.end_part();
            }
        }
    }

    fn end_part(&mut self) {
        self.all.update(self.current.finalize_reset());
        self.count += 1;
        self.size = 0;
    }

    fn tag(mut self) -> String {
        if self.size > 0 {
            self.end_part();
        }
        format!("{}-{}", hex(self.all.finalize().into()), self.count)
    }
}

impl RunningSums {
    /// Computes the checksums that can be compared with the checksums of the store, for an object of `size`
    /// bytes that this crate uploads to `url`.
    #[must_use]
    pub fn for_upload(url: &str, size: Option<u64>) -> Self {
        let is_whole = size.is_some_and(|size| size < PART_SIZE as u64);
        let scheme = ObjectUrl::parse(url).scheme();
        let is_s3 = scheme == Some("s3");
        RunningSums {
            md5: (is_whole && (is_s3 || scheme == Some("az"))).then(Md5::default),
            parts: (is_s3 && !is_whole).then(PartSums::default),
            ..RunningSums::default()
        }
    }

    /// Computes the checksums that can be compared with `sums`.
    #[must_use]
    pub fn comparable_to(sums: &ObjectSums) -> Self {
        let needs_md5 = sums.crc32c.is_none() && !sums.is_empty();
        RunningSums {
            md5: (needs_md5 && !sums.has_parts()).then(Md5::default),
            parts: (needs_md5 && sums.has_parts()).then(PartSums::default),
            ..RunningSums::default()
        }
    }

    pub fn add(&mut self, bytes: &[u8]) {
        self.crc32c = crc32c::crc32c_append(self.crc32c, bytes);
        self.size += bytes.len() as u64;
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
        if let Some(parts) = &mut self.parts {
            parts.add(bytes);
        }
    }

    /// The checksums, and the number of bytes.
    #[must_use]
    pub fn finish(self) -> (ObjectSums, u64) {
        let md5 = self.md5.map(|md5| <[u8; 16]>::from(md5.finalize()));
        let tags = md5.map(hex).into_iter().chain(self.parts.map(PartSums::tag)).collect();
        (ObjectSums { crc32c: Some(self.crc32c), md5, tags }, self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::VersionComparison::{Different, Same, Unknown};
    use super::*;

    fn stored(url: &str, etag: &str, checksum: Option<Checksum>) -> ObjectSums {
        ObjectSums::stored(url, &ObjectVersion::new(None, Some(etag)), checksum)
    }

    fn sums(mut running: RunningSums, chunks: &[&[u8]]) -> ObjectSums {
        chunks.iter().for_each(|chunk| running.add(chunk));
        running.finish().0
    }

    // The checksums of "abc", the MD5 from RFC 1321 (A.5).
    const MD5: [u8; 16] =
        [0x90, 0x01, 0x50, 0x98, 0x3c, 0xd2, 0x4f, 0xb0, 0xd6, 0x96, 0x3f, 0x7d, 0x28, 0xe1, 0x7f, 0x72];
    const CRC: u32 = 0x364b_3fb7;

    #[test]
    fn a_checksum_of_zeros_is_ignored() {
        for tag in ["00000000000000000000000000000000-1", "00000000000000000000000000000000"] {
            let one = stored("s3://b/a", tag, None);
            assert_eq!(one.compare(&one), Unknown);
        }
    }

    #[test]
    fn bytes_are_compared_with_the_checksums_of_their_store() {
        let tag = "\"900150983cd24fb0d6963f7d28e17f72\"";
        for (name, kept, other) in [
            ("gs", stored("gs://b/a", "\"x\"", Some(Checksum::Crc32c(CRC))), Different),
            ("az", stored("az://b/a", "\"0x8D\"", Some(Checksum::Md5(MD5))), Different),
            ("s3", stored("s3://b/a", tag, None), Unknown),
        ] {
            let wanted = || RunningSums::comparable_to(&kept);
            assert_eq!(sums(wanted(), &[b"a", b"bc"]).compare(&kept), Same, "{name}");
            assert_eq!(kept.compare(&sums(wanted(), &[b"abd"])), other, "{name}");
            assert_eq!(kept.compare(&ObjectSums::default()), Unknown, "{name}");
        }
        let [s3, azure] =
            [stored("s3://b/a", tag, None), stored("az://b/a", "\"0x8D\"", Some(Checksum::Md5(MD5)))];
        assert_eq!(s3.compare(&azure), Same);
    }

    /// Examples: the ETag of an encrypted object, an ETag of another server, and a weak ETag.
    #[test]
    fn an_etag_that_is_no_checksum_is_ignored() {
        for (url, etag) in [
            ("s3://b/a", "\"17\""),
            ("s3://b/a", "W/\"900150983cd24fb0d6963f7d28e17f72\""),
            ("s3://b/a", "\"900150983cd24fb0d6963f7d28e17f72-x\""),
            ("gs://b/a", "\"900150983cd24fb0d6963f7d28e17f72\""),
            ("https://h/a", "\"900150983cd24fb0d6963f7d28e17f72\""),
        ] {
            assert!(stored(url, etag, None).is_empty(), "{url} {etag}");
        }
    }

    #[test]
    fn an_upload_in_parts_has_the_etag_of_s3() {
        let bytes = vec![7; 2 * PART_SIZE + 5];
        let part = |bytes: &[u8]| <[u8; 16]>::from(Md5::digest(bytes));
        let parts = [part(&bytes[..PART_SIZE]), part(&bytes[..PART_SIZE]), part(&bytes[..5])].concat();
        let kept = stored("s3://b/a", &format!("\"{}-3\"", hex(part(&parts))), None);
        let upload = || RunningSums::for_upload("s3://b/a", Some(bytes.len() as u64));
        for chunk in [1 << 20, PART_SIZE + 1, bytes.len()] {
            let chunks: Vec<&[u8]> = bytes.chunks(chunk).collect();
            assert_eq!(sums(upload(), &chunks).compare(&kept), Same);
            assert_eq!(sums(RunningSums::comparable_to(&kept), &chunks).compare(&kept), Same);
        }
        assert_eq!(sums(upload(), &[&bytes[1..]]).compare(&kept), Unknown);
    }
}
