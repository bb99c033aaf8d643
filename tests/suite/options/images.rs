//! Options of image columns and transforms.

use super::{column, refused};
use shardstream::codec::DType;
use shardstream::collate::{Boxes, Columns, ImageColumn, Mask, RaggedImages};
use shardstream::image::{
    CenterCrop, ColorJitter, Filter, Frame, Image, ImageError, ImageMode, RandAugment, RandomCrop,
    RandomErasing, RandomGrayscale, RandomHorizontalFlip, RandomResizedCrop, Resize, Transform, Transforms,
    TrivialAugmentWide,
};
use shardstream::{ErrorKind, Result, Rng, Sample};

fn image() -> ImageColumn {
    ImageColumn::new("png", 8)
}

#[test]
fn bad_options_of_an_image_column_are_errors() {
    column(ImageColumn::new("jpg, png;", 8), &["the field", "no spaces"]);
    column(ImageColumn::new("jpg", (0, 8)), &["the size", "at least 1"]);
    column(ImageColumn::new("jpg", (8, 0)), &["the size", "at least 1"]);
    column(ImageColumn::new("jpg", u32::MAX), &["`max_size`", "smaller"]);
    column(image().max_size(8 * 8 * 3 - 1), &["`max_size`", "191 bytes", "takes 192", "raise it"]);
    for gap in [0.0, 0.99, -1.0, f64::NAN] {
        column(image().reducing_gap(gap), &["`reducing_gap`", "at least 1"]);
    }
    for mode in [ImageMode::Rgba8, ImageMode::RgbF32, ImageMode::LF32] {
        column(image().mode(mode), &["`mode`", mode.name(), "take l8, rgb8, l16 or rgb16"]);
    }
    for dtype in [DType::I32, DType::F64, DType::Bool] {
        column(image().dtype(dtype), &["`dtype`", dtype.name(), "take uint8"]);
    }
}

#[test]
fn bad_options_of_boxes_and_masks_are_errors() {
    let boxes = |boxes: Boxes, words: &[&str]| column(image().boxes(boxes), words);
    let new = || Boxes::new("npy");
    boxes(Boxes::new(""), &["the field"]);
    boxes(new().at("boxes"), &["`at`", "begin it with a slash"]);
    boxes(new().labels("npy;"), &["the field"]);
    boxes(new().labels_at("json", "labels"), &["`at`", "begin it with a slash"]);
    for share in [-0.1, 1.1, f64::NAN] {
        boxes(new().min_visible(share), &["`min_visible`", "from 0 to 1"]);
    }
    for size in [-1.0, f64::NAN, f64::INFINITY] {
        boxes(new().min_size(size), &["`min_size`", "0 or more"]);
    }
    boxes(new().fixed(0), &["the length 0", "make it from 1"]);
    boxes(new().truncate(), &["`truncate`", "`fixed`"]);

    let mask = |mask: Mask, words: &[&str]| column(image().mask(mask), words);
    mask(Mask::new("a b;"), &["the field"]);
    mask(Mask::new("png").dtype(DType::F32), &["`dtype`", "float32", "take uint8"]);
    mask(Mask::new("png").fill(-1), &["`fill`", "-1 does not fit uint8"]);
    mask(Mask::new("png").fill(1 << 40).dtype(DType::I32), &["`fill`", "does not fit int32"]);
    assert!(
        Columns::new().with("x", image().mask(Mask::new("png").fill(-1).dtype(DType::I64))).check().is_ok()
    );
    column(RaggedImages::new(image().mask(Mask::new("npy"))), &["`Stack`"]);
}

#[test]
fn bad_options_of_normalize_are_errors() {
    let half = [0.5f32; 3];
    let float = || image().dtype(DType::F32);
    column(image().normalize(half, half), &["`normalize`", "uint8", "another `dtype`"]);
    // The order of `normalize` and `dtype` makes no difference.
    column(float().normalize(half, half).dtype(DType::U8), &["`normalize`", "uint8", "another `dtype`"]);
    column(float().normalize([0.5], half), &["`normalize`", "1 means and 3", "3 channels"]);
    column(float().normalize(half, []), &["`normalize`", "3 means and 0", "3 channels"]);
    column(float().normalize(half, half).mode(ImageMode::L8), &["`normalize`", "1 channels"]);
    for deviation in [0.0, -0.5, f32::NAN, f32::INFINITY, 1e-45] {
        column(float().normalize(half, [0.5, deviation, 0.5]), &["`normalize`", "deviations more than 0"]);
    }
    for mean in [f32::NAN, f32::NEG_INFINITY] {
        column(float().normalize([mean, 0.5, 0.5], half), &["`normalize`", "has room"]);
    }
    // The normalized values exceed float16, but not float32.
    column(image().dtype(DType::F16).normalize(half, [1e-6; 3]), &["`normalize`", "float16 has room"]);
    let fine = float().normalize(half, [1e-6; 3]);
    Columns::new().with("x", fine).check().unwrap();
}

