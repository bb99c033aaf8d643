//! The grouping of members by key, whatever is kept of them.

use super::header::EntryKind;
use super::intern::Interner;
use super::limits::Limits;
use super::name::{is_meta, split_name};
use super::seen::Seen;
use super::walker::{Entry, Event, Walker};
use crate::error::{Error, ErrorKind, Result};
use crate::sample::{Position, Value};
use bytes::Bytes;
use bytestring::ByteString;
use smallvec::SmallVec;
use smol_str::SmolStr;
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

/// What is kept of a field.
pub(super) trait Keep: Sized {
    /// What is kept, where the header alone says it: the body is passed over then.
    fn of_header(entry: &Entry) -> Option<Self>;

    /// What is kept, where it takes the body.
    fn of_body(body: Bytes) -> Option<Self>;
}

impl Keep for Value {
    fn of_header(_: &Entry) -> Option<Self> {
        None
    }

    fn of_body(body: Bytes) -> Option<Self> {
        Some(Value::Bytes(body))
    }
}

/// Drives a [`Walker`] and groups its members into samples: what the parser and the outline have in common,
/// so that both see the same samples and the same faults.
#[derive(Debug)]
pub(super) struct Group<V> {
    pub(super) walker: Walker,
    pub(super) shard: Arc<str>,
    /// Where the next sample is.
    pub(super) position: Position,
    /// The field whose content comes next.
    member: Option<ByteString>,
    sample: Option<Pending<V>>,
    /// The archive of the sample in hand has ended: no member belongs to it any more.
    ended: bool,
    /// What was wrong with a sample, to be reported after the whole one before it.
    fault: Option<Error>,
    names: Interner,
    /// The keys so far, to notice one that comes back.
    keys: Seen,
}

/// What a [`Group`] found next.
pub(super) enum Found<V> {
    NeedInput,
    Sample(Pending<V>),
    End,
}

/// Number of fields from which on a set finds a repeated one sooner than a search through the list.
const MANY: usize = 32;

/// A sample whose members are being collected.
#[derive(Debug)]
pub(super) struct Pending<V> {
    pub(super) key: SmolStr,
    pub(super) fields: SmallVec<[(ByteString, V); 2]>,
    /// The names of the fields, once there are [`MANY`].
    names: Option<HashSet<ByteString>>,
    /// The bytes of its members, according to their headers.
    size: u64,
    pub(super) position: Position,
    /// The offset of the first header of its first member.
    pub(super) offset: u64,
    /// Something was wrong with it and has been reported: it is not given out.
    bad: bool,
}

impl<V> Pending<V> {
    fn has(&self, field: &ByteString) -> bool {
        match &self.names {
            None => self.fields.iter().any(|(name, _)| name == field),
            Some(names) => names.contains(field),
        }
    }

    fn push(&mut self, field: ByteString, value: V) {
        if self.fields.len() == MANY {
            self.names = Some(self.fields.iter().map(|(name, _)| name.clone()).collect());
        }
        if let Some(names) = &mut self.names {
            names.insert(field.clone());
        }
        self.fields.push((field, value));
    }

    /// It is not given out, and holds nothing any more.
    fn give_up(&mut self) {
        self.bad = true;
        (self.fields, self.names) = (SmallVec::new(), None);
    }
}

impl<V: Keep> Group<V> {
    /// At the beginning of a shard of that name.
    pub(super) fn new(shard: Arc<str>) -> Self {
        Group {
            walker: Walker::new(),
            shard,
            position: Position::default(),
            member: None,
            sample: None,
            ended: false,
            fault: None,
            names: Interner::default(),
            keys: Seen::default(),
        }
    }

    pub(super) fn with_limits(mut self, limits: Limits) -> Self {
        self.walker = self.walker.with_limits(limits);
        self
    }

    /// The next sample that is whole and sound; see [`SampleParser::next`](super::SampleParser::next).
    pub(super) fn next(&mut self) -> Result<Found<V>> {
        loop {
            if let Some(fault) = self.fault.take() {
                return Err(fault);
            }
            let whole = match self.walker.next().map_err(|error| self.damaged(error))? {
                Event::NeedInput => return Ok(Found::NeedInput),
                // Only now is it certain that the end marker was one, and the last sample whole.
                Event::End => match self.sample.take() {
                    None => return Ok(Found::End),
                    last => last,
                },
                Event::EndOfArchive => {
                    self.ended = true;
                    None
                }
                Event::Entry(entry) => self.entry(entry),
                Event::Body(body) => {
                    self.body(body);
                    None
                }
            };
            if let Some(pending) = whole.filter(|pending| !pending.bad) {
                return Ok(Found::Sample(pending));
            }
        }
    }

