//! The tar walker: a state machine that is given bytes and gives members.

use super::end;
use super::header::{self, BLOCK, Block, EntryKind, Extension};
use super::input::{Input, Piece};
use super::limits::Limits;
use crate::error::{Error, ErrorKind, Result};
use bytes::Bytes;

/// The header of a tar member.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The name as it is in the archive: pax and GNU long names are resolved. Usually UTF-8.
    pub name: Bytes,
    /// What the member is.
    pub kind: EntryKind,
    /// The size of its content in bytes.
    pub size: u64,
    /// The offset in the archive of its first header block, extension headers included.
    pub offset: u64,
    /// The offset in the archive of its content.
    pub data_offset: u64,
}

/// What the [`Walker`] found next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Nothing, until more bytes are [pushed](Walker::push) or the input is [finished](Walker::finish).
    NeedInput,
    /// A member. If it is a [file](EntryKind::File), its [`Body`](Event::Body) comes next, unless it is
    /// [skipped](Walker::skip_body).
    Entry(Entry),
    /// The whole content of the file before: a slice of the chunk pushed, or a copy where it straddles
    /// chunks.
    Body(Bytes),
    /// An end-of-archive marker: two blocks of zeros. Another archive may follow where [`Limits::archives`]
    /// allows it.
    EndOfArchive,
    /// The input has ended where it may.
    End,
}

/// Walks through the members of a tar archive, in whatever chunks its bytes come.
///
/// It owns no file, socket or thread: [`push`](Walker::push) it bytes, [`finish`](Walker::finish) it when
/// there are no more, and ask for the [`next`](Walker::next) event. It reads the v7, ustar, pax and GNU
/// formats and verifies every header's checksum. It refuses an archive that ends in the middle of anything or
/// has no end marker, a lone block of zeros in place of a header, and anything but padding after the end
/// marker. Walking allocates nothing per member, except for a name that is split over the ustar prefix field
/// and for content that straddles chunks.
///
/// ```
/// use shardstream::tar::{Event, Walker};
///
/// # fn main() -> shardstream::Result<()> {
/// # let archive = { let mut t = tar::Builder::new(vec![]); let mut h = tar::Header::new_ustar(); h.set_size(2);
/// #   t.append_data(&mut h, "0001.cls", &b"42"[..])?; t.into_inner()? };
/// let mut walker = Walker::new();
/// let mut chunks = archive.chunks(100);
/// loop {
///     match walker.next()? {
///         Event::NeedInput => match chunks.next() {
///             Some(chunk) => walker.push(chunk.to_vec().into()),
///             None => walker.finish(),
///         },
///         Event::Entry(entry) => assert_eq!(entry.name, "0001.cls"),
///         Event::Body(content) => assert_eq!(content, "42"),
///         Event::End => break,
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Walker {
    input: Input,
    finished: bool,
    limits: Limits,
    state: State,
    /// Where the first header block of the member in hand stands.
    first_header: Option<u64>,
    extension: Extension,
    global: Extension,
    /// A global pax header said something of a member.
    global_used: bool,
    /// The input ends where a member may begin, not where the archive does.
    cut: bool,
    /// The members reach up to this offset at least.
    reach: u64,
    /// How many archives have ended.
    ended: u64,
    /// Where the archive in hand begins, unless that is at offset 0.
    archive: Option<u64>,
    /// The offset of the first byte pushed.
    start: u64,
}

#[derive(Debug, Default)]
enum State {
    /// A header block comes next, and the archive may not end here.
    #[default]
    Header,
    /// A block of zeros stood at this offset, in place of a header. Another one makes both the end-of-archive
    /// marker.
    Zeros(u64),
    /// The archive has ended, with zeros that began at this offset; more of them, another archive or nothing
    /// comes next.
    Ended(u64),
    /// The content of an extension header comes next.
    Extension(Meaning, u64),
    /// The content of a file comes next.
    Body(u64),
    /// Bytes that are skipped: content that nobody wants, and then padding.
    Skip { left: u64, padding: u64 },
    /// Nothing comes any more: the input has ended, or is damaged.
    Done,
}

#[derive(Debug, Clone, Copy)]
enum Meaning {
    Pax,
    GlobalPax,
    LongName,
}

impl Walker {
    /// A walker at the beginning of an archive.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the limits on what is accepted.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Gives the walker the next bytes of the archive.
    pub fn push(&mut self, chunk: Bytes) {
        self.input.push(chunk);
    }

    /// Says that no more bytes will come.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Passes over the content of the file that [`next`](Walker::next) has just announced.
    pub fn skip_body(&mut self) {
        if let State::Body(size) = self.state {
            self.state = passing_over(size);
        }
    }

    /// The bytes pushed begin at `offset` of the archive, where a member begins.
    pub(super) fn starting(mut self, offset: u64) -> Self {
        self.input = self.input.starting(offset);
        self.start = offset;
        self
    }

    /// The input ends where a member may begin: that counts as an end-of-archive marker.
    pub(super) fn cut(mut self) -> Self {
        self.cut = true;
        self
    }

