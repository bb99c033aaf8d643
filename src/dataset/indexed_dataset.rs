//! Reads single samples: by position, by number and by key.

use super::reader::ShardReader;
use super::{Dataset, Versions};
use crate::error::{Error, ErrorKind, FailureClass, Result};
use crate::index::{KeyIndex, check_object, outdated};
use crate::plan::Slice;
use crate::sample::{Position, Sample};
use crate::secret_url::SecretUrl;
use crate::store::ObjectUrl;
use std::sync::Arc;

/// If fewer than this number of bytes lie between two requested samples of a shard, both are read as one
/// range, because a new request takes longer than reading these bytes.
const GAP: u64 = 1 << 20;
/// Replaces [`GAP`] for local files. It is smaller, because a new range only requires opening the file again.
const LOCAL_GAP: u64 = 16 << 10;

/// The number of a shard in the plan, and the number of a sample among the selected samples of that shard.
type PlannedSample = (usize, u64);

impl Dataset {
    /// Reads one sample by its [position](Sample::position), for instance to inspect a sample that an error
    /// or a log names. Blocks.
    ///
    /// With an [index](super::DatasetBuilder::index), only the bytes of the sample are read. Without one, or
    /// in a compressed shard, the shard is read from its beginning up to the sample. The sample is returned
    /// as it was before any stage, with its joined fields and its [random numbers](Sample::rng).
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let dataset = Dataset::builder("docs/data/digits-{000000..000003}.tar").build()?;
    /// let seen = dataset.samples(3).nth(6).unwrap()?;
    /// assert_eq!(dataset.sample(seen.position())?.key(), seen.key());
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the dataset has no such sample, [`ErrorKind::Stale`] if the shard has changed
    /// since it was indexed, and the errors of reading the sample.
    pub fn sample(&self, position: Position) -> Result<Sample> {
        self.read_planned(self.planned_sample_at(position)?, position)
    }

    /// Reads the sample with this key, which is looked up in `keys`. Blocks. [`sample`](Dataset::sample) says
    /// which bytes are read. The position of the sample is in epoch 0.
    ///
    /// The key index has hashes of the keys. Each sample whose key has the same hash as `key` is read, and
    /// its key is compared with `key`; usually there is one such sample.
    ///
    /// # Errors
    /// - [`ErrorKind::NoSuchKey`]: no sample that the dataset reads has the key.
    /// - [`ErrorKind::RepeatedKey`]: several samples have the key.
    /// - [`ErrorKind::Index`]: the key index is older than a shard or than the dataset's index, or it does
    ///   not have the dataset's shards.
    /// - The errors of [`sample`](Dataset::sample).
    pub fn by_key(&self, keys: &KeyIndex, key: &str) -> Result<Sample> {
        let shown = |sample: &Sample| format!("sample {} of {}", sample.position().sample, sample.shard());
        let mut found: Option<Sample> = None;
        // A shard outside this dataset with a sample whose key has the same hash as `key`.
        let mut outside = None;
        for (shard, number) in keys.find(key).map_err(|error| error.with_key(key))? {
            let Some(position) = self.keyed_position(keys, shard, number)? else {
                outside = keys.index().at(shard).map(|shard| SecretUrl::from(shard.url()));
                continue;
            };
            let here = position.shard as usize;
            let sample = match self.sample(position) {
                Ok(sample) => sample,
                Err(error) => {
                    // An outdated key index may name a sample that the shard no longer has.
                    self.check_current(keys, here)?;
                    return Err(error);
                }
            };
            if sample.key() != key {
                self.check_current(keys, here)?;
                continue;
            }
            if let Some(first) = &found {
                // If a shard is listed twice, both results are the same sample.
                if first.shard() == sample.shard() && first.position().sample == sample.position().sample {
                    continue;
                }
                let (first, second) = (shown(first), shown(&sample));
                return Err(Error::from(ErrorKind::RepeatedKey { first, second }).with_key(key));
            }
            found = Some(sample);
        }
        if let Some(sample) = found {
            return Ok(sample);
        }
        if self.0.shards.index.is_some() {
            // The key may be in a shard that has changed since its keys were indexed.
            self.0.shards.numbers.iter().try_for_each(|number| self.check_current(keys, number))?;
        }
        let (count, shards) = (keys.len(), keys.index().len());
        let searched = match outside {
            Some(url) => format!(
                "the {count} keys of {shards} shards (a sample of {url} has a key of the same hash, but this \
                 dataset does not read it)"
            ),
            None => {
                format!("the {count} keys of {shards} shards, as they were when their keys were indexed,")
            }
        };
        Err(Error::from(ErrorKind::NoSuchKey { searched }).with_key(key))
    }

    /// Checks that the key index was built from the same version of a shard as the dataset reads. `number` is
    /// the number of the shard in the list.
    fn check_current(&self, keys: &KeyIndex, number: usize) -> Result<()> {
        let Some(url) = self.0.shards.list.get(number) else { return Ok(()) };
        let planned = self.0.shards.numbers.planned(number);
        let now = match planned.and_then(|planned| self.indexed(planned)) {
            Some(index) => index.object_at(url.expose_secret()),
            None => self.store().stat(url.expose_secret())?,
        };
        let known = keys.index().get(url.expose_secret());
        check_object(known.ok_or_else(|| outdated("does not know this shard", url))?, url, &now)
    }

