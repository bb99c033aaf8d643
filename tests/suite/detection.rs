//! Boxes and masks follow the transforms of their image.

use proptest::prelude::*;
use shardstream::codec::{Array, DType};
use shardstream::collate::{BoxFormat, Boxes, Columns, ImageColumn, Mask, Optional, Stack, TensorBatch};
use shardstream::image::{
    CenterCrop, Filter, Frame, Image, ImageMode, RandAugment, RandomCrop, RandomErasing,
    RandomHorizontalFlip, RandomResizedCrop, Resize, Size, functional,
};
use shardstream::prelude::*;
use shardstream::{Error, ErrorKind, Result, Rng};

/// Left, top, right, bottom.
type Rect = [u32; 4];

/// A black image with a white rectangle.
fn drawing((height, width): (u32, u32), [left, top, right, bottom]: Rect) -> Image {
    let white = |at: u32| {
        let (x, y) = (at % width, at / width);
        if (left..right).contains(&x) && (top..bottom).contains(&y) { 255 } else { 0 }
    };
    Image::new(ImageMode::L8, (height, width), (0..height * width).map(white).collect::<Vec<u8>>()).unwrap()
}

fn boxes(list: &[[f32; 4]]) -> Array {
    Array::from_vec(vec![list.len(), 4], list.as_flattened().to_vec()).unwrap()
}

/// A sample with a rectangle as image, mask and box.
fn sample(size: (u32, u32), rect: Rect) -> Sample {
    let png = drawing(size, rect).to_png().unwrap();
    let corners = boxes(&[rect.map(|side| side as f32)]);
    Sample::new("k").with("png", png.clone()).with("seg.png", png).with("boxes.npy", corners.to_npy())
}

fn column(size: impl Into<Size>) -> ImageColumn {
    let column = ImageColumn::new("png", size).mode(ImageMode::L8);
    column.boxes(Boxes::new("boxes.npy")).mask(Mask::new("seg.png"))
}

fn collate(column: ImageColumn, sample: Sample) -> Result<TensorBatch> {
    Columns::new().with("x", column).seed(7).collate([sample])
}

fn boxes_of(batch: &TensorBatch) -> Vec<[f32; 4]> {
    batch["x.boxes"].as_slice::<f32>().unwrap().as_chunks().0.to_vec()
}

/// Fails unless, in the image and in its mask, the white pixels are exactly those whose centres are in the
/// box.
fn assert_exact(batch: &TensorBatch, width: usize) {
    let boxes = boxes_of(batch);
    assert!(boxes.len() <= 1, "{boxes:?}");
    for (name, numbers) in ["x", "x.mask"].map(|name| (name, batch[name].as_slice::<u8>().unwrap())) {
        for (at, white) in numbers.iter().enumerate() {
            let (x, y) = ((at % width) as f32 + 0.5, (at / width) as f32 + 0.5);
            let inside = |by: f32| {
                boxes.iter().any(|[left, top, right, bottom]| {
                    x > left + by && x < right - by && y > top + by && y < bottom - by
                })
            };
            // A pixel centre on the edge of the box may be either colour, depending on whether the flip is
            // before or after the resize.
            let (surely, maybe) = (inside(1e-3), inside(-1e-3));
            let right = if *white == 255 { maybe } else { !surely };
            assert!(right, "({x}, {y}) of {name} is {white}, and the boxes are {boxes:?}");
        }
    }
}

