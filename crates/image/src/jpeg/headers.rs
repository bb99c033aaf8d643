//! Reads the headers of a JPEG, and detects headers that the decoders would silently misread.

use std::ops::Range;

/// The contents of the segments before the image data, and the positions of the scans.
#[derive(Debug, Default, Clone)]
pub(crate) struct JpegHeaders {
    pub(crate) width: u16,
    pub(crate) height: u16,
    /// The offset of the height in the file.
    pub(super) height_at: usize,
    /// The range of the EXIF data in the file: the content of the EXIF segment without its identifier,
    /// `Exif\0\0`.
    pub(super) exif: Option<Range<usize>>,
    /// Whether the file is sequential rather than progressive.
    sequential: bool,
    pub(super) components: Vec<Component>,
    /// The number of components in the first scan.
    first_scan: usize,
    /// The offset of the first scan's marker.
    pub(super) scan_at: usize,
    /// Empty until [`JpegHeaders::open`] has read the scans.
    pub(super) scans: Scans,
    jfif: bool,
    /// Whether libjpeg warns about a value in the headers that no decoder needs.
    odd: bool,
    /// The byte ranges that libjpeg ignores, all before the first scan: bytes between segments, and Adobe
    /// segments that are too short. libjpeg warns about bytes between segments. The decoder in Rust fails for
    /// both kinds of ranges.
    ignored: Vec<Range<usize>>,
    /// The number of MCUs between two restart markers, as the headers before the first scan define it; 0
    /// without restart markers.
    pub(super) interval: u16,
    /// The colour transform in the Adobe segment.
    adobe: Option<u8>,
}

/// The scans of a file. The restart intervals of the scans are not stored, since a file may have tens of
/// millions of intervals.
#[derive(Debug, Default, Clone)]
pub(super) struct Scans {
    pub(super) list: Vec<Scan>,
    /// The total number of runs of entropy-coded data in all scans.
    pub(super) runs: u64,
    /// Whether the scans contain all bits of all coefficients. The standard does not require that, but all
    /// encoders write complete files.
    pub(super) complete: bool,
}

/// A scan in the image data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scan {
    /// The offset of the marker in front of the scan's header.
    pub(super) at: usize,
    /// The offset of the scan's entropy-coded data.
    pub(super) data: usize,
    /// The end of the entropy-coded data: the offset of the fill bytes and the marker that follow it.
    pub(super) end: usize,
    /// The number of MCUs; 0 if the scan's header names no component of the picture.
    pub(super) units: u64,
    /// The number of MCUs between two restart markers; 0 without restart markers.
    pub(super) interval: u16,
}

#[derive(Debug, Clone)]
pub(super) struct Component {
    pub(super) id: u8,
    /// Sampling factors: samples in a row and in a column, relative to the samples of the other components.
    horizontal: u8,
    vertical: u8,
}

/// Maximum number of ignored ranges; a file with more is not read.
const MAX_IGNORED: usize = 64;

impl JpegHeaders {
    /// Reads the headers up to the first scan; `None` if there is none.
    pub(super) fn read(file: &[u8]) -> Option<Self> {
        let mut headers = JpegHeaders::default();
        let mut rest = file.strip_prefix(b"\xff\xd8")?;
        let mut segment_end = 2;
        loop {
            let at = rest.iter().position(|byte| *byte == 0xff)?;
            rest = &rest[at + 1..];
            let marker = *rest.first()?;
            match marker {
                0xff => continue,
                // A 0xff among bytes between segments, or a marker without a segment.
                0x00 | 0x01 | 0xd0..=0xd7 => {
                    rest = &rest[1..];
                    continue;
                }
                // The start of a second file, or the end of this file before a scan.
                0xd8 | 0xd9 => return None,
                _ => {}
            }
            let marker_at = file.len() - rest.len() - 1;
            headers.ignore(segment_end..marker_at)?;
            let length = usize::from(u16::from_be_bytes([*rest.get(1)?, *rest.get(2)?]));
            let content = rest.get(3..1 + length)?;
            let start = file.len() - rest.len() + 3;
            rest = &rest[1 + length..];
            segment_end = file.len() - rest.len();
            match marker {
                0xc0..=0xc2 => {
                    headers.sequential = marker != 0xc2;
                    let &[_, h1, h2, w1, w2, count, ref components @ ..] = content else { return None };
                    headers.height = u16::from_be_bytes([h1, h2]);
                    headers.width = u16::from_be_bytes([w1, w2]);
                    headers.height_at = start + 1;
                    let (components, more) = components.as_chunks::<3>();
                    // Files with more than four components are rejected: no decoder reads them, and each
                    // component adds to the work on a scan.
                    if !more.is_empty() || components.len() != usize::from(count) || !(1..=4).contains(&count)
                    {
                        return None;
                    }
                    headers.components = components.iter().map(Component::read).collect();
                }
                0xdd => headers.interval = content.try_into().map_or(0, u16::from_be_bytes),
                0xe0 if content.starts_with(b"JFIF\0") => {
                    headers.jfif = true;
                    headers.odd |= content.get(5).is_some_and(|version| *version != 1);
                }
                0xe1 if content.starts_with(b"Exif\0\0") => {
                    headers.exif.get_or_insert(start + 6..start + content.len());
                }
                0xee if content.starts_with(b"Adobe") && content.len() < 12 => {
                    headers.ignore(marker_at..segment_end)?;
                }
                0xee if content.starts_with(b"Adobe") => headers.adobe = content.get(11).copied(),
                0xda => {
                    headers.first_scan = usize::from(*content.first()?);
                    headers.scan_at = start - 4;
                    headers.odd |= headers.sequential && !content.ends_with(&[0, 63, 0]);
                    return Some(headers);
                }
                _ => {}
            }
        }
    }

