//! A mixture of datasets as a document: shards, weights, changes of weights, and stages by name.
//!
//! A mixture changes more often than the program that trains on it. So a mixture can be a document beside the
//! configuration of the model, without secrets and without code:
//!
//! ```toml
//! streams = 48           # logical streams of every dataset: a multiple of the ranks
//! # A dataset may override seed, shuffle_shards, keep_shards, shuffle and stages.
//! seed = 42              # default: 0
//! shuffle_shards = true  # default: true
//! keep_shards = false    # whether streams keep their shards in all epochs. Default: false
//! shuffle = 1000         # samples in the shuffle buffer of each stream. Default: 0
//! stages = "text"        # the name of stages in the program; not needed if there is only one
//! # temperature = 3.3    # multiplies weights by `size^(1 / temperature)`. Default: no temperature
//!
//! [[dataset]]
//! name = "web"
//! shards = "web/train-{000000..000999}.tar"  # relative to the document; or a URL, or a list
//! weight = 3                                 # default: 1
//! index = true                               # beside the shards; or a path or URL
//! # size = 1_000_000                         # for a temperature. Default: number of samples in the index
//!
//! [[dataset]]
//! name = "books"
//! shards = ["books/en-*.tar", "books/de-*.tar"]
//! weight = 0             # no items of this dataset before the first change
//! passes = 2             # epochs of this dataset in one epoch of the mix. Default: 1
//! seed = 7
//! shuffle = 100
//! stages = "chapters"
//!
//! [[change]]             # from item 1,000,000 of the job on
//! from = 1_000_000
//! weights = { books = 1 }  # the others keep their weights
//! ```
//!
//! A file whose name ends in `.yaml` or `.yml` must be a specification of webdataset (`MultiShardSample`) or
//! a metadataset of Megatron Energon: see [`Mixture::from_yaml`].
//!
//! [`Mixture::builder`] returns a [`LoaderBuilder`], as [`Loader::mix`](crate::Loader::mix) does. Set the
//! batch size and the other options of batches on this builder. Datasets have names, so that a state can be
//! [restored](crate::Loader::restore_changed) with another version of the document.
//!
//! ```
//! use shardstream::mixture::{Mixture, NamedStages};
//! use shardstream::prelude::*;
//!
//! let document = r#"
//!     streams = 2
//!     stages = "text"
//!
//!     [[dataset]]
//!     name = "web"
//!     shards = "docs/data/web-{000000..000001}.tar"
//!     weight = 3
//!
//!     [[dataset]]
//!     name = "books"
//!     shards = "docs/data/books-*.tar"
//!
//!     [[change]]
//!     from = 16
//!     weights = { web = 1 }
//! "#;
//! let mixture = Mixture::from_toml(document)?; // or Mixture::load("mixture.toml")?
//! let stages = NamedStages::new().with("text", |samples| {
//!     samples.decode(Decoder::new()).map(|mut sample| sample.take::<String>("txt"))
//! });
//! // The topology and the store are not part of a mixture.
//! let loader = mixture.builder(&stages, |dataset| dataset.topology(Topology::single()))?.batch(8).build()?;
//! let mut books = Vec::new();
//! for batch in loader.epochs(0).take(5) {
//!     books.push(batch?.iter().filter(|text| text.contains('\n')).count());
//! }
//! assert_eq!(books, [2, 2, 4, 4, 4]);
//! # Ok::<(), shardstream::Error>(())
//! ```

mod document;
mod energon;
mod load;
mod names;
mod webdataset;
mod yaml;

use crate::dataset::{Dataset, DatasetBuilder, Shards};
use crate::error::{ErrorKind, Result};
use crate::index::AutoIndex;
use crate::loader::{Loader, LoaderBuilder};
use crate::plan::{temperature_shares, whole_weights};
use crate::sample::Sample;
use crate::secret_url::{SecretUrl, shown};
pub use document::{IndexPlace, MixedDataset, Mixture, WeightsFrom};
pub use names::NamedStages;

