//! Affine and perspective transformations of pictures.

use super::{Filter, Size};

/// Maps the centre (X, Y) of each pixel of the new picture to the point (x, y) of the old one: `x = a X + b Y
/// + c`, `y = d X + e Y + f`. (0, 0) is the upper left corner of the upper left pixel.
pub(super) type Affine = [f64; 6];

/// As [`Affine`], with perspective: `x = (a X + b Y + c) / (g X + h Y + 1)`, `y = (d X + e Y + f) / (g X + h
/// Y + 1)`, for `[a, b, c, d, e, f, g, h]`.
pub(super) type Projection = [f64; 8];

pub(super) fn projection([a, b, c, d, e, f]: Affine) -> Projection {
    [a, b, c, d, e, f, 0.0, 0.0]
}

/// A shear. The row at height `Y` moves left by `x Y` pixels; the column at `X` moves up by `y X` pixels.
pub(super) fn shear(x: f64, y: f64) -> Affine {
    [1.0, x, 0.0, y, 1.0, 0.0]
}

/// A translation by `x` pixels to the right and `y` pixels down.
pub(super) fn translate(x: f64, y: f64) -> Affine {
    [1.0, 0.0, -x, 0.0, 1.0, -y]
}

/// The centre of a picture.
pub(super) fn centre(size: Size) -> (f64, f64) {
    (f64::from(size.width) / 2.0, f64::from(size.height) / 2.0)
}

/// A rotation about a point, counter-clockwise.
pub(super) fn rotate(degrees: f64, (x, y): (f64, f64)) -> Affine {
    let (sin, cos) = degrees.to_radians().sin_cos();
    [cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y]
}

/// A counter-clockwise rotation about the centre of the picture, and the size of the smallest picture that
/// shows all of the rotated picture.
pub(super) fn rotate_expanded(degrees: f64, size: Size) -> (Affine, Size) {
    let [a, b, _, d, e, _] = rotate(degrees, (0.0, 0.0));
    let (x, y) = centre(size);
    // Ignores 1e-4 of a pixel, so that rounding errors add no pixel to a rotation by 90 degrees.
    let side = |along: f64, across: f64, half: f64| {
        let reach = along.abs() + across.abs() - 1e-4;
        ((half + reach).ceil() - (half - reach).floor()).max(1.0) as u32
    };
    let after = Size { width: side(a * x, b * y, x), height: side(d * x, e * y, y) };
    let (right, down) = centre(after);
    ([a, b, x - a * right - b * down, d, e, y - d * right - e * down], after)
}

/// A rotation (clockwise, in degrees), a scale and a shear (in degrees along both axes) about a point,
/// followed by a translation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AffineParameters {
    pub(super) angle: f64,
    pub(super) translate: (f64, f64),
    pub(super) scale: f64,
    pub(super) shear: (f64, f64),
}

impl AffineParameters {
    /// The matrix, as torchvision calculates it.
    pub(super) fn matrix(self, (x, y): (f64, f64)) -> Affine {
        let AffineParameters { angle, translate, scale, shear } = self;
        let (turn, across, down) = (angle.to_radians(), shear.0.to_radians(), shear.1.to_radians());
        let (sin, cos) = (turn - down).sin_cos();
        let a = cos / down.cos();
        let b = -cos * across.tan() / down.cos() - turn.sin();
        let d = sin / down.cos();
        let e = -sin * across.tan() / down.cos() + turn.cos();
        // The determinant is 1.
        let [a, b, d, e] = [e, -b, -d, a].map(|number| number / scale);
        let (right, below) = (x + translate.0, y + translate.1);
        [a, b, x - a * right - b * below, d, e, y - d * right - e * below]
    }
}

/// The projection that maps four points (x, y) of a picture to four other points. `None` if there is none,
/// for example because three of the points are on one line.
pub(super) fn perspective(start: [(f64, f64); 4], end: [(f64, f64); 4]) -> Option<Projection> {
    let mut rows = [[0.0; 9]; 8];
    for (at, ((x, y), (u, v))) in start.into_iter().zip(end).enumerate() {
        rows[2 * at] = [u, v, 1.0, 0.0, 0.0, 0.0, -x * u, -x * v, x];
        rows[2 * at + 1] = [0.0, 0.0, 0.0, u, v, 1.0, -y * u, -y * v, y];
    }
    // Gaussian elimination with the largest pivot of each column.
    for column in 0..8 {
        let size = |row: &usize| rows[*row][column].abs();
        let pivot = (column..8).max_by(|one, other| size(one).total_cmp(&size(other)))?;
        rows.swap(column, pivot);
        let pivot = rows[column];
        if pivot[column].abs() < 1e-9 {
            return None;
        }
        for row in (0..8).filter(|row| *row != column) {
            let times = rows[row][column] / pivot[column];
            rows[row].iter_mut().zip(pivot).for_each(|(number, pivot)| *number -= times * pivot);
        }
    }
    let solution: Projection = std::array::from_fn(|at| rows[at][8] / rows[at][at]);
    solution.iter().all(|number| number.is_finite()).then_some(solution)
}

/// A projection, and the sizes of the pictures that it maps.
#[derive(Clone, Copy)]
pub(super) struct Warp {
    pub(super) matrix: Projection,
    pub(super) before: Size,
    pub(super) after: Size,
}

