//! The options of datasets that are mixed.

use super::{LoaderBuilder, RunOptions};
use crate::loader::last_batch::LastBatch;
use crate::loader::policy::OnError;
use crate::loader::tuning::Resources;
use crate::state::WeightChange;

impl<T: Send + 'static> LoaderBuilder<T> {
    pub(in crate::loader) fn mixed(builders: impl IntoIterator<Item = LoaderBuilder<T>>) -> Self {
        let mut mixed = LoaderBuilder::of(Vec::new(), RunOptions::default());
        for LoaderBuilder { parts, options, .. } in builders {
            let Resources { threads, cores, prefetch, prefetch_bytes } = options.resources;
            let is_set = options.batch.is_some()
                || options.last != LastBatch::Keep
                || options.policy != OnError::stop()
                || options.on_stall.is_set()
                || prefetch.is_some()
                || prefetch_bytes.is_some()
                || !options.schedule.is_empty();
            if is_set {
                mixed.options.fail(
                    "`batch`, `last_batch`, `prefetch`, `prefetch_bytes`, `on_error`, `stall_after`, \
                     `on_stall` and `weights_from` are options of the mix: set them on what `Loader::mix` \
                     returns",
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
        // A number of threads that is fixed for one dataset is fixed for the mix.
        if mixed.options.resources.threads.is_some() {
            mixed.options.resources.cores = None;
        }
        mixed
    }
}

/// Options of a [mix](crate::Loader::mix), and of the datasets in it.
impl<T, B> LoaderBuilder<T, B> {
    /// Names the dataset in a [mix](crate::Loader::mix), for a [restore onto another
    /// mixture](crate::Loader::restore_changed). A state keeps the name; the order does not depend on it.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        if self.parts.len() > 1 {
            let what = "`name` of a mix: set it on each dataset before `Loader::mix`";
            self.options.fail(what);
        }
        let name = name.into();
        self.each(|part, _| part.name = Some(name.clone()))
    }

    /// This dataset's relative weight in a [mix](crate::Loader::mix): of `weight(3)` beside `weight(1)`,
    /// three items in four. Default: 1. With 0 it has no turns until
    /// [`weights_from`](LoaderBuilder::weights_from) gives it some.
    pub fn weight(mut self, weight: u32) -> Self {
        if self.parts.len() > 1 {
            let what = "`weight` of a mix: set it on each dataset before `Loader::mix`, as the datasets of \
                        mixes that are mixed again have all one level";
            self.options.fail(what);
        }
        self.each(|part, _| part.weight = weight)
    }

    /// Changes the weights of a [mix](crate::Loader::mix) from item `item` of the job on: one for each
    /// dataset, in the order of the mix. Call it for each change, in their order, on what
    /// [`Loader::mix`](crate::Loader::mix) returns.
    ///
    /// `item` counts the items of all ranks from the beginning of the run, from 0: step `k` begins with item
    /// `k * batch * ranks`. So the change is at the same item on any number of ranks and with any size of
    /// batches. The shares are exact on both sides of it: in each stream a window of as many items as the
    /// weights add up to has each dataset exactly as often as its weight; the change ends the window that it
    /// falls into, and new ones begin.
    ///
    /// A dataset of weight 0 gives nothing, until it gets another one: it comes in later, or is left out from
    /// then on. Its shards are opened and its buffers filled from the beginning on all the same, so they must
    /// be there. Use that with [`epochs`](crate::Loader::epochs), where no dataset ends.
    /// [`epoch`](crate::Loader::epoch) begins at item 0 and reads every dataset to its end: where all that
    /// have a weight have ended, the others follow.
    ///
    /// The schedule is part of the order: a [restore](crate::Loader::restore) needs the same. To
    /// change it in the middle of a run, use [`restore_changed`](crate::Loader::restore_changed).
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let write = |name: &str| -> shardstream::Result<String> {
    /// #     let pattern = format!("{}/{name}-%d.tar", dir.path().display());
    /// #     let mut writer = ShardWriter::builder(&pattern).max_count(8).build()?;
    /// #     for i in 0..16 { writer.write(&Sample::new(format!("{name}{i}")).with("cls", i))?; }
    /// #     writer.finish()?;
    /// #     Ok(pattern.replace("%d", "{0..1}"))
    /// # };
    /// # let (web, books) = (write("web")?, write("books")?);
    /// let dataset = |shards| Dataset::builder(shards).streams(1).build();
    /// let (web, books) = (Loader::builder(dataset(&web)?), Loader::builder(dataset(&books)?));
    /// let (batch, ranks) = (4, 1);
    /// let loader = Loader::mix([web.weight(3), books])
    ///     .weights_from(5 * batch * ranks, [1, 3]) // more books from step 5 on
    ///     .weights_from(8 * batch * ranks, [0, 1]) // and nothing else from step 8 on
    ///     .map(|sample| Ok(sample.key().starts_with("books")))
    ///     .batch(batch as usize)
    ///     .build()?;
    /// let mut books = Vec::new();
    /// for batch in loader.epochs(0).take(10) {
    ///     books.push(batch?.iter().filter(|is_book| **is_book).count());
    /// }
    /// assert_eq!(books, [1, 1, 1, 1, 1, 3, 3, 3, 4, 4]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn weights_from(mut self, item: u64, weights: impl IntoIterator<Item = u32>) -> Self {
        self.options.schedule.push(WeightChange { from: item, weights: weights.into_iter().collect() });
        self
    }

    /// How many epochs of this dataset make one epoch, of a [mix](crate::Loader::mix) in which a small
    /// dataset is to be seen more often, say. Default: 1. Where epochs continue [without an
    /// end](crate::Loader::epochs), it has no meaning.
    pub fn passes(self, epochs: u64) -> Self {
        self.each(|part, _| part.passes = epochs)
    }
}
