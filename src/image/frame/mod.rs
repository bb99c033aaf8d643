//! A picture on its way from a file to a batch.

mod plan;
mod resample;
mod write;

pub use write::Layout;
pub(crate) use write::Writer;

use super::decode::Opening;
use super::geometry::{Geometry, Step};
use super::orientation::Orientation;
use super::raster::{Raster, room};
use super::rectangle::Rect;
use super::{Filter, ImageError, ImageMode, Size, decode, jpeg};
use plan::{Plan, Resize};
use std::fmt;

/// The memory that frames work in, reused from one frame to the next.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Begins with the pixels of the current picture.
    pixels: Vec<u8>,
    /// The memory that the next step draws into.
    spare: Vec<u8>,
    decoder: jpeg::Scratch,
    resampler: resample::Resampler,
}

impl Scratch {
    /// Frees memory that an unusually large picture took.
    pub(crate) fn trim(&mut self) {
        const MOST: usize = 64 << 20;
        for memory in [&mut self.pixels, &mut self.spare, self.decoder.memory()] {
            if memory.capacity() > MOST {
                *memory = Vec::new();
            }
        }
        self.resampler.trim(MOST);
    }
}

/// A picture that [transforms](super::Transform) work on. Its size is known; its pixels are decoded when they
/// are first needed.
///
/// Crops, flips and the first resize are only recorded. When pixels are needed, or all transforms are done,
/// the remaining part is decoded, at the smallest scale that suffices.
pub struct Frame<'a> {
    file: &'a [u8],
    opening: Opening,
    /// The headers of a JPEG that is not decoded yet; `None` if the pixels are in the scratch memory.
    jpeg: Option<jpeg::Headers>,
    /// Width and height of the picture as stored.
    stored: (u32, u32),
    turn: Orientation,
    plan: Plan,
    geometry: Geometry,
    scratch: &'a mut Scratch,
}

