//! The input pipeline: from tar shards, or from single files, to batches on the host.

mod folder;
mod pipeline;

pub use folder::Folder;

use crate::error::{Error, Result};
use crate::progress::Task;
use bytes::Bytes;
use shardstream::collate::{Row, TensorBatch};
use shardstream::prelude::*;
use shardstream::{Index, State};
use std::path::PathBuf;

/// The batches of one part of an epoch.
pub type HostBatches = Box<dyn Iterator<Item = shardstream::Result<HostBatch>> + Send>;

/// Where a training gets its batches from.
pub trait Source {
    /// The batches of an epoch, counted from 0: full ones for training, padded ones for validation.
    fn batches(&self, split: Split, epoch: u64) -> Result<HostBatches>;

    /// How many of them there are, the same number on all ranks, if that is known.
    fn steps(&self, split: Split) -> Option<u64>;

    /// How many samples all ranks together have, if that is known.
    fn samples(&self, split: Split) -> Option<u64>;

    /// The state of the training data before the first batch of an epoch; `None` where there is nothing to save.
    fn start(&self, epoch: u64) -> Option<State>;

    /// The training batches that an epoch still has after `state`.
    fn rest(&self, state: &State) -> Result<HostBatches>;
}

/// Both parts of a data set.
#[derive(Debug, Clone, Default)]
pub struct Sets<T> {
    /// What is trained on.
    pub train: T,
    /// What the accuracy is measured on.
    pub validation: T,
}

impl<T> Sets<T> {
    fn of(&self, split: Split) -> &T {
        match split {
            Split::Train => &self.train,
            Split::Validation => &self.validation,
        }
    }
}

impl Source for Sets<Data> {
    fn batches(&self, split: Split, epoch: u64) -> Result<HostBatches> {
        Ok(Box::new(self.of(split).batches(epoch)))
    }

    fn steps(&self, split: Split) -> Option<u64> {
        self.of(split).loader.steps()
    }

    fn samples(&self, split: Split) -> Option<u64> {
        Some(self.of(split).samples)
    }

    fn start(&self, epoch: u64) -> Option<State> {
        Some(self.train.start(epoch))
    }

    fn rest(&self, state: &State) -> Result<HostBatches> {
        Ok(Box::new(self.train.rest(state)?))
    }
}

impl Source for Sets<Folder> {
    fn batches(&self, split: Split, epoch: u64) -> Result<HostBatches> {
        Ok(self.of(split).batches(epoch))
    }

    fn steps(&self, split: Split) -> Option<u64> {
        Some(self.of(split).steps())
    }

    fn samples(&self, split: Split) -> Option<u64> {
        Some(self.of(split).samples())
    }

    fn start(&self, _: u64) -> Option<State> {
        None
    }

    fn rest(&self, _: &State) -> Result<HostBatches> {
        Err(Error::NoState)
    }
}

/// Some images with their labels: the part of a global batch that is this process's.
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
    /// Images per batch of this process.
    pub batch: usize,
    /// Height and width of the images.
    pub size: usize,
    /// The number of classes.
    pub classes: usize,
    /// Threads that decode; 0 for the library's choice, which leaves some to the trainer.
    pub workers: usize,
    /// Samples in the shuffle buffer of each stream.
    pub shuffle: usize,
    /// Logical streams of all ranks together; 0 for 8, or the next multiple of the ranks that 8 divides. The order depends on
    /// them, and not on the ranks.
    pub streams: usize,
    /// Batches that are prepared ahead on the host.
    pub prefetch: usize,
    /// Which process of the job this is.
    pub topology: Topology,
    /// Where the indexes of the shards are, as whoever made the shards has written them.
    pub indexes: Sets<Option<String>>,
    /// A directory where indexes that had to be made are kept, so that the next start need not read the shards for them.
    pub index_cache: Option<PathBuf>,
}

impl Options {
    fn streams(&self) -> usize {
        match self.streams {
            0 => {
                let ranks = self.topology.world_size();
                (1..=8).map(|n| n * ranks).find(|n| n.is_multiple_of(8)).unwrap_or(ranks)
            }
            streams => streams,
        }
    }

    fn workers(&self) -> usize {
        match self.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            workers => workers,
        }
    }
}

/// One part of a data set in shards, to be read epoch by epoch.
#[derive(Debug, Clone)]
pub struct Data {
    loader: Loader<Row, TensorBatch>,
    samples: u64,
}

