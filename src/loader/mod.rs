//! The runtime that drives datasets through the stages on threads, into batches.
//!
//! ```text
//! builder   the options
//! settings  the options, checked, and the streams that a run begins
//! ahead     where streams are some steps later
//! start     what a run puts together
//! stream    one stream of one dataset: its epochs, read, selected from and shuffled
//! stages    what happens to a sample
//! pool      the stages on threads
//! shapes    which step has which shape, where batches have several
//! sequence  the places of the sequence in turn, and where batches end
//! tuning    number of threads and of batches ahead: fixed, or tuned while a run is under way
//! batches   batches, each with the state as of its last item
//! watch     a run that is under way, and a warning where nothing comes
//! report    what a run has cost, where its time went, and what limits it
//! headspace what a step would take if loading were free
//! ```

mod ahead;
mod batches;
mod builder;
mod event;
mod headspace;
mod last_batch;
mod policy;
mod pool;
mod report;
mod sequence;
mod settings;
mod shapes;
mod stages;
mod start;
mod stream;
mod tuning;
mod watch;

pub use batches::{Batches, BatchesStream};
pub use builder::LoaderBuilder;
pub use headspace::Headspace;
pub use last_batch::LastBatch;
pub use policy::{Failures, OnError};
pub use report::{Fill, Limit, MemoryReport, Queues, Report, Times};
pub use watch::{Diagnosis, Reporter, Stall, StreamActivity, StreamStatus, ThreadStatus};

pub use crate::activity::Activity;

use crate::dataset::Dataset;
use crate::error::Result;
use crate::state::{ChangeReport, Changes, EpochRange, JobHeader, State, misfit};
use report::Owners;
use settings::{Begun, Settings};
use std::fmt;
use std::sync::Arc;
use tuning::Learned;

/// Reads, shuffles, maps and batches a dataset on threads, in an order that does not depend on them.
///
/// ```text
/// stream 0 ─ read ─ select ─ shuffle ─ stages ─┐
/// stream 1 ─ read ─ select ─ shuffle ─ stages ─┼─ an item of each in turn ─ batch ─► next()
/// stream 2 ─ read ─ select ─ shuffle ─ stages ─┘  a thread, ahead
///            any of `threads`
/// ```
///
/// Each of `threads` takes the stream that has least ahead, reads, parses, selects and shuffles some of its
/// samples, and does the stages (decode, augment, filter, split) while others continue with the stream; none
/// waits for the network while there is another stream to read. One thread more takes an item of each stream
/// in turn and collects batches, ahead of the trainer. Beyond the shuffle buffers and the batches ahead, 2
/// chunks of samples for each stream and 2 for each thread are on their way, where a chunk is up to 512
/// samples, and fewer when they are large (512 KiB) or take long (a millisecond). All loaders of a process
/// together have a quarter of the [`Budget`](crate::store::Budget) for them: 64 MiB unless set. Beyond that
/// there are 2 chunks for each stream and one for each thread, of a sample or up to 64 KiB. Local files that
/// turn out to be slow are read ahead on threads of the process, which dropping the loader does not wait for.
///
/// The batches of an epoch depend on the dataset, the seed, the epoch and the options, never on the number of
/// threads or on what arrives first.
///
/// An epoch is an [`Iterator`] ([`epoch`](Loader::epoch)) or a [`Stream`](futures::Stream)
/// ([`Batches::into_stream`]). Dropping it stops and joins all threads, also those that wait for the network;
/// what is waited for is the map of one sample on each thread.
///
/// # The sequence of a job
///
/// All ranks together consume one sequence, whatever their number: its place `g` belongs to stream `g %
/// streams`, and is that stream's next item. Batch `k` of `n` items on each of `W` ranks is the places from
/// `k * n * W` on, so that a global batch holds the same items on any number of ranks. A stream that has
/// come to its end leaves its places empty, and does not move the others up: at the end of an epoch batches
/// may have fewer items. [`LastBatch`] says what happens to these, and on which terms all ranks get the same
/// number of batches. Where the lengths of streams are not known, take the same number of batches on all
/// ranks from [`epochs`](Loader::epochs), where streams do not end.
///
/// # Failures
///
/// A sample that fails takes no place: the next one of its stream takes it, so that batches stay full. Its
/// error is an item, ahead of the batch that is being filled, and iteration can continue after it; or
/// [`on_error`](LoaderBuilder::on_error) skips it and records it in the [ledger](State::ledger). A panic of a
/// stage is the [`ErrorKind::Panicked`](crate::ErrorKind::Panicked) of one sample.
///
/// An outage of the network, the store or the disk while a shard is read (`Denied`, `Io`, `Store`, `Busy`,
/// `Length`, `DamagedCache`) ends
/// the batches after its error, because what follows would be another sequence: restore
/// [`Batches::state`].
///
/// # Resuming
///
/// Every batch carries a [`State`]; [`restore`](Loader::restore) gives the rest, byte for byte, on the same
/// or on another number of ranks. What shuffle buffers held is found out from the seed, and read again: with
/// an index by ranges; from the beginning of the shards that were open without one, of compressed shards, and
/// behind [`select`](LoaderBuilder::select) and [`select_map`](LoaderBuilder::select_map).
///
/// ```
/// use shardstream::prelude::*;
///
/// # fn main() -> shardstream::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let pattern = format!("{}/train-%06d.tar", dir.path().display());
/// # let mut writer = ShardWriter::builder(&pattern).max_count(10).build()?;
/// # for i in 0..40 { writer.write(&Sample::new(format!("{i:06}")).with("cls", i))?; }
/// # writer.finish()?;
/// # let shards = pattern.replace("%06d", "{000000..000003}");
/// let dataset = Dataset::builder(shards).streams(4).shuffle_shards(true).seed(42).build()?;
/// let decoder = Decoder::new();
/// let loader = Loader::builder(dataset)
///     .shuffle(1000)
///     .threads(2)
///     .map(move |sample| decoder.decode(sample)?.take::<i64>("cls"))
///     .batch(8)
///     .build()?;
/// for epoch in 0..2 {
///     for batch in loader.epoch(epoch) {
///         assert_eq!(batch?.len(), 8);
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Loader<B> {
    settings: Arc<Settings>,
    start: Arc<Start<B>>,
}

