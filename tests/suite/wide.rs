//! Images of 16 bits keep their values, as depth, medical and satellite images require.

use crate::support::Every;
use half::bf16;
use shardstream::codec::DType;
use shardstream::collate::TensorBatch;
use shardstream::image::{
    ColorJitter, Filter, Frame, Image, ImageError, ImageMode, Layout, Pixels, RandomHorizontalFlip, Resize,
    Transforms,
};
use shardstream::prelude::*;
use shardstream::{Error, Result, Rng};

/// The values of the image `DEPTH`, as Pillow and libpng read them.
const VALUES: [u16; 8] = [1, 4096, 15000, 30000, 0, 255, 256, 65535];

/// A depth image of two rows, written by Pillow.
const DEPTH: &[u8] = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x04\x00\x00\x00\x02\x10\x00\x00\x00\
    \x00\nS\xfe\xfc\x00\x00\x00\x1aIDATx\x9ccd`\x14\xf8\xaf5\xc3z\x06\x03\x03\x03\xc3\x7fF\x86\xff\xff\
    \x01(\xcd\x05\xa5\xf7\xce\x20\xa2\x00\x00\x00\x00IEND\xaeB`\x82";

fn fractions() -> Vec<f32> {
    VALUES.map(|number| f32::from(number) / 65535.0).to_vec()
}

/// The values as a grey PGM and as a colour PPM, each of 16 bits.
fn pnm() -> [Vec<u8>; 2] {
    let numbers = VALUES.map(u16::to_be_bytes).concat();
    let colours = VALUES.iter().flat_map(|number| number.to_be_bytes().repeat(3)).collect();
    [[b"P5 4 2 65535\n".to_vec(), numbers].concat(), [b"P6 4 2 65535\n".to_vec(), colours].concat()]
}

fn collate(column: ImageColumn, file: &[u8]) -> Result<TensorBatch> {
    Columns::new().with("x", column).collate([Sample::new("k").with("png", file.to_vec())])
}

#[test]
fn values_are_exact_or_divided_by_65535() {
    let [grey, colour] = pnm();
    for file in [DEPTH, &grey, &colour] {
        let decode = |mode| Image::decode(file, mode).unwrap();
        assert_eq!(decode(ImageMode::L16).as_u16(), Some(&VALUES[..]));
        assert_eq!(decode(ImageMode::LF32).as_f32(), Some(&fractions()[..]));
        let thrice: Vec<u16> = VALUES.iter().flat_map(|number| [*number; 3]).collect();
        assert_eq!(decode(ImageMode::Rgb16).as_u16(), Some(&thrice[..]));
        let thrice: Vec<f32> = fractions().iter().flat_map(|number| [*number; 3]).collect();
        assert_eq!(decode(ImageMode::RgbF32).as_f32(), Some(&thrice[..]));
        assert_eq!(decode(ImageMode::L8).as_u8(), Some(&[0, 16, 58, 117, 0, 1, 1, 255][..]));
    }
    // Images of 8 bits are scaled, so that white is 65535.
    let png = Image::new(ImageMode::L8, (1, 3), vec![0, 1, 255]).unwrap().to_png().unwrap();
    assert_eq!(Image::decode(&png, ImageMode::L16).unwrap().as_u16(), Some(&[0, 257, 65535][..]));
}

#[test]
fn sixteen_bits_are_written_as_png() {
    let image = Image::new(ImageMode::L16, (2, 4), Pixels::U16(VALUES.to_vec())).unwrap();
    assert_eq!(image.size(), 16);
    assert_eq!(Image::decode(&image.to_png().unwrap(), ImageMode::L16).unwrap(), image);
    for refused in [image.to_jpeg(90), image.to_webp(), image.to_pgm()] {
        assert!(matches!(refused, Err(ImageError::Mode { mode: ImageMode::L16, .. })));
    }
    assert!(Image::new(ImageMode::L16, (2, 4), vec![0u8; 8]).is_err());
}

