//! The tar walker: a state machine that turns bytes into members.

use super::archive_end::{self, ArchiveEnd};
use super::chunk_queue::{ChunkQueue, SharedSlice};
use super::event::{Entry, Event};
use super::header::{self, BLOCK, Block, EntryKind, Extension, SparseMap};
use super::limits::Limits;
use super::long_extension::LongExtension;
use super::refusal::{MemberRefusal, NameKnown};
use crate::error::{Error, ErrorKind, Result, SizeLimit};
use crate::file_kind::not_a_tar;
use bytes::Bytes;

/// Parses the members of a tar archive, from chunks of any size.
///
/// A walker owns no file, socket or thread: [`push`](Walker::push) bytes, call [`finish`](Walker::finish)
/// after the last bytes, and ask for the [`next`](Walker::next) event. A walker reads the v7, ustar, pax and
/// GNU formats and verifies every header's checksum. It refuses an archive that ends inside a member or has
/// no end marker, an archive with a single block of zeros in place of a header, and an archive whose end
/// marker is followed by anything but padding. It allocates memory only for content and headers that span
/// several chunks, and for a name that uses the ustar prefix field.
///
/// ```
/// use shardstream::tar::{Event, Walker};
///
/// let archive = std::fs::read("docs/data/digits-000000.tar")?;
/// let mut walker = Walker::new();
/// let mut chunks = archive.chunks(100);
/// let (mut entries, mut bytes) = (0, 0);
/// loop {
///     match walker.next()? {
///         Event::NeedInput => match chunks.next() {
///             Some(chunk) => walker.push(chunk.to_vec().into()),
///             None => walker.finish(),
///         },
///         Event::Entry(entry) => {
///             println!("{} at byte {}", String::from_utf8_lossy(&entry.name), entry.offset);
///             entries += 1;
///         }
///         Event::Body(content) => bytes += content.len(),
///         Event::End => break,
///         _ => {}
///     }
/// }
/// assert!(entries == 20 && bytes < archive.len());
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Walker {
    input: ChunkQueue,
    finished: bool,
    limits: Limits,
    state: WalkerState,
    /// The offset of the first header block of the current member.
    first_header: Option<u64>,
    extension: Extension,
    global: Extension,
    /// The name and size from an extension header that exceeds the limit, while this header is read.
    long: LongExtension,
    /// Why the next member is refused, if one of its extension headers exceeds the limit.
    next_refusal: Option<MemberRefusal>,
    /// Why the member of the last [`Event::Entry`] is refused.
    refused: Option<MemberRefusal>,
    /// Whether the end of the input was reached without damage.
    complete: bool,
    /// Whether a global pax header has set the name or the size of a member.
    global_used: bool,
    /// Whether the input may end between members, before the end of the archive.
    cut: bool,
    /// According to an index, the archive has members up to this offset.
    reach: u64,
    /// Number of archives that have ended.
    ended: u64,
    /// The offset of the current archive, if it is not the first one.
    archive: Option<u64>,
    /// The offset of the first pushed byte.
    start: u64,
}

#[derive(Debug, Default)]
enum WalkerState {
    /// A header block comes next; the input must not end before this block.
    #[default]
    Header,
    /// A block of zeros was at this offset, in place of a header. If another block of zeros follows, the two
    /// blocks are the end-of-archive marker.
    Zeros(u64),
    /// The archive has ended, with zeros from this offset on. More zeros, another archive or the end of the
    /// input comes next.
    Ended(u64),
    /// The content of an extension header comes next. It has this size.
    Extension(ExtensionKind, u64),
    /// The rest of an extension header that exceeds the limit comes next: `left` bytes, then padding.
    LongExtension { meaning: ExtensionKind, left: u64, padding: u64 },
    /// A block with the next part of a sparse member's map comes next, and then content of this size.
    SparseMap(u64),
    /// The content of a file comes next. It has this size.
    Body(u64),
    /// `left` bytes are skipped. The last `padding` of these bytes are padding.
    Skip { left: u64, padding: u64 },
    /// The input has ended, or is damaged.
    Done,
}

#[derive(Debug, Clone, Copy)]
enum ExtensionKind {
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

    /// Sets the limits on the archive's contents.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Gives the walker the next bytes of the archive.
    pub fn push(&mut self, chunk: Bytes) {
        self.input.push(chunk);
    }

    /// Records that the last bytes have been pushed.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Skips the content of the file whose entry [`next`](Walker::next) has just returned.
    pub fn skip_body(&mut self) {
        if let WalkerState::Body(size) = self.state {
            self.state = skipped_body(size);
        }
    }

