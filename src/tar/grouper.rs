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

/// What is stored of a field: its content, or its place in the archive.
pub(super) trait FieldContent: Sized {
    /// The value, if it follows from the header alone. The body is then skipped.
    fn of_header(entry: &Entry) -> Option<Self>;

    /// The value, if it needs the body.
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

/// Drives a [`Walker`] and groups its members into samples. The parser and the outline share it, so that both
/// find the same samples and the same errors.
#[derive(Debug)]
pub(super) struct Grouper<V> {
    pub(super) walker: Walker,
    pub(super) shard: Arc<str>,
    /// The position of the next sample.
    pub(super) position: Position,
    /// The field whose content comes next.
    member: Option<ByteString>,
    sample: Option<Pending<V>>,
    /// Whether the archive of the current sample has ended, so that no other member belongs to the sample.
    ended: bool,
    /// The error of a sample, which is returned after the complete sample before it.
    fault: Option<Error>,
    /// The samples that may have more members, if members need not be adjacent.
    held: Option<HeldSamples<V>>,
    /// The beginnings of the names of refused members whose whole names are not known, until the next sample
    /// begins, or to the end if members need not be adjacent.
    unnamed: Vec<Bytes>,
    names: Interner,
    /// The keys so far, to detect a repeated one.
    keys: SeenKeys,
}

/// What a [`Grouper`] found next.
pub(super) enum GroupEvent<V> {
    NeedInput,
    Sample(Pending<V>),
    End,
}

impl<V: FieldContent> Grouper<V> {
    /// A grouper at the beginning of the shard of this name.
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

    /// The next complete sample without an error; see [`SampleParser::next`](super::SampleParser::next).
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
                // Only now is it certain that this was the end marker, and that the last sample is complete.
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

    /// Handles a member's header. A member of another key completes the sample before it, which is returned.
    ///
    /// The name is copied: it is a slice of the chunk that the header is in.
    fn entry(&mut self, entry: Entry) -> Option<Pending<V>> {
        let refusal = self.walker.refused();
        if let Some(refusal) = refusal.filter(|refusal| refusal.name() == NameKnown::Beginning) {
            self.unnamed(entry.name.clone(), entry.refused(refusal));
            return None;
        }
        // Only a file has a body, which is skipped unless the member is wanted.
        let skip_body = |grouper: &mut Self| grouper.walker.skip_body();
        let name = std::str::from_utf8(&entry.name);
        let is_text = name.is_ok();
        let name = name.map_or_else(|_| Cow::Owned(escaped(&entry.name)), Cow::Borrowed);
        // `tar -cf x.tar .` writes it before every name.
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
            let message = "the name of a member before it is too long to be read, and may be of this sample";
            self.report(entry, ErrorKind::Header(message.into()));
        }
        if self.held.is_none() {
            self.unnamed.clear();
        }
    }

    /// Whether members of several samples were mixed.
    pub(super) fn is_mixed(&self) -> bool {
        self.held.as_ref().is_some_and(HeldSamples::is_mixed)
    }

    /// Handles a member of which only the beginning of the name is known. The current sample is dropped if it
    /// may be of that sample, and so is the next one.
    fn unnamed(&mut self, name: Bytes, error: Error) {
        let held = self.held.iter_mut().flat_map(HeldSamples::iter_mut);
        for pending in self.sample.iter_mut().chain(held).filter(|pending| may_belong(&name, pending.key())) {
            pending.give_up();
        }
        self.fault = Some(error.in_shard(Arc::clone(&self.shard)));
        self.unnamed.push(name);
    }

    /// The error if the current sample is too large with this member, which is counted.
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

    /// Adds the place to an error of the source of the bytes.
    pub(super) fn broken(&mut self, error: Error) -> Error {
        let offset = self.walker.offset();
        self.lost(error, true).at_offset(offset)
    }

    /// Adds the place to an error after which the archive can't be read further, and drops the current
    /// sample, which may be incomplete. The error is of that sample if the bytes end in it; a damaged header
    /// may be of any other one.
    fn damaged(&mut self, error: Error) -> Error {
        let is_header =
            matches!(error.kind(), ErrorKind::Checksum | ErrorKind::Header(_) | ErrorKind::TooLarge { .. });
        self.lost(error, !is_header)
    }

    /// Drops the current sample, of which the error is if `is_named`.
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

/// Whether a member whose name begins like this may be of the sample with this key.
fn may_belong(name: &[u8], key: &str) -> bool {
    let known = name.len().min(key.len());
    name[..known] == key.as_bytes()[..known] && name.get(known).is_none_or(|&next| next == b'.')
}

/// A name that is not UTF-8 as distinct text, so that its error concerns only the sample that it belongs to.
fn escaped(name: &[u8]) -> String {
    let shown = name.utf8_chunks().map(|part| format!("{}{}", part.valid(), part.invalid().escape_ascii()));
    shown.collect()
}
