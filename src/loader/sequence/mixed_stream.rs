//! `MixedStream`: mixes one stream of each dataset into one stream. All these streams have the same stream
//! number.

use super::SourceOutputs;
use crate::loader::event::LoaderEvent;
use crate::plan::DatasetOrder;

/// One logical stream of a job: a stream of a single dataset, or a mix of one stream of each dataset in
/// proportion to the weights.
#[derive(Debug, Clone)]
pub(in crate::loader) struct MixedStream {
    /// For each dataset, the number of its source, and whether the source has ended.
    sources: Vec<(usize, bool)>,
    order: DatasetOrder,
    /// Number of items and gaps that were taken. This is the index of the next item or gap.
    taken: u64,
    /// Number of times that all sources were repeated.
    repeats: u64,
    /// Whether there was an item since all sources were last repeated.
    had_item: bool,
}

impl MixedStream {
    /// Mixes one source of each dataset. Before a restore, `taken` items and gaps were taken, and all sources
    /// were repeated `repeats` times.
    pub(in crate::loader) fn new(sources: Vec<usize>, order: DatasetOrder, taken: u64, repeats: u64) -> Self {
        let sources = sources.into_iter().map(|source| (source, false)).collect();
        MixedStream { sources, order, taken, repeats, had_item: taken > 0 }
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    pub(super) fn is_ended(&self) -> bool {
        self.sources.iter().all(|(_, ended)| *ended)
    }

    /// Repeats the sources when all of them have ended. Returns false if a repetition would have no item.
    pub(super) fn repeat(&mut self, outputs: &mut impl SourceOutputs) -> bool {
        if !self.is_ended() || !std::mem::take(&mut self.had_item) {
            return false;
        }
        self.repeats += 1;
        for (source, ended) in &mut self.sources {
            *ended = !outputs.repeat(*source, self.repeats);
        }
        !self.is_ended()
    }

    /// Frees the indices of the last `count` items and gaps. The next items and gaps take these indices.
    pub(super) fn give_back(&mut self, count: u64, outputs: &mut impl SourceOutputs) {
        self.taken -= count.min(self.taken);
        // Only `buckets` uses the indices, and it is refused for several datasets.
        if let [(source, _)] = self.sources[..] {
            outputs.give_back(source, count);
        }
    }

    /// The source of the item that is `ahead` items after the next item, if no source ends before that item.
    pub(super) fn source_at(&mut self, ahead: u64) -> Option<usize> {
        let dataset = self.dataset_at(ahead);
        self.sources.get(dataset).map(|(source, _)| *source)
    }

    /// The dataset of the item that is `ahead` items after the next item, if no dataset ends before that
    /// item.
    fn dataset_at(&mut self, ahead: u64) -> usize {
        let index = self.taken.saturating_add(ahead);
        let sources = &self.sources;
        self.order.dataset_at(index, |dataset| sources.get(dataset).is_some_and(|(_, ended)| *ended))
    }

    pub(super) fn next<O: SourceOutputs>(&mut self, outputs: &mut O) -> Option<LoaderEvent<O::Item>> {
        while !self.is_ended() {
            let dataset = self.dataset_at(0);
            let (source, ended) = self.sources.get_mut(dataset)?;
            // The event is changed in place: moving it would be the most expensive part of this loop.
            let mut event = outputs.next(*source);
            match &mut event {
                Some(LoaderEvent::Item(tag, _)) => {
                    tag.source.dataset = dataset;
                    self.taken += 1;
                    self.had_item = true;
                }
                Some(LoaderEvent::Gap(tag)) => {
                    tag.source.dataset = dataset;
                    self.taken += 1;
                }
                Some(_) => {}
                None => {
                    *ended = true;
                    continue;
                }
            }
            return event;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::sequence::testing::Listed;
    use proptest::prelude::*;

    /// The dataset of each item from item `skip` on. `lengths` are the numbers of items that are left.
    fn mixed(lengths: &[u32], weights: &[u32], skip: usize) -> Vec<usize> {
        let order = DatasetOrder::new(weights, 42, 3).unwrap();
        let mut stream = MixedStream::new((0..lengths.len()).collect(), order, skip as u64, 0);
        let mut listed = Listed::items(lengths.iter().map(|length| vec![0; *length as usize]));
        let dataset = |event| match event {
            LoaderEvent::Item(tag, _) => tag.source.dataset,
            _ => unreachable!("only items were listed"),
        };
        std::iter::from_fn(|| stream.next(&mut listed)).map(dataset).collect()
    }

    #[test]
    fn the_order_of_datasets_is_golden() {
        assert_eq!(mixed(&[6, 2], &[3, 1], 0), [0, 1, 0, 0, 1, 0, 0, 0]);
        assert_eq!(mixed(&[2, 2, 4], &[1, 1, 2], 0), [0, 2, 1, 2, 2, 0, 1, 2]);
    }

    #[test]
    fn other_datasets_replace_one_that_has_ended() {
        let datasets = mixed(&[1, 9], &[1, 1], 0);
        assert_eq!(datasets.iter().filter(|dataset| **dataset == 0).count(), 1);
        assert_eq!(datasets.len(), 10);
        assert_eq!(mixed(&[], &[], 0), [0; 0]);
    }

    #[test]
    fn all_sources_are_repeated_together_and_only_after_an_item() {
        let order = DatasetOrder::new(&[1, 1], 42, 3).unwrap();
        let mut stream = MixedStream::new(vec![0, 1], order, 0, 0);
        let mut listed = Listed::items([vec![1], vec![2, 3]]).repeated();
        let rounds: Vec<usize> = (0..3)
            .map(|_| {
                let count = std::iter::from_fn(|| stream.next(&mut listed)).count();
                stream.repeat(&mut listed);
                count
            })
            .collect();
        assert_eq!(rounds, [3, 3, 3]);
        let mut none = Listed::items([vec![], vec![]]).repeated();
        let mut stream = MixedStream::new(vec![0, 1], DatasetOrder::new(&[1, 1], 42, 3).unwrap(), 0, 0);
        assert!(stream.next(&mut none).is_none() && !stream.repeat(&mut none));
    }

    proptest! {
        #[test]
        fn every_window_has_the_proportions(
            weights in prop::collection::vec(1u32..6, 1..5), windows in 1u32..5, skip: prop::sample::Index,
        ) {
            let lengths: Vec<u32> = weights.iter().map(|weight| weight * windows).collect();
            let datasets = mixed(&lengths, &weights, 0);
            let length = weights.iter().sum::<u32>() as usize;
            for window in datasets.chunks(length) {
                for (dataset, weight) in weights.iter().enumerate() {
                    prop_assert_eq!(window.iter().filter(|at| **at == dataset).count(), *weight as usize);
                }
            }
            // The order can be continued from any index.
            let skip = skip.index(datasets.len());
            let mut left = lengths.clone();
            datasets[..skip].iter().for_each(|dataset| left[*dataset] -= 1);
            prop_assert_eq!(&mixed(&left, &weights, skip), &datasets[skip..]);
        }
    }
}
