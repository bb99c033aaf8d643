//! Groups members by key into samples, with or without their content.

use super::event::{Entry, Event};
use super::header::EntryKind;
use super::held_samples::HeldSamples;
use super::intern::Interner;
use super::limits::Limits;
use super::name::{is_meta, split_name};
use super::pending::{MANY_FIELDS, Pending};
use super::refusal::{MemberRefusal, NameKnown};
use super::seen_keys::SeenKeys;
use super::walker::Walker;
use crate::error::{Error, ErrorKind, Result, SizeLimit};
use crate::sample::{Fields, Position, SampleContent, Value};
use bytes::Bytes;
use bytestring::ByteString;
use smol_str::SmolStr;
use std::borrow::Cow;
use std::sync::Arc;

/// The stored value of a field: its content, or its byte range in the archive.
pub(super) trait FieldContent: Sized {
    /// The value, if it can be made from the header alone. The walker then skips the body.
    fn of_header(entry: &Entry) -> Option<Self>;

    /// The value, made from the body; `None` for types that are made from the header.
    fn of_body(body: Bytes) -> Option<Self>;
}

impl FieldContent for Value {
    fn of_header(_: &Entry) -> Option<Self> {
        None
    }

    fn of_body(body: Bytes) -> Option<Self> {
        Some(Value::Bytes(body))
    }
}

/// Drives a [`Walker`] and groups its members into samples. The parser and the outline share this type, so
/// both find the same samples and the same errors.
#[derive(Debug)]
pub(super) struct Grouper<V> {
    pub(super) walker: Walker,
    pub(super) shard: Arc<str>,
    /// The position of the next sample.
    pub(super) position: Position,
    /// The field whose content the walker returns next.
    member: Option<ByteString>,
    sample: Option<Pending<V>>,
    /// Whether the archive of the current sample has ended. In this case, no other member belongs to the
    /// sample.
    ended: bool,
    /// The next error to return. If the member with the error completes the previous sample, this sample is
    /// returned first.
    fault: Option<Error>,
    /// The samples that may have more members; `None` if the members of a sample must be adjacent.
    held: Option<HeldSamples<V>>,
    /// The beginnings of the names of refused members whose names are too long. The list is cleared when the
    /// next sample begins. If the members of a sample need not be adjacent, the list is never cleared.
    unnamed: Vec<Bytes>,
    names: Interner,
    /// The keys of all samples that have begun, to detect repeated keys.
    keys: SeenKeys,
}

pub(super) enum GroupEvent<V> {
    NeedInput,
    Sample(Pending<V>),
    End,
}

impl<V: FieldContent> Grouper<V> {
    /// A grouper at the beginning of the shard with this name.
    pub(super) fn new(shard: Arc<str>) -> Self {
        Grouper {
            walker: Walker::new(),
            shard,
            position: Position::default(),
            member: None,
            sample: None,
            ended: false,
            fault: None,
            held: None,
            unnamed: Vec::new(),
            names: Interner::default(),
            keys: SeenKeys::default(),
        }
    }

    pub(super) fn with_limits(mut self, limits: Limits) -> Self {
        self.walker = self.walker.with_limits(limits);
        self.held = (limits.unsorted > 0).then(|| HeldSamples::new(limits.unsorted));
        self
    }

