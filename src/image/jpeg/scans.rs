//! Checks that the image data of a JPEG is that of its pixels: no less, and no more.
//!
//! Decoders fill up with grey where data ends early, and leave unread what is too much, without a word. So the codes are
//! counted before anything is decoded, and below the part that is decoded as well: data that was cut, or has a gap or
//! another picture's data in it, hardly ever has the right number of them.

use super::huffman::{BAD_TABLE, Bits, Fault, SHORT, Table};
use super::layout::Layout;
use super::segments::{DHT, DRI, EOI, SOS, Segment, Segments, end_of_data};
use super::{annex_k, blocks};
use crate::image::ImageError;
use smallvec::SmallVec;

/// Bytes that may follow the last pixel of a file of one scan: encoders round up to words, or write a byte of padding where
/// none is due. Two pictures of ImageNet have one.
const SURPLUS: usize = 3;
/// Passes of a progressive file, at most. The decoders have the same limit.
const SCANS: usize = 100;

const BAD_SCAN: &str = "the header of a scan contradicts the file's";
const REPEATED: &str = "its scans contradict each other";
const INCOMPLETE: &str = "its last scans are missing";
const TOO_MUCH: &str = "its image data goes on behind its pixels";

/// The Huffman tables of a file, which the next one most often has too.
#[derive(Default)]
pub(super) struct Checker {
    dc: [Table; 4],
    ac: [Table; 4],
}

/// A scan's header.
struct Scan {
    /// The components, and the numbers of their DC and AC tables.
    parts: SmallVec<[(usize, usize, usize); 4]>,
    /// The first and the last coefficient.
    band: (u8, u8),
    /// The lowest bit of the coefficients before this scan and after it, of a progressive file.
    high: u8,
    low: u8,
}

/// What is known of a component.
struct Component {
    id: u8,
    /// The blocks that it has in a unit of an interleaved scan.
    blocks: usize,
    /// The blocks that it has in a scan of its own.
    alone: usize,
    /// The lowest bit that is known of each coefficient.
    low: [Option<u8>; 64],
    /// Which coefficients of each block are known not to be zero: of a progressive file, once there are any.
    nonzero: Vec<u64>,
}

/// The state of one file.
struct Picture<'a> {
    checker: &'a mut Checker,
    progressive: bool,
    components: SmallVec<[Component; 4]>,
    /// The units of an interleaved scan.
    units: usize,
    /// The units between restart markers, or 0.
    interval: usize,
    /// The bytes that may follow the last pixel of a scan.
    surplus: usize,
}

impl Checker {
    /// Checks a file with these headers up to its end marker.
    pub(super) fn check(&mut self, file: &[u8], headers: &Layout) -> Result<(), ImageError> {
        self.dc.iter_mut().chain(&mut self.ac).for_each(Table::forget);
        let mut segments = Segments::new(file).ok_or(ImageError::Truncated)?;
        let mut picture = Picture::new(self, headers).map_err(damaged)?;
        let mut scans = 0;
        loop {
            let Segment { marker, content, .. } = segments.next().ok_or(ImageError::Truncated)?;
            match marker {
                DHT => picture.checker.define(content).map_err(damaged)?,
                DRI => {
                    let interval = <[u8; 2]>::try_from(content).map_err(|_| damaged(BAD_SCAN))?;
                    picture.interval = u16::from_be_bytes(interval).into();
                }
                SOS => {
                    scans += 1;
                    if scans > SCANS {
                        return Err(damaged(REPEATED));
                    }
                    let start = segments.at();
                    let (end, _) = end_of_data(file, start).ok_or(ImageError::Truncated)?;
                    picture.scan(content, &file[start..end]).map_err(damaged)?;
                    segments.seek(end);
                }
                // Before the image data, the decoders pass over it.
                EOI if scans > 0 => return picture.finish().map_err(damaged),
                _ => {}
            }
        }
    }

    /// Reads the tables of a segment.
    fn define(&mut self, mut content: &[u8]) -> Result<(), Fault> {
        while let Some((which, rest)) = content.split_first() {
            let tables = match which >> 4 {
                0 => &mut self.dc,
                1 => &mut self.ac,
                _ => return Err(BAD_TABLE),
            };
            content = tables.get_mut(usize::from(which & 15)).ok_or(BAD_TABLE)?.define(rest)?;
        }
        Ok(())
    }
}

impl<'a> Picture<'a> {
    fn new(checker: &'a mut Checker, headers: &Layout) -> Result<Self, Fault> {
        let all = &headers.components;
        let widest = all.iter().map(|it| it.horizontal).max().unwrap_or_default();
        let highest = all.iter().map(|it| it.vertical).max().unwrap_or_default();
        if all.is_empty()
            || all.iter().any(|it| !(1..=4).contains(&it.horizontal) || !(1..=4).contains(&it.vertical))
        {
            return Err(BAD_SCAN);
        }
        let (width, height) = (usize::from(headers.width), usize::from(headers.height));
        let count = |length: usize, factor: u8, most: u8| {
            (length * usize::from(factor)).div_ceil(8 * usize::from(most))
        };
        let components = all.iter().map(|it| Component {
            id: it.id,
            blocks: usize::from(it.horizontal) * usize::from(it.vertical),
            alone: count(width, it.horizontal, widest) * count(height, it.vertical, highest),
            low: [None; 64],
            nonzero: Vec::new(),
        });
        Ok(Picture {
            checker,
            progressive: headers.is_progressive(),
            components: components.collect(),
            units: count(width, 1, widest) * count(height, 1, highest),
            interval: 0,
            surplus: if headers.is_one_pass() { SURPLUS } else { 0 },
        })
    }

