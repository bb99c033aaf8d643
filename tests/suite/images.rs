//! Transformed images, compared with Pillow and with the same steps applied one by one.

use crate::support::python::Python;
use proptest::prelude::*;
use shardstream::image::{Filter, Frame, Image, ImageError, ImageMode, Transforms};
use shardstream::{Error, Rng};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Copy)]
enum Step {
    Crop(u32, u32, u32, u32),
    Resize(u32, u32, Filter),
    Flip,
}

impl Step {
    fn read(json: &serde_json::Value) -> Self {
        let number = |at: usize| json[at].as_u64().unwrap() as u32;
        match json[0].as_str().unwrap() {
            "crop" => Step::Crop(number(1), number(2), number(3), number(4)),
            "resize" => Step::Resize(number(1), number(2), filter(json[3].as_str().unwrap())),
            _ => Step::Flip,
        }
    }

    fn apply(self, frame: &mut Frame<'_>) -> Result<(), ImageError> {
        match self {
            Step::Crop(x, y, width, height) => frame.crop(y, x, (height, width)),
            Step::Resize(width, height, filter) => frame.resize((height, width), filter),
            Step::Flip => {
                frame.flip_horizontal();
                Ok(())
            }
        }
    }
}

fn filter(name: &str) -> Filter {
    match name {
        "nearest" => Filter::Nearest,
        "bicubic" => Filter::Bicubic,
        "lanczos" => Filter::Lanczos,
        _ => Filter::Bilinear,
    }
}

/// Applies the steps to a frame. The frame carries out all steps at the end. With `eager`, it carries out
/// each step before it gets the next one.
fn transformed(file: &[u8], mode: ImageMode, steps: Vec<Step>, eager: bool) -> Result<Image, Error> {
    let apply = move |frame: &mut Frame<'_>, _: &mut Rng| {
        for step in &steps {
            step.apply(frame)?;
            if eager {
                frame.pixels()?;
            }
        }
        Ok(())
    };
    Transforms::new().then(apply).image(file, mode, &mut Rng::new(0, 0, 0))
}

/// The largest and the mean difference between the values of two images.
fn distance(image: &Image, wanted: &[u8]) -> (u8, f64) {
    let pixels = image.as_u8().unwrap();
    assert_eq!(pixels.len(), wanted.len());
    let off = pixels.iter().zip(wanted).map(|(a, b)| a.abs_diff(*b));
    (off.clone().max().unwrap_or(0), off.map(f64::from).sum::<f64>() / pixels.len() as f64)
}

/// The allowed largest and mean difference from Pillow.
fn tolerance(name: &str, steps: &[Step]) -> (u8, f64) {
    let filter =
        steps.iter().find_map(|step| if let Step::Resize(.., filter) = step { Some(*filter) } else { None });
    let turbo = cfg!(feature = "turbojpeg");
    match (name.ends_with("jpg"), filter) {
        (false, None | Some(Filter::Nearest)) => (0, 0.0),
        // Pillow and this crate resize rows and columns in opposite orders, so values that overshoot are
        // clipped at different points.
        (false, Some(Filter::Bicubic | Filter::Lanczos)) if name == "bilevel.png" => (30, 5.0),
        (false, Some(Filter::Bicubic | Filter::Lanczos)) if name == "deep.png" => (15, 0.5),
        (false, Some(_)) => (1, 0.3),
        // With `turbojpeg`, this crate uses Pillow's JPEG decoder.
        (true, None | Some(Filter::Nearest)) if turbo => (0, 0.0),
        // The decoder shrinks a JPEG before the resize. The result differs slightly from a resize of the
        // whole picture.
        (true, Some(Filter::Bilinear)) if turbo => (20, 1.3),
        (true, Some(_)) if turbo => (25, 1.6),
        (true, None) => (10, 1.8),
        (true, Some(_)) => (4, 0.6),
    }
}

