//! Encoding of pixels to image files.

use super::{Image, ImageError, Pixels};
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::codecs::pnm::{PnmEncoder, PnmSubtype, SampleEncoding};
use image::codecs::webp::WebPEncoder;
use image::{ExtendedColorType, ImageEncoder};
use std::borrow::Cow;

impl Image {
    /// Encodes the image as PNG.
    ///
    /// # Errors
    /// See [`ImageError`]. Values of type `f32` must be from 0 to 1, and are rounded to 8 bits. Values of 16
    /// bits keep their precision here; the functions for the other formats return [`ImageError::Mode`] for
    /// them.
    pub fn to_png(&self) -> Result<Vec<u8>, ImageError> {
        let mut file = Vec::new();
        self.write(PngEncoder::new(&mut file))?;
        Ok(file)
    }

    /// Encodes the image as JPEG with a quality from 1 to 100, without chroma subsampling.
    ///
    /// # Errors
    /// As [`to_png`](Image::to_png), [`ImageError::Quality`] for a quality that is not from 1 to 100, and
    /// [`ImageError::Mode`] for pixels with opacity, which JPEG cannot store.
    pub fn to_jpeg(&self, quality: u8) -> Result<Vec<u8>, ImageError> {
        self.require(&[1, 3], "JPEG")?;
        if !(1..=100).contains(&quality) {
            return Err(ImageError::Quality(quality));
        }
        let mut file = Vec::new();
        self.write(JpegEncoder::new_with_quality(&mut file, quality))?;
        Ok(file)
    }

    /// Encodes the image as lossless WebP.
    ///
    /// # Errors
    /// As [`to_png`](Image::to_png).
    pub fn to_webp(&self) -> Result<Vec<u8>, ImageError> {
        self.require(&[1, 3, 4], "WebP")?;
        let mut file = Vec::new();
        self.write(WebPEncoder::new_lossless(&mut file))?;
        Ok(file)
    }

    /// Encodes a colour image as PPM.
    ///
    /// # Errors
    /// As [`to_png`](Image::to_png), and [`ImageError::Mode`] for an image that is not RGB.
    pub fn to_ppm(&self) -> Result<Vec<u8>, ImageError> {
        self.require(&[3], "PPM")?;
        let mut file = Vec::new();
        self.write(PnmEncoder::new(&mut file).with_subtype(PnmSubtype::Pixmap(SampleEncoding::Binary)))?;
        Ok(file)
    }

    /// Encodes a grey image as PGM.
    ///
    /// # Errors
    /// As [`to_png`](Image::to_png), and [`ImageError::Mode`] for an image that is not grey.
    pub fn to_pgm(&self) -> Result<Vec<u8>, ImageError> {
        self.require(&[1], "PGM")?;
        let mut file = Vec::new();
        self.write(PnmEncoder::new(&mut file).with_subtype(PnmSubtype::Graymap(SampleEncoding::Binary)))?;
        Ok(file)
    }

    fn require(&self, channels: &[usize], format: &'static str) -> Result<(), ImageError> {
        if channels.contains(&self.mode.channels()) && !self.mode.is_wide() {
            Ok(())
        } else {
            Err(ImageError::Mode { mode: self.mode, format })
        }
    }

    fn write(&self, encoder: impl ImageEncoder) -> Result<(), ImageError> {
        let color = match (self.mode.channels(), self.mode.is_wide()) {
            (1, false) => ExtendedColorType::L8,
            (1, true) => ExtendedColorType::L16,
            (3, false) => ExtendedColorType::Rgb8,
            (3, true) => ExtendedColorType::Rgb16,
            _ => ExtendedColorType::Rgba8,
        };
        encoder
            .write_image(&self.numbers()?, self.size.width, self.size.height, color)
            .map_err(|error| ImageError::Encode(error.into()))
    }

    /// The values as bytes: a value of 16 bits has two bytes in native order, any other value has one byte.
    fn numbers(&self) -> Result<Cow<'_, [u8]>, ImageError> {
        match &self.pixels {
            Pixels::U8(pixels) => Ok(Cow::Borrowed(pixels)),
            Pixels::U16(pixels) => Ok(Cow::Borrowed(bytemuck::cast_slice(pixels))),
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