#[test]
fn bad_options_of_transforms_are_errors() {
    for size in [(0, 8), (8, 0), (0, 0), (u32::MAX, u32::MAX)] {
        let words = |name| [name, "at least 1"];
        refused(RandomResizedCrop::new(size), &words("RandomResizedCrop"));
        refused(Resize::exact(size), &words("Resize"));
        refused(CenterCrop::new(size), &words("CenterCrop"));
        refused(RandomCrop::new(size), &words("RandomCrop"));
    }
    refused(Resize::new(0), &["Resize", "at least 1"]);
    refused(Resize::new(u32::MAX), &["Resize", "2^32"]);
    refused(Resize::new(8).unwrap().max_size(8), &["Resize", "max_size", "more than"]);
    refused(Resize::exact(8).unwrap().max_size(9), &["Resize", "max_size", "leave out"]);
    let crop = || RandomResizedCrop::new(8).unwrap();
    for scale in [-0.1..=1.0, f64::NAN..=1.0, 0.1..=f64::INFINITY, 0.0..=0.0, 1.5..=2.0] {
        refused(crop().scale(scale), &["the scale of RandomResizedCrop", "choose"]);
    }
    let reversed = 0.9..=0.1;
    let wanted = ["the scale of RandomResizedCrop", "does not end below its start"];
    refused(crop().scale(reversed.clone()), &wanted);
    for ratio in [0.0..=1.0, -1.0..=1.0, f64::NAN..=1.0, reversed.clone()] {
        refused(crop().ratio(ratio.clone()), &["the ratio of RandomResizedCrop", "choose"]);
        let erasing = RandomErasing::new(0.5).unwrap();
        refused(erasing.ratio(ratio), &["the ratio of RandomErasing", "choose"]);
    }
    for scale in [0.0..=0.0, 0.5..=1.5, f64::NAN..=1.0, reversed.clone()] {
        let erasing = RandomErasing::new(0.5).unwrap();
        refused(erasing.scale(scale), &["the scale of RandomErasing", "choose"]);
    }
    for p in [-0.1, 1.1, f64::NAN] {
        let words = |name| [name, "probability", "from 0 to 1"];
        refused(RandomHorizontalFlip::new(p), &words("RandomHorizontalFlip"));
        refused(RandomGrayscale::new(p), &words("RandomGrayscale"));
        refused(RandomErasing::new(p), &words("RandomErasing"));
    }
    for bad in [-0.1, f64::NAN, f64::INFINITY] {
        refused(ColorJitter::new(bad, 0.0, 0.0, 0.0), &["ColorJitter", "brightness", "choose one from 0"]);
        refused(ColorJitter::new(0.0, bad, 0.0, 0.0), &["ColorJitter", "contrast", "choose one from 0"]);
        refused(ColorJitter::new(0.0, 0.0, bad, 0.0), &["ColorJitter", "saturation", "choose one from 0"]);
        refused(ColorJitter::new(0.0, 0.0, 0.0, bad), &["ColorJitter", "hue", "choose one from 0 to 0.5"]);
    }
    refused(ColorJitter::new(0.0, 0.0, 0.0, 0.51), &["ColorJitter", "hue", "choose one from 0 to 0.5"]);
    let jitter = || ColorJitter::new(0.0, 0.0, 0.0, 0.0).unwrap();
    for range in [-1.0..=1.0, f64::NAN..=1.0, reversed] {
        refused(jitter().brightness(range.clone()), &["the brightness of ColorJitter", "choose"]);
        refused(jitter().contrast(range.clone()), &["the contrast of ColorJitter", "choose"]);
        refused(jitter().saturation(range.clone()), &["the saturation of ColorJitter", "choose"]);
        refused(jitter().hue(range), &["the hue of ColorJitter", "choose"]);
    }
    refused(RandAugment::new(2, 31), &["RandAugment", "magnitude 31", "from 0 to 30"]);
    refused(RandAugment::new(u32::MAX, 9), &["RandAugment", "operations", "at most 1000"]);
    let augment = || RandAugment::new(2, 9).unwrap();
    refused(augment().num_magnitude_bins(9), &["RandAugment", "magnitude 9", "from 0 to 8"]);
    for bins in [0, 1] {
        let words = ["num_magnitude_bins", "at least 2"];
        refused(augment().num_magnitude_bins(bins), &words);
        refused(TrivialAugmentWide::new().num_magnitude_bins(bins), &words);
    }
    for filter in [Filter::Bicubic, Filter::Lanczos] {
        refused(augment().filter(filter), &["filter", "choose Nearest or Bilinear"]);
        refused(TrivialAugmentWide::new().filter(filter), &["filter", "choose Nearest or Bilinear"]);
    }
}

