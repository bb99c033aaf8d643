//! Results of transforms, compared with torchvision's results in `tests/data/transforms`, and with Pillow's
//! results.

use super::transformed;
use crate::support::python::{Python, stdout_of};
use crate::support::{noise, root};
use serde_json::{Value as Json, json};
use shardstream::Rng;
use shardstream::image::*;
use std::process::Command;

/// Pixels in hexadecimal.
fn hex(pixels: &Pixels) -> String {
    let Pixels::U8(pixels) = pixels else { panic!("not of 8 bits") };
    pixels.iter().map(|number| format!("{number:02x}")).collect()
}

fn picture(json: &Json) -> Image {
    let side = |name: &str| json[name].as_u64().unwrap() as u32;
    let mode = if json["channels"] == 1 { ImageMode::L8 } else { ImageMode::Rgb8 };
    Image::new(mode, (side("height"), side("width")), unhex(&json["pixels"])).unwrap()
}

fn unhex(json: &Json) -> Vec<u8> {
    let text = json.as_str().unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn filter(json: &Json) -> Filter {
    match json.as_str().unwrap() {
        "Nearest" => Filter::Nearest,
        "Bilinear" => Filter::Bilinear,
        "Bicubic" => Filter::Bicubic,
        "Lanczos" => Filter::Lanczos,
        other => panic!("{other}"),
    }
}

/// The result of this crate for a case.
fn ours(image: &Image, name: &str, parameters: &Json) -> Image {
    let (name, parameters) = (name.to_owned(), parameters.clone());
    let step = move |frame: &mut Frame<'_>, rng: &mut Rng| {
        let number = |at: usize| parameters[at].as_f64().unwrap();
        let pixels = |at: usize| parameters[at].as_i64().unwrap();
        let side = |at: usize| pixels(at) as u32;
        let (name, amount) = (name.as_str(), parameters[0].as_f64().unwrap_or_default());
        let affine =
            |frame: &mut Frame<'_>, matrix| functional::affine(frame, matrix, filter(&parameters[1]), [0; 3]);
        match name {
            "adjust_brightness" => functional::adjust_brightness(frame, amount)?,
            "adjust_contrast" => functional::adjust_contrast(frame, amount)?,
            "adjust_saturation" => functional::adjust_saturation(frame, amount)?,
            "adjust_sharpness" => functional::adjust_sharpness(frame, amount)?,
            "adjust_hue" => functional::adjust_hue(frame, amount)?,
            "posterize" => functional::posterize(frame, side(0))?,
            "solarize" => functional::solarize(frame, amount)?,
            "invert" => functional::invert(frame)?,
            "autocontrast" => functional::autocontrast(frame)?,
            "equalize" => functional::equalize(frame)?,
            "rgb_to_grayscale" => functional::rgb_to_grayscale(frame)?,
            "rotate" => {
                let fill = [0, 1, 2].map(|channel| parameters[2][channel].as_u64().unwrap_or(0) as u8);
                functional::rotate(frame, amount, filter(&parameters[1]), fill)?;
            }
            "ShearX" => affine(frame, [1.0, amount, 0.0, 0.0, 1.0, 0.0])?,
            "ShearY" => affine(frame, [1.0, 0.0, 0.0, amount, 1.0, 0.0])?,
            "TranslateX" => affine(frame, [1.0, 0.0, -amount.trunc(), 0.0, 1.0, 0.0])?,
            "TranslateY" => affine(frame, [1.0, 0.0, 0.0, 0.0, 1.0, -amount.trunc()])?,
            "vflip" => frame.flip_vertical(),
            "affine" => RandomAffine::new(amount..=amount)?
                .scale(number(1)..=number(1))?
                .shear(number(2)..=number(2))?
                .shear_y(number(3)..=number(3))?
                .filter(filter(&parameters[4]))?
                .apply(frame, rng)?,
            "expand" => RandomRotation::new(amount..=amount)?
                .expand(true)
                .filter(filter(&parameters[1]))?
                .apply(frame, rng)?,
            "perspective" => {
                let points = |at: usize| {
                    [0, 1, 2, 3].map(|corner| {
                        let point = &parameters[at][corner];
                        (point[0].as_f64().unwrap(), point[1].as_f64().unwrap())
                    })
                };
                functional::perspective(frame, points(0), points(1), filter(&parameters[2]), [0; 3])?;
            }
            "gaussian_blur" => functional::gaussian_blur(frame, (side(1), side(0)), number(2))?,
            "pad" => {
                let sides = [0, 1, 2, 3].map(|at| parameters[0][at].as_u64().unwrap() as u32);
                let mode = match parameters[1].as_str().unwrap() {
                    "constant" => PaddingMode::Constant,
                    "edge" => PaddingMode::Edge,
                    "reflect" => PaddingMode::Reflect,
                    _ => PaddingMode::Symmetric,
                };
                functional::pad(frame, sides, [0; 3], mode)?;
            }
            "five_crop" => five_crop((side(0), side(1)))?[side(2) as usize].apply(frame, rng)?,
            "ten_crop" => {
                let crops = ten_crop((side(0), side(1)), parameters[2].as_bool().unwrap())?;
                crops[side(3) as usize].apply(frame, rng)?;
            }
            "CenterCrop" => CenterCrop::new((number(0) as u32, number(1) as u32))?.apply(frame, rng)?,
            "crop" => functional::crop(frame, pixels(1), pixels(0), (side(3), side(2)), [0; 3])?,
            "Resize" => {
                frame.crop(side(1), side(0), (side(3), side(2)))?;
                frame.resize((side(5), side(4)), filter(&parameters[6]))?;
            }
            other => panic!("{other}"),
        }
        Ok(())
    };
    transformed(image, step, &mut Rng::new(0, 0, 0))
}

