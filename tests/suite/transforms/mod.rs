//! Transforms of pictures: their results beside those of torchvision and of Pillow, and that none of them
//! ever fails.

mod invariants;
mod peers;
use shardstream::Rng;
use shardstream::image::{Image, ImageMode, Transform, Transforms};

/// What happens to pixels.
fn transformed(image: &Image, transform: impl Transform + 'static, rng: &mut Rng) -> Image {
    try_transformed(image, transform, rng).unwrap()
}

fn try_transformed(
    image: &Image,
    transform: impl Transform + 'static,
    rng: &mut Rng,
) -> shardstream::Result<Image> {
    let file = if image.mode() == ImageMode::L8 { image.to_pgm() } else { image.to_ppm() };
    Transforms::new().then(transform).image(&file.unwrap(), image.mode(), rng)
}