#[test]
fn columns_keep_16_bits() {
    let column = |mode, dtype| ImageColumn::new("png", (2, 4)).mode(mode).dtype(dtype);
    let batch = collate(column(ImageMode::L16, DType::U16), DEPTH).unwrap();
    assert_eq!(batch["x"].to_string(), "uint16[1, 2, 4, 1]");
    assert_eq!(batch["x"].as_slice::<u16>().unwrap(), VALUES);
    for mode in [ImageMode::L16, ImageMode::L8] {
        let batch = collate(column(mode, DType::F32), DEPTH).unwrap();
        assert_eq!(batch["x"].as_slice::<f32>().unwrap(), fractions(), "{mode}");
        let batch = collate(column(mode, DType::F32).normalize([0.5], [0.25]), DEPTH).unwrap();
        let wanted: Vec<f32> = fractions().iter().map(|number| (number - 0.5) / 0.25).collect();
        assert_eq!(batch["x"].as_slice::<f32>().unwrap(), wanted, "{mode}");
        let batch = collate(column(mode, DType::BF16), DEPTH).unwrap();
        let wanted: Vec<bf16> = fractions().iter().map(|number| bf16::from_f32(*number)).collect();
        assert_eq!(batch["x"].as_slice::<bf16>().unwrap(), wanted, "{mode}");
    }
    // Channels first, a flip, and colours.
    let column =
        column(ImageMode::Rgb8, DType::F32).layout(Layout::Chw).then(RandomHorizontalFlip::new(1.0).unwrap());
    let flipped: Vec<f32> = fractions().chunks(4).flat_map(|row| row.iter().rev().copied()).collect();
    for file in [DEPTH, &pnm()[1]] {
        let batch = collate(column.clone(), file).unwrap();
        assert_eq!(batch["x"].as_slice::<f32>().unwrap(), flipped.repeat(3));
    }
}

#[test]
fn crops_and_resizes_keep_16_bits() {
    let numbers: Vec<u16> = (0..40 * 30).map(|at| (at * 54) as u16).collect();
    let png = Image::new(ImageMode::L16, (30, 40), Pixels::U16(numbers)).unwrap().to_png().unwrap();
    let image = |transforms: Transforms| {
        transforms.image(&png, ImageMode::L16, &mut Rng::new(0, 0, 0)).unwrap().as_u16().unwrap().to_vec()
    };
    let cropped = |frame: &mut Frame<'_>, _: &mut Rng| -> Result<()> { Ok(frame.crop(3, 5, (2, 3))?) };
    let wanted = [125, 126, 127, 165, 166, 167].map(|at: u16| at * 54);
    assert_eq!(image(Transforms::new().then(cropped)), wanted);
    // A ramp at half the size is still a ramp. Its steps are smaller than the steps between 8-bit values.
    let halved = image(Transforms::new().then(Resize::exact((15, 20)).unwrap().filter(Filter::Bilinear)));
    for (at, pair) in halved.chunks(20).map(|row| (row[9], row[10])).enumerate().skip(1).take(13) {
        let middle = (2 * at * 40 + 18) as f64 * 54.0 + 20.5 * 54.0;
        assert!((f64::from(pair.0) - middle).abs() < 3.0, "row {at}: {pair:?} {middle}");
        assert!((100..=116).contains(&(pair.1 - pair.0)), "row {at}: {pair:?}");
    }
    // A transform for 8 bits is refused if the mode has 16 bits. If the mode has 8 bits, the image is scaled
    // to 8 bits.
    let jitter = || Transforms::new().then(ColorJitter::new(0.5, 0.0, 0.0, 0.0).unwrap());
    let error = jitter().image(&png, ImageMode::L16, &mut Rng::new(0, 0, 0)).unwrap_err();
    assert!(format!("{error:#}").contains("choose a mode of 8 bits"), "{error:#}");
    let doubled = |frame: &mut Frame<'_>, _: &mut Rng| -> Result<()> {
        frame.pixels_u16()?.iter_mut().for_each(|number| *number /= 2);
        Ok(())
    };
    assert_eq!(image(Transforms::new().then(cropped).then(doubled)), wanted.map(|number| number / 2));
    assert!(Transforms::new().then(doubled).image(&png, ImageMode::L8, &mut Rng::new(0, 0, 0)).is_err());
    let narrow = |frame: &mut Frame<'_>, _: &mut Rng| -> Result<()> { Ok(frame.pixels().map(drop)?) };
    let column = ImageColumn::new("png", (30, 40)).mode(ImageMode::L8).dtype(DType::F32).then(narrow);
    let batch = collate(column, &png).unwrap();
    let whole = |number: &f32| (number * 255.0 - (number * 255.0).round()).abs() < 1e-4;
    assert!(batch["x"].as_slice::<f32>().unwrap().iter().every(whole));
}

