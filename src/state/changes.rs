//! Restores a state with another mixture: decides which datasets continue, and which datasets start again.

use super::{Digest, EpochRange, JobHeader, RunEnd, State, StreamState, misfit};
use crate::error::Result;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// The changes that [`Loader::restore_changed`](crate::Loader::restore_changed) accepts when it restores a
/// state with another mixture.
///
/// Weights, their schedule and the order of the datasets may always change. A dataset that is added, removed
/// or restarted must be named here, by the name that was set by
/// [`LoaderBuilder::name`](crate::loader::LoaderBuilder::name). A dataset without a name is named by its
/// number in the mix, from 0, such as `"1"`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "changes do nothing until they are passed to `Loader::restore_changed`"]
pub struct Changes {
    added: BTreeSet<String>,
    removed: BTreeSet<String>,
    restarted: BTreeSet<String>,
}

impl Changes {
    /// Allows only the weights, their schedule and the order of the datasets to change.
    pub fn new() -> Self {
        Changes::default()
    }

    /// Allows the loader to have a new dataset. The new dataset begins with its first epoch.
    pub fn added(mut self, dataset: impl Into<String>) -> Self {
        self.added.insert(dataset.into());
        self
    }

    /// Allows the loader to lack a dataset that the state has.
    pub fn removed(mut self, dataset: impl Into<String>) -> Self {
        self.removed.insert(dataset.into());
        self
    }

    /// Allows a change of a dataset that is in both the state and the loader. Its shards, index, seed, order,
    /// shuffle buffer or stages may change. The rest of the dataset's current epoch is not read. The dataset
    /// starts again with its next epoch, which has another order. So some samples are read again sooner than
    /// without the change, and other samples later.
    pub fn restarted(mut self, dataset: impl Into<String>) -> Self {
        self.restarted.insert(dataset.into());
        self
    }
}

/// What happened to each dataset in a [restore with another mixture](crate::Loader::restore_changed).
/// `Display` shows one line for each dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeReport {
    /// The first item from the new mixture: its number in the job, counted from 0.
    pub from: u64,
    /// The datasets of the loader in their order, followed by the removed datasets.
    pub datasets: Vec<DatasetChange>,
    /// The weights of the state's datasets before the change.
    pub weights_before: Vec<u32>,
    /// The weights of the loader's datasets after the change. A schedule may change them later.
    pub weights: Vec<u32>,
    /// Whether the mixture has changed. If so, each stream starts a new window at item `from`. In a window,
    /// each dataset has as many items as its weight.
    pub windows_anew: bool,
}

/// What happened to one dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatasetChange {
    /// The dataset's name, or its number as text.
    pub name: String,
    /// The dataset's number among the datasets of the state, from 0.
    pub before: Option<usize>,
    /// The dataset's number among the datasets of the loader, from 0.
    pub number: Option<usize>,
    /// Number of the dataset's items that were consumed before the change, by all ranks together.
    pub taken: u64,
    /// How the dataset continues.
    pub outcome: Outcome,
}

/// How a dataset continues in another mixture.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The dataset continues with its next sample: no sample of its epoch is repeated or left out.
    Continues,
    /// The dataset is new.
    Added {
        /// The dataset's first epoch.
        epoch: u64,
    },
    /// The dataset has changed and starts again.
    Restarted {
        /// The epoch with which the dataset starts again.
        epoch: u64,
        /// A description of the change.
        difference: String,
    },
    /// The dataset is no longer read.
    Removed,
}

impl fmt::Display for ChangeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "from item {} of the job on:", self.from)?;
        for dataset in &self.datasets {
            let DatasetChange { name, taken, .. } = dataset;
            match &dataset.outcome {
                Outcome::Continues => writeln!(f, "{name} continues after {taken} items")?,
                Outcome::Added { epoch } => writeln!(f, "{name} is new, and begins with epoch {epoch}")?,
                Outcome::Restarted { epoch, difference } => {
                    writeln!(f, "{name} starts again with epoch {epoch} after {taken} items: {difference}")?;
                }
                Outcome::Removed => writeln!(f, "{name} is removed after {taken} items")?,
            }
        }
        match self.windows_anew {
            true => write!(f, "weights {:?} instead of {:?}", self.weights, self.weights_before),
            false => write!(f, "the mixture is unchanged"),
        }
    }
}

