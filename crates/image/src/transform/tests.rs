//! Tests that the transforms draw from the documented distributions. Seeds are fixed, so that a test that
//! passes once always passes.

use super::color::ColorStep;
use super::operation::{NARROW, OPS, Op, WIDE};
use super::*;
use crate::rng::Rng;
use crate::{Image, ImageMode, Size};
use std::collections::BTreeMap;

/// Kolmogorov-Smirnov test that numbers are uniform from 0 to 1, at the significance level 0.001.
#[track_caller]
fn is_uniform(mut numbers: Vec<f64>) {
    numbers.sort_by(f64::total_cmp);
    let n = numbers.len() as f64;
    let apart = |(at, number): (usize, &f64)| (number - at as f64 / n).max((at + 1) as f64 / n - number);
    let distance = numbers.iter().enumerate().map(apart).fold(0.0, f64::max);
    assert!(n >= 1000.0 && distance * n.sqrt() < 1.95, "{distance} of {n}");
}

/// Two-sample Kolmogorov-Smirnov test that two lists of numbers have the same distribution, at the
/// significance level 0.001.
#[track_caller]
fn are_alike(mut one: Vec<f64>, mut other: Vec<f64>) {
    one.sort_by(f64::total_cmp);
    other.sort_by(f64::total_cmp);
    let share = |of: &[f64], number: f64| of.partition_point(|it| *it <= number) as f64 / of.len() as f64;
    let apart = |number: &f64| (share(&one, *number) - share(&other, *number)).abs();
    let distance = one.iter().chain(&other).map(apart).fold(0.0, f64::max);
    let (n, m) = (one.len() as f64, other.len() as f64);
    assert!(distance * (n * m / (n + m)).sqrt() < 1.95, "{distance} of {n} and {m}");
}

/// Pearson's chi-squared test that there are `kinds` different outcomes, all equally likely, at the
/// significance level 0.001.
#[track_caller]
fn are_equally_likely<T: Ord>(outcomes: impl IntoIterator<Item = T>, kinds: usize) {
    let mut counts = BTreeMap::new();
    outcomes.into_iter().for_each(|outcome| *counts.entry(outcome).or_insert(0.0) += 1.0);
    assert_eq!(counts.len(), kinds);
    let expected = counts.values().sum::<f64>() / kinds as f64;
    assert!(expected > 20.0);
    let square: f64 = counts.values().map(|count| (count - expected) * (count - expected) / expected).sum();
    let part = 2.0 / (9.0 * (kinds - 1) as f64);
    let limit = (kinds - 1) as f64 * (1.0 - part + 3.09 * part.sqrt()).powi(3); // Wilson and Hilferty
    assert!(square < limit, "{square} of {limit}");
}

/// Checks that the frequency of `true` is `p`, within 3.3 standard deviations.
#[track_caller]
fn is_frequent(outcomes: impl Iterator<Item = bool>, p: f64) {
    let outcomes: Vec<bool> = outcomes.collect();
    let (n, count) = (outcomes.len() as f64, outcomes.iter().filter(|it| **it).count() as f64);
    assert!((count - n * p).abs() < 3.3 * (n * p * (1.0 - p)).sqrt(), "{count} of {n}");
}

#[test]
fn flips_and_grey_happen_with_their_probability() {
    let file = Image::new(ImageMode::Rgb8, (1, 2), vec![0, 0, 0, 255, 0, 0]).unwrap().to_ppm().unwrap();
    let happens = |transform: Transforms, rng: &mut Rng| {
        let image = transform.image(&file, ImageMode::Rgb8, rng).unwrap();
        image.as_u8() != Some(&[0, 0, 0, 255, 0, 0])
    };
    let mut rng = Rng::new(1, 0, 0);
    for p in [0.0, 0.3, 1.0] {
        let flip = Transforms::new().then(RandomHorizontalFlip::new(p).unwrap());
        is_frequent((0..4000).map(|_| happens(flip.clone(), &mut rng)), p.clamp(1e-9, 1.0 - 1e-9));
        let flip = RandomVerticalFlip::new(1.0).unwrap();
        let flip =
            RandomApply::new(p, Transforms::new().then(flip).then(RandomHorizontalFlip::new(1.0).unwrap()));
        let both = Transforms::new().then(flip.unwrap());
        is_frequent((0..4000).map(|_| happens(both.clone(), &mut rng)), p.clamp(1e-9, 1.0 - 1e-9));
        let grey = Transforms::new().then(RandomGrayscale::new(p).unwrap());
        is_frequent((0..4000).map(|_| happens(grey.clone(), &mut rng)), p.clamp(1e-9, 1.0 - 1e-9));
    }
}

