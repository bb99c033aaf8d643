//! Records how transforms move the pixels of a picture, to move its boxes and label images likewise.

use super::Size;
use super::affine::{Projection, Warp, nearest};
use super::filter::nearest_pixels;
use super::padding::PaddingMode;
use super::rectangle::Rect;
use smallvec::SmallVec;

/// How transforms moved the pixels of a picture, step by step.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct Geometry {
    before: Size,
    after: Size,
    steps: SmallVec<[GeometryStep; 4]>,
    known: bool,
}

/// One movement of a picture's pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum GeometryStep {
    /// The picture is cropped to this part.
    Crop(Rect),
    /// The picture is resized to this size.
    Resize(Size),
    /// Left becomes right.
    FlipHorizontal,
    /// Top becomes bottom.
    FlipVertical,
    /// The picture is drawn into a new picture of the size `size`. The upper left corner of the old picture
    /// is placed at the upper left corner of `part`, and pixels beyond `part` are cut off. `mode` says what
    /// the border shows.
    Pad { part: Rect, size: Size, mode: PaddingMode },
    /// The new picture has this size. The matrix maps the centre of each pixel of the new picture to a point
    /// of the old picture.
    Warp { matrix: Projection, size: Size },
    /// A transform has redrawn the picture in an unknown way.
    Unknown,
}

/// A rectangle: left, top, right, bottom, in pixels and fractions of them.
#[doc(hidden)]
pub type Corners = [f64; 4];

/// The visible part of a rectangle.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VisiblePart {
    /// The part of the rectangle that is inside of the picture.
    pub corners: Corners,
    /// The area of that part divided by the area that the rectangle would have if nothing had been cut off; 0
    /// if a perspective maps a part of the rectangle to infinity.
    pub share: f64,
}

impl Geometry {
    /// The geometry of an unchanged picture.
    pub(crate) fn new(size: Size) -> Self {
        Geometry { before: size, after: size, steps: SmallVec::new(), known: true }
    }

    /// Adds a step, after which the picture has this size.
    pub(crate) fn push(&mut self, step: GeometryStep, after: Size) {
        self.known &= step != GeometryStep::Unknown;
        if !self.known {
            return;
        }
        self.steps.push(step);
        self.after = after;
    }

    /// Whether all steps are known.
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// The size of the picture before the first step. If the EXIF orientation is applied, this is the size of
    /// the oriented picture.
    pub fn before(&self) -> Size {
        self.before
    }

    /// The size of the picture after the last step.
    pub fn after(&self) -> Size {
        self.after
    }

    /// Moves a rectangle of the original picture to the final one, and returns its visible part; `None` if no
    /// part is visible, or the rectangle has no area.
    pub fn visible(&self, corners: Corners) -> Option<VisiblePart> {
        let mut size = self.before;
        let mut visible_corners = clipped(corners, Rect::all(size.width, size.height));
        // The rectangle within the original picture, transformed by the steps so far but not clipped by them;
        // `None` if a perspective maps a part of it to infinity.
        let mut whole = Some(visible_corners);
        for step in &self.steps {
            let next = step.size(size);
            let mut view = Rect::all(next.width, next.height);
            if let GeometryStep::Pad { part, .. } = step {
                view = *part;
            }
            whole = whole.and_then(|whole| step.moved(whole, size));
            visible_corners = clipped(step.moved(visible_corners, size)?, view);
            size = next;
        }
        let visible = area(visible_corners);
        let share = whole.map_or(0.0, |whole| (visible / area(whole)).min(1.0));
        (visible > 0.0).then_some(VisiblePart { corners: visible_corners, share })
    }

    /// Applies the steps to a label image, which has the size of the original picture, and writes the result
    /// to `to`. Each label is taken from the nearest pixel. Labels from outside of the picture are `fill`.
    pub fn move_labels<T: Copy>(&self, labels: &[T], fill: T, to: &mut [T]) {
        let mut lookup = AxisLookup::new(self.before);
        let mut redrawn: Option<Vec<T>> = None;
        let mut size = self.before;
        for step in &self.steps {
            let next = step.size(size);
            if let GeometryStep::Warp { matrix, .. } = step {
                let from = lookup.gathered(redrawn.as_deref().unwrap_or(labels), fill);
                let mut drawn = vec![fill; next.width as usize * next.height as usize];
                nearest(&from, Warp { matrix: *matrix, before: size, after: next }, fill, &mut drawn);
                (lookup, redrawn) = (AxisLookup::new(next), Some(drawn));
            } else {
                lookup.step(*step);
            }
            size = next;
        }
        lookup.gather(redrawn.as_deref().unwrap_or(labels), fill, to);
    }
}