    /// Records a range that libjpeg ignores; `None` if there are now more than [`MAX_IGNORED`] ranges.
    fn ignore(&mut self, part: Range<usize>) -> Option<()> {
        match self.ignored.last_mut() {
            _ if part.is_empty() => {}
            Some(last) if last.end == part.start => last.end = part.end,
            _ => self.ignored.push(part),
        }
        (self.ignored.len() <= MAX_IGNORED).then_some(())
    }

    /// A copy of the file without the ranges that libjpeg ignores; `None` if there are no such ranges.
    pub(super) fn without_ignored(&self, file: &[u8]) -> Option<Vec<u8>> {
        if self.ignored.is_empty() {
            return None;
        }
        let (mut clean, mut from) = (Vec::with_capacity(file.len()), 0);
        for part in &self.ignored {
            clean.extend_from_slice(&file[from..part.start]);
            from = part.end;
        }
        clean.extend_from_slice(&file[from..]);
        Some(clean)
    }

    /// The memory in bytes that decoders need for the coefficients of a file of several scans, and for the
    /// samples computed from the coefficients.
    pub(super) fn coefficient_bytes(&self) -> u64 {
        if self.is_one_pass() { 0 } else { self.samples().saturating_mul(4) }
    }

    /// The number of samples of all components, including samples that pad blocks.
    pub(super) fn samples(&self) -> u64 {
        self.components.iter().map(|one| 64 * self.units(&[1, one.id])).fold(0, u64::saturating_add)
    }

    /// The number of samples of an MCU of a scan with this header.
    pub(super) fn unit_samples(&self, scan: &[u8]) -> u64 {
        match scan {
            [0 | 1, ..] | [] => 64,
            _ => {
                let blocks = |one: &Component| u64::from(one.horizontal) * u64::from(one.vertical);
                64 * self.components.iter().map(blocks).sum::<u64>()
            }
        }
    }

