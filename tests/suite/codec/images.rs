//! Image fields, compared with Pillow.

use super::*;
use shardstream::image::{Image, ImageError, ImageMode, Size};

fn image_files() -> Vec<PathBuf> {
    let folders: &[&str] = if cfg!(feature = "image-formats") { &["images", "formats"] } else { &["images"] };
    let files = folders.iter().flat_map(|folder| files(folder, ""));
    files.filter(|path| path.extension().unwrap() != "npy").collect()
}

/// For each pixel the values L, RGB and RGBA, as Pillow decodes them.
fn pillow(path: &Path) -> Array {
    array(Path::new(&format!("{}.npy", path.display())))
}

#[test]
fn decoded_pixels_match_pillow() {
    let modes = [(ImageMode::L8, 0..1), (ImageMode::Rgb8, 1..4), (ImageMode::Rgba8, 4..8)];
    let files = image_files();
    assert_eq!(files.len(), if cfg!(feature = "image-formats") { 56 } else { 29 });
    for path in files {
        let lossy = path.extension().unwrap() == "jpg" || path.file_stem().unwrap() == "lossy";
        let (most, mean) = if lossy { (6, 0.5) } else { (0, 0.0) };
        let wanted = pillow(&path);
        for (mode, channels) in &modes {
            let image = Image::decode(&read(&path), *mode)
                .unwrap_or_else(|error| panic!("{}: {error:?}", path.display()));
            assert_eq!([image.height() as usize, image.width() as usize, 8], wanted.shape());
            let wanted = wanted.data().chunks(8).flat_map(|pixel| &pixel[channels.clone()]);
            let off: Vec<u8> =
                image.as_u8().unwrap().iter().zip(wanted).map(|(a, b)| a.abs_diff(*b)).collect();
            let average = off.iter().copied().map(f64::from).sum::<f64>() / off.len() as f64;
            let worst = *off.iter().max().unwrap();
            assert!(
                worst <= most && average <= mean,
                "{} {mode}: off by up to {worst}, {average} on average",
                path.display()
            );
        }
    }
}

#[test]
fn float_pixels_are_fractions_of_255() {
    let file = read(&data("images/rgba.png"));
    for (bytes, floats) in [
        (ImageMode::L8, ImageMode::LF32),
        (ImageMode::Rgb8, ImageMode::RgbF32),
        (ImageMode::Rgba8, ImageMode::RgbaF32),
    ] {
        let bytes = Image::decode(&file, bytes).unwrap();
        let floats = Image::decode(&file, floats).unwrap();
        let wanted: Vec<f32> = bytes.as_u8().unwrap().iter().map(|byte| f32::from(*byte) / 255.0).collect();
        assert_eq!(floats.as_f32().unwrap(), wanted);
    }
}

#[test]
fn a_truncated_image_is_an_error() {
    for path in image_files() {
        // A text PNM that is cut within a number still ends with a number, so the cut is not an error.
        if path.file_stem().unwrap() == "plain" {
            continue;
        }
        let file = read(&path);
        let whole = Image::decode(&file, ImageMode::Rgba8).unwrap();
        for end in (0..file.len()).step_by(if file.len() > 1000 { 7 } else { 1 }).chain([file.len() - 1]) {
            if let Ok(image) = Image::decode(&file[..end], ImageMode::Rgba8) {
                // If a cut file decodes, the cut has removed only bytes after the pixels.
                assert!(image == whole, "{} cut to {end} of {}", path.display(), file.len());
                assert_ne!(path.extension().unwrap(), "jpg");
            }
        }
    }
}

#[test]
fn damage_never_panics_and_checksums_reveal_it() {
    for path in image_files() {
        let file = read(&path);
        let whole = Image::decode(&file, ImageMode::Rgba8).unwrap();
        for at in (0..file.len()).step_by(if file.len() > 1000 { 11 } else { 1 }) {
            let mut damaged = file.to_vec();
            damaged[at] ^= 0x41;
            if let Ok(image) = Image::decode_within(&damaged, ImageMode::Rgba8, 1 << 20) {
                let checked = path.extension().unwrap() == "png";
                assert!(!checked || image == whole, "{} damaged at {at}", path.display());
            }
        }
    }
}

#[test]
fn decompression_bombs_are_refused_before_allocation() {
    let png = read(&data("images/rgb.png"));
    assert!(Image::decode_within(&png, ImageMode::Rgb8, 7 * 5 * 3).is_ok());
    for (mode, limit) in [(ImageMode::Rgb8, 7 * 5 * 3 - 1), (ImageMode::RgbF32, 7 * 5 * 12 - 1)] {
        let error = Image::decode_within(&png, mode, limit).unwrap_err();
        assert!(matches!(error, ImageError::TooLarge { size: Size { height: 5, width: 7 }, .. }), "{error}");
    }
    let jpeg = read(&data("images/444.jpg"));
    assert!(matches!(
        Image::decode_within(&jpeg, ImageMode::L8, 53 * 37),
        Err(ImageError::TooLarge { size: Size { height: 37, width: 53 }, .. })
    ));
    let error = Image::decode(b"P5 4294967295 4294967295 255 ", ImageMode::L8).unwrap_err();
    assert!(matches!(error, ImageError::TooLarge { .. }), "{error:?}");
    let error = Decoder::new().images(ImageMode::Rgb8).max_size(10).decode_field("png", &png).unwrap_err();
    assert!(error.source().unwrap().to_string().contains("limit"), "{error:?}");
}