impl GeometryStep {
    /// The size of a picture after the step.
    fn size(self, before: Size) -> Size {
        match self {
            GeometryStep::Crop(part) => Size { height: part.height, width: part.width },
            GeometryStep::Resize(size) | GeometryStep::Pad { size, .. } | GeometryStep::Warp { size, .. } => {
                size
            }
            GeometryStep::FlipHorizontal | GeometryStep::FlipVertical | GeometryStep::Unknown => before,
        }
    }

    /// Moves a rectangle by the step, even to outside of the picture; `None` if the step is unknown or maps a
    /// part of the rectangle to infinity.
    fn moved(self, [left, top, right, bottom]: Corners, size: Size) -> Option<Corners> {
        let shifted = |x: f64, y: f64| [left + x, top + y, right + x, bottom + y];
        Some(match self {
            GeometryStep::Crop(part) => shifted(-f64::from(part.x), -f64::from(part.y)),
            GeometryStep::Pad { part, .. } => shifted(f64::from(part.x), f64::from(part.y)),
            GeometryStep::FlipHorizontal => {
                let width = f64::from(size.width);
                [width - right, top, width - left, bottom]
            }
            GeometryStep::FlipVertical => {
                let height = f64::from(size.height);
                [left, height - bottom, right, height - top]
            }
            GeometryStep::Resize(to) => {
                let across = |x: f64| x * f64::from(to.width) / f64::from(size.width);
                let down = |y: f64| y * f64::from(to.height) / f64::from(size.height);
                [across(left), down(top), across(right), down(bottom)]
            }
            GeometryStep::Warp { matrix, .. } => {
                let [across, down, depth] = inverse(matrix)?;
                let corners = [(left, top), (right, top), (left, bottom), (right, bottom)];
                let at = |[a, b, c]: [f64; 3], (x, y): (f64, f64)| a * x + b * y + c;
                // A point behind the viewer of a perspective has no position in the picture.
                if corners.iter().any(|corner| at(depth, *corner) <= 0.0) {
                    return None;
                }
                let corners = corners
                    .map(|point| (at(across, point) / at(depth, point), at(down, point) / at(depth, point)));
                let ends = |number: fn(&(f64, f64)) -> f64| {
                    let numbers = corners.iter().map(number);
                    (numbers.clone().fold(f64::INFINITY, f64::min), numbers.fold(f64::NEG_INFINITY, f64::max))
                };
                let ((left, right), (top, bottom)) = (ends(|corner| corner.0), ends(|corner| corner.1));
                [left, top, right, bottom]
            }
            GeometryStep::Unknown => return None,
        })
    }
}

/// The rows of the inverse matrix, which maps points of the old picture to the new one; `None` if the matrix
/// has no inverse.
fn inverse([a, b, c, d, e, f, g, h]: Projection) -> Option<[[f64; 3]; 3]> {
    let determinant = a * (e - f * h) - b * (d - f * g) + c * (d * h - e * g);
    let inverse = [
        [e - f * h, c * h - b, b * f - c * e],
        [f * g - d, a - c * g, c * d - a * f],
        [d * h - e * g, b * g - a * h, a * e - b * d],
    ]
    .map(|row| row.map(|number| number / determinant));
    inverse.iter().flatten().all(|number| number.is_finite()).then_some(inverse)
}

/// The part of a rectangle that is inside of `view`.
fn clipped([left, top, right, bottom]: Corners, view: Rect) -> Corners {
    let across = |x: f64| x.clamp(f64::from(view.x), f64::from(view.right()));
    let down = |y: f64| y.clamp(f64::from(view.y), f64::from(view.bottom()));
    [across(left), down(top), across(right), down(bottom)]
}

/// The area of a rectangle; 0 if its corners are in the wrong order.
fn area([left, top, right, bottom]: Corners) -> f64 {
    (right - left).max(0.0) * (bottom - top).max(0.0)
}

/// For each column of the new picture, the number of the old picture's column that it shows; likewise for
/// rows. This suffices for crops, flips, borders and resizes to the nearest pixel, which act on each axis
/// separately.
struct AxisLookup {
    across: Vec<usize>,
    down: Vec<usize>,
    /// The width of the old picture in pixels.
    width: usize,
}

/// A column or row outside of the old picture.
const OUTSIDE: usize = usize::MAX;

impl AxisLookup {
    fn new(size: Size) -> Self {
        let (height, width) = (size.height as usize, size.width as usize);
        AxisLookup { across: (0..width).collect(), down: (0..height).collect(), width }
    }

