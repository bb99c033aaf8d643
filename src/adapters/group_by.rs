//! `GroupBy`: several items of one key at a time.

use super::{Partial, SavedStage, Stage};
use crate::{ErrorKind, Result};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;

/// How many items wait at most, unless it is said.
const MOST: usize = 1000;

/// A [`Stage`] that collects items of the same key: `size` samples of one class, of one speaker, of one
/// customer. A group comes out when it is full.
///
/// Items that wait for others of their key are held in memory, at most [`most`](GroupBy::most) of them. When
/// there are more, and at the end, groups come out that are not full, the one that has waited longest first;
/// or they are dropped, as [`partial`](GroupBy::partial) says.
///
/// ```
/// use shardstream::adapters::{GroupBy, IteratorExt};
///
/// let words = ["ant", "bee", "ape", "bat", "cat"].into_iter().map(Ok);
/// let pairs = words.stage(GroupBy::new(2, |word: &&str| Ok(word.chars().next())));
/// let pairs: Vec<_> = pairs.collect::<shardstream::Result<_>>()?;
/// assert_eq!(pairs, [vec!["ant", "ape"], vec!["bee", "bat"], vec!["cat"]]);
/// # Ok::<_, shardstream::Error>(())
/// ```
///
/// In a loader, [`LoaderBuilder::group_by`](crate::loader::LoaderBuilder::group_by) gives each logical stream
/// one of them: what is grouped is of one stream. A restore reads back to the oldest item that waits.
#[must_use = "a stage does nothing until it is driven"]
pub struct GroupBy<T, K, F> {
    size: usize,
    key: F,
    most: usize,
    partial: Partial,
    adjacent: bool,
    /// Groups that wait, their items with their numbers.
    groups: HashMap<K, Vec<(u64, T)>>,
    /// The keys of groups, in the order in which they began, with the number of their first item; some have
    /// come out since.
    order: VecDeque<(u64, K)>,
    /// The numbers of all items that wait.
    held: BTreeSet<u64>,
    /// The keys of groups that have ended, and come out next.
    ended: VecDeque<K>,
    /// The key of the last item.
    last: Option<K>,
    pushed: u64,
    /// How many items are pushed again after a restore, and the numbers of those that wait.
    again: u64,
    wanted: BTreeSet<u64>,
}

impl<T, K, F> GroupBy<T, K, F>
where
    K: Eq + Hash + Clone,
    F: Fn(&T) -> Result<K>,
{
    /// Groups of `size` items for which `key` gives the same. It must give the same for the same item always.
    pub fn new(size: usize, key: F) -> Self {
        GroupBy {
            size,
            key,
            most: MOST,
            partial: Partial::Keep,
            adjacent: false,
            groups: HashMap::new(),
            order: VecDeque::new(),
            held: BTreeSet::new(),
            ended: VecDeque::new(),
            last: None,
            pushed: 0,
            again: 0,
            wanted: BTreeSet::new(),
        }
    }

    /// How many items wait at most. Default: 1000.
    pub fn most(self, items: usize) -> Self {
        GroupBy { most: items, ..self }
    }

    /// Whether groups that don't fill up are kept or dropped. Default: they come out with fewer items.
    pub fn partial(self, partial: Partial) -> Self {
        GroupBy { partial, ..self }
    }

    /// Ends a group also where the next item has another key: for items that follow each other, as the pieces
    /// of one video do in their shard. Do not shuffle such items before.
    pub fn adjacent(self) -> Self {
        GroupBy { adjacent: true, ..self }
    }

    /// Takes a group out: none where it is not full and is to be dropped.
    fn take(&mut self, key: &K) -> Option<Vec<T>> {
        let group = self.groups.remove(key)?;
        for (number, _) in &group {
            self.held.remove(number);
        }
        let whole = group.len() >= self.size || self.partial == Partial::Keep;
        whole.then(|| group.into_iter().map(|(_, item)| item).collect())
    }

    /// The group that has waited longest.
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
        if number < self.again && !self.wanted.remove(&number) {
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
        self.held.insert(number);
        if self.order.len() > 2 * self.groups.len() + 64 {
            // Those that have come out leave their keys behind.
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
                None if self.held.len() > self.most => self.oldest()?,
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

    fn is_fresh(&self) -> bool {
        self.held.is_empty()
    }

    fn save(&self) -> Option<SavedStage> {
        let first = self.held.first().copied().unwrap_or(self.pushed);
        let numbers = self.held.iter().map(|number| number - first).collect();
        Some(SavedStage { inputs: self.pushed - first, numbers })
    }

    fn restore(&mut self, saved: &SavedStage) -> Result<()> {
        self.again = saved.inputs;
        self.wanted = saved.numbers.iter().copied().collect();
        if self.wanted.last().is_some_and(|last| *last >= saved.inputs) {
            let what = "items of groups were saved with numbers that there are not";
            return Err(ErrorKind::State(what.into()).into());
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let bad = |what: &str| Err(ErrorKind::Config(what.into()).into());
        match (self.size, self.most) {
            (0, _) => bad("groups of 0 items: the size must be at least 1"),
            (_, 0) => bad("no item may wait for its group: let `most` be at least 1"),
            _ => Ok(()),
        }
    }
}

impl<T, K, F> fmt::Debug for GroupBy<T, K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupBy")
            .field("size", &self.size)
            .field("most", &self.most)
            .field("partial", &self.partial)
            .field("adjacent", &self.adjacent)
            .field("waiting", &self.held.len())
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

    /// The first number is the key; 9 has none.
    fn key(item: &(u64, u64)) -> Result<u64> {
        if item.0 == 9 { Err(Error::step("no key")) } else { Ok(item.0) }
    }

    fn stage(size: usize, most: usize, partial: Partial, adjacent: bool) -> GroupBy<(u64, u64), u64, Key> {
        let stage = GroupBy::new(size, key as Key).most(most).partial(partial);
        if adjacent { stage.adjacent() } else { stage }
    }

    fn groups(keys: &[u64], stage: GroupBy<(u64, u64), u64, Key>) -> Vec<Option<Vec<u64>>> {
        let items = keys.iter().copied().zip(0..).map(Ok).stage(stage);
        items.map(|group| Some(group.ok()?.into_iter().map(|(_, number)| number).collect())).collect()
    }

    #[test]
    fn items_of_a_key_come_together() {
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
        /// Behind every group, a new stage continues with the items that the old one asks for.
        #[test]
        fn it_resumes_anywhere(
            keys in prop::collection::vec(prop_oneof![0u64..5, Just(9)], 0..60), size in 1usize..5, most in 1usize..12,
            keep: bool, adjacent: bool,
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
                        let rest = keys.iter().copied().zip(0..).skip(begin).map(Ok).stage(resumed);
                        let rest = rest.map(|group| Some(group.ok()?.into_iter().map(|(_, at)| at).collect()));
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
