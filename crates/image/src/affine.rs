//! Affine transformations of pictures.

use super::Filter;

/// Maps the centre (X, Y) of each pixel of the new picture to its place (x, y) in the old one: `x = a X + b Y
/// + c`, `y = d X + e Y + f`. (0, 0) is the upper left corner of the upper left pixel.
pub(super) type Matrix = [f64; 6];

/// A shear: each row moves left by `x` pixels per row above it, each column up by `y` pixels per column to
/// its left.
pub(super) fn shear(x: f64, y: f64) -> Matrix {
    [1.0, x, 0.0, y, 1.0, 0.0]
}

/// A translation by `x` pixels to the right and `y` pixels down.
pub(super) fn translate(x: f64, y: f64) -> Matrix {
    [1.0, 0.0, -x, 0.0, 1.0, -y]
}

/// A rotation about the centre of the picture, counter-clockwise.
pub(super) fn rotate(degrees: f64, width: u32, height: u32) -> Matrix {
    let (sin, cos) = degrees.to_radians().sin_cos();
    let (x, y) = (f64::from(width) / 2.0, f64::from(height) / 2.0);
    [cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y]
}

/// Draws a picture of the same size. Pixels from outside of the old one are `fill`.
pub(super) fn draw<const N: usize>(
    from: &[u8],
    (width, height): (usize, usize),
    matrix: Matrix,
    filter: Filter,
    fill: [u8; N],
    to: &mut [u8],
) {
    let (pixels, to) = (from.as_chunks::<N>().0, to.as_chunks_mut::<N>().0);
    let from = Picture { pixels, width, height, fill };
    if filter == Filter::Nearest {
        from.draw(matrix, to, |x, y| from.pixel(x.floor() as i64, y.floor() as i64));
    } else {
        from.draw(matrix, to, |x, y| from.between(x - 0.5, y - 0.5));
    }
}

/// As [`draw`] with the nearest pixel, for pixels of any type. Pixels that `from` lacks are `fill`.
pub(super) fn nearest<P: Copy>(
    from: &[P],
    (width, height): (usize, usize),
    matrix: Matrix,
    fill: P,
    to: &mut [P],
) {
    let from = Picture { pixels: from, width, height, fill };
    from.draw(matrix, to, |x, y| from.pixel(x.floor() as i64, y.floor() as i64));
}

struct Picture<'a, P> {
    pixels: &'a [P],
    width: usize,
    height: usize,
    fill: P,
}

impl<P: Copy> Picture<'_, P> {
    /// Draws each pixel from the place of its centre in this picture.
    fn draw(&self, [a, b, c, d, e, f]: Matrix, to: &mut [P], pixel: impl Fn(f64, f64) -> P) {
        for (row, to) in to.chunks_exact_mut(self.width.max(1)).enumerate() {
            let down = row as f64 + 0.5;
            let (x, y) = (b * down + c, e * down + f);
            for (column, to) in to.iter_mut().enumerate() {
                let across = column as f64 + 0.5;
                *to = pixel(a * across + x, d * across + y);
            }
        }
    }

    fn pixel(&self, x: i64, y: i64) -> P {
        let inside = (0..self.width as i64).contains(&x) && (0..self.height as i64).contains(&y);
        let at = inside.then(|| y as usize * self.width + x as usize);
        at.and_then(|at| self.pixels.get(at)).copied().unwrap_or(self.fill)
    }
}

impl<const N: usize> Picture<'_, [u8; N]> {
    /// Interpolates bilinearly between the four nearest pixels.
    fn between(&self, x: f64, y: f64) -> [u8; N] {
        let (left, top) = (x.floor(), y.floor());
        let (right_part, lower_part) = ((x - left) as f32, (y - top) as f32);
        let (left, top) = (left as i64, top as i64);
        let (right, bottom) = (left.saturating_add(1), top.saturating_add(1));
        let upper = (self.pixel(left, top), self.pixel(right, top));
        let lower = (self.pixel(left, bottom), self.pixel(right, bottom));
        let mix = |one: f32, other: f32, part: f32| one + (other - one) * part;
        std::array::from_fn(|channel| {
            let across = |(one, other): ([u8; N], [u8; N])| {
                mix(f32::from(one[channel]), f32::from(other[channel]), right_part)
            };
            mix(across(upper), across(lower), lower_part).round_ties_even() as u8
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PICTURE: [u8; 6] = [1, 2, 3, 4, 5, 6];

    fn drawn(matrix: Matrix, filter: Filter) -> [u8; 6] {
        let mut to = [99; 6];
        draw::<1>(&PICTURE, (3, 2), matrix, filter, [0], &mut to);
        to
    }

    #[test]
    fn whole_pixels() {
        for filter in [Filter::Nearest, Filter::Bilinear] {
            assert_eq!(drawn(translate(0.0, 0.0), filter), PICTURE);
            assert_eq!(drawn(translate(1.0, 0.0), filter), [0, 1, 2, 0, 4, 5]);
            assert_eq!(drawn(translate(-1.0, 1.0), filter), [0, 0, 0, 2, 3, 0]);
            assert_eq!(drawn(rotate(180.0, 3, 2), filter), [6, 5, 4, 3, 2, 1]);
        }
    }

    #[test]
    fn extreme_numbers_do_not_panic() {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
            for filter in [Filter::Nearest, Filter::Bilinear] {
                drawn([number; 6], filter);
                drawn(rotate(number, 3, 2), filter);
            }
        }
    }
}
