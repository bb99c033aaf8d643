//! From the pixels in memory to the part that is kept of them, in its size.

use super::plan::Plan;
use super::{Filter, Raster};
use crate::image::{ImageError, ImageMode};
use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::{U8, U8x3};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer};

/// In pixels: less than what lies between the places where filters can stand, which are fractions of sizes.
const OFF: f64 = 1e-8;

/// Resizes, and keeps the memory that it takes.
#[derive(Default)]
pub(super) struct Resampler(Resizer);

impl Resampler {
    /// Lets go of memory beyond so many bytes.
    pub(super) fn trim(&mut self, most: usize) {
        if self.0.size_of_internal_buffers() > most {
            self.0.reset_internal_buffers();
        }
    }

    /// Draws what `plan` keeps of a picture into `to`, which has its size. `from` are the pixels of `raster`.
    pub(super) fn draw(
        &mut self,
        from: &[u8],
        raster: Raster,
        plan: Plan,
        mode: ImageMode,
        to: &mut [u8],
    ) -> Result<(), ImageError> {
        match mode.channels() {
            1 => self.draw_pixels::<U8>(from, raster, plan, to),
            _ => self.draw_pixels::<U8x3>(from, raster, plan, to),
        }
    }

    /// Calls the resizer with one type of view, and only for the pixels that a frame has. `Resizer::resize`, which
    /// chooses among 13 types of pixels at run time, would compile all of them into this crate.
    fn draw_pixels<P: PixelTrait>(
        &mut self,
        from: &[u8],
        raster: Raster,
        plan: Plan,
        to: &mut [u8],
    ) -> Result<(), ImageError> {
        let (width, height) = raster.size();
        let size = width as usize * height as usize * P::size();
        let from = from.get(..size).unwrap_or(from);
        let from = TypedImageRef::<P>::from_buffer(width, height, from).map_err(failed)?;
        let kept = plan.kept;
        let mut to = TypedImage::<P>::from_buffer(kept.width, kept.height, to).map_err(failed)?;

        // The filter must not see what lies outside of the window, as it would not had the window been cut out before.
        let shrink = f64::from(raster.shrink);
        let scaled = |at: u32, origin: u32| f64::from(at.saturating_sub(origin)) / shrink;
        let (left, right) =
            (scaled(plan.window.x, raster.part.x), scaled(plan.window.right(), raster.part.x));
        let (top, bottom) =
            (scaled(plan.window.y, raster.part.y), scaled(plan.window.bottom(), raster.part.y));
        let (view_left, view_top) = (left.floor(), top.floor());
        let view_right = right.ceil().min(f64::from(width));
        let view_bottom = bottom.ceil().min(f64::from(height));
        let (view_width, view_height) = (view_right - view_left, view_bottom - view_top);
        let view = TypedCroppedImage::new(
            from,
            view_left as u32,
            view_top as u32,
            view_width as u32,
            view_height as u32,
        )
        .map_err(failed)?;

        // Of the window as resized, the part that is kept; in pixels of the window as it is.
        let resized = plan.resize.map_or((plan.window.width, plan.window.height), |to| (to.width, to.height));
        let across = (right - left) / f64::from(resized.0);
        let down = (bottom - top) / f64::from(resized.1);
        let x = left - view_left + f64::from(kept.x) * across;
        let y = top - view_top + f64::from(kept.y) * down;
        // The resizer takes the neighbours of the first and the last pixel for the outermost ones of all; but neighbours of
        // no weight it leaves out, and on a whole pixel, all those of a cubic filter have none. So not quite on it.
        let filter = plan.resize.map_or(Filter::Nearest, |to| to.filter);
        let off = match filter {
            Filter::Bicubic if kept.x > 0 => -OFF,
            Filter::Bicubic if kept.right() < resized.0 => OFF,
            _ => 0.0,
        };
        let x = x + off;
        let wide = (f64::from(kept.width) * across).min(view_width - x);
        let high = (f64::from(kept.height) * down).min(view_height - y);
        let options =
            ResizeOptions::new().resize_alg(algorithm(filter)).crop(x, y, wide, high).use_alpha(false);
        self.0.resize_typed(&view, &mut to, &options).map_err(failed)
    }
}

fn algorithm(filter: Filter) -> ResizeAlg {
    match filter {
        Filter::Nearest => ResizeAlg::Nearest,
        Filter::Bilinear => ResizeAlg::Convolution(FilterType::Bilinear),
        Filter::Bicubic => ResizeAlg::Convolution(FilterType::CatmullRom),
        Filter::Lanczos => ResizeAlg::Convolution(FilterType::Lanczos3),
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> ImageError {
    ImageError::Decode(error.into())
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Rect, Resize};
    use super::*;

    #[test]
    fn a_part_of_what_is_resized_is_that_part() {
        let mut resampler = Resampler::default();
        let mut draw = |from: &[u8], plan: Plan| {
            let raster = Raster::whole((plan.window.width, plan.window.height));
            let mut to = vec![0; (plan.kept.width * plan.kept.height) as usize];
            resampler.draw(from, raster, plan, ImageMode::L8, &mut to).unwrap();
            to
        };
        for filter in [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos] {
            for (width, resized) in (1..10).flat_map(|width| (1..28).map(move |resized| (width, resized))) {
                // Rows that differ, so that none is taken for another one.
                let from: Vec<u8> = (0..3 * width).map(|at| (at * 97 % 256) as u8).collect();
                let resize = Resize { width: resized, height: 2, filter };
                let Some(plan) = Plan::new(width, 3).resize(resize) else { continue };
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
