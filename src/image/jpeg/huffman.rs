//! The Huffman codes of a JPEG's image data: how long they are, and not what they say.

/// Bits that one lookup sees.
const LOOKUP: u32 = 10;

/// In [`Table::steps`]: the block ends.
pub(super) const END: u32 = 1 << 31;

/// The bits that one step of [`Bits`] may take: a code of 16 and a number of 15.
const MOST: u32 = 31;

pub(super) const SHORT: &str = "its image data ends before its pixels do";
pub(super) const BAD_CODE: &str = "its image data has a code that its tables do not have";
pub(super) const BAD_TABLE: &str = "a Huffman table contradicts itself";
pub(super) const BAD_RESTART: &str = "its restart markers are not where its pixels have them";

/// What is wrong with a file.
pub(super) type Fault = &'static str;

/// A table of Huffman codes. Lookups are derived when a scan uses it, and kept as long as files have the same table.
#[derive(Default)]
pub(super) struct Table {
    /// How many codes have each length from 1 on, and their symbols; empty as long as the file has none.
    definition: Vec<u8>,
    /// The definition that the lookups are of.
    derived: Vec<u8>,
    /// By the next bits: `length << 8 | symbol`, and 0 for longer codes.
    short: Vec<u16>,
    /// By the next bits: how many bits and coefficients the codes in them take, and whether they end their block.
    steps: Vec<u32>,
    /// For each length: the first 16 bits that no longer belong to codes of at most that length.
    limits: [u32; 17],
    /// For each length: what is added to a code to get the place of its symbol.
    places: [i32; 17],
}

impl Table {
    /// Sets the table from counts and symbols; returns what follows them.
    pub(super) fn define<'a>(&mut self, content: &'a [u8]) -> Result<&'a [u8], Fault> {
        let count: usize = content.get(..16).ok_or(BAD_TABLE)?.iter().map(|count| usize::from(*count)).sum();
        let (definition, rest) = content.split_at_checked(16 + count).ok_or(BAD_TABLE)?;
        if count > 256 {
            return Err(BAD_TABLE);
        }
        self.definition.clear();
        self.definition.extend_from_slice(definition);
        Ok(rest)
    }

    pub(super) fn forget(&mut self) {
        self.definition.clear();
    }

    /// Derives the lookups, unless they are there. `standard` is the table where the file has none.
    pub(super) fn derive(&mut self, standard: Option<&&[u8]>) -> Result<(), Fault> {
        if self.definition.is_empty() {
            self.definition.extend_from_slice(standard.ok_or(BAD_TABLE)?);
        }
        if self.derived == self.definition {
            return Ok(());
        }
        self.derived.clear();
        let (counts, symbols) = self.definition.split_at_checked(16).ok_or(BAD_TABLE)?;
        self.short.clear();
        self.short.resize(1 << LOOKUP, 0);
        let (mut code, mut place) = (0_u32, 0);
        for (length, count) in (1..).zip(counts) {
            self.places[length as usize] = place as i32 - code as i32;
            for symbol in &symbols[place..][..usize::from(*count)] {
                if length <= LOOKUP {
                    let first = (code as usize) << (LOOKUP - length);
                    let entries = self.short.get_mut(first..first + (1 << (LOOKUP - length)));
                    entries.ok_or(BAD_TABLE)?.fill((length as u16) << 8 | u16::from(*symbol));
                }
                (code, place) = (code + 1, place + 1);
            }
            // No code has only ones.
            if *count > 0 && code >= 1 << length {
                return Err(BAD_TABLE);
            }
            self.limits[length as usize] = code << (16 - length);
            code <<= 1;
        }
        self.steps.clear();
        self.steps.extend((0..1 << LOOKUP).map(|bits| steps(&self.short, bits)));
        self.derived.clone_from(&self.definition);
        Ok(())
    }

    /// Takes a code, and returns its symbol.
    #[inline]
    pub(super) fn symbol(&self, bits: &mut Bits<'_>) -> Result<u8, Fault> {
        bits.fill();
        match self.short[bits.peek(LOOKUP)] {
            0 => self.long_symbol(bits),
            entry => {
                bits.skip(u32::from(entry >> 8));
                Ok(entry as u8)
            }
        }
    }

    #[cold]
    fn long_symbol(&self, bits: &mut Bits<'_>) -> Result<u8, Fault> {
        let next = bits.peek(16);
        let length = (LOOKUP + 1..=16).find(|length| next < self.limits[*length as usize] as usize);
        let length = length.ok_or(BAD_CODE)?;
        let place = (next >> (16 - length)) as i32 + self.places[length as usize];
        let symbol = usize::try_from(place).ok().and_then(|place| self.derived.get(16 + place));
        bits.skip(length);
        symbol.copied().ok_or(BAD_CODE)
    }

    /// The codes of coefficients that stand in the next bits, and the numbers behind them: bits in the lowest byte,
    /// coefficients in the second one, and [`END`]. 0 where one code takes more bits than are looked at.
    #[inline]
    pub(super) fn steps(&self, bits: &Bits<'_>) -> u32 {
        self.steps[bits.peek(LOOKUP)]
    }
}