    /// The next complete sample that has no error; see [`SampleParser::next`](super::SampleParser::next).
    pub(super) fn next(&mut self) -> Result<GroupEvent<V>> {
        loop {
            if let Some(complete) = self.held.as_mut().and_then(HeldSamples::next_complete) {
                return Ok(GroupEvent::Sample(complete));
            }
            if let Some(fault) = self.fault.take() {
                return Err(fault);
            }
            let whole = match self.walker.step().map_err(|error| self.damaged(error))? {
                Event::NeedInput => return Ok(GroupEvent::NeedInput),
                // The last sample is complete only at the end of the input, when the padding has been
                // checked. At `Event::EndOfArchive`, the zeros may still prove to be overwritten members.
                Event::End => match (self.sample.take(), &mut self.held) {
                    (None, _) => return Ok(GroupEvent::End),
                    (last, None) => last,
                    (last, Some(held)) => {
                        held.complete_all(last);
                        None
                    }
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
                return Ok(GroupEvent::Sample(pending));
            }
        }
    }

    /// Handles a member's header. If the member has another key than the current sample, the current sample
    /// is complete and is returned.
    ///
    /// Key and field name are copied: a slice of the header's chunk would keep the whole chunk in memory.
    fn entry(&mut self, entry: Entry) -> Option<Pending<V>> {
        let refusal = self.walker.refused();
        if let Some(refusal) = refusal.filter(|refusal| refusal.name() == NameKnown::Beginning) {
            self.unnamed(entry.name.clone(), entry.refused(refusal));
            return None;
        }
        let skip_body = |grouper: &mut Self| grouper.walker.skip_body();
        let name = std::str::from_utf8(&entry.name);
        let is_text = name.is_ok();
        let name = name.map_or_else(|_| Cow::Owned(escaped(&entry.name)), Cow::Borrowed);
        // `tar -cf x.tar .` writes `./` before every name.
        let name = if self.held.is_some() { name.trim_start_matches("./") } else { &name };
        let split = if is_meta(name) { None } else { split_name(name) };
        let Some((key, field)) = split.filter(|_| entry.kind != EntryKind::Other) else {
            skip_body(self);
            return None;
        };
        let mut whole = None;
        let ended = std::mem::take(&mut self.ended);
        if ended || self.sample.as_ref().is_none_or(|pending| pending.key() != key) {
            let before = self.sample.take();
            let likely = before.as_ref().map_or(0, |pending| pending.content.fields.len().min(MANY_FIELDS));
            match &mut self.held {
                None => whole = before,
                Some(held) => {
                    if ended {
                        held.complete_all(before);
                    } else {
                        held.hold(before, entry.offset);
                    }
                    self.sample = held.resume(key);
                }
            }
            if self.sample.is_none() {
                self.begin(key, likely, &entry);
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
        } else if let Some(kind) = refusal.map(MemberRefusal::kind).or_else(|| self.beyond_limits(&entry)) {
            self.report(&entry, kind);
        }
        match self.sample.as_mut().filter(|pending| !pending.bad) {
            None => skip_body(self),
            Some(pending) => match V::of_header(&entry) {
                None => self.member = Some(field),
                Some(value) => {
                    pending.push(field, value);
                    skip_body(self);
                }
            },
        }
        whole
    }

    /// Begins a sample with its first member.
    fn begin(&mut self, key: &str, likely_fields: usize, entry: &Entry) {
        let content = Box::new(SampleContent {
            key: SmolStr::new(key),
            fields: Fields::with_capacity(likely_fields),
            shard: Arc::clone(&self.shard),
            position: self.position,
        });
        self.sample = Some(Pending { content, names: None, size: 0, offset: entry.offset, bad: false });
        self.position.sample += 1;
        let repeated = match &mut self.held {
            None => (!self.keys.insert(key)).then_some(ErrorKind::ScatteredSample),
            Some(held) => held.begin(key, entry.offset),
        };
        if let Some(kind) = repeated {
            self.report(entry, kind);
        }
        if self.unnamed.iter().any(|name| may_belong(name, key)) {
            let message =
                "the name of an earlier member is too long to be read; the member may belong to this sample";
            self.report(entry, ErrorKind::Header(message.into()));
        }
        if self.held.is_none() {
            self.unnamed.clear();
        }
    }

    /// Whether any sample had members that were not adjacent.
    pub(super) fn is_mixed(&self) -> bool {
        self.held.as_ref().is_some_and(HeldSamples::is_mixed)
    }

    /// Handles a refused member whose name is known only in part. The key of a sample shows whether the
    /// member may belong to the sample. Each sample to which the member may belong is dropped: the current
    /// sample and the held samples are checked now, the next sample when it begins.
    fn unnamed(&mut self, name: Bytes, error: Error) {
        let held = self.held.iter_mut().flat_map(HeldSamples::iter_mut);
        for pending in self.sample.iter_mut().chain(held).filter(|pending| may_belong(&name, pending.key())) {
            pending.give_up();
        }
        self.fault = Some(error.in_shard(Arc::clone(&self.shard)));
        self.unnamed.push(name);
    }

    /// Counts a member, and returns an error if the current sample is now too large.
    fn beyond_limits(&mut self, entry: &Entry) -> Option<ErrorKind> {
        let Limits { sample: limit, members, .. } = *self.walker.limits();
        let pending = self.sample.as_mut().filter(|pending| !pending.bad)?;
        pending.size = pending.size.saturating_add(entry.size);
        if pending.size > limit {
            return Some(ErrorKind::TooLarge { what: SizeLimit::Sample, size: pending.size, limit });
        }
        (pending.content.fields.len() as u64 >= members)
            .then_some(ErrorKind::TooManyMembers { limit: members })
    }

    /// Handles the content of the last member.
    fn body(&mut self, body: Bytes) {
        if let (Some(field), Some(pending), Some(value)) =
            (self.member.take(), &mut self.sample, V::of_body(body))
        {
            pending.push(field, value);
        }
    }

    /// Records the first error of the current sample, and drops the sample.
    fn report(&mut self, entry: &Entry, kind: ErrorKind) {
        let error = Error::from(kind)
            .in_shard(Arc::clone(&self.shard))
            .at_offset(entry.offset)
            .in_member(String::from_utf8_lossy(&entry.name));
        if let Some(pending) = self.sample.as_mut().filter(|pending| !pending.bad) {
            pending.give_up();
            self.fault = Some(error.with_key(pending.key()));
        }
    }

    /// Adds shard, key and offset to an error of the source of the bytes.
    pub(super) fn broken(&mut self, error: Error) -> Error {
        let offset = self.walker.offset();
        self.lost(error, true).at_offset(offset)
    }

    /// Adds shard and key to an error that ends the archive, and drops the current sample, which may be
    /// incomplete. If the bytes end inside the sample, the error has the sample's key. If a header is
    /// damaged, the error has no key: the header may belong to another sample.
    fn damaged(&mut self, error: Error) -> Error {
        let is_header =
            matches!(error.kind(), ErrorKind::Checksum | ErrorKind::Header(_) | ErrorKind::TooLarge { .. });
        self.lost(error, !is_header)
    }

    /// Drops the current sample and the held samples. Adds the current sample's key to the error if
    /// `is_named`.
    fn lost(&mut self, error: Error, is_named: bool) -> Error {
        self.member = None;
        if let Some(held) = &mut self.held {
            held.clear();
        }
        let error = error.in_shard(Arc::clone(&self.shard));
        match self.sample.take().filter(|_| is_named) {
            Some(pending) => error.with_key(pending.key()),
            None => error,
        }
    }
}

/// Whether a member whose name begins with `name` may belong to the sample with this key.
fn may_belong(name: &[u8], key: &str) -> bool {
    let known = name.len().min(key.len());
    name[..known] == key.as_bytes()[..known] && name.get(known).is_none_or(|&next| next == b'.')
}

/// Escapes a name that is not UTF-8, so that different names have different keys. The error for the name then
/// affects only the sample that the name belongs to.
fn escaped(name: &[u8]) -> String {
    let shown = name.utf8_chunks().map(|part| format!("{}{}", part.valid(), part.invalid().escape_ascii()));
    shown.collect()
}
