use super::*;
use crate::Image;
use ::image::metadata::Orientation as ExifOrientation;

const SIZE: (u32, u32) = (45, 29);

/// A file with gradients across and down, and this EXIF orientation.
fn file(orientation: u8) -> Vec<u8> {
    let (width, height) = SIZE;
    let pixel = |x: u32, y: u32| [x * 5, y * 8, (x + y) * 3].map(|number| number as u8);
    let pixels: Vec<u8> = (0..width * height).flat_map(|at| pixel(at % width, at / width)).collect();
    let jpeg = Image::new(ImageMode::Rgb8, (height, width), pixels).unwrap().to_jpeg(90).unwrap();
    // TIFF with a single entry: 0x0112, the orientation.
    let mut exif = b"\xff\xe1\0\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    exif.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
    [&jpeg[..2], &exif, &jpeg[2..]].concat()
}

/// Draws the whole picture; with `part`, draws only that part, mirrored. Returns the size and the pixels.
fn drawn(file: &[u8], oriented: bool, part: Option<Rect>) -> ((u32, u32), Vec<u8>) {
    let options = FrameOptions {
        keep_wide: false,
        mode: ImageMode::Rgb8,
        apply_orientation: oriented,
        reducing_gap: 2.0,
        verify: true,
        limit: 1 << 20,
    };
    let mut scratch = FrameScratch::default();
    let mut frame = Frame::open(file, options, &mut scratch).unwrap();
    if let Some(part) = part {
        frame.crop(part.y, part.x, (part.height, part.width)).unwrap();
        frame.flip_horizontal();
    }
    ((frame.width(), frame.height()), frame.pixels().unwrap().to_vec())
}

#[test]
fn the_exif_orientation_is_applied_if_the_option_is_set() {
    let (_, stored) = drawn(&file(1), true, None);
    for exif in 1..=8 {
        let file = file(exif);
        assert_eq!(drawn(&file, false, None), (SIZE, stored.clone()), "{exif}");
        let orientation = Orientation::from(ExifOrientation::from_exif(exif).unwrap());
        let size = orientation.size(SIZE);
        let mut oriented = vec![0; stored.len()];
        orientation.apply(&stored, SIZE, 3, &mut oriented);
        assert_eq!(drawn(&file, true, None), (size, oriented.clone()), "{exif}");

        // A crop refers to the picture after its orientation is applied.
        let part = Rect { x: 3, y: 11, width: 20, height: 9 };
        let row = |y: u32| (part.x..part.right()).rev().map(move |x| (y * size.0 + x) as usize * 3);
        let wanted: Vec<u8> =
            (part.y..part.bottom()).flat_map(row).flat_map(|at| oriented[at..at + 3].to_vec()).collect();
        assert_eq!(drawn(&file, true, Some(part)), ((20, 9), wanted), "{exif}");
    }
}