/// An entry of [`Table::steps`].
fn steps(short: &[u16], bits: usize) -> u32 {
    let (mut used, mut coefficients) = (0, 0);
    while used < LOOKUP {
        let entry = short[(bits << used) & ((1 << LOOKUP) - 1)];
        let (length, run, size) = (u32::from(entry >> 8), u32::from(entry >> 4 & 15), u32::from(entry & 15));
        if length == 0 || used + length > LOOKUP || used + length + size > MOST {
            break;
        }
        match (run, size) {
            (0, 0) => return END | coefficients << 8 | (used + length),
            (15, 0) => coefficients += 16,
            // There is no such code in a sequential file.
            (_, 0) => break,
            _ => coefficients += run + 1,
        }
        used += length + size;
    }
    coefficients << 8 | used
}

/// Reads image data bit by bit, up to a marker. Behind it come zeros.
pub(super) struct Bits<'a> {
    data: &'a [u8],
    at: usize,
    /// The next bits, from the highest on. Behind `count` bits, there may be some of the byte at `at`.
    buffer: u64,
    count: u32,
    /// How many bits have been added behind the data.
    padding: u32,
}

impl<'a> Bits<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Bits { data, at: 0, buffer: 0, count: 0, padding: 0 }
    }

    /// Makes at least 32 bits available.
    #[inline]
    pub(super) fn fill(&mut self) {
        if self.count >= 32 {
            return;
        }
        if let Some(Ok(next)) = self.data.get(self.at..self.at + 8).map(<[u8; 8]>::try_from) {
            let next = u64::from_be_bytes(next);
            if !has_ff(next) {
                self.buffer |= next >> self.count;
                let bytes = (63 - self.count) >> 3;
                self.at += bytes as usize;
                self.count += 8 * bytes;
                return;
            }
        }
        self.fill_slowly();
    }

    #[cold]
    fn fill_slowly(&mut self) {
        while self.count <= 56 {
            let byte = match *self.data.get(self.at..).unwrap_or_default() {
                [0xff, 0, ..] => {
                    self.at += 2;
                    0xff
                }
                [] | [0xff, ..] => {
                    self.padding += 8;
                    0
                }
                [byte, ..] => {
                    self.at += 1;
                    byte
                }
            };
            self.buffer |= u64::from(byte) << (56 - self.count);
            self.count += 8;
        }
    }

    #[inline]
    fn peek(&self, count: u32) -> usize {
        (self.buffer >> (64 - count)) as usize
    }

    /// Passes over at most 32 bits that [`fill`](Bits::fill) has made available.
    #[inline]
    pub(super) fn skip(&mut self, count: u32) {
        self.buffer <<= count;
        self.count -= count;
    }

    /// Passes over any number of bits.
    pub(super) fn skip_many(&mut self, mut count: u32) {
        while count > 0 {
            self.fill();
            let some = count.min(32);
            self.skip(some);
            count -= some;
        }
    }

    /// Takes a number of at most 16 bits.
    pub(super) fn number(&mut self, count: u32) -> u32 {
        self.fill();
        let number = if count == 0 { 0 } else { self.peek(count) };
        self.skip(count);
        number as u32
    }

    /// Whether more bits have been taken than there are.
    #[inline]
    pub(super) fn is_short(&self) -> bool {
        self.count < self.padding
    }

    /// Passes over restart marker `number`, which must be what comes next.
    pub(super) fn restart(&mut self, number: u8) -> Result<(), Fault> {
        if self.is_short() {
            return Err(SHORT);
        }
        let rest = self.data.get(self.at..).unwrap_or_default();
        let fill = rest.iter().take_while(|byte| **byte == 0xff).count();
        if self.count - self.padding >= 8 || fill == 0 || rest.get(fill) != Some(&(0xd0 | number)) {
            return Err(BAD_RESTART);
        }
        *self = Bits { at: self.at + fill + 1, ..Bits::new(self.data) };
        Ok(())
    }

    /// How many bytes of the data have not been taken, but for fill bytes at its end.
    pub(super) fn surplus(&self) -> Result<usize, Fault> {
        if self.is_short() {
            return Err(SHORT);
        }
        let rest = self.data.get(self.at..).unwrap_or_default();
        let fill = rest.iter().rev().take_while(|byte| **byte == 0xff).count();
        Ok((self.count - self.padding) as usize / 8 + rest.len() - fill)
    }
}

/// Whether one of the eight bytes is 0xff.
#[inline]
fn has_ff(bytes: u64) -> bool {
    const ONES: u64 = u64::MAX / 255;
    (!bytes).wrapping_sub(ONES) & bytes & (ONES << 7) != 0
}