#[test]
#[ignore = "needs Python with webdataset: see CONTRIBUTING.md"]
fn transformed_images_match_pillow() {
    let python = Python::find();
    let dir = tempfile::tempdir().unwrap();
    let cases = python.pictures(dir.path());
    let cases = cases.as_array().unwrap();
    assert!(cases.len() > 400);
    for case in cases {
        let text = |name: &str| case[name].as_str().unwrap();
        if text("file").starts_with("formats.") && cfg!(not(feature = "image-formats")) {
            continue;
        }
        let read = |name: &str| std::fs::read(dir.path().join(text(name))).unwrap();
        let steps: Vec<Step> = case["steps"].as_array().unwrap().iter().map(Step::read).collect();
        let mode = text("mode").parse().unwrap();
        let image = transformed(&read("file"), mode, steps.clone(), false)
            .unwrap_or_else(|error| panic!("{case}: {error:#}"));
        assert_eq!(serde_json::json!([image.width(), image.height()]), case["size"], "{case}");
        let (worst, mean) = distance(&image, &read("wanted"));
        let (most, average) = tolerance(text("file"), &steps);
        assert!(worst <= most && mean <= average, "{case}: off by up to {worst}, {mean} on average");
    }
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/codec/images")
}

/// The names and contents of the image files in `tests/data/codec/images`.
fn files() -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(data())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().unwrap() != "npy")
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

/// The kind of a step, and its parameters as fractions of the image's size.
fn step() -> impl Strategy<Value = (u8, [f64; 4])> {
    (0..10u8, any::<[u16; 4]>().prop_map(|numbers| numbers.map(|number| f64::from(number) / 65536.0)))
}

/// Turns fractions into steps for an image of this size.
fn fit(steps: &[(u8, [f64; 4])], (mut width, mut height): (u32, u32)) -> Vec<Step> {
    let some = |most: u32, part: f64| 1 + (f64::from(most - 1) * part) as u32;
    let mut fitted = Vec::new();
    for &(kind, [a, b, c, d]) in steps {
        let step = match kind {
            0..5 => {
                let (x, y) = ((f64::from(width) * a) as u32, (f64::from(height) * b) as u32);
                (width, height) = (some(width - x, c), some(height - y, d));
                Step::Crop(x, y, width, height)
            }
            5..8 => Step::Flip,
            _ => {
                (width, height) = (some(60, a), some(60, b));
                Step::Resize(width, height, [Filter::Bilinear, Filter::Bicubic][usize::from(c < 0.5)])
            }
        };
        fitted.push(step);
    }
    fitted
}