    fn step(&mut self, step: GeometryStep) {
        let AxisLookup { across, down, .. } = self;
        match step {
            GeometryStep::Crop(part) => {
                cut(across, part.x, part.width);
                cut(down, part.y, part.height);
            }
            GeometryStep::FlipHorizontal => across.reverse(),
            GeometryStep::FlipVertical => down.reverse(),
            GeometryStep::Resize(size) => {
                *across = resized(across, size.width);
                *down = resized(down, size.height);
            }
            GeometryStep::Pad { part, size, mode } => {
                let padded = |axis: &[usize], at, length, to| {
                    let sources = mode.sources(at, length, to);
                    sources
                        .map(|from| from.and_then(|from| axis.get(from)).copied().unwrap_or(OUTSIDE))
                        .collect()
                };
                *across = padded(across, part.x, part.width, size.width);
                *down = padded(down, part.y, part.height, size.height);
            }
            GeometryStep::Warp { .. } | GeometryStep::Unknown => {}
        }
    }

    fn gathered<T: Copy>(&self, from: &[T], fill: T) -> Vec<T> {
        let mut to = vec![fill; self.across.len() * self.down.len()];
        self.gather(from, fill, &mut to);
        to
    }

    fn gather<T: Copy>(&self, from: &[T], fill: T, to: &mut [T]) {
        for (row, &v) in to.chunks_exact_mut(self.across.len().max(1)).zip(&self.down) {
            let line = v.checked_mul(self.width).and_then(|start| from.get(start..)?.get(..self.width));
            match line {
                Some(line) => {
                    for (to, &u) in row.iter_mut().zip(&self.across) {
                        *to = line.get(u).copied().unwrap_or(fill);
                    }
                }
                None => row.fill(fill),
            }
        }
    }
}

fn cut(axis: &mut Vec<usize>, at: u32, length: u32) {
    axis.truncate(at as usize + length as usize);
    axis.drain(..(at as usize).min(axis.len()));
}