impl Data {
    /// Opens the shards of `split`: a pattern such as `gs://bucket/train-{000000..000009}.tar`, of samples with an
    /// image (`jpg`, `png`, `webp` or `ppm`) and a class (`cls`).
    pub fn open(shards: &str, split: Split, options: &Options) -> Result<Self> {
        let train = split == Split::Train;
        let shards = ShardList::expand(shards)?;
        // With it all streams are of one length, whatever the shards are: so all ranks take the same number of steps, and
        // a restored one reads no shard from its beginning.
        let index = match options.indexes.of(split) {
            Some(url) => Index::load(&Store::default(), url)?,
            None => made_index(&shards, options)?,
        };
        let streams = if train { options.streams() } else { options.topology.world_size() };
        let dataset = Dataset::builder(shards)
            .seed(options.seed)
            .streams(streams)
            .shuffle_shards(train)
            .topology(options.topology)
            .index(index)
            .build()?;
        // Of all ranks.
        let samples = dataset.plan().counts().map_or(0, |counts| counts.iter().sum());
        let columns = pipeline::columns(split, options.size, options.classes)?;
        let mut builder = Loader::builder(dataset).decode(Decoder::new().only(&[pipeline::CLASS]));
        if train {
            builder = builder.shuffle(options.shuffle);
        }
        if options.workers > 0 {
            builder = builder.threads(options.workers);
        }
        let loader = builder.batch(options.batch).prefetch(options.prefetch).collate(columns);
        Ok(Data { loader: if train { loader.partial(Partial::Drop) } else { loader.pad() }, samples })
    }

    /// The batches of one epoch, counted from 0. With the seed the epoch decides order and augmentation.
    pub fn batches(&self, epoch: u64) -> impl Iterator<Item = shardstream::Result<HostBatch>> + Send + use<> {
        self.loader.epoch(epoch).map(|batch| host(batch?, None))
    }

    /// The state before the first batch of an epoch.
    pub fn start(&self, epoch: u64) -> State {
        self.loader.epoch(epoch).state()
    }

    /// The batches that the epoch of `state` still has after it.
    pub fn rest(
        &self,
        state: &State,
    ) -> Result<impl Iterator<Item = shardstream::Result<HostBatch>> + Send + use<>> {
        Ok(self.loader.restore(state)?.map(|batch| host(batch?, None)))
    }
}

/// Reads the shards for their index, unless it is kept.
fn made_index(shards: &ShardList, options: &Options) -> Result<Index> {
    let task = Task::count("indexing the shards", shards.len() as u64);
    let shown = task.counter();
    let builder = Index::builder().on_shard(move |_| shown.add(1));
    let builder = match &options.index_cache {
        Some(directory) => builder.cache(directory),
        None => builder,
    };
    let index = builder.build(shards)?;
    task.done();
    Ok(index)
}