    /// A view of the samples by number, like a list. Needs an [index](super::DatasetBuilder::index).
    ///
    /// # Errors
    /// [`ErrorKind::Config`] without an index.
    pub fn indexed_view(&self) -> Result<IndexedDataset> {
        let Some(counts) = self.0.plan.counts() else {
            let what = "numbers of samples need an index: give the dataset one (`index`, `auto_index`)";
            return Err(ErrorKind::Config(what.into()).into());
        };
        let mut sum = 0u64;
        let starts = std::iter::once(0).chain(counts.iter().map(|count| {
            sum = sum.saturating_add(*count);
            sum
        }));
        Ok(IndexedDataset { starts: starts.collect(), dataset: self.clone(), epoch: 0 })
    }

    /// The position of a sample that has the number `number` in shard `shard` of the key index. `None` if the
    /// dataset does not read the sample.
    fn keyed_position(&self, keys: &KeyIndex, shard: usize, number: u64) -> Result<Option<Position>> {
        let Some(known) = keys.index().at(shard) else {
            return Err(ErrorKind::Config("the key index has no such shard".into()).into());
        };
        let is_known = |url: &SecretUrl| {
            keys.index().get(url.expose_secret()).is_some_and(|found| found.url() == known.url())
        };
        let list = &self.0.shards.list;
        // Usually the key index and the dataset have the same list of shards, so the shard's number in the
        // key index is tried first.
        let numbers = std::iter::once(shard).chain(0..list.len());
        let mut numbers = numbers.filter(|number| list.get(*number).is_some_and(is_known));
        let read = numbers.find_map(|here| Some((here, self.0.shards.numbers.planned(here)?)));
        let Some((here, planned)) = read else { return Ok(None) };
        if self.0.shards.index.is_some() {
            self.check_current(keys, here)?;
        }
        let sample = known.position_of(number).unwrap_or(number);
        let is_read = self.indexed(planned).is_none_or(|index| index.number_of(sample).is_some());
        Ok(is_read.then(|| Position { shard: here as u64, sample, ..Position::default() }))
    }

    /// The shard of the plan that has the sample at this position, and the sample's number there.
    fn planned_sample_at(&self, position: Position) -> Result<PlannedSample> {
        let config = |what: String| Error::from(ErrorKind::Config(what));
        let Position { shard, sample, .. } = position;
        let planned = usize::try_from(shard).ok().and_then(|shard| self.0.shards.numbers.planned(shard));
        let planned = planned.ok_or_else(|| config(format!("the dataset reads no shard {shard}")))?;
        let number = match self.indexed(planned) {
            Some(index) => index.number_of(sample),
            None => Some(sample),
        };
        let number = number.filter(|number| *number < u64::MAX - 1).ok_or_else(|| {
            let error = config(format!("there is no sample {sample} in this shard, counted from 0"));
            match self.shard(planned) {
                Ok((_, url)) => error.in_shard(url),
                Err(_) => error,
            }
        })?;
        Ok((planned, number))
    }

    fn read_planned(&self, sample: PlannedSample, position: Position) -> Result<Sample> {
        let mut found = None;
        self.read_planned_samples(&[sample], position, |_, sample| found = Some(sample))?;
        found.ok_or_else(|| ErrorKind::Stopped.into())
    }

    /// Reads the samples `planned`, which are sorted and distinct, and passes each to `take` with its index
    /// in `planned`. Samples that are near each other are read as one range. The samples get the epoch and
    /// the dataset of `position`.
    fn read_planned_samples(
        &self,
        planned: &[PlannedSample],
        position: Position,
        mut take: impl FnMut(usize, Sample),
    ) -> Result<()> {
        let Position { epoch, dataset, .. } = position;
        let near = |one: &PlannedSample, next: &PlannedSample| {
            one.0 == next.0 && self.is_near(one.0, one.1 + 1..next.1)
        };
        let runs: Vec<&[PlannedSample]> = planned.chunk_by(near).collect();
        let slice = |run: &&[PlannedSample]| {
            let ((shard, first), (_, last)) = (run.first()?, run.last()?);
            Some(Slice { shard: *shard, samples: *first..last + 1 })
        };
        let shards = Arc::clone(&self.0.shards);
        let slices = runs.iter().filter_map(slice).collect();
        let reader = ShardReader::new(shards, &self.0.sides, epoch, slices, &Versions::default());
        let mut reader = reader.of_dataset(dataset).scattered();
        let mut taken = 0;
        for (number, run) in runs.into_iter().enumerate() {
            for &(shard, selected) in run {
                let position =
                    self.indexed(shard).and_then(|index| index.position_of(selected)).unwrap_or(selected);
                loop {
                    let sample = match reader.next() {
                        Some(Ok(sample)) if reader.slice() == number => sample,
                        Some(Err(error)) => return Err(error),
                        _ => return Err(self.missing(shard)),
                    };
                    if sample.position().sample == position {
                        take(taken, sample);
                        taken += 1;
                        break;
                    }
                }
            }
            reader.give_up();
        }
        Ok(())
    }

