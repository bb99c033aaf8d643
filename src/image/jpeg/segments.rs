//! The segments of a JPEG file, and the image data between them.

pub(super) const DHT: u8 = 0xc4;
pub(super) const EOI: u8 = 0xd9;
pub(super) const SOS: u8 = 0xda;
pub(super) const DRI: u8 = 0xdd;

/// A marker and its content.
#[derive(Debug)]
pub(super) struct Segment<'a> {
    pub(super) marker: u8,
    pub(super) content: &'a [u8],
    /// The offset of the content in the file.
    pub(super) start: usize,
}

/// Iterates over the segments of a file. Image data is skipped by [`seek`](Segments::seek).
pub(super) struct Segments<'a> {
    file: &'a [u8],
    at: usize,
}

impl<'a> Segments<'a> {
    /// Starts behind the first marker, SOI; none without it.
    pub(super) fn new(file: &'a [u8]) -> Option<Self> {
        file.starts_with(b"\xff\xd8").then_some(Segments { file, at: 2 })
    }

    /// The offset behind the last segment.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Continues at this offset.
    pub(super) fn seek(&mut self, at: usize) {
        self.at = at;
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = Segment<'a>;

    /// The next segment that is whole. Markers without content are skipped, except for EOI.
    fn next(&mut self) -> Option<Segment<'a>> {
        loop {
            let at = self.at + memchr::memchr(0xff, self.file.get(self.at..)?)? + 1;
            let marker = *self.file.get(at)?;
            match marker {
                // A fill byte.
                0xff => self.at = at,
                0x00 | 0x01 | 0xd0..=0xd8 => self.at = at + 1,
                EOI => {
                    self.at = at + 1;
                    return Some(Segment { marker, content: &[], start: self.at });
                }
                _ => {
                    let length = u16::from_be_bytes([*self.file.get(at + 1)?, *self.file.get(at + 2)?]);
                    let (start, end) = (at + 3, at + 1 + usize::from(length));
                    let content = self.file.get(start..end)?;
                    self.at = end;
                    return Some(Segment { marker, content, start });
                }
            }
        }
    }
}

/// Where the image data that starts at `at` ends: the offset of the marker behind it, and that marker. Restart markers are
/// part of the data.
pub(super) fn end_of_data(file: &[u8], at: usize) -> Option<(usize, u8)> {
    let mut rest = file.get(at..)?;
    while let Some(found) = memchr::memchr(0xff, rest) {
        rest = &rest[found + 1..];
        match *rest.first()? {
            // An 0xff of the data, a fill byte, or a restart marker.
            0x00 | 0xff | 0xd0..=0xd7 => {}
            marker => return Some((file.len() - rest.len() - 1, marker)),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_bytes_and_bare_markers_are_skipped() {
        let file = b"\xff\xd8\xff\xff\xe0\0\x03xjunk\xff\x01\xff\xdd\0\x04ab\xff\xd9\xff\xe1\0\x02";
        let found: Vec<_> = Segments::new(file)
            .unwrap()
            .map(|segment| (segment.marker, segment.content, segment.start))
            .collect();
        assert_eq!(found, [(0xe0, &b"x"[..], 7), (DRI, b"ab", 18), (EOI, b"", 22), (0xe1, b"", 26)]);
        assert!(Segments::new(b"\xff\xd9").is_none());
        for end in 2..file.len() {
            assert!(Segments::new(&file[..end]).unwrap().count() < 4, "{end}");
        }
    }

    #[test]
    fn restart_markers_belong_to_the_data() {
        let file = b"ab\xff\0c\xff\xd0d\xff\xff\xd9e";
        assert_eq!(end_of_data(file, 0), Some((9, EOI)));
        assert_eq!(end_of_data(&file[..10], 0), None);
        assert_eq!(end_of_data(file, 11), None);
        assert_eq!(end_of_data(file, 99), None);
    }
}