impl Mixture {
    /// A builder for a loader of the mixture. Each dataset has the shards and options that the document sets,
    /// and the stages that the document names.
    ///
    /// `environment` sets the options of each dataset that are not in the document: the
    /// [topology](DatasetBuilder::topology), and the [store](DatasetBuilder::store) if it is not the default
    /// store. The call lists the shards of patterns with wildcards, loads each index, and builds missing
    /// indexes.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if a dataset names stages that `stages` does not have, or if the mixture's
    /// public fields were changed so that [`from_toml`](Mixture::from_toml) would refuse such a mixture; and
    /// the errors of [`DatasetBuilder::build`].
    pub fn builder<T: Send + 'static>(
        &self,
        stages: &NamedStages<T>,
        environment: impl Fn(DatasetBuilder) -> DatasetBuilder,
    ) -> Result<LoaderBuilder<T>> {
        self.check()?;
        let (mut parts, mut sizes) = (Vec::new(), Vec::new());
        for part in &self.datasets {
            let (builder, size) = self.part(part, stages, &environment)?;
            parts.push(builder);
            sizes.push(size);
        }
        let mut weights = self.datasets.iter().map(|dataset| dataset.weight).collect::<Vec<_>>();
        let parts = parts.into_iter().zip(self.scaled(&weights, &sizes));
        let mut mix = Loader::mix(parts.map(|(part, weight)| part.weight(weight)));
        for change in &self.changes {
            for (dataset, weight) in self.datasets.iter().zip(&mut weights) {
                *weight = change.weights.get(&dataset.name).copied().unwrap_or(*weight);
            }
            mix = mix.weights_from(change.from, self.scaled(&weights, &sizes));
        }
        Ok(mix)
    }

    /// The size of a dataset, multiplied by its number of passes in an epoch of the mix. The unit is that of
    /// `part.size`, or samples if `part.size` is `None`. Returns `None` if the mixture has no temperature,
    /// because the size is not needed then.
    fn size(&self, part: &MixedDataset, dataset: &Dataset) -> Result<Option<u64>> {
        if self.temperature.is_none() {
            return Ok(None);
        }
        let plan = dataset.plan();
        let samples = || (0..plan.streams()).map(|stream| plan.samples(stream)).sum::<Option<u64>>();
        match part.size.or_else(samples).map(|size| size.saturating_mul(part.passes)) {
            Some(0) | None => {
                let what = format!(
                    "dataset `{}` has no size for a `temperature`: give it an `index` or a `size`",
                    part.name
                );
                Err(ErrorKind::Config(what).into())
            }
            size => Ok(size),
        }
    }

    /// Returns `weights` unchanged if the mixture has no temperature. Otherwise multiplies them by weights
    /// that are computed from the sizes.
    fn scaled(&self, weights: &[u32], sizes: &[Option<u64>]) -> Vec<u32> {
        let Some(temperature) = self.temperature else { return weights.to_vec() };
        let sizes: Vec<u64> = sizes.iter().map(|size| size.unwrap_or(1)).collect();
        let shares = temperature_shares(&sizes, temperature).into_iter().zip(weights);
        whole_weights(&shares.map(|(share, weight)| share * f64::from(*weight)).collect::<Vec<_>>())
    }

    /// Returns a builder for a dataset of the mix, and the dataset's [size](Mixture::size). The builder does
    /// not have the dataset's weight yet.
    fn part<T: Send + 'static>(
        &self,
        part: &MixedDataset,
        stages: &NamedStages<T>,
        environment: impl Fn(DatasetBuilder) -> DatasetBuilder,
    ) -> Result<(LoaderBuilder<T>, Option<u64>)> {
        let stages = stages.get(part.stages.as_deref().or(self.stages.as_deref()), &part.name)?;
        let shards = part.shards.iter().map(|pattern| self.located(pattern)).collect::<Result<Vec<_>>>()?;
        // `::` separates patterns that are read one after the other.
        let mut dataset = Dataset::builder(Shards::from(shards.join("::")))
            .seed(part.seed.unwrap_or(self.seed))
            .shuffle_shards(part.shuffle_shards.unwrap_or(self.shuffle_shards))
            .keep_shards(part.keep_shards.unwrap_or(self.keep_shards));
        if let Some(streams) = self.streams {
            dataset = dataset.streams(streams);
        }
        if let Some(place) = &part.index {
            dataset = dataset.auto_index(match place {
                IndexPlace::Beside => AutoIndex::beside(),
                IndexPlace::At(place) => AutoIndex::at(self.located(place)?),
            });
        }
        let dataset = environment(dataset).build()?;
        let size = self.size(part, &dataset)?;
        let samples: LoaderBuilder<Sample> = Loader::builder(dataset)
            .name(&part.name)
            .shuffle(part.shuffle.unwrap_or(self.shuffle))
            .passes(part.passes);
        Ok((stages(samples), size))
    }

    /// Prefixes a relative pattern or path with the document's directory.
    fn located(&self, place: &SecretUrl) -> Result<String> {
        let place = place.expose_secret();
        let Some(directory) = self.directory.as_ref().filter(|directory| !directory.as_os_str().is_empty())
        else {
            return Ok(place.to_owned());
        };
        let directory =
            directory.to_str().filter(|path| !path.contains(['{', '}', '*', '?', '[', ']', '$', ':']));
        let piece = |piece: &str| {
            // A variable at the beginning of a pattern may contain a whole URL.
            let is_absolute = piece.starts_with('/') || piece.starts_with("${") || piece.contains(":/");
            match directory {
                _ if is_absolute => Ok(piece.to_owned()),
                Some(directory) => Ok(format!("{directory}/{piece}")),
                None => {
                    let what = format!(
                        "`{}` is relative to a directory whose name has characters of patterns in it: give \
                         the whole path, or move the document",
                        shown(piece)
                    );
                    Err(ErrorKind::Config(what).into())
                }
            }
        };
        Ok(place.split("::").map(piece).collect::<Result<Vec<_>>>()?.join("::"))
    }
}