impl JobHeader {
    /// The name of a dataset, or its number as text.
    fn name(&self, dataset: usize) -> String {
        let name = self.datasets.get(dataset).and_then(|dataset| dataset.name.clone());
        name.unwrap_or_else(|| dataset.to_string())
    }

    /// Compares a dataset of this job with dataset `number` of the job `here`. Describes the first difference
    /// that changes the order of samples; `None` if the order is the same.
    fn dataset_difference(&self, dataset: usize, here: &JobHeader, number: usize) -> Option<String> {
        let there = self.datasets.get(dataset)?;
        let here = here.datasets.get(number)?;
        // The order does not depend on the weight. In an endless run, it does not depend on the number of
        // passes either.
        let mut compared = there.clone();
        (compared.weight, compared.begins, compared.number) = (here.weight, here.begins, here.number);
        if matches!(self.run, EpochRange::EpochsFrom(_)) {
            compared.repeats = here.repeats;
        }
        compared.difference(here)
    }

    /// Sets the `number` of each dataset. A dataset that was in the job `there` keeps the number that it had
    /// there. A new dataset gets a number that no other dataset has.
    fn keep_numbers(&mut self, there: &JobHeader, matches: &[Option<usize>]) {
        let kept: Vec<Option<u64>> =
            matches.iter().map(|before| before.map(|before| there.number(before))).collect();
        let mut used: BTreeSet<u64> = kept.iter().flatten().copied().collect();
        for (dataset, kept) in self.datasets.iter_mut().zip(kept) {
            let free = || std::iter::once(dataset.number).chain(0..).find(|number| !used.contains(number));
            dataset.number = kept.or_else(free).unwrap_or_default();
            used.insert(dataset.number);
        }
    }

    /// The weights of the datasets at item `item` of the job.
    fn weights_at(&self, item: u64) -> Vec<u32> {
        let past = self.schedule.iter().take_while(|change| change.from <= item).last();
        let first = || self.datasets.iter().map(|dataset| dataset.weight).collect();
        past.map_or_else(first, |change| change.weights.clone())
    }

    /// For each dataset of the job `here`, the number of the same dataset in this job. A changed dataset is
    /// still the same dataset.
    ///
    /// Datasets are the same if they have the same name. If one of two datasets has no name, they are the
    /// same dataset if they have the same content. If no dataset with the same content is found, a dataset is
    /// matched by its number.
    fn matches(&self, here: &JobHeader, changes: &Changes) -> Vec<Option<usize>> {
        let mut matches = vec![None; here.datasets.len()];
        let named = |header: &JobHeader, dataset: usize| header.datasets[dataset].name.is_some();
        let same_name = |there: usize, number: usize| {
            named(self, there) && named(here, number) && self.name(there) == here.name(number)
        };
        let one_nameless = |there: usize, number: usize| !named(self, there) || !named(here, number);
        let same_content = |there: usize, number: usize| {
            one_nameless(there, number) && self.dataset_difference(there, here, number).is_none()
        };
        let same_number = |there: usize, number: usize| one_nameless(there, number) && there == number;
        let rules: [&dyn Fn(usize, usize) -> bool; 3] = [&same_name, &same_content, &same_number];
        for rule in rules {
            for number in 0..here.datasets.len() {
                // If the caller named one of the two datasets as added and the other one as removed, they are
                // different datasets.
                let are_different = |there: usize| {
                    changes.added.contains(&here.name(number)) && changes.removed.contains(&self.name(there))
                };
                let mut free = (0..self.datasets.len()).filter(|there| !matches.contains(&Some(*there)));
                if matches[number].is_none() {
                    let same = free.find(|there| rule(*there, number) && !are_different(*there));
                    matches[number] = same;
                }
            }
        }
        matches
    }
}

impl State {
    /// Whether [`changed`](State::changed) can convert this state to a state of the job `here` if all changes
    /// are allowed.
    pub(crate) fn can_change(&self, here: &JobHeader) -> bool {
        let is_unchanged = |dataset: &DatasetChange| dataset.outcome == Outcome::Continues;
        let datasets = || self.outcomes(here, &self.header().matches(here, &Changes::new()));
        self.check_same_job(here).is_ok() && (self.is_endless() || datasets().iter().all(is_unchanged))
    }

