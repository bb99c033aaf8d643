//! From bytes to samples: the walker, and the grouping of members by key.

use super::header::EntryKind;
use super::name::{is_meta, split_name};
use super::walker::{Entry, Event, Limits, Walker};
use crate::error::{Error, ErrorKind, Result};
use crate::sample::{Position, Sample, Value};
use bytes::Bytes;
use bytestring::ByteString;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// What the [`SampleParser`] found next.
#[derive(Debug)]
#[non_exhaustive]
pub enum Parsed {
    /// Nothing, until more bytes are [pushed](SampleParser::push) or the input is [finished](SampleParser::finish).
    NeedInput,
    /// A whole sample.
    Sample(Sample),
    /// The shard has ended.
    End,
}

/// Parses the samples of one shard, in whatever chunks its bytes come.
///
/// Like the [`Walker`] that it drives, it owns no file, socket or thread. Adjacent members that share a key are one
/// sample; a sample is given out only when it is certain to be whole, that is when the next key or the archive's end
/// marker has been seen. Fields are named by the extension in lower case and keep the order of the shard. Skipped are
/// directories, hidden files, names without an extension and `__metadata__`.
///
/// The raw fields are slices of the chunks pushed, where they don't straddle two: see [`Sample::compact`].
#[derive(Debug)]
pub struct SampleParser {
    walker: Walker,
    shard: Arc<str>,
    position: Position,
    /// The field whose content comes next.
    member: Option<ByteString>,
    sample: Option<Pending>,
    /// What was wrong with a sample, to be reported after the whole one before it.
    fault: Option<Error>,
    /// Hashes of the keys that have been seen, to notice one that comes back.
    keys: HashSet<u64>,
    hasher: RandomState,
}

/// From so many fields on, looking through all of them for each new one would take long.
const MANY: usize = 32;

/// A sample whose members are being collected.
#[derive(Debug)]
struct Pending {
    key: ByteString,
    fields: Vec<(ByteString, Value)>,
    /// The names of the fields, once there are [`MANY`].
    names: HashSet<ByteString>,
    position: Position,
    /// Something was wrong with it and has been reported: it is not given out.
    bad: bool,
}

impl Pending {
    fn has(&self, field: &ByteString) -> bool {
        if self.names.is_empty() {
            self.fields.iter().any(|(name, _)| name == field)
        } else {
            self.names.contains(field)
        }
    }

    fn push(&mut self, field: ByteString, body: Bytes) {
        if self.fields.len() == MANY {
            self.names.extend(self.fields.iter().map(|(name, _)| name.clone()));
        }
        if self.fields.len() >= MANY {
            self.names.insert(field.clone());
        }
        self.fields.push((field, Value::Bytes(body)));
    }
}

impl SampleParser {
    /// A parser at the beginning of a shard, whose name is used in samples and errors.
    #[must_use]
    pub fn new(shard: impl Into<Arc<str>>) -> Self {
        SampleParser {
            walker: Walker::new(),
            shard: shard.into(),
            position: Position::default(),
            member: None,
            sample: None,
            fault: None,
            keys: HashSet::new(),
            hasher: RandomState::new(),
        }
    }

    /// Sets the epoch and the number of the shard that the samples' [positions](Sample::position) will name.
    #[must_use]
    pub fn at(mut self, epoch: u64, shard: u64) -> Self {
        self.position = Position { epoch, shard, sample: 0 };
        self
    }

