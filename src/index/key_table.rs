//! A table from the hash of each key to the number of the key's sample, in memory or in a stored document.
//!
//! ```text
//! 89 53 48 4b 45 59 0d 0a   magic number
//! 01                        version of the form
//! head                      26 bytes: the number of keys (8) and the length of `shards` (8), the number
//!                           of bits that choose a block (1), the length of a sample's number (1), the
//!                           CRC-32C of `blocks` (4), and that of everything before it (4)
//! shards                    the shards as a compact index, without layouts
//! blocks                    for each block the number of entries in it and in all blocks before it (8),
//!                           and the CRC-32C of its own entries (4)
//! entries                   for each key its hash (8), and the number of its sample in all shards
//! ```
//!
//! All numbers are little-endian. The number of a sample counts the samples of all shards, in the order of
//! `shards`, from 0. The first bits of a hash determine the block that has its entry, so a look-up reads one
//! block of a few kilobytes. Entries are sorted by hash and number. If several keys have the same hash, each
//! key has its own entry; a caller that looks up a key must compare the keys of the samples.

use super::compact::{self, CompactReader};
use super::shard_entry::ShardEntry;
use super::{Index, ShardIndex};
use crate::error::{ErrorKind, Result};
use crate::json;
use crate::store::{ObjectVersion, Store};
use bytes::Bytes;

const MAGIC: &[u8] = b"\x89SHKEY\r\n";
const VERSION: u8 = 1;

/// Length in bytes of the magic number, the version and the head.
const HEAD: usize = MAGIC.len() + 1 + 26;
/// Length in bytes of a block's entry in `blocks`.
const BLOCK: usize = 12;
/// Length in bytes of a hash.
const HASH: usize = 8;
/// A block has at least this many keys on average.
const KEYS_PER_BLOCK: usize = 512;
/// When the whole table is read, requests have up to this many bytes.
const RUN: u64 = 4 << 20;

/// The blocks and entries of a key index, without its list of shards.
pub(super) struct KeyTable {
    layout: TableLayout,
    blocks: Vec<KeyBlock>,
    entries: Entries,
}

#[derive(Debug, Clone, Copy)]
struct KeyBlock {
    /// The total number of entries in this block and all blocks before it.
    end: u64,
    /// The CRC-32C of the block's entries.
    checksum: u32,
}

enum Entries {
    /// The entries are in memory.
    Loaded(Bytes),
    /// The entries are read from this document, block by block.
    Stored(StoredDocument),
}

/// A stored document. Its parts are read when they are needed.
pub(super) struct StoredDocument {
    pub(super) store: Store,
    pub(super) url: String,
    pub(super) object: ObjectVersion,
}

/// The numbers in the head of a document.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableLayout {
    keys: u64,
    shards_length: u64,
    bits: u8,
    number_length: u8,
    blocks_checksum: u32,
    /// The offset of the entries in the document.
    pub(super) entries_at: u64,
    /// The length of the document in bytes.
    pub(super) end: u64,
}

impl TableLayout {
    /// Reads the head from the beginning of a document.
    pub(super) fn read(document: &[u8]) -> Result<Self> {
        let Some(head) = document.first_chunk::<HEAD>() else { return damaged("it ends too early") };
        match head.strip_prefix(MAGIC) {
            Some([VERSION, ..]) => {}
            Some([version, ..]) => {
                let what =
                    format!("it is a key index of version {version}, and this release knows {VERSION}");
                return Err(ErrorKind::Index(what).into());
            }
            _ => return Err(ErrorKind::Index("this is not a key index".into()).into()),
        }
        let (checked, sum) = head.split_at(HEAD - 4);
        if crc32c::crc32c(checked) != u32_at(sum, 0) {
            return damaged("the checksum of its head differs");
        }
        let at = MAGIC.len() + 1;
        let (bits, number_length) = (head[at + 16], head[at + 17]);
        TableLayout::new(u64_at(head, at), u64_at(head, at + 8), bits, number_length, u32_at(head, at + 18))
            .map_or_else(|| damaged("its head has impossible numbers"), Ok)
    }

