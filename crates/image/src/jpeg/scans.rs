//! Finds the runs of entropy-coded data in the image data of a JPEG, and checks that its markers are
//! consistent.
//!
//! A run ends at a restart marker or at the marker after its scan. Restart markers are numbered cyclically
//! from 0 to 7, and the size of a scan determines how many it must have. So missing and surplus runs, runs of
//! another picture and missing scans are detected without decoding.

use super::headers::{JpegHeaders, Scan, Scans};

/// Why the image data is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanError {
    /// There is no end marker.
    Truncated,
    Damaged(&'static str),
    /// The scans would take too long to decode.
    TooManyScans,
}

const MARKER: &str = "the JPEG file is damaged: there is a marker in the image data";
const RESTART: &str = "the JPEG file is damaged: a restart marker is missing, surplus or out of order";

/// The number of bits that each coefficient of a component still lacks; [`u8::MAX`] before its first scan.
type MissingBits = [u8; 64];

/// How often, on average, the scans of a large file may visit each sample. Encoders write up to about ten
/// scans, and each scan visits only some of the samples.
const MAX_VISITS: u64 = 16;
/// The scans of a file may always make this many visits to samples, however small the file is.
const SMALL_VISITS: u64 = 1 << 28;

/// Each scan counts as a visit to at least this many samples. This bounds the number of scans, and thereby
/// the length of the list of scans.
const MIN_VISITS: u64 = SMALL_VISITS >> 16;

/// Reads the scans of a file, from the first scan to the end marker.
pub(super) fn read(file: &[u8], headers: &JpegHeaders) -> Result<Scans, ScanError> {
    let (mut list, mut all_runs) = (Vec::new(), 0);
    let mut missing_bits = vec![[u8::MAX; 64]; headers.components.len()];
    let mut interval = headers.interval;
    let mut at = headers.scan_at;
    let mut visits_left = headers.samples().saturating_mul(MAX_VISITS).max(SMALL_VISITS);
    loop {
        let header = segment(file, at)?;
        let units = headers.units(header);
        let visits = units.saturating_mul(headers.unit_samples(header)).max(MIN_VISITS);
        visits_left = visits_left.checked_sub(visits).ok_or(ScanError::TooManyScans)?;
        record_scan(header, headers, &mut missing_bits);
        let data = at + 4 + header.len();
        let found = check_runs(file, data, units, interval)?;
        list.push(Scan { at, data, end: found.end, units, interval });
        all_runs += found.count;
        // If a scan has only a part of the picture, segments may follow before the next scan.
        at = found.marker;
        loop {
            match file.get(at + 1).ok_or(ScanError::Truncated)? {
                0xd9 => {
                    let complete = missing_bits.as_flattened().iter().all(|bits| *bits == 0);
                    return Ok(Scans { list, runs: all_runs, complete });
                }
                _ if headers.is_one_pass() => return Err(ScanError::Damaged(MARKER)),
                0xda => break,
                0xc4 | 0xdb | 0xdd | 0xe0..=0xef | 0xfe => {
                    let content = segment(file, at)?;
                    if let (0xdd, &[high, low]) = (file[at + 1], content) {
                        interval = u16::from_be_bytes([high, low]);
                    }
                    at = marker(file, at + 4 + content.len()).ok_or(ScanError::Truncated)?.1;
                }
                _ => return Err(ScanError::Damaged(MARKER)),
            }
        }
    }
}

/// Records in `missing_bits` which bits a scan with this header contains.
fn record_scan(header: &[u8], headers: &JpegHeaders, missing_bits: &mut [MissingBits]) {
    let &[_, ref components @ .., first, last, approximation] = header else { return };
    // A sequential scan has all coefficients. Its header may say otherwise: some encoders write other
    // numbers.
    let (first, last, bits) =
        if headers.is_sequential() { (0, 63, 0) } else { (first, last, approximation & 15) };
    for [id, _] in components.as_chunks::<2>().0 {
        let component = headers.components.iter().position(|component| component.id == *id);
        let coefficients =
            component.and_then(|at| missing_bits[at].get_mut(usize::from(first)..=usize::from(last)));
        coefficients.into_iter().for_each(|coefficients| coefficients.fill(bits));
    }
}

