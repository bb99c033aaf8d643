//! The loader: reads datasets, runs the stages on threads, and collects batches.
//!
//! ```text
//! builder     the options
//! settings    the checked options, and values computed from them, such as the lengths of the streams
//! prepare     makes the streams of a run from settings and a state
//! steps       the number of steps of a rank, and the number of steps left
//! skip_steps  computes the positions of the streams after a number of further steps
//! start       makes a loader from settings and stages
//! stream      one stream of one dataset: its epochs, read, selected and shuffled
//! stages      the functions that are applied to a sample
//! pool        runs the stages on threads
//! sequence    the order of the items of a job, and the ends of batches
//! tuning      the number of threads and of batches ahead: fixed, or tuned during a run
//! batches     batches, each with the state after its last item
//! watch       the state of a running loader, and a warning when it stalls
//! report      the times, the memory and the bottleneck of a run
//! headspace   measures the time of a step without loading
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

/// Reads, shuffles, maps and batches a dataset on threads. The order of the items does not depend on the
/// threads.
///
/// ```text
/// stream 0 ─ read ─ filter ─ shuffle ─ stages ─┐
/// stream 1 ─ read ─ filter ─ shuffle ─ stages ─┼─ one item of each in turn ─ batch ─► next()
/// stream 2 ─ read ─ filter ─ shuffle ─ stages ─┘  a thread, ahead
///            any of `threads`
/// ```
///
/// Each of the [`threads`](LoaderBuilder::threads) repeats these steps: it picks the stream with the fewest
/// chunks ahead; reads, parses, selects and shuffles a chunk of that stream's samples; and runs the stages
/// (decode, augment, filter, split) on the chunk, while other threads already read the next chunks of the
/// stream. No thread waits for the network while another stream can be read. One further thread takes one
/// item of each stream in turn and collects batches, ahead of the trainer.
///
/// Besides the shuffle buffers and the prefetched batches, a loader holds 2 chunks of samples for each stream
/// and 2 for each thread. A chunk has up to 512 samples; it has fewer if they are large (512 KiB in total) or
/// slow (a millisecond in total). The chunks of all loaders of a process share a quarter of the
/// [`Budget`](crate::store::Budget): 64 MiB by default. When that quarter is used up, a loader still holds 2
/// chunks for each stream and one for each thread, but these have a single sample or up to 64 KiB. Slow local
/// files are read ahead on threads of the process; dropping the loader does not wait for these threads.
///
/// The batches of an epoch depend on the dataset, the seed, the epoch and the options, never on the number of
/// threads or on timing.
///
/// [`epoch`](Loader::epoch) returns the batches of an epoch as an [`Iterator`]; [`Batches::into_stream`]
/// turns them into a [`Stream`](futures::Stream). Dropping the batches stops and joins all threads, including
/// threads that wait for the network. The drop takes no longer than the stages need for one sample.
///
/// # The sequence of a job
///
/// All ranks together consume one sequence of items, which does not depend on the number of ranks. Sequence
/// number `g` belongs to stream `g % streams` and is the next item of that stream. With `n` items per batch
/// and `W` ranks, global batch `k` covers the `n * W` sequence numbers from `k * n * W` on, so it holds the
/// same items on any number of ranks. A stream that has ended leaves gaps at its sequence numbers: the items
/// of other streams do not move up, and batches at the end of an epoch may have fewer items. [`LastBatch`]
/// says how these batches are handled, and under which conditions all ranks get the same number of batches.
/// If the lengths of the streams are not known, take a fixed number of batches on all ranks from
/// [`epochs`](Loader::epochs), whose streams do not end.
///
/// # Failures
///
/// A sample that fails takes no sequence number: the next sample of its stream replaces it, so that batches
/// stay full. By default, the iterator returns the error before the current batch, and iteration can
/// continue. With [`on_error`](LoaderBuilder::on_error), the loader can skip the sample and record the error
/// in the [ledger](State::ledger). A panic of a stage is the error
/// [`ErrorKind::Panicked`](crate::ErrorKind::Panicked) of one sample.
///
/// A whole batch can fail: in the [`finish`](crate::collate::Column::finish) of a column, in
/// [`map_batch`](LoaderBuilder::map_batch), or because cloning an item to pad the batch panics. Then all its
/// samples have failed. `on_error` is applied to the error, which names the first sample. If the failure is
/// skipped, the ledger gets an entry for each sample, with its shard and key. The next samples of the streams
/// form the batch of this step. Samples of a batch count in the state, its digest and the ledger once the
/// batch exists.
///
/// If the network, the store or the disk fails while a shard is read (`Denied`, `Io`, `Store`, `Busy`,
/// `Length`, `DamagedCache`), the iterator returns the error and then ends, because the sequence cannot
/// continue without the missing samples. To continue, [restore](Loader::restore) [`Batches::state`].
///
/// # Resuming
///
/// Every batch carries a [`State`]; [`restore`](Loader::restore) continues after that batch, byte for byte,
/// on the same or on another number of ranks. A restore computes from the seed which samples were in the
/// shuffle buffers, and reads them again. With an index, that takes a few range requests. Shards that were
/// open are read from their beginning if there is no index, if they are compressed, or if the loader has a
/// [`before_shuffle`](LoaderBuilder::before_shuffle) or a [`filter`](LoaderBuilder::filter) before other
/// stages.
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

type StartRun<B> = dyn Fn(&Settings, PreparedRun) -> Batches<B> + Send + Sync;