    /// Takes in a member's header. A member of another key makes the sample before it whole.
    ///
    /// Nothing is kept of the name itself: it is a slice of the chunk that the header came in.
    fn entry(&mut self, entry: Entry) -> Option<Pending<V>> {
        // A body follows files only, and is wanted only when all is well with this member.
        let unwanted = |parser: &mut Self| parser.walker.skip_body();
        let name = std::str::from_utf8(&entry.name);
        let is_text = name.is_ok();
        let name = name.map_or_else(|_| Cow::Owned(escaped(&entry.name)), Cow::Borrowed);
        let split = if is_meta(&name) { None } else { split_name(&name) };
        let Some((key, field)) = split.filter(|_| entry.kind != EntryKind::Other) else {
            unwanted(self);
            return None;
        };
        let mut whole = None;
        if std::mem::take(&mut self.ended) || self.sample.as_ref().is_none_or(|pending| *pending.key != *key)
        {
            let likely = self.sample.as_ref().map_or(0, |pending| pending.fields.len().min(MANY));
            whole = self.sample.replace(Pending {
                key: SmolStr::new(key),
                fields: SmallVec::with_capacity(likely),
                names: None,
                size: 0,
                position: self.position,
                offset: entry.offset,
                bad: false,
            });
            self.position.sample += 1;
            if !self.keys.insert(key) {
                self.report(&entry, ErrorKind::ScatteredSample);
            }
        }
        let field = match field.bytes().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii()) {
            true => self.names.intern(&field.to_lowercase()),
            false => self.names.intern(field),
        };
        if !is_text {
            self.report(&entry, ErrorKind::Header("a name that is not UTF-8".into()));
        } else if entry.kind == EntryKind::Link {
            let message =
                "a link in place of a file; write the shard again with `--dereference --hard-dereference`";
            self.report(&entry, ErrorKind::Header(message.into()));
        } else if self.sample.as_ref().is_some_and(|pending| pending.has(&field)) {
            self.report(&entry, ErrorKind::DuplicateMember { field: field.to_string() });
        } else if let Some(kind) = self.beyond_limits(&entry) {
            self.report(&entry, kind);
        }
        match self.sample.as_mut().filter(|pending| !pending.bad) {
            None => unwanted(self),
            Some(pending) => match V::of_header(&entry) {
                None => self.member = Some(field),
                Some(value) => {
                    pending.push(field, value);
                    unwanted(self);
                }
            },
        }
        whole
    }

    /// What is wrong with the sample in hand if it would be too large with this member. Counts the member.
    fn beyond_limits(&mut self, entry: &Entry) -> Option<ErrorKind> {
        let Limits { sample: limit, members, .. } = *self.walker.limits();
        let pending = self.sample.as_mut().filter(|pending| !pending.bad)?;
        pending.size = pending.size.saturating_add(entry.size);
        if pending.size > limit {
            return Some(ErrorKind::TooLarge { what: "a sample", size: pending.size, limit });
        }
        (pending.fields.len() as u64 >= members).then_some(ErrorKind::TooManyMembers { limit: members })
    }

    /// Takes in the content of the member announced last.
    fn body(&mut self, body: Bytes) {
        if let (Some(field), Some(pending), Some(value)) =
            (self.member.take(), &mut self.sample, V::of_body(body))
        {
            pending.push(field, value);
        }
    }

    /// Reports what is wrong with the sample in hand, once, and gives it up.
    fn report(&mut self, entry: &Entry, kind: ErrorKind) {
        let error = Error::from(kind)
            .in_shard(Arc::clone(&self.shard))
            .at_offset(entry.offset)
            .in_member(String::from_utf8_lossy(&entry.name));
        if let Some(pending) = self.sample.as_mut().filter(|pending| !pending.bad) {
            pending.give_up();
            self.fault = Some(error.with_key(pending.key.as_str()));
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
            Some(pending) => error.with_key(pending.key.as_str()),
            None => error,
        }
    }
}

/// A name that is not UTF-8 as text that tells it from others, so that it spoils the sample it belongs to and
/// no other.
fn escaped(name: &[u8]) -> String {
    let shown = name.utf8_chunks().map(|part| format!("{}{}", part.valid(), part.invalid().escape_ascii()));
    shown.collect()
}
