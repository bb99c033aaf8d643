//! JPEG files with damaged image data: truncated, spliced, with gaps or with surplus bytes.

use crate::support::Every;
use shardstream::collate::{Columns, ImageColumn};
use shardstream::image::{Frame, Image, ImageError, ImageMode, Transforms};
use shardstream::{Result, Rng, Sample};
use std::path::Path;

const NAMES: [&str; 6] = ["444", "420", "gray", "cmyk", "restart", "progressive"];
const EOI: &[u8] = b"\xff\xd9";

fn file(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/codec/images");
    std::fs::read(path.join(format!("{name}.jpg"))).unwrap()
}

fn decode(file: &[u8]) -> Result<Image, ImageError> {
    Image::decode(file, ImageMode::Rgb8)
}

fn corner(frame: &mut Frame<'_>, _: &mut Rng) -> Result<()> {
    Ok(frame.crop(0, 0, 8)?)
}

/// Decodes the upper left corner of the image, with a crop in `Transforms`.
fn crop(file: &[u8]) -> Result<Image> {
    Transforms::new().then(corner).image(file, ImageMode::Rgb8, &mut Rng::new(0, 0, 0))
}

/// Decodes the upper left corner of the image, with a crop in an image column.
fn batch(file: &[u8], verify: bool) -> Result<Vec<u8>> {
    let column = ImageColumn::new("jpg", 8).then(corner).verify(verify);
    let batch =
        Columns::new().with("image", column).collate([Sample::new("k").with("jpg", file.to_vec())])?;
    Ok(batch["image"].as_slice::<u8>()?.to_vec())
}

/// The range of each scan's data in the file.
fn scans(file: &[u8]) -> Vec<(usize, usize)> {
    let mut scans = Vec::new();
    let mut at = 2;
    while file[at + 1] != 0xd9 {
        let is_scan = file[at + 1] == 0xda;
        at += 2 + usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]]));
        if is_scan {
            let start = at;
            while file[at] != 0xff || matches!(file[at + 1], 0 | 0xd0..=0xd7) {
                at += 1;
            }
            scans.push((start, at));
        }
    }
    scans
}

/// Cameras and editors write stray bytes and short Adobe segments between segments. libjpeg and Pillow ignore
/// these bytes and segments.
#[test]
fn stray_bytes_between_segments_are_ignored_as_in_libjpeg() {
    for name in NAMES {
        let file = file(name);
        let wanted = decode(&file).unwrap();
        let corner = crop(&file).unwrap();
        for ignored in [
            &b"stray bytes"[..],
            b"\0",
            b"\xff\0\xff\xff",
            b"\xff\xee\0\x09Adobe\0d",
            b"x\xff\xee\0\x09Adobe\0dy",
        ] {
            // The ignored bytes are inserted after the first segment, or before the header of the first scan.
            let first = 4 + usize::from(u16::from_be_bytes([file[4], file[5]]));
            let scan = scans(&file)[0].0;
            let header = (0..scan).rev().find(|at| file[*at..].starts_with(b"\xff\xda")).unwrap();
            for at in [first, header] {
                let changed = [&file[..at], ignored, &file[at..]].concat();
                assert_eq!(decode(&changed).unwrap(), wanted, "{name} {ignored:?} at {at}");
                assert_eq!(crop(&changed).unwrap(), corner, "{name} {ignored:?} at {at}");
                assert!(batch(&changed, false).is_ok());
            }
        }
    }
}

#[test]
fn data_that_ends_early_is_an_error() {
    for name in NAMES {
        let file = file(name);
        let scans = scans(&file);
        for end in scans[0].0..file.len() - 2 {
            let cut = [&file[..end], EOI].concat();
            let found = [decode(&cut).is_ok(), crop(&cut).is_ok(), batch(&cut, true).is_ok()];
            assert_eq!(found, [found[0]; 3], "{name} {end}");
            // A cut file decodes only if padding bits complete the last symbol of the last scan.
            assert!(!found[0] || scans.len() > 1 && end + 4 >= file.len(), "{name} {end}");
        }
    }
}

/// An image with shapes and grain, different for each seed.
fn photo(seed: u64) -> Vec<u8> {
    let (mut rng, shift) = (Rng::new(seed, 0, 0), seed as f64);
    let mut pixels = Vec::new();
    for (y, x) in (0..120).flat_map(|y| (0..160).map(move |x| (f64::from(y) + shift, f64::from(x)))) {
        let shape = (x / 20.0).sin() * (y / 15.0).cos() * 60.0
            + if x / 50.0 % 1.0 > y / 40.0 % 1.0 { 40.0 } else { 0.0 };
        for channel in 0..3 {
            let number = 100.0 + shape + f64::from(channel) * 15.0 + (rng.unit() - 0.5) * 26.0;
            pixels.push(number.clamp(0.0, 255.0) as u8);
        }
    }
    Image::new(ImageMode::Rgb8, (120, 160), pixels).unwrap().to_jpeg(85).unwrap()
}

