//! With any image and any options, a transform does not panic and returns an image of the promised size.

use super::{transformed, try_transformed};
use crate::support::Every;
use proptest::prelude::*;
use shardstream::Rng;
use shardstream::image::*;
use std::ops::RangeInclusive;

fn picture() -> impl Strategy<Value = Image> {
    (1..=64u32, 1..=64u32, any::<bool>(), any::<u64>()).prop_map(|(width, height, color, seed)| {
        let mode = if color { ImageMode::Rgb8 } else { ImageMode::L8 };
        let mut rng = Rng::new(seed, 0, 0);
        // Some images have few different values, and some have many.
        let most = 1 << (seed % 9);
        let pixels: Vec<u8> =
            (0..width * height * mode.channels() as u32).map(|_| rng.below(most) as u8).collect();
        Image::new(mode, (height, width), pixels).unwrap()
    })
}

fn range(least: f64, most: f64) -> impl Strategy<Value = RangeInclusive<f64>> {
    (least..=most, least..=most).prop_map(|(a, b)| a.min(b)..=a.max(b))
}

fn filter() -> impl Strategy<Value = Filter> {
    prop::sample::select(vec![Filter::Nearest, Filter::Bilinear, Filter::Bicubic, Filter::Lanczos])
}

fn size() -> impl Strategy<Value = (u32, u32)> {
    (1..=80u32, 1..=80u32)
}