/// Resizes one axis: each new pixel takes the nearest old one, as with [`Filter::Nearest`](super::Filter).
fn resized(axis: &[usize], to: u32) -> Vec<usize> {
    nearest_pixels(axis.len(), to).map(|at| axis.get(at).copied().unwrap_or(OUTSIDE)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affine::{self, projection};

    fn size(height: u32, width: u32) -> Size {
        Size { height, width }
    }

    fn geometry(before: Size, steps: &[GeometryStep]) -> Geometry {
        let mut geometry = Geometry::new(before);
        for step in steps {
            geometry.push(*step, step.size(geometry.after()));
        }
        geometry
    }

    fn translate(x: f64, y: f64) -> GeometryStep {
        GeometryStep::Warp { matrix: projection(affine::translate(x, y)), size: size(2, 3) }
    }

    fn labels(geometry: &Geometry, labels: &[u8]) -> Vec<u8> {
        let after = geometry.after();
        let mut to = vec![77; after.height as usize * after.width as usize];
        geometry.move_labels(labels, 99, &mut to);
        to
    }

    const PICTURE: [u8; 6] = [1, 2, 3, 4, 5, 6];

    #[test]
    fn each_step_moves_boxes_and_labels() {
        let part = Rect { x: 1, y: 0, width: 2, height: 2 };
        let border = Rect { x: 1, y: 1, width: 3, height: 1 };
        for (step, wanted, corners, share) in [
            (GeometryStep::Crop(part), vec![2, 3, 5, 6], [0., 0.5, 1., 2.], 0.5),
            (GeometryStep::FlipHorizontal, vec![3, 2, 1, 6, 5, 4], [1., 0.5, 3., 2.], 1.),
            (GeometryStep::FlipVertical, vec![4, 5, 6, 1, 2, 3], [0., 0., 2., 1.5], 1.),
            (GeometryStep::Resize(size(1, 6)), vec![4, 4, 5, 5, 6, 6], [0., 0.25, 4., 1.], 1.),
            (
                GeometryStep::Pad { part: border, size: size(3, 4), mode: PaddingMode::Constant },
                vec![99, 99, 99, 99, 99, 1, 2, 3, 99, 99, 99, 99],
                [1., 1.5, 3., 2.],
                1. / 3.,
            ),
            (
                GeometryStep::Pad { part: border, size: size(3, 4), mode: PaddingMode::Edge },
                vec![1, 1, 2, 3, 1, 1, 2, 3, 1, 1, 2, 3],
                [1., 1.5, 3., 2.],
                1. / 3.,
            ),
            (translate(1., 0.), vec![99, 1, 2, 99, 4, 5], [1., 0.5, 3., 2.], 1.),
            (translate(-1., -1.), vec![5, 6, 99, 99, 99, 99], [0., 0., 1., 1.], 1. / 3.),
        ] {
            let geometry = geometry(size(2, 3), &[step]);
            assert_eq!(labels(&geometry, &PICTURE), wanted, "{step:?}");
            let visible = geometry.visible([0., 0.5, 2., 2.]).unwrap();
            assert_eq!(visible.corners, corners, "{step:?}");
            assert!((visible.share - share).abs() < 1e-9, "{step:?}: {}", visible.share);
        }
    }

    #[test]
    fn a_part_that_was_cut_off_stays_cut_off() {
        let crop = GeometryStep::Crop(Rect { x: 0, y: 0, width: 1, height: 2 });
        let part = Rect { x: 0, y: 0, width: 1, height: 2 };
        let pad = GeometryStep::Pad { part, size: size(2, 3), mode: PaddingMode::Constant };
        let steps = [crop, pad, translate(1., 0.), GeometryStep::FlipHorizontal];
        let geometry = geometry(size(2, 3), &steps);
        assert_eq!(labels(&geometry, &PICTURE), [99, 1, 99, 99, 4, 99]);
        let visible = geometry.visible([0., 0., 3., 1.]).unwrap();
        assert_eq!((visible.corners, visible.share), ([1., 0., 2., 1.], 1. / 3.));
        assert_eq!(geometry.visible([1., 0., 3., 2.]), None);
    }

    #[test]
    fn a_rectangle_without_area_is_not_visible() {
        let plain = geometry(size(4, 4), &[]);
        for corners in
            [[1., 1., 1., 3.], [3., 1., 1., 3.], [-2., 0., 0., 4.], [4., 0., 9., 4.], [f64::NAN; 4]]
        {
            assert_eq!(plain.visible(corners), None, "{corners:?}");
        }
        // The part outside of the original picture does not count.
        let visible = plain.visible([-4., 0., 4., 2.]).unwrap();
        assert_eq!((visible.corners, visible.share), ([0., 0., 4., 2.], 1.));
        for matrix in [[0.; 6], [f64::NAN; 6], [1., 1., 0., 1., 1., 0.], [f64::INFINITY; 6]] {
            let flat = GeometryStep::Warp { matrix: projection(matrix), size: size(4, 4) };
            let flat = geometry(size(4, 4), &[flat]);
            assert_eq!(flat.visible([0., 0., 4., 4.]), None, "{matrix:?}");
            assert_eq!(labels(&flat, &[1; 16]).len(), 16);
        }
    }

    #[test]
    fn a_perspective_moves_boxes_and_labels() {
        let corners = [(0., 0.), (4., 0.), (4., 4.), (0., 4.)];
        let matrix = affine::perspective(corners, [(1., 0.), (3., 0.), (4., 4.), (0., 4.)]).unwrap();
        let moved = geometry(size(4, 4), &[GeometryStep::Warp { matrix, size: size(4, 4) }]);
        let visible = moved.visible([0., 0., 2., 4.]).unwrap();
        for (ours, wanted) in visible.corners.into_iter().zip([0., 0., 2., 4.]) {
            assert!((ours - wanted).abs() < 1e-9, "{visible:?}");
        }
        let labels = labels(&moved, &[1; 16]);
        assert_eq!(labels[..4], [99, 1, 1, 99]);
        assert_eq!(labels[12..], [1; 4]);
        // Rows from number 2 on are behind the viewer.
        let matrix = [1., 0., 0., 0., 1., 0., 0., 0.5];
        let behind = GeometryStep::Warp { matrix, size: size(4, 4) };
        let whole = geometry(size(4, 4), &[behind]);
        assert_eq!(whole.visible([0., 0., 4., 4.]), None);
        assert_eq!(whole.visible([0., 0., 4., 1.]).unwrap().corners, [0., 0., 4., 2.]);
        let part = Rect { x: 0, y: 0, width: 4, height: 1 };
        let cut = geometry(size(4, 4), &[GeometryStep::Crop(part), behind]);
        let visible = cut.visible([0., 0., 4., 4.]).unwrap();
        assert_eq!((visible.corners, visible.share), ([0., 0., 4., 2.], 0.));
    }

    #[test]
    fn a_redrawn_picture_has_no_known_geometry() {
        let mut geometry = geometry(size(2, 2), &[GeometryStep::FlipHorizontal]);
        assert!(geometry.is_known());
        geometry.push(GeometryStep::Unknown, size(9, 9));
        geometry.push(GeometryStep::FlipHorizontal, size(9, 9));
        assert!(!geometry.is_known());
    }
}