    fn new(keys: u64, shards_length: u64, bits: u8, number_length: u8, blocks_checksum: u32) -> Option<Self> {
        if bits > 40 || !(1..=8).contains(&number_length) {
            return None;
        }
        let entries_at = (HEAD as u64).checked_add(shards_length)?.checked_add((BLOCK as u64) << bits)?;
        let end = keys.checked_mul((HASH + usize::from(number_length)) as u64)?.checked_add(entries_at)?;
        Some(TableLayout { keys, shards_length, bits, number_length, blocks_checksum, entries_at, end })
    }

    fn head(&self) -> Vec<u8> {
        let mut head =
            [MAGIC, &[VERSION], &self.keys.to_le_bytes(), &self.shards_length.to_le_bytes()].concat();
        head.extend([self.bits, self.number_length]);
        head.extend(self.blocks_checksum.to_le_bytes());
        head.extend(crc32c::crc32c(&head).to_le_bytes());
        head
    }

    fn block_of(&self, hash: u64) -> usize {
        hash.checked_shr(64 - u32::from(self.bits)).unwrap_or(0) as usize
    }

    fn entry_length(&self) -> u64 {
        HASH as u64 + u64::from(self.number_length)
    }

    /// The hash and the number of each entry.
    fn read_entries<'a>(&self, entries: &'a [u8]) -> impl Iterator<Item = (u64, u64)> + 'a {
        entries.chunks_exact(self.entry_length() as usize).map(|entry| {
            let (hash, number) = entry.split_at(HASH);
            let mut bytes = [0; 8];
            bytes[..number.len()].copy_from_slice(number);
            (u64_at(hash, 0), u64::from_le_bytes(bytes))
        })
    }
}

impl KeyTable {
    /// Makes a table from pairs of a hash and a sample's number. The numbers are less than `samples`.
    pub(super) fn new(mut entries: Vec<(u64, u64)>, samples: u64) -> Self {
        entries.sort_unstable();
        let bits = (entries.len() / KEYS_PER_BLOCK).checked_ilog2().unwrap_or(0) as u8;
        let number_length = (8 - samples.leading_zeros() as u8 / 8).max(1);
        let mut layout = TableLayout {
            keys: entries.len() as u64,
            shards_length: 0,
            bits,
            number_length,
            blocks_checksum: 0,
            entries_at: 0,
            end: 0,
        };
        let mut bytes = Vec::with_capacity(entries.len() * layout.entry_length() as usize);
        let (mut blocks, mut begin) = (Vec::with_capacity(1 << bits), 0);
        let mut entries = entries.into_iter().peekable();
        let mut end = 0;
        for block in 0..1usize << bits {
            while let Some((hash, number)) = entries.next_if(|(hash, _)| layout.block_of(*hash) == block) {
                bytes.extend(hash.to_le_bytes());
                bytes.extend(&number.to_le_bytes()[..number_length.into()]);
                end += 1;
            }
            blocks.push(KeyBlock { end, checksum: crc32c::crc32c(&bytes[begin..]) });
            begin = bytes.len();
        }
        layout.blocks_checksum = crc32c::crc32c(&encoded(&blocks));
        KeyTable { layout, blocks, entries: Entries::Loaded(bytes.into()) }
    }

    pub(super) fn len(&self) -> u64 {
        self.layout.keys
    }

