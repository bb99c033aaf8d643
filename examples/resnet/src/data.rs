//! The input pipeline: from tar shards to batches on the host.

use crate::augment::{Draw, augment};
use shardstream::prelude::*;
use shardstream::{Error, ErrorKind, Result};

/// An error of the input pipeline, whichever that is.
pub type DataError = Box<dyn std::error::Error + Send + Sync>;

/// Some images with their labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostBatch {
    /// N x height x width x RGB.
    pub images: Vec<u8>,
    /// N labels; -1 for padding.
    pub labels: Vec<i32>,
    /// How many at the start are samples; the rest is padding.
    pub valid: usize,
}

/// Which part of the data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// Shuffled and augmented; only full batches.
    Train,
    /// In order, as they are; the last batch is padded.
    Validation,
}

/// What both parts have in common.
#[derive(Debug, Clone)]
pub struct Options {
    /// Of order and augmentation.
    pub seed: u64,
    /// Images per batch.
    pub batch: usize,
    /// Height and width of the images.
    pub size: usize,
    /// The number of classes.
    pub classes: usize,
    /// Threads that decode; 0 for as many as there are cores.
    pub threads: usize,
    /// Samples in the shuffle buffer of each stream.
    pub shuffle: usize,
}

/// So many shards are read at a time, where there are as many.
const STREAMS: usize = 4;

/// An image with its label, ready for a batch.
type Item = (Vec<u8>, i32);

/// One part of a data set, to be read epoch by epoch.
#[derive(Debug, Clone)]
pub struct Data(Loader<Item>);

impl Data {
    /// Opens the shards of `split`: a pattern such as `gs://bucket/train-{000000..000009}.tar`, of samples with an
    /// image (`jpg`, `png` or `webp`) and a class (`cls`).
    pub fn open(shards: &str, split: Split, options: &Options) -> Result<Self, DataError> {
        let train = split == Split::Train;
        let shards = Dataset::builder(shards).build()?.shards().clone();
        let streams = if train { shards.len().min(STREAMS) } else { 1 };
        let dataset =
            Dataset::builder(shards).seed(options.seed).streams(streams).shuffle_shards(train).build()?;
        let decoder = Decoder::new().images(ImageMode::Rgb8).only(&["jpg", "jpeg", "png", "webp", "cls"]);
        let Options { seed, size, classes, .. } = *options;
        let mut builder = Loader::builder(dataset);
        if train {
            builder = builder.shuffle(options.shuffle);
        }
        if options.threads > 0 {
            builder = builder.threads(options.threads);
        }
        let loader = builder
            .map(move |sample| {
                let draw = train.then(|| Draw::random(&mut sample.rng(seed)));
                let mut sample = decoder.decode(sample)?;
                let image: Image = sample.take("jpg;jpeg;png;webp")?;
                let label = label(sample.take("cls")?, classes)?;
                let pixels = pixels(image, size)?;
                Ok((draw.map(|draw| augment(&pixels, size, draw)).unwrap_or(pixels), label))
            })
            .batch(options.batch);
        Ok(Data(if train { loader.partial(Partial::Drop) } else { loader.pad() }))
    }

    /// The batches of one epoch, counted from 0. With the seed the epoch decides order and augmentation.
    pub fn batches(&self, epoch: u64) -> impl Iterator<Item = Result<HostBatch, DataError>> + Send + use<> {
        self.0.epoch(epoch).map(|batch| Ok(HostBatch::from(batch?)))
    }
}

fn label(class: i64, classes: usize) -> Result<i32> {
    i32::try_from(class)
        .ok()
        .filter(|class| (0..classes as i32).contains(class))
        .ok_or_else(|| Error::step(format!("the class {class} is not one of the program's {classes}")))
}

/// The pixels of an image of the size that the program was exported for.
fn pixels(image: Image, size: usize) -> Result<Vec<u8>> {
    if (image.width() as usize, image.height() as usize) != (size, size) {
        let (width, height) = (image.width(), image.height());
        return Err(Error::step(format!(
            "the image has {width}x{height} pixels, the program wants {size}x{size}"
        )));
    }
    match image.into_pixels() {
        Pixels::U8(pixels) => Ok(pixels),
        _ => Err(ErrorKind::Config("the decoder was asked for pixels of bytes".into()).into()),
    }
}

impl From<Batch<Item>> for HostBatch {
    fn from(batch: Batch<Item>) -> Self {
        let valid = batch.valid();
        let (images, mut labels): (Vec<Vec<u8>>, Vec<i32>) = batch.unzip();
        labels[valid..].fill(-1);
        HostBatch { images: images.concat(), labels, valid }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shards::{Counts, Shards, synthetic};
    use std::path::Path;

    fn shards(dir: &Path) -> Shards {
        synthetic(dir, Counts { train: 1100, validation: 100 }).unwrap()
    }

    fn options() -> Options {
        Options { seed: 5, batch: 96, size: 32, classes: 10, threads: 2, shuffle: 100 }
    }

    fn all(data: &Data, epoch: u64) -> Vec<HostBatch> {
        data.batches(epoch).map(Result::unwrap).collect()
    }

    #[test]
    fn training_batches_are_full_and_repeatable() {
        let dir = tempfile::tempdir().unwrap();
        let train = &shards(dir.path()).train;
        let data = Data::open(train, Split::Train, &options()).unwrap();
        let first = all(&data, 0);
        assert_eq!(first.len(), 11);
        assert!(first.iter().all(|b| b.valid == 96 && b.labels.iter().all(|l| (0..10).contains(l))));
        assert!(first.iter().all(|b| b.images.len() == 96 * 32 * 32 * 3));
        let threads = Options { threads: 1, ..options() };
        assert_eq!(all(&Data::open(train, Split::Train, &threads).unwrap(), 0), first);
        assert_ne!(all(&data, 1)[0], first[0]);
    }

    #[test]
    fn validation_batches_are_padded_and_complete() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(&shards(dir.path()).validation, Split::Validation, &options()).unwrap();
        let all = all(&data, 0);
        assert_eq!(all.iter().map(|b| b.valid).collect::<Vec<_>>(), [96, 4]);
        assert_eq!((all[1].labels.len(), all[1].images.len()), (96, 96 * 32 * 32 * 3));
        assert!(all[1].labels[4..].iter().all(|l| *l == -1));
    }

    #[test]
    fn what_does_not_fit_the_program_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let train = &shards(dir.path()).train;
        for (options, message) in [
            (Options { size: 64, ..options() }, "32x32"),
            (Options { classes: 3, ..options() }, "not one of"),
        ] {
            let data = Data::open(train, Split::Train, &options).unwrap();
            let error = data.batches(0).find_map(std::result::Result::err).unwrap();
            let cause = error.source().unwrap().to_string();
            assert!(cause.contains(message), "{error}: {cause}");
            assert!(error.to_string().contains("train-00000"), "{error}");
        }
        assert!(Data::open("nowhere/*.tar", Split::Train, &options()).is_err());
    }
}