fn size_of(image: &Image) -> (u32, u32) {
    (image.height(), image.width())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn parts(
        image in picture(), seed: u64, to in size(), filter in filter(), padding in (0..9u32, 0..9u32),
        scale in range(0.0, 2.0), ratio in range(0.01, 100.0), side in 1..80u32, more in 1..80u32,
    ) {
        let rng = &mut Rng::new(seed, 1, 2);
        let was = size_of(&image);
        // Options must be valid: no scale above 1, and no border that leaves nothing of the image.
        let scale = scale.start().min(1.0)..=*scale.end();
        let padding = (padding.0.min(to.0 - 1), padding.1.min(to.1 - 1));
        let crop = RandomResizedCrop::new(to).unwrap().scale(scale).unwrap().ratio(ratio).unwrap();
        let crop = crop.filter(filter);
        prop_assert_eq!(size_of(&transformed(&image, crop, rng)), to);
        prop_assert_eq!(size_of(&transformed(&image, CenterCrop::new(to).unwrap(), rng)), to);
        let resize = Resize::exact(to).unwrap().filter(filter);
        prop_assert_eq!(size_of(&transformed(&image, resize, rng)), to);
        let resized = size_of(&transformed(&image, Resize::new(side).unwrap(), rng));
        prop_assert_eq!(resized.0.min(resized.1), side);
        prop_assert_eq!(resized.0 <= resized.1, was.0 <= was.1 || resized.0 == resized.1);
        let resize = Resize::new(side).unwrap().max_size(side + more).unwrap();
        let resized = size_of(&transformed(&image, resize, rng));
        prop_assert!(resized.0.max(resized.1) <= side + more && resized.0.min(resized.1) <= side);
        for mode in [PaddingMode::Constant, PaddingMode::Edge, PaddingMode::Reflect, PaddingMode::Symmetric] {
            let padded = transformed(&image, Pad::sides(to.0, side, 0, more).padding_mode(mode), rng);
            prop_assert_eq!(size_of(&padded), (was.0 + side + more, was.1 + to.0));
            let crop = RandomCrop::new(to).unwrap().padding(padding).padding_mode(mode).pad_if_needed(true);
            prop_assert_eq!(size_of(&transformed(&image, crop, rng)), to);
        }
        let turned = transformed(&image, RandomRotation::new(-360.0..=360.0).unwrap().expand(true), rng);
        let diagonal = f64::from(was.0).hypot(f64::from(was.1)) + 2.0;
        prop_assert!(f64::from(turned.height().max(turned.width())) <= diagonal);
        let crop = RandomCrop::new(to).unwrap().padding(padding);
        let fits = was.0 + 2 * padding.0 >= to.0 && was.1 + 2 * padding.1 >= to.1;
        let cropped = try_transformed(&image, crop.clone(), rng);
        prop_assert_eq!(cropped.is_ok(), fits);
        prop_assert_eq!(size_of(&transformed(&image, crop.pad_if_needed(true), rng)), to);
    }

    #[test]
    fn colour_and_geometry_transforms_keep_their_invariants(
        image in picture(), seed: u64, factors in range(0.0, 3.0), turns in range(-0.5, 0.5),
        bins in 2..40u32, magnitude: u32, ops in 0..4u32, smooth: bool, fill: [u8; 3],
        scale in range(0.0, 1.0), ratio in range(0.01, 100.0), noise: bool,
    ) {
        let rng = &mut Rng::new(seed, 3, 4);
        let was = size_of(&image);
        let filter = if smooth { Filter::Bilinear } else { Filter::Nearest };
        let jitter = ColorJitter::new(0.0, 0.0, 0.0, 0.0)
            .and_then(|jitter| jitter.brightness(factors.clone()))
            .and_then(|jitter| jitter.contrast(factors.clone()))
            .and_then(|jitter| jitter.saturation(factors))
            .and_then(|jitter| jitter.hue(turns))
            .unwrap();
        let augment = RandAugment::new(ops, magnitude % bins.min(31))
            .and_then(|augment| augment.num_magnitude_bins(bins))
            .and_then(|augment| augment.filter(filter))
            .unwrap()
            .fill(fill);
        let wide = TrivialAugmentWide::new()
            .num_magnitude_bins(bins)
            .and_then(|augment| augment.filter(filter))
            .unwrap()
            .fill(fill);
        let erasing = RandomErasing::new(1.0)
            .and_then(|erasing| erasing.scale(scale))
            .and_then(|erasing| erasing.ratio(ratio))
            .unwrap();
        let erasing = if noise { erasing.random() } else { erasing.value(fill) };
        let affine = RandomAffine::new(-180.0..=180.0)
            .and_then(|affine| affine.translate(1.0, 0.5))
            .and_then(|affine| affine.scale(0.1..=9.0))
            .and_then(|affine| affine.shear(-80.0..=80.0))
            .and_then(|affine| affine.shear_y(-80.0..=80.0))
            .and_then(|affine| affine.filter(filter))
            .unwrap();
        let perspective = RandomPerspective::new(0.8)
            .and_then(|perspective| perspective.distortion_scale(1.0))
            .and_then(|perspective| perspective.filter(filter))
            .unwrap();
        let policy = [AutoAugmentPolicy::ImageNet, AutoAugmentPolicy::Cifar10, AutoAugmentPolicy::Svhn];
        let policy = AutoAugment::new(policy[seed as usize % 3]).filter(filter).unwrap().fill(fill);
        let blur = GaussianBlur::new((2 * ops + 1, 11)).unwrap();
        let all = Transforms::new()
            .then(RandomHorizontalFlip::new(0.5).unwrap())
            .then(RandomVerticalFlip::new(0.5).unwrap())
            .then(RandomRotation::new(-90.0..=90.0).unwrap().fill(fill))
            .then(affine)
            .then(perspective)
            .then(policy)
            .then(RandomApply::new(0.7, blur).unwrap())
            .then(jitter)
            .then(RandomGrayscale::new(0.5).unwrap())
            .then(augment)
            .then(wide)
            .then(erasing);
        let once = transformed(&image, all.clone(), &mut Rng::new(seed, 5, 6));
        prop_assert_eq!(size_of(&once), was);
        prop_assert_eq!(once.mode(), image.mode());
        let again = transformed(&image, all.clone(), &mut Rng::new(seed, 5, 6));
        prop_assert_eq!(once, again, "equal random numbers give equal images");
        transformed(&image, all, rng);
    }
}