    /// Reads the table and its shards. If `stored` is `None`, `document` is the whole document. Otherwise
    /// `document` has only the bytes before the entries, and entries are read from `stored` when they are
    /// needed. `resolve` replaces the URL of a shard, which may be relative to the document.
    pub(super) fn read(
        layout: TableLayout,
        document: &Bytes,
        stored: Option<StoredDocument>,
        resolve: impl Fn(ShardIndex) -> ShardIndex,
    ) -> Result<(Self, Index)> {
        let length = document.len() as u64;
        if length < layout.entries_at || stored.is_none() && length != layout.end {
            return damaged("its length is not the one in its head");
        }
        let shards_end = HEAD + layout.shards_length as usize;
        let mut reader = CompactReader::new();
        reader.push(&document[HEAD..shards_end], json::limit_of(length), resolve)?;
        let index: Index = reader.finish()?.into_iter().collect();
        let blocks = &document[shards_end..layout.entries_at as usize];
        if crc32c::crc32c(blocks) != layout.blocks_checksum {
            return damaged("the checksum of its blocks differs");
        }
        let block = |bytes: &[u8]| KeyBlock { end: u64_at(bytes, 0), checksum: u32_at(bytes, 8) };
        let blocks: Vec<KeyBlock> = blocks.chunks_exact(BLOCK).map(block).collect();
        let ends_with_keys = blocks.last().map(|block| block.end) == Some(layout.keys);
        let is_ascending = blocks.is_sorted_by_key(|block| block.end);
        if !ends_with_keys || !is_ascending || index.samples() != layout.keys {
            return damaged("its numbers of keys, samples and entries differ");
        }
        let entries = match stored {
            None => Entries::Loaded(document.slice(layout.entries_at as usize..)),
            Some(stored) => Entries::Stored(stored),
        };
        let table = KeyTable { layout, blocks, entries };
        if matches!(table.entries, Entries::Loaded(_)) {
            (0..table.blocks.len())
                .try_for_each(|block| table.block(block).and_then(|bytes| table.check(block, &bytes)))?;
        }
        Ok((table, index))
    }

    /// The same table with all entries in memory.
    pub(super) fn loaded(&self) -> Result<Self> {
        let entries = self.entries(0..self.layout.keys)?;
        let table =
            KeyTable { layout: self.layout, blocks: self.blocks.clone(), entries: Entries::Loaded(entries) };
        for block in 0..table.blocks.len() {
            table.check(block, &table.block(block)?)?;
        }
        Ok(table)
    }

    /// Whether all entries are in memory.
    pub(super) fn is_loaded(&self) -> bool {
        matches!(self.entries, Entries::Loaded(_))
    }

    /// Writes the document: calls `out` with its bytes, piece by piece.
    pub(super) fn write(&self, index: &Index, mut out: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut shards = Vec::new();
        compact::write(index.len(), index.iter().cloned().map(ShardEntry::from), |bytes| {
            shards.extend_from_slice(bytes);
            Ok(())
        })?;
        let layout = TableLayout { shards_length: shards.len() as u64, ..self.layout };
        for part in [layout.head(), shards, encoded(&self.blocks)] {
            out(&part)?;
        }
        self.for_each_run(out)
    }

    /// The numbers of the samples whose keys have this hash.
    pub(super) fn find(&self, hash: u64) -> Result<Vec<u64>> {
        let number = self.layout.block_of(hash);
        let block = self.block(number)?;
        if !self.is_loaded() {
            self.check(number, &block)?;
        }
        let each = self.layout.entry_length() as usize;
        let (mut first, mut end) = (0, block.len() / each);
        while first < end {
            let middle = first + (end - first) / 2;
            if u64_at(&block, middle * each) < hash { first = middle + 1 } else { end = middle }
        }
        let entries = self.layout.read_entries(block.get(first * each..).unwrap_or_default());
        let matches = entries.take_while(|(entry_hash, _)| *entry_hash == hash);
        let numbers: Vec<u64> = matches.map(|(_, number)| number).collect();
        self.checked(numbers)
    }