    /// Starts at `offset` in the archive, where a member begins.
    pub(super) fn starting(mut self, offset: u64) -> Self {
        self.input = self.input.starting(offset);
        self.start = offset;
        self
    }

    /// Accepts input that ends between members, as if an end-of-archive marker followed.
    pub(super) fn cut(mut self) -> Self {
        self.cut = true;
        self
    }

    /// Sets the offset up to which the archive has members: zeros that begin before `offset` are not an end
    /// marker.
    pub(super) fn reaching(mut self, offset: u64) -> Self {
        self.reach = offset;
        self
    }

    /// The offset of the next byte that the walker needs.
    pub(super) fn wanted(&self) -> u64 {
        let left = if let WalkerState::Skip { left, .. } = self.state { left } else { 0 };
        self.offset().saturating_add(left)
    }

    /// Records that the next pushed byte is at `offset`. The walker must be about to skip all bytes before
    /// it.
    pub(super) fn skip_to(&mut self, offset: u64) {
        if let WalkerState::Skip { left, .. } = &mut self.state {
            let skipped = offset.saturating_sub(self.input.offset()).min(*left);
            *left -= skipped;
            let absent = self.input.skip(skipped);
            if absent > 0 {
                self.input.leave_out(absent);
            }
        }
    }

    /// Whether a global pax header has set the name or the size of a member. Such a member cannot be read
    /// without the beginning of the archive.
    pub(super) fn global_used(&self) -> bool {
        self.global_used
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Why the member of the last [`Event::Entry`] of [`step`](Walker::step) is refused; `None` if it is not
    /// refused. No body follows a refused member.
    pub(super) fn refused(&mut self) -> Option<MemberRefusal> {
        self.refused.take()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Number of bytes of the archive that have been consumed.
    pub(super) fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// The next event.
    ///
    /// # Errors
    /// A refused member, with its offset and name: [`ErrorKind::TooLarge`] if the member or its extension
    /// headers exceed the [limits](Limits), [`ErrorKind::Header`] if the member is sparse. The next call
    /// returns the next member.
    ///
    /// Damage, with the byte offset: [`ErrorKind::Truncated`], [`ErrorKind::ArchiveEnd`],
    /// [`ErrorKind::Checksum`] or [`ErrorKind::Header`]; [`ErrorKind::UnsupportedCompression`] for compressed
    /// data in place of an archive, [`ErrorKind::NotAnArchive`] for other data. The rest of the archive
    /// cannot be read: the next event is [`Event::End`].
    #[allow(clippy::should_implement_trait)] // An iterator could not ask for input in between.
    pub fn next(&mut self) -> Result<Event> {
        match (self.step()?, self.refused()) {
            (Event::Entry(entry), Some(refusal)) => Err(entry.refused(refusal)),
            (event, _) => Ok(event),
        }
    }

    /// The next event, which may be the entry of a member that is [`refused`](Walker::refused).
    pub(super) fn step(&mut self) -> Result<Event> {
        self.advance().inspect_err(|_| self.state = WalkerState::Done)
    }

    fn advance(&mut self) -> Result<Event> {
        loop {
            match self.state {
                WalkerState::Header | WalkerState::Zeros(_) | WalkerState::Ended(_) => {
                    let at = self.block_offset();
                    let parse = |block: SharedSlice<'_>| {
                        header::parse(block, &mut self.extension, &self.global).map_err(|error| {
                            match error.kind() {
                                ErrorKind::Checksum if at == 0 => not_a_tar(&block).unwrap_or(error),
                                _ => error,
                            }
                        })
                    };
                    let Some(parsed) = self.input.look(BLOCK, parse) else {
                        return self.starved(BLOCK as u64);
                    };
                    let event = match self.state {
                        WalkerState::Zeros(first) => self.second_block(&parsed, first),
                        WalkerState::Ended(first) => self.after_the_end(parsed, first, at),
                        _ => parsed.and_then(|block| self.header(block, at)),
                    };
                    if let Some(event) = event.map_err(|error| error.at_offset(at))? {
                        return Ok(event);
                    }
                }
                WalkerState::Extension(meaning, size) => {
                    let read = |content: SharedSlice<'_>| match meaning {
                        ExtensionKind::Pax => self.extension.read_pax(content),
                        ExtensionKind::LongName => self.extension.read_long_name(content),
                        ExtensionKind::GlobalPax => self.global.override_with(content),
                    };
                    let Some(read) = self.input.look(size as usize, read) else { return self.starved(size) };
                    self.state = skipped_padding(size);
                    let at = self.first_header.unwrap_or(self.offset().saturating_sub(size + BLOCK as u64));
                    read.map_err(|error| error.at_offset(at))?;
                }
                WalkerState::LongExtension { meaning, left, padding } => {
                    let Some(part) = self.input.part(left) else { return self.starved(left) };
                    match meaning {
                        ExtensionKind::LongName => self.long.take_name(&part),
                        _ => self.long.take_records(&part),
                    }
                    let left = left - part.len() as u64;
                    self.state = WalkerState::LongExtension { meaning, left, padding };
                    if left == 0 {
                        self.end_long_extension()
                            .map_err(|error| error.at_offset(self.first_header.unwrap_or(0)))?;
                        self.state = WalkerState::Skip { left: padding, padding };
                    }
                }
                WalkerState::SparseMap(size) => {
                    let Some(more) = self.input.look(BLOCK, |block| header::has_more_map(&block)) else {
                        return self.starved(BLOCK as u64);
                    };
                    self.state = if more { WalkerState::SparseMap(size) } else { skipped_body(size) };
                }
                WalkerState::Body(size) => {
                    let Some(content) = self.input.take(size as usize) else { return self.starved(size) };
                    self.state = skipped_padding(size);
                    return Ok(Event::Body(content));
                }
                WalkerState::Skip { left, padding } => match self.input.skip(left) {
                    0 => self.state = WalkerState::Header,
                    left => {
                        self.state = WalkerState::Skip { left, padding };
                        return self.starved(if left > padding { left - padding } else { left });
                    }
                },
                WalkerState::Done => return Ok(Event::End),
            }
        }
    }

