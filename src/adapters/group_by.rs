//! `GroupBy`: collects items with the same key into groups.

use super::{Partial, SavedStage, Stage};
use crate::{ErrorKind, Result};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;

/// Default of [`GroupBy::max_waiting`].
const MAX_WAITING: usize = 1000;

/// A [`Stage`] that groups items with the same key, such as `size` samples of one class, speaker or customer.
/// A group is returned when it is full.
///
/// Items of groups that are not full wait in memory: at most [`max_waiting`](GroupBy::max_waiting) items. If
/// more items would wait, the oldest groups are returned although they are not full. At the end, all
/// remaining groups are returned, the oldest first. With [`Partial::Drop`](GroupBy::partial), groups that are
/// not full are dropped instead.
///
/// ```
/// use shardstream::adapters::{GroupBy, IteratorExt};
///
/// let words = ["ant", "bee", "ape", "bat", "cat"].into_iter().map(Ok).pipeline();
/// let pairs = words.stage("pairs", || GroupBy::new(2, |word: &&str| Ok(word.chars().next())));
/// let pairs: Vec<_> = pairs.collect::<shardstream::Result<_>>()?;
/// assert_eq!(pairs, [vec!["ant", "ape"], vec!["bee", "bat"], vec!["cat"]]);
/// # Ok::<(), shardstream::Error>(())
/// ```
///
/// In a loader, use [`LoaderBuilder::group_by`](crate::loader::LoaderBuilder::group_by). Each logical stream
/// has its own stage, so the items of a group come from one stream. After a restore, reading begins at the
/// oldest item that was waiting when the state was saved.
#[must_use = "a stage does nothing until it is driven"]
pub struct GroupBy<T, K, F> {
    size: usize,
    key: F,
    max_waiting: usize,
    partial: Partial,
    adjacent: bool,
    /// The waiting groups. Each item has its number in the input.
    groups: HashMap<K, Vec<(u64, T)>>,
    /// The number of each group's first item and the group's key, the oldest group first. Entries of groups
    /// that were already returned may remain.
    order: VecDeque<(u64, K)>,
    /// The numbers of all waiting items.
    waiting: BTreeSet<u64>,
    /// The keys of complete groups, which are returned next.
    ended: VecDeque<K>,
    /// The key of the last pushed item.
    last: Option<K>,
    /// Number of pushed items.
    pushed: u64,
    /// After a restore, the number of items that are pushed again.
    replayed: u64,
    /// After a restore, the numbers of the items that were waiting when the state was saved.
    replayed_waiting: BTreeSet<u64>,
}

impl<T, K, F> GroupBy<T, K, F>
where
    K: Eq + Hash + Clone,
    F: Fn(&T) -> Result<K>,
{
    /// Groups items by `key`, `size` items at a time. `key` must always return the same key for the same
    /// item.
    pub fn new(size: usize, key: F) -> Self {
        GroupBy {
            size,
            key,
            max_waiting: MAX_WAITING,
            partial: Partial::Keep,
            adjacent: false,
            groups: HashMap::new(),
            order: VecDeque::new(),
            waiting: BTreeSet::new(),
            ended: VecDeque::new(),
            last: None,
            pushed: 0,
            replayed: 0,
            replayed_waiting: BTreeSet::new(),
        }
    }

    /// Sets the largest number of waiting items. Default: 1000.
    ///
    /// ```
    /// use shardstream::adapters::{GroupBy, IteratorExt};
    ///
    /// let words = ["ant", "bee", "cat", "ape"].into_iter().map(Ok).pipeline();
    /// let first = |word: &&str| Ok(word.chars().next());
    /// let pairs = words.stage("pairs", || GroupBy::new(2, first).max_waiting(2));
    /// let pairs = pairs.collect::<shardstream::Result<Vec<_>>>()?;
    /// assert_eq!(pairs, [["ant"], ["bee"], ["cat"], ["ape"]]); // "ant" did not wait for "ape"
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn max_waiting(self, items: usize) -> Self {
        GroupBy { max_waiting: items, ..self }
    }

    /// Sets whether groups that do not fill up are returned or dropped. Default: [`Partial::Keep`].
    ///
    /// ```
    /// use shardstream::adapters::{GroupBy, IteratorExt, Partial};
    ///
    /// let group_by = GroupBy::new(2, |n: &u32| Ok(n % 2)).partial(Partial::Drop);
    /// let pairs = [1, 2, 3].into_iter().map(Ok).pipeline().stage("pairs", || group_by);
    /// assert_eq!(pairs.collect::<shardstream::Result<Vec<_>>>()?, [[1, 3]]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn partial(self, partial: Partial) -> Self {
        GroupBy { partial, ..self }
    }

    /// Also ends a group when an item with another key follows it. Use this if the items of each group are
    /// adjacent in the input, such as the pieces of one video in a shard. Do not shuffle such items before
    /// they are grouped.
    ///
    /// ```
    /// use shardstream::adapters::{GroupBy, IteratorExt};
    ///
    /// let numbers = [1, 1, 2, 1].into_iter().map(Ok).pipeline();
    /// let runs = numbers.stage("runs", || GroupBy::new(9, |n: &u32| Ok(*n)).adjacent());
    /// assert_eq!(runs.collect::<shardstream::Result<Vec<_>>>()?, [vec![1, 1], vec![2], vec![1]]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn adjacent(self) -> Self {
        GroupBy { adjacent: true, ..self }
    }

    /// Removes a group and returns it. Returns `None` if the group is not full and the option is
    /// [`Partial::Drop`].
    fn take(&mut self, key: &K) -> Option<Vec<T>> {
        let group = self.groups.remove(key)?;
        for (number, _) in &group {
            self.waiting.remove(number);
        }
        let is_kept = group.len() >= self.size || self.partial == Partial::Keep;
        is_kept.then(|| group.into_iter().map(|(_, item)| item).collect())
    }

    /// The key of the oldest group.
    fn oldest(&mut self) -> Option<K> {
        while let Some((first, key)) = self.order.pop_front() {
            let group = self.groups.get(&key).and_then(|group| group.first());
            if group.is_some_and(|(number, _)| *number == first) {
                return Some(key);
            }
        }
        None
    }
}

