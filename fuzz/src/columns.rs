//! Every column turns a field of any bytes into a row of a batch or an error.

use shardstream::Sample;
use shardstream::codec::DType;
use shardstream::collate::{
    ArrayColumn, Boxes, Column, Columns, ImageColumn, Mask, Optional, Origin, PackedTokens, Ragged,
    RaggedImages, Scalar, Stack, TensorBatch, Text, Tokens,
};
use shardstream::image::{Filter, Image, ImageMode, RandomHorizontalFlip, RandomResizedCrop, Resize};
use std::sync::LazyLock;

fn collate(data: &[u8], column: impl Column + 'static) -> Option<TensorBatch> {
    // The second sample lacks a field that some columns need.
    let samples = [Sample::new("a").with("x", data).with("y", data), Sample::new("b").with("x", data)];
    let batch = Columns::new().with("x", column).collate(samples).ok()?;
    assert_eq!(batch.len(), 2);
    Some(batch)
}

/// Asserts that the offsets never decrease, and that the last offset is the number of rows.
fn assert_offsets(batch: &TensorBatch, name: &str) {
    let offsets = batch[format!("{name}.offsets").as_str()].as_slice::<i64>().unwrap();
    assert!(offsets.is_sorted() && offsets[0] == 0);
    assert_eq!(offsets.last().copied(), Some(batch[name].shape()[0] as i64));
}

/// Collates a sample with the field `x`, which is `data`, and the field `png`, a picture of 9 x 7 pixels.
fn collate_with_picture(data: &[u8], column: ImageColumn) -> Option<TensorBatch> {
    static PNG: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let image = Image::new(ImageMode::L8, (9, 7), vec![100; 63]);
        image.and_then(|image| image.to_png()).unwrap()
    });
    let column = column
        .mode(ImageMode::L8)
        .then(RandomResizedCrop::new(8).unwrap().filter(Filter::Nearest))
        .then(RandomHorizontalFlip::new(0.5).unwrap());
    let sample = Sample::new("a").with_position(0, data.len() as u64);
    let sample = sample.with("png", PNG.clone()).with("x", data);
    Columns::new().with("image", column).collate([sample]).ok()
}

fn boxes(data: &[u8], boxes: Boxes, relative: bool) {
    let Some(batch) = collate_with_picture(data, ImageColumn::new("png", 8).boxes(boxes)) else { return };
    assert_offsets(&batch, "image.boxes");
    let side = if relative { 1.0 } else { 8.0 };
    for [left, top, right, bottom] in batch["image.boxes"].as_slice::<f32>().unwrap().as_chunks().0 {
        assert!(0.0 <= *left && left <= right && *right <= side, "{left} {right}");
        assert!(0.0 <= *top && top <= bottom && *bottom <= side, "{top} {bottom}");
    }
}

pub fn run(data: &[u8]) {
    collate(data, ArrayColumn::new("x", DType::I16, [2, 3]));
    collate(data, ArrayColumn::new("x", DType::F32, [2]).named("a"));
    collate(data, ArrayColumn::new("x", DType::U8, [8]).raw());
    collate(data, Tokens::<i32>::new("x", 4).truncate().mask());
    collate(data, Tokens::<u8>::new("x", 4).named("a"));
    collate(data, Tokens::<i64>::new("x", 4).at("/a/0"));
    collate(data, Ragged::<f32>::new("x"));
    collate(data, Ragged::<u16>::new("x").raw(DType::I32));
    collate(data, Text::new("x"));
    collate(data, PackedTokens::<u32>::new("x", 1, 4).drop_rest().truncate());

    collate(data, Optional::new(Scalar::<f32>::new("y")).default_value("0.5"));
    collate(data, Optional::new(Ragged::<i64>::new("y").at("/a")));
    collate(data, Stack::new(["x", "y", "z"], |field| Tokens::<i16>::new(field, 3).truncate()));
    let image = |field: &str| ImageColumn::new(field, 4).max_size(1 << 20).then(Resize::exact(4).unwrap());
    collate(data, Stack::new(["y", "x"], image));
    if let Some(batch) = collate(data, RaggedImages::new(image("*"))) {
        assert_offsets(&batch, "x");
    }
    if let Ok(key) = std::str::from_utf8(data) {
        let columns = Columns::new()
            .with("key", Origin::key())
            .with("shard", Origin::shard())
            .with("at", Origin::position());
        let batch = columns.collate([Sample::new(key)]).unwrap();
        assert!(batch.strings("key").unwrap().eq([key]) && batch.strings("shard").unwrap().eq([""]));
        assert_eq!(batch["at"].as_slice::<i64>().unwrap(), [0; 4]);
    }

    boxes(data, Boxes::new("x"), false);
    boxes(data, Boxes::new("x").raw(DType::F32).relative(), true);
    boxes(data, Boxes::new("x").raw(DType::I8).labels("x").min_visible(0.5).min_size(1.0), false);
    let image = || ImageColumn::new("png", 8);
    collate_with_picture(data, image().boxes(Boxes::new("x").at("/a").fixed(3).truncate()));
    collate_with_picture(data, image().mask(Mask::new("x")));
    collate_with_picture(data, image().mask(Mask::new("x").dtype(DType::I32).fill(-1)));
}