    /// Checks a scan with this header and data.
    fn scan(&mut self, header: &[u8], data: &[u8]) -> Result<(), Fault> {
        let scan = Scan::read(header, &self.components, self.progressive)?;
        for (component, dc, ac) in &scan.parts {
            let component = &mut self.components[*component];
            if self.progressive {
                component.refine(&scan)?;
            } else if component.low[0].replace(0).is_some() {
                return Err(REPEATED);
            }
            if scan.band.0 == 0 && scan.high == 0 {
                let table = self.checker.dc.get_mut(*dc).ok_or(BAD_TABLE)?;
                table.derive(annex_k::TABLES[0].get(*dc))?;
            }
            if scan.band.1 > 0 {
                let table = self.checker.ac.get_mut(*ac).ok_or(BAD_TABLE)?;
                table.derive(annex_k::TABLES[1].get(*ac))?;
            }
        }
        let mut bits = Bits::new(data);
        self.units(&scan, &mut bits).map_err(|fault| if bits.is_short() { SHORT } else { fault })?;
        if bits.surplus()? > self.surplus { Err(TOO_MUCH) } else { Ok(()) }
    }

    /// Passes over the blocks of a scan.
    fn units(&mut self, scan: &Scan, bits: &mut Bits<'_>) -> Result<(), Fault> {
        let Checker { dc, ac } = &*self.checker;
        if let [(component, _, table)] = scan.parts[..]
            && scan.band.0 > 0
        {
            let (component, table) = (&mut self.components[component], &ac[table]);
            component.nonzero.resize(component.alone, 0);
            return if scan.high == 0 {
                blocks::first(scan.band, table, &mut component.nonzero, self.interval, bits)
            } else {
                blocks::refined(scan.band, table, &mut component.nonzero, self.interval, bits)
            };
        }
        let mut tables = SmallVec::<[(&Table, &Table); 10]>::new();
        let units = match scan.parts[..] {
            [(component, d, a)] => {
                tables.push((&dc[d & 3], &ac[a & 3]));
                self.components[component].alone
            }
            _ => {
                for (component, d, a) in &scan.parts {
                    let count = self.components[*component].blocks;
                    tables.extend(std::iter::repeat_n((&dc[d & 3], &ac[a & 3]), count));
                }
                self.units
            }
        };
        let mut restarts = blocks::Restarts::new(self.interval);
        for _ in 0..units {
            restarts.unit(bits)?;
            if !self.progressive {
                tables.iter().try_for_each(|(dc, ac)| blocks::block(dc, ac, bits))?;
            } else if scan.high == 0 {
                tables.iter().try_for_each(|(dc, _)| blocks::first_coefficient(dc, bits))?;
            } else {
                bits.skip_many(tables.len() as u32);
            }
            if bits.is_short() {
                return Err(SHORT);
            }
        }
        Ok(())
    }

    /// Checks that the scans were all.
    fn finish(&self) -> Result<(), Fault> {
        let whole =
            |it: &Component| it.low[0].is_some() && it.low.iter().all(|low| low.is_none_or(|low| low == 0));
        if self.components.iter().all(whole) { Ok(()) } else { Err(INCOMPLETE) }
    }
}

impl Scan {
    fn read(header: &[u8], components: &[Component], progressive: bool) -> Result<Self, Fault> {
        let (count, rest) = header.split_first().ok_or(BAD_SCAN)?;
        let (parts, rest) = rest.split_at_checked(2 * usize::from(*count)).ok_or(BAD_SCAN)?;
        let &[first, last, bits] = rest else { return Err(BAD_SCAN) };
        let mut scan = Scan { parts: SmallVec::new(), band: (0, 63), high: 0, low: 0 };
        for part in parts.as_chunks::<2>().0 {
            let component = components.iter().position(|it| it.id == part[0]).ok_or(BAD_SCAN)?;
            if scan.parts.iter().any(|(other, ..)| *other == component) {
                return Err(BAD_SCAN);
            }
            scan.parts.push((component, usize::from(part[1] >> 4), usize::from(part[1] & 15)));
        }
        // What these numbers are in a sequential file has no meaning, and is often wrong.
        if progressive {
            (scan.band, scan.high, scan.low) = ((first, last), bits >> 4, bits & 15);
            let fits = if first == 0 { last == 0 } else { first <= last && last < 64 && *count == 1 };
            if !fits || scan.high > 0 && scan.high != scan.low + 1 || scan.low > 13 {
                return Err(BAD_SCAN);
            }
        }
        if scan.parts.is_empty() { Err(BAD_SCAN) } else { Ok(scan) }
    }

    fn band(&self) -> std::ops::RangeInclusive<usize> {
        self.band.0.into()..=self.band.1.into()
    }
}

impl Component {
    /// Notes what a scan adds to the coefficients.
    fn refine(&mut self, scan: &Scan) -> Result<(), Fault> {
        if scan.band.0 > 0 && self.low[0].is_none() {
            return Err(REPEATED);
        }
        for low in &mut self.low[scan.band()] {
            if low.unwrap_or(0) != scan.high {
                return Err(REPEATED);
            }
            *low = Some(scan.low);
        }
        Ok(())
    }
}

fn damaged(fault: Fault) -> ImageError {
    ImageError::Decode(format!("the JPEG file is damaged: {fault}").into())
}

#[cfg(test)]
mod tests;
