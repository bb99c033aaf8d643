//! Resizes the pixels in memory, and draws the part of the result that a plan keeps.

use super::plan::FramePlan;
use crate::Filter;
use crate::ImageError;
use crate::filter::nearest_pixels;
use crate::raster::{Raster, first_bytes};
use crate::resizer::{Format, Kernel, Part, PixelMemory, resize};
use std::ops::Range;

/// Resizes pictures, and keeps its working memory from one picture to the next.
///
/// The height is resized first, then the width, in two calls of the resizer. The first call does not filter
/// across columns, and the second gets only columns of the window. So no filter uses a pixel outside of the
/// window.
#[derive(Default)]
pub(super) struct Resampler {
    /// The pixels after the first call.
    between: Vec<u8>,
}

impl Resampler {
    /// Frees the memory if it is larger than `max` bytes.
    pub(super) fn trim(&mut self, max: usize) {
        if self.between.capacity() > max {
            self.between = Vec::new();
        }
    }

    /// Draws a part of a picture into `to`: the part that `plan` keeps. `to` has exactly the size of that
    /// part. `from` has the pixels of `raster`, and is not changed.
    pub(super) fn draw(
        &mut self,
        from: &mut [u8],
        raster: Raster,
        plan: FramePlan,
        format: Format,
        to: &mut [u8],
    ) -> Result<(), ImageError> {
        let FramePlan { window, kept, .. } = plan;
        let (width, height) = raster.size();
        let (filter, resized) = plan.resize.map_or((Filter::Nearest, (window.width, window.height)), |to| {
            (to.filter, (to.width, to.height))
        });
        let pixel = format.channels * if format.wide { 2 } else { 1 };
        let Some(kernel) = kernel(filter) else {
            // With the nearest filter, no picture is reduced while it is decoded: `raster.shrink` is 1.
            let across = nearest(window.x - raster.part.x, window.width, resized.0, kept.x..kept.right());
            let down = nearest(window.y - raster.part.y, window.height, resized.1, kept.y..kept.bottom());
            return gather(from, width as usize, pixel, (&across, &down), to);
        };
        let shrink = f64::from(raster.shrink);
        let scaled = |at: u32, origin: u32| f64::from(at.saturating_sub(origin)) / shrink;
        let across = scaled(window.x, raster.part.x)..scaled(window.right(), raster.part.x);
        let down = scaled(window.y, raster.part.y)..scaled(window.bottom(), raster.part.y);
        let across = Axis::new(across, width, resized.0, kept.x..kept.right());
        let down = Axis::new(down, height, resized.1, kept.y..kept.bottom());

        let row = width as usize * pixel;
        let rows = row * down.view.start as usize..row * down.view.end as usize;
        let from = PixelMemory {
            width,
            height: down.view.len() as u32,
            bytes: from.get_mut(rows).unwrap_or_default(),
        };
        let to = PixelMemory { width: kept.width, height: kept.height, bytes: to };
        let part = |left, width| Part { left, top: down.start, width, height: down.length };

        if across.is_whole(kept.width) {
            let part = part(f64::from(across.view.start) + across.start, across.length);
            return resize(format, from, part, kernel, to);
        }
        let needed = across.needed(kernel.support(), kept.width);
        let (width, height) = (needed.len() as u32, kept.height);
        let between = first_bytes(&mut self.between, width as usize * height as usize * pixel);
        let part = part(f64::from(across.view.start + needed.start), f64::from(width));
        resize(format, from, part, kernel, PixelMemory { width, height, bytes: &mut *between })?;
        let left = across.start - f64::from(needed.start);
        let part = Part { left, top: 0.0, width: across.length, height: f64::from(height) };
        resize(format, PixelMemory { width, height, bytes: between }, part, kernel, to)
    }
}

/// The resize of one axis. All numbers are in pixels of the picture in memory.
struct Axis {
    /// The pixels that the filter may use: the pixels of the window, as if the picture had been cropped to
    /// the window.
    view: Range<u32>,
    /// The start of the kept part, relative to `view`.
    start: f64,
    /// The length of the kept part before the resize.
    length: f64,
}

impl Axis {
    /// The part `window` of an axis of `size` pixels is resized to `resized` pixels. Then the range `kept` of
    /// the result is kept.
    fn new(window: Range<f64>, size: u32, resized: u32, kept: Range<u32>) -> Self {
        let view = window.start.floor() as u32..(window.end.ceil() as u32).min(size);
        let step = (window.end - window.start) / f64::from(resized);
        let start = window.start - f64::from(view.start) + f64::from(kept.start) * step;
        let length = f64::from(kept.end - kept.start) * step;
        let rest = f64::from(view.end.saturating_sub(view.start)) - start;
        Axis { view, start, length: length.min(rest) }
    }

