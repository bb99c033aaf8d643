//! Tests of `Shrink` with files of all kinds.

use super::*;
use crate::Image;
use crate::rng::Rng;

/// A picture whose upper left quarter is red and the rest blue, with a little noise.
fn quartered((height, width): (u32, u32)) -> Vec<u8> {
    let mut rng = Rng::new(3, 0, 0);
    let corner = |y, x| if 2 * y < height && 2 * x < width { [200, 40, 40] } else { [40, 40, 200] };
    (0..height)
        .flat_map(|y| (0..width).map(move |x| (y, x)))
        .flat_map(|(y, x)| corner(y, x).map(|color: u8| color + rng.below(8) as u8))
        .collect()
}

fn png(size: (u32, u32)) -> Vec<u8> {
    Image::new(ImageMode::Rgb8, size, quartered(size)).unwrap().to_png().unwrap()
}

fn jpeg(size: (u32, u32)) -> Vec<u8> {
    Image::new(ImageMode::Rgb8, size, quartered(size)).unwrap().to_jpeg(95).unwrap()
}

fn grey(pixels: u32) -> Image {
    Image::new(ImageMode::L8, pixels, vec![7; (pixels * pixels) as usize]).unwrap()
}

/// Inserts these segments into a JPEG, after its first marker.
fn with_segments(file: &[u8], segments: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let segments = segments.iter().flat_map(|(marker, content)| {
        [&[0xff, *marker], &(content.len() as u16 + 2).to_be_bytes()[..], content].concat()
    });
    [&file[..2], &segments.collect::<Vec<u8>>(), &file[2..]].concat()
}

fn resized(shrink: Shrink, file: &[u8]) -> Vec<u8> {
    match shrink.apply(file).unwrap() {
        Shrunk::Resized(smaller) => smaller,
        Shrunk::Kept(reason) => panic!("{reason}"),
    }
}

fn kept(shrink: Shrink, file: &[u8]) -> KeptReason {
    match shrink.apply(file).unwrap() {
        Shrunk::Resized(_) => panic!("it was resized"),
        Shrunk::Kept(reason) => reason,
    }
}

fn to(side: u32) -> Shrink {
    Shrink::max_side(side).unwrap()
}

#[test]
fn the_ratio_is_kept_and_nothing_is_enlarged() {
    let size = |shrink: Result<Shrink>, height, width| shrink.unwrap().limit.apply(Size { height, width });
    let resized_to = |height, width| Some(Size { height, width });
    for (side, before, after) in [
        (341, (375, 500), resized_to(256, 341)),
        (341, (500, 375), resized_to(341, 256)),
        (341, (341, 341), None),
        (341, (342, 10), resized_to(341, 10)),
        (10, (1, 60_000), resized_to(1, 10)),
        (1, (u32::MAX, u32::MAX), resized_to(1, 1)),
        (u32::MAX, (u32::MAX, 1), None),
    ] {
        assert_eq!(size(Shrink::max_side(side), before.0, before.1), after, "{side} {before:?}");
    }
    for (side, before, after) in [
        (256, (375, 500), resized_to(256, 341)),
        (256, (256, 5000), None),
        (256, (1, 5000), None),
        (1, (2, u32::MAX), resized_to(1, 1 << 31)),
    ] {
        assert_eq!(size(Shrink::short_side(side), before.0, before.1), after, "{side} {before:?}");
    }
    assert!(Shrink::max_side(0).is_err() && Shrink::short_side(0).is_err());
    assert!([0, 101].iter().all(|quality| matches!(to(9).quality(*quality), Err(ImageError::Quality(_)))));
}

#[test]
fn the_format_and_the_channels_stay_the_same() {
    let file = resized(to(30), &png((40, 60)));
    let image = Image::decode(&file, ImageMode::Rgb8).unwrap();
    assert!(file.starts_with(b"\x89PNG") && (image.height(), image.width()) == (20, 30));
    let file = resized(to(30), &jpeg((40, 60)));
    let image = Image::decode(&file, ImageMode::Rgb8).unwrap();
    assert!(file.starts_with(b"\xff\xd8") && (image.height(), image.width()) == (20, 30));
    // The file has a single scan. The default decoder does not support several scans with subsampled
    // components, and other decoders cannot decode a part of such a file.
    assert_eq!(file.windows(2).filter(|bytes| *bytes == [0xff, 0xda]).count(), 1);
    let file = resized(to(30), &grey(60).to_jpeg(90).unwrap());
    assert_eq!(JpegHeaders::open(&file).unwrap().channels(), 1);
    // An odd number of blocks in both directions.
    let file = resized(to(24), &grey(60).to_jpeg(90).unwrap());
    assert!(Image::decode(&file, ImageMode::L8).unwrap().as_u8().unwrap().iter().all(|grey| *grey == 7));
    let pixels = [[90, 80, 70, 255], [90, 80, 70, 0]].concat().repeat(60 * 30);
    let file = resized(to(30), &Image::new(ImageMode::Rgba8, 60, pixels).unwrap().to_png().unwrap());
    let image = Image::decode(&file, ImageMode::Rgba8).unwrap();
    assert!(
        image
            .as_u8()
            .unwrap()
            .chunks(4)
            .all(|pixel| pixel[..3] == [90, 80, 70] && (100..=156).contains(&pixel[3]))
    );
}