/// The values of each pixel encode its position in the image, so the test can compute the offset of the crop.
#[test]
fn a_padded_crop_keeps_the_pixels_inside() {
    let pixels: Vec<u8> = (0..32 * 32).flat_map(|at| [1 + (at % 32) as u8, 1 + (at / 32) as u8, 9]).collect();
    let image = Image::new(ImageMode::Rgb8, 32, pixels).unwrap();
    let rng = &mut Rng::new(7, 7, 7);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..600 {
        let crop = RandomCrop::new(32).unwrap().padding(4).fill([200, 100, 50]);
        let cropped = transformed(&image, crop, rng);
        let pixels = cropped.as_u8().unwrap().as_chunks::<3>().0;
        // All pixels must have the same offset as pixel (16, 16).
        let (left, top) = (i32::from(pixels[16 * 32 + 16][0]) - 17, i32::from(pixels[16 * 32 + 16][1]) - 17);
        seen.insert((left, top));
        for (at, pixel) in pixels.iter().enumerate() {
            let (x, y) = (at as i32 % 32 + left, at as i32 / 32 + top);
            let inside = (0..32).contains(&x) && (0..32).contains(&y);
            let expected = if inside { [x as u8 + 1, y as u8 + 1, 9] } else { [200, 100, 50] };
            assert_eq!(*pixel, expected, "({x}, {y}) from ({left}, {top})");
        }
    }
    assert_eq!(seen.len(), 81, "all places");
    assert!(seen.iter().every(|(left, top)| left.abs() <= 4 && top.abs() <= 4));
}

/// Transforms an image of 4 rows and 6 columns whose values are positions: 23 is in row 2 and column 3.
fn sized(
    step: impl Fn(&mut Frame<'_>) -> Result<(), ImageError> + Send + Sync + 'static,
) -> ((u32, u32), Vec<u8>) {
    let pixels: Vec<u8> = (0..4u8).flat_map(|row| (0..6).map(move |column| 10 * row + column)).collect();
    let image = Image::new(ImageMode::L8, (4, 6), pixels).unwrap();
    assert_eq!((image.height(), image.width()), (4, 6));
    let step = move |frame: &mut Frame<'_>, _: &mut Rng| Ok(step(frame)?);
    let done = transformed(&image, step, &mut Rng::new(0, 0, 0));
    (size_of(&done), done.as_u8().unwrap().to_vec())
}

#[test]
fn sizes_are_height_width_and_offsets_top_left() {
    assert_eq!(sized(|frame| frame.crop(1, 2, (2, 3))), ((2, 3), vec![12, 13, 14, 22, 23, 24]));
    let cropped = sized(|frame| functional::crop(frame, -1, 4, (3, 1), [9; 3]));
    assert_eq!(cropped, ((3, 1), vec![9, 4, 14]));
    let (size, erased) = sized(|frame| functional::erase(frame, 2, 1, (1, 4), [99; 3]));
    assert_eq!((size, &erased[12..18]), ((4, 6), &[20, 99, 99, 99, 99, 25][..]));
    assert_eq!(erased.iter().filter(|number| **number == 99).count(), 4);
    assert_eq!(sized(|frame| frame.resize((2, 3), Filter::Nearest)).0, (2, 3));
    assert_eq!(sized(|frame| frame.redraw((1, 2), |_, to| to.fill(7))), ((1, 2), vec![7, 7]));
    assert_eq!(
        sized(|frame| {
            assert_eq!(frame.size(), Size { height: 4, width: 6 });
            assert_eq!(format!("{frame:?}"), "Frame(4 x 6 (height x width), 1 channels)");
            let error = frame.crop(1, 2, (3, 5)).unwrap_err().to_string();
            assert!(error.contains("3 x 5 (height x width) at row 1, column 2"), "{error}");
            assert!(error.contains("a picture of 4 x 6 (height x width)"), "{error}");
            Ok(())
        })
        .0,
        (4, 6)
    );
}
