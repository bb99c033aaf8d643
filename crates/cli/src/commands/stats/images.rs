//! Mean and standard deviation of the channels of images.

use bytes::Bytes;
use serde::Serialize;
use shardstream::image::{Image, ImageMode};
use shardstream::{Error, Result};
use std::fmt;

/// Sums over the pixels of images, by channel. The sums are exact, since pixel values are integers from 0 to
/// 255.
#[derive(Debug, Default)]
pub(super) struct ChannelSums {
    pub(super) images: u64,
    pixels: u128,
    sums: [u128; 3],
    squares: [u128; 3],
}

/// Mean and standard deviation of red, green and blue, for pixel values from 0 to 1.
#[derive(Debug, Serialize)]
pub(super) struct ImageStats {
    images: u64,
    mean: [f64; 3],
    std: [f64; 3],
}

impl ChannelSums {
    /// Decodes an image file and adds its pixels. Every pixel has the same weight.
    ///
    /// # Errors
    /// [`Decode`](shardstream::ErrorKind::Decode) if the file cannot be decoded.
    pub(super) fn add(&mut self, field: &str, file: &Bytes) -> Result<()> {
        let image = Image::decode(file, ImageMode::Rgb8).map_err(|error| Error::decode(field, error))?;
        let (mut sums, mut squares) = ([0_u64; 3], [0_u64; 3]);
        for pixel in image.as_u8().unwrap_or_default().chunks_exact(3) {
            for (channel, number) in pixel.iter().enumerate() {
                let number = u64::from(*number);
                sums[channel] += number;
                squares[channel] += number * number;
            }
        }
        self.images += 1;
        self.pixels += u128::from(image.height()) * u128::from(image.width());
        for channel in 0..3 {
            self.sums[channel] += u128::from(sums[channel]);
            self.squares[channel] += u128::from(squares[channel]);
        }
        Ok(())
    }

    pub(super) fn merge(&mut self, other: &ChannelSums) {
        self.images += other.images;
        self.pixels += other.pixels;
        for channel in 0..3 {
            self.sums[channel] += other.sums[channel];
            self.squares[channel] += other.squares[channel];
        }
    }

    pub(super) fn document(&self) -> ImageStats {
        let pixels = self.pixels.max(1) as f64;
        let mean = self.sums.map(|sum| sum as f64 / pixels);
        let std = [0, 1, 2].map(|channel| {
            let variance = self.squares[channel] as f64 / pixels - mean[channel] * mean[channel];
            variance.max(0.0).sqrt() / 255.0
        });
        ImageStats { images: self.images, mean: mean.map(|mean| mean / 255.0), std }
    }
}

impl fmt::Display for ChannelSums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ImageStats { images, mean, std } = self.document();
        let shown = |[r, g, b]: [f64; 3]| format!("[{r:.4}, {g:.4}, {b:.4}]");
        writeln!(f, "  mean    {} of {}", shown(mean), crate::text::counted(images, "image"))?;
        write!(f, "  std     {}", shown(std))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pixel_of_every_image_has_the_same_weight() {
        let file = |pixels: Vec<u8>| {
            let width = pixels.len() as u32 / 3;
            Bytes::from(Image::new(ImageMode::Rgb8, (1, width), pixels).unwrap().to_png().unwrap())
        };
        let mut channels = ChannelSums::default();
        channels.add("png", &file(vec![0, 255, 51])).unwrap();
        let mut other = ChannelSums::default();
        other.add("png", &file(vec![255, 255, 51, 255, 255, 51, 0, 255, 51])).unwrap();
        channels.merge(&other);
        let ImageStats { images, mean, std } = channels.document();
        assert_eq!((images, mean), (2, [0.5, 1.0, 0.2]));
        assert!((std[0] - 0.5).abs() < 1e-12 && std[1] == 0.0 && std[2] < 1e-9, "{std:?}");
    }
}