    /// Refuses differences that no [`Changes`] can allow.
    fn check_same_job(&self, here: &JobHeader) -> Result<()> {
        let there = self.header();
        let job =
            |header: &JobHeader| JobHeader { datasets: Vec::new(), schedule: Vec::new(), ..header.clone() };
        if let Some(difference) = job(there).difference(&JobHeader { origin: there.origin, ..job(here) }) {
            return Err(misfit(format!(
                "{difference}; the number of streams and what is read cannot change: begin an epoch anew"
            )));
        }
        if !self.is_whole() {
            return Err(misfit(
                "it is of some ranks alone, and a mixture changes for all of them: merge the states of all \
                 ranks",
            ));
        }
        Ok(())
    }

    /// Converts this state of another job to a state of the job `here`.
    pub(crate) fn changed(&self, here: JobHeader, changes: &Changes) -> Result<(State, ChangeReport)> {
        self.check_same_job(&here)?;
        let there = self.header();
        let matches = there.matches(&here, changes);
        let datasets = self.outcomes(&here, &matches);
        self.check_allowed(&here, &datasets, changes)?;
        let anew = |dataset: &DatasetChange| dataset.outcome != Outcome::Continues;
        let from = self.next_number();
        let moved = matches.iter().enumerate().any(|(number, before)| *before != Some(number));
        let (weights, weights_before) = (here.weights_at(from), there.weights_at(from));
        let weighed = |header: &JobHeader| (header.schedule.clone(), header.weights_at(0));
        let windows_anew = moved || datasets.iter().any(anew) || weighed(there) != weighed(&here);
        let mut header = here;
        header.origin = if windows_anew { Some(from) } else { there.origin };
        for (number, dataset) in header.datasets.iter_mut().enumerate() {
            dataset.begins = match datasets[number].outcome {
                Outcome::Added { epoch } | Outcome::Restarted { epoch, .. } => {
                    epoch.saturating_sub(there.run.epoch())
                }
                _ => {
                    matches[number].and_then(|before| there.datasets.get(before)).map_or(0, |was| was.begins)
                }
            };
        }
        header.keep_numbers(there, &matches);
        let has_new_items = datasets.iter().any(|dataset| anew(dataset) && dataset.number.is_some());
        let streams = self.carried(&header, &matches, &datasets);
        let end = if has_new_items { RunEnd::Open } else { self.end };
        let state = State { header: Arc::new(header), streams, end, ..self.clone() };
        state.check().map_err(misfit)?;
        Ok((state, ChangeReport { from, datasets, weights_before, weights, windows_anew }))
    }

    /// What happens to each dataset of the job `here`, and to the removed datasets of the state.
    fn outcomes(&self, here: &JobHeader, matches: &[Option<usize>]) -> Vec<DatasetChange> {
        let (there, first) = (self.header(), self.header.run.epoch());
        let of = |dataset: usize| self.streams.iter().filter(move |at| at.dataset == dataset);
        let taken = |dataset| of(dataset).map(|at| at.digest.with_skipped()).fold(0, u64::saturating_add);
        let next = |dataset: usize| {
            // With a stateful stage, the cursor is before the last returned item, so it may be at the
            // beginning although the dataset has returned items.
            let has_begun =
                |at: &StreamState| at.cursor.pass > 0 || at.cursor.taken > 0 || at.digest.with_skipped() > 0;
            let begun = of(dataset).filter(|at| has_begun(at)).map(|at| &at.cursor);
            let passes = begun.map(|at| at.pass.max(at.given_pass) + 1).max().unwrap_or(0);
            let begins = there.datasets.get(dataset).map_or(0, |was| was.begins);
            first.saturating_add(begins).saturating_add(passes)
        };
        let of_loader = matches.iter().enumerate().map(|(number, before)| DatasetChange {
            name: here.name(number),
            before: *before,
            number: Some(number),
            taken: before.map_or(0, taken),
            outcome: match before {
                None => Outcome::Added { epoch: first },
                Some(before) => match there.dataset_difference(*before, here, number) {
                    None => Outcome::Continues,
                    Some(difference) => Outcome::Restarted { epoch: next(*before), difference },
                },
            },
        });
        let gone = (0..there.datasets.len()).filter(|before| !matches.contains(&Some(*before)));
        let gone = gone.map(|before| DatasetChange {
            name: there.name(before),
            before: Some(before),
            number: None,
            taken: taken(before),
            outcome: Outcome::Removed,
        });
        of_loader.chain(gone).collect()
    }

