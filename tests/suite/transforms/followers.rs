//! Boxes and masks follow the transforms that move pixels.

use proptest::prelude::*;
use shardstream::codec::Array;
use shardstream::collate::{Boxes, Mask};
use shardstream::image::*;
use shardstream::prelude::*;

const SIDE: u32 = 24;

/// A sample with a white rectangle (left, top, right, bottom) as image, as mask and as box.
fn sample((height, width): (u32, u32), [left, top, right, bottom]: [u32; 4], number: u64) -> Sample {
    let white = |at: u32| {
        let (x, y) = (at % width, at / width);
        if (left..right).contains(&x) && (top..bottom).contains(&y) { 255 } else { 0 }
    };
    let pixels: Vec<u8> = (0..height * width).map(white).collect();
    let png = Image::new(ImageMode::L8, (height, width), pixels).unwrap().to_png().unwrap();
    let corners = Array::from_vec(vec![1, 4], [left, top, right, bottom].map(|side| side as f32).to_vec());
    let sample = Sample::new("k").with_position(0, number).with("png", png.clone());
    sample.with("seg.png", png).with("boxes.npy", corners.unwrap().to_npy())
}

/// Adds the transform of number `kind`. Also returns whether the transformed image shows the rectangle once,
/// without reflected copies.
fn with(column: ImageColumn, kind: u8) -> (ImageColumn, bool) {
    let nearest = Filter::Nearest;
    let affine = || {
        let affine = RandomAffine::new(-180.0..=180.0)?.translate(0.3, 0.3)?.scale(0.5..=2.0)?;
        affine.shear(-30.0..=30.0)?.shear_y(-30.0..=30.0)?.filter(nearest)
    };
    let size = (SIDE / 2, SIDE / 3);
    let column = match kind {
        0 => column.then(RandomVerticalFlip::new(0.7).unwrap()),
        1 => column.then(RandomRotation::new(-180.0..=180.0).unwrap()),
        2 => column.then(RandomRotation::new(-180.0..=180.0).unwrap().expand(true)),
        3 => column.then(affine().unwrap()),
        4 => column.then(RandomPerspective::new(0.9).unwrap().filter(nearest).unwrap()),
        5 => column.then(Pad::sides(3, 0, 5, 7)),
        6 => column.then(ten_crop(size, true).unwrap()[7].clone()),
        7 => column.then(RandomApply::new(0.5, RandomHorizontalFlip::new(1.0).unwrap()).unwrap()),
        8 => column.then(Pad::new((5, 90)).padding_mode(PaddingMode::Reflect)),
        9 => column.then(Pad::sides(0, 30, 1, 2).padding_mode(PaddingMode::Symmetric)),
        10 => column.then(Pad::new(4).padding_mode(PaddingMode::Edge)),
        _ => {
            let crop = RandomCrop::new(SIDE + 9).unwrap().pad_if_needed(true);
            column.then(crop.padding_mode(PaddingMode::Reflect))
        }
    };
    (column, kind < 8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn masks_and_boxes_follow_every_transform(
        size in (SIDE..50, SIDE..50),
        at in (0..20u32, 0..20u32),
        length in (1..9u32, 1..9u32),
        kinds in prop::collection::vec(0..12u8, 1..4),
        number: u64,
    ) {
        // Crops need an image of a known size, and two crops in a row would not fit, so each transform
        // follows a resize.
        let mut column = ImageColumn::new("png", SIDE).mode(ImageMode::L8);
        // Boxes are only compared after a single transform: each further transform may move a pixel by half a
        // pixel, and the resize then enlarges this difference.
        let mut alone = kinds.len() == 1;
        for kind in kinds {
            let resized = column.then(Resize::exact(size).unwrap().filter(Filter::Nearest));
            let (changed, is_alone) = with(resized, kind);
            (column, alone) = (changed, alone && is_alone);
        }
        let column = column.then(Resize::exact(SIDE).unwrap().filter(Filter::Nearest));
        let column = column.mask(Mask::new("seg.png")).boxes(Boxes::new("boxes.npy"));
        let rect = [at.0, at.1, (at.0 + length.0).min(size.1), (at.1 + length.1).min(size.0)];
        let columns = Columns::new().with("x", column).seed(7);
        let batch = columns.collate([sample(size, rect, number)]).unwrap();
        let picture = batch["x"].as_slice::<u8>().unwrap();
        prop_assert_eq!(picture, batch["x.mask"].as_slice::<u8>().unwrap());
        let boxes = batch["x.boxes"].as_slice::<f32>().unwrap().as_chunks::<4>().0;
        for at in (0..picture.len()).filter(|at| alone && picture[*at] == 255) {
            let (x, y) = ((at as u32 % SIDE) as f32 + 0.5, (at as u32 / SIDE) as f32 + 0.5);
            let holds = |[left, top, right, bottom]: &[f32; 4]| {
                x > left - 2.0 && x < right + 2.0 && y > top - 2.0 && y < bottom + 2.0
            };
            prop_assert!(boxes.iter().any(holds), "({x}, {y}) is white, and the boxes are {boxes:?}");
        }
    }
}
