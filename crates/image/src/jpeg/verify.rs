//! Makes `zune-jpeg` notice image data that ends early or is left over.
//!
//! When its bits run out, the decoder continues with zeros, which are valid codes; and it skips data that is
//! left over after the last pixel. So it gets a copy of the file with one bits after each run of
//! entropy-coded data, through a [`WatchedReader`] that watches how many of them it reads:
//!
//! - A code of one bits alone is reserved (T.81, annex C), so a symbol that begins after the end of its run
//!   is an error.
//! - Other bits, such as those that refine coefficients or the last bits of a symbol, may be ones. The
//!   decoder reads 32 bits when it has fewer than 32. So it has used bits from after the end if it reads more
//!   when it has already read four bytes of them.
//! - After a run, the decoder searches for the marker byte by byte, which it does nowhere else. The bytes
//!   that it skips are left over.
//!
//! One of several scans must end with a restart interval, or the decoder does not search for the marker after
//! it: see [`closing_interval`].
//!
//! Not noticed are missing bits of a run's last symbol that are ones, and up to seven left-over bytes, which
//! are in the decoder's buffer by then.

use super::headers::JpegHeaders;
use super::scans;
use std::cell::Cell;
use zune_jpeg::zune_core::bytestream::{ZByteIoError, ZByteReaderTrait, ZSeekFrom};

/// 64 one bits, as encoded in image data. A symbol takes up to 32 of them before the next one is invalid, and
/// the decoder does not reach the marker after them before it reads more than it may.
const ONES: [u8; 16] = [0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0];
/// A fill byte before the marker: no one bits are there.
const OPEN: &[u8] = b"\xff";
/// The length of the rest of `ONES` when four of its eight data bytes have been read.
const HALF: usize = ONES.len() / 2;

/// The number of bytes that [`copy`] adds to a file, at most.
pub(super) fn added(headers: &JpegHeaders) -> u64 {
    headers.scans.runs.saturating_mul(ONES.len() as u64)
}

/// Writes a copy of a file with one bits after each run, up to its end marker.
pub(super) fn copy(file: &[u8], headers: &JpegHeaders, to: &mut Vec<u8>) {
    to.clear();
    to.reserve(file.len() + added(headers) as usize);
    let mut copied = 0;
    for (number, scan) in headers.scans.list.iter().enumerate() {
        to.extend_from_slice(&file[copied..scan.at]);
        copied = scan.at;
        let mut ends_openly = false;
        if !headers.is_one_pass() {
            let interval = closing_interval(scan.units, scan.interval);
            to.extend_from_slice(&[0xff, 0xdd, 0, 4]);
            to.extend_from_slice(&interval.to_be_bytes());
            let closes = interval > 0 && scan.units.is_multiple_of(interval.into());
            ends_openly = !closes && (number == 0 || headers.is_sequential());
        }
        for at in scans::run_ends(file, *scan) {
            to.extend_from_slice(&file[copied..at]);
            to.extend_from_slice(if at == scan.end && ends_openly { OPEN } else { &ONES });
            // The fill bytes before the marker are dropped.
            let fill = file[at..].iter().take_while(|byte| **byte == 0xff).count();
            copied = at + fill.saturating_sub(1);
        }
    }
    to.extend_from_slice(b"\xff\xd9");
}

/// The restart interval that is written for one of several scans. After the first scan of a progressive file,
/// and after every scan of a sequential one, the decoder must have met the next marker by itself, unless a
/// restart interval ends with the scan: then it searches for a marker, and accepts any. A scan without
/// intervals gets one as long as itself. A scan that cannot have one that ends with it gets no one bits.
fn closing_interval(units: u64, interval: u16) -> u16 {
    if interval > 0 { interval } else { u16::try_from(units).unwrap_or(0) }
}

const EARLY: &str = "the JPEG file is damaged: its image data ends before the picture does";
const SURPLUS: &str = "the JPEG file is damaged: image data is left over";

/// Feeds a file to the decoder, and watches what it reads.
pub(super) struct WatchedReader<'a> {
    file: &'a [u8],
    at: usize,
    /// Whether data that is left over is a fault.
    to_its_end: bool,
    /// Whether the decoder has just asked if the file has ended, as it does before each byte that it skips.
    skips: bool,
    fault: &'a Cell<Option<&'static str>>,
}