/// A crop whose edges are given as fractions of the image.
fn crop(shares: [f64; 4]) -> impl Fn(&mut Frame<'_>, &mut Rng) -> Result<()> + Send + Sync + 'static {
    move |frame, _| {
        let part = |side: u32, at: f64, length: f64| {
            let start = (f64::from(side - 1) * at) as u32;
            (start, 1 + (f64::from(side - start - 1) * length) as u32)
        };
        let (top, height) = part(frame.height(), shares[0], shares[1]);
        let (left, width) = part(frame.width(), shares[2], shares[3]);
        Ok(frame.crop(top, left, (height, width))?)
    }
}

fn shares() -> impl Strategy<Value = [f64; 4]> {
    any::<[u16; 4]>().prop_map(|numbers| numbers.map(|number| f64::from(number) / 65536.0))
}

prop_compose! {
    /// The size of an image, and a rectangle in it.
    fn scene()(height in 1..50u32, width in 1..50u32, at in shares()) -> ((u32, u32), Rect) {
        let part = |side: u32, start: f64, length: f64| {
            let start = (f64::from(side) * start) as u32;
            (start, start + 1 + (f64::from(side - start - 1) * length) as u32)
        };
        let ((left, right), (top, bottom)) = (part(width, at[0], at[1]), part(height, at[2], at[3]));
        ((height, width), [left, top, right, bottom])
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn transforms_keep_the_pixels_of_a_box_inside_it(
        (size, rect) in scene(),
        before in prop::option::of(shares()),
        flip: [bool; 2],
        resized in (1..40u32, 1..40u32),
        random: bool,
        padding in 0..4u32,
        decoded: bool,
        (height, width) in (5..50u32, 5..50u32),
        number: u64,
    ) {
        let mut column = column((height, width));
        if let Some(shares) = before {
            column = column.then(crop(shares));
        }
        column = column.then(RandomHorizontalFlip::new(f64::from(u8::from(flip[0]))).unwrap());
        if decoded {
            column = column.then(|frame: &mut Frame<'_>, _: &mut Rng| Ok(frame.pixels().map(drop)?));
        }
        column = match random {
            true => column.then(RandomResizedCrop::new(resized).unwrap().filter(Filter::Nearest)),
            false => column.then(Resize::exact(resized).unwrap().filter(Filter::Nearest)),
        };
        let column = column
            .then(RandomHorizontalFlip::new(if flip[1] { 0.5 } else { 0.0 }).unwrap())
            .then(RandomCrop::new((height, width)).unwrap().padding(padding).pad_if_needed(true))
            .then(RandomHorizontalFlip::new(0.5).unwrap());
        let batch = collate(column, sample(size, rect).with_position(0, number)).unwrap();
        assert_exact(&batch, width as usize);
    }

    #[test]
    fn a_mask_is_transformed_exactly_as_its_image(
        (height, width) in (1..50u32, 1..50u32),
        shares in shares(),
        degrees in prop::option::of(-180.0..180.0f64),
        resized in (1..36u32, 1..70u32),
        number: u64,
    ) {
        let pixels: Vec<u8> = (0..height * width).map(|at| (at * 37 % 256) as u8).collect();
        let png = Image::new(ImageMode::L8, (height, width), pixels).unwrap().to_png().unwrap();
        let mut column = column((36, 70))
            .then(crop(shares))
            .then(RandomHorizontalFlip::new(0.5).unwrap())
            .then(RandomResizedCrop::new(resized).unwrap().filter(Filter::Nearest))
            .then(RandomHorizontalFlip::new(0.5).unwrap())
            .then(RandomCrop::new((36, 70)).unwrap().padding(6).pad_if_needed(true));
        if let Some(degrees) = degrees {
            column = column.then(move |frame: &mut Frame<'_>, _: &mut Rng| {
                Ok(functional::rotate(frame, degrees, Filter::Nearest, [0; 3])?)
            });
        }
        let sample = sample((height, width), [0, 0, 1, 1]).with("png", png.clone()).with("seg.png", png);
        let batch = collate(column, sample.with_position(0, number)).unwrap();
        let pairs = batch["x"].as_bytes().iter().zip(batch["x.mask"].as_bytes());
        let differ = pairs.filter(|(pixel, label)| pixel != label).count();
        prop_assert_eq!(differ, 0);
    }

    #[test]
    fn rotated_and_sheared_objects_stay_in_their_boxes(
        (size, rect) in scene(),
        degrees in -180.0..180.0f64,
        matrix in (0.5..2.0f64, -0.5..0.5f64, -9.0..9.0f64, -0.5..0.5f64, 0.5..2.0f64, -9.0..9.0f64),
        shares in shares(),
        rotate: bool,
    ) {
        let (a, b, c, d, e, f) = matrix;
        let column = column((20, 30))
            .then(crop(shares))
            .then(move |frame: &mut Frame<'_>, _: &mut Rng| -> Result<()> {
                match rotate {
                    true => functional::rotate(frame, degrees, Filter::Nearest, [0; 3])?,
                    false => functional::affine(frame, [a, b, c, d, e, f], Filter::Nearest, [0; 3])?,
                }
                Ok(())
            })
            .then(RandomHorizontalFlip::new(1.0).unwrap())
            .then(CenterCrop::new((20, 30)).unwrap());
        let batch = collate(column, sample(size, rect)).unwrap();
        let picture = batch["x"].as_slice::<u8>().unwrap();
        prop_assert!(batch["x.mask"].as_slice::<u8>().unwrap() == picture, "the mask is another picture");
        let boxes = boxes_of(&batch);
        for at in picture.iter().enumerate().filter(|(_, number)| **number == 255).map(|(at, _)| at) {
            let (x, y) = ((at % 30) as f32 + 0.5, (at / 30) as f32 + 0.5);
            let inside = |[left, top, right, bottom]: &[f32; 4]| {
                x > left - 1e-3 && x < right + 1e-3 && y > top - 1e-3 && y < bottom + 1e-3
            };
            prop_assert!(boxes.iter().any(inside), "({}, {}) is white, and the boxes are {:?}", x, y, boxes);
        }
    }
}

/// A JPEG file with this EXIF orientation.
fn jpeg(picture: &Image, orientation: u8) -> Vec<u8> {
    let jpeg = picture.to_jpeg(100).unwrap();
    // A TIFF directory with one entry: 0x0112, the orientation.
    let mut exif = b"\xff\xe1\0\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    exif.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
    [&jpeg[..2], &exif, &jpeg[2..]].concat()
}

#[test]
fn boxes_follow_the_exif_orientation_of_their_image() {
    let (size, rect) = ((32, 48), [8, 16, 32, 24]);
    for orientation in 1..=8 {
        let file = jpeg(&drawing(size, rect), orientation);
        let turned = if orientation > 4 { (48, 32) } else { size };
        let plain = ImageColumn::new("jpg", turned).mode(ImageMode::L8).apply_orientation(true);
        let oriented =
            Columns::new().with("x", plain).collate([Sample::new("k").with("jpg", file.clone())]).unwrap();
        let labels: Vec<u8> =
            oriented["x"].as_slice::<u8>().unwrap().iter().map(|n| u8::from(*n > 128)).collect();
        // The position of the white rectangle in the oriented image.
        let white = || labels.iter().enumerate().filter(|(_, label)| **label == 1).map(|(at, _)| at as u32);
        let (xs, ys) = (|| white().map(|at| at % turned.1), || white().map(|at| at / turned.1));
        let rect = [xs().min(), ys().min(), xs().max().map(|x| x + 1), ys().max().map(|y| y + 1)];
        let corners = boxes(&[rect.map(|side| side.unwrap() as f32)]);
        let mask = Array::from_vec(vec![turned.0 as usize, turned.1 as usize], labels).unwrap();
        let sample = Sample::new("k").with("jpg", file).with("seg.npy", mask).with("boxes.npy", corners);
        for number in 0..8 {
            let column = ImageColumn::new("jpg", (24, 16))
                .mode(ImageMode::L8)
                .apply_orientation(true)
                .boxes(Boxes::new("boxes.npy"))
                .mask(Mask::new("seg.npy"))
                .then(
                    RandomResizedCrop::new((24, 16))
                        .unwrap()
                        .scale(0.5..=1.0)
                        .unwrap()
                        .filter(Filter::Nearest),
                )
                .then(RandomHorizontalFlip::new(0.5).unwrap());
            let mut batch = collate(column, sample.clone().with_position(0, number)).unwrap();
            for name in ["x", "x.mask"] {
                // JPEG compression changes black and white a little. The labels of the mask are exactly 0 and
                // 1.
                let most = if name == "x" { 128 } else { 0 };
                let numbers = batch.tensor_mut(name).unwrap().as_mut_slice::<u8>().unwrap();
                numbers.iter_mut().for_each(|number| *number = if *number > most { 255 } else { 0 });
            }
            assert_exact(&batch, 16);
        }
    }
}

#[test]
fn boxes_and_masks_follow_crops_resizes_and_flips() {
    // A bilinear resize of a JPEG is exact to within a pixel.
    let (size, rect) = ((240, 320), [80, 60, 200, 160]);
    let sample = sample(size, rect).with("png", drawing(size, rect).to_jpeg(95).unwrap());
    for number in 0..16 {
        let column = column(64)
            .then(RandomResizedCrop::new(64).unwrap().scale(0.3..=1.0).unwrap())
            .then(RandomHorizontalFlip::new(0.5).unwrap());
        let batch = collate(column, sample.clone().with_position(0, number)).unwrap();
        let white = |name: &str| {
            let numbers = batch[name].as_slice::<u8>().unwrap().iter().enumerate();
            let white: Vec<usize> = numbers.filter(|(_, number)| **number > 128).map(|(at, _)| at).collect();
            let (xs, ys) = (white.iter().map(|at| at % 64), white.iter().map(|at| at / 64));
            [xs.clone().min(), ys.clone().min(), xs.max().map(|x| x + 1), ys.max().map(|y| y + 1)]
                .map(|side| side.unwrap() as f32)
        };
        let [found] = boxes_of(&batch)[..] else { panic!("one box") };
        for (name, most) in [("x", 1.0), ("x.mask", 0.51)] {
            let close = white(name).iter().zip(found).all(|(white, found)| (white - found).abs() < most);
            assert!(close, "{name} {number}: {:?}, {found:?}", white(name));
        }
    }
}

#[test]
fn boxes_are_read_in_every_layout_and_encoding() {
    let png = drawing((20, 40), [0; 4]).to_png().unwrap();
    let kept = |boxes: Boxes, value: Value| {
        let column = ImageColumn::new("png", (10, 20)).then(Resize::exact((10, 20)).unwrap()).boxes(boxes);
        let sample = Sample::new("k").with("png", png.clone()).with("b", value);
        collate(column, sample).map(|batch| boxes_of(&batch)).map_err(|error| format!("{error:#}"))
    };
    let wanted = Ok(vec![[1., 2., 3., 6.]]);
    let numbers = [2i16, 4, 6, 12];
    let array = Array::from_vec(vec![1, 4], numbers.to_vec()).unwrap();
    assert_eq!(kept(Boxes::new("b"), array.to_npy().into()), wanted);
    assert_eq!(kept(Boxes::new("b"), array.clone().into()), wanted);
    assert_eq!(kept(Boxes::new("b").raw(DType::I16), array.data().to_vec().into()), wanted);
    assert_eq!(kept(Boxes::new("b"), "[[2, 4, 6.0, 12]]".into()), wanted);
    assert_eq!(kept(Boxes::new("b").at("/a"), serde_json::json!({"a": [[2, 4, 6, 12]]}).into()), wanted);
    let floats = Array::from_vec(vec![1, 4], vec![2f64, 4., 6., 12.]).unwrap();
    assert_eq!(kept(Boxes::new("b"), floats.into()), wanted);
    assert_eq!(
        kept(Boxes::new("b").format(BoxFormat::Xywh), "[[2, 4, 4, 8]]".into()),
        Ok(vec![[1., 2., 2., 4.]])
    );
    assert_eq!(
        kept(Boxes::new("b").format(BoxFormat::Cxcywh), "[[4, 8, 4, 8]]".into()),
        Ok(vec![[2., 4., 2., 4.]])
    );
    let relative = Boxes::new("b").relative();
    assert_eq!(kept(relative.clone(), "[[0.25, 0.5, 0.75, 1]]".into()), Ok(vec![[0.25, 0.5, 0.75, 1.]]));
    let center = relative.format(BoxFormat::Cxcywh);
    assert_eq!(kept(center, "[[0.5, 0.5, 2, 0.5]]".into()), Ok(vec![[0.5, 0.5, 1., 0.5]]));

    let nothing = Ok(vec![]);
    assert_eq!(kept(Boxes::new("b"), "[]".into()), nothing);
    assert_eq!(kept(Boxes::new("b").raw(DType::F32), b"".into()), nothing);
    assert_eq!(kept(Boxes::new("b"), Array::from_vec(vec![0], Vec::<f64>::new()).unwrap().into()), nothing);
    for (boxes, value, wanted) in [
        (Boxes::new("b"), Value::from("[[1, 2, 3]]"), "[1,2,3] is not a box"),
        (Boxes::new("b"), "[1, 2, 3, 4]".into(), "1 is not a box"),
        (Boxes::new("b"), "[[1, 2, 3, \"4\"]]".into(), "is not a box: write a list of four numbers"),
        (Boxes::new("b"), Array::from_vec(vec![4], numbers.to_vec()).unwrap().into(), "[4] cannot be boxes"),
        (Boxes::new("b"), boxes(&[[0., 0., f32::NAN, 1.]]).into(), "a number that is not finite"),
        (Boxes::new("b"), boxes(&[[f32::INFINITY, 0., 2., 1.]]).into(), "a number that is not finite"),
        (Boxes::new("b").raw(DType::F32), b"12345678".into(), "[2] cannot be boxes"),
        (Boxes::new("b").raw(DType::Bool), b"1234".into(), "boxes of bool"),
        (Boxes::new("c"), "[]".into(), "no field \"c\""),
    ] {
        let error = kept(boxes, value).unwrap_err();
        assert!(error.contains(wanted) && error.contains("sample k"), "{error}");
    }
}

#[test]
fn boxes_outside_a_crop_are_dropped_with_their_labels() {
    let list = [[0., 0., 4., 4.], [4., 4., 6., 6.], [0., 0., 10., 10.], [7., 5., 9., 5.], [8., 8., 12., 12.]];
    let png = drawing((20, 20), [0; 4]).to_png().unwrap();
    let labels = Array::from_vec(vec![5], vec![10u8, 11, 12, 13, 14]).unwrap();
    let sample = Sample::new("k").with("png", png).with("boxes.npy", boxes(&list)).with("cls.npy", labels);
    let batch = |boxes: Boxes| {
        let column =
            ImageColumn::new("png", 10).then(CenterCrop::new(10).unwrap()).boxes(boxes.labels("cls.npy"));
        collate(column, sample.clone())
    };
    let kept = |boxes: Boxes| batch(boxes).unwrap()["x.labels"].as_slice::<i64>().unwrap().to_vec();
    let all = || Boxes::new("boxes.npy");
    // The crop contains a quarter of the second and third boxes, and all of the last box.
    assert_eq!(kept(all()), [11, 12, 14]);
    assert_eq!(kept(all().min_visible(0.25)), [11, 12, 14]);
    assert_eq!(kept(all().min_visible(0.26)), [14]);
    assert_eq!(kept(all().min_size(1.0)), [11, 12, 14]);
    assert_eq!(kept(all().min_size(1.5)), [12, 14]);
    let found = batch(all()).unwrap();
    assert_eq!(boxes_of(&found), [[0., 0., 1., 1.], [0., 0., 5., 5.], [3., 3., 7., 7.]]);
    assert_eq!(found["x.boxes.offsets"].as_slice::<i64>().unwrap(), [0, 3]);
    assert_eq!(found["x.labels.offsets"].as_slice::<i64>().unwrap(), [0, 3]);

    let fixed = batch(all().fixed(4)).unwrap();
    let shapes: Vec<String> = fixed.iter().map(|(name, tensor)| format!("{name} {tensor}")).collect();
    let wanted = [
        "x uint8[1, 10, 10, 3]",
        "x.boxes float32[1, 4, 4]",
        "x.boxes.present bool[1, 4]",
        "x.labels int64[1, 4]",
    ];
    assert_eq!(shapes, wanted);
    assert_eq!(boxes_of(&fixed), [[0., 0., 1., 1.], [0., 0., 5., 5.], [3., 3., 7., 7.], [0.; 4]]);
    assert_eq!(fixed["x.boxes.present"].as_slice::<bool>().unwrap(), [true, true, true, false]);
    assert_eq!(fixed["x.labels"].as_slice::<i64>().unwrap(), [11, 12, 14, 0]);
    let error = format!("{:#}", batch(all().fixed(2)).unwrap_err());
    assert!(
        error.contains("3 boxes, and the tensor has room for 2") && error.contains("\"boxes.npy\""),
        "{error}"
    );
    let cut = batch(all().fixed(2).truncate()).unwrap();
    assert_eq!(cut["x.labels"].as_slice::<i64>().unwrap(), [11, 12]);
    assert_eq!(cut["x.boxes.present"].as_slice::<bool>().unwrap(), [true, true]);

    let few = Array::from_vec(vec![4], vec![0u8; 4]).unwrap();
    let column = || ImageColumn::new("png", 20).boxes(all().labels("cls.npy"));
    let error = format!("{:#}", collate(column(), sample.clone().with("cls.npy", few)).unwrap_err());
    assert!(error.contains("4 labels for 5 boxes") && error.contains("\"cls.npy\""), "{error}");
    let broken = Array::from_vec(vec![5], vec![0.5f32; 5]).unwrap();
    assert!(collate(column(), sample.clone().with("cls.npy", broken)).is_err());
}

#[test]
fn masks_are_read_in_every_form() {
    let png = drawing((2, 3), [0; 4]).to_png().unwrap();
    let masked = |mask: Mask, value: Value| {
        let column = ImageColumn::new("png", (4, 5)).then(CenterCrop::new((4, 5)).unwrap()).mask(mask);
        collate(column, Sample::new("k").with("png", png.clone()).with("m", value))
    };
    let numbers = |batch: Result<TensorBatch>| batch.unwrap()["x.mask"].as_slice::<u8>().unwrap().to_vec();
    let around = |fill: u8, [a, b, c, d, e, f]: [u8; 6]| {
        let mut all = [fill; 20];
        all[6..9].copy_from_slice(&[a, b, c]);
        all[11..14].copy_from_slice(&[d, e, f]);
        all.to_vec()
    };
    let labels: Vec<u8> = (1..=6).collect();
    let file = Image::new(ImageMode::L8, (2, 3), labels.clone()).unwrap().to_png().unwrap();
    let wanted = around(0, [1, 2, 3, 4, 5, 6]);
    assert_eq!(numbers(masked(Mask::new("m"), file.clone().into())), wanted);
    let array = Array::from_vec(vec![2, 3], labels.clone()).unwrap();
    assert_eq!(numbers(masked(Mask::new("m"), array.to_npy().into())), wanted);
    let wide = Array::from_vec(vec![2, 3], labels.iter().map(|n| i64::from(*n)).collect()).unwrap();
    assert_eq!(numbers(masked(Mask::new("m"), wide.into())), wanted);
    let truth = Array::from_vec(vec![2, 3], vec![true, false, true, false, true, true]).unwrap();
    assert_eq!(numbers(masked(Mask::new("m").fill(255), truth.into())), around(255, [1, 0, 1, 0, 1, 1]));
    let short = masked(Mask::new("m").dtype(DType::I32).fill(-1), file.into()).unwrap();
    assert_eq!(short["x.mask"].to_string(), "int32[1, 4, 5]");
    assert_eq!(short["x.mask"].as_slice::<i32>().unwrap()[5..10], [-1, 1, 2, 3, -1]);

    let large = Array::from_vec(vec![2, 3], vec![256i32; 6]).unwrap();
    let other = Array::from_vec(vec![3, 2], vec![0u8; 6]).unwrap();
    let list = Array::from_vec(vec![6], vec![0u8; 6]).unwrap();
    let floats = Array::from_vec(vec![2, 3], vec![0f32; 6]).unwrap();
    let colour = Image::new(ImageMode::Rgb8, (2, 3), vec![0; 18]).unwrap().to_png().unwrap();
    for (value, wanted) in [
        (Value::from(large), "256 does not fit uint8"),
        (other.into(), "the mask has 3 x 2 (height x width), and its picture has 2 x 3"),
        (list.into(), "[6] cannot be a mask"),
        (floats.into(), "float32"),
        ("[[1, 2]]".into(), "a list cannot be a mask"),
        (b"\x89PNG\r\n\x1a\n".into(), "decode"),
        (colour.into(), "must be grey or have a palette"),
        (7.into(), "a whole number"),
    ] {
        let error = format!("{:#}", masked(Mask::new("m"), value).unwrap_err());
        assert!(error.contains(wanted) && error.contains("\"m\"") && error.contains("sample k"), "{error}");
    }
}

#[test]
fn a_transform_that_boxes_cannot_follow_is_an_error() {
    let redraw = |frame: &mut Frame<'_>, _: &mut Rng| -> Result<()> {
        Ok(frame.redraw(frame.size(), |from, to| to.copy_from_slice(from))?)
    };
    let sample = || sample((8, 8), [1, 2, 3, 4]);
    let plain = ImageColumn::new("png", 8).then(redraw);
    assert!(collate(plain.clone(), sample()).is_ok());
    for column in [plain.clone().boxes(Boxes::new("boxes.npy")), plain.mask(Mask::new("seg.png"))] {
        let error = collate(column, sample()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error:?}");
        assert!(error.to_string().contains("`Frame::redraw`"), "{error}");
    }
    // Colour transforms and random erasing do not move pixels. Boxes follow the transforms that move pixels.
    let augmented = column(8)
        .then(RandAugment::new(9, 20).unwrap())
        .then(RandomErasing::new(1.0).unwrap())
        .then(|frame: &mut Frame<'_>, _: &mut Rng| -> Result<()> {
            Ok(functional::adjust_sharpness(frame, 2.0)?)
        });
    collate(augmented, sample()).unwrap();
}

