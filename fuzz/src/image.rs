//! Decoding any bytes with transforms returns an image of the requested size or an error. Shrinking any bytes
//! returns a smaller file, returns the file unchanged, or returns an error.

use shardstream::Rng;
use shardstream::image::{Filter, Frame, Image, ImageMode, Shrink, Shrunk, Transforms};

/// The first six bytes choose the crop, the size and the transforms; the rest is the file.
pub fn run(data: &[u8]) {
    let &[x, y, width, height, size, how, ref file @ ..] = data else { return };
    let size = u32::from(size % 64) + 1;
    let filter = [Filter::Nearest, Filter::Bilinear, Filter::Bicubic, Filter::Lanczos][usize::from(how % 4)];
    let apply = move |frame: &mut Frame<'_>, _: &mut Rng| {
        let some = |number: u8, of: u32| u32::from(number).checked_rem(of).unwrap_or(0);
        let (x, y) = (some(x, frame.width()), some(y, frame.height()));
        let (width, height) = (1 + some(width, frame.width() - x), 1 + some(height, frame.height() - y));
        frame.crop(y, x, (height, width))?;
        if how & 4 > 0 {
            frame.flip_horizontal();
        }
        if how & 32 > 0 {
            frame.flip_vertical();
        }
        if how & 8 > 0 {
            frame.resize((size / 2 + 1, size), filter)?;
            frame.crop(0, size / 3, (size / 2 + 1, size - size / 3))?;
        }
        Ok(())
    };
    let mode = if how & 16 > 0 { ImageMode::L8 } else { ImageMode::Rgb8 };
    let transforms = Transforms::new().then(apply);
    if let Ok(image) = transforms.image(file, mode, &mut Rng::new(0, 0, 0)) {
        assert!(image.width() > 0 && image.height() > 0);
        if how & 8 > 0 {
            assert_eq!((image.height(), image.width()), (size / 2 + 1, size - size / 3));
        }
    }
    let shrink = Shrink::max_side(size).expect("at least 1").grey_and_palette(how & 32 > 0);
    if let Ok(Shrunk::Resized(smaller)) = shrink.apply(file) {
        let image = Image::decode(&smaller, mode).expect("a file that was just written");
        assert_eq!(image.width().max(image.height()), size);
    }
}