/// Makes batches of the streams that were begun.
type Start<B> = dyn Fn(&Settings, Begun) -> Batches<B> + Send + Sync;

/// Reading.
impl<B: Send + 'static> Loader<B> {
    /// The batches of one epoch. Nothing is read before the first one is asked for.
    pub fn epoch(&self, epoch: u64) -> Batches<B> {
        self.begin(self.settings.one_epoch(epoch))
    }

    /// The batches of all epochs from `first` on, without an end: for training by the number of steps.
    ///
    /// Each stream goes into its next epoch, in a new order, as soon as it has come to its end, so that there
    /// are no empty places, and every rank gets as many batches as it takes. An epoch of a fixed number of
    /// steps, that resumes where the last one stopped, is `batches.by_ref().take(steps)`.
    ///
    /// A shard that is missing or damaged is an error, and is read again in the next epoch. A stream that has
    /// had no sample in a hundred epochs in a row, whether there was none or none could be read, ends with
    /// [`ErrorKind::NoShards`](crate::ErrorKind::NoShards), and leaves its places empty; when all streams
    /// have ended, so do the batches. Where the stages have given no item of a stream for as long, that error
    /// ends the batches.
    pub fn epochs(&self, first: u64) -> Batches<B> {
        self.begin(EpochRange::EpochsFrom(first))
    }

    /// The batches that were not consumed when `state` was taken: the rest of its epoch, or all that follow.
    ///
    /// The loader must be what it was, except for the number of ranks, threads and batches ahead and the size
    /// of batches. The names and numbers of the stages that change the number of items are compared; what
    /// their functions and those of `map` do, the policy of `on_error`, and most of `last_batch` are not:
    /// keep them. The state must have the streams of this rank: it is this rank's own, or the
    /// [whole](State::merge). Failures that were seen before the state was taken are not reported again.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) with the difference, when the state is of other shards,
    /// another seed or another pipeline. Shards that were open and have changed since are an error of the
    /// first batch, after which there is none.
    pub fn restore(&self, state: &State) -> Result<Batches<B>> {
        let header = self.header_for(state).carrying(state.header());
        if let Some(difference) = state.header().difference(&header) {
            return Err(misfit(format!(
                "{difference}; continue with what it was taken with, or begin an epoch anew, or allow the \
                 change by `Loader::restore_changed`"
            )));
        }
        Ok((self.start)(&self.settings, self.settings.begin(header, Some(state))?))
    }

    /// As [`restore`](Loader::restore), onto a mixture that is another one on purpose: with other weights or
    /// another schedule, datasets that come or go, or a dataset with other shards.
    ///
    /// A dataset that is what it was continues with the sample that would have come next, with what its
    /// shuffle buffers held: nothing of its epoch comes twice or is left out. The new weights hold from the
    /// next item of the job on, where their windows begin anew; a schedule counts items from the beginning of
    /// the job, as before. What cannot continue is an error, unless `changes` allows it by name: a dataset
    /// that is [new](Changes::added), one that is [gone](Changes::removed), and one that is [another one than
    /// it was](Changes::restarted), whose next epoch begins. The report says what became of each. The order
    /// of all that follows is a function of the state and of this loader, on any number of ranks, and its
    /// states are restored by [`restore`](Loader::restore).
    ///
    /// Datasets are recognised by their [names](LoaderBuilder::name); those without one by their shards, seed
    /// and options, and if they have changed, by their numbers. Where epochs have an end, the weights can
    /// change, but not the datasets: the next epoch can be of any.
    ///
    /// Digests add what datasets gave that are gone. The record of their failures goes with them: save
    /// [`State::ledger`] before. Where a dataset has another number in the mix than before, columns that draw
    /// random numbers draw others. Samples that are in [`steps to skip`](State::skip) are those of the new
    /// mixture.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) with all that is not allowed, and how to allow it; where
    /// the state is not that of all ranks, or is of another number of streams or another epoch.
    ///
    /// ```
    /// use shardstream::prelude::*;
    /// use shardstream::state::Changes;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let write = |name: &str| -> shardstream::Result<String> {
    /// #     let pattern = format!("{}/{name}-%d.tar", dir.path().display());
    /// #     let mut writer = ShardWriter::builder(&pattern).max_count(8).build()?;
    /// #     for i in 0..16 { writer.write(&Sample::new(format!("{name}{i:02}")).with("cls", i))?; }
    /// #     writer.finish()?;
    /// #     Ok(pattern.replace("%d", "{0..1}"))
    /// # };
    /// # let (web, books, code) = (write("web")?, write("books")?, write("code")?);
    /// let dataset = |name: &str, shards: &str| -> shardstream::Result<_> {
    ///     let dataset = Dataset::builder(shards).streams(1).build()?;
    ///     Ok(Loader::builder(dataset).name(name).map(|sample| Ok(sample.key().to_owned())))
    /// };
    /// let mix = Loader::mix([dataset("web", &web)?, dataset("books", &books)?]).batch(4).build()?;
    /// let state = mix.epochs(0).nth(1).unwrap()?.state().unwrap().clone(); // 4 of each
    ///
    /// let parts = [dataset("books", &books)?.weight(3), dataset("code", &code)?];
    /// let mix = Loader::mix(parts).batch(4).build()?;
    /// assert!(mix.restore(&state).is_err());
    /// let changes = Changes::new().added("code").removed("web");
    /// let (mut batches, report) = mix.restore_changed(&state, &changes)?;
    /// assert_eq!(
    ///     report.to_string(),
    ///     "from item 8 of the job on:\n\
    ///      books continues after 4 items\n\
    ///      code is new, and begins with epoch 0\n\
    ///      web is removed after 4 items\n\
    ///      weights [3, 1] instead of [1, 1]"
    /// );
    /// let mut batch = batches.next().unwrap()?.into_items();
    /// batch.sort();
    /// assert_eq!(batch, ["books04", "books05", "books06", "code00"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn restore_changed(&self, state: &State, changes: &Changes) -> Result<(Batches<B>, ChangeReport)> {
        let (state, report) = state.changed(self.header_for(state), changes)?;
        let header = state.header().clone();
        Ok(((self.start)(&self.settings, self.settings.begin(header, Some(&state))?), report))
    }

    /// What a state of this loader says of it that reads what `state` does.
    fn header_for(&self, state: &State) -> JobHeader {
        let run = match state.header().run {
            EpochRange::Epoch(epoch) | EpochRange::EpochRepeated(epoch) => self.settings.one_epoch(epoch),
            run @ EpochRange::EpochsFrom(_) => run,
        };
        self.settings.header(run)
    }

    /// The batches of an epoch from step `step` on, counted from 0, without reading those before it.
    ///
    /// It is the same as [`State::skip`] of the state at the beginning. Use that to skip steps where epochs
    /// continue without an end, or in the middle of a run: after a spike of the loss, say. The
    /// [digest](State::digest) says how many samples were skipped. Samples that would have failed among them
    /// count as samples: what follows is then a little ahead of what a run would have had that read them.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) where the lengths of the streams are not known (see
    /// [`steps`](Loader::steps)), and with [`shuffle_bytes`](LoaderBuilder::shuffle_bytes);
    /// [`ErrorKind::State`](crate::ErrorKind::State) where the epoch has fewer steps.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// # fn main() -> shardstream::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pattern = format!("{}/train-%06d.tar", dir.path().display());
    /// # let mut writer = ShardWriter::builder(&pattern).max_count(10).build()?;
    /// # for i in 0..40 { writer.write(&Sample::new(format!("{i:06}")).with("cls", i))?; }
    /// # let index = writer.finish()?.iter().collect::<shardstream::Index>();
    /// let dataset = Dataset::builder(index.shards()).index(index).shuffle_shards(true).build()?;
    /// let loader = Loader::builder(dataset).shuffle(16).batch(8).build()?;
    /// let keys = |batch: shardstream::Result<Batch<Sample>>| Ok(batch?[0].key().to_owned());
    /// let all: Vec<String> = loader.epoch(0).map(keys).collect::<shardstream::Result<_>>()?;
    /// let later: Vec<String> = loader.at(0, 3)?.map(keys).collect::<shardstream::Result<_>>()?;
    /// assert_eq!(later, all[3..]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn at(&self, epoch: u64, step: u64) -> Result<Batches<B>> {
        let header = Arc::new(self.settings.header(self.settings.one_epoch(epoch)));
        let reached = self.settings.reached(None);
        let streams = self.settings.beginning()?;
        self.restore(&State::new(header, reached, 0, streams.into()).skip(step))
    }

    fn begin(&self, run: EpochRange) -> Batches<B> {
        let header = self.settings.header(run);
        match self.settings.begin(header.clone(), None) {
            Ok(begun) => (self.start)(&self.settings, begun),
            Err(error) => {
                let reached = self.settings.reached(None);
                let state = State::new(Arc::new(header), reached, 0, Arc::default());
                let tuning = Learned::new(&self.settings.resources, None).begin();
                let run = self.settings.watched(state, Owners::default(), Vec::new(), tuning);
                Batches::failed(error, run)
            }
        }
    }
}

impl<B> Loader<B> {
    /// The datasets that are read.
    pub fn datasets(&self) -> impl ExactSizeIterator<Item = &Dataset> {
        self.settings.parts.iter().map(|part| &part.dataset)
    }

    /// How many batches an epoch has on this rank; none where that is not known, because a dataset has no
    /// index or is resampled, or because a stage changes the number of items.
    #[must_use]
    pub fn steps(&self) -> Option<u64> {
        self.settings.steps()
    }
}

impl<B> Clone for Loader<B> {
    fn clone(&self) -> Self {
        Loader { settings: Arc::clone(&self.settings), start: Arc::clone(&self.start) }
    }
}

impl<B> fmt::Debug for Loader<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader").field("settings", &self.settings).finish()
    }
}
