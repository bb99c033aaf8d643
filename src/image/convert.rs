//! Conversion of the channels of a file to those of a mode, as in Pillow.

use super::{ImageMode, Pixels};

/// Converts pixels of 8 bits with 1 (grey), 2 (grey, opacity), 3 (colour) or 4 (colour, opacity) channels.
pub(super) fn convert(channels: usize, pixels: Vec<u8>, mode: ImageMode) -> Pixels {
    let pixels = match (channels, mode.channels()) {
        (2, 1) => map_pixels(&pixels, |[l, _]| [l]),
        (3, 1) => map_pixels(&pixels, |rgb| [luma(rgb)]),
        (4, 1) => map_pixels(&pixels, |[r, g, b, _]| [luma([r, g, b])]),
        (1, 3) => map_pixels(&pixels, |[l]| [l; 3]),
        (2, 3) => map_pixels(&pixels, |[l, _]| [l; 3]),
        (4, 3) => map_pixels(&pixels, |[r, g, b, _]| [r, g, b]),
        (1, 4) => map_pixels(&pixels, |[l]| [l, l, l, 255]),
        (2, 4) => map_pixels(&pixels, |[l, a]| [l, l, l, a]),
        (3, 4) => map_pixels(&pixels, |[r, g, b]| [r, g, b, 255]),
        _ => pixels,
    };
    if mode.is_float() {
        Pixels::F32(pixels.into_iter().map(|number| f32::from(number) / 255.0).collect())
    } else {
        Pixels::U8(pixels)
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

/// Converts CMYK pixels to RGB in place, packed at the beginning of the same memory. The inks are inverted,
/// as Adobe stores them: 255 is no ink.
#[cfg(feature = "turbojpeg")]
pub(super) fn cmyk_to_rgb(pixels: &mut [u8]) {
    let count = pixels.len() / 4;
    for at in 0..count {
        let [c, m, y, k] = std::array::from_fn(|ink| pixels[4 * at + ink]);
        for (to, ink) in pixels[3 * at..][..3].iter_mut().zip([c, m, y]) {
            // As Pillow rounds it.
            let product = u32::from(255 - ink) * u32::from(k) + 128;
            *to = k - (((product >> 8) + product) >> 8) as u8;
        }
    }
}

/// Scales 16-bit values to 8 bits, rounded to the nearest.
pub(super) fn to_8_bits(wide: &[u8], number: fn([u8; 2]) -> u16) -> Vec<u8> {
    let (wide, _) = wide.as_chunks::<2>();
    wide.iter().map(|bytes| ((u32::from(number(*bytes)) + 128) / 257) as u8).collect()
}

/// The luma of a pixel by the weights of ITU-R 601, in Pillow's fixed-point arithmetic.
pub(super) fn luma([r, g, b]: [u8; 3]) -> u8 {
    ((u32::from(r) * 19595 + u32::from(g) * 38470 + u32::from(b) * 7471 + 0x8000) >> 16) as u8
}

fn map_pixels<const FROM: usize, const TO: usize>(
    pixels: &[u8],
    f: impl Fn([u8; FROM]) -> [u8; TO],
) -> Vec<u8> {
    let (pixels, _) = pixels.as_chunks::<FROM>();
    let mut out = vec![0; pixels.len() * TO];
    for (to, from) in out.as_chunks_mut::<TO>().0.iter_mut().zip(pixels) {
        *to = f(*from);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(channels: usize, pixel: &[u8], mode: ImageMode) -> Vec<u8> {
        match convert(channels, pixel.to_vec(), mode) {
            Pixels::U8(pixels) => pixels,
            Pixels::F32(_) => panic!("not asked for"),
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
        assert!(convert(1, vec![0, 1, 127, 255], ImageMode::LF32) == Pixels::F32(wanted));
    }

    #[test]
    fn sixteen_bits_are_scaled() {
        let wide: Vec<u8> = [0, 128, 129, 255, 256, 257, 32768, 65535u16].map(u16::to_be_bytes).concat();
        assert_eq!(to_8_bits(&wide, u16::from_be_bytes), [0, 0, 1, 1, 1, 1, 128, 255]);
        for number in 0..=255u16 {
            assert_eq!(to_8_bits(&(number * 257).to_ne_bytes(), u16::from_ne_bytes), [number as u8]);
        }
    }
}