    /// Sets the limits on what a tar header may claim.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.walker = self.walker.with_limits(limits);
        self
    }

    /// Gives the parser the next bytes of the shard.
    pub fn push(&mut self, chunk: Bytes) {
        self.walker.push(chunk);
    }

    /// Says that no more bytes will come.
    pub fn finish(&mut self) {
        self.walker.finish();
    }

    /// The next sample.
    ///
    /// # Errors
    /// Damage to the archive, as from [`Walker::next`]: the sample in hand is not given out, and
    /// [`Parsed::End`] comes next. A fault of one sample only ([`ErrorKind::DuplicateMember`],
    /// [`ErrorKind::ScatteredSample`], a link in place of a file, a name that is not UTF-8): that sample is not given
    /// out, and the next one comes next.
    #[allow(clippy::should_implement_trait)] // It asks for input in between, which no iterator can.
    pub fn next(&mut self) -> Result<Parsed> {
        loop {
            if let Some(fault) = self.fault.take() {
                return Err(fault);
            }
            let whole = match self.walker.next().map_err(|error| self.damaged(error))? {
                Event::NeedInput => return Ok(Parsed::NeedInput),
                Event::End => return Ok(Parsed::End),
                Event::EndOfArchive => self.sample.take(),
                Event::Entry(entry) => self.entry(entry),
                Event::Body(body) => {
                    self.body(body);
                    None
                }
            };
            if let Some(Pending { key, fields, position, .. }) = whole.filter(|pending| !pending.bad) {
                return Ok(Parsed::Sample(Sample::from_parts(
                    key,
                    fields,
                    Arc::clone(&self.shard),
                    position,
                )));
            }
        }
    }

    /// Takes in a member's header. A member of another key makes the sample before it whole.
    fn entry(&mut self, entry: Entry) -> Option<Pending> {
        // A body follows files only, and is wanted only when all is well with this member.
        let unwanted = |parser: &mut Self| parser.walker.skip_body();
        let name = ByteString::try_from(entry.name.clone());
        let is_text = name.is_ok();
        let name = name.unwrap_or_else(|_| escaped(&entry.name));
        let split = if is_meta(&name) { None } else { split_name(&name) };
        let Some((key, field)) = split.filter(|_| entry.kind != EntryKind::Other) else {
            unwanted(self);
            return None;
        };
        let mut whole = None;
        if self.sample.as_ref().is_none_or(|pending| *pending.key != *key) {
            let capacity = self.sample.as_ref().map_or(4, |pending| pending.fields.len());
            whole = self.sample.replace(Pending {
                key: name.slice_ref(key),
                fields: Vec::with_capacity(capacity),
                names: HashSet::new(),
                position: self.position,
                bad: false,
            });
            self.position.sample += 1;
            if !self.keys.insert(self.hasher.hash_one(key)) {
                self.report(&entry, ErrorKind::ScatteredSample);
            }
        }
        let field = match field.bytes().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii()) {
            true => ByteString::from(field.to_lowercase()),
            false => name.slice_ref(field),
        };
        if !is_text {
            self.report(&entry, ErrorKind::Header("a name that is not UTF-8".into()));
        } else if entry.kind == EntryKind::Link {
            let message =
                "a link in place of a file; write the shard again with `--dereference --hard-dereference`";
            self.report(&entry, ErrorKind::Header(message.into()));
        } else if self.sample.as_ref().is_some_and(|pending| pending.has(&field)) {
            self.report(&entry, ErrorKind::DuplicateMember { field: field.to_string() });
        }
        if self.sample.as_ref().is_some_and(|pending| pending.bad) {
            unwanted(self);
        } else {
            self.member = Some(field);
        }
        whole
    }

    /// Takes in the content of the member announced last.
    fn body(&mut self, body: Bytes) {
        if let (Some(field), Some(pending)) = (self.member.take(), &mut self.sample) {
            pending.push(field, body);
        }
    }

    /// Reports what is wrong with the sample in hand, once, and gives it up.
    fn report(&mut self, entry: &Entry, kind: ErrorKind) {
        let error = Error::from(kind)
            .in_shard(Arc::clone(&self.shard))
            .at_offset(entry.offset)
            .in_member(String::from_utf8_lossy(&entry.name));
        if let Some(pending) = self.sample.as_mut().filter(|pending| !pending.bad) {
            pending.bad = true;
            self.fault = Some(error.with_key(&*pending.key));
        }
    }

    /// The source of the bytes failed: says where.
    pub(super) fn broken(&mut self, error: Error) -> Error {
        let offset = self.walker.offset();
        self.damaged(error).at_offset(offset)
    }

    /// The archive can't be read further: whether the sample in hand is whole will never be known.
    fn damaged(&mut self, error: Error) -> Error {
        self.member = None;
        let error = error.in_shard(Arc::clone(&self.shard));
        match self.sample.take() {
            Some(pending) => error.with_key(&*pending.key),
            None => error,
        }
    }
}

/// A name that is not UTF-8 as text that tells it from others, so that it spoils the sample it belongs to and no other.
fn escaped(name: &[u8]) -> ByteString {
    name.utf8_chunks()
        .map(|part| format!("{}{}", part.valid(), part.invalid().escape_ascii()))
        .collect::<String>()
        .into()
}