impl<'a> WatchedReader<'a> {
    /// Sets `fault` to what is wrong with the image data of a file that [`copy`] wrote. Data that is left
    /// over is a fault if the decoder reads it `to_its_end`.
    pub(super) fn new(file: &'a [u8], to_its_end: bool, fault: &'a Cell<Option<&'static str>>) -> Self {
        WatchedReader { file, at: 0, to_its_end, skips: false, fault }
    }

    fn rest(&self) -> &'a [u8] {
        self.file.get(self.at..).unwrap_or_default()
    }

    /// Whether no more than half of the one bits are left before a marker.
    #[inline(never)]
    fn is_behind_the_end(&self) -> bool {
        let mut rest = &self.rest()[..self.rest().len().min(HALF + 2)];
        loop {
            match rest {
                [0xff, 0, behind @ ..] => rest = behind,
                [0xff, marker, ..] => return *marker != OPEN[0],
                _ => return false,
            }
        }
    }
}

impl ZByteReaderTrait for WatchedReader<'_> {
    #[inline(always)]
    fn read_byte_no_error(&mut self) -> u8 {
        let byte = self.file.get(self.at).copied();
        self.at += usize::from(byte.is_some());
        byte.unwrap_or(0)
    }

    #[inline(always)]
    fn read_exact_bytes(&mut self, buffer: &mut [u8]) -> Result<(), ZByteIoError> {
        let wanted = buffer.len();
        let Some(bytes) = self.rest().get(..wanted) else {
            return Err(ZByteIoError::NotEnoughBytes(self.rest().len(), wanted));
        };
        buffer.copy_from_slice(bytes);
        self.at += wanted;
        // The decoder regularly fills its buffer with four bytes.
        if wanted != 4 {
            // Zeros are allowed: cameras pad files with them.
            let skipped = self.skips && wanted == 1 && !matches!(bytes, [0 | 0xff]);
            self.skips = false;
            if skipped && self.to_its_end {
                self.fault.set(Some(SURPLUS));
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn read_bytes(&mut self, buffer: &mut [u8]) -> Result<usize, ZByteIoError> {
        let size = self.peek_bytes(buffer)?;
        self.at += size;
        Ok(size)
    }

    #[inline(always)]
    fn peek_bytes(&mut self, buffer: &mut [u8]) -> Result<usize, ZByteIoError> {
        let size = self.rest().len().min(buffer.len());
        buffer[..size].copy_from_slice(&self.rest()[..size]);
        Ok(size)
    }

    #[inline(always)]
    fn peek_exact_bytes(&mut self, buffer: &mut [u8]) -> Result<(), ZByteIoError> {
        match self.peek_bytes(buffer)? {
            size if size == buffer.len() => Ok(()),
            size => Err(ZByteIoError::NotEnoughBytes(size, buffer.len())),
        }
    }

    #[inline(always)]
    fn z_seek(&mut self, from: ZSeekFrom) -> Result<u64, ZByteIoError> {
        let (base, offset) = match from {
            ZSeekFrom::Start(at) => (0, i64::try_from(at).unwrap_or(i64::MAX)),
            ZSeekFrom::End(offset) => (self.file.len(), offset),
            ZSeekFrom::Current(offset) => (self.at, offset),
        };
        let at = isize::try_from(offset).ok().and_then(|offset| base.checked_add_signed(offset));
        self.at = at.ok_or(ZByteIoError::SeekError("a place before the file"))?;
        // The decoder has read four bytes, and seeks back because one of them is 0xff.
        if matches!(from, ZSeekFrom::Current(-4)) && self.is_behind_the_end() {
            self.fault.set(Some(EARLY));
            return Err(ZByteIoError::Generic(EARLY));
        }
        Ok(self.at as u64)
    }

    #[inline(always)]
    fn is_eof(&mut self) -> Result<bool, ZByteIoError> {
        self.skips = true;
        Ok(self.at >= self.file.len())
    }

    #[inline(always)]
    fn z_position(&mut self) -> Result<u64, ZByteIoError> {
        Ok(self.at as u64)
    }

    fn read_remaining(&mut self, sink: &mut Vec<u8>) -> Result<usize, ZByteIoError> {
        let rest = self.rest();
        sink.extend_from_slice(rest);
        self.at = self.file.len();
        Ok(rest.len())
    }
}