#[test]
fn missing_images_have_no_boxes() {
    let column = |field: &str| {
        let column = ImageColumn::new(field, 8).mode(ImageMode::L8);
        column.boxes(Boxes::new("boxes.npy").fixed(2)).mask(Mask::new("seg.png"))
    };
    let sample = sample((8, 8), [1, 2, 3, 4]);
    let columns = Columns::new()
        .with("optional", Optional::new(column("png")))
        .with("stack", Stack::new(["jpg", "png"], column));
    let batch = columns.collate([Sample::new("a"), sample]).unwrap();
    assert_eq!(batch["optional.present"].as_slice::<bool>().unwrap(), [false, true]);
    assert_eq!(batch["optional.boxes.present"].as_slice::<bool>().unwrap(), [false, false, true, false]);
    assert_eq!(batch["optional.mask"].as_slice::<u8>().unwrap()[..64], [0; 64]);
    assert_eq!(batch["stack.boxes"].shape(), [2, 2, 2, 4]);
    assert_eq!(batch["stack.boxes"].as_slice::<f32>().unwrap()[24..28], [1., 2., 3., 4.]);
    assert_eq!(batch["stack.mask"].shape(), [2, 2, 8, 8]);
    assert_eq!(batch["stack.present"].as_slice::<bool>().unwrap(), [false, false, false, true]);
}