/// Draws the new picture `to`. Pixels from outside of the old picture are `fill`.
pub(super) fn draw<const N: usize>(from: &[u8], warp: Warp, filter: Filter, fill: [u8; N], to: &mut [u8]) {
    let (pixels, to) = (from.as_chunks::<N>().0, to.as_chunks_mut::<N>().0);
    let from = Picture::new(pixels, warp.before, fill);
    if filter == Filter::Nearest {
        from.draw(warp, to, |x, y| from.pixel(x.floor() as i64, y.floor() as i64));
    } else {
        from.draw(warp, to, |x, y| from.between(x - 0.5, y - 0.5));
    }
}

/// As [`draw`] with the nearest pixel, for pixels of any type. If `from` is too short, the missing pixels are
/// `fill`.
pub(super) fn nearest<P: Copy>(from: &[P], warp: Warp, fill: P, to: &mut [P]) {
    let from = Picture::new(from, warp.before, fill);
    from.draw(warp, to, |x, y| from.pixel(x.floor() as i64, y.floor() as i64));
}

struct Picture<'a, P> {
    pixels: &'a [P],
    width: usize,
    height: usize,
    fill: P,
}

impl<'a, P: Copy> Picture<'a, P> {
    fn new(pixels: &'a [P], size: Size, fill: P) -> Self {
        Picture { pixels, width: size.width as usize, height: size.height as usize, fill }
    }

    /// Draws each pixel of the new picture. The matrix maps the pixel's centre to a point of the old picture;
    /// `pixel` returns the pixel for that point.
    fn draw(&self, warp: Warp, to: &mut [P], pixel: impl Fn(f64, f64) -> P) {
        let [a, b, c, d, e, f, g, h] = warp.matrix;
        let width = warp.after.width as usize;
        let is_affine = g == 0.0 && h == 0.0;
        for (row, to) in to.chunks_exact_mut(width.max(1)).enumerate() {
            let down = row as f64 + 0.5;
            let (x, y, w) = (b * down + c, e * down + f, h * down + 1.0);
            for (column, to) in to.iter_mut().enumerate() {
                let across = column as f64 + 0.5;
                let (x, y) = (a * across + x, d * across + y);
                *to = if is_affine {
                    pixel(x, y)
                } else {
                    let w = g * across + w;
                    pixel(x / w, y / w)
                };
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

    /// A warp that keeps the size of [`PICTURE`].
    fn warp(matrix: Projection) -> Warp {
        let size = Size { height: 2, width: 3 };
        Warp { matrix, before: size, after: size }
    }

    fn drawn(matrix: Affine, filter: Filter) -> [u8; 6] {
        let mut to = [99; 6];
        draw::<1>(&PICTURE, warp(projection(matrix)), filter, [0], &mut to);
        to
    }

    #[test]
    fn moves_by_whole_pixels_are_exact() {
        for filter in [Filter::Nearest, Filter::Bilinear] {
            assert_eq!(drawn(translate(0.0, 0.0), filter), PICTURE);
            assert_eq!(drawn(translate(1.0, 0.0), filter), [0, 1, 2, 0, 4, 5]);
            assert_eq!(drawn(translate(-1.0, 1.0), filter), [0, 0, 0, 2, 3, 0]);
            assert_eq!(drawn(rotate(180.0, (1.5, 1.0)), filter), [6, 5, 4, 3, 2, 1]);
        }
    }

    #[test]
    fn an_expanded_rotation_shows_the_whole_picture() {
        let size = Size { height: 2, width: 4 };
        let (matrix, after) = rotate_expanded(90.0, size);
        assert_eq!((after.height, after.width), (4, 2));
        let (from, mut to) = ([1, 2, 3, 4, 5, 6, 7, 8], [99; 8]);
        let warp = Warp { matrix: projection(matrix), before: size, after };
        draw::<1>(&from, warp, Filter::Nearest, [0], &mut to);
        assert_eq!(to, [4, 8, 3, 7, 2, 6, 1, 5]);
        let (_, after) = rotate_expanded(f64::NAN, size);
        assert!(after.pixels() > 0);
    }

    #[test]
    fn parameters_that_only_move_are_a_translation() {
        let still = AffineParameters { angle: 0.0, translate: (2.0, -1.0), scale: 1.0, shear: (0.0, 0.0) };
        assert_eq!(still.matrix((1.5, 1.0)), translate(2.0, -1.0));
        let turned = AffineParameters { angle: -30.0, translate: (0.0, 0.0), ..still };
        let apart = turned.matrix((1.5, 1.0)).into_iter().zip(rotate(30.0, (1.5, 1.0)));
        assert!(apart.into_iter().all(|(ours, wanted)| (ours - wanted).abs() < 1e-12));
    }

    #[test]
    fn a_perspective_maps_its_points() {
        let start = [(0.0, 0.0), (9.0, 0.0), (9.0, 7.0), (0.0, 7.0)];
        let end = [(1.0, 2.0), (8.0, 0.0), (9.0, 6.0), (0.0, 5.0)];
        let [a, b, c, d, e, f, g, h] = perspective(start, end).unwrap();
        for ((x, y), (u, v)) in start.into_iter().zip(end) {
            let w = g * u + h * v + 1.0;
            assert!(((a * u + b * v + c) / w - x).abs() < 1e-9 && ((d * u + e * v + f) / w - y).abs() < 1e-9);
        }
        assert_eq!(perspective(start, [(1.0, 1.0); 4]), None);
        assert_eq!(perspective([(f64::NAN, 0.0); 4], end), None);
    }

    #[test]
    fn extreme_numbers_do_not_panic() {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
            for filter in [Filter::Nearest, Filter::Bilinear] {
                drawn([number; 6], filter);
                drawn(rotate(number, (1.5, 1.0)), filter);
                draw::<1>(&PICTURE, warp([number; 8]), filter, [0], &mut [0; 6]);
            }
        }
    }
}