    /// The numbers of the samples whose keys have a hash for which `is_wanted` returns true.
    pub(super) fn numbers_of(&self, is_wanted: impl Fn(u64) -> bool) -> Result<Vec<u64>> {
        let mut numbers = Vec::new();
        self.for_each_run(|entries| {
            let entries = self.layout.read_entries(entries).filter(|(hash, _)| is_wanted(*hash));
            numbers.extend(entries.map(|(_, number)| number));
            Ok(())
        })?;
        self.checked(numbers)
    }

    fn checked(&self, numbers: Vec<u64>) -> Result<Vec<u64>> {
        match numbers.iter().any(|number| *number >= self.layout.keys) {
            true => damaged("an entry has a greater number than the last sample"),
            false => Ok(numbers),
        }
    }

    /// The sample numbers of each pair of adjacent entries with the same hash.
    pub(super) fn repeated(&self) -> Result<Vec<(u64, u64)>> {
        let entries = self.entries(0..self.layout.keys)?;
        let next = self.layout.read_entries(&entries).skip(1);
        let pairs = self.layout.read_entries(&entries).zip(next);
        let repeated = pairs.filter_map(
            |((hash, number), (next_hash, next_number))| {
                if hash == next_hash { Some((number, next_number)) } else { None }
            },
        );
        Ok(repeated.collect())
    }

    /// Calls `take` with the bytes of all entries, several whole blocks at a time.
    fn for_each_run(&self, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let each = self.layout.entry_length();
        let (mut first, mut begin) = (0, 0);
        while let Some(blocks) = self.blocks.get(first..).filter(|blocks| !blocks.is_empty()) {
            let count = blocks.partition_point(|block| block.end - begin <= RUN / each).max(1);
            let end = blocks.get(count - 1).map_or(begin, |block| block.end);
            let run = self.entries(begin..end)?;
            let mut rest = run.clone();
            for (number, block) in (first..).zip(blocks).take(count) {
                let entries = rest.split_to(((block.end - begin) * each) as usize);
                if !self.is_loaded() {
                    self.check(number, &entries)?;
                }
                begin = block.end;
            }
            take(&run)?;
            first += count;
        }
        Ok(())
    }

    fn block(&self, block: usize) -> Result<Bytes> {
        let end = |block: usize| self.blocks.get(block).map_or(0, |block| block.end);
        let begin = block.checked_sub(1).map_or(0, end);
        self.entries(begin..end(block))
    }

    /// Compares the entries of a block with the block's checksum.
    fn check(&self, block: usize, entries: &[u8]) -> Result<()> {
        match self.blocks.get(block).is_some_and(|block| crc32c::crc32c(entries) == block.checksum) {
            true => Ok(()),
            false => damaged("the checksum of a block differs"),
        }
    }

    /// The bytes of the entries with these numbers.
    fn entries(&self, entries: std::ops::Range<u64>) -> Result<Bytes> {
        let each = self.layout.entry_length();
        let range = entries.start * each..entries.end * each;
        match &self.entries {
            Entries::Loaded(bytes) => Ok(bytes.slice(range.start as usize..range.end as usize)),
            Entries::Stored(_) if range.is_empty() => Ok(Bytes::new()),
            Entries::Stored(StoredDocument { store, url, object }) => {
                let at = self.layout.entries_at;
                let body = store.open_range(url, at + range.start..at + range.end, object)?;
                let bytes = body.read_at_most(range.end - range.start)?;
                match bytes.len() as u64 == range.end - range.start {
                    true => Ok(bytes),
                    false => damaged("it ends too early"),
                }
            }
        }
    }
}

fn encoded(blocks: &[KeyBlock]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(blocks.len() * BLOCK);
    for KeyBlock { end, checksum } in blocks {
        bytes.extend(end.to_le_bytes());
        bytes.extend(checksum.to_le_bytes());
    }
    bytes
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

pub(super) fn damaged<T>(what: &str) -> Result<T> {
    let what = format!("the key index is damaged: {what}; build it again (`shardstream index build --keys`)");
    Err(ErrorKind::Index(what).into())
}