/// A custom transform.
#[derive(Clone)]
struct CustomTransform;

impl Transform for CustomTransform {
    fn apply(&self, _: &mut Frame<'_>, _: &mut Rng) -> Result<()> {
        panic!("a transform that was refused gets a picture")
    }

    fn check(&self) -> Result<()> {
        Err(ErrorKind::Config("CustomTransform with a radius of 0: make it more".into()).into())
    }
}

#[test]
fn bad_transforms_are_errors_of_their_column() {
    let words = ["RandomCrop", "padding", "less than the size"];
    for padding in [(8, 0), (0, 8), (u32::MAX, u32::MAX)] {
        let crop = RandomCrop::new(8).unwrap().padding(padding);
        refused(crop.check(), &words);
        column(image().then(crop.clone()), &words);
        column(image().then(Transforms::new().then(crop)), &words);
    }
    column(image().then(CustomTransform), &["radius", "make it more"]);
    let nested = Transforms::new().then(Transforms::new().then(CustomTransform));
    column(image().then(nested.clone()), &["radius", "make it more"]);
    let file = Image::new(ImageMode::L8, 1, vec![0]).unwrap().to_png().unwrap();
    refused(nested.image(&file, ImageMode::L8, &mut Rng::new(0, 0, 0)), &["radius", "make it more"]);
}

#[test]
fn transforms_to_another_size_than_the_columns_are_errors() {
    let words = ["the size 8 x 8", "make pictures of 6 x 7 (height x width)", "make both the same"];
    let exact = || Resize::exact((6, 7)).unwrap();
    column(image().then(exact()), &words);
    column(image().then(CenterCrop::new((6, 7)).unwrap()), &words);
    column(image().then(RandomCrop::new((6, 7)).unwrap()), &words);
    column(image().then(RandomResizedCrop::new((6, 7)).unwrap()), &words);
    // Transforms that do not change the size.
    let jitter = ColorJitter::new(0.1, 0.0, 0.0, 0.0).unwrap();
    let then = Transforms::new()
        .then(RandomHorizontalFlip::new(0.5).unwrap())
        .then(jitter)
        .then(RandomGrayscale::new(0.5).unwrap())
        .then(RandAugment::new(2, 9).unwrap())
        .then(TrivialAugmentWide::new())
        .then(RandomErasing::new(0.5).unwrap());
    column(image().then(exact()).then(then.clone()), &words);
    column(image().then(CenterCrop::new(8).unwrap()).then(Resize::new(9).unwrap()), &["9 x 9", "the same"]);
    column(image().then(Resize::exact(20_000).unwrap()), &["`max_size`", "20000 x 20000", "raise it"]);

    let good = |column: ImageColumn| {
        let png = Image::new(ImageMode::Rgb8, 8, vec![9; 192]).unwrap().to_png().unwrap();
        let batch = Columns::new().with("x", column).collate([Sample::new("a").with("png", png)]);
        assert_eq!(batch.unwrap()["x"].shape(), [1, 8, 8, 3]);
    };
    good(image().then(then));
    good(image().then(Resize::new(8).unwrap()));
    good(image().then(exact()).then(CenterCrop::new(8).unwrap()));
    // The size of the image that a closure returns is known only once the image is decoded.
    good(
        image()
            .then(exact())
            .then(|frame: &mut Frame<'_>, _: &mut Rng| Ok(frame.resize(8, Filter::Nearest)?)),
    );
}

#[test]
fn bad_options_of_image_encoding_are_errors() {
    let image = Image::new(ImageMode::L8, 1, vec![0]).unwrap();
    for quality in [0, 101, 255] {
        let error = image.to_jpeg(quality).unwrap_err();
        assert!(matches!(error, ImageError::Quality(found) if found == quality), "{error}");
        assert!(error.to_string().contains("from 1 to 100"), "{error}");
    }
    assert!(image.to_jpeg(1).is_ok() && image.to_jpeg(100).is_ok());
}
