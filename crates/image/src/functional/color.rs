//! Colour adjustments of pixels, in place.
//!
//! Most functions use a lookup table with 256 entries, one for each value. An entry is the new value.

use crate::convert::luma;

type Table = [u8; 256];

fn table(of: impl Fn(u8) -> u8) -> Table {
    std::array::from_fn(|number| of(number as u8))
}

/// Replaces each value by `of(value)`.
fn replace(pixels: &mut [u8], of: impl Fn(u8) -> u8) {
    let table = table(of);
    pixels.iter_mut().for_each(|number| *number = table[usize::from(*number)]);
}

/// Interpolates between two values, or extrapolates beyond the second: the factor 0 gives `from`, 1 gives
/// `to`. The result is rounded down and clipped, as in Pillow and torchvision.
fn blend(from: f32, to: u8, factor: f32) -> u8 {
    (from + factor * (f32::from(to) - from)) as u8
}

pub(super) fn brightness(pixels: &mut [u8], factor: f32) {
    replace(pixels, |number| blend(0.0, number, factor));
}

pub(super) fn contrast(pixels: &mut [u8], channels: usize, factor: f32) {
    let sum: u64 = match channels {
        3 => pixels.as_chunks::<3>().0.iter().map(|pixel| u64::from(luma(*pixel))).sum(),
        _ => pixels.iter().map(|grey| u64::from(*grey)).sum(),
    };
    let mean = (sum as f64 / (pixels.len() / channels.max(1)).max(1) as f64) as f32;
    replace(pixels, |number| blend(mean, number, factor));
}

pub(super) fn saturation(pixels: &mut [u8], factor: f32) {
    for pixel in pixels.as_chunks_mut::<3>().0 {
        let grey = f32::from(luma(*pixel));
        *pixel = pixel.map(|number| blend(grey, number, factor));
    }
}

pub(super) fn grey(pixels: &mut [u8]) {
    pixels.as_chunks_mut::<3>().0.iter_mut().for_each(|pixel| *pixel = [luma(*pixel); 3]);
}

/// Shifts the hue by `turns` full turns. The largest and the smallest value of a pixel stay the same numbers,
/// but may move to other channels; the value in between changes.
pub(super) fn hue(pixels: &mut [u8], turns: f32) {
    // The shift in sixths of a turn, from 0 to 6.
    let turned = 6.0 * (turns - turns.floor());
    for pixel in pixels.as_chunks_mut::<3>().0 {
        let [r, g, b] = pixel.map(f32::from);
        let (max, min) = (r.max(g).max(b), r.min(g).min(b));
        let range = max - min;
        if range == 0.0 {
            continue;
        }
        let hue = if max == r {
            (g - b) / range
        } else if max == g {
            2.0 + (b - r) / range
        } else {
            4.0 + (r - g) / range
        };
        let hue = (hue + turned + 6.0) % 6.0;
        let (sector, part) = (hue as u8, hue.fract());
        let [falling, rising] =
            [max - range * part, min + range * part].map(|number| (number * (255.999 / 255.0)) as u8);
        let (max, min) = (max as u8, min as u8);
        *pixel = match sector {
            0 => [max, rising, min],
            1 => [falling, max, min],
            2 => [min, max, rising],
            3 => [min, falling, max],
            4 => [rising, min, max],
            _ => [max, min, falling],
        };
    }
}

pub(super) fn posterize(pixels: &mut [u8], bits: u32) {
    let mask = !0xff_u8.checked_shr(bits).unwrap_or(0);
    pixels.iter_mut().for_each(|number| *number &= mask);
}

pub(super) fn solarize(pixels: &mut [u8], threshold: f32) {
    replace(pixels, |number| if f32::from(number) >= threshold { !number } else { number });
}

pub(super) fn invert(pixels: &mut [u8]) {
    pixels.iter_mut().for_each(|number| *number = !*number);
}

pub(super) fn autocontrast(pixels: &mut [u8], channels: usize) {
    each_channel(pixels, channels, |counts| {
        let min = counts.iter().position(|count| *count > 0).unwrap_or(0) as u8;
        let max = counts.iter().rposition(|count| *count > 0).unwrap_or(0) as u8;
        let range = u32::from(max - min);
        if range == 0 {
            return None;
        }
        Some(table(|number| (u32::from(number.clamp(min, max) - min) * 255 / range) as u8))
    });
}