/// How much results may differ: each value by `by`, except that a fraction `others` of the pixels may differ
/// completely.
///
/// A pixel may differ completely where its source position is exactly between two pixels: rounding then
/// decides which of the two pixels is taken.
#[derive(Clone, Copy)]
struct Tolerance {
    by: u8,
    others: f64,
}

impl Tolerance {
    fn exact() -> Self {
        Tolerance { by: 0, others: 0.0 }
    }

    fn check(self, ours: &Image, size: &Json, theirs: &[u8], what: &str) {
        assert_eq!(json!([ours.width(), ours.height()]), *size, "{what}");
        let channels = ours.mode().channels();
        let pixels = ours.as_u8().unwrap();
        assert_eq!(pixels.len(), theirs.len(), "{what}");
        let apart = |pair: &(&[u8], &[u8])| {
            pair.0.iter().zip(pair.1).any(|(ours, theirs)| ours.abs_diff(*theirs) > self.by)
        };
        let others = pixels.chunks(channels).zip(theirs.chunks(channels)).filter(apart).count();
        let all = theirs.len() / channels;
        let most = pixels.iter().zip(theirs).map(|(a, b)| a.abs_diff(*b)).max();
        assert!(
            others as f64 <= self.others * all as f64,
            "{what}: {others} of {all} pixels are apart, by up to {most:?}"
        );
    }
}

fn results() -> Json {
    serde_json::from_str(include_str!("../../data/transforms/results.json")).unwrap()
}

#[test]
fn results_match_torchvision() {
    let golden = results();
    let pictures: Vec<Image> = golden["pictures"].as_array().unwrap().iter().map(picture).collect();
    let cases = golden["cases"].as_array().unwrap();
    assert!(cases.len() > 250);
    for case in cases {
        let (image, name) = (&pictures[case[0].as_u64().unwrap() as usize], case[1].as_str().unwrap());
        let tolerance = match name {
            "posterize" | "solarize" | "invert" | "equalize" | "CenterCrop" | "TranslateX" | "TranslateY" => {
                Tolerance::exact()
            }
            // With this rotation, each output pixel on some diagonals maps exactly between two source pixels.
            "rotate" if case[2][0] == -135.0 && case[2][1] == "Nearest" => Tolerance { by: 0, others: 0.12 },
            "rotate" | "ShearX" | "ShearY" if case[2][1] == "Nearest" => Tolerance { by: 0, others: 0.05 },
            _ => Tolerance { by: 1, others: 0.0 },
        };
        let what = format!("{name}{} of {image:?}", case[2]);
        tolerance.check(&ours(image, name, &case[2]), &case[3], &unhex(&case[4]), &what);
    }
}

/// Compares this crate's results with those that `tests/scripts/warps.py` wrote. There must be at least
/// `least` cases.
fn check_warps(golden: &Json, least: usize) {
    let pictures: Vec<Image> = golden["pictures"].as_array().unwrap().iter().map(picture).collect();
    let cases = golden["cases"].as_array().unwrap();
    assert!(cases.len() >= least, "{}", cases.len());
    for case in cases {
        let (image, name) = (&pictures[case[0].as_u64().unwrap() as usize], case[1].as_str().unwrap());
        let tolerance = match name {
            // torchvision computes positions in `f32`, and also solves the equations of a perspective in
            // `f32`.
            "affine" | "expand" => Tolerance { by: 1, others: 0.03 },
            "perspective" => Tolerance { by: 1, others: 0.1 },
            "gaussian_blur" => Tolerance { by: 1, others: 0.0 },
            _ => Tolerance::exact(),
        };
        let what = format!("{name}{} of {image:?}", case[2]);
        tolerance.check(&ours(image, name, &case[2]), &case[3], &unhex(&case[4]), &what);
    }
}