#[test]
fn area_ratio_and_position_of_resized_crops_are_uniform() {
    let crop = RandomResizedCrop::new(8).unwrap().scale(0.1..=0.4).unwrap();
    let mut rng = Rng::new(2, 0, 0);
    let side = 20_000; // large, so that rounding to whole pixels does not matter
    let parts: Vec<_> = (0..10_000).map(|_| crop.draw(Size::from(side), &mut rng)).collect();
    let side = f64::from(side);
    let area = |width: u32, height: u32| f64::from(width) * f64::from(height) / (side * side);
    is_uniform(parts.iter().map(|part| (area(part.width, part.height) - 0.1) / 0.3).collect());
    let ratio = |width: u32, height: u32| (f64::from(width) / f64::from(height)).ln();
    let max = (4.0_f64 / 3.0).ln();
    is_uniform(parts.iter().map(|part| (ratio(part.width, part.height) + max) / (2.0 * max)).collect());
    let place = |at: u32, length: u32| f64::from(at) / (side - f64::from(length));
    is_uniform(parts.iter().map(|part| place(part.x, part.width)).collect());
    is_uniform(parts.iter().map(|part| place(part.y, part.height)).collect());
}

/// A second implementation of the algorithm that torchvision documents.
fn simulated(width: f64, height: f64, rng: &mut Rng) -> (f64, f64) {
    for _ in 0..10 {
        let area = (0.08 + 0.92 * rng.unit()) * width * height;
        let ratio = ((0.75_f64).ln() + rng.unit() * (16.0_f64 / 9.0).ln()).exp();
        let (wide, high) = ((area * ratio).sqrt().round(), (area / ratio).sqrt().round());
        if wide > 0.0 && high > 0.0 && wide <= width && high <= height {
            return (wide, high);
        }
    }
    let ratio = (width / height).clamp(0.75, 4.0 / 3.0);
    (width.min((height * ratio).round()), height.min((width / ratio).round()))
}

#[test]
fn resized_crops_that_may_not_fit_have_torchvisions_distribution() {
    let crop = RandomResizedCrop::new(8).unwrap();
    for (width, height) in [(500, 375), (300, 600), (1000, 200), (64, 64)] {
        let (mut rng, mut other) = (Rng::new(3, 0, 0), Rng::new(3, 0, 1));
        let ours: Vec<_> = (0..5000)
            .map(|_| crop.draw(Size { height, width }, &mut rng))
            .map(|part| (f64::from(part.width), f64::from(part.height)))
            .collect();
        let (width, height) = (f64::from(width), f64::from(height));
        let theirs: Vec<_> = (0..5000).map(|_| simulated(width, height, &mut other)).collect();
        let all = |of: fn(f64, f64) -> f64| {
            let numbers = |sizes: &[(f64, f64)]| sizes.iter().map(|(w, h)| of(*w, *h)).collect();
            are_alike(numbers(&ours), numbers(&theirs));
        };
        all(|width, height| width * height);
        all(|width, height| width / height);
        all(|width, _| width);
    }
}

#[test]
fn positions_of_crops_are_equally_likely() {
    let crop = RandomCrop::new(32).unwrap().padding(4);
    let mut rng = Rng::new(4, 0, 0);
    are_equally_likely((0..20_000).filter_map(|_| crop.draw(Size::from(32), &mut rng)), 81);
    let needed = RandomCrop::new((3, 8)).unwrap().pad_if_needed(true);
    let drawn: Vec<_> = (0..2000).filter_map(|_| needed.draw(Size::from((5, 6)), &mut rng)).collect();
    are_equally_likely(drawn.iter().copied(), 3 * 3);
    assert!(drawn.iter().all(|(top, left)| (-2..=0).contains(left) && (0..=2).contains(top)), "{drawn:?}");
    assert_eq!(RandomCrop::new((3, 8)).unwrap().draw(Size::from((5, 6)), &mut rng), None);
}