/// Reading.
impl<B: Send + 'static> Loader<B> {
    /// The batches of one epoch. Nothing is read before the first call of [`next`](Iterator::next) or of
    /// [`start`](Batches::start).
    ///
    /// On several ranks, an epoch with an unknown number of [steps](Loader::steps) returns a single item,
    /// which is an error, unless [`uneven_steps`](LoaderBuilder::uneven_steps) allows it.
    pub fn epoch(&self, epoch: u64) -> Batches<B> {
        self.begin(self.settings.epoch_run(epoch))
    }

    /// The batches of all epochs from `first` on, without end: to train for a number of steps rather than of
    /// epochs.
    ///
    /// Each stream continues with its next epoch as soon as its epoch has ended, in another order if the
    /// dataset [shuffles its shards](crate::dataset::DatasetBuilder::shuffle_shards). So there are no gaps,
    /// and every rank can take any number of batches. For epochs of a fixed number of steps, each of which
    /// continues where the previous one ended, use `batches.by_ref().take(steps)`.
    ///
    /// A shard that is missing or damaged is an error, and is read again in the next epoch. A stream ends
    /// with [`ErrorKind::NoShards`](crate::ErrorKind::NoShards) if it has no readable sample in a hundred
    /// consecutive epochs, or if the stages return no item for the samples of these epochs. It then leaves
    /// gaps at its sequence numbers. The batches end when all streams have ended.
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

    /// The batches after `state`: the rest of its epoch, or of all epochs.
    ///
    /// The loader must have the same options as before, except for the number of ranks, threads and batches
    /// ahead, and the batch size. `restore` compares the names of the stages that change the number of items
    /// with the names in the state; such a name includes numbers such as the length of
    /// [`chunked`](LoaderBuilder::chunked) rows. `restore` cannot compare the functions of the stages, the
    /// policy of `on_error`, and most values of `last_batch`: do not change them. The state must contain the
    /// streams of this rank: use the rank's own state or a [merged](State::merge) one. Failures before the
    /// state are not reported again.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) with the difference, if the state is of other shards,
    /// another seed or another pipeline. If a shard that was open has changed meanwhile, the batches consist
    /// of one error.
    pub fn restore(&self, state: &State) -> Result<Batches<B>> {
        let header = self.header_for(state).carrying(state.header());
        if let Some(difference) = state.header().difference(&header) {
            let allow = match state.can_change(&self.header_for(state)) {
                true => ", or allow the change by `Loader::restore_changed`",
                false => "",
            };
            return Err(misfit(format!(
                "{difference}; restore it with the options that it was saved with, or begin an epoch \
                 anew{allow}"
            )));
        }
        Ok((self.start)(&self.settings, self.settings.prepare(header, Some(state))?))
    }

    /// Like [`restore`](Loader::restore), but into a mixture that was changed on purpose: other weights,
    /// another schedule, added or removed datasets, or a dataset with other shards.
    ///
    /// An unchanged dataset continues with its next sample and the content of its shuffle buffers: no sample
    /// of its epoch is repeated or left out. The new weights apply from the next item of the job on, where a
    /// new window of the mixture starts. A schedule still counts items from the beginning of the job. A
    /// dataset that cannot continue is an error, unless `changes` names it as [added](Changes::added),
    /// [removed](Changes::removed), or [restarted](Changes::restarted): a restarted dataset was changed and
    /// begins with its next epoch. The report lists what happened to each dataset. The order of the following
    /// items is a function of the state and of this loader, on any number of ranks.
    /// [`restore`](Loader::restore) accepts the states of the following batches.
    ///
    /// Datasets are matched by their [names](LoaderBuilder::name). Datasets without a name are matched by
    /// shards, seed and options, or, if shards, seed or options have changed, by their numbers. A state of a
    /// single [epoch](Loader::epoch) allows other weights, but no other datasets: add or remove datasets in
    /// the next epoch.
    ///
    /// Digests include the samples of removed datasets, but the ledger does not include their failures: save
    /// [`State::ledger`] first. [Skipped steps](State::skip) are steps of the new mixture.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State), which lists all changes that are not allowed, and says
    /// how to allow them. The same kind of error is returned if the state does not contain all ranks, or has
    /// another number of streams or another epoch.
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

    /// The header of this loader's states, for the epochs of `state`.
    fn header_for(&self, state: &State) -> JobHeader {
        let run = match state.header().run {
            EpochRange::Epoch(epoch) | EpochRange::EpochRepeated(epoch) => self.settings.epoch_run(epoch),
            run @ EpochRange::EpochsFrom(_) => run,
        };
        self.settings.header(run)
    }

    /// The batches of an epoch from step `step` on, counted from 0, without reading the steps before it.
    ///
    /// This is the same as [`State::skip`] on the state at the beginning of the epoch. Use [`State::skip`] to
    /// skip steps in epochs without end, or in the middle of a run: after a spike of the loss, for example.
    /// The samples of skipped steps are not read: the [digest](State::digest) has only their number, which
    /// includes samples that would have failed. A run that reads the steps replaces each failed sample with
    /// the next sample of its stream. Therefore its batches after these steps begin a few samples later than
    /// those of a run that skips the steps.
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
            Ok(prepared) => (self.start)(&self.settings, prepared),
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
    /// The datasets of this loader.
    pub fn datasets(&self) -> impl ExactSizeIterator<Item = &Dataset> {
        self.settings.parts.iter().map(|part| &part.dataset)
    }

    /// Number of batches of an epoch on this rank. `None` if the number is not known ahead: a dataset has no
    /// index or is resampled, or a stage changes the number of items.
    #[must_use]
    pub fn steps(&self) -> Option<u64> {
        self.settings.steps()
    }

    /// Number of batches of an epoch on this rank for a dataset without an index, if stream `i` of the job
    /// has `items[i]` items. For `shardstream plan`, which counts the items.
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
