//! Time from JPEGs to a batch: decoding, crop, resize, conversion of values.
//!
//! Each line of the output measures one step more than the line before. The lines with "not verified" decode
//! only the part of the JPEG that the crop needs.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use shardstream::image::{Filter, Frame};
use shardstream::prelude::*;
use shardstream::{Result, Rng};
use std::hint::black_box;

const WIDTH: u32 = 500;
const HEIGHT: u32 = 375;
/// Images per batch.
const BATCH: usize = 64;

/// Grainy shapes, as a JPEG of about 90 KB: the size of a typical photograph of the same height and width.
fn jpeg() -> Vec<u8> {
    let mut rng = Rng::new(7, 0, 0);
    let mut pixels = Vec::new();
    for (y, x) in (0..HEIGHT).flat_map(|y| (0..WIDTH).map(move |x| (f64::from(y), f64::from(x)))) {
        let shape = (x / 40.0).sin() * (y / 30.0).cos() * 60.0
            + if (x / 90.0).fract() > (y / 70.0).fract() { 40.0 } else { -20.0 };
        for channel in 0..3 {
            let grain = (rng.unit() - 0.5) * 26.0;
            pixels.push((120.0 + shape + f64::from(channel) * 15.0 + grain).clamp(0.0, 255.0) as u8);
        }
    }
    let image = Image::new(ImageMode::Rgb8, (HEIGHT, WIDTH), pixels).expect("the number of values is right");
    image.to_jpeg(90).expect("the image can be encoded")
}

/// Crops a window as large as RandomResizedCrop's windows are on average.
fn average_crop(frame: &mut Frame<'_>, _: &mut Rng) -> Result<()> {
    frame.crop(50, 70, (270, 360))?;
    Ok(())
}

fn crop_resize_flip(frame: &mut Frame<'_>, rng: &mut Rng) -> Result<()> {
    average_crop(frame, rng)?;
    frame.resize(224, Filter::Bilinear)?;
    frame.flip_horizontal();
    Ok(())
}

fn image(c: &mut Criterion) {
    let file = jpeg();
    let samples: Vec<Sample> =
        (0..BATCH).map(|n| Sample::new(n.to_string()).with("jpg", file.clone())).collect();
    let whole = ImageColumn::new("jpg", (HEIGHT, WIDTH));
    let part = ImageColumn::new("jpg", (270, 360)).then(average_crop);
    let small = || ImageColumn::new("jpg", 224).then(crop_resize_flip);
    let planar = small().layout(Layout::Chw);
    let float =
        small().layout(Layout::Chw).dtype(DType::F32).normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
    let crops = || ImageColumn::new("jpg", 224).then(RandomResizedCrop::new(224).expect("the size is valid"));
    let mut group = c.benchmark_group(format!("JPEG of {} KB", file.len() >> 10));
    group.throughput(Throughput::Elements(BATCH as u64)).sample_size(20);
    for (name, column) in [
        ("1 decoded", whole.clone()),
        ("1 decoded, not verified", whole.verify(false)),
        ("2 RandomResizedCrop 224", crops()),
        ("2 RandomResizedCrop 224, not verified", crops().verify(false)),
        ("2 a window of 270 x 360 (height x width)", part),
        ("3 resized to 224", small()),
        ("4 in planes", planar),
        ("5 normalized f32", float),
    ] {
        let columns = Columns::new().with("image", column);
        group.bench_function(name, |b| {
            b.iter(|| columns.collate(black_box(samples.clone())).expect("the samples are valid"))
        });
    }
    group.finish();
}

criterion_group!(benches, image);
criterion_main!(benches);
