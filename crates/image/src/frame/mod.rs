//! [`Frame`]: a picture that is read from a file, transformed, and written into a slot of a batch. Crops,
//! flips and one resize are planned before the pixels are decoded.

mod pixel_writer;
mod plan;
mod resample;

pub use pixel_writer::Layout;
pub use pixel_writer::PixelWriter;

use super::checks::within_limit;
use super::convert::{narrow_in_place, widen_in_place};
use super::decode::FrameOptions;
use super::geometry::{Geometry, GeometryStep};
use super::orientation::Orientation;
use super::raster::{Raster, first_bytes};
use super::rectangle::Rect;
use super::{Filter, Image, ImageError, ImageMode, Pixels, Size, decode, jpeg};
use crate::resizer::Format;
use plan::{FramePlan, PlannedResize};
use std::fmt;

/// The working memory of frames, reused from one frame to the next.
#[doc(hidden)]
#[derive(Default)]
pub struct FrameScratch {
    /// The pixels of the current picture, followed by unused bytes.
    pixels: Vec<u8>,
    /// The memory that the next step draws into.
    spare: Vec<u8>,
    decoder: jpeg::JpegScratch,
    resampler: resample::Resampler,
}

impl fmt::Debug for FrameScratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameScratch").finish_non_exhaustive()
    }
}

impl FrameScratch {
    /// Frees memory that an unusually large picture took.
    pub fn trim(&mut self) {
        const MAX_KEPT: usize = 64 << 20;
        for memory in [&mut self.pixels, &mut self.spare, self.decoder.memory()] {
            if memory.capacity() > MAX_KEPT {
                *memory = Vec::new();
            }
        }
        self.resampler.trim(MAX_KEPT);
    }
}

/// A picture to which [transforms](super::Transform) are applied. Its size is known from the start; its
/// pixels are decoded when they are first needed.
///
/// Crops, flips and the first resize are only recorded. When a transform needs pixels, or all transforms are
/// done, only the part that remains is decoded, at the smallest scale that suffices.
pub struct Frame<'a> {
    file: &'a [u8],
    options: FrameOptions,
    /// The headers of a JPEG that is not decoded yet; `None` if the pixels are in the scratch memory.
    jpeg: Option<jpeg::JpegHeaders>,
    /// Whether pixels have 16 bits, in native byte order.
    is_wide: bool,
    /// Width and height of the picture before `orientation` is applied.
    stored: (u32, u32),
    orientation: Orientation,
    plan: FramePlan,
    geometry: Geometry,
    scratch: &'a mut FrameScratch,
}

impl<'a> Frame<'a> {
    /// Opens a file: reads the headers of a JPEG, and decodes any other format.
    #[doc(hidden)]
    pub fn open(
        file: &'a [u8],
        options: FrameOptions,
        scratch: &'a mut FrameScratch,
    ) -> Result<Self, ImageError> {
        if !matches!(options.mode, ImageMode::L8 | ImageMode::Rgb8 | ImageMode::L16 | ImageMode::Rgb16) {
            return Err(ImageError::Mode {
                mode: options.mode,
                format: "a picture of a batch, which is l8, rgb8, l16 or rgb16",
            });
        }
        let decode::OpenedImage { jpeg, is_wide, size: stored, orientation } =
            decode::open(file, options, &mut scratch.pixels)?;
        let orientation = if options.apply_orientation { orientation } else { Orientation::default() };
        let (width, height) = orientation.size(stored);
        let (plan, geometry) = (FramePlan::new(width, height), Geometry::new(Size { height, width }));
        let is_wide = is_wide || options.mode.is_wide();
        Ok(Frame { file, options, jpeg, is_wide, stored, orientation, plan, geometry, scratch })
    }

    /// The size in pixels after the transforms so far.
    #[must_use]
    pub fn size(&self) -> Size {
        Size { height: self.height(), width: self.width() }
    }

    /// The height in pixels after the transforms so far.
    #[must_use]
    pub fn height(&self) -> u32 {
        self.plan.kept.height
    }