    /// The members reach up to `offset` at least: zeros that begin before are no end marker.
    pub(super) fn reaching(mut self, offset: u64) -> Self {
        self.reach = offset;
        self
    }

    /// The offset up to which the bytes that come next are passed over.
    pub(super) fn wanted(&self) -> u64 {
        let left = if let State::Skip { left, .. } = self.state { left } else { 0 };
        self.offset().saturating_add(left)
    }

    /// The bytes up to `offset`, which must all be passed over, are left out of the input: it continues
    /// there.
    pub(super) fn skip_to(&mut self, offset: u64) {
        if let State::Skip { left, .. } = &mut self.state {
            let skipped = offset.saturating_sub(self.input.offset()).min(*left);
            *left -= skipped;
            let absent = self.input.skip(skipped);
            if absent > 0 {
                self.input.leave_out(absent);
            }
        }
    }

    /// Whether a global pax header has said something of a member, which then means less without what is
    /// before it.
    pub(super) fn global_used(&self) -> bool {
        self.global_used
    }

    /// The limits on what is accepted.
    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// How many bytes of the archive have been used up.
    pub(super) fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// The next event.
    ///
    /// # Errors
    /// [`ErrorKind::Truncated`], [`ErrorKind::ArchiveEnd`], [`ErrorKind::Checksum`], [`ErrorKind::Header`] or
    /// [`ErrorKind::TooLarge`], with the byte offset and, where it is known, the member;
    /// [`ErrorKind::UnsupportedCompression`] where compressed data is in place of the archive. The
    /// archive can't be read further: the next event is [`Event::End`].
    #[allow(clippy::should_implement_trait)] // It asks for input in between, which no iterator can.
    pub fn next(&mut self) -> Result<Event> {
        self.advance().inspect_err(|_| self.state = State::Done)
    }