#[test]
fn a_higher_quality_takes_more_bytes() {
    let noise: Vec<u8> = (0..100 * 100 * 3).map(|at: u32| (at * at % 251) as u8).collect();
    let file = Image::new(ImageMode::Rgb8, 100, noise).unwrap().to_jpeg(95).unwrap();
    let bytes = |quality| resized(to(60).quality(quality).unwrap(), &file).len();
    assert!(bytes(10) < bytes(50) && bytes(50) < bytes(90) && bytes(90) < bytes(100));
    assert_eq!(resized(to(60), &file), resized(to(60).quality(90).unwrap(), &file));
}

#[test]
fn the_orientation_is_applied_once() {
    let file = jpeg((40, 60));
    // Where the stored picture's upper left corner is after the orientation: (whether it is at the bottom,
    // whether it is at the right).
    let table = [(false, false), (false, true), (true, true), (true, false)];
    for exif in 1..=8_u8 {
        let (bottom, right) = table[usize::from((exif - 1) % 4)];
        let tiff =
            [b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", &[exif][..], &[0; 6]].concat();
        let smaller = resized(to(30), &with_segments(&file, &[(0xe1, tiff)]));
        assert!(!smaller.windows(4).any(|bytes| bytes == b"Exif"));
        let image = Image::decode(&smaller, ImageMode::Rgb8).unwrap();
        let (height, width) = if exif > 4 { (30, 20) } else { (20, 30) };
        assert_eq!((image.height(), image.width()), (height, width), "{exif}");
        let red = |bottom: bool, right: bool| {
            let (y, x) = (if bottom { height - 3 } else { 2 }, if right { width - 3 } else { 2 });
            image.as_u8().unwrap()[3 * (y * width + x) as usize] > 120
        };
        for (y, x) in [(false, false), (false, true), (true, false), (true, true)] {
            assert_eq!(red(y, x), (y, x) == (bottom, right), "{exif}: {y} {x}");
        }
    }
}

#[test]
fn icc_profiles_are_kept() {
    let profile: Vec<u8> = (0..100_000_u32).map(|at| (at % 253) as u8).collect();
    let part = |number: u8, bytes: &[u8]| (0xe2, [b"ICC_PROFILE\0", &[number, 2][..], bytes].concat());
    // The parts in the wrong order.
    let parts = [part(2, &profile[60_000..]), part(1, &profile[..60_000])];
    let file = with_segments(&jpeg((40, 60)), &parts);
    assert_eq!(icc_profile(&resized(to(30), &file)), Some(profile.clone()));
    // The profile has two parts, and the file has only the second.
    let file = with_segments(&jpeg((40, 60)), &parts[..1]);
    assert_eq!(icc_profile(&resized(to(30), &file)), None);

    let mut info = png::Info::with_size(60, 40);
    (info.color_type, info.icc_profile) = (ColorType::Rgb, Some(profile.clone().into()));
    let mut file = Vec::new();
    let mut writer = png::Encoder::with_info(&mut file, info).unwrap().write_header().unwrap();
    writer.write_chunk(png::chunk::cICP, &[9, 16, 0, 1]).unwrap();
    writer.write_image_data(&quartered((40, 60))).unwrap();
    writer.finish().unwrap();
    let smaller = resized(to(30), &file);
    let mut decoder = png_decoder(&smaller, Transformations::IDENTITY);
    decoder.set_ignore_iccp_chunk(false);
    let reader = decoder.read_info().unwrap();
    assert_eq!(reader.info().icc_profile.as_deref(), Some(&profile[..]));
    let points = reader.info().coding_independent_code_points.unwrap();
    assert_eq!((points.color_primaries, points.transfer_function), (9, 16));
}

#[test]
fn files_that_would_lose_information_are_kept() {
    assert_eq!(kept(to(60), &png((40, 60))), KeptReason::Small);
    assert_eq!(kept(to(60), &jpeg((60, 40))), KeptReason::Small);
    for other in [&b"GIF89a"[..], b"", b"text", &grey(60).to_webp().unwrap(), &grey(60).to_pgm().unwrap()] {
        assert_eq!(kept(to(30), other), KeptReason::Format);
    }
    let mut cmyk = Vec::new();
    JpegEncoder::new(&mut cmyk, 90).encode(&[9; 60 * 60 * 4], 60, 60, JpegColor::Cmyk).unwrap();
    assert_eq!(kept(to(30), &cmyk), KeptReason::Cmyk);
    let wide = Image::new(ImageMode::L16, 60, crate::Pixels::U16(vec![9; 3600])).unwrap().to_png().unwrap();
    assert_eq!(kept(to(30).grey_and_palette(true), &wide), KeptReason::Wide);
    let mask = grey(60).to_png().unwrap();
    assert_eq!(kept(to(30), &mask), KeptReason::Labels);
    let smaller = resized(to(30).grey_and_palette(true), &mask);
    assert_eq!(Image::decode(&smaller, ImageMode::L8).unwrap(), grey(30));
    let mut opaque = Vec::new();
    let mut encoder = png::Encoder::new(&mut opaque, 60, 60);
    encoder.set_color(ColorType::GrayscaleAlpha);
    encoder.write_header().unwrap().write_image_data(&[7, 255].repeat(3600)).unwrap();
    assert_eq!(kept(to(30), &opaque), KeptReason::Labels);
    let smaller = resized(to(30).grey_and_palette(true), &opaque);
    assert_eq!(Image::decode(&smaller, ImageMode::L8).unwrap(), grey(30));
    let mut info = png::Info::with_size(60, 60);
    (info.color_type, info.palette) = (ColorType::Indexed, Some(vec![1, 2, 3, 250, 9, 9].into()));
    let mut palette = Vec::new();
    let mut writer = png::Encoder::with_info(&mut palette, info).unwrap().write_header().unwrap();
    writer.write_image_data(&[1; 3600]).unwrap();
    writer.finish().unwrap();
    assert_eq!(kept(to(30), &palette), KeptReason::Labels);
    let smaller = resized(to(30).grey_and_palette(true), &palette);
    assert_eq!(Image::decode(&smaller, ImageMode::Rgb8).unwrap().as_u8().unwrap(), [250, 9, 9].repeat(900));
    let mut animated = Vec::new();
    let mut encoder = png::Encoder::new(&mut animated, 60, 60);
    encoder.set_color(ColorType::Rgb);
    encoder.set_animated(2, 0).unwrap();
    let mut writer = encoder.write_header().unwrap();
    (0..2).for_each(|shade| writer.write_image_data(&[shade; 60 * 60 * 3]).unwrap());
    writer.finish().unwrap();
    assert_eq!(kept(to(30), &animated), KeptReason::Animated);
}

#[test]
fn damaged_files_are_errors_and_are_never_resized() {
    for file in [jpeg((40, 60)), png((40, 60))] {
        for end in 0..file.len() {
            match to(30).apply(&file[..end]) {
                // The cut file is too short for its format to be recognised.
                Ok(Shrunk::Kept(KeptReason::Format)) => assert!(end < 8),
                Ok(other) => panic!("{end}: {other:?}"),
                Err(_) => {}
            }
        }
        let mut rng = Rng::new(11, 0, 0);
        for _ in 0..500 {
            let mut damaged = file.clone();
            let at = rng.below(file.len() as u64) as usize;
            damaged[at] ^= 1 << rng.below(8);
            if let Ok(Shrunk::Resized(smaller)) = to(30).apply(&damaged) {
                assert!(Image::decode(&smaller, ImageMode::Rgb8).is_ok());
            }
        }
    }
}

#[test]
fn huge_sizes_are_errors_before_memory_is_allocated() {
    let mut bomb = jpeg((40, 60));
    let at = bomb.windows(4).position(|bytes| bytes == [0, 40, 0, 60]).unwrap();
    bomb[at..at + 4].copy_from_slice(&[0xff; 4]);
    assert!(to(30).apply(&bomb).is_err());
    let mut nothing = jpeg((40, 60));
    nothing[at..at + 4].copy_from_slice(&[0, 0, 0, 60]);
    assert!(to(30).apply(&nothing).is_err());
    for (width, height) in [(1 << 30, 1 << 30), (1 << 20, 1 << 12)] {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, height);
        encoder.set_color(ColorType::Rgb);
        drop(encoder.write_header().unwrap());
        assert!(to(30).apply(&file).is_err());
    }
}