    /// The error for a sample that was skipped because a side lacks it.
    fn missing(&self, planned: usize) -> Error {
        let error = Error::from(ErrorKind::MissingSample { damaged: false });
        match self.shard(planned) {
            Ok((_, url)) => error.in_shard(url),
            Err(error) => error,
        }
    }

    /// Whether two requested samples are so near each other that both are read as one range, together with
    /// the samples `between` them.
    fn is_near(&self, planned: usize, between: std::ops::Range<u64>) -> bool {
        let Ok((_, url)) = self.shard(planned) else { return false };
        let gap = if ObjectUrl::from(url).is_local() { LOCAL_GAP } else { GAP };
        let bytes = self.indexed(planned).and_then(|index| index.range(between));
        // Without offsets, the shard is always read from its beginning.
        bytes.is_none_or(|bytes| bytes.end - bytes.start < gap)
    }
}

/// The samples of a [`Dataset`] by number, like a list. The samples are numbered in the order of the shard
/// list, even if the dataset shuffles its shards. Cheap to clone, and may be used on several threads.
///
/// ```
/// use shardstream::prelude::*;
///
/// let shards = ShardList::expand("docs/data/digits-{000000..000003}.tar")?;
/// let index = Index::builder().build(&shards)?;
/// let samples = Dataset::builder(shards).index(index).build()?.indexed_view()?;
/// assert_eq!((samples.len(), samples.get(7)?.key()), (40, "000007"));
/// let some = samples.get_many(&[9, 2, 3])?; // two requests
/// assert!(some.iter().map(Sample::key).eq(["000009", "000002", "000003"]));
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone)]
#[doc(alias = "ShardListDataset")]
#[doc(alias = "wids")]
pub struct IndexedDataset {
    dataset: Dataset,
    /// The number of samples before each shard, and last the number of all samples.
    starts: Arc<[u64]>,
    epoch: u64,
}

impl IndexedDataset {
    /// The same samples with the [random numbers](Sample::rng) of this epoch. Default: 0.
    #[must_use]
    pub fn of_epoch(self, epoch: u64) -> Self {
        IndexedDataset { epoch, ..self }
    }

    /// The number of samples.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.starts.last().copied().unwrap_or_default()
    }

    /// Whether the dataset has no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The dataset.
    #[must_use]
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// The position of the sample with this number; `None` if the dataset has no such sample.
    #[must_use]
    pub fn position(&self, number: u64) -> Option<Position> {
        let (planned, number) = self.planned_sample(number).ok()?;
        let (shard, _) = self.dataset.shard(planned).ok()?;
        let sample = self.dataset.indexed(planned)?.position_of(number)?;
        Some(Position { epoch: self.epoch, shard: shard as u64, sample, ..Position::default() })
    }

    /// Reads the sample with this number. Blocks.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the dataset has no such sample, and the errors of [`Dataset::sample`].
    pub fn get(&self, number: u64) -> Result<Sample> {
        let position = Position { epoch: self.epoch, ..Position::default() };
        self.dataset.read_planned(self.planned_sample(number)?, position)
    }

    /// Reads the samples with these numbers, and returns them in this order. Blocks. Samples that are near
    /// each other in a shard are read by one request, and many requests are sent concurrently.
    ///
    /// # Errors
    /// The error of [`get`](IndexedDataset::get) for one of the samples.
    pub fn get_many(&self, numbers: &[u64]) -> Result<Vec<Sample>> {
        let requested = numbers
            .iter()
            .map(|number| self.planned_sample(*number))
            .collect::<Result<Vec<PlannedSample>>>()?;
        let mut planned = requested.clone();
        planned.sort_unstable();
        planned.dedup();
        let position = Position { epoch: self.epoch, ..Position::default() };
        let mut samples = Vec::with_capacity(planned.len());
        match self.dataset.read_planned_samples(&planned, position, |_, sample| samples.push(sample)) {
            Ok(()) => {}
            // The damage may be in a sample between two requested samples, so each sample is read alone.
            Err(error) if error.kind().failure_class() == Some(FailureClass::Damage) => {
                return numbers.iter().map(|number| self.get(*number)).collect();
            }
            Err(error) => return Err(error),
        }
        let sample = |one: &PlannedSample| samples.get(planned.binary_search(one).ok()?).cloned();
        requested.iter().map(|one| sample(one).ok_or_else(|| ErrorKind::Stopped.into())).collect()
    }

    /// The shard of the plan that has the sample with this number, and the sample's number there.
    fn planned_sample(&self, number: u64) -> Result<PlannedSample> {
        if number >= self.len() {
            let what = format!("there is no sample {number}: the dataset has {}, counted from 0", self.len());
            return Err(ErrorKind::Config(what).into());
        }
        let shard = self.starts.partition_point(|start| *start <= number).saturating_sub(1);
        Ok((shard, number - self.starts.get(shard).copied().unwrap_or_default()))
    }
}