impl<'a> Frame<'a> {
    /// Opens a file: reads the headers of a JPEG, and decodes any other format.
    pub(crate) fn open(
        file: &'a [u8],
        opening: Opening,
        scratch: &'a mut Scratch,
    ) -> Result<Self, ImageError> {
        if !matches!(opening.mode, ImageMode::L8 | ImageMode::Rgb8) {
            return Err(ImageError::Mode {
                mode: opening.mode,
                format: "a picture of a batch, which is l8 or rgb8",
            });
        }
        let decode::Opened { jpeg, size: stored, turn } = decode::open(file, opening, &mut scratch.pixels)?;
        let turn = if opening.upright { turn } else { Orientation::default() };
        let (width, height) = turn.size(stored);
        let (plan, geometry) = (Plan::new(width, height), Geometry::new(Size { height, width }));
        Ok(Frame { file, opening, jpeg, stored, turn, plan, geometry, scratch })
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
        self.opening.mode.channels()
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
            // The choice of the nearest pixel must not depend on how the position of the part is rounded.
            self.draw()?;
        }
        let size = self.size();
        self.plan = self.plan.crop(rect).ok_or(ImageError::Outside { top, left, part, size })?;
        if part != size {
            self.geometry.push(Step::Crop(rect), part);
        }
        Ok(())
    }

    /// Resizes the picture to `(height, width)`.
    ///
    /// # Errors
    /// [`ImageError::Outside`] for a size of 0 pixels, and those of [`pixels`](Frame::pixels) if the picture
    /// has been resized before.
    pub fn resize(&mut self, size: impl Into<Size>, filter: Filter) -> Result<(), ImageError> {
        let part = size.into();
        let (before, Size { height, width }) = (self.size(), part);
        if height == 0 || width == 0 {
            return Err(ImageError::Outside { top: 0, left: 0, part, size: self.size() });
        }
        self.check(width, height)?;
        let resize = Resize { width, height, filter };
        self.plan = match self.plan.resize(resize) {
            Some(plan) => plan,
            None => {
                self.draw()?;
                // The plan of a picture that has just been drawn has no resize.
                self.plan.resize(resize).unwrap_or(self.plan)
            }
        };
        if part != before {
            self.geometry.push(Step::Resize(part), part);
        }
        Ok(())
    }

    /// Mirrors the picture: left becomes right.
    pub fn flip_horizontal(&mut self) {
        self.plan = self.plan.flip();
        self.geometry.push(Step::Flip, self.size());
    }

    /// The pixels: rows from the top, pixels from the left, the channels of a pixel together.
    ///
    /// # Errors
    /// Those of decoding.
    pub fn pixels(&mut self) -> Result<&mut [u8], ImageError> {
        self.draw()?;
        let size = self.check(self.width(), self.height())?;
        Ok(room(&mut self.scratch.pixels, size))
    }

    /// Replaces the picture by a new one of this size, `(height, width)`. `draw` gets the current pixels, and
    /// memory with arbitrary content for those of the new picture.
    ///
    /// Boxes and masks cannot follow such a change: see [`ImageColumn`](crate::collate::ImageColumn::boxes).
    /// For their sake, a change that moves no pixels, such as a blur, is made in [`pixels`](Frame::pixels).
    ///
    /// # Errors
    /// Those of decoding, and [`ImageError::TooLarge`].
    pub fn redraw(
        &mut self,
        size: impl Into<Size>,
        draw: impl FnOnce(&[u8], &mut [u8]),
    ) -> Result<(), ImageError> {
        self.redraw_as(Some(Step::Unknown), size.into(), draw)
    }

    /// As [`redraw`](Frame::redraw), for a change that is known to move pixels by this step, or to move none.
    pub(super) fn redraw_as(
        &mut self,
        step: Option<Step>,
        size: Size,
        draw: impl FnOnce(&[u8], &mut [u8]),
    ) -> Result<(), ImageError> {
        let Size { height, width } = size;
        self.draw()?;
        let before = self.check(self.width(), self.height())?;
        let bytes = self.check(width, height)?;
        let Scratch { pixels, spare, .. } = &mut *self.scratch;
        draw(room(pixels, before), room(spare, bytes));
        std::mem::swap(pixels, spare);
        (self.stored, self.plan) = ((width, height), Plan::new(width, height));
        if let Some(step) = step {
            self.geometry.push(step, size);
        }
        Ok(())
    }

    /// How the transforms so far moved the pixels.
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The number of bytes of a picture of this size, which must be within the limit.
    fn check(&self, width: u32, height: u32) -> Result<usize, ImageError> {
        let limit = self.opening.limit;
        let pixels = u64::from(width) * u64::from(height);
        let size = pixels.checked_mul(self.channels() as u64).and_then(|size| usize::try_from(size).ok());
        size.filter(|size| *size <= limit).ok_or(ImageError::TooLarge { size: Size { height, width }, limit })
    }

    /// Executes the plan: the pixels are in the scratch memory then, and the plan is empty.
    fn draw(&mut self) -> Result<(), ImageError> {
        let (raster, plan, turn) = self.load()?;
        let (width, height) = (self.width(), self.height());
        if !plan.is_done(raster) {
            self.resample(raster, plan)?;
        }
        self.turn(plan, turn)?;
        // Only now: after an error the frame is unchanged, and another call returns the error again.
        self.jpeg = None;
        (self.stored, self.turn) = ((width, height), Orientation::default());
        self.plan = Plan::new(width, height);
        Ok(())
    }

    /// Writes the picture into a slot of a batch.
    pub(crate) fn write(&mut self, writer: &Writer, slot: &mut [u8]) -> Result<(), ImageError> {
        writer.check(self.size(), slot)?;
        let (raster, plan, turn) = self.load()?;
        if !plan.is_done(raster) {
            if writer.is_plain() && turn.is_none() {
                let Scratch { pixels, resampler, .. } = &mut *self.scratch;
                return resampler.draw(pixels, raster, plan, self.opening.mode, slot);
            }
            self.resample(raster, plan)?;
        }
        let mirror = Orientation { flip_x: true, ..Orientation::default() };
        if turn != mirror {
            self.turn(plan, turn)?;
        }
        let size = self.check(self.width(), self.height())?;
        writer.write(&self.scratch.pixels[..size], turn == mirror, slot);
        Ok(())
    }

    /// Decodes the pixels unless they are in memory. Returns the part of the picture that they show, and the
    /// plan and the orientation to be applied to them.
    fn load(&mut self) -> Result<(Raster, Plan, Orientation), ImageError> {
        let (plan, turn) = self.plan.before(self.turn, self.stored);
        let raster = match &self.jpeg {
            None => Raster::whole(self.stored),
            Some(headers) => {
                let most = (plan.reduction() / self.opening.reducing_gap.max(1.0)).max(1.0);
                let Opening { verify, .. } = self.opening;
                let request = jpeg::DecodeRequest {
                    window: plan.window,
                    reduction: most,
                    channels: self.channels(),
                    verify,
                };
                let Scratch { pixels, decoder, .. } = &mut *self.scratch;
                jpeg::decode(self.file, headers, request, self.opening.limit, decoder, pixels)?
            }
        };
        Ok((raster, plan, turn))
    }

    fn resample(&mut self, raster: Raster, plan: Plan) -> Result<(), ImageError> {
        let size = self.check(plan.kept.width, plan.kept.height)?;
        let Scratch { pixels, spare, resampler, .. } = &mut *self.scratch;
        resampler.draw(pixels, raster, plan, self.opening.mode, room(spare, size))?;
        std::mem::swap(pixels, spare);
        Ok(())
    }

    fn turn(&mut self, plan: Plan, turn: Orientation) -> Result<(), ImageError> {
        if turn.is_none() {
            return Ok(());
        }
        let size = (plan.kept.width, plan.kept.height);
        let bytes = self.check(size.0, size.1)?;
        let channels = self.channels();
        let Scratch { pixels, spare, .. } = &mut *self.scratch;
        turn.draw(pixels, size, channels, room(spare, bytes));
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