    /// Why `zune-jpeg` would panic, or return other pixels than libjpeg and Pillow; `None` if it returns the
    /// same pixels.
    pub(super) fn unsupported(&self) -> Option<&'static str> {
        let first = self.components.first()?;
        let max = |factor: fn(&Component) -> u8| self.components.iter().map(factor).max().unwrap_or_default();
        if first.horizontal < max(|component| component.horizontal) {
            return Some("JPEG files with fewer luma than chroma samples in a row are not supported");
        }
        let split = self.sequential && self.first_scan < self.components.len();
        if split && max(|component| component.vertical) > 1 {
            return Some(
                "sequential JPEG files with subsampled components in separate scans are not supported",
            );
        }
        // A JFIF segment means YCbCr for libjpeg. Without a JFIF segment, libjpeg takes the colour space from
        // the Adobe segment, else from the ids of the components.
        let ids: Vec<u8> = self.components.iter().map(|component| component.id).collect();
        let contradiction = match (ids.len(), self.jfif, self.adobe) {
            (3, true, Some(0)) => true,
            (3, true, _) | (3, false, Some(1..)) => ids == *b"RGB",
            (4, _, Some(1)) => true,
            _ => false,
        };
        contradiction.then_some("the JPEG file contradicts itself about its colour space")
    }

    /// Whether libjpeg warns about the headers. The pixels may be intact all the same.
    #[cfg(feature = "turbojpeg")]
    pub(super) fn is_odd(&self) -> bool {
        self.odd
    }

    /// Whether a single scan contains the whole picture.
    pub(super) fn is_one_pass(&self) -> bool {
        self.sequential && self.first_scan == self.components.len()
    }

    /// Whether the file is sequential: each scan has all coefficients of its components.
    pub(super) fn is_sequential(&self) -> bool {
        self.sequential
    }

    /// The width of an MCU in pixels.
    #[cfg(feature = "turbojpeg")]
    pub(super) fn unit_width(&self) -> u32 {
        8 * u32::from(self.factors().0)
    }

    /// The largest sampling factors, in a row and in a column, at least 1.
    fn factors(&self) -> (u8, u8) {
        let all = self.components.iter();
        all.fold((1, 1), |max, one| (max.0.max(one.horizontal), max.1.max(one.vertical)))
    }

    /// The number of MCUs of a scan with this header; 0 if the header names no component of the picture.
    pub(super) fn units(&self, scan: &[u8]) -> u64 {
        let (horizontal, vertical) = self.factors();
        let along = |pixels: u16, factor: u8, max: u8| {
            (u64::from(pixels) * u64::from(factor)).div_ceil(8 * u64::from(max))
        };
        match scan {
            // A scan of one component consists only of the blocks of the component, without blocks that pad
            // MCUs.
            [1, id, ..] => self.components.iter().find(|component| component.id == *id).map_or(0, |one| {
                along(self.width, one.horizontal, horizontal) * along(self.height, one.vertical, vertical)
            }),
            _ => along(self.width, 1, horizontal) * along(self.height, 1, vertical),
        }
    }

    /// `Some` if libjpeg repeats the chroma samples instead of interpolating them, because chroma has only
    /// one or two columns. The value is true if chroma also has half as many rows as luma.
    pub(super) fn repeats_chroma(&self) -> Option<bool> {
        let (horizontal, vertical) = self.factors();
        match &self.components[..] {
            [_, colors @ ..] if self.width <= 4 && colors.len() == 2 => {
                let ratio =
                    |one: &Component| (horizontal / one.horizontal.max(1), vertical / one.vertical.max(1));
                let [first, second] = [ratio(&colors[0]), ratio(&colors[1])];
                (first == second && first.0 == 2 && first.1 <= 2).then_some(first.1 == 2)
            }
            _ => None,
        }
    }

    /// Whether the last `count` bytes of image data in a file of one scan are zeros.
    #[cfg(feature = "turbojpeg")]
    pub(super) fn is_filled_up(&self, file: &[u8], count: usize) -> bool {
        let bytes = self.scans.list.last().and_then(|scan| {
            let from = scan.end.checked_sub(count)?;
            file.get(from..scan.end)
        });
        bytes.is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0))
    }

    /// A smaller height to write into the header; `None` if that saves nothing. With this height, a decoder
    /// stops after the rows above `bottom`, and does not verify the data of the rows below.
    pub(super) fn rows_above(&self, bottom: u32) -> Option<u16> {
        // In a file of several scans, every scan covers the whole picture.
        if !self.is_one_pass() {
            return None;
        }
        let unit = 8 * u32::from(self.factors().1);
        // The decoder needs one row more, since the chroma of the last row is interpolated with the chroma of
        // the next row.
        let rows = (bottom + 1).div_ceil(unit) * unit;
        u16::try_from(rows).ok().filter(|rows| *rows < self.height)
    }
}

