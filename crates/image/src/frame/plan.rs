//! The plan of a picture: its crops, flips and resize, collected before decoding.

use crate::Filter;
use crate::orientation::Orientation;
use crate::raster::Raster;
use crate::rectangle::Rect;

/// A crop, a resize, another crop and flips, in this order. Any sequence of crops and flips with at most one
/// resize is equivalent to such a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FramePlan {
    /// The part that is resized. Pixels outside of it do not contribute.
    pub(super) window: Rect,
    pub(super) resize: Option<PlannedResize>,
    /// The part of the resized window that is kept.
    pub(super) kept: Rect,
    /// Left becomes right.
    pub(super) flip_x: bool,
    /// Top becomes bottom.
    pub(super) flip_y: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PlannedResize {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) filter: Filter,
}

impl FramePlan {
    /// The plan that keeps the whole picture unchanged.
    pub(super) fn new(width: u32, height: u32) -> Self {
        let all = Rect::all(width, height);
        FramePlan { window: all, resize: None, kept: all, flip_x: false, flip_y: false }
    }

    /// Crops the result of the plan; `None` if `part` is not inside of it.
    pub(super) fn crop(self, part: Rect) -> Option<Self> {
        let inside = Rect::all(self.kept.width, self.kept.height).part(part)?;
        // The plan crops before it mirrors.
        let x = if self.flip_x { self.kept.width - inside.right() } else { inside.x };
        let y = if self.flip_y { self.kept.height - inside.bottom() } else { inside.y };
        let part = Rect { x, y, ..inside };
        Some(match self.resize {
            None => FramePlan {
                window: self.window.part(part)?,
                kept: Rect::all(part.width, part.height),
                ..self
            },
            Some(_) => FramePlan { kept: self.kept.part(part)?, ..self },
        })
    }

    /// Resizes the result of the plan; `None` if that would be a second resize.
    pub(super) fn resize(self, resize: PlannedResize) -> Option<Self> {
        if (self.kept.width, self.kept.height) == (resize.width, resize.height) {
            return Some(self);
        }
        let kept = Rect::all(resize.width, resize.height);
        self.resize.is_none().then_some(FramePlan { resize: Some(resize), kept, ..self })
    }

    pub(super) fn flip_horizontal(self) -> Self {
        FramePlan { flip_x: !self.flip_x, ..self }
    }

    pub(super) fn flip_vertical(self) -> Self {
        FramePlan { flip_y: !self.flip_y, ..self }
    }

    /// Translates the plan to the stored picture, to which `orientation` has not been applied. `stored` is
    /// its width and height. The returned plan has no flips: they are part of the returned orientation, which
    /// is applied after the plan.
    pub(super) fn for_stored(self, orientation: Orientation, stored: (u32, u32)) -> (Self, Orientation) {
        let resized = self.resize.map_or((self.window.width, self.window.height), |to| (to.width, to.height));
        let resize = self.resize.map(|to| {
            let (width, height) = orientation.size((to.width, to.height));
            PlannedResize { width, height, ..to }
        });
        let window = orientation.stored_part(self.window, orientation.size(stored));
        let kept = orientation.stored_part(self.kept, resized);
        let (flip_x, flip_y) = (orientation.flip_x != self.flip_x, orientation.flip_y != self.flip_y);
        let plan = FramePlan { window, resize, kept, flip_x: false, flip_y: false };
        (plan, Orientation { flip_x, flip_y, ..orientation })
    }

    /// Whether the pixels in memory are already the result of the plan, apart from the orientation.
    pub(super) fn is_done(self, raster: Raster) -> bool {
        raster.shrink == 1 && self.resize.is_none() && self.window == raster.part
    }

    /// The factor by which the resize reduces the picture: the smaller of the factors along the two axes, but
    /// at least 1.
    pub(super) fn reduction(self) -> f64 {
        // Nearest pixels are chosen from the file's pixels, so the picture must not be reduced while it is
        // decoded.
        let Some(resize) = self.resize.filter(|to| to.filter != Filter::Nearest) else { return 1.0 };
        let times = |from: u32, to: u32| f64::from(from) / f64::from(to.max(1));
        times(self.window.width, resize.width).min(times(self.window.height, resize.height)).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A picture in which the value of each pixel is the pixel's coordinates.
    fn picture(width: u32, height: u32) -> Vec<Vec<(u32, u32)>> {
        (0..height).map(|y| (0..width).map(|x| (x, y)).collect()).collect()
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Crop([f64; 4]),
        FlipHorizontal,
        FlipVertical,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            any::<[u16; 4]>().prop_map(|n| Step::Crop(n.map(|n| f64::from(n) / 65536.0))),
            Just(Step::FlipHorizontal),
            Just(Step::FlipVertical)
        ]
    }

    proptest! {
        #[test]
        fn a_plan_gives_the_same_pixels_as_its_steps_in_order(
            (width, height) in (1..40u32, 1..40u32),
            steps in proptest::collection::vec(step(), 0..6),
        ) {
            let mut pixels = picture(width, height);
            let mut plan = FramePlan::new(width, height);
            for step in steps {
                match step {
                    Step::Crop([a, b, c, d]) => {
                        let (w, h) = (pixels[0].len() as f64, pixels.len() as f64);
                        let (x, y) = ((a * w) as u32, (b * h) as u32);
                        let width = 1 + ((w - f64::from(x) - 1.0) * c) as u32;
                        let height = 1 + ((h - f64::from(y) - 1.0) * d) as u32;
                        plan = plan.crop(Rect { x, y, width, height }).unwrap();
                        pixels = pixels[y as usize..(y + height) as usize]
                            .iter()
                            .map(|row| row[x as usize..(x + width) as usize].to_vec())
                            .collect();
                    }
                    Step::FlipHorizontal => {
                        plan = plan.flip_horizontal();
                        pixels.iter_mut().for_each(|row| row.reverse());
                    }
                    Step::FlipVertical => {
                        plan = plan.flip_vertical();
                        pixels.reverse();
                    }
                }
            }
            let window = plan.window;
            let row = |y| {
                let mut row: Vec<_> = (window.x..window.right()).map(|x| (x, y)).collect();
                if plan.flip_x { row.reverse(); }
                row
            };
            let mut planned: Vec<_> = (window.y..window.bottom()).map(row).collect();
            if plan.flip_y { planned.reverse(); }
            prop_assert_eq!(planned, pixels);
        }
    }

    #[test]
    fn a_second_resize_is_not_planned() {
        let to = |width, height| PlannedResize { width, height, filter: Filter::Bilinear };
        let plan = FramePlan::new(100, 50).crop(Rect { x: 10, y: 0, width: 80, height: 50 }).unwrap();
        let plan = plan.resize(to(40, 25)).unwrap();
        assert_eq!(plan.reduction(), 2.0);
        let plan = plan.flip_horizontal().crop(Rect { x: 0, y: 5, width: 10, height: 20 }).unwrap();
        assert_eq!(plan.kept, Rect { x: 30, y: 5, width: 10, height: 20 });
        assert_eq!(plan.resize(to(10, 20)), Some(plan), "it has that size already");
        assert_eq!(plan.resize(to(20, 20)), None);
    }

    #[test]
    fn a_crop_outside_of_the_picture_is_refused() {
        let plan = FramePlan::new(10, 10);
        for (x, y, width, height) in [(0, 0, 11, 1), (10, 0, 1, 1), (0, 0, 0, 1), (u32::MAX, 0, 2, 1)] {
            assert_eq!(plan.crop(Rect { x, y, width, height }), None);
        }
    }
}
