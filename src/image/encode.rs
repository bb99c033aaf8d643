//! From pixels to files.

use super::{Image, ImageError, Pixels};
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::codecs::pnm::{PnmEncoder, PnmSubtype, SampleEncoding};
use image::codecs::webp::WebPEncoder;
use image::{ExtendedColorType, ImageEncoder};
use std::borrow::Cow;

impl Image {
    /// Writes a PNG.
    ///
    /// # Errors
    /// See [`ImageError`]; pixels of `f32` must be from 0 to 1, and become the nearest number of 8 bits.
    pub fn to_png(&self) -> Result<Vec<u8>, ImageError> {
        let mut file = Vec::new();
        self.write(PngEncoder::new(&mut file))?;
        Ok(file)
    }

    /// Writes a JPEG of a quality from 1 to 100, its colours at full resolution.
    ///
    /// # Errors
    /// As [`to_png`](Image::to_png), [`ImageError::Quality`] for another quality, and [`ImageError::Mode`]
    /// for pixels with opacity, which JPEG has no place for.
    pub fn to_jpeg(&self, quality: u8) -> Result<Vec<u8>, ImageError> {
        self.require(&[1, 3], "JPEG")?;
        if !(1..=100).contains(&quality) {
            return Err(ImageError::Quality(quality));
        }
        let mut file = Vec::new();
        self.write(JpegEncoder::new_with_quality(&mut file, quality))?;
        Ok(file)
    }

    /// Writes a lossless WebP.
    ///
    /// # Errors
    /// As [`to_png`](Image::to_png).
    pub fn to_webp(&self) -> Result<Vec<u8>, ImageError> {
        let mut file = Vec::new();
        self.write(WebPEncoder::new_lossless(&mut file))?;
        Ok(file)
    }

    /// Writes a PPM of colour pixels.
    ///
    /// # Errors
    /// As [`to_png`](Image::to_png), and [`ImageError::Mode`] for other pixels.
    pub fn to_ppm(&self) -> Result<Vec<u8>, ImageError> {
        self.require(&[3], "PPM")?;
        let mut file = Vec::new();
        self.write(PnmEncoder::new(&mut file).with_subtype(PnmSubtype::Pixmap(SampleEncoding::Binary)))?;
        Ok(file)
    }

    /// Writes a PGM of grey pixels.
    ///
    /// # Errors
    /// As [`to_png`](Image::to_png), and [`ImageError::Mode`] for other pixels.
    pub fn to_pgm(&self) -> Result<Vec<u8>, ImageError> {
        self.require(&[1], "PGM")?;
        let mut file = Vec::new();
        self.write(PnmEncoder::new(&mut file).with_subtype(PnmSubtype::Graymap(SampleEncoding::Binary)))?;
        Ok(file)
    }

    fn require(&self, channels: &[usize], format: &'static str) -> Result<(), ImageError> {
        if channels.contains(&self.mode.channels()) {
            Ok(())
        } else {
            Err(ImageError::Mode { mode: self.mode, format })
        }
    }

    fn write(&self, encoder: impl ImageEncoder) -> Result<(), ImageError> {
        let color = match self.mode.channels() {
            1 => ExtendedColorType::L8,
            3 => ExtendedColorType::Rgb8,
            _ => ExtendedColorType::Rgba8,
        };
        encoder
            .write_image(&self.numbers()?, self.size.width, self.size.height, color)
            .map_err(|error| ImageError::Encode(error.into()))
    }

    /// The pixels in 8 bits.
    fn numbers(&self) -> Result<Cow<'_, [u8]>, ImageError> {
        match &self.pixels {
            Pixels::U8(pixels) => Ok(Cow::Borrowed(pixels)),
            Pixels::F32(pixels) => pixels
                .iter()
                .map(|number| match number {
                    0.0..=1.0 => Ok((number * 255.0).round() as u8),
                    other => Err(ImageError::Range(*other)),
                })
                .collect::<Result<Vec<u8>, _>>()
                .map(Cow::Owned),
        }
    }
}
