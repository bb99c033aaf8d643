//! Shows images: on a contact sheet, and as characters in a terminal.

use shardstream::image::{Filter, Frame, Image, ImageMode, Size, Transforms};
use shardstream::{Result, Rng};
use std::fmt::Write;

/// A contact sheet: thumbnails in rows on a white background.
#[derive(Debug)]
pub(crate) struct ContactSheet {
    /// Maximum height and width of a thumbnail, in pixels.
    side: u32,
    columns: u32,
    thumbnails: Vec<Image>,
}

/// Pixels between thumbnails.
const GAP: u32 = 4;

impl ContactSheet {
    pub(crate) fn new(side: u32, columns: u32) -> Self {
        ContactSheet { side: side.max(1), columns: columns.max(1), thumbnails: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.thumbnails.len()
    }

    /// Decodes an image file and adds its thumbnail.
    ///
    /// # Errors
    /// If the image cannot be decoded.
    pub(crate) fn add(&mut self, file: &[u8]) -> Result<()> {
        self.thumbnails.push(fitted(file, self.side, self.side)?);
        Ok(())
    }

    /// Renders the sheet as one RGB image.
    ///
    /// # Errors
    /// None in practice: the pixels always match the size.
    pub(crate) fn image(&self) -> Result<Image> {
        let cell = self.side + GAP;
        let columns = self.columns.min(self.thumbnails.len().max(1) as u32);
        let rows = (self.thumbnails.len().max(1) as u32).div_ceil(columns);
        let (height, width) = (rows * cell + GAP, columns * cell + GAP);
        let mut pixels = vec![255; height as usize * width as usize * 3];
        for (number, image) in self.thumbnails.iter().enumerate() {
            let (row, column) = (number as u32 / columns, number as u32 % columns);
            // Centre the thumbnail in its cell.
            let top = GAP + row * cell + (self.side - image.height()) / 2;
            let left = GAP + column * cell + (self.side - image.width()) / 2;
            let line = image.width() as usize * 3;
            let from = image.as_u8().unwrap_or_default().chunks_exact(line);
            for (y, from) in from.enumerate() {
                let at = ((top as usize + y) * width as usize + left as usize) * 3;
                pixels[at..at + line].copy_from_slice(from);
            }
        }
        Ok(Image::new(ImageMode::Rgb8, (height, width), pixels)?)
    }
}

/// Decodes an image and shrinks it to fit into `height` x `width` pixels. An image that fits keeps its size.
fn fitted(file: &[u8], height: u32, width: u32) -> Result<Image> {
    let fit = move |frame: &mut Frame<'_>, _: &mut Rng| {
        let Size { height: h, width: w } = frame.size();
        let scale = (f64::from(height) / f64::from(h)).min(f64::from(width) / f64::from(w));
        if scale < 1.0 {
            let reduced = |side: u32, max: u32| ((f64::from(side) * scale).round() as u32).clamp(1, max);
            frame.resize((reduced(h, height), reduced(w, width)), Filter::Bilinear)?;
        }
        Ok(())
    };
    Transforms::new().then(fit).image(file, ImageMode::Rgb8, &mut Rng::new(0, 0, 0))
}

/// Renders an image as coloured half blocks, two pixels in each character, at most `columns` characters wide.
///
/// # Errors
/// If the image cannot be decoded.
pub(crate) fn half_blocks(file: &[u8], columns: u32) -> Result<String> {
    let image = fitted(file, columns, columns)?;
    let line = image.width() as usize * 3;
    let rows: Vec<&[u8]> = image.as_u8().unwrap_or_default().chunks_exact(line).collect();
    let mut text = String::new();
    for pair in rows.chunks(2) {
        for (column, upper) in pair[0].chunks_exact(3).enumerate() {
            let lower = pair.get(1).map(|row| &row[column * 3..column * 3 + 3]);
            // Writing to a String does not fail.
            let _ = write!(text, "\x1b[38;2;{};{};{}m", upper[0], upper[1], upper[2]);
            let _ = match lower {
                Some(lower) => write!(text, "\x1b[48;2;{};{};{}m▀", lower[0], lower[1], lower[2]),
                None => write!(text, "\x1b[49m▀"),
            };
        }
        text.push_str("\x1b[0m\n");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(height: u32, width: u32, pixel: [u8; 3]) -> Vec<u8> {
        let pixels = pixel.repeat(height as usize * width as usize);
        Image::new(ImageMode::Rgb8, (height, width), pixels).unwrap().to_png().unwrap()
    }

    #[test]
    fn images_fit_and_are_centred() {
        let mut sheet = ContactSheet::new(8, 2);
        for image in [png(16, 8, [9, 9, 9]), png(2, 2, [0, 0, 0]), png(4, 400, [7, 7, 7])] {
            sheet.add(&image).unwrap();
        }
        let image = sheet.image().unwrap();
        assert_eq!((image.height(), image.width()), (28, 28));
        let pixel = |y: usize, x: usize| image.as_u8().unwrap()[(y * 28 + x) * 3];
        assert_eq!((pixel(4, 5), pixel(4, 6), pixel(11, 9), pixel(11, 10)), (255, 9, 9, 255));
        assert_eq!((pixel(7, 19), pixel(6, 19), pixel(19, 4)), (0, 255, 7));
    }

    #[test]
    fn a_line_of_characters_shows_two_rows_of_pixels() {
        let text = half_blocks(&png(3, 2, [1, 2, 3]), 40).unwrap();
        let both = "\x1b[38;2;1;2;3m\x1b[48;2;1;2;3m▀".repeat(2);
        let upper = "\x1b[38;2;1;2;3m\x1b[49m▀".repeat(2);
        assert_eq!(text, format!("{both}\x1b[0m\n{upper}\x1b[0m\n"));
    }
}
