//! Repeats the chroma samples of pictures that are up to four pixels wide, as libjpeg does.
//!
//! If chroma has half as many columns as luma, libjpeg interpolates the columns in between. But if there are
//! only one or two columns of chroma, libjpeg repeats each sample along the row. If chroma also has half as
//! many rows as luma, libjpeg repeats each sample along the column as well. `zune-jpeg` always interpolates.
//! So this module recovers the file's chroma samples from the output of `zune-jpeg`, and repeats them. It
//! recovers a sample from a pixel that consists of three quarters of this sample and one quarter of the
//! previous sample.

/// Repeats the chroma samples of YCbCr pixels in rows of `width`. In the file, chroma has half as many
/// columns as luma and, if `both` is set, half as many rows.
pub(super) fn repeat_chroma(pixels: &mut [u8], width: usize, both: bool) {
    let height = pixels.len() / (3 * width);
    for color in 1..3 {
        let at = |x: usize, y: usize| (y * width + x) * 3 + color;
        for y in 0..height {
            if width > 2 {
                pixels[at(2, y)] = unmixed(pixels[at(0, y)], pixels[at(2, y)]);
            }
        }
        for x in (0..width).step_by(2) {
            for y in (2..height).step_by(2).filter(|_| both) {
                pixels[at(x, y)] = unmixed(pixels[at(x, y - 2)], pixels[at(x, y)]);
            }
        }
        for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
            pixels[at(x, y)] = pixels[at(x / 2 * 2, if both { y / 2 * 2 } else { y })];
        }
    }
}

/// Recovers a sample from `mixed`, which consists of three quarters of the sample and one quarter of
/// `before`. Because of rounding, the error is less than one.
fn unmixed(before: u8, mixed: u8) -> u8 {
    let number = (8 * i32::from(mixed) - 2 * i32::from(before) + 2).div_euclid(6);
    number.clamp(0, 255) as u8
}

/// Converts YCbCr to RGB with the matrix of JFIF.
pub(super) fn to_rgb(pixels: &mut [u8]) {
    for pixel in pixels.as_chunks_mut::<3>().0 {
        let [y, cb, cr] = pixel.map(f32::from);
        let (cb, cr) = (cb - 128.0, cr - 128.0);
        *pixel =
            [y + 1.402 * cr, y - 0.344_136 * cb - 0.714_136 * cr, y + 1.772 * cb].map(|v| v.round() as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_colours_are_those_of_the_file() {
        let colors = [[10_i32, 200, 90], [250, 3, 128]];
        for (width, both) in [(3, true), (4, true), (4, false), (1, true)] {
            let height = if both { 6 } else { 3 };
            let of = |x: usize, row: usize| colors[x % 2][row];
            // The interpolation of `zune-jpeg`: first over rows, if they are halved, then over columns.
            let row = |x: usize, y: usize| match (both, y % 2) {
                (false, _) => of(x, y),
                (true, 0) => (3 * of(x, y / 2) + of(x, (y / 2).saturating_sub(1)) + 2) >> 2,
                (true, _) => (3 * of(x, y / 2) + of(x, (y / 2 + 1).min(2)) + 2) >> 2,
            };
            let column = |x: usize, y: usize| match x {
                0 => row(0, y),
                1 => (3 * row(0, y) + row(1, y) + 2) >> 2,
                2 => (3 * row(1, y) + row(0, y) + 2) >> 2,
                _ => row(1, y),
            };
            let positions = || (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
            let mut pixels: Vec<u8> =
                positions().flat_map(|(x, y)| [7, column(x, y) as u8, column(x, y) as u8]).collect();
            repeat_chroma(&mut pixels, width, both);
            for ((x, y), pixel) in positions().zip(pixels.chunks(3)) {
                let wanted = of(x / 2, if both { y / 2 } else { y }) as u8;
                assert_eq!(pixel[0], 7);
                assert!(pixel[1] == pixel[2] && pixel[1].abs_diff(wanted) <= 1, "{x} {y} {pixel:?} {wanted}");
            }
        }
    }
}