    /// Handles the header block at the offset `at`.
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
                    return Err(archive_end::zeros_in_range());
                }
                self.state = WalkerState::Zeros(at);
            }
            Block::Pax { size } => {
                if std::mem::replace(&mut self.extension.pax, true) {
                    return Err(header::invalid("two pax headers for one member"));
                }
                self.extension(ExtensionKind::Pax, size)?;
            }
            Block::GlobalPax { size } => self.extension(ExtensionKind::GlobalPax, size)?,
            Block::LongName { size } => self.extension(ExtensionKind::LongName, size)?,
            Block::Ignored { size } => {
                self.end_of(at, size)?;
                self.state = skipped_body(size);
            }
            Block::Member { name, kind, size, sparse } => {
                self.first_header = None;
                self.global_used |= self.global.path.is_some() || self.global.size.is_some();
                self.end_of(at, size)?;
                let limit = self.limits.member;
                let too_large = (size > limit).then_some(MemberRefusal::Size { size, limit });
                let refusal = self.next_refusal.take().or(too_large);
                self.refused = match sparse {
                    Some(_) => Some(MemberRefusal::Sparse),
                    None => refusal.filter(|_| kind == EntryKind::File),
                };
                self.state = match (kind, sparse, self.refused) {
                    (EntryKind::File, None, None) => WalkerState::Body(size),
                    (_, Some(SparseMap::Continued), _) => WalkerState::SparseMap(size),
                    _ => skipped_body(size),
                };
                let data_offset = at + BLOCK as u64;
                return Ok(Some(Event::Entry(Entry { name, kind, size, offset: first, data_offset })));
            }
        }
        Ok(None)
    }

    /// Handles `parsed`, the block after a block of zeros. The block of zeros is at `first`, in place of a
    /// header.
    fn second_block(&mut self, parsed: &Result<Block>, first: u64) -> Result<Option<Event>> {
        if !matches!(parsed, Ok(Block::Zeros)) {
            return Err(archive_end::lone_block().at_offset(first));
        }
        self.state = WalkerState::Ended(first);
        self.ended += 1;
        // Global pax headers belong to one archive.
        self.global = Extension::default();
        Ok(Some(Event::EndOfArchive))
    }

    /// Handles the block at the offset `at`, after the end of an archive. The end marker of this archive is
    /// at `first`.
    fn after_the_end(&mut self, parsed: Result<Block>, first: u64, at: u64) -> Result<Option<Event>> {
        let block = match parsed {
            Ok(Block::Zeros) => return self.archive_end(first).check_more(at + BLOCK as u64).map(|()| None),
            Ok(block) => block,
            Err(error) if matches!(error.kind(), ErrorKind::Checksum) => {
                return Err(archive_end::data_after(first));
            }
            Err(error) if self.ended < self.limits.archives => return Err(error),
            Err(_) => return Err(archive_end::archive_after(first)),
        };
        if self.ended >= self.limits.archives {
            return Err(archive_end::archive_after(first));
        }
        self.archive_end(first).check(at)?;
        self.archive = Some(at);
        self.state = WalkerState::Header;
        self.header(block, at)
    }

    /// The end of the current archive, whose end marker is at `first`.
    fn archive_end(&self, first: u64) -> ArchiveEnd {
        // A walker that started in the middle of a shard with several archives does not know where the
        // current archive begins.
        let known = self.start == 0 || self.limits.archives <= 1;
        ArchiveEnd { first, archive: self.archive.or(known.then_some(0)), max_padding: self.limits.padding }
    }

    /// The offset of the next block. A part of this block may have been gathered already.
    fn block_offset(&self) -> u64 {
        self.input.offset() - self.input.gathered().len() as u64
    }

    /// Begins an extension header of `size` bytes.
    fn extension(&mut self, meaning: ExtensionKind, size: u64) -> Result<()> {
        let limit = self.limits.extension;
        self.state = match (meaning, size > limit) {
            (_, false) => WalkerState::Extension(meaning, size),
            // A global header may set the name or size of all later members, so no later member could be
            // read.
            (ExtensionKind::GlobalPax, true) => {
                return Err(ErrorKind::TooLarge { what: SizeLimit::ExtensionHeader, size, limit }.into());
            }
            (_, true) => {
                self.end_of(self.offset(), size)?;
                self.next_refusal = Some(MemberRefusal::Extension { size, limit, name: NameKnown::Whole });
                let padding = size.next_multiple_of(BLOCK as u64) - size;
                WalkerState::LongExtension { meaning, left: size, padding }
            }
        };
        Ok(())
    }

    /// Ends an extension header that exceeds the limit: moves the kept name and size to `extension`.
    fn end_long_extension(&mut self) -> Result<()> {
        let is_cut = std::mem::take(&mut self.long).finish(&mut self.extension)?;
        if let (true, Some(MemberRefusal::Extension { name, .. })) = (is_cut, &mut self.next_refusal) {
            *name = NameKnown::Beginning;
        }
        Ok(())
    }

    /// The offset at which content of `size` bytes ends, padding included. The header of the content is at
    /// `at`.
    fn end_of(&self, at: u64, size: u64) -> Result<u64> {
        size.checked_next_multiple_of(BLOCK as u64)
            .and_then(|size| size.checked_add(at)?.checked_add(BLOCK as u64))
            .filter(|_| usize::try_from(size).is_ok())
            .ok_or_else(|| header::invalid("a size beyond what can be addressed"))
    }

    /// Called when the walker needs the next `wanted` bytes and not all of them have been pushed. Asks for
    /// input. If the input has ended, ends the archive or returns an error.
    fn starved(&mut self, wanted: u64) -> Result<Event> {
        if !self.finished {
            return Ok(Event::NeedInput);
        }
        let gathered = self.input.gathered();
        let only_zeros = gathered.iter().all(|&byte| byte == 0);
        match self.state {
            WalkerState::Ended(first) => {
                if !only_zeros {
                    return Err(archive_end::data_after(first).at_offset(self.block_offset()));
                }
                if first < self.reach {
                    return Err(archive_end::ends_too_early(self.reach).at_offset(first));
                }
                self.archive_end(first).check(self.offset())?;
                (self.state, self.complete) = (WalkerState::Done, true);
                return Ok(Event::End);
            }
            WalkerState::Zeros(first) if !only_zeros => {
                return Err(archive_end::lone_block().at_offset(first));
            }
            WalkerState::Header if self.cut && gathered.is_empty() && self.first_header.is_none() => {
                (self.state, self.complete) = (WalkerState::Done, true);
                return Ok(Event::EndOfArchive);
            }
            WalkerState::Header if self.block_offset() == 0 => {
                if let Some(error) = not_a_tar(gathered) {
                    return Err(error.at_offset(0));
                }
            }
            _ => {}
        }
        let missing = wanted - gathered.len() as u64;
        Err(Error::from(ErrorKind::Truncated { missing }).at_offset(self.input.offset()))
    }
}

/// The state in which the walker skips content of `size` bytes and its padding. The addition cannot overflow:
/// `end_of` refused headers with sizes near `u64::MAX`.
fn skipped_body(size: u64) -> WalkerState {
    let left = size.next_multiple_of(BLOCK as u64);
    WalkerState::Skip { left, padding: left - size }
}

/// The state in which the walker skips the padding after content of `size` bytes.
fn skipped_padding(size: u64) -> WalkerState {
    let padding = size.next_multiple_of(BLOCK as u64) - size;
    WalkerState::Skip { left: padding, padding }
}
