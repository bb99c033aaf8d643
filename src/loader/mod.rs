//! The runtime that drives datasets through the stages on threads, into batches.
//!
//! ```text
//! builder     the options
//! settings    the checked options, and the length and state header that follow from them
//! prepare     from settings and a state to the streams of a run
//! steps       the number of steps of a rank, and how many are left
//! skip_steps  the positions of the streams a number of steps later
//! start       from settings and stages to a loader
//! stream      one stream of one dataset: its epochs, read, selected and shuffled
//! stages      what happens to a sample
//! pool        runs the stages on threads
//! sequence    the order of the items of a job, and where batches end
//! tuning      the number of threads and of batches ahead: fixed, or tuned during a run
//! batches     batches, each with the state as of its last item
//! watch       the state of a running loader, and a warning when it stalls
//! report      what a run has cost, where its time went, and what limits it
//! headspace   how long a step would take if loading were free
//! ```

mod batches;
mod builder;
mod event;
mod headspace;
mod policy;
mod pool;
mod prepare;
mod report;
mod sequence;
mod settings;
mod skip_steps;
mod stages;
mod start;
mod steps;
mod stream;
mod tuning;
mod watch;

pub use crate::adapters::LastBatch;
pub use batches::Batches;
pub use builder::LoaderBuilder;
pub use headspace::Headspace;
pub use policy::{Failures, OnError};
pub use report::{Fill, Limit, MemoryReport, Queues, Report, Times};
pub use watch::{Diagnosis, Reporter};

use crate::dataset::Dataset;
use crate::error::Result;
use crate::state::{ChangeReport, Changes, EpochRange, JobHeader, State, misfit};
use crate::telemetry::log;
use prepare::PreparedRun;
use report::MemoryGauges;
use settings::Settings;
use std::fmt;
use std::sync::Arc;
use tuning::LearnedTuning;