#[test]
fn a_jpeg_is_scaled_to_16_bits() {
    let pixels: Vec<u8> = (0..64 * 48).map(|at| (at % 64 * 4) as u8).collect();
    let jpeg = Image::new(ImageMode::L8, (48, 64), pixels).unwrap().to_jpeg(90).unwrap();
    let part = |frame: &mut Frame<'_>, _: &mut Rng| -> Result<()> { Ok(frame.crop(9, 7, (20, 30))?) };
    let image = |mode| Transforms::new().then(part).image(&jpeg, mode, &mut Rng::new(0, 0, 0)).unwrap();
    let (narrow, wide) = (image(ImageMode::L8), image(ImageMode::L16));
    let scaled: Vec<u16> = narrow.as_u8().unwrap().iter().map(|number| u16::from(*number) * 257).collect();
    assert_eq!(wide.as_u16().unwrap(), scaled);
}

#[test]
fn types_that_do_not_fit_the_mode_are_refused() {
    for (mode, dtype, wanted) in [
        (ImageMode::L16, DType::U8, "take uint16, float32"),
        (ImageMode::L8, DType::U16, "set `mode` to l16 or rgb16"),
        (ImageMode::RgbF32, DType::F32, "take l8, rgb8, l16 or rgb16"),
    ] {
        let error: Error = collate(ImageColumn::new("png", 1).mode(mode).dtype(dtype), DEPTH).unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
    }
    let normal = ImageColumn::new("png", 1).mode(ImageMode::L16).dtype(DType::U16).normalize([0.5], [0.5]);
    assert!(collate(normal, DEPTH).unwrap_err().to_string().contains("of uint16"));
}

/// If two source pixels are equally near, this crate takes the same pixel as Pillow. In an earlier version,
/// an image and its mask took different pixels.
#[test]
fn nearest_resizes_match_pillow_for_all_sizes() {
    let resized = |from: u32, to: u32| {
        let file = Image::new(ImageMode::L8, (1, from), (0..from as u8).collect::<Vec<u8>>()).unwrap();
        let resize = Transforms::new().then(Resize::exact((1, to)).unwrap().filter(Filter::Nearest));
        let image = resize.image(&file.to_pgm().unwrap(), ImageMode::L8, &mut Rng::new(0, 0, 0)).unwrap();
        image.as_u8().unwrap().to_vec()
    };
    assert_eq!(resized(2, 29), [[0; 14].as_slice(), &[1; 15]].concat());
    assert_eq!(resized(4, 14), [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3]);
    // The FNV-1a hash of Pillow 12.0's results for all sizes up to 64.
    let sizes = (1..=64).flat_map(|from| (1..=64).map(move |to| (from, to)));
    let hash =
        sizes.flat_map(|(from, to)| resized(from, to)).fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    assert_eq!(hash, 0x187e_d9ee_9702_3fc6);
}
