//! The EXIF orientation of a picture.

use super::rectangle::Rect;
use image::metadata::Orientation as ExifOrientation;

/// How a stored picture has to be oriented: first transposed (rows become columns), then mirrored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Orientation {
    pub(crate) transpose: bool,
    /// Left becomes right.
    pub(crate) flip_x: bool,
    /// Top becomes bottom.
    pub(crate) flip_y: bool,
}

impl Orientation {
    pub(crate) fn is_identity(self) -> bool {
        self == Orientation::default()
    }

    /// Width and height after the orientation is applied.
    pub(crate) fn size(self, (width, height): (u32, u32)) -> (u32, u32) {
        if self.transpose { (height, width) } else { (width, height) }
    }

    /// The part of the stored picture that corresponds to `part` of the oriented picture. `width` and
    /// `height` are the sides of the oriented picture.
    pub(crate) fn stored_part(self, part: Rect, (width, height): (u32, u32)) -> Rect {
        let x = if self.flip_x { width - part.right() } else { part.x };
        let y = if self.flip_y { height - part.bottom() } else { part.y };
        if self.transpose {
            Rect { x: y, y: x, width: part.height, height: part.width }
        } else {
            Rect { x, y, ..part }
        }
    }

    /// Orients pixels of `pixel_size` bytes. `width` and `height` are the sides of the stored picture.
    pub(crate) fn apply(self, from: &[u8], (width, height): (u32, u32), pixel_size: usize, to: &mut [u8]) {
        let (width, height) = (width as usize, height as usize);
        let (across, down) = if self.transpose { (height, width) } else { (width, height) };
        for (y, row) in to.chunks_exact_mut((across * pixel_size).max(1)).enumerate().take(down) {
            let v = if self.flip_y { down - 1 - y } else { y };
            for (x, pixel) in row.chunks_exact_mut(pixel_size).enumerate() {
                let u = if self.flip_x { across - 1 - x } else { x };
                let at = if self.transpose { u * width + v } else { v * width + u } * pixel_size;
                pixel.copy_from_slice(&from[at..at + pixel_size]);
            }
        }
    }
}

impl From<ExifOrientation> for Orientation {
    fn from(orientation: ExifOrientation) -> Self {
        let oriented = |transpose, flip_x, flip_y| Orientation { transpose, flip_x, flip_y };
        match orientation {
            ExifOrientation::NoTransforms => oriented(false, false, false),
            ExifOrientation::FlipHorizontal => oriented(false, true, false),
            ExifOrientation::Rotate180 => oriented(false, true, true),
            ExifOrientation::FlipVertical => oriented(false, false, true),
            ExifOrientation::Rotate90FlipH => oriented(true, false, false),
            ExifOrientation::Rotate90 => oriented(true, true, false),
            ExifOrientation::Rotate270FlipH => oriented(true, true, true),
            ExifOrientation::Rotate270 => oriented(true, false, true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIXELS: [u8; 6] = [1, 2, 3, 4, 5, 6];

    fn oriented(exif: u8) -> ((u32, u32), Vec<u8>) {
        let orientation = Orientation::from(ExifOrientation::from_exif(exif).unwrap());
        let mut to = vec![0; 6];
        orientation.apply(&PIXELS, (3, 2), 1, &mut to);
        (orientation.size((3, 2)), to)
    }

    #[test]
    fn the_eight_exif_orientations_are_applied() {
        let table = [
            (1, (3, 2), [1, 2, 3, 4, 5, 6]),
            (2, (3, 2), [3, 2, 1, 6, 5, 4]),
            (3, (3, 2), [6, 5, 4, 3, 2, 1]),
            (4, (3, 2), [4, 5, 6, 1, 2, 3]),
            (5, (2, 3), [1, 4, 2, 5, 3, 6]),
            (6, (2, 3), [4, 1, 5, 2, 6, 3]),
            (7, (2, 3), [6, 3, 5, 2, 4, 1]),
            (8, (2, 3), [3, 6, 2, 5, 1, 4]),
        ];
        for (exif, size, pixels) in table {
            assert_eq!(oriented(exif), (size, pixels.to_vec()), "{exif}");
        }
    }

    #[test]
    fn a_part_maps_to_the_same_pixels_of_the_stored_picture() {
        for exif in 1..=8 {
            let orientation = Orientation::from(ExifOrientation::from_exif(exif).unwrap());
            let (size, pixels) = oriented(exif);
            for (x, y) in (0..size.0).flat_map(|x| (0..size.1).map(move |y| (x, y))) {
                let before = orientation.stored_part(Rect { x, y, width: 1, height: 1 }, size);
                let (at, was) = ((y * size.0 + x) as usize, (before.y * 3 + before.x) as usize);
                assert_eq!(pixels[at], PIXELS[was], "{exif}");
            }
        }
    }
}