/// Applies crops and flips to the pixels of a decoded image.
fn by_hand(image: &Image, steps: &[Step]) -> Vec<u8> {
    let channels = image.mode().channels();
    let mut rows: Vec<Vec<&[u8]>> = image
        .as_u8()
        .unwrap()
        .chunks(image.width() as usize * channels)
        .map(|row| row.chunks(channels).collect())
        .collect();
    for step in steps {
        match *step {
            Step::Crop(x, y, width, height) => {
                let [x, y, width, height] = [x, y, width, height].map(|number| number as usize);
                rows = rows[y..y + height].iter().map(|row| row[x..x + width].to_vec()).collect();
            }
            Step::Flip => rows.iter_mut().for_each(|row| row.reverse()),
            Step::Resize(..) => unreachable!("not done by hand"),
        }
    }
    rows.concat().concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn crops_and_flips_match_the_decoded_image(
        at: prop::sample::Index,
        steps in proptest::collection::vec(step(), 0..6),
        grey: bool,
    ) {
        let files = files();
        let (name, file) = &files[at.index(files.len())];
        let mode = if grey { ImageMode::L8 } else { ImageMode::Rgb8 };
        let whole = Image::decode(file, mode).unwrap();
        let steps: Vec<_> = steps.into_iter().filter(|(kind, _)| *kind < 8).collect();
        let steps = fit(&steps, (whole.width(), whole.height()));
        let image = transformed(file, mode, steps.clone(), false).unwrap();
        prop_assert!(image.as_u8().unwrap() == by_hand(&whole, &steps), "{name} {steps:?}");
    }

    #[test]
    fn lazy_and_immediate_steps_agree(
        at: prop::sample::Index,
        steps in proptest::collection::vec(step(), 0..6),
    ) {
        let files = files();
        let (name, file) = &files[at.index(files.len())];
        let whole = Image::decode(file, ImageMode::Rgb8).unwrap();
        let steps = fit(&steps, (whole.width(), whole.height()));
        let noted = transformed(file, ImageMode::Rgb8, steps.clone(), false).unwrap();
        let done = transformed(file, ImageMode::Rgb8, steps.clone(), true).unwrap();
        prop_assert_eq!((noted.width(), noted.height()), (done.width(), done.height()));
        // A frame that collects all steps and then carries them out together may sum up pixels in a different
        // order than an eager frame. It may also sum up fewer pixels, or decode the file at a fraction of its
        // size.
        let (worst, _) = distance(&noted, done.as_u8().unwrap());
        // Bicubic and Lanczos filters have negative weights, so a second resize amplifies a difference of 1.
        let resizes = steps.iter().filter(|step| matches!(step, Step::Resize(..))).count();
        let most = match cfg!(feature = "turbojpeg") && name.ends_with("jpg") {
            true => 40,
            false => if resizes > 1 { 4 } else { 2 },
        };
        prop_assert!(worst <= most, "{name} {steps:?}: {worst}");
    }
}

/// Decodes only the upper left pixel, which needs the fewest bytes of the file.
fn corner(file: &[u8]) -> Result<Image, Error> {
    transformed(file, ImageMode::Rgb8, vec![Step::Crop(0, 0, 1, 1)], false)
}

#[test]
fn a_truncated_file_is_an_error_even_outside_the_crop() {
    for (name, file) in files() {
        // A text PNM that is cut within a number still ends with a number, so the cut is not an error.
        if name.starts_with("plain") {
            continue;
        }
        let whole = corner(&file).unwrap();
        for end in (0..file.len()).step_by(if file.len() > 1000 { 97 } else { 1 }).chain([file.len() - 1]) {
            if let Ok(image) = corner(&file[..end]) {
                // If a cut file decodes, the cut has removed only bytes after the pixels.
                assert!(image == whole && !name.ends_with("jpg"), "{name} cut to {end} of {}", file.len());
                assert!(Image::decode(&file[..end], ImageMode::Rgb8).is_ok(), "{name} {end}");
            }
        }
    }
}

#[test]
fn damaged_images_do_not_panic() {
    let steps = vec![Step::Crop(1, 2, 3, 3), Step::Resize(2, 2, Filter::Bilinear), Step::Flip];
    for (name, file) in files() {
        let mut damaged = file.clone();
        for at in (0..file.len()).step_by(if file.len() > 1000 { 13 } else { 1 }) {
            for bit in 0..8 {
                damaged[at] ^= 1 << bit;
                if let Ok(image) = transformed(&damaged, ImageMode::Rgb8, steps.clone(), false) {
                    assert_eq!((image.width(), image.height()), (2, 2), "{name} {at}");
                }
                damaged[at] = file[at];
            }
        }
    }
}

#[test]
fn a_crop_outside_the_image_is_refused() {
    let (_, file) = files().into_iter().find(|(name, _)| name == "444.jpg").unwrap();
    let error = transformed(&file, ImageMode::Rgb8, vec![Step::Crop(50, 0, 4, 1)], false).unwrap_err();
    assert!(
        format!("{error:#}").contains("not a part of a picture of 37 x 53 (height x width)"),
        "{error:#}"
    );
    assert!(transformed(&file, ImageMode::Rgb8, vec![Step::Resize(0, 1, Filter::Nearest)], false).is_err());
}
