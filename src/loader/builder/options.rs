//! Options of a run: shuffling, threads, batches and failures.

use super::LoaderBuilder;
use crate::loader::last_batch::LastBatch;
use crate::loader::policy::OnError;
use crate::loader::watch::Stall;
use std::sync::Arc;
use std::time::Duration;

/// Options; of a [mix](Loader::mix), those for each sample are set for all datasets in it.
impl<T, B> LoaderBuilder<T, B> {
    /// Shuffles the samples of each stream in a buffer of `samples`, with random numbers of the dataset's
    /// seed, the epoch and the stream. Default: 0, which is no shuffle.
    pub fn shuffle(self, samples: usize) -> Self {
        self.each(|part, _| part.shuffle = samples)
    }

    /// Bounds the bytes in the shuffle buffer of each stream. Default: no bound.
    ///
    /// The order depends on the sizes of the samples then, and a loader that is
    /// [restored](Loader::restore) reads the epoch again from its beginning to find them out.
    pub fn shuffle_bytes(self, bytes: usize) -> Self {
        self.each(|part, _| part.shuffle_bytes = bytes)
    }

    /// Fixes the number of threads that read the streams and do the stages. In a [mix](Loader::mix) it is the
    /// largest number that was set for one of the datasets, or for the mix. With 0 there is no thread at all,
    /// and nothing happens ahead of [`next`](Iterator::next): for debugging, the batches are the same.
    ///
    /// By default the number is tuned while a run is under way. It begins with one for each of the
    /// [`cores`](LoaderBuilder::cores). Where the trainer waits for batches, and the threads work all the
    /// time although cores are idle, because stages wait for a service or a slow disk, up to twice as many
    /// are tried, up to 32 for each core and 256 in all; they stay if the rate grows. Where no core of the
    /// machine is idle, fewer are tried again, down to the cores. The next run of the loader begins with what
    /// was found. The [report](super::Report) has the current number, and each change is an event of
    /// `tracing`.
    ///
    /// Each thread holds a chunk of samples (up to 512 KiB, and one sample at least), calls the functions of
    /// the stages side by side with the others, and has its own of what they keep for each thread. Fix the
    /// number where that is dear, or where a service allows a limited number of calls.
    pub fn threads(mut self, threads: usize) -> Self {
        self.options.resources.threads = Some(threads);
        self
    }

    /// Number of cores that the threads are to compute on, where their [number](LoaderBuilder::threads) is
    /// not fixed: there are more threads than that only where they wait for something else. Set it where
    /// several ranks share a host, each of which could use all cores. Default: those that the process may
    /// use, less one in eight, which are left to the trainer. In a [mix](Loader::mix) it is the largest
    /// number that was set for one of the datasets, or for the mix.
    pub fn cores(mut self, cores: usize) -> Self {
        self.options.resources.cores = Some(cores);
        self
    }

    /// How many items a batch has. There is no default.
    pub fn batch(mut self, size: usize) -> Self {
        self.options.batch = Some(size);
        self
    }

    /// What happens to the last batches of an epoch. Default: [`LastBatch::Keep`]. Call it after the stages.
    /// Items that cannot be cloned can be put into an [`Arc`].
    pub fn last_batch(mut self, last: LastBatch) -> Self
    where
        T: Clone,
    {
        self.options.last = last;
        self.pad = (last == LastBatch::Pad).then_some(T::clone);
        self
    }

    /// Fixes how many batches are prepared ahead of the one that is asked for, at least 1.
    ///
    /// By default it is 2 at first. Where the trainer waits for some batches although others were ready
    /// before their time, it is doubled, up to 32 and within
    /// [`prefetch_bytes`](LoaderBuilder::prefetch_bytes). That needs the size of a batch, which is known of
    /// tensors ([`collate`](LoaderBuilder::collate)) of fixed shapes; other batches stay at 2.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.options.resources.prefetch = Some(batches);
        self
    }

    /// The most bytes of batches that are prepared ahead, where their [number](LoaderBuilder::prefetch) is
    /// not fixed; two are in any case. Default: 512 MiB.
    pub fn prefetch_bytes(mut self, bytes: u64) -> Self {
        self.options.resources.prefetch_bytes = Some(bytes);
        self
    }

    /// What happens to samples that fail. Default: [`OnError::stop`], with which each is an error item.
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.options.policy = policy;
        self
    }

    /// After how long a wait of the trainer for a batch to warn, once for each wait. Default: 30 s. The first
    /// batch of an epoch counts as well; [`Duration::MAX`] is never.
    ///
    /// The warning names what is waited for: the stage, the stream, the shard, its requests and their bytes,
    /// and for how long. It is an event of `tracing` (feature `tracing`), and a call of
    /// [`on_stall`](LoaderBuilder::on_stall). Where neither is listened to, it goes to the standard error
    /// stream.
    pub fn stall_after(mut self, limit: Duration) -> Self {
        self.options.on_stall.after = limit;
        self
    }

    /// What to call with the [warning](LoaderBuilder::stall_after) of a long wait. It is called on a thread
    /// that looks after all loaders of the process, and should not take long.
    pub fn on_stall(mut self, warn: impl Fn(&Stall) + Send + Sync + 'static) -> Self {
        self.options.on_stall.callback = Some(Arc::new(warn));
        self
    }
}