#[test]
fn an_image_without_pixels_is_an_error() {
    let jpeg = read(&data("images/444.jpg"));
    let size = jpeg.windows(2).position(|marker| marker == b"\xff\xc0").unwrap() + 5;
    let resized = |from: usize| {
        let mut jpeg = jpeg.to_vec();
        jpeg[size + from..][..2].fill(0);
        jpeg
    };
    let mut png = read(&data("images/gray.png")).to_vec();
    png[16..20].fill(0);
    let files =
        [b"P1 0 1 ", &b"P2 1 0 255 "[..], b"P3 0 0 255 ", b"P4 0 1\n", b"P5 0 1 255\n", b"P6 1 0 255\n"];
    let pam = b"P7\nWIDTH 0\nHEIGHT 1\nDEPTH 3\nMAXVAL 255\nTUPLTYPE RGB\nENDHDR\n".to_vec();
    let files = files.map(<[u8]>::to_vec).into_iter().chain([resized(0), resized(2), png, pam]);
    for file in files {
        let name = file[..file.len().min(20)].escape_ascii().to_string();
        for mode in [ImageMode::L8, ImageMode::Rgba8] {
            let error = Image::decode(&file, mode).expect_err(&name);
            assert!(matches!(error, ImageError::Decode(_)), "{name}: {error:?}");
        }
    }
}

#[test]
fn the_extension_marks_an_image_and_its_content_the_format() {
    let decoder = Decoder::new().images(ImageMode::Rgb8);
    let png = read(&data("images/rgb.png"));
    for field in ["png", "jpg", "a.jpeg", "jpe", "jfif", "webp", "ppm", "pgm", "pbm", "pnm"] {
        assert!(matches!(decoder.decode_field(field, &png).unwrap(), Some(Value::Image(_))), "{field}");
    }
    for field in ["jp2", "h5", "mpg"] {
        assert!(decoder.decode_field(field, &png).unwrap().is_none(), "{field}");
    }
    for field in ["tiff", "tif", "gif", "bmp", "qoi"] {
        let is_image = decoder.decode_field(field, &png).unwrap().is_some();
        assert_eq!(is_image, cfg!(feature = "image-formats"), "{field}");
    }
    for other in [&b""[..], b"\0\0\0\x0cjP  \r\n\x87\n", b"cat"] {
        let error = Image::decode(other, ImageMode::Rgb8).unwrap_err();
        assert!(matches!(error, ImageError::Format), "{error:?}");
    }
    for other in [&b"GIF89a\x01\0\x01\0\0\0\0;"[..], b"BM", b"II*\0", b"qoif"] {
        let error = Image::decode(other, ImageMode::Rgb8).unwrap_err();
        assert_eq!(matches!(error, ImageError::Format), cfg!(not(feature = "image-formats")), "{error:?}");
        assert!(Image::size_in(other).is_err() || other.starts_with(b"GIF"));
    }
}

#[test]
fn encoded_values_decode_to_themselves() {
    let encoder = Encoder::new();
    let decoder = |mode| Decoder::new().images(mode);
    let pixels =
        |mode: ImageMode| (0..15 * mode.channels()).map(|i| (i * 17 % 256) as u8).collect::<Vec<_>>();
    let table: [(&str, &[ImageMode]); 8] = [
        ("png", &[ImageMode::L8, ImageMode::Rgb8, ImageMode::Rgba8]),
        ("webp", &[ImageMode::L8, ImageMode::Rgb8, ImageMode::Rgba8]),
        ("pgm", &[ImageMode::L8]),
        ("ppm", &[ImageMode::Rgb8]),
        ("pnm", &[ImageMode::L8, ImageMode::Rgb8]),
        ("jpg", &[ImageMode::L8, ImageMode::Rgb8]),
        ("img", &[ImageMode::L8, ImageMode::Rgb8]),
        ("a.image", &[ImageMode::L8, ImageMode::Rgb8]),
    ];
    for (field, modes) in table {
        for mode in [ImageMode::L8, ImageMode::Rgb8, ImageMode::Rgba8] {
            let image = Image::new(mode, (3, 5), pixels(mode)).unwrap();
            let encoded = encoder.encode(field, &image.clone().into());
            assert_eq!(encoded.is_ok(), modes.contains(&mode), "{field} {mode}");
            let Ok(bytes) = encoded else { continue };
            if ["jpg", "img", "a.image"].contains(&field) {
                assert_eq!(bytes, image.to_jpeg(100).unwrap(), "{field} {mode}");
                continue;
            }
            let back = match decoder(mode).decode_field(field, &bytes).unwrap() {
                Some(Value::Image(back)) => back,
                other => panic!("{other:?}"),
            };
            assert!(back == image, "{field} {mode}");
        }
    }
}

#[test]
fn only_floats_from_0_to_1_are_encoded() {
    let image = |number| Image::new(ImageMode::LF32, 1, vec![number]).unwrap();
    let png = image(0.5).to_png().unwrap();
    assert_eq!(Image::decode(&png, ImageMode::L8).unwrap().as_u8().unwrap(), [128]);
    for number in [-0.01, 1.01, f32::NAN] {
        assert!(matches!(image(number).to_png(), Err(ImageError::Range(_))), "{number}");
    }
}