#[test]
fn jitter() {
    let jitter = ColorJitter::new(0.4, 0.9, 1.5, 0.2).unwrap();
    let mut rng = Rng::new(5, 0, 0);
    let drawn: Vec<Vec<ColorStep>> =
        (0..10_000).map(|_| jitter.draw(&mut rng).into_iter().flatten().collect()).collect();
    let parts = |step: &ColorStep| match *step {
        ColorStep::Brightness(factor) => (0, (factor - 0.6) / 0.8),
        ColorStep::Contrast(factor) => (1, (factor - 0.1) / 1.8),
        ColorStep::Saturation(factor) => (2, factor / 2.5),
        ColorStep::Hue(turns) => (3, (turns + 0.2) / 0.4),
    };
    let order = |steps: &Vec<ColorStep>| steps.iter().map(|step| parts(step).0).collect::<Vec<_>>();
    are_equally_likely(drawn.iter().map(order), 24);
    for which in 0..4 {
        let numbers = drawn.iter().flatten().map(parts).filter(|it| it.0 == which).map(|it| it.1);
        is_uniform(numbers.collect());
    }
    let some = ColorJitter::new(0.0, 0.0, 0.0, 0.0).unwrap().contrast(0.5..=0.5).unwrap();
    let drawn = some.draw(&mut rng);
    assert_eq!(drawn.into_iter().flatten().collect::<Vec<_>>(), [ColorStep::Contrast(0.5)]);
}

#[test]
fn operations_magnitudes_and_signs_are_equally_likely() {
    let mut rng = Rng::new(6, 0, 0);
    let size = Size { height: 160, width: 224 };
    let augment = RandAugment::new(2, 9).unwrap();
    let drawn: Vec<(Op, f32)> = (0..20_000).map(|_| augment.draw(size, &mut rng)).collect();
    are_equally_likely(drawn.iter().map(|(op, _)| *op as u8), 14);
    for op in OPS {
        let magnitudes = drawn.iter().filter(|it| it.0 == op).map(|it| it.1);
        match NARROW.magnitude(op, 9, 31, size) {
            None => assert!(magnitudes.into_iter().all(|it| it == 0.0)),
            Some((magnitude, false)) => assert!(magnitudes.into_iter().all(|it| it == magnitude)),
            Some((magnitude, true)) => {
                assert!(magnitudes.clone().all(|it| it.abs() == magnitude));
                is_frequent(magnitudes.map(|it| it < 0.0), 0.5);
            }
        }
    }
    let augment = TrivialAugmentWide::new();
    let drawn: Vec<(Op, f32)> = (0..100_000).map(|_| augment.draw(size, &mut rng)).collect();
    are_equally_likely(drawn.iter().map(|(op, _)| *op as u8), 14);
    let magnitudes = |op: Op| drawn.iter().filter(move |it| it.0 == op).map(|it| it.1.to_bits());
    // 31 magnitudes with either sign; 0 and -0 count as two.
    are_equally_likely(magnitudes(Op::Rotate), 62);
    are_equally_likely(magnitudes(Op::TranslateX), 62);
    are_equally_likely(magnitudes(Op::Solarize), 31);
    let bits = (0..31).filter_map(|bin| WIDE.magnitude(Op::Posterize, bin, 31, size));
    let min = bits.map(|it| it.0).fold(8.0, f32::min);
    assert_eq!(min, 2.0);
    assert!(magnitudes(Op::Posterize).all(|it| (2.0..=8.0).contains(&f32::from_bits(it))));
}

#[test]
fn area_ratio_and_position_of_erased_rectangles_are_uniform() {
    let erasing = RandomErasing::new(0.25).unwrap();
    let mut rng = Rng::new(7, 0, 0);
    let side = 20_000;
    is_frequent((0..10_000).map(|_| erasing.draw(Size::from(side), &mut rng).is_some()), 0.25);
    let erasing = RandomErasing::new(1.0).unwrap().scale(0.02..=0.3).unwrap();
    let parts: Vec<_> = (0..10_000).filter_map(|_| erasing.draw(Size::from(side), &mut rng)).collect();
    assert_eq!(parts.len(), 10_000);
    let side = f64::from(side);
    let area = |width: u32, height: u32| f64::from(width) * f64::from(height) / (side * side);
    is_uniform(parts.iter().map(|part| (area(part.width, part.height) - 0.02) / 0.28).collect());
    let ratio = |width: u32, height: u32| (f64::from(height) / f64::from(width) / 0.3).ln() / 11.0_f64.ln();
    is_uniform(parts.iter().map(|part| ratio(part.width, part.height)).collect());
    let place = |at: u32, length: u32| f64::from(at) / (side - f64::from(length));
    is_uniform(parts.iter().map(|part| place(part.x, part.width)).collect());
    is_uniform(parts.iter().map(|part| place(part.y, part.height)).collect());
}