    /// Checks that all changes were allowed, and that all allowed changes were made.
    fn check_allowed(&self, here: &JobHeader, datasets: &[DatasetChange], changes: &Changes) -> Result<()> {
        let Changes { added, removed, restarted } = changes;
        let mut wrong = Vec::new();
        let mut made = [BTreeSet::new(), BTreeSet::new(), BTreeSet::new()];
        for DatasetChange { name, number, outcome, .. } in datasets {
            let (kind, allowed, call, what) = match outcome {
                Outcome::Continues => continue,
                Outcome::Added { .. } => {
                    let renamed = datasets.iter().find(|was| {
                        let same = was.before.zip(*number).is_some_and(|(before, number)| {
                            self.header.dataset_difference(before, here, number).is_none()
                        });
                        was.outcome == Outcome::Removed && same
                    });
                    let what = match renamed {
                        Some(was) => {
                            format!(
                                "is new, but equal to `{}` of the state: keep that name to continue it",
                                was.name
                            )
                        }
                        None => "is new".into(),
                    };
                    (0, added, "added", what)
                }
                Outcome::Removed => (1, removed, "removed", "of the state is not in the loader".into()),
                Outcome::Restarted { difference, .. } => {
                    (2, restarted, "restarted", format!("cannot continue ({difference})"))
                }
            };
            if !self.is_endless() {
                wrong.push(format!(
                    "dataset `{name}` {what}, and datasets change only where epochs have no end (`epochs`): \
                     finish the epoch, and read the next one with the other mixture"
                ));
            } else if !allowed.contains(name) {
                wrong.push(format!("dataset `{name}` {what}: allow it by `Changes::{call}(\"{name}\")`"));
            }
            made[kind].insert(name);
        }
        let names = |header: &JobHeader| {
            (0..header.datasets.len()).map(|number| header.name(number)).collect::<Vec<_>>()
        };
        for ((allowed, made), call) in
            [added, removed, restarted].into_iter().zip(&made).zip(["added", "removed", "restarted"])
        {
            for name in allowed.iter().filter(|name| !made.contains(name)) {
                let (there, here) = (names(&self.header).join(", "), names(here).join(", "));
                wrong.push(format!(
                    "`Changes::{call}(\"{name}\")` is not what has changed: the datasets of the state are \
                     {there}, and those of the loader {here}"
                ));
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(misfit(wrong.join("; "))) }
    }

    /// The states of all streams of the job `here`. A dataset that continues keeps the states of its streams.
    /// The digests of all other datasets are added to the first dataset's streams.
    fn carried(
        &self,
        here: &JobHeader,
        matches: &[Option<usize>],
        datasets: &[DatasetChange],
    ) -> Arc<[Arc<StreamState>]> {
        let continues = |number: usize| datasets[number].outcome == Outcome::Continues;
        let kept = |dataset: usize| {
            matches.iter().enumerate().any(|(number, before)| *before == Some(dataset) && continues(number))
        };
        let lost = |stream: usize| -> Digest {
            let lost = self.streams.iter().filter(|at| at.stream == stream && !kept(at.dataset));
            // Gaps are counted as skipped samples.
            let lost_items = |at: &Arc<StreamState>| {
                let mut digest = at.digest.merge(at.before);
                digest.pass_over(at.empty);
                digest
            };
            lost.map(lost_items).sum()
        };
        let all = (0..matches.len()).flat_map(|number| (0..here.streams).map(move |stream| (number, stream)));
        let carried = all.map(|(number, stream)| {
            let was = matches[number].filter(|_| continues(number)).and_then(|was| self.stream(was, stream));
            let mut at = was.map_or_else(|| StreamState::new(number, stream), |was| was.of_dataset(number));
            if number == 0 {
                at.before = at.before.merge(lost(stream));
            }
            Arc::new(at)
        });
        carried.collect()
    }
}
