//! Detects image data that ends early or is left over, which `zune-jpeg` itself accepts.
//!
//! When the bits run out, the decoder continues with zeros, which are valid codes. The decoder skips data
//! that is left over after the last pixel. So this module makes a copy of the file in which 1-bits follow
//! each run of entropy-coded data. The decoder reads the copy through a [`WatchedReader`], which watches how
//! many of these bits the decoder reads:
//!
//! - A code that consists only of 1-bits is reserved (T.81, annex C), so a symbol that begins after the end
//!   of its run is an error.
//! - The last bits of a symbol may be ones, and so may all bits that refine coefficients. The decoder reads
//!   32 bits when it has fewer than 32. So if the decoder has read 32 of the 1-bits and reads more, it has
//!   used some of these 1-bits, which is an error.
//! - After a run, the decoder searches for the marker byte by byte, which it does nowhere else. The bytes
//!   that it skips are left-over data.
//!
//! In a file of several scans, the last restart interval of each scan must be complete: otherwise the decoder
//! does not always search for the marker after the scan. See [`closing_interval`].
//!
//! Two cases are not detected:
//!
//! - The last symbol of a run lacks bits, but with 1-bits in their place it is valid and completes the run.
//! - Up to seven bytes are left over. These bytes are already in the decoder's buffer.

use super::headers::JpegHeaders;
use super::scans;
use std::cell::Cell;
use zune_jpeg::zune_core::bytestream::{ZByteIoError, ZByteReaderTrait, ZSeekFrom};

/// 64 1-bits, as encoded in image data. If the data of a run ends early, the decoder completes a symbol with
/// at most 32 of these bits, and the next symbol is invalid. Bits that refine coefficients are never invalid,
/// but [`WatchedReader`] detects that the decoder reads more than 32 of the 1-bits. In both cases, decoding
/// fails before the decoder reaches the next marker.
const ONES: [u8; 16] = [0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0];
/// A fill byte before the marker, in place of the 1-bits.
const OPEN: &[u8] = b"\xff";
/// The length of the rest of `ONES` after four of its eight data bytes have been read.
const HALF: usize = ONES.len() / 2;

/// The maximum number of bytes that [`copy`] adds to a file.
pub(super) fn added(headers: &JpegHeaders) -> u64 {
    headers.scans.runs.saturating_mul(ONES.len() as u64)
}

/// Writes a copy of a file, up to its end marker, with 1-bits after each run.
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
            // Leaves out the fill bytes before the marker.
            let fill = file[at..].iter().take_while(|byte| **byte == 0xff).count();
            copied = at + fill.saturating_sub(1);
        }
    }
    to.extend_from_slice(b"\xff\xd9");
}

/// The restart interval that [`copy`] writes before each scan of a file with several scans.
///
/// If the last restart interval is complete at the end of the scan, the decoder searches for the next marker
/// and accepts any marker. If the interval is incomplete, the decoder searches only after the later scans of
/// a progressive file. After the first scan of a progressive file, and after every scan of a sequential file,
/// it expects the marker at once. In these two cases, [`copy`] must not write 1-bits after the scan.
///
/// Therefore a scan without restart intervals gets one interval as long as the scan. If the scan is too long
/// for 16 bits, the result is 0: no interval.
fn closing_interval(units: u64, interval: u16) -> u16 {
    if interval > 0 { interval } else { u16::try_from(units).unwrap_or(0) }
}

const EARLY: &str = "the JPEG file is damaged: its image data ends before the picture does";
const SURPLUS: &str = "the JPEG file is damaged: image data is left over";

/// Feeds a file to the decoder, and watches how much the decoder reads.
pub(super) struct WatchedReader<'a> {
    file: &'a [u8],
    at: usize,
    /// Whether left-over data is a fault.
    verify_surplus: bool,
    /// Whether the decoder has just called `is_eof`, as it does before each byte that it skips.
    skips: bool,
    fault: &'a Cell<Option<&'static str>>,
}

impl<'a> WatchedReader<'a> {
    /// Makes a reader of a file that [`copy`] wrote. The reader sets `fault` if the image data ends early, or
    /// if data is left over and `verify_surplus` is set.
    pub(super) fn new(file: &'a [u8], verify_surplus: bool, fault: &'a Cell<Option<&'static str>>) -> Self {
        WatchedReader { file, at: 0, verify_surplus, skips: false, fault }
    }

    fn rest(&self) -> &'a [u8] {
        self.file.get(self.at..).unwrap_or_default()
    }

    /// Whether the decoder has read at least half of the 1-bits that [`copy`] wrote before the next marker.
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
        // Reads of four bytes fill the decoder's buffer as usual.
        if wanted != 4 {
            // Zeros are allowed, since cameras pad files with zeros.
            let skipped = self.skips && wanted == 1 && !matches!(bytes, [0 | 0xff]);
            self.skips = false;
            if skipped && self.verify_surplus {
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
        self.at = at.ok_or(ZByteIoError::SeekError("a position before the start of the file"))?;
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