#[test]
fn threads_change_no_batch() {
    let dir = tempfile::tempdir().unwrap();
    let pattern = format!("{}/%06d.tar", dir.path().display());
    let mut writer = ShardWriter::builder(&pattern).max_count(6).build().unwrap();
    for at in 0..24 {
        let size = (30 + at, 50 - at);
        let fields = sample(size, [at, 3, at + 9, 20]);
        let fields = fields.fields().fold(Sample::new(format!("{at:06}")), |sample, (field, value)| {
            sample.with(field.to_owned(), value.clone())
        });
        writer.write(&fields).unwrap();
    }
    writer.finish().unwrap();
    let tensors = |threads: usize| -> Vec<Vec<(String, Vec<u8>)>> {
        let column = column(16)
            .then(RandomResizedCrop::new(16).unwrap().filter(Filter::Nearest))
            .then(RandomHorizontalFlip::new(0.5).unwrap());
        let dataset =
            Dataset::builder(pattern.replace("%06d", "{000000..000003}")).streams(2).build().unwrap();
        let loader = Loader::builder(dataset).shuffle(8).threads(threads).batch(8);
        let loader = loader.collate(Columns::new().with("x", column)).build().unwrap();
        let content = |batch: Result<TensorBatch, Error>| -> Vec<(String, Vec<u8>)> {
            batch
                .unwrap()
                .iter()
                .map(|(name, tensor)| (name.to_owned(), tensor.as_bytes().to_vec()))
                .collect()
        };
        loader.epoch(1).map(content).collect()
    };
    let all = tensors(0);
    assert_eq!(all.len(), 3);
    for batch in &all {
        assert_eq!(batch[0].1, batch[3].1, "the mask is the picture");
    }
    assert_eq!(tensors(3), all);
}
