//! Writes one tar archive.

use super::header::{BLOCK, push_headers};
use super::name::member_name;
use super::options::TarOptions;
use crate::error::{Error, ErrorKind, Result};
use crate::{Sample, Value};
use bytes::Bytes;
use std::collections::HashSet;
use std::fmt;
use std::io::{self, Write};

/// Size in bytes of a record. Archives are padded to whole records, because some tools warn about a short
/// last record.
const RECORD: u64 = 10_240;

impl TarOptions {
    /// Checks and encodes a sample, without writing it.
    pub(super) fn encode<'a>(&self, sample: &'a Sample) -> Result<EncodedSample<'a>> {
        self.members(sample).map_err(|error| sample.locate(error))
    }

    fn members<'a>(&self, sample: &'a Sample) -> Result<EncodedSample<'a>> {
        if sample.is_empty() {
            return Err(unwritable("the sample has no field"));
        }
        let mut fields: Vec<(&str, &Value)> = sample.fields().collect();
        fields.sort_unstable_by_key(|(field, _)| *field);
        let (limits, mut bytes) = (&self.limits, 0);
        if fields.len() as u64 > limits.members {
            let message = format!(
                "the sample has {} fields, and readers accept at most {}: see `TarOptions::limits`",
                fields.len(),
                limits.members
            );
            return Err(unwritable(&message));
        }
        let mut encoded =
            EncodedSample { key: sample.key(), members: Vec::with_capacity(fields.len()), size: 0 };
        for (field, value) in fields {
            let name = member_name(sample.key(), field)?;
            let body = self.encoder.encode(field, value)?;
            bytes += body.len() as u64;
            let largest = [(&*name, body.len() as u64, limits.member), ("the sample", bytes, limits.sample)];
            if let Some((what, size, limit)) = largest.iter().find(|(_, size, limit)| size > limit) {
                let message = format!(
                    "{what} has {size} bytes, and readers accept at most {limit}: see `TarOptions::limits`"
                );
                return Err(unwritable(&message));
            }
            let mut head = Vec::with_capacity(BLOCK);
            push_headers(&mut head, &name, body.len() as u64, self);
            encoded.size += head.len() as u64 + (body.len() as u64).next_multiple_of(BLOCK as u64);
            encoded.members.push(EncodedMember { field, name, head, body });
        }
        Ok(encoded)
    }
}

/// A sample with the headers and contents of its members.
pub(super) struct EncodedSample<'a> {
    key: &'a str,
    members: Vec<EncodedMember<'a>>,
    /// Number of bytes that the sample takes in the archive, with headers and padding.
    pub(super) size: u64,
}

struct EncodedMember<'a> {
    field: &'a str,
    name: String,
    head: Vec<u8>,
    body: Bytes,
}

impl EncodedSample<'_> {
    pub(super) fn key(&self) -> &str {
        self.key
    }

    /// The names of the fields, each with the content of the field.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.members.iter().map(|EncodedMember { field, body, .. }| (*field, &**body))
    }

    /// The names of the fields, each with the offset and the size of the field's content, if the sample is
    /// written at offset `at`.
    pub(super) fn offsets(&self, mut at: u64) -> impl Iterator<Item = (&str, u64, u64)> {
        self.members.iter().map(move |EncodedMember { field, head, body, .. }| {
            let offset = at + head.len() as u64;
            at = offset + (body.len() as u64).next_multiple_of(BLOCK as u64);
            (*field, offset, body.len() as u64)
        })
    }
}

/// Writes samples as a tar archive.
///
/// Each field of a sample becomes one member `KEY.FIELD`; members are sorted by field. Raw bytes are written
/// unchanged; the [encoder](TarOptions::encoder) converts other values. A sample that would not read back
/// unchanged is refused. The rules are listed in [`write`](crate::write). Until [`finish`](TarWriter::finish)
/// is called, the archive has no end marker, and readers refuse it as truncated.
///
/// To refuse repeated keys, the writer remembers all keys of the archive: about 4 MB for 100 000 keys of 20
/// bytes. The writer makes several small writes per member, so wrap a file or socket in a
/// [`BufWriter`](io::BufWriter).
///
/// ```
/// use shardstream::{Sample, write::TarWriter};
///
/// let mut writer = TarWriter::new(Vec::new());
/// writer.write(&Sample::new("0001").with("cls", 7).with("jpg", b"..."))?;
/// let archive: Vec<u8> = writer.finish()?;
/// assert_eq!(archive.len() % 10_240, 0);
///
/// let mut writer = TarWriter::new(Vec::new());
/// let error = writer.write(&Sample::new("cat.0001").with("cls", 7)).unwrap_err();
/// assert!(error.to_string().contains("dot"), "a reader would see the sample `cat` with a field `0001.cls`");
/// # Ok::<(), shardstream::Error>(())
/// ```
#[must_use = "the archive has no end until `finish` is called"]
pub struct TarWriter<W: Write> {
    out: W,
    options: TarOptions,
    keys: HashSet<Box<str>>,
    written: u64,
    broken: bool,
}