/// Reads, shuffles, maps and batches a dataset on threads, in an order that does not depend on them.
///
/// ```text
/// stream 0 ─ read ─ filter ─ shuffle ─ stages ─┐
/// stream 1 ─ read ─ filter ─ shuffle ─ stages ─┼─ an item of each in turn ─ batch ─► next()
/// stream 2 ─ read ─ filter ─ shuffle ─ stages ─┘  a thread, ahead
///            any of `threads`
/// ```
///
/// Each of `threads` picks the stream with the fewest chunks ahead, reads, parses, selects and shuffles a
/// chunk of its samples, and runs the stages (decode, augment, filter, split) on them, while other threads
/// continue with the stream. No thread waits for the network while another stream can be read. One further
/// thread takes one item of each stream in turn and collects batches, ahead of the trainer.
///
/// Besides the shuffle buffers and the batches ahead, a loader holds 2 chunks of samples for each stream and
/// 2 for each thread. A chunk has up to 512 samples; it has fewer if they are large (512 KiB in total) or
/// slow (a millisecond in total). The chunks of all loaders of a process share a quarter of the
/// [`Budget`](crate::store::Budget): 64 MiB by default. When that is used up, a loader still holds 2 chunks
/// for each stream and one for each thread, each of a single sample or up to 64 KiB. Local files that turn
/// out to be slow are read ahead on threads of the process, which dropping the loader does not wait for.
///
/// The batches of an epoch depend on the dataset, the seed, the epoch and the options, never on the number of
/// threads or on timing.
///
/// An epoch is an [`Iterator`] ([`epoch`](Loader::epoch)) or a [`Stream`](futures::Stream)
/// ([`Batches::into_stream`]). Dropping it stops and joins all threads, also those that wait for the network.
/// That takes no longer than the stages need for one sample.
///
/// # The sequence of a job
///
/// All ranks together consume one sequence of items, which does not depend on the number of ranks. Sequence
/// number `g` belongs to stream `g % streams` and is the next item of that stream. With `n` items per batch
/// and `W` ranks, global batch `k` covers the `n * W` sequence numbers from `k * n * W` on, so it holds the
/// same items on any number of ranks. A stream that has ended leaves gaps at its sequence numbers: the items
/// of other streams do not move up, and batches at the end of an epoch may have fewer items. [`LastBatch`]
/// says what happens to those batches, and under which conditions all ranks get the same number of batches.
/// If the lengths of the streams are not known, take a fixed number of batches on all ranks from
/// [`epochs`](Loader::epochs), whose streams do not end.
///
/// # Failures
///
/// A sample that fails takes no sequence number: the next sample of its stream replaces it, so that batches
/// stay full. Its error is an item that precedes the current batch, and iteration can continue after it; or
/// [`on_error`](LoaderBuilder::on_error) skips it and records it in the [ledger](State::ledger). A panic of a
/// stage is the error [`ErrorKind::Panicked`](crate::ErrorKind::Panicked) of one sample.
///
/// A batch may fail as a whole while it is made: in the [`finish`](crate::collate::Column::finish) of a
/// column, in [`map_batch`](LoaderBuilder::map_batch), or if a clone that pads it panics. Then all its
/// samples have failed: the policy judges the error, which names the first of them; skipped, each is an entry
/// of the ledger, with its own shard and key; and the next samples of the streams are made into the batch of
/// this step. A batch counts (in the state, its digest and the ledger) once it exists.
///
/// An outage of the network, the store or the disk while a shard is read (`Denied`, `Io`, `Store`, `Busy`,
/// `Length`, `DamagedCache`) ends the batches after its error, because the sequence cannot continue without
/// the missing samples: [restore](Loader::restore) [`Batches::state`].
///
/// # Resuming
///
/// Every batch carries a [`State`]; [`restore`](Loader::restore) continues after it, byte for byte, on the
/// same or on another number of ranks. The content of the shuffle buffers is computed from the seed and read
/// again. With an index that takes a few range requests. Without one, with compressed shards, and behind a
/// [`filter`](LoaderBuilder::filter) before other stages or
/// [`before_shuffle`](LoaderBuilder::before_shuffle), the shards that were open are read from their
/// beginning.
///
/// ```
/// use shardstream::prelude::*;
///
/// let shards = "docs/data/digits-{000000..000003}.tar";
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
/// # Ok::<(), shardstream::Error>(())
/// ```
#[doc(alias = "DataLoader")]
pub struct Loader<B> {
    settings: Arc<Settings>,
    start: Arc<StartRun<B>>,
}

/// Starts a run that was prepared.
type StartRun<B> = dyn Fn(&Settings, PreparedRun) -> Batches<B> + Send + Sync;