impl<T, K, F> Stage<T> for GroupBy<T, K, F>
where
    K: Eq + Hash + Clone,
    F: Fn(&T) -> Result<K>,
{
    type Out = Vec<T>;

    fn push(&mut self, item: T) -> Option<Result<Vec<T>>> {
        let number = self.pushed;
        self.pushed += 1;
        if number < self.replayed && !self.replayed_waiting.remove(&number) {
            return None;
        }
        let key = match (self.key)(&item) {
            Ok(key) => key,
            Err(error) => return Some(Err(error)),
        };
        if let Some(last) = self.last.replace(key.clone()).filter(|last| self.adjacent && *last != key) {
            self.ended.push_back(last);
        }
        let group = self.groups.entry(key.clone()).or_default();
        if group.is_empty() {
            self.order.push_back((number, key.clone()));
        }
        group.push((number, item));
        let full = group.len() >= self.size;
        self.waiting.insert(number);
        if self.order.len() > 2 * self.groups.len() + 64 {
            // Remove entries of groups that were already returned.
            let groups = &self.groups;
            self.order.retain(|(number, key)| {
                let first = groups.get(key).and_then(|group| group.first());
                first.is_some_and(|(at, _)| at == number)
            });
        }
        if full {
            self.ended.push_back(key);
        }
        self.pull()
    }

    fn pull(&mut self) -> Option<Result<Vec<T>>> {
        loop {
            let key = match self.ended.pop_front() {
                Some(key) => key,
                None if self.waiting.len() > self.max_waiting => self.oldest()?,
                None => return None,
            };
            if let Some(group) = self.take(&key) {
                return Some(Ok(group));
            }
        }
    }

    fn drain(&mut self) -> Option<Result<Vec<T>>> {
        loop {
            let key = self.oldest()?;
            if let Some(group) = self.take(&key) {
                return Some(Ok(group));
            }
        }
    }

    fn save(&self) -> Option<SavedStage> {
        let first = self.waiting.first().copied().unwrap_or(self.pushed);
        let numbers = self.waiting.iter().map(|number| number - first).collect();
        Some(SavedStage { inputs: self.pushed - first, numbers })
    }

    fn restore(&mut self, saved: &SavedStage) -> Result<()> {
        self.replayed = saved.inputs;
        self.replayed_waiting = saved.numbers.iter().copied().collect();
        if self.replayed_waiting.last().is_some_and(|last| *last >= saved.inputs) {
            let what = "items of groups were saved with impossible numbers";
            return Err(ErrorKind::State(what.into()).into());
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let bad = |what: &str| Err(ErrorKind::Config(what.into()).into());
        match (self.size, self.max_waiting) {
            (0, _) => bad("groups of 0 items: the size must be at least 1"),
            (_, 0) => bad("`max_waiting` of 0: no item could wait for its group, make it at least 1"),
            _ => Ok(()),
        }
    }
}

impl<T, K, F> fmt::Debug for GroupBy<T, K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupBy")
            .field("size", &self.size)
            .field("max_waiting", &self.max_waiting)
            .field("partial", &self.partial)
            .field("adjacent", &self.adjacent)
            .field("waiting", &self.waiting.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::adapters::IteratorExt;
    use proptest::prelude::*;

    type Key = fn(&(u64, u64)) -> Result<u64>;

    /// The first number is the key; 9 is an error.
    fn key(item: &(u64, u64)) -> Result<u64> {
        if item.0 == 9 { Err(Error::step("no key")) } else { Ok(item.0) }
    }

    fn stage(size: usize, most: usize, partial: Partial, adjacent: bool) -> GroupBy<(u64, u64), u64, Key> {
        let stage = GroupBy::new(size, key as Key).max_waiting(most).partial(partial);
        if adjacent { stage.adjacent() } else { stage }
    }

    fn groups(keys: &[u64], stage: GroupBy<(u64, u64), u64, Key>) -> Vec<Option<Vec<u64>>> {
        let items = keys.iter().copied().zip(0..).map(Ok).pipeline().stage("groups", || stage).results();
        items.map(|group| Some(group.ok()?.into_iter().map(|(_, number)| number).collect())).collect()
    }

    #[test]
    fn items_with_the_same_key_are_grouped() {
        let keep = |size, most| stage(size, most, Partial::Keep, false);
        let found = groups(&[1, 2, 9, 1, 3, 2, 1], keep(2, 10));
        assert_eq!(found, [None, Some(vec![0, 3]), Some(vec![1, 5]), Some(vec![4]), Some(vec![6])]);
        let found = groups(&[1, 2, 3, 1, 1], keep(3, 2));
        assert_eq!(found, [vec![0], vec![1], vec![2], vec![3, 4]].map(Some));
        let found = groups(&[1, 2, 1, 3], stage(2, 10, Partial::Drop, false));
        assert_eq!(found, [Some(vec![0, 2])]);
        let found = groups(&[1, 1, 2, 2, 2, 2, 1], stage(3, 10, Partial::Keep, true));
        assert_eq!(found, [vec![0, 1], vec![2, 3, 4], vec![5], vec![6]].map(Some));
        assert_eq!(
            groups(&[5, 5, 6], stage(1, 1, Partial::Keep, true)),
            [vec![0], vec![1], vec![2]].map(Some)
        );
    }

    #[test]
    fn options_that_make_no_sense_are_errors() {
        for stage in [stage(0, 1, Partial::Keep, false), stage(1, 0, Partial::Keep, false)] {
            assert!(matches!(stage.check().unwrap_err().kind(), ErrorKind::Config(_)));
        }
        let saved = SavedStage { inputs: 2, numbers: vec![2] };
        assert!(stage(1, 1, Partial::Keep, false).restore(&saved).is_err());
    }

    proptest! {
        /// After each returned group, saves the state and restores a new stage from it. The new stage gets
        /// the last `inputs` inputs again, then the rest.
        #[test]
        fn a_restored_stage_returns_the_remaining_groups(
            keys in prop::collection::vec(prop_oneof![0u64..5, Just(9)], 0..60),
            size in 1usize..5,
            most in 1usize..12,
            keep: bool,
            adjacent: bool,
        ) {
            let partial = if keep { Partial::Keep } else { Partial::Drop };
            let whole = groups(&keys, stage(size, most, partial, adjacent));
            let mut first = stage(size, most, partial, adjacent);
            let mut given = 0;
            for (number, key) in keys.iter().enumerate() {
                let mut group = first.push((*key, number as u64));
                while let Some(found) = group {
                    given += 1;
                    if found.is_ok() {
                        let saved = first.save().unwrap();
                        prop_assert!(saved.numbers.len() <= most + 1);
                        let mut resumed = stage(size, most, partial, adjacent);
                        resumed.restore(&saved).unwrap();
                        let begin = number + 1 - saved.inputs as usize;
                        let rest = keys.iter().copied().zip(0..).skip(begin).map(Ok).pipeline();
                        let rest = rest.stage("groups", || resumed).results();
                        let numbers = |group: Vec<(u64, u64)>| group.into_iter().map(|(_, at)| at).collect();
                        let rest = rest.map(|group| Some(numbers(group.ok()?)));
                        prop_assert_eq!(rest.collect::<Vec<Option<Vec<u64>>>>(), &whole[given..]);
                    }
                    group = first.pull();
                }
            }
            let mut all: Vec<u64> = whole.into_iter().flatten().flatten().collect();
            all.sort_unstable();
            if keep {
                let keyed = (0..keys.len() as u64).filter(|at| keys[*at as usize] != 9);
                prop_assert!(all.into_iter().eq(keyed));
            } else {
                prop_assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
            }
        }
    }
}