impl<W: Write> TarWriter<W> {
    /// Starts an archive with the default options.
    pub fn new(out: W) -> Self {
        Self::made(out, TarOptions::new())
    }

    /// Starts an archive.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for invalid options.
    pub fn with_options(out: W, options: TarOptions) -> Result<Self> {
        options.check()?;
        Ok(Self::made(out, options))
    }

    fn made(out: W, options: TarOptions) -> Self {
        TarWriter { out, options, keys: HashSet::new(), written: 0, broken: false }
    }

    /// Writes a sample, and returns the number of bytes that it takes in the archive, with headers and
    /// padding.
    ///
    /// # Errors
    /// [`ErrorKind::Unwritable`] if the sample would not read back unchanged; [`ErrorKind::Encode`] if a
    /// value cannot be encoded. After these errors, nothing of the sample has been written, and the next
    /// sample can be written. [`ErrorKind::Io`] if writing fails: the archive is then damaged, and every
    /// later call fails.
    pub fn write(&mut self, sample: &Sample) -> Result<u64> {
        let encoded = self.options.encode(sample)?;
        self.append(&encoded).map_err(|error| error.with_key(sample.key()))
    }

    /// Ends the archive, flushes, and returns the inner writer.
    ///
    /// The archive is padded to a multiple of 10 240 bytes, as GNU tar does.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if writing fails, or if an earlier write failed.
    pub fn finish(mut self) -> Result<W> {
        let end = whole_archive(self.written) - self.written;
        self.guarded(|out| {
            out.write_all(&vec![0; end as usize])?;
            out.flush()
        })?;
        Ok(self.out)
    }

    pub(super) fn written(&self) -> u64 {
        self.written
    }

    pub(super) fn append(&mut self, encoded: &EncodedSample<'_>) -> Result<u64> {
        if self.keys.contains(encoded.key) {
            return Err(unwritable("this key is in the archive already"));
        }
        for EncodedMember { name, head, body, .. } in &encoded.members {
            let padding = [0; BLOCK];
            let padding = &padding[..body.len().next_multiple_of(BLOCK) - body.len()];
            self.guarded(|out| {
                out.write_all(head)?;
                out.write_all(body)?;
                out.write_all(padding)
            })
            .map_err(|error| error.in_member(name).at_offset(self.written))?;
            self.written += (head.len() + body.len() + padding.len()) as u64;
        }
        self.keys.insert(encoded.key.into());
        Ok(encoded.size)
    }

    /// Calls `write`, unless an earlier write failed: nothing may follow a partial member.
    fn guarded(&mut self, write: impl FnOnce(&mut W) -> io::Result<()>) -> Result<()> {
        if self.broken {
            return Err(io::Error::other("an earlier write failed, and the archive is damaged").into());
        }
        write(&mut self.out).inspect_err(|_| self.broken = true).map_err(Error::from)
    }
}

impl<W: Write> fmt::Debug for TarWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TarWriter")
            .field("options", &self.options)
            .field("samples", &self.keys.len())
            .field("written", &self.written)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}

/// The size of an archive with `members` bytes of members, including the end-of-archive marker (two blocks of
/// zeros) and the padding to whole records.
pub(super) fn whole_archive(members: u64) -> u64 {
    let longest = u64::MAX - u64::MAX % RECORD;
    members.saturating_add(2 * BLOCK as u64).checked_next_multiple_of(RECORD).unwrap_or(longest)
}