#[test]
fn random_erasing_draws_uniform_values() {
    let image = Image::new(ImageMode::Rgb8, 100, vec![0; 30_000]).unwrap().to_ppm().unwrap();
    let erasing =
        RandomErasing::new(1.0).unwrap().scale(0.9..=0.95).unwrap().ratio(1.0..=1.0).unwrap().random();
    let mut rng = Rng::new(8, 0, 0);
    let erased =
        Transforms::new().then(move |frame: &mut crate::Frame<'_>, rng: &mut Rng| erasing.apply(frame, rng));
    let image = erased.image(&image, ImageMode::Rgb8, &mut rng).unwrap();
    // Values that were not erased are 0.
    let numbers = image.as_u8().unwrap().iter().copied().filter(|number| *number > 0);
    are_equally_likely(numbers, 255);
}

#[test]
fn parameters_of_warps_are_uniform() {
    let mut rng = Rng::new(9, 0, 0);
    let size = Size { height: 20_001, width: 10_001 };
    let rotation = RandomRotation::new(-30.0..=10.0).unwrap();
    is_uniform((0..10_000).map(|_| (rotation.draw(&mut rng) + 30.0) / 40.0).collect());
    let blur = GaussianBlur::new(23).unwrap().sigma(0.5..=1.5).unwrap();
    is_uniform((0..10_000).map(|_| blur.draw(&mut rng) - 0.5).collect());
    let affine = RandomAffine::new(0.0..=90.0).and_then(|affine| affine.translate(0.5, 1.0)).unwrap();
    let affine = affine.scale(1.0..=3.0).and_then(|affine| affine.shear(-4.0..=4.0)).unwrap();
    let affine = affine.shear_y(10.0..=20.0).unwrap();
    let drawn: Vec<_> = (0..10_000).map(|_| affine.draw(size, &mut rng)).collect();
    is_uniform(drawn.iter().map(|it| it.angle / 90.0).collect());
    is_uniform(drawn.iter().map(|it| it.translate.0 / 10_001.0 + 0.5).collect());
    is_uniform(drawn.iter().map(|it| it.translate.1 / 40_002.0 + 0.5).collect());
    is_uniform(drawn.iter().map(|it| (it.scale - 1.0) / 2.0).collect());
    is_uniform(drawn.iter().map(|it| (it.shear.0 + 4.0) / 8.0).collect());
    is_uniform(drawn.iter().map(|it| (it.shear.1 - 10.0) / 10.0).collect());
    assert!(drawn.iter().all(|it| it.translate.0.fract() == 0.0 && it.translate.1.fract() == 0.0));
}

#[test]
fn corners_of_perspectives_are_equally_likely() {
    let mut rng = Rng::new(10, 0, 0);
    let perspective = RandomPerspective::new(0.3).unwrap();
    let size = Size { height: 21, width: 40 };
    is_frequent((0..10_000).map(|_| perspective.draw(size, &mut rng).is_some()), 0.3);
    let perspective = RandomPerspective::new(1.0).unwrap().distortion_scale(0.4).unwrap();
    let drawn: Vec<_> = (0..20_000).filter_map(|_| perspective.draw(size, &mut rng)).collect();
    // Corners move by 0 to 8 pixels across (0.4 of 20), and by 0 to 4 down (0.4 of 10).
    for (corner, (x, y)) in [(0.0, 0.0), (39.0, 0.0), (39.0, 20.0), (0.0, 20.0)].into_iter().enumerate() {
        assert!(drawn.iter().all(|(start, _)| start[corner] == (x, y)));
        let inwards = |(_, end): &(_, [(f64, f64); 4])| {
            ((end[corner].0 - x).abs() as u32, (end[corner].1 - y).abs() as u32)
        };
        are_equally_likely(drawn.iter().map(inwards), 9 * 5);
    }
    let single = perspective.draw(Size::from(1), &mut rng).unwrap();
    assert_eq!(single, ([(0.0, 0.0); 4], [(0.0, 0.0); 4]));
}

#[test]
fn operations_of_a_policy_have_their_probability() {
    let mut rng = Rng::new(11, 0, 0);
    let augment = AutoAugment::new(AutoAugmentPolicy::Svhn);
    let drawn: Vec<_> = (0..50_000).map(|_| augment.draw(Size::from(100), &mut rng)).collect();
    // Three of the 25 policies begin with ShearX at magnitude 4 and probability 0.9. The sign is random.
    let sheared = |sign: f32| {
        move |pair: &[Option<(Op, f32)>; 2]| {
            pair[0].is_some_and(|it| it.0 == Op::ShearX && (it.1 * sign - 0.3 * 4.0 / 9.0).abs() < 1e-6)
        }
    };
    is_frequent(drawn.iter().map(sheared(1.0)), 3.0 / 25.0 * 0.9 / 2.0);
    is_frequent(drawn.iter().map(sheared(-1.0)), 3.0 / 25.0 * 0.9 / 2.0);
    is_frequent(drawn.iter().map(|pair| pair[1].is_some_and(|it| it == (Op::Invert, 0.0))), 3.5 / 25.0);
}
