//! The options of a mix, and the options of each dataset in a mix.

use super::{LoaderBuilder, RunOptions};
use crate::adapters::LastBatch;
use crate::loader::policy::OnError;
use crate::loader::tuning::Resources;
use crate::plan::WeightChange;

impl<T: Send + 'static> LoaderBuilder<T> {
    /// A builder for a loader that mixes the datasets of `builders`.
    pub(in crate::loader) fn mixed(builders: impl IntoIterator<Item = LoaderBuilder<T>>) -> Self {
        let mut mixed = LoaderBuilder::of(Vec::new(), RunOptions::default());
        for LoaderBuilder { parts, options, .. } in builders {
            let Resources { threads, cores, prefetch, prefetch_bytes } = options.resources;
            let is_set = options.batch.is_some()
                || options.last != LastBatch::Keep
                || options.uneven_steps
                || options.policy != OnError::stop()
                || options.on_stall.is_set()
                || prefetch.is_some()
                || prefetch_bytes.is_some()
                || !options.schedule.is_empty();
            if is_set {
                mixed.options.fail(
                    "`batch`, `last_batch`, `uneven_steps`, `prefetch`, `prefetch_bytes`, `on_error`, \
                     `stall_after`, `on_stall` and `weights_from` are options of the mix: set them on the \
                     builder that `Loader::mix` returns",
                );
            }
            if let Some(error) = options.error {
                mixed.options.fail(error);
            }
            mixed.parts.extend(parts);
            let resources = &mut mixed.options.resources;
            resources.threads = resources.threads.max(threads);
            resources.cores = resources.cores.max(cores);
        }
        // If the number of threads is fixed for one dataset, it is fixed for the mix.
        if mixed.options.resources.threads.is_some() {
            mixed.options.resources.cores = None;
        }
        mixed
    }
}

/// Options of a [mix](crate::Loader::mix), and of each dataset in a mix.
impl<T, B, C> LoaderBuilder<T, B, C> {
    /// Names the dataset in a [mix](crate::Loader::mix), so that a [restore into another
    /// mixture](crate::Loader::restore_changed) recognises it. A state contains the name. The order of items
    /// does not depend on the name, but on the number of the dataset in the mix.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        if self.parts.len() > 1 {
            let what = "`name` of a mix: set it on each dataset before `Loader::mix`";
            self.options.fail(what);
        }
        let name = name.into();
        self.each(|part, _| part.name = Some(name.clone()))
    }

    /// This dataset's relative weight in a [mix](crate::Loader::mix). A dataset with `weight(3)` beside one
    /// with `weight(1)` contributes three items of four. Default: 1. A dataset with weight 0 contributes no
    /// items until [`weights_from`](LoaderBuilder::weights_from) sets another weight.
    pub fn weight(mut self, weight: u32) -> Self {
        if self.parts.len() > 1 {
            let what = "`weight` of a mix: set it on each dataset before `Loader::mix`, because a mix of \
                        mixes is one mix of all their datasets";
            self.options.fail(what);
        }
        self.each(|part, _| part.weight = weight)
    }

    /// Changes the weights of a [mix](crate::Loader::mix) from item `item` of the job on: one weight for each
    /// dataset, in the order of the mix. Call this once for each change, on the builder that
    /// [`Loader::mix`](crate::Loader::mix) returns.
    ///
    /// `item` counts the items of all ranks from the beginning of the run, from 0: step `k` starts with item
    /// `k * batch * ranks`. So the change is at the same item for any number of ranks and any batch size. The
    /// shares are exact before and after the change: each stream is divided into windows whose length is the
    /// sum of the weights, and a window has exactly as many items of each dataset as the dataset's weight. A
    /// change ends the current window and starts a new one.
    ///
    /// A dataset contributes no items while its weight is 0. But even then its shards are opened and its
    /// buffers are filled at the beginning of the run, so the shards must exist. Use a weight of 0 with
    /// [`epochs`](crate::Loader::epochs), where no dataset ends. [`epoch`](crate::Loader::epoch) starts at
    /// item 0 and reads every dataset to its end; datasets of weight 0 follow after all others have ended.
    ///
    /// The order of items depends on the schedule: a [restore](crate::Loader::restore) needs the same
    /// schedule. To change it during a run, use [`restore_changed`](crate::Loader::restore_changed).
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let web = Loader::builder(Dataset::builder("docs/data/web-{000000..000001}.tar").build()?);
    /// let books = Loader::builder(Dataset::builder("docs/data/books-{000000..000001}.tar").build()?);
    /// let (batch, ranks) = (4, 1);
    /// let loader = Loader::mix([web.weight(3), books])
    ///     .weights_from(5 * batch * ranks, [1, 3]) // more books from step 5 on
    ///     .weights_from(8 * batch * ranks, [0, 1]) // only books from step 8 on
    ///     .map(|sample| Ok(sample.key().starts_with("books")))
    ///     .batch(batch as usize)
    ///     .build()?;
    /// let mut books = Vec::new();
    /// for batch in loader.epochs(0).take(10) {
    ///     books.push(batch?.iter().filter(|is_book| **is_book).count());
    /// }
    /// assert_eq!(books, [1, 1, 1, 1, 1, 3, 3, 3, 4, 4]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn weights_from(mut self, item: u64, weights: impl IntoIterator<Item = u32>) -> Self {
        self.options.schedule.push(WeightChange { from: item, weights: weights.into_iter().collect() });
        self
    }

    /// Number of epochs of this dataset in one epoch of the loader, for example to read a small dataset of a
    /// [mix](crate::Loader::mix) several times. Default: 1. The option has no effect on [endless
    /// epochs](crate::Loader::epochs).
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let dataset = Dataset::builder("docs/data/digits-000000.tar").build()?;
    /// let loader = Loader::builder(dataset).passes(2).batch(20).build()?;
    /// assert_eq!(loader.epoch(0).next().unwrap()?.len(), 20); // of 10 samples
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn passes(self, epochs: u64) -> Self {
        self.each(|part, _| part.passes = epochs)
    }
}
