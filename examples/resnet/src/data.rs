//! The input pipeline: from tar shards to batches on the host.

use crate::progress::Task;
use bytes::Bytes;
use shardstream::collate::{Columns, ImageColumn, Row, TensorBatch};
use shardstream::image::{Frame, RandomCrop, RandomHorizontalFlip};
use shardstream::prelude::*;
use shardstream::{Error, Index, Result, Rng, State};
use std::path::PathBuf;

/// An error of the input pipeline, whichever that is.
pub type DataError = Box<dyn std::error::Error + Send + Sync>;

/// The batches of one part of an epoch.
pub type HostBatches = Box<dyn Iterator<Item = Result<HostBatch, DataError>> + Send>;

/// Where a training gets its batches from.
pub trait Source {
    /// The batches of an epoch, counted from 0: full ones for training, padded ones for validation.
    fn batches(&self, split: Split, epoch: u64) -> Result<HostBatches, DataError>;

    /// The state of the training data before the first batch of an epoch; `None` where there is nothing to save.
    fn start(&self, epoch: u64) -> Option<State>;

    /// The training batches that an epoch still has after `state`.
    fn rest(&self, state: &State) -> Result<HostBatches, DataError>;
}

/// Both parts of a data set.
#[derive(Debug, Clone)]
pub struct Sets {
    /// What is trained on.
    pub train: Data,
    /// What the accuracy is measured on.
    pub validation: Data,
}

impl Source for Sets {
    fn batches(&self, split: Split, epoch: u64) -> Result<HostBatches, DataError> {
        Ok(match split {
            Split::Train => Box::new(self.train.batches(epoch)),
            Split::Validation => Box::new(self.validation.batches(epoch)),
        })
    }

    fn start(&self, epoch: u64) -> Option<State> {
        Some(self.train.start(epoch))
    }

    fn rest(&self, state: &State) -> Result<HostBatches, DataError> {
        Ok(Box::new(self.train.rest(state)?))
    }
}

/// Some images with their labels.
#[derive(Debug, Clone)]
pub struct HostBatch {
    /// N x height x width x RGB. The memory is that of a later batch when it has been dropped.
    pub images: Bytes,
    /// N labels; -1 for padding.
    pub labels: Vec<i32>,
    /// How many at the start are samples; the rest is padding.
    pub valid: usize,
    /// The state of the data after this batch, where it is known: what comes next if this one was trained on.
    pub state: Option<State>,
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
    /// A directory where the indexes of shards are kept, so that the next start need not read their headers.
    pub index_cache: Option<PathBuf>,
}

/// So many shards are read at a time, where there are as many.
const STREAMS: usize = 4;

/// How far an image is shifted at most, in pixels; what comes in from outside is black.
const SHIFT: u32 = 4;

/// One part of a data set, to be read epoch by epoch.
#[derive(Debug, Clone)]
pub struct Data(Loader<Row, TensorBatch>);

impl Data {
    /// Opens the shards of `split`: a pattern such as `gs://bucket/train-{000000..000009}.tar`, of samples with an
    /// image (`jpg`, `png` or `webp`) and a class (`cls`).
    pub fn open(shards: &str, split: Split, options: &Options) -> Result<Self, DataError> {
        let train = split == Split::Train;
        let shards = Dataset::builder(shards).build()?.shards().clone();
        let streams = if train { shards.len().min(STREAMS) } else { 1 };
        let mut dataset =
            Dataset::builder(shards.clone()).seed(options.seed).streams(streams).shuffle_shards(train);
        if train {
            // With it all streams are of one length, whatever the shards are, and give full batches to the end of the
            // epoch; and a restored one reads no shard from its beginning.
            let task = Task::spinner("indexing the shards");
            let index = Index::builder();
            let index = match &options.index_cache {
                Some(directory) => index.cache(directory),
                None => index,
            };
            dataset = dataset.index(index.build(&shards)?);
            task.done();
        }
        let dataset = dataset.build()?;
        let Options { size, classes, .. } = *options;
        let size = u32::try_from(size)?;
        // A larger image would otherwise be cropped without a word.
        let mut images = ImageColumn::new("jpg;jpeg;png;webp", size, size).then(
            move |image: &mut Frame<'_>, _: &mut Rng| {
                let (width, height) = (image.width(), image.height());
                let what =
                    || format!("the image has {width}x{height} pixels, the program wants {size}x{size}");
                if (width, height) == (size, size) { Ok(()) } else { Err(Error::step(what())) }
            },
        );
        if train {
            images = images.then(RandomCrop::new(size)?.padding(SHIFT)).then(RandomHorizontalFlip::new(0.5)?);
        }
        let columns =
            Columns::new().with("image", images).with_fn("label", [], move |sample, slot: &mut [i32]| {
                slot.fill(label(sample, classes)?);
                Ok(())
            });
        let mut builder = Loader::builder(dataset).decode(Decoder::new().only(&["cls"]));
        if train {
            builder = builder.shuffle(options.shuffle);
        }
        if options.threads > 0 {
            builder = builder.threads(options.threads);
        }
        let loader = builder.batch(options.batch).collate(columns);
        Ok(Data(if train { loader.partial(Partial::Drop) } else { loader.pad() }))
    }

    /// The batches of one epoch, counted from 0. With the seed the epoch decides order and augmentation.
    pub fn batches(&self, epoch: u64) -> impl Iterator<Item = Result<HostBatch, DataError>> + Send + use<> {
        self.0.epoch(epoch).map(host)
    }

    /// The state before the first batch of an epoch.
    pub fn start(&self, epoch: u64) -> State {
        self.0.epoch(epoch).state()
    }

    /// The batches that the epoch of `state` still has after it.
    pub fn rest(
        &self,
        state: &State,
    ) -> Result<impl Iterator<Item = Result<HostBatch, DataError>> + Send + use<>, DataError> {
        Ok(self.0.restore(state)?.map(host))
    }
}