/// A batch of tensors as the trainer takes it; the first `valid` rows of it are samples, or as many as it says itself.
fn host(mut batch: TensorBatch, valid: Option<usize>) -> shardstream::Result<HostBatch> {
    let valid = valid.unwrap_or(batch.valid());
    let mut labels = batch.tensor("label")?.as_slice::<i32>()?.to_vec();
    labels[valid..].fill(-1);
    let images = batch.take("image")?.into_bytes();
    Ok(HostBatch { images, labels, valid, state: batch.state().cloned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shards::{Counts, Shards, synthetic};
    use std::path::Path;

    fn shards(dir: &Path) -> Shards {
        synthetic(dir, Counts { train: 1100, validation: 100 }).unwrap()
    }

    pub(super) fn options() -> Options {
        Options {
            seed: 5,
            batch: 96,
            size: 32,
            classes: 10,
            workers: 2,
            shuffle: 100,
            streams: 0,
            prefetch: 2,
            topology: Topology::single(),
            indexes: Sets::default(),
            index_cache: None,
        }
    }

    fn all(data: &Data, epoch: u64) -> Vec<HostBatch> {
        data.batches(epoch).map(std::result::Result::unwrap).collect()
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
        let workers = Options { workers: 1, ..options() };
        let again = all(&Data::open(train, Split::Train, &workers).unwrap(), 0);
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
            data.rest(&state).unwrap().map(std::result::Result::unwrap).collect()
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
            (open(&validation, options()), "shard"),
        ] {
            let error = crate::error::with_causes(&other.rest(&state).err().unwrap());
            assert!(error.contains(what), "{error}");
        }
        assert!(open(&train, Options { workers: 1, ..options() }).rest(&state).is_ok());
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
            (Options { size: 48, ..options() }, "32x32"),
            (Options { classes: 3, ..options() }, "not one of"),
        ] {
            let data = Data::open(train, Split::Train, &options).unwrap();
            let error = data.batches(0).find_map(std::result::Result::err).unwrap();
            let cause = std::error::Error::source(&error).unwrap().to_string();
            assert!(cause.contains(message), "{error}: {cause}");
            assert!(error.to_string().contains("train-00000"), "{error}");
        }
        assert!(Data::open("nowhere/*.tar", Split::Train, &options()).is_err());
    }

    #[test]
    fn one_process_and_eight_take_the_same_global_batches() {
        let dir = tempfile::tempdir().unwrap();
        let shards = shards(dir.path());
        let digests = |shards: &str, split, ranks: usize| {
            let of = |rank| {
                let topology = Topology::new(rank, ranks).unwrap();
                let data =
                    Data::open(shards, split, &Options { topology, batch: 96 / ranks, ..options() }).unwrap();
                let batches = all(&data, 3);
                assert_eq!(Some(batches.len() as u64), data.loader.steps());
                batches
            };
            let all: Vec<_> = (0..ranks).map(of).collect();
            let steps = all[0].len();
            assert!(all.iter().all(|rank| rank.len() == steps), "equal steps on all ranks");
            let digest = |step: usize| -> shardstream::Digest {
                all.iter().map(|rank| rank[step].state.as_ref().unwrap().digest()).sum()
            };
            let valid: usize = all.iter().flatten().map(|batch| batch.valid).sum();
            ((0..steps).map(digest).collect::<Vec<_>>(), valid)
        };
        let one = digests(&shards.train, Split::Train, 1);
        assert_eq!(one.1, 11 * 96);
        assert_eq!(digests(&shards.train, Split::Train, 8), one);
        assert_eq!(digests(&shards.train, Split::Train, 2), one);
        // Validation is exact: each sample once, on any number of ranks.
        for ranks in [1, 3, 8] {
            assert_eq!(digests(&shards.validation, Split::Validation, ranks).1, 100, "{ranks}");
        }
    }

    #[test]
    fn an_index_that_is_there_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let train = shards(dir.path()).train;
        let index = Index::builder().build(&ShardList::expand(&train).unwrap()).unwrap();
        let url = Path::new(&train).with_file_name("train.index.json").display().to_string();
        index.save(&Store::default(), &url).unwrap();
        let indexes = Sets { train: Some(url), validation: None };
        let data = Data::open(&train, Split::Train, &Options { indexes, ..options() }).unwrap();
        let made = Data::open(&train, Split::Train, &options()).unwrap();
        assert_eq!(contents(&all(&data, 0)), contents(&all(&made, 0)));
        assert_eq!(data.samples, 1100);
    }

    #[test]
    fn streams_are_a_multiple_of_the_ranks() {
        let streams = |ranks| Options { topology: Topology::new(0, ranks).unwrap(), ..options() }.streams();
        assert_eq!([1, 2, 3, 4, 6, 8, 12, 32].map(streams), [8, 8, 24, 8, 24, 8, 24, 32]);
    }

    #[test]
    fn photographs_are_cut_out_and_small_images_are_taken_whole() {
        let dir = tempfile::tempdir().unwrap();
        let pattern = dir.path().join("photo-%d.tar").display().to_string();
        let mut writer = ShardWriter::builder(&pattern).build().unwrap();
        for number in 0..8i64 {
            let pixels: Vec<u8> = (0..200 * 120 * 3).map(|at| (at % 251) as u8).collect();
            let image = Image::new(ImageMode::Rgb8, 200, 120, pixels).unwrap();
            writer.write(&Sample::new(number.to_string()).with("png", image).with("cls", number)).unwrap();
        }
        writer.finish().unwrap();
        let options = Options { batch: 4, size: 96, streams: 1, ..options() };
        for split in [Split::Train, Split::Validation] {
            let data = Data::open(&pattern.replace("%d", "0"), split, &options).unwrap();
            let batches = all(&data, 0);
            assert_eq!(batches.len(), 2);
            assert!(batches.iter().all(|batch| batch.images.len() == 4 * 96 * 96 * 3));
        }
    }
}
