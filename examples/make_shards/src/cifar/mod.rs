//! Reads CIFAR-10 from its binary or its Python download, and writes it to shards.

pub mod pickle;
mod source;

pub use source::{CHANNELS, CLASSES, Images, PIXELS, SIZE, Sets, read};

use crate::progress::Task;
use crate::series::{self, Series};
use crate::{Error, Result};
use shardstream::image::ImageError;
use shardstream::prelude::*;
use shardstream::write::ShardInfo;
use shardstream::{Index, Rng};
use std::sync::Arc;

/// Format of the images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Compressed without loss: about 2.2 KB per image
    Png,
    /// Raw pixels, which need no decoding: 3.1 KB per image
    Ppm,
}

impl Format {
    /// The name of the image's field.
    pub fn field(self) -> &'static str {
        match self {
            Format::Png => "png",
            Format::Ppm => "ppm",
        }
    }

    fn encode(self, pixels: Vec<u8>) -> Result<Vec<u8>, ImageError> {
        let image = Image::new(ImageMode::Rgb8, SIZE as u32, pixels)?;
        match self {
            Format::Png => image.to_png(),
            Format::Ppm => image.to_ppm(),
        }
    }
}

/// How to write the shards of the training or the validation set.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of copies of each image.
    pub repeat: u64,
    /// Samples in a shard.
    pub per_shard: u64,
    /// Format of the images.
    pub format: Format,
    /// Seed for shuffling the images. Each copy has another order. `None` keeps the order of the source.
    pub shuffle_seed: Option<u64>,
    /// Whether to remove existing shards.
    pub overwrite: bool,
    /// Number of threads that encode images.
    pub threads: usize,
}

/// Writes the shards of a set, and their index beside them.
///
/// # Errors
/// [`Error::Taken`] if shards of the series exist and `overwrite` is not set, and the errors of writing.
pub fn write(
    store: &Store,
    series: &Series,
    images: &Arc<Images>,
    options: &Options,
) -> Result<Vec<ShardInfo>> {
    let existing = series.existing(store)?;
    match existing.first() {
        Some(first) if !options.overwrite => {
            return Err(Error::Taken { count: existing.len(), first: first.into() });
        }
        _ => series.clear(store, &existing)?,
    }
    let encode = Task::count(&format!("encoding {}", series.name()), images.len() as u64);
    let (source, format) = (Arc::clone(images), options.format);
    let encoded = (0..images.len()).map(Ok).pipeline().par_map(options.threads, move |number| {
        let (pixels, label) = source.get(number);
        Ok(format.encode(pixels).map(|file| (file, label)))
    });
    let mut files: Vec<(Vec<u8>, u8)> = Vec::with_capacity(images.len());
    for file in encoded {
        files.push(file??);
        encode.add(1);
    }
    drop(encode);

    let task = Task::count(&format!("writing {}", series.name()), images.len() as u64 * options.repeat);
    let mut writer = ShardWriter::builder(series.pattern())
        .store(store.clone())
        .max_count(options.per_shard)
        .max_bytes(u64::MAX)
        .build()?;
    let mut order: Vec<usize> = (0..files.len()).collect();
    for repetition in 0..options.repeat {
        if let Some(seed) = options.shuffle_seed {
            Rng::new(seed, repetition, 0).shuffle(&mut order);
        }
        for (number, at) in order.iter().enumerate() {
            let (file, label) = &files[*at];
            let key = series::key(repetition * files.len() as u64 + number as u64);
            let sample = Sample::new(key).with(options.format.field(), file.clone());
            writer.write(&sample.with("cls", i64::from(*label)))?;
            task.add(1);
        }
    }
    let shards = writer.finish()?;
    shards.iter().collect::<Index>().save(store, &series.index())?;
    Ok(shards)
}