/// Three damaged files whose markers are intact: a splice of two images, a gap, and a repetition.
fn damaged(file: &[u8], other: &[u8], rng: &mut Rng) -> [Vec<u8>; 3] {
    let (start, end) = scans(file)[0];
    let (other_start, other_end) = scans(other)[0];
    let mut place = |start: usize, end: usize| start + rng.below((end - start) as u64) as usize;
    let (mut from, mut to) = (place(start, end), place(start, end));
    if from >= to {
        (from, to) = (to, from + 1);
    }
    let tail = &other[place(other_start, other_end)..other_end];
    [
        [&file[..from], tail, EOI].concat(),
        [&file[..from], &file[to..]].concat(),
        [&file[..to], &file[from..]].concat(),
    ]
}

#[test]
fn splices_and_gaps_are_errors() {
    let mut rng = Rng::new(9, 0, 0);
    let (file, other) = (photo(1), photo(2));
    assert!(file.len() > 6_000);
    // Number of undetected splices, gaps and repetitions.
    let mut unseen = [0; 3];
    for _ in 0..300 {
        for (file, unseen) in damaged(&file, &other, &mut rng).iter().zip(&mut unseen) {
            let found = crop(file).is_ok();
            assert_eq!(found, decode(file).is_ok());
            *unseen += usize::from(found);
        }
    }
    // By chance, a few damaged files decode to the right number of blocks, so their damage is not detected.
    assert!(unseen.iter().every(|unseen| *unseen <= 6), "{unseen:?} of 300");
}

#[test]
fn surplus_image_data_is_an_error() {
    let mut rng = Rng::new(3, 0, 0);
    for name in NAMES {
        let file = file(name);
        let whole = decode(&file).unwrap();
        for (start, end) in scans(&file) {
            for length in 1..40 {
                let bytes: Vec<u8> = (0..length).map(|_| 1 + rng.below(254) as u8).collect();
                let more = [&file[..end], &bytes, &file[end..]].concat();
                let found = decode(&more);
                // Up to seven surplus bytes may still be in the decoder's buffer at the end of the scan, so
                // the decoder does not notice these bytes.
                assert!(length <= 7 || found.is_err(), "{name} {start} {length}");
                assert_eq!(found.is_ok(), crop(&more).is_ok(), "{name} {start} {length}");
                assert!(found.map_or(true, |found| found == whole), "{name} {start} {length}");
            }
        }
    }
}

/// Fill bytes, trailing bytes and surplus zeros, which some encoders write, are not errors.
#[test]
fn harmless_irregularities_are_read() {
    for name in NAMES {
        let file = file(name);
        let (whole, part, small) =
            (decode(&file).unwrap(), crop(&file).unwrap(), batch(&file, false).unwrap());
        let end = file.len() - 2;
        let scans = scans(&file);
        let one_pass = scans.len() == 1;
        let mut markers: Vec<usize> =
            (scans[0].0..end).filter(|at| file[*at] == 0xff && matches!(file[at + 1], 0xd0..=0xd7)).collect();
        markers.extend(scans.iter().map(|(_, end)| *end));
        let filled = markers.iter().rev().fold(file.clone(), |mut file, at| {
            file.splice(at..at, [0xff; 3]);
            file
        });
        let mut kinds = vec![
            ("fill bytes in front of markers", filled),
            ("bytes behind the end", [&file[..], b"a video", &[0xff, 0xd8, 0xff], &file[..]].concat()),
        ];
        // libjpeg doesn't report where in a file with several scans the surplus zeros are, so with
        // `turbojpeg`, the zeros of such a file are an error.
        if one_pass || cfg!(not(feature = "turbojpeg")) {
            for zeros in [1, 7, 8, 100] {
                kinds.push(("zeros in front of the end", [&file[..end], &vec![0; zeros], EOI].concat()));
            }
        }
        for (kind, file) in kinds {
            assert!(decode(&file).unwrap() == whole, "{name}: {kind}");
            assert!(crop(&file).unwrap() == part, "{name}: {kind}");
            for verify in [false, true] {
                assert_eq!(batch(&file, verify).unwrap(), small, "{name}: {kind} {verify}");
            }
        }
    }
}

/// If the data ends within the cropped part, the result is an error, with and without verification of the
/// data after that part.
#[test]
fn data_that_ends_within_the_crop_is_an_error_without_verification() {
    for name in NAMES {
        let file = file(name);
        let wanted = batch(&file, false).unwrap();
        // In a file with several scans, a missing scan is accepted without verification.
        let [(start, end)] = scans(&file)[..] else { continue };
        let (mut refused, mut read) = (0, 0);
        for cut in start..end {
            match batch(&[&file[..cut], EOI].concat(), false) {
                Ok(found) => {
                    assert!(found == wanted, "{name} {cut}");
                    read += 1;
                }
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 0, "{name} {read}");
    }
}

#[test]
fn data_below_the_crop_is_unverified_on_request() {
    let file = file("420");
    let (start, end) = scans(&file)[0];
    let cut = [&file[..start + (end - start) * 3 / 4], EOI].concat();
    assert!(batch(&cut, true).is_err());
    assert_eq!(batch(&cut, false).unwrap(), batch(&file, true).unwrap());
}