impl Component {
    fn read(&[id, factors, _]: &[u8; 3]) -> Self {
        Component { id, horizontal: factors >> 4, vertical: factors & 15 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unsupported(file: &[u8]) -> Option<&'static str> {
        JpegHeaders::read(file)?.unsupported()
    }

    const JFIF: &[u8] = b"\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0";
    const SEQUENTIAL: u8 = 0xc0;
    const PROGRESSIVE: u8 = 0xc2;

    fn adobe(transform: u8) -> Vec<u8> {
        [b"\xff\xee\0\x0eAdobe\0d\0\0\0\0", &[transform][..]].concat()
    }

    /// A file that ends after the header of its first scan. The header says that the scan has `scan`
    /// components.
    fn headers(extra: &[u8], kind: u8, components: &[(u8, u8)], scan: u8) -> Vec<u8> {
        let count = components.len() as u8;
        let mut file = [b"\xff\xd8", extra, &[0xff, kind, 0, 8 + 3 * count, 8, 0, 16, 0, 16, count]].concat();
        components.iter().for_each(|(id, factors)| file.extend([*id, *factors, 0]));
        file.extend([0xff, 0xda, 0, 6 + 2 * scan, scan]);
        file.resize(file.len() + usize::from(2 * scan) + 3, 0);
        file
    }

    #[test]
    fn at_most_four_components_are_supported() {
        for count in [1, 4, 5, 80] {
            let file = headers(b"", SEQUENTIAL, &vec![(1, 0x11); count][..], 1);
            assert_eq!(JpegHeaders::read(&file).is_some(), count <= 4, "{count}");
        }
    }

    #[test]
    fn layouts_that_would_be_misread_are_unsupported() {
        let table: [([u8; 3], u8, u8, bool); 9] = [
            ([0x22, 0x11, 0x11], SEQUENTIAL, 3, true),
            ([0x22, 0x11, 0x11], SEQUENTIAL, 1, false),
            ([0x22, 0x11, 0x11], PROGRESSIVE, 1, true),
            ([0x11, 0x11, 0x11], SEQUENTIAL, 1, true),
            ([0x21, 0x11, 0x11], SEQUENTIAL, 1, true),
            ([0x21, 0x12, 0x11], SEQUENTIAL, 3, true),
            ([0x11, 0x22, 0x11], SEQUENTIAL, 3, false),
            ([0x11, 0x21, 0x11], PROGRESSIVE, 3, false),
            ([0x11, 0x12, 0x11], SEQUENTIAL, 3, true),
        ];
        for (factors, kind, scan, good) in table {
            let components = [(1, factors[0]), (2, factors[1]), (3, factors[2])];
            assert_eq!(
                unsupported(&headers(b"", kind, &components, scan)).is_none(),
                good,
                "{factors:x?} {scan}"
            );
        }
        // The sampling factors of a single component have no effect.
        assert_eq!(unsupported(&headers(b"", SEQUENTIAL, &[(1, 0x22)], 1)), None);
    }

    #[test]
    fn contradictory_colour_spaces_are_unsupported() {
        let both = |transform| [JFIF, &adobe(transform)].concat();
        for (extra, ids, good) in [
            (JFIF.to_vec(), &[1, 2, 3][..], true),
            (JFIF.to_vec(), b"RGB", false),
            (vec![], b"RGB", true),
            (adobe(0), b"RGB", true),
            (adobe(0), &[1, 2, 3], true),
            (adobe(1), b"RGB", false),
            (both(1), &[1, 2, 3], true),
            (both(0), &[1, 2, 3], false),
            (both(2), &[1, 2, 3, 4], true),
            (adobe(0), &[1, 2, 3, 4], true),
            (adobe(1), &[1, 2, 3, 4], false),
        ] {
            let components: Vec<(u8, u8)> = ids.iter().map(|id| (*id, 0x11)).collect();
            let file = headers(&extra, SEQUENTIAL, &components, ids.len() as u8);
            assert_eq!(unsupported(&file).is_none(), good, "{}", file.escape_ascii());
        }
    }

    #[test]
    fn ranges_that_libjpeg_ignores_are_removed() {
        let clean = headers(b"", PROGRESSIVE, &[(1, 0x11)], 1);
        let short = b"\xff\xee\0\x09Adobe\0d";
        for ignored in [&b"stray"[..], b"\xff\0", b"\xff\xff", b"\0\xff\x01\xff\xd3", short] {
            let file = headers(ignored, PROGRESSIVE, &[(1, 0x11)], 1);
            let read = JpegHeaders::read(&file).unwrap();
            assert_eq!((read.adobe, read.without_ignored(&file)), (None, Some(clean.clone())), "{ignored:?}");
        }
        assert_eq!(JpegHeaders::read(&clean).unwrap().without_ignored(&clean), None);
        let apart = |count: usize| headers(&b"x\xff\xfe\0\x02".repeat(count), PROGRESSIVE, &[(1, 0x11)], 1);
        assert!(JpegHeaders::read(&apart(MAX_IGNORED)).is_some());
        assert!(JpegHeaders::read(&apart(MAX_IGNORED + 1)).is_none());
        assert!(JpegHeaders::read(&headers(b"\xff\xd8", PROGRESSIVE, &[(1, 0x11)], 1)).is_none());
    }

    #[test]
    fn truncated_headers_are_not_called_unsupported() {
        let file = headers(&adobe(0), SEQUENTIAL, &[(1, 0x11), (2, 0x22), (3, 0x11)], 3);
        assert!(unsupported(&file).is_some());
        for end in 0..file.len() {
            assert_eq!(unsupported(&file[..end]), None);
        }
    }
}
