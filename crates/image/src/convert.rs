//! Conversion of the channels of a file to the channels of a mode, as in Pillow.

use super::{ImageMode, Pixels};
use crate::dtype::DType;

/// The pixels of a file, with the file's own depth.
pub(super) enum RawPixels {
    U8(Vec<u8>),
    U16(Vec<u16>),
}

impl RawPixels {
    /// Reads numbers of two bytes.
    pub(super) fn wide(bytes: &[u8], number: fn([u8; 2]) -> u16) -> Self {
        RawPixels::U16(bytes.as_chunks::<2>().0.iter().map(|bytes| number(*bytes)).collect())
    }
}

/// Converts pixels with 1 (grey), 2 (grey, opacity), 3 (colour) or 4 (colour, opacity) channels.
pub(super) fn convert(channels: usize, pixels: RawPixels, mode: ImageMode) -> Pixels {
    let wanted = (channels, mode.channels());
    match pixels {
        RawPixels::U8(pixels) => {
            let pixels = convert_channels(wanted, pixels, luma, u8::MAX);
            match mode.number() {
                DType::F32 => {
                    Pixels::F32(pixels.into_iter().map(|number| f32::from(number) / 255.0).collect())
                }
                DType::U16 => Pixels::U16(pixels.into_iter().map(|number| u16::from(number) * 257).collect()),
                _ => Pixels::U8(pixels),
            }
        }
        RawPixels::U16(pixels) if matches!(mode.number(), DType::F32 | DType::U16) => {
            let pixels = convert_channels(wanted, pixels, wide_luma, u16::MAX);
            match mode.number() {
                DType::F32 => {
                    Pixels::F32(pixels.into_iter().map(|number| f32::from(number) / 65535.0).collect())
                }
                _ => Pixels::U16(pixels),
            }
        }
        RawPixels::U16(pixels) => {
            let narrow: Vec<u8> = pixels.into_iter().map(to_8_bits).collect();
            convert(channels, RawPixels::U8(narrow), mode)
        }
    }
}

fn convert_channels<T: Copy + Default>(
    channels: (usize, usize),
    pixels: Vec<T>,
    luma: fn([T; 3]) -> T,
    opaque: T,
) -> Vec<T> {
    match channels {
        (2, 1) => map_pixels(&pixels, |[l, _]| [l]),
        (3, 1) => map_pixels(&pixels, |rgb| [luma(rgb)]),
        (4, 1) => map_pixels(&pixels, |[r, g, b, _]| [luma([r, g, b])]),
        (1, 3) => map_pixels(&pixels, |[l]| [l; 3]),
        (2, 3) => map_pixels(&pixels, |[l, _]| [l; 3]),
        (4, 3) => map_pixels(&pixels, |[r, g, b, _]| [r, g, b]),
        (1, 4) => map_pixels(&pixels, |[l]| [l, l, l, opaque]),
        (2, 4) => map_pixels(&pixels, |[l, a]| [l, l, l, a]),
        (3, 4) => map_pixels(&pixels, |[r, g, b]| [r, g, b, opaque]),
        _ => pixels,
    }
}

/// Converts the first `count` pixels in place from `from` to `to` channels: RGB to grey, or grey to RGB.
pub(super) fn convert_in_place(pixels: &mut [u8], count: usize, from: usize, to: usize) {
    match (from, to) {
        (3, 1) => {
            for at in 0..count {
                pixels[at] = luma([pixels[3 * at], pixels[3 * at + 1], pixels[3 * at + 2]]);
            }
        }
        (1, 3) => {
            for at in (0..count).rev() {
                let grey = pixels[at];
                pixels[3 * at..][..3].fill(grey);
            }
        }
        _ => {}
    }
}

/// Converts CMYK pixels to RGB in place. The RGB pixels are packed at the beginning of the memory. The inks
/// are inverted, as Adobe stores them: 255 is no ink.
#[cfg(feature = "turbojpeg")]
pub(super) fn cmyk_to_rgb(pixels: &mut [u8]) {
    let count = pixels.len() / 4;
    for at in 0..count {
        let [c, m, y, k] = std::array::from_fn(|ink| pixels[4 * at + ink]);
        for (to, ink) in pixels[3 * at..][..3].iter_mut().zip([c, m, y]) {
            // Rounded as in Pillow.
            let product = u32::from(255 - ink) * u32::from(k) + 128;
            *to = k - (((product >> 8) + product) >> 8) as u8;
        }
    }
}

/// Scales a 16-bit value to 8 bits, rounded to the nearest.
pub(super) fn to_8_bits(wide: u16) -> u8 {
    ((u32::from(wide) + 128) / 257) as u8
}

/// Scales `count` 16-bit values, in the memory's byte order, to 8 bits in place.
pub(super) fn narrow_in_place(numbers: &mut [u8], count: usize) {
    for at in 0..count {
        numbers[at] = to_8_bits(u16::from_ne_bytes([numbers[2 * at], numbers[2 * at + 1]]));
    }
}

