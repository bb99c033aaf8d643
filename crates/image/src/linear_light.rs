//! Reduction in linear light.
//!
//! The pixel values of a picture are not proportional to light: from afar, a pattern of black and white
//! pixels in equal parts looks like the value 188, not 128. A filter that averages the values darkens fine
//! detail. So this module converts the values to linear light by the sRGB curve (IEC 61966-2-1), resizes them
//! in 16 bits, and converts them back.

use super::resizer::{self, Format, Kernel, Part, PixelMemory};
use super::{ImageError, Size};
use crate::convert::to_8_bits;
use std::sync::OnceLock;

/// Number of rows that are converted to 16 bits at a time. These rows are reduced to the new width before the
/// next rows are converted. This bounds the memory for 16-bit rows of the old width.
const STRIP: usize = 64;

/// The curve of sRGB and its inverse.
struct Curve {
    to_linear: [u16; 256],
    /// The sRGB value for each of the 65,536 linear values.
    to_encoded: Vec<u8>,
}

impl Curve {
    fn srgb() -> &'static Self {
        static CURVE: OnceLock<Curve> = OnceLock::new();
        CURVE.get_or_init(|| Curve {
            to_linear: std::array::from_fn(|encoded| {
                let encoded = encoded as f64 / 255.0;
                let linear =
                    if encoded <= 0.04045 { encoded / 12.92 } else { ((encoded + 0.055) / 1.055).powf(2.4) };
                (linear * 65535.0).round() as u16
            }),
            to_encoded: (0..=u16::MAX)
                .map(|linear| {
                    let linear = f64::from(linear) / 65535.0;
                    let encoded = if linear <= 0.003_130_8 {
                        linear * 12.92
                    } else {
                        1.055 * linear.powf(1.0 / 2.4) - 0.055
                    };
                    (encoded * 255.0).round() as u8
                })
                .collect(),
        })
    }

    /// Converts pixels to linear light. If the pixels have an opacity, their colours are multiplied by the
    /// opacity.
    fn decode(&self, from: &[u8], channels: usize, to: &mut [u16]) {
        for (from, to) in from.chunks_exact(channels).zip(to.chunks_exact_mut(channels)) {
            for (from, to) in from.iter().zip(to.iter_mut()) {
                *to = self.to_linear[usize::from(*from)];
            }
            if let (0, Some(opacity)) = (channels % 2, from.last()) {
                let opacity = u64::from(*opacity);
                for to in to.iter_mut() {
                    *to = ((u64::from(*to) * opacity + 127) / 255) as u16;
                }
                to[channels - 1] = opacity as u16 * 257;
            }
        }
    }

    /// The inverse of [`Curve::decode`]. Wholly transparent pixels become black.
    fn encode(&self, from: &[u16], channels: usize) -> Vec<u8> {
        if channels % 2 == 1 {
            return from.iter().map(|linear| self.to_encoded[usize::from(*linear)]).collect();
        }
        let mut to = Vec::with_capacity(from.len());
        for pixel in from.chunks_exact(channels) {
            let opacity = u64::from(pixel[channels - 1]);
            for color in &pixel[..channels - 1] {
                let linear = (u64::from(*color) * 65535 + opacity / 2).checked_div(opacity).unwrap_or(0);
                to.push(self.to_encoded[linear.min(65535) as usize]);
            }
            to.push(to_8_bits(pixel[channels - 1]));
        }
        to
    }
}

/// Reduces a picture of 1 to 4 channels of 8 bits with Pillow's `LANCZOS` filter, which spans three pixels to
/// each side. If the number of channels is 2 or 4, the last channel is the opacity.
pub(super) fn reduce(pixels: &[u8], size: Size, channels: usize, to: Size) -> Result<Vec<u8>, ImageError> {
    let curve = Curve::srgb();
    let row = |width: u32| width as usize * channels;
    let mut narrow = vec![0_u16; row(to.width) * size.height as usize];
    let mut linear = vec![0_u16; row(size.width) * STRIP.min(size.height as usize)];
    let strips = pixels.chunks(row(size.width) * STRIP).zip(narrow.chunks_mut(row(to.width) * STRIP));
    for (from, to_strip) in strips {
        let height = (from.len() / row(size.width)) as u32;
        let linear = &mut linear[..from.len()];
        curve.decode(from, channels, linear);
        resize(channels, (linear, Size { height, ..size }), (to_strip, Size { height, ..to }))?;
    }
    let mut reduced = vec![0_u16; row(to.width) * to.height as usize];
    resize(channels, (&mut narrow, Size { width: to.width, ..size }), (&mut reduced, to))?;
    drop(narrow);
    Ok(curve.encode(&reduced, channels))
}

fn resize(channels: usize, from: (&mut [u16], Size), to: (&mut [u16], Size)) -> Result<(), ImageError> {
    let Size { height, width } = from.1;
    let part = Part { left: 0.0, top: 0.0, width: width.into(), height: height.into() };
    let memory = |(numbers, size): (_, Size)| PixelMemory {
        width: size.width,
        height: size.height,
        bytes: bytemuck::cast_slice_mut::<u16, u8>(numbers),
    };
    resizer::resize(Format { channels, wide: true }, memory(from), part, Kernel::Lanczos, memory(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_colour_stays_as_it_is() {
        for shade in 0..=255_u8 {
            let pixels = [shade, 255 - shade, 7].repeat(40 * 70);
            let size = Size { height: 70, width: 40 };
            let reduced = reduce(&pixels, size, 3, Size { height: 30, width: 17 }).unwrap();
            assert_eq!(reduced, [shade, 255 - shade, 7].repeat(30 * 17));
        }
    }

    #[test]
    fn the_average_is_of_light_and_not_of_pixel_values() {
        let board: Vec<u8> =
            (0..128 * 128).map(|at| if (at / 128 + at % 128) % 2 == 0 { 255 } else { 0 }).collect();
        let reduced = reduce(&board, 128.into(), 1, 32.into()).unwrap();
        assert!(reduced.iter().all(|grey| (184..=192).contains(grey)), "{reduced:?}");
    }

    /// The colour of a transparent pixel must not appear in the result.
    #[test]
    fn colours_are_weighted_by_their_opacity() {
        let stripes: Vec<u8> = (0..64 * 64)
            .flat_map(|at| if at % 2 == 0 { [200, 10, 30, 255] } else { [0, 255, 255, 0] })
            .collect();
        let reduced = reduce(&stripes, 64.into(), 4, 16.into()).unwrap();
        for pixel in reduced.chunks(4) {
            assert!(
                pixel[..3].iter().zip([200, 10, 30]).all(|(color, kept)| color.abs_diff(kept) <= 1),
                "{pixel:?}"
            );
            assert!((115..=140).contains(&pixel[3]), "{pixel:?}");
        }
        let grey: Vec<u8> = (0..64 * 64).flat_map(|_| [90, 0]).collect();
        assert_eq!(reduce(&grey, 64.into(), 2, 16.into()).unwrap(), [0, 0].repeat(256));
    }
}