fn host(batch: Result<TensorBatch>) -> Result<HostBatch, DataError> {
    let mut batch = batch?;
    let mut labels = batch.tensor("label")?.as_slice::<i32>()?.to_vec();
    labels[batch.valid()..].fill(-1);
    let images = batch.take("image")?.into_bytes();
    Ok(HostBatch { images, labels, valid: batch.valid(), state: batch.state().cloned() })
}

fn label(sample: &Sample, classes: usize) -> Result<i32> {
    let Value::Int(class) = sample.field("cls")? else {
        return Err(Error::step("the class is no whole number"));
    };
    i32::try_from(*class)
        .ok()
        .filter(|class| (0..classes as i32).contains(class))
        .ok_or_else(|| Error::step(format!("the class {class} is not one of the program's {classes}")))
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
        Options { seed: 5, batch: 96, size: 32, classes: 10, threads: 2, shuffle: 100, index_cache: None }
    }

    fn all(data: &Data, epoch: u64) -> Vec<HostBatch> {
        data.batches(epoch).map(Result::unwrap).collect()
    }

    /// What is trained on.
    fn contents(batches: &[HostBatch]) -> Vec<(&[u8], &[i32])> {
        batches.iter().map(|b| (&b.images[..], &b.labels[..])).collect()
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
        let again = all(&Data::open(train, Split::Train, &threads).unwrap(), 0);
        assert_eq!(contents(&again), contents(&first));
        assert_ne!(contents(&all(&data, 1))[0], contents(&first)[0]);
    }

    #[test]
    fn the_rest_of_an_epoch_is_what_the_state_says() {
        let dir = tempfile::tempdir().unwrap();
        let data = Data::open(&shards(dir.path()).train, Split::Train, &options()).unwrap();
        let whole = all(&data, 1);
        let rest = |state: &State| -> Vec<HostBatch> {
            let state: State = state.to_string().parse().unwrap();
            assert_eq!(state.epoch(), 1);
            data.rest(&state).unwrap().map(Result::unwrap).collect()
        };
        assert_eq!(contents(&rest(&data.start(1))), contents(&whole));
        for taken in [1, 4, whole.len()] {
            let state = whole[taken - 1].state.as_ref().unwrap();
            assert_eq!(contents(&rest(state)), contents(&whole[taken..]), "{taken}");
        }
        // The states of the rest are those of the whole.
        let rest = rest(whole[3].state.as_ref().unwrap());
        let text = |b: &HostBatch| b.state.as_ref().unwrap().to_string();
        assert_eq!(
            rest.iter().map(text).collect::<Vec<_>>(),
            whole[4..].iter().map(text).collect::<Vec<_>>()
        );
    }

    #[test]
    fn the_state_of_other_data_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let Shards { train, validation } = shards(dir.path());
        let open = |shards: &str, options| Data::open(shards, Split::Train, &options).unwrap();
        let state = open(&train, options()).start(0);
        for (other, what) in [
            (open(&train, Options { shuffle: 99, ..options() }), "shuffle buffer"),
            (open(&train, Options { seed: 6, ..options() }), "seed"),
            (open(&validation, options()), "streams"),
        ] {
            let error = other.rest(&state).err().unwrap().to_string();
            assert!(error.contains(what), "{error}");
        }
        assert!(open(&train, Options { threads: 1, ..options() }).rest(&state).is_ok());
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