    /// Whether the kept part consists of exactly `kept` whole pixels. This axis then needs no resize.
    fn is_whole(&self, kept: u32) -> bool {
        self.length == f64::from(kept) && self.start == self.start.round()
    }

    /// The pixels of the view that contribute to the kept part.
    fn needed(&self, support: f64, kept: u32) -> Range<u32> {
        let radius = support * (self.length / f64::from(kept)).max(1.0);
        let first = (self.start - radius).floor().max(0.0) as u32;
        let last = (self.start + self.length + radius).ceil() as u32;
        first..last.min(self.view.len() as u32)
    }
}

/// The kernel of a filter; `None` if the filter copies pixels.
fn kernel(filter: Filter) -> Option<Kernel> {
    match filter {
        Filter::Nearest => None,
        Filter::Bilinear => Some(Kernel::Bilinear),
        Filter::Bicubic => Some(Kernel::Bicubic),
        Filter::Lanczos => Some(Kernel::Lanczos),
    }
}

/// On one axis, `length` old pixels, from pixel `start` on, are resized to `resized` new pixels. Returns the
/// number of the nearest old pixel for each new pixel in the range `kept`.
fn nearest(start: u32, length: u32, resized: u32, kept: Range<u32>) -> Vec<usize> {
    let all = nearest_pixels(length as usize, resized).map(|at| start as usize + at);
    all.skip(kept.start as usize).take(kept.len()).collect()
}

/// Copies the pixels of the columns `across` in the rows `down`. `width` is the width of the source.
fn gather(
    from: &[u8],
    width: usize,
    pixel: usize,
    (across, down): (&[usize], &[usize]),
    to: &mut [u8],
) -> Result<(), ImageError> {
    match pixel {
        1 => gather_pixels::<1>(from, width, (across, down), to),
        2 => gather_pixels::<2>(from, width, (across, down), to),
        3 => gather_pixels::<3>(from, width, (across, down), to),
        6 => gather_pixels::<6>(from, width, (across, down), to),
        _ => None,
    }
    .ok_or_else(|| ImageError::Decode("a part is not in the decoded picture".into()))
}

fn gather_pixels<const N: usize>(
    from: &[u8],
    width: usize,
    (across, down): (&[usize], &[usize]),
    to: &mut [u8],
) -> Option<()> {
    let (from, to) = (from.as_chunks::<N>().0, to.as_chunks_mut::<N>().0);
    let (first, is_run) = (*across.first()?, across.windows(2).all(|pair| pair[1] == pair[0] + 1));
    for (to, row) in to.chunks_exact_mut(across.len()).zip(down) {
        let row = from.get(row * width..(row + 1) * width)?;
        if is_run {
            to.copy_from_slice(row.get(first..first + across.len())?);
        } else {
            for (to, at) in to.iter_mut().zip(across) {
                *to = *row.get(*at)?;
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::super::plan::PlannedResize;
    use super::*;
    use crate::rectangle::Rect;

    #[test]
    fn resizing_a_part_gives_that_part_of_the_resized_whole() {
        let mut resampler = Resampler::default();
        let mut draw = |from: &[u8], plan: FramePlan| {
            let raster = Raster::whole((plan.window.width, plan.window.height));
            let mut to = vec![0; (plan.kept.width * plan.kept.height) as usize];
            let format = Format { channels: 1, wide: false };
            resampler.draw(&mut from.to_vec(), raster, plan, format, &mut to).unwrap();
            to
        };
        for filter in [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos] {
            for (width, resized) in (1..10).flat_map(|width| (1..28).map(move |resized| (width, resized))) {
                // The rows differ, so that a confusion of rows makes the test fail.
                let from: Vec<u8> = (0..3 * width).map(|at| (at * 97 % 256) as u8).collect();
                let resize = PlannedResize { width: resized, height: 2, filter };
                let Some(plan) = FramePlan::new(width, 3).resize(resize) else { continue };
                let all = draw(&from, plan);
                for (start, end) in
                    (0..resized).flat_map(|start| (start + 1..=resized).map(move |end| (start, end)))
                {
                    let part = Rect { x: start, y: 0, width: end - start, height: 2 };
                    let found = draw(&from, plan.crop(part).unwrap());
                    let rows =
                        all.chunks(resized as usize).flat_map(|row| &row[start as usize..end as usize]);
                    let close = found.iter().zip(rows).all(|(a, b)| a.abs_diff(*b) <= 1);
                    assert!(close, "{filter:?} {width} to {resized}, {start}..{end}");
                }
            }
        }
    }
}
