//! From the pixels in memory to the part that is kept of them, in its size.

use super::plan::Plan;
use super::{Filter, Raster};
use crate::image::{ImageError, ImageMode};
use fast_image_resize::images::{CroppedImage, Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

/// Resizes, and keeps the memory that it takes.
#[derive(Default)]
pub(super) struct Resampler(Resizer);

impl Resampler {
    /// Draws what `plan` keeps of a picture into `to`, which has its size. `from` are the pixels of `raster`.
    pub(super) fn draw(
        &mut self,
        from: &[u8],
        raster: Raster,
        plan: Plan,
        mode: ImageMode,
        to: &mut [u8],
    ) -> Result<(), ImageError> {
        let kind = if mode.channels() == 1 { PixelType::U8 } else { PixelType::U8x3 };
        let (width, height) = raster.size();
        let size = width as usize * height as usize * mode.channels();
        let from = from.get(..size).unwrap_or(from);
        let from = ImageRef::new(width, height, from, kind).map_err(failed)?;
        let mut to = Image::from_slice_u8(plan.kept.width, plan.kept.height, to, kind).map_err(failed)?;

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
        let view = CroppedImage::new(
            &from,
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
        let x = left - view_left + f64::from(plan.kept.x) * across;
        let y = top - view_top + f64::from(plan.kept.y) * down;
        let wide = (f64::from(plan.kept.width) * across).min(view_width - x);
        let high = (f64::from(plan.kept.height) * down).min(view_height - y);
        let options = ResizeOptions::new()
            .resize_alg(algorithm(plan.resize.map_or(Filter::Nearest, |to| to.filter)))
            .crop(x, y, wide, high)
            .use_alpha(false);
        self.0.resize(&view, &mut to, &options).map_err(failed)
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