/// Reading.
impl<B: Send + 'static> Loader<B> {
    /// The batches of one epoch. Nothing is read before the first call of [`next`](Iterator::next) or of
    /// [`start`](Batches::start).
    ///
    /// On several ranks, an epoch whose number of [steps](Loader::steps) is not known is an error, the only
    /// item, unless [`uneven_steps`](LoaderBuilder::uneven_steps) allows it.
    pub fn epoch(&self, epoch: u64) -> Batches<B> {
        self.begin(self.settings.epoch_run(epoch))
    }

    /// The batches of all epochs from `first` on, without end: for training by the number of steps.
    ///
    /// Each stream continues with its next epoch as soon as it has ended, in another order if the dataset
    /// [shuffles its shards](crate::dataset::DatasetBuilder::shuffle_shards). So there are no gaps, and every
    /// rank gets as many batches as it takes. For an epoch of a fixed number of steps, which continues where
    /// the last one stopped, use `batches.by_ref().take(steps)`.
    ///
    /// A shard that is missing or damaged is an error, and is read again in the next epoch. A stream without
    /// a readable sample in a hundred consecutive epochs, or of which the stages give no item in as many,
    /// ends with [`ErrorKind::NoShards`](crate::ErrorKind::NoShards) and leaves gaps at its sequence numbers;
    /// when all streams have ended, so do the batches.
    pub fn epochs(&self, first: u64) -> Batches<B> {
        if self.settings.repeats_first_shards() {
            log!(
                WARN,
                "every epoch begins with the same shards: `shuffle` mixes neighbouring samples only, and \
                 `DatasetBuilder::shuffle_shards` is not set"
            );
        }
        self.begin(EpochRange::EpochsFrom(first))
    }

    /// The batches that were not consumed when `state` was taken: the rest of its epoch, or of all epochs.
    ///
    /// The loader must have the same options as before, except for the number of ranks, threads and batches
    /// ahead, and the batch size. The names of the stages that change the number of items, which include
    /// numbers such as the length of [`chunked`](LoaderBuilder::chunked) rows, are compared with those in the
    /// state. The functions of all stages, the policy of `on_error`, and most of `last_batch` are not
    /// compared: keep them. The state must contain the streams of this rank, so it is
    /// either this rank's own or the [merged](State::merge) one. Failures that were seen before the state was
    /// taken are not reported again.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) with the difference, if the state is of other shards,
    /// another seed or another pipeline. If a shard that was open has changed since, the first batch is an
    /// error, and the batches end.
    pub fn restore(&self, state: &State) -> Result<Batches<B>> {
        let header = self.header_for(state).carrying(state.header());
        if let Some(difference) = state.header().difference(&header) {
            let allow = match state.can_change(&self.header_for(state)) {
                true => ", or allow the change by `Loader::restore_changed`",
                false => "",
            };
            return Err(misfit(format!(
                "{difference}; continue with what it was taken with, or begin an epoch anew{allow}"
            )));
        }
        Ok((self.start)(&self.settings, self.settings.prepare(header, Some(state))?))
    }

    /// As [`restore`](Loader::restore), but into a mixture that was changed on purpose: other weights or
    /// another schedule, datasets that were added or removed, or a dataset with other shards.
    ///
    /// An unchanged dataset continues with its next sample and the content of its shuffle buffers: no sample
    /// of its epoch is repeated or left out. The new weights apply from the next item of the job on, where a
    /// new window of the mixture starts; a schedule still counts items from the beginning of the job. A
    /// dataset that cannot continue is an error, unless `changes` allows it by name: one that was
    /// [added](Changes::added), [removed](Changes::removed), or that [changed](Changes::restarted) and
    /// restarts with its next epoch. The report lists what happened to each dataset. The order of the
    /// following items is a function of the state and of this loader, on any number of ranks.
    /// [`restore`](Loader::restore) takes the states of the batches that follow.
    ///
    /// Datasets are matched by their [names](LoaderBuilder::name). Datasets without a name are matched by
    /// shards, seed and options, or, if those have changed, by their numbers. A state of a single
    /// [epoch](Loader::epoch) allows other weights, but no other datasets: use those in the next epoch.
    ///
    /// Digests include the samples of removed datasets, but the ledger does not include their failures: save
    /// [`State::ledger`] before. [Skipped steps](State::skip) are steps of the new mixture.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) that lists all changes that are not allowed, and how to
    /// allow them; also if the state is not that of all ranks, or is of another number of streams or another
    /// epoch.
    ///
    /// ```
    /// use shardstream::prelude::*;
    /// use shardstream::state::Changes;
    ///
    /// let dataset = |name: &str| -> shardstream::Result<_> {
    ///     let dataset = Dataset::builder(format!("docs/data/{name}-{{000000..000001}}.tar")).build()?;
    ///     Ok(Loader::builder(dataset).name(name).map(|sample| Ok(sample.key().to_owned())))
    /// };
    /// let mix = Loader::mix([dataset("web")?, dataset("books")?]).batch(4).build()?;
    /// let state = mix.epochs(0).nth(1).unwrap()?.state().unwrap().clone(); // 4 of each
    ///
    /// let parts = [dataset("books")?.weight(3), dataset("digits")?];
    /// let mix = Loader::mix(parts).batch(4).build()?;
    /// assert!(mix.restore(&state).is_err());
    /// let changes = Changes::new().added("digits").removed("web");
    /// let (mut batches, report) = mix.restore_changed(&state, &changes)?;
    /// assert_eq!(
    ///     report.to_string(),
    ///     "from item 8 of the job on:\n\
    ///      books continues after 4 items\n\
    ///      digits is new, and begins with epoch 0\n\
    ///      web is removed after 4 items\n\
    ///      weights [3, 1] instead of [1, 1]"
    /// );
    /// let mut batch = batches.next().unwrap()?.into_items();
    /// batch.sort();
    /// assert_eq!(batch, ["000000", "books/04", "books/05", "books/06"]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn restore_changed(&self, state: &State, changes: &Changes) -> Result<(Batches<B>, ChangeReport)> {
        let (state, report) = state.changed(self.header_for(state), changes)?;
        let header = state.header().clone();
        Ok(((self.start)(&self.settings, self.settings.prepare(header, Some(&state))?), report))
    }

    /// The header of this loader's states, for the same run as that of `state`.
    fn header_for(&self, state: &State) -> JobHeader {
        let run = match state.header().run {
            EpochRange::Epoch(epoch) | EpochRange::EpochRepeated(epoch) => self.settings.epoch_run(epoch),
            run @ EpochRange::EpochsFrom(_) => run,
        };
        self.settings.header(run)
    }

    /// The batches of an epoch from step `step` on, counted from 0, without reading the steps before.
    ///
    /// The same as [`State::skip`] of the state at the beginning of the epoch. Use [`State::skip`] to skip
    /// steps in epochs without end, or in the middle of a run: after a spike of the loss, for example. The
    /// [digest](State::digest) contains the number of skipped samples. Since they are not read, skipped
    /// samples that would have failed count as samples: the following batches are then slightly ahead of
    /// those of a run that read them.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the lengths of the streams are not known (see
    /// [`steps`](Loader::steps)); [`ErrorKind::State`](crate::ErrorKind::State) if the epoch has fewer steps.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let shards = ShardList::expand("docs/data/digits-{000000..000003}.tar")?;
    /// let index = Index::builder().build(&shards)?;
    /// let dataset = Dataset::builder(shards).index(index).shuffle_shards(true).build()?;
    /// let loader = Loader::builder(dataset).shuffle(16).batch(8).build()?;
    /// let keys = |batch: shardstream::Result<Batch<Sample>>| Ok(batch?[0].key().to_owned());
    /// let all: Vec<String> = loader.epoch(0).map(keys).collect::<shardstream::Result<_>>()?;
    /// let later: Vec<String> = loader.at(0, 3)?.map(keys).collect::<shardstream::Result<_>>()?;
    /// assert_eq!(later, all[3..]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn at(&self, epoch: u64, step: u64) -> Result<Batches<B>> {
        let header = Arc::new(self.settings.header(self.settings.epoch_run(epoch)));
        let reached = self.settings.reached(None);
        let streams = self.settings.initial_streams()?.into_iter().map(Arc::new).collect();
        self.restore(&State::new(header, reached, 0, streams).skip(step))
    }

    fn begin(&self, run: EpochRange) -> Batches<B> {
        let header = self.settings.header(run);
        match self.settings.prepare(header.clone(), None) {
            Ok(begun) => (self.start)(&self.settings, begun),
            Err(error) => {
                let reached = self.settings.reached(None);
                let state = State::new(Arc::new(header), reached, 0, Arc::default());
                let tuning = LearnedTuning::new(&self.settings.resources, None).begin();
                let run = self.settings.new_run(state, MemoryGauges::default(), Vec::new(), tuning);
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

    /// Number of batches of an epoch on this rank. `None` if it is not known, because a dataset has no index
    /// or is resampled, or because a stage changes the number of items.
    #[must_use]
    pub fn steps(&self) -> Option<u64> {
        self.settings.steps()
    }

    /// Number of batches of an epoch on this rank, of a dataset without an index, if the streams of all ranks
    /// have these numbers of items. For `shardstream plan`, which has counted them.
    #[doc(hidden)]
    #[must_use]
    pub fn steps_with(&self, items: &[u64]) -> u64 {
        self.settings.steps_with(items)
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