pub(super) fn equalize(pixels: &mut [u8], channels: usize) {
    each_channel(pixels, channels, |counts| {
        let all: u64 = counts.iter().sum();
        let last = counts.iter().rfind(|count| **count > 0).copied().unwrap_or(0);
        let step = (all - last) / 255;
        if step == 0 {
            return None;
        }
        let mut below = step / 2;
        Some(counts.map(|count| {
            let number = (below / step).min(255) as u8;
            below += count;
            number
        }))
    });
}

/// Applies a lookup table to each channel. `table` makes the table from the channel's histogram, or returns
/// `None` to leave the channel unchanged.
fn each_channel(pixels: &mut [u8], channels: usize, table: impl Fn([u64; 256]) -> Option<Table>) {
    match channels {
        3 => channels_of::<3>(pixels, table),
        _ => channels_of::<1>(pixels, table),
    }
}

fn channels_of<const N: usize>(pixels: &mut [u8], table: impl Fn([u64; 256]) -> Option<Table>) {
    let (pixels, _) = pixels.as_chunks_mut::<N>();
    let mut counts = [[0; 256]; N];
    for pixel in &*pixels {
        for channel in 0..N {
            counts[channel][usize::from(pixel[channel])] += 1;
        }
    }
    let same: Table = self::table(|number| number);
    let tables = counts.map(|counts| table(counts).unwrap_or(same));
    for pixel in pixels {
        for channel in 0..N {
            pixel[channel] = tables[channel][usize::from(pixel[channel])];
        }
    }
}

/// Writes `from` to `to`, with each value's difference from a smoothed copy multiplied by `factor`. Pixels at
/// the border stay the same.
pub(super) fn sharpness(from: &[u8], width: usize, channels: usize, factor: f32, to: &mut [u8]) {
    to.copy_from_slice(from);
    let stride = width * channels;
    if width < 3 || from.len() < 3 * stride {
        return;
    }
    let rows = from.chunks_exact(stride);
    let above = rows.clone().zip(rows.clone().skip(1)).zip(rows.skip(2));
    for (to, ((above, here), below)) in to.chunks_exact_mut(stride).skip(1).zip(above) {
        for at in channels..stride - channels {
            let sum: u32 = [above, here, below]
                .iter()
                .flat_map(|row| [row[at - channels], row[at], row[at + channels]])
                .map(u32::from)
                .sum();
            // Divided by 13, the sum of the weights, and rounded.
            let smooth = (2 * (sum + 4 * u32::from(here[at])) + 13) / 26;
            to[at] = blend(smooth as f32, here[at], factor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_a_turn_maps_red_to_green() {
        let turned = |turns: f32| {
            let mut pixel = [200, 20, 20];
            hue(&mut pixel, turns);
            pixel
        };
        assert_eq!(turned(0.0), [200, 20, 20]);
        assert_eq!(turned(1.0), [200, 20, 20]);
        assert_eq!(turned(1.0 / 3.0), [20, 200, 20]);
        assert_eq!(turned(-1.0 / 3.0), [20, 20, 200]);
        assert_eq!(turned(0.5), [20, 200, 200]);
        let mut grey = [7, 7, 7];
        hue(&mut grey, 0.3);
        assert_eq!(grey, [7, 7, 7]);
    }

    #[test]
    fn grey_pixels_have_no_saturation() {
        for factor in [0.0, 0.3, 1.0, 1.7] {
            for number in 0..=255 {
                let mut pixel = [number; 3];
                saturation(&mut pixel, factor);
                assert_eq!(pixel, [number; 3]);
            }
        }
    }

    #[test]
    fn extreme_factors_do_not_panic() {
        for factor in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0, f32::MAX] {
            let mut pixels = [0, 128, 255, 3, 2, 1];
            brightness(&mut pixels, factor);
            contrast(&mut pixels, 3, factor);
            saturation(&mut pixels, factor);
            hue(&mut pixels, factor);
            sharpness(&[7; 27], 3, 3, factor, &mut [0; 27]);
        }
        posterize(&mut [255], 99);
        contrast(&mut [], 3, 1.0);
    }
}