#[test]
fn warps_borders_and_blurs_match_torchvision() {
    check_warps(&serde_json::from_str(include_str!("../../data/transforms/warps.json")).unwrap(), 70);
}

#[test]
#[ignore = "needs torchvision, see .ci/torchvision, in SHARDSTREAM_TEST_TORCHVISION"]
fn random_parameters_match_torchvision() {
    let python = std::env::var("SHARDSTREAM_TEST_TORCHVISION").expect("SHARDSTREAM_TEST_TORCHVISION");
    for seed in 2..4 {
        let script = root().join("tests/scripts/warps.py");
        let output = Command::new(&python).arg(script).args([&seed.to_string(), "12"]).output().unwrap();
        check_warps(&serde_json::from_slice(&stdout_of(output)).unwrap(), 400);
    }
}

/// A noisy and a smooth image.
fn pictures() -> Vec<Image> {
    let noise = noise(61 * 47 * 3);
    let smooth: Vec<u8> = (0..64 * 48)
        .flat_map(|at| [at % 64 * 4, at / 64 * 5, (at % 64 + at / 64) * 2])
        .map(|n| n as u8)
        .collect();
    vec![
        Image::new(ImageMode::Rgb8, (47, 61), noise.clone()).unwrap(),
        Image::new(ImageMode::Rgb8, (48, 64), smooth).unwrap(),
        Image::new(ImageMode::L8, (47, 61), noise[..61 * 47].to_vec()).unwrap(),
        Image::new(ImageMode::Rgb8, (4, 5), vec![77; 60]).unwrap(),
    ]
}

#[test]
#[ignore = "needs Python with webdataset: see CONTRIBUTING.md"]
fn results_match_pillow() {
    let python = Python::find();
    let pictures = pictures();
    let mut cases: Vec<Json> = results()["cases"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|case| case[0] == 0 && case[1] != "CenterCrop")
        .map(|case| json!([case[1], case[2]]))
        .collect();
    for filter in ["Nearest", "Bilinear", "Bicubic", "Lanczos"] {
        for part in [[0, 0, 5, 4], [1, 0, 3, 3]] {
            for to in [[3, 3], [1, 1], [32, 32], [5, 9]] {
                cases.push(json!(["Resize", [part[0], part[1], part[2], part[3], to[0], to[1], filter]]));
            }
        }
    }
    for part in [[0, 0, 5, 4], [-3, 1, 5, 2], [2, -1, 9, 9], [-4, -4, 20, 20], [-9, 0, 3, 3], [70, 80, 2, 3]]
    {
        cases.push(json!(["crop", part]));
    }
    let cases: Vec<Json> = (0..pictures.len())
        .flat_map(|at| cases.iter().map(move |case| json!([at, case[0], case[1]])))
        .collect();
    let shown = |image: &Image| {
        let (width, height) = (image.width(), image.height());
        let (channels, pixels) = (image.mode().channels(), hex(image.pixels()));
        json!({"channels": channels, "width": width, "height": height, "pixels": pixels})
    };
    let dir = tempfile::tempdir().unwrap();
    let request = dir.path().join("request.json");
    let shown: Vec<Json> = pictures.iter().map(shown).collect();
    std::fs::write(&request, json!({"pictures": shown, "cases": cases}).to_string()).unwrap();

    let theirs = python.transforms(&request);
    let mut compared = 0;
    for (case, theirs) in cases.iter().zip(theirs.as_array().unwrap()) {
        if theirs.is_null() {
            continue;
        }
        let (image, name) = (&pictures[case[0].as_u64().unwrap() as usize], case[1].as_str().unwrap());
        let tolerance = match name {
            "posterize" | "solarize" | "invert" | "equalize" | "rgb_to_grayscale" | "crop" | "TranslateX"
            | "TranslateY" => Tolerance::exact(),
            // Pillow rounds positions to 1/65536 of a pixel.
            "rotate" | "ShearX" | "ShearY" => Tolerance { by: 0, others: 0.02 },
            // A resize has one pass over the rows and one over the columns, and values below 0 or above 255
            // are clipped after the first pass. Pillow and this crate make the two passes in opposite orders.
            "Resize" if case[0] != 1 && (case[2][6] == "Bicubic" || case[2][6] == "Lanczos") => {
                Tolerance { by: 48, others: 0.0 }
            }
            // Pillow rounds hue and saturation to 8 bits.
            "adjust_hue" => Tolerance { by: 16, others: 0.0 },
            _ => Tolerance { by: 1, others: 0.0 },
        };
        let what = format!("{name}{} of {image:?}", case[2]);
        tolerance.check(&ours(image, name, &case[2]), &theirs[0], &unhex(&theirs[1]), &what);
        compared += 1;
    }
    assert!(compared > 300, "{compared}");
}