/// The runs of a scan whose restart markers are in the right order.
struct CheckedRuns {
    count: u64,
    /// The end of the last run: the offset of the fill bytes and the marker that follow it.
    end: usize,
    /// The offset of the marker after the last run.
    marker: usize,
}

/// Checks that a scan has the restart markers that its size requires, in their order.
fn check_runs(file: &[u8], data: usize, units: u64, interval: u16) -> Result<CheckedRuns, ScanError> {
    let needed = units.checked_sub(1).and_then(|units| units.checked_div(interval.into()));
    // Some encoders write a restart marker after the last interval too.
    let max_restarts = needed.map_or(0, |needed| needed + u64::from(units.is_multiple_of(interval.into())));
    let (mut restarts, mut from) = (0, data);
    let (end, behind) = loop {
        let (end, at) = marker(file, from).ok_or(ScanError::Truncated)?;
        match file[at + 1] {
            number @ 0xd0..=0xd7 if restarts < max_restarts && u64::from(number - 0xd0) == restarts % 8 => {
                restarts += 1;
            }
            0xd0..=0xd7 => return Err(ScanError::Damaged(RESTART)),
            _ => break (end, at),
        }
        from = at + 2;
    };
    match needed {
        Some(needed) if restarts < needed => Err(ScanError::Damaged(RESTART)),
        _ => Ok(CheckedRuns { count: restarts + 1, end, marker: behind }),
    }
}

/// For each run of `scan`, the offset at which the run ends: the offset of the next marker, or of the fill
/// bytes before this marker. `scan` is one of the scans that [`read`] returned for this file.
pub(super) fn run_ends(file: &[u8], scan: Scan) -> impl Iterator<Item = usize> {
    let mut from = Some(scan.data);
    std::iter::from_fn(move || {
        let start = from?;
        // Without restart markers, the only run ends with the scan: no search is needed.
        let (end, at) = if scan.interval == 0 { (scan.end, scan.end) } else { marker(file, start)? };
        from = (end < scan.end).then_some(at + 2);
        Some(end)
    })
}

/// The content of the segment whose marker is at the offset `at`.
fn segment(file: &[u8], at: usize) -> Result<&[u8], ScanError> {
    let length = file.get(at + 2..at + 4).ok_or(ScanError::Truncated)?;
    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
    file.get(at + 4..at + 2 + length).ok_or(ScanError::Truncated)
}

