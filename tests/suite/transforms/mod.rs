//! Transforms of images: their results match torchvision and Pillow, and none of them panics.

mod followers;
mod invariants;
mod peers;
use shardstream::Rng;
use shardstream::image::{Image, ImageMode, Transform, Transforms};

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