    fn advance(&mut self) -> Result<Event> {
        loop {
            match self.state {
                State::Header | State::Zeros(_) | State::Ended(_) => {
                    let at = self.block_offset();
                    let parse = |block: Piece<'_>| {
                        header::parse(block, &mut self.extension, &self.global).map_err(|error| {
                            if at == 0 { header::compressed(&block).unwrap_or(error) } else { error }
                        })
                    };
                    let Some(parsed) = self.input.look(BLOCK, parse) else {
                        return self.starved(BLOCK as u64);
                    };
                    let event = match self.state {
                        State::Zeros(first) => self.second_block(&parsed, first),
                        State::Ended(first) => self.after_the_end(parsed, first, at),
                        _ => parsed.and_then(|block| self.header(block, at)),
                    };
                    if let Some(event) = event.map_err(|error| error.at_offset(at))? {
                        return Ok(event);
                    }
                }
                State::Extension(meaning, size) => {
                    let read = |content: Piece<'_>| match meaning {
                        Meaning::Pax => self.extension.read_pax(content),
                        Meaning::LongName => self.extension.read_long_name(content),
                        Meaning::GlobalPax => self.global.override_with(content),
                    };
                    let Some(read) = self.input.look(size as usize, read) else { return self.starved(size) };
                    self.state = padding_of(size);
                    let at = self.first_header.unwrap_or(self.offset().saturating_sub(size + BLOCK as u64));
                    read.map_err(|error| error.at_offset(at))?;
                }
                State::Body(size) => {
                    let Some(content) = self.input.take(size as usize) else { return self.starved(size) };
                    self.state = padding_of(size);
                    return Ok(Event::Body(content));
                }
                State::Skip { left, padding } => match self.input.skip(left) {
                    0 => self.state = State::Header,
                    left => {
                        self.state = State::Skip { left, padding };
                        return self.starved(if left > padding { left - padding } else { left });
                    }
                },
                State::Done => return Ok(Event::End),
            }
        }
    }

    /// Takes in a header block that stood at `at`.
    fn header(&mut self, parsed: Block, at: u64) -> Result<Option<Event>> {
        let first = match parsed {
            // A global header belongs to no member.
            Block::Zeros | Block::GlobalPax { .. } => at,
            _ => *self.first_header.get_or_insert(at),
        };
        match parsed {
            Block::Zeros => {
                if self.first_header.is_some() {
                    return Err(header::invalid("an extension header without a member after it"));
                }
                if self.cut && self.limits.archives <= 1 {
                    return Err(end::in_a_part());
                }
                self.state = State::Zeros(at);
            }
            Block::Pax { size } => {
                if std::mem::replace(&mut self.extension.pax, true) {
                    return Err(header::invalid("two pax headers for one member"));
                }
                self.extension(Meaning::Pax, size)?;
            }
            Block::GlobalPax { size } => self.extension(Meaning::GlobalPax, size)?,
            Block::LongName { size } => self.extension(Meaning::LongName, size)?,
            Block::Ignored { size } => {
                self.end_of(at, size)?;
                self.state = passing_over(size);
            }
            Block::Member { name, kind, size } => {
                self.first_header = None;
                self.global_used |= self.global.path.is_some() || self.global.size.is_some();
                self.end_of(at, size)?;
                let member = || String::from_utf8_lossy(&name).into_owned();
                if kind == EntryKind::File && size > self.limits.member {
                    let limit = self.limits.member;
                    return Err(Error::from(ErrorKind::TooLarge { what: "a tar member", size, limit })
                        .in_member(member()));
                }
                self.state = match kind {
                    EntryKind::File => State::Body(size),
                    _ => passing_over(size),
                };
                let data_offset = at + BLOCK as u64;
                return Ok(Some(Event::Entry(Entry { name, kind, size, offset: first, data_offset })));
            }
        }
        Ok(None)
    }

    /// Takes in the block after a block of zeros that stood at `first` in place of a header.
    fn second_block(&mut self, parsed: &Result<Block>, first: u64) -> Result<Option<Event>> {
        if !matches!(parsed, Ok(Block::Zeros)) {
            return Err(end::lone_block().at_offset(first));
        }
        self.state = State::Ended(first);
        self.ended += 1;
        // Global pax headers belong to one archive.
        self.global = Extension::default();
        Ok(Some(Event::EndOfArchive))
    }

    /// Takes in a block at `at`, after the end of an archive whose end marker stood at `first`.
    fn after_the_end(&mut self, parsed: Result<Block>, first: u64, at: u64) -> Result<Option<Event>> {
        let block = match parsed {
            Ok(Block::Zeros) => return self.end(first).check_more(at + BLOCK as u64).map(|()| None),
            Ok(block) => block,
            Err(error) if matches!(error.kind(), ErrorKind::Checksum) => return Err(end::data(first)),
            Err(error) if self.ended < self.limits.archives => return Err(error),
            Err(_) => return Err(end::archive(first)),
        };
        if self.ended >= self.limits.archives {
            return Err(end::archive(first));
        }
        self.end(first).check(at)?;
        self.archive = Some(at);
        self.state = State::Header;
        self.header(block, at)
    }

    /// The end of the archive in hand, whose end marker stood at `first`.
    fn end(&self, first: u64) -> end::End {
        // Among several archives, a reader that began in the middle does not know where the one in hand
        // begins.
        let known = self.start == 0 || self.limits.archives <= 1;
        end::End { first, archive: self.archive.or(known.then_some(0)), most: self.limits.padding }
    }

    /// The offset of the block that comes next, or has come in part.
    fn block_offset(&self) -> u64 {
        self.input.offset() - self.input.gathered().len() as u64
    }

    fn extension(&mut self, meaning: Meaning, size: u64) -> Result<()> {
        let limit = self.limits.extension;
        if size > limit {
            return Err(ErrorKind::TooLarge { what: "a tar extension header", size, limit }.into());
        }
        self.state = State::Extension(meaning, size);
        Ok(())
    }

    /// The offset at which the content of `size` bytes after the header at `at` ends, padding included.
    fn end_of(&self, at: u64, size: u64) -> Result<u64> {
        size.checked_next_multiple_of(BLOCK as u64)
            .and_then(|size| size.checked_add(at)?.checked_add(BLOCK as u64))
            .filter(|_| usize::try_from(size).is_ok())
            .ok_or_else(|| header::invalid("a size beyond what can be addressed"))
    }

    /// There are no `wanted` bytes yet: waits for them, or ends.
    fn starved(&mut self, wanted: u64) -> Result<Event> {
        if !self.finished {
            return Ok(Event::NeedInput);
        }
        let gathered = self.input.gathered();
        let only_zeros = gathered.iter().all(|&byte| byte == 0);
        match self.state {
            State::Ended(first) => {
                if !only_zeros {
                    return Err(end::data(first).at_offset(self.block_offset()));
                }
                if first < self.reach {
                    return Err(end::too_early(self.reach).at_offset(first));
                }
                self.end(first).check(self.offset())?;
                self.state = State::Done;
                return Ok(Event::End);
            }
            State::Zeros(first) if !only_zeros => return Err(end::lone_block().at_offset(first)),
            State::Header if self.cut && gathered.is_empty() && self.first_header.is_none() => {
                self.state = State::Done;
                return Ok(Event::EndOfArchive);
            }
            State::Header if self.block_offset() == 0 => {
                if let Some(error) = header::compressed(gathered) {
                    return Err(error.at_offset(0));
                }
            }
            _ => {}
        }
        let missing = wanted - gathered.len() as u64;
        Err(Error::from(ErrorKind::Truncated { missing }).at_offset(self.input.offset()))
    }
}

/// Passes over content of `size` bytes, padding included. Sizes near the end of `u64` were refused with their
/// header.
fn passing_over(size: u64) -> State {
    let left = size.next_multiple_of(BLOCK as u64);
    State::Skip { left, padding: left - size }
}

/// Passes over the padding after content of `size` bytes.
fn padding_of(size: u64) -> State {
    let padding = size.next_multiple_of(BLOCK as u64) - size;
    State::Skip { left: padding, padding }
}
