//! Options of a run: shuffling, threads, batches and failures.

use super::LoaderBuilder;
use crate::adapters::LastBatch;
use crate::error::Result;
use crate::loader::policy::OnError;
use crate::loader::watch::Diagnosis;
use std::sync::Arc;
use std::time::Duration;

/// Options of a run. On a [mix](crate::Loader::mix), [`shuffle`](LoaderBuilder::shuffle) applies to each
/// dataset of the mix.
impl<T, B, C> LoaderBuilder<T, B, C> {
    /// Shuffles the samples of each stream in a buffer of `samples` samples. The order depends on the
    /// dataset's seed, the epoch and the stream. Default: 0, no shuffle.
    ///
    /// The buffers hold samples with their stored fields, before decoding. A rank needs memory for `samples`
    /// times its number of streams times the mean stored size of a sample. The
    /// [report](crate::loader::MemoryReport) has the number of bytes.
    ///
    /// ```
    /// use shardstream::adapters::Batch;
    /// use shardstream::prelude::*;
    ///
    /// let dataset = Dataset::builder("docs/data/digits-000000.tar").build()?;
    /// let key = |sample: Sample| Ok(sample.key().to_owned());
    /// let loader = Loader::builder(dataset).shuffle(100).map(key).batch(10);
    /// let keys = |epoch| loader.clone().build()?.epoch(epoch).next().unwrap().map(Batch::into_items);
    /// assert_eq!(keys(0)?, keys(0)?);
    /// assert_ne!(keys(0)?, keys(1)?);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn shuffle(self, samples: usize) -> Self {
        self.each(|part, _| part.shuffle = samples)
    }

    /// Fixes the number of threads that read the streams and run the stages. The batches do not depend on
    /// this number.
    ///
    /// - 0: no threads. All work is done in [`next`](Iterator::next). Use this for debugging.
    /// - 1: the thread that collects batches does all work, so that no sample moves from one core to another.
    ///   This needs the least CPU time for small samples. While the trainer computes, only the batches
    ///   [ahead](LoaderBuilder::prefetch) are prepared.
    /// - More: this number of threads, in addition to the thread that collects batches.
    ///
    /// In a [mix](crate::Loader::mix), the largest number that is set for one of the datasets or for the mix
    /// is used.
    ///
    /// By default the number is tuned during a run. It starts with one thread for each of the
    /// [`cores`](LoaderBuilder::cores). If the trainer waits for batches while all threads are busy and some
    /// cores are idle, then stages are waiting for a service or a slow disk. The loader then tries up to
    /// twice as many threads, at most 32 for each core and 256 in all, and keeps them if the rate grows. If
    /// no core of the machine is idle, the loader tries fewer threads than before, down to the number of
    /// cores. The next run of the loader starts with the tuned number. The [report](crate::loader::Report)
    /// has the current number, and each change is an event of `tracing`.
    ///
    /// While streams resume from a state, up to 16 additional threads read for them.
    ///
    /// Each thread holds a chunk of samples (up to 512 KiB, and at least one sample), and calls the functions
    /// of the stages concurrently with the other threads. If the functions keep data for each thread, such as
    /// a model, there is one copy for each thread. Fix the number if these copies are expensive, or if a
    /// service limits the number of concurrent calls.
    #[doc(alias = "num_workers")]
    pub fn threads(mut self, threads: usize) -> Self {
        self.options.resources.threads = Some(threads);
        self
    }

    /// Number of cores that the threads may use, if the number of [threads](LoaderBuilder::threads) is not
    /// fixed. More threads than cores are started only if threads wait instead of computing. Set this if
    /// several ranks share a host. Default: the cores that the process may use, minus one for each eight of
    /// them, which is left to the trainer. In a [mix](crate::Loader::mix), the largest number that is set for
    /// one of the datasets or for the mix is used.
    pub fn cores(mut self, cores: usize) -> Self {
        self.options.resources.cores = Some(cores);
        self
    }

    /// Number of items in a batch. It must be set.
    #[doc(alias = "batch_size")]
    pub fn batch(mut self, size: usize) -> Self {
        self.options.batch = Some(size);
        self
    }

    /// Applies a function to each batch, for instance to mix its images or to convert it for a framework. The
    /// function runs on the thread that collects batches, ahead of the trainer, for one batch at a time. Work
    /// on single items is faster in a [`map`](LoaderBuilder::map) or a
    /// [column](crate::collate::Columns::with_fn) than in `map_batch`, because maps and columns use all
    /// threads. `map_batch` can be called several times. Add stages on items before you call `map_batch`;
    /// options may follow.
    ///
    /// The batch already has its state, which seeds its [random
    /// numbers](crate::collate::TensorBatch::rng). If the function returns another type,
    /// [`Batches::state`](crate::loader::Batches::state) still has the state. If the function fails or
    /// panics, all samples of the batch have failed: [`on_error`](LoaderBuilder::on_error) applies, and the
    /// next samples form the batch of this step. With [`LastBatch::Pad`], a batch may consist of padding
    /// alone: then there is no sample that could have failed, and the error ends the run.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let dataset = Dataset::builder("docs/data/digits-000000.tar").build()?;
    /// let loader = Loader::builder(dataset)
    ///     .decode(Decoder::new())
    ///     .map(|mut sample| sample.take::<i64>("cls"))
    ///     .batch(5)
    ///     .map_batch(|batch| Ok(batch.iter().sum::<i64>()))
    ///     .build()?;
    /// assert_eq!(loader.epoch(0).collect::<shardstream::Result<Vec<_>>>()?, [10, 35]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[doc(alias = "collate_fn")]
    pub fn map_batch<D>(self, f: impl Fn(C) -> Result<D> + Send + Sync + 'static) -> LoaderBuilder<T, B, D>
    where
        B: 'static,
        C: 'static,
    {
        let LoaderBuilder { parts, options, map_batch } = self;
        LoaderBuilder { parts, options, map_batch: map_batch.then(f) }
    }

    /// How the last batches of an epoch are handled. They may have fewer items than other batches. Default:
    /// [`LastBatch::Keep`].
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let dataset = Dataset::builder("docs/data/digits-000000.tar").build()?;
    /// let sizes = |last| -> shardstream::Result<Vec<usize>> {
    ///     let loader = Loader::builder(dataset.clone()).batch(4).last_batch(last).build()?;
    ///     loader.epoch(0).map(|batch| Ok(batch?.len())).collect()
    /// };
    /// assert_eq!(sizes(LastBatch::Keep)?, [4, 4, 2]);
    /// assert_eq!(sizes(LastBatch::Drop)?, [4, 4]);
    /// assert_eq!(sizes(LastBatch::Pad)?, [4, 4, 4]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[doc(alias = "drop_last")]
    #[doc(alias = "drop_remainder")]
    pub fn last_batch(mut self, last: LastBatch) -> Self {
        self.options.last = last;
        self
    }

    /// Whether the ranks of a job may take different numbers of steps in an [epoch](crate::Loader::epoch).
    /// Default: false.
    ///
    /// Ranks that wait for each other in collective operations hang if one rank takes fewer steps than the
    /// others. So on several ranks, an epoch whose number of [steps](crate::Loader::steps) is not known ahead
    /// is an error unless this is true. With [`LastBatch::Drop`], `build` returns the error; otherwise it is
    /// the first item of `epoch`, and `restore` returns it. Set this to true if ranks are independent of each
    /// other, as in an evaluation whose results are added up afterwards. [`epochs`](crate::Loader::epochs)
    /// does not need it, because all ranks can take the same number of steps.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let shards = "docs/data/digits-{000000..000003}.tar";
    /// let dataset = Dataset::builder(shards).topology(Topology::new(0, 2)?).streams(4).build()?;
    /// let builder = Loader::builder(dataset).batch(4);
    /// assert!(builder.clone().build()?.epoch(0).next().unwrap().is_err());
    /// assert_eq!(builder.clone().build()?.epochs(0).take(9).count(), 9);
    /// assert_eq!(builder.uneven_steps(true).build()?.epoch(0).count(), 5);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn uneven_steps(mut self, allowed: bool) -> Self {
        self.options.uneven_steps = allowed;
        self
    }

    /// Fixes the number of batches that are prepared ahead of the trainer: at least 1.
    ///
    /// By default the number starts at 2. If the trainer waits for some batches although other batches were
    /// ready early, the number is doubled, up to 32 and within
    /// [`prefetch_bytes`](LoaderBuilder::prefetch_bytes). This needs the size of a batch, which is known for
    /// tensors ([`collate`](LoaderBuilder::collate)) of fixed shapes. For other batches the number stays at
    /// 2.
    #[doc(alias = "prefetch_factor")]
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.options.resources.prefetch = Some(batches);
        self
    }

    /// Limits the bytes of the batches that are prepared ahead, if their
    /// [number](LoaderBuilder::prefetch) is not fixed. Two batches are always allowed. Default: 512 MiB.
    pub fn prefetch_bytes(mut self, bytes: u64) -> Self {
        self.options.resources.prefetch_bytes = Some(bytes);
        self
    }

    /// What happens to samples that fail. Default: [`OnError::stop`], which returns each failure as an error
    /// item.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let dataset = Dataset::builder("docs/data/bad-label-000000.tar").build()?;
    /// let label = |mut sample: Sample| sample.take::<i64>("cls"); // one of the samples has no number
    /// let builder = Loader::builder(dataset).decode(Decoder::new()).map(label).batch(20);
    /// let loader = builder.on_error(OnError::skip(Failures::decode())).build()?;
    /// let mut batches = loader.epoch(0);
    /// assert_eq!(batches.next().unwrap()?.to_vec(), [0, 1, 2, 3, 4, 6, 7, 8, 9]);
    /// assert_eq!(batches.state().ledger().skipped(), 1);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.options.policy = policy;
        self
    }

    /// Warns when the trainer has waited for a batch for this long, once for each wait. Default: 30 s. The
    /// wait for the first batch of an epoch counts too. [`Duration::MAX`] disables the warning.
    ///
    /// The warning names the cause and the duration of the wait: the stage, the stream, the shard, and the
    /// shard's requests with their bytes. The warning is an event of `tracing` (feature `tracing`), and is
    /// passed to [`on_stall`](LoaderBuilder::on_stall). Without a subscriber and a callback, it is written to
    /// standard error.
    pub fn stall_after(mut self, limit: Duration) -> Self {
        self.options.on_stall.after = limit;
        self
    }

    /// Sets a callback for the [warning](LoaderBuilder::stall_after) of a long wait. The [`Diagnosis`] says
    /// what the run does or waits for. The callback is called on a thread that serves all loaders of the
    /// process, and should return quickly.
    pub fn on_stall(mut self, warn: impl Fn(&Diagnosis) + Send + Sync + 'static) -> Self {
        self.options.on_stall.callback = Some(Arc::new(warn));
        self
    }
}
