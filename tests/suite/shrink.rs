//! Shrinks the same pictures with this crate and with Pillow, and compares the results.

use crate::support::noise;
use crate::support::python::Python;
use serde_json::{Value as Json, json};
use shardstream::image::{Image, ImageMode, Shrink, Shrunk};

/// Pictures of noise, of hard edges in black and white, and of smooth shades; in colour and grey.
fn pictures() -> Vec<Image> {
    let (height, width) = (151_u32, 202_u32);
    let at = || (0..height).flat_map(move |y| (0..width).map(move |x| (y, x)));
    let edges =
        at().flat_map(|(y, x)| [(x / 7 + y / 5) % 2, (x / 3) % 2, u32::from(x > y)].map(|on| on as u8 * 255));
    let smooth = at().flat_map(|(y, x)| [x + y / 4, y, (x + y) / 2].map(|number| number as u8));
    let new = |mode, pixels: Vec<u8>| Image::new(mode, (height, width), pixels).unwrap();
    let size = (height * width) as usize;
    vec![
        new(ImageMode::Rgb8, noise(3 * size)),
        new(ImageMode::Rgb8, edges.collect()),
        new(ImageMode::Rgb8, smooth.collect()),
        new(ImageMode::L8, noise(size)),
    ]
}

fn unhex(json: &Json) -> Vec<u8> {
    let text = json.as_str().unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn resized(shrink: Shrink, file: &[u8], mode: ImageMode) -> Image {
    match shrink.grey_and_palette(true).apply(file).unwrap() {
        Shrunk::Resized(smaller) => Image::decode(&smaller, mode).unwrap(),
        Shrunk::Kept(reason) => panic!("{reason}"),
    }
}

/// The peak signal-to-noise ratio in dB.
fn psnr(one: &[u8], other: &[u8]) -> f64 {
    let squares = one.iter().zip(other).map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2));
    10.0 * (255.0 * 255.0 * one.len() as f64 / squares.sum::<f64>().max(1e-9)).log10()
}

/// If the file is a PNG, each value is within 1 of Pillow's. If it is a JPEG, its compression causes larger
/// differences.
#[test]
#[ignore = "needs Python with webdataset: see CONTRIBUTING.md"]
fn smaller_pictures_match_pillow_in_linear_light() {
    let pictures = pictures();
    let shrinks: Vec<Shrink> = [150, 101, 34, 2].map(|side| Shrink::max_side(side).unwrap()).into();
    let mut cases = Vec::new();
    let mut ours = Vec::new();
    for (number, image) in pictures.iter().enumerate() {
        for shrink in &shrinks {
            let smaller = resized(*shrink, &image.to_png().unwrap(), image.mode());
            cases.push(json!([number, "Shrink", [smaller.width(), smaller.height()]]));
            ours.push(smaller);
        }
    }
    let shown = |image: &Image| {
        let pixels: String = image.as_u8().unwrap().iter().map(|number| format!("{number:02x}")).collect();
        let (width, height, channels) = (image.width(), image.height(), image.mode().channels());
        json!({"channels": channels, "width": width, "height": height, "pixels": pixels})
    };
    let shown: Vec<Json> = pictures.iter().map(shown).collect();
    let dir = tempfile::tempdir().unwrap();
    let request = dir.path().join("request.json");
    std::fs::write(&request, json!({"pictures": shown, "cases": cases}).to_string()).unwrap();
    let theirs = Python::find().transforms(&request);
    for ((case, ours), theirs) in cases.iter().zip(&ours).zip(theirs.as_array().unwrap()) {
        assert_eq!(theirs[0], json!([ours.width(), ours.height()]));
        let (ours, theirs) = (ours.as_u8().unwrap(), unhex(&theirs[1]));
        let most = ours.iter().zip(&theirs).map(|(a, b)| a.abs_diff(*b)).max();
        assert!(ours.len() == theirs.len() && most <= Some(1), "{case}: up to {most:?}");
    }
    // The smooth picture, as a JPEG.
    let file = pictures[2].to_jpeg(100).unwrap();
    for (shrink, theirs) in shrinks[..3].iter().zip(&theirs.as_array().unwrap()[8..]) {
        let ours = resized(*shrink, &file, ImageMode::Rgb8);
        let decibels = psnr(ours.as_u8().unwrap(), &unhex(&theirs[1]));
        assert!(decibels > 38.0, "{} x {}: {decibels} dB", ours.height(), ours.width());
    }
}