/// Scales `count` 8-bit values to 16 bits in place, in the memory's byte order.
pub(super) fn widen_in_place(numbers: &mut [u8], count: usize) {
    for at in (0..count).rev() {
        let wide = u16::from(numbers[at]) * 257;
        numbers[2 * at..][..2].copy_from_slice(&wide.to_ne_bytes());
    }
}

/// The luma of a pixel by the weights of ITU-R 601, in Pillow's fixed-point arithmetic.
pub(super) fn luma([r, g, b]: [u8; 3]) -> u8 {
    ((u32::from(r) * 19595 + u32::from(g) * 38470 + u32::from(b) * 7471 + 0x8000) >> 16) as u8
}

/// As [`luma`], for 16-bit values.
fn wide_luma([r, g, b]: [u16; 3]) -> u16 {
    ((u64::from(r) * 19595 + u64::from(g) * 38470 + u64::from(b) * 7471 + 0x8000) >> 16) as u16
}

fn map_pixels<T: Copy + Default, const FROM: usize, const TO: usize>(
    pixels: &[T],
    f: impl Fn([T; FROM]) -> [T; TO],
) -> Vec<T> {
    let (pixels, _) = pixels.as_chunks::<FROM>();
    let mut out = vec![T::default(); pixels.len() * TO];
    for (to, from) in out.as_chunks_mut::<TO>().0.iter_mut().zip(pixels) {
        *to = f(*from);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(channels: usize, pixel: &[u8], mode: ImageMode) -> Vec<u8> {
        match convert(channels, RawPixels::U8(pixel.to_vec()), mode) {
            Pixels::U8(pixels) => pixels,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn channels_convert_as_in_pillow() {
        use ImageMode::{L8, Rgb8, Rgba8};
        let sources: [&[u8]; 4] = [&[9], &[9, 8], &[10, 20, 30], &[10, 20, 30, 40]];
        let table: [(ImageMode, [&[u8]; 4]); 3] = [
            (L8, [&[9], &[9], &[18], &[18]]),
            (Rgb8, [&[9, 9, 9], &[9, 9, 9], &[10, 20, 30], &[10, 20, 30]]),
            (Rgba8, [&[9, 9, 9, 255], &[9, 9, 9, 8], &[10, 20, 30, 255], &[10, 20, 30, 40]]),
        ];
        for (mode, wanted) in table {
            for (source, wanted) in sources.into_iter().zip(wanted) {
                assert_eq!(converted(source.len(), source, mode), wanted, "{source:?} to {mode}");
            }
        }
        assert_eq!(luma([255; 3]), 255);
    }

    #[test]
    fn channels_convert_in_place() {
        let mut pixels = [1, 2, 3, 0, 0, 0, 0, 0, 0];
        convert_in_place(&mut pixels, 3, 1, 3);
        assert_eq!(pixels, [1, 1, 1, 2, 2, 2, 3, 3, 3]);
        convert_in_place(&mut pixels, 3, 3, 1);
        assert_eq!(pixels[..3], [1, 2, 3]);
    }

    #[test]
    fn floats_are_exact_fractions() {
        let wanted: Vec<f32> = [0., 1., 127., 255.].map(|number: f32| number / 255.).to_vec();
        assert!(convert(1, RawPixels::U8(vec![0, 1, 127, 255]), ImageMode::LF32) == Pixels::F32(wanted));
    }

    #[test]
    fn sixteen_bits_are_kept_or_scaled() {
        let wide = || RawPixels::U16(vec![0, 128, 129, 255, 256, 257, 32768, 65535]);
        assert!(convert(1, wide(), ImageMode::L8) == Pixels::U8(vec![0, 0, 1, 1, 1, 1, 128, 255]));
        let exact = vec![0, 128, 129, 255, 256, 257, 32768, 65535];
        assert!(convert(1, wide(), ImageMode::L16) == Pixels::U16(exact.clone()));
        let fractions = exact.iter().map(|number| f32::from(*number) / 65535.0).collect();
        assert!(convert(1, wide(), ImageMode::LF32) == Pixels::F32(fractions));
        let pixel = RawPixels::U16(vec![1000, 2000, 3000]);
        assert!(convert(3, pixel, ImageMode::L16) == Pixels::U16(vec![1815]));
        let pixel = RawPixels::U16(vec![7, 9]);
        assert!(
            convert(2, pixel, ImageMode::RgbaF32)
                == Pixels::F32([7., 7., 7., 9.].map(|n: f32| n / 65535.).into())
        );
        for number in 0..=255u8 {
            let wide = u16::from(number) * 257;
            assert_eq!(to_8_bits(wide), number);
            assert!(convert(1, RawPixels::U8(vec![number]), ImageMode::L16) == Pixels::U16(vec![wide]));
            let mut numbers = [number, 9, 0, 0];
            widen_in_place(&mut numbers, 2);
            assert_eq!(numbers[..2], wide.to_ne_bytes());
            narrow_in_place(&mut numbers, 2);
            assert_eq!(numbers[..2], [number, 9]);
        }
    }
}