    /// The width in pixels after the transforms so far.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.plan.kept.width
    }

    /// The number of channels: 1 (grey) or 3 (red, green, blue).
    #[must_use]
    pub fn channels(&self) -> usize {
        self.options.mode.channels()
    }

    /// Crops to the rectangle of this size, `(height, width)`, whose upper left pixel is in the row `top` and
    /// the column `left`.
    ///
    /// # Errors
    /// [`ImageError::Outside`] if the rectangle is not inside the picture, or has no pixels.
    pub fn crop(&mut self, top: u32, left: u32, size: impl Into<Size>) -> Result<(), ImageError> {
        let part = size.into();
        let rect = Rect { x: left, y: top, width: part.width, height: part.height };
        if self.plan.resize.is_some_and(|to| to.filter == Filter::Nearest) {
            // The whole picture is resized before it is cropped. If only the cropped part were resized, the
            // positions of the nearest pixels would be rounded differently.
            self.draw()?;
        }
        let size = self.size();
        self.plan = self.plan.crop(rect).ok_or(ImageError::Outside { top, left, part, size })?;
        if part != size {
            self.geometry.push(GeometryStep::Crop(rect), part);
        }
        Ok(())
    }

    /// Resizes the picture to `(height, width)`.
    ///
    /// # Errors
    /// [`ImageError::Outside`] for a size of 0 pixels, and the errors of [`pixels`](Frame::pixels) if the
    /// picture has been resized before.
    pub fn resize(&mut self, size: impl Into<Size>, filter: Filter) -> Result<(), ImageError> {
        let part = size.into();
        let (before, Size { height, width }) = (self.size(), part);
        if height == 0 || width == 0 {
            return Err(ImageError::Outside { top: 0, left: 0, part, size: self.size() });
        }
        self.byte_len(width, height)?;
        if filter == Filter::Nearest
            && (self.plan.flip_x || self.plan.flip_y || !self.orientation.is_identity())
        {
            // The plan would resize before it flips. If the centre of a new pixel is exactly between two old
            // pixels, a resize before the flip and a resize after the flip choose different old pixels.
            self.draw()?;
        }
        let resize = PlannedResize { width, height, filter };
        self.plan = match self.plan.resize(resize) {
            Some(plan) => plan,
            None => {
                self.draw()?;
                // After `draw`, the plan has no resize, so `FramePlan::resize` returns `Some`.
                self.plan.resize(resize).unwrap_or(self.plan)
            }
        };
        if part != before {
            self.geometry.push(GeometryStep::Resize(part), part);
        }
        Ok(())
    }

    /// Mirrors the picture: left becomes right.
    pub fn flip_horizontal(&mut self) {
        self.plan = self.plan.flip_horizontal();
        self.geometry.push(GeometryStep::FlipHorizontal, self.size());
    }

    /// Mirrors the picture: top becomes bottom.
    pub fn flip_vertical(&mut self) {
        self.plan = self.plan.flip_vertical();
        self.geometry.push(GeometryStep::FlipVertical, self.size());
    }

    /// The pixels: rows from the top, pixels from the left, the channels of a pixel together. The pixels of a
    /// 16-bit file are scaled to 8 bits.
    ///
    /// # Errors
    /// The errors of decoding, and [`ImageError::Depth`] in a mode of 16 bits.
    pub fn pixels(&mut self) -> Result<&mut [u8], ImageError> {
        self.draw()?;
        self.narrow()?;
        let size = self.byte_len(self.width(), self.height())?;
        Ok(first_bytes(&mut self.scratch.pixels, size))
    }

    /// The pixels in a mode of 16 bits: rows from the top, pixels from the left, the channels of a pixel
    /// together.
    ///
    /// # Errors
    /// The errors of decoding, and [`ImageError::Mode`] in a mode of 8 bits.
    pub fn pixels_u16(&mut self) -> Result<&mut [u16], ImageError> {
        let mode = self.options.mode;
        if !mode.is_wide() {
            return Err(ImageError::Mode { mode, format: "pixels of 16 bits" });
        }
        self.draw()?;
        let size = self.byte_len(self.width(), self.height())?;
        let bytes = first_bytes(&mut self.scratch.pixels, size);
        bytemuck::try_cast_slice_mut(bytes)
            .map_err(|error| ImageError::Decode(format!("memory for 16-bit pixels: {error}").into()))
    }

    /// The pixels as an image.
    pub(super) fn image(&mut self) -> Result<Image, ImageError> {
        let (mode, size) = (self.options.mode, self.size());
        match mode.is_wide() {
            true => Image::new(mode, size, Pixels::U16(self.pixels_u16()?.to_vec())),
            false => Image::new(mode, size, self.pixels()?.to_vec()),
        }
    }

    /// Scales the pixels in memory to 8 bits. Returns an error in a mode of 16 bits.
    fn narrow(&mut self) -> Result<(), ImageError> {
        if self.options.mode.is_wide() {
            return Err(ImageError::Depth(self.options.mode));
        }
        if self.is_wide {
            let size = self.byte_len(self.width(), self.height())?;
            narrow_in_place(first_bytes(&mut self.scratch.pixels, size), size / 2);
            self.is_wide = false;
        }
        Ok(())
    }

    /// Replaces the picture by a new one of this size, `(height, width)`. `draw` gets the current pixels, and
    /// memory with arbitrary content for the pixels of the new picture.
    ///
    /// Boxes and masks cannot follow such a change: see `ImageColumn`. So make a change that moves no pixels,
    /// such as a blur, through [`pixels`](Frame::pixels) instead.
    ///
    /// # Errors
    /// The errors of decoding, and [`ImageError::TooLarge`].
    pub fn redraw(
        &mut self,
        size: impl Into<Size>,
        draw: impl FnOnce(&[u8], &mut [u8]),
    ) -> Result<(), ImageError> {
        self.redraw_as(Some(GeometryStep::Unknown), size.into(), draw)
    }

    /// As [`redraw`](Frame::redraw), for a change that moves pixels in a known way. `step` is that movement;
    /// `None` if the change moves no pixels.
    pub(super) fn redraw_as(
        &mut self,
        step: Option<GeometryStep>,
        size: Size,
        draw: impl FnOnce(&[u8], &mut [u8]),
    ) -> Result<(), ImageError> {
        let Size { height, width } = size;
        self.draw()?;
        self.narrow()?;
        let before = self.byte_len(self.width(), self.height())?;
        let bytes = self.byte_len(width, height)?;
        let FrameScratch { pixels, spare, .. } = &mut *self.scratch;
        draw(first_bytes(pixels, before), first_bytes(spare, bytes));
        std::mem::swap(pixels, spare);
        (self.stored, self.plan) = ((width, height), FramePlan::new(width, height));
        if let Some(step) = step {
            self.geometry.push(step, size);
        }
        Ok(())
    }

    /// How the transforms so far have moved the pixels.
    #[doc(hidden)]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The number of bytes of a picture of this size. Returns an error if the number exceeds the limit.
    fn byte_len(&self, width: u32, height: u32) -> Result<usize, ImageError> {
        within_limit(Size { height, width }, self.pixel_size(), self.options.limit)
    }

    /// The number of bytes of a pixel.
    fn pixel_size(&self) -> usize {
        self.channels() * if self.is_wide { 2 } else { 1 }
    }

    fn format(&self) -> Format {
        Format { channels: self.channels(), wide: self.is_wide }
    }

    /// Executes the plan. Afterwards the pixels are in the scratch memory, and the plan is empty.
    fn draw(&mut self) -> Result<(), ImageError> {
        let (raster, plan, orientation) = self.load()?;
        let (width, height) = (self.width(), self.height());
        if !plan.is_done(raster) {
            self.resample(raster, plan)?;
        }
        self.orient(plan, orientation)?;
        // These fields are set last. So an error leaves the frame unchanged, and a second call returns the
        // same error.
        self.jpeg = None;
        (self.stored, self.orientation) = ((width, height), Orientation::default());
        self.plan = FramePlan::new(width, height);
        Ok(())
    }

    /// Writes the picture into a slot of a batch.
    #[doc(hidden)]
    pub fn write(&mut self, writer: &PixelWriter, slot: &mut [u8]) -> Result<(), ImageError> {
        writer.check(self.size(), slot)?;
        let (raster, plan, orientation) = self.load()?;
        if !plan.is_done(raster) {
            if writer.is_plain() && orientation.is_identity() {
                let format = self.format();
                let FrameScratch { pixels, resampler, .. } = &mut *self.scratch;
                return resampler.draw(pixels, raster, plan, format, slot);
            }
            self.resample(raster, plan)?;
        }
        let mirror = Orientation { flip_x: true, ..Orientation::default() };
        if orientation != mirror {
            self.orient(plan, orientation)?;
        }
        let size = self.byte_len(self.width(), self.height())?;
        writer.write(&self.scratch.pixels[..size], self.is_wide, orientation == mirror, slot)
    }

    /// Decodes the pixels unless they are in memory. Returns the part of the picture that is in memory, and
    /// the plan and the orientation that are still to be applied.
    fn load(&mut self) -> Result<(Raster, FramePlan, Orientation), ImageError> {
        let (plan, orientation) = self.plan.for_stored(self.orientation, self.stored);
        let raster = match &self.jpeg {
            None => Raster::whole(self.stored),
            Some(headers) => {
                let reduction = (plan.reduction() / self.options.reducing_gap.max(1.0)).max(1.0);
                let FrameOptions { verify, .. } = self.options;
                let request =
                    jpeg::DecodeRequest { window: plan.window, reduction, channels: self.channels(), verify };
                let FrameScratch { pixels, decoder, .. } = &mut *self.scratch;
                let raster = jpeg::decode(self.file, headers, request, self.options.limit, decoder, pixels)?;
                if self.is_wide {
                    let (width, height) = raster.size();
                    let bytes = self.byte_len(width, height)?;
                    widen_in_place(first_bytes(&mut self.scratch.pixels, bytes), bytes / 2);
                }
                raster
            }
        };
        Ok((raster, plan, orientation))
    }

    fn resample(&mut self, raster: Raster, plan: FramePlan) -> Result<(), ImageError> {
        let size = self.byte_len(plan.kept.width, plan.kept.height)?;
        let format = self.format();
        let FrameScratch { pixels, spare, resampler, .. } = &mut *self.scratch;
        resampler.draw(pixels, raster, plan, format, first_bytes(spare, size))?;
        std::mem::swap(pixels, spare);
        Ok(())
    }

    fn orient(&mut self, plan: FramePlan, orientation: Orientation) -> Result<(), ImageError> {
        if orientation.is_identity() {
            return Ok(());
        }
        let size = (plan.kept.width, plan.kept.height);
        let bytes = self.byte_len(size.0, size.1)?;
        let pixel = self.pixel_size();
        let FrameScratch { pixels, spare, .. } = &mut *self.scratch;
        orientation.apply(pixels, size, pixel, first_bytes(spare, bytes));
        std::mem::swap(pixels, spare);
        Ok(())
    }
}

impl fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({}, {} channels)", self.size(), self.channels())
    }
}

#[cfg(test)]
mod tests;