/// Finds the next marker from an offset on. Returns the offset of the fill bytes before the marker, and the
/// offset of the marker itself.
fn marker(file: &[u8], mut from: usize) -> Option<(usize, usize)> {
    loop {
        let start = from + memchr::memchr(0xff, file.get(from..)?)?;
        let fill = file[start..].iter().position(|byte| *byte != 0xff)?;
        if file[start + fill] != 0 {
            return Some((start, start + fill - 1));
        }
        // A 0xff in the data, which is followed by 0.
        from = start + fill + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A grey file of 24 x 8 pixels: three MCUs.
    fn file(interval: u8, data: &[u8]) -> Vec<u8> {
        let frame = [0xff, 0xc0, 0, 11, 8, 0, 8, 0, 24, 1, 1, 0x11, 0];
        let restarts = [0xff, 0xdd, 0, 4, 0, interval];
        // The number of the last coefficient is 0 instead of 63: some encoders write such headers.
        let scan = [0xff, 0xda, 0, 8, 1, 1, 0, 0, 0, 0];
        [b"\xff\xd8", &frame[..], &restarts, &scan, data].concat()
    }

    /// Returns the scan, and the ends of the scan's runs.
    fn runs(interval: u8, data: &[u8]) -> Result<(Scan, Vec<usize>), ScanError> {
        let file = file(interval, data);
        let scans = read(&file, &JpegHeaders::read(&file).unwrap())?;
        assert!(scans.complete);
        let [scan] = scans.list[..] else { panic!("{scans:?}") };
        let ends: Vec<usize> = run_ends(&file, scan).collect();
        assert_eq!(scans.runs, ends.len() as u64);
        Ok((scan, ends))
    }

    #[test]
    fn runs_end_at_markers_with_fill_bytes() {
        let found = runs(1, b"a\xff\0b\xff\xd0\xff\xff\0c\xff\xff\xd1d\xff\xd9rest\xff\xd9").unwrap();
        let wanted = Scan { at: 21, data: 31, end: 45, units: 3, interval: 1 };
        assert_eq!(found, (wanted, vec![35, 41, 45]));
    }

    #[test]
    fn restart_markers_are_counted_and_in_order() {
        let table: [(u8, &[u8], bool); 11] = [
            (0, b"a\xff\xd9", true),
            (0, b"a\xff\xd0a\xff\xd9", false),
            (1, b"a\xff\xd0a\xff\xd1a\xff\xd9", true),
            (1, b"a\xff\xd0a\xff\xd1a\xff\xd2\xff\xd9", true),
            (1, b"a\xff\xd0a\xff\xd9", false),
            (1, b"a\xff\xd1a\xff\xd0a\xff\xd9", false),
            (1, b"a\xff\xd0a\xff\xd0a\xff\xd9", false),
            (2, b"a\xff\xd0a\xff\xd9", true),
            (2, b"a\xff\xd0a\xff\xd1a\xff\xd9", false),
            (3, b"a\xff\xd9", true),
            (4, b"a\xff\xd0a\xff\xd9", false),
        ];
        for (interval, data, good) in table {
            let found = runs(interval, data);
            assert_eq!(found.is_ok(), good, "{interval} {}", data.escape_ascii());
            assert!(good || found == Err(ScanError::Damaged(RESTART)));
        }
    }

    #[test]
    fn a_file_without_an_end_is_truncated() {
        let whole = file(1, b"a\xff\0b\xff\xd0\xff\xff\0c\xff\xff\xd1d\xff\xd9");
        for end in 31..whole.len() {
            let headers = JpegHeaders::read(&whole[..end]).unwrap();
            assert_eq!(read(&whole[..end], &headers).unwrap_err(), ScanError::Truncated, "{end}");
        }
    }

    #[test]
    fn missing_scans_are_detected() {
        let frame = [0xff, 0xc2, 0, 14, 8, 0, 8, 0, 24, 2, 1, 0x11, 0, 2, 0x11, 0];
        let scan = |id: u8, first: u8, last: u8, bits: u8| {
            [b"\xff\xda\0\x08\x01", &[id, 0, first, last, bits][..], b"data"].concat()
        };
        let scans = [
            scan(1, 0, 0, 0x01),
            scan(2, 0, 0, 0),
            scan(1, 1, 5, 0),
            scan(1, 6, 63, 0),
            scan(2, 1, 63, 0x02),
            scan(2, 1, 63, 0x21),
            scan(1, 0, 0, 0x10),
            scan(2, 1, 63, 0x10),
        ];
        for count in 1..=scans.len() {
            let file = [b"\xff\xd8", &frame[..], &scans[..count].concat(), b"\xff\xd9"].concat();
            let found = read(&file, &JpegHeaders::read(&file).unwrap()).unwrap();
            assert_eq!((found.complete, found.list.len()), (count == scans.len(), count));
            assert_eq!(found.runs, count as u64);
        }
    }

    #[test]
    fn scans_may_visit_each_sample_a_limited_number_of_times() {
        let read_scans = |count: usize, side: u16| {
            let [high, low] = side.to_be_bytes();
            let frame = [0xff, 0xc2, 0, 11, 8, high, low, high, low, 1, 1, 0x11, 0];
            let scans = [0xff, 0xda, 0, 8, 1, 1, 0, 0, 0, 0].repeat(count);
            let file = [b"\xff\xd8", &frame[..], &scans, b"\xff\xd9"].concat();
            read(&file, &JpegHeaders::read(&file).unwrap()).map(|scans| scans.list.len())
        };
        assert_eq!(read_scans(16, 60_000), Ok(16));
        assert_eq!(read_scans(17, 60_000), Err(ScanError::TooManyScans));
        assert_eq!(read_scans(256, 1024), Ok(256), "a small picture may have many");
        assert_eq!(read_scans(257, 1024), Err(ScanError::TooManyScans));
    }
}