fn unwritable(why: &str) -> Error {
    ErrorKind::Unwritable(why.into()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Encoder;
    use crate::tar::Limits;

    fn archive(samples: &[Sample]) -> Vec<u8> {
        let mut writer = TarWriter::new(Vec::new());
        for sample in samples {
            let before = writer.out.len() as u64;
            let size = writer.write(sample).unwrap();
            assert_eq!(writer.out.len() as u64, before + size);
        }
        writer.finish().unwrap()
    }

    #[test]
    fn members_are_sorted_and_have_fixed_owner_mode_and_time() {
        let sample = Sample::new("d/0").with("txt", "hi").with("cls", 7).with("seg.png", b"p");
        let bytes = archive(std::slice::from_ref(&sample));
        assert_eq!(
            bytes,
            archive(&[Sample::new("d/0").with("seg.png", b"p").with("cls", 7).with("txt", "hi")])
        );
        let mut names = Vec::new();
        for entry in ::tar::Archive::new(&bytes[..]).entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!(header.mode().unwrap(), 0o444);
            assert_eq!((header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()), (0, 0, 0));
            assert_eq!(header.username(), Ok(Some("bigdata")));
            names.push(entry.path().unwrap().to_str().unwrap().to_owned());
        }
        assert_eq!(names, ["d/0.cls", "d/0.seg.png", "d/0.txt"]);
        assert_eq!(bytes.len(), 10_240);
    }

    #[test]
    fn an_empty_archive_is_all_zeros() {
        assert_eq!(archive(&[]), vec![0; 10_240]);
    }

    #[test]
    fn archives_are_padded_to_whole_records() {
        for (members, whole) in [(0, 10_240), (9_216, 10_240), (9_728, 20_480), (10_240, 20_480)] {
            assert_eq!(whole_archive(members), whole);
        }
    }

    #[test]
    fn a_refused_sample_writes_nothing() {
        let mut writer = TarWriter::new(Vec::new());
        writer.write(&Sample::new("a").with("txt", "1")).unwrap();
        let before = writer.out.clone();
        for sample in [
            Sample::new("a").with("cls", 1),
            Sample::new("b"),
            Sample::new("b").with("cls", 1).with("TXT", "1"),
            Sample::new("b").with("cls", 1).with("x", Value::other(3u8)),
        ] {
            let error = writer.write(&sample).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Unwritable(_) | ErrorKind::Encode { .. }), "{error}");
            assert_eq!(error.location().key(), Some(sample.key()));
            assert_eq!(writer.out, before);
        }
        writer.write(&Sample::new("b").with("txt", "1")).unwrap();
    }

    /// A writer that accepts this number of bytes and then fails.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let accepted = bytes.len().min(self.0);
            self.0 -= accepted;
            if accepted == 0 && !bytes.is_empty() {
                Err(io::ErrorKind::StorageFull.into())
            } else {
                Ok(accepted)
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nothing_is_written_after_a_partial_member() {
        for room in [0, 1, 511, 512, 513, 1023, 1024, 1536] {
            let mut writer = TarWriter::new(Full(room));
            let error = writer.write(&Sample::new("a").with("cls", 1).with("txt", "1")).unwrap_err();
            assert_eq!(error.location().member(), Some(if room < 1024 { "a.cls" } else { "a.txt" }));
            assert_eq!(error.location().offset(), Some(if room < 1024 { 0 } else { 1024 }));
            writer.out.0 = usize::MAX;
            assert!(writer.write(&Sample::new("b").with("cls", 1)).is_err());
            assert!(writer.finish().is_err());
        }
    }

    #[test]
    fn samples_beyond_the_limits_of_readers_are_refused() {
        let limits = Limits { sample: 10, members: 2, ..Limits::default() };
        let mut writer = TarWriter::with_options(Vec::new(), TarOptions::new().limits(limits)).unwrap();
        let fields = |key: &str, sizes: &[usize]| {
            let fields = sizes.iter().enumerate();
            fields.fold(Sample::new(key), |sample, (at, size)| sample.with(format!("f{at}"), vec![0; *size]))
        };
        for sizes in [&[11][..], &[5, 6], &[1, 1, 1]] {
            let error = writer.write(&fields("bad", sizes)).unwrap_err().to_string();
            assert!(error.contains("`TarOptions::limits`"), "{error}");
        }
        writer.write(&fields("good", &[5, 5])).unwrap();
    }

    #[test]
    fn time_mode_and_encoder_can_be_set() {
        let encoder = Encoder::empty().with("cls", |_| Ok(Bytes::from_static(b"one")));
        let options = TarOptions::new().mtime(1_700_000_000).mode(0o644).encoder(encoder);
        let mut writer = TarWriter::with_options(Vec::new(), options).unwrap();
        writer.write(&Sample::new("a").with("cls", 1)).unwrap();
        let bytes = writer.finish().unwrap();
        assert_eq!(&bytes[512..515], b"one");
        let header = ::tar::Header::from_byte_slice(&bytes[..512]);
        assert_eq!((header.mtime().unwrap(), header.mode().unwrap()), (1_700_000_000, 0o644));
    }
}
