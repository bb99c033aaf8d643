//! Splitters: select the items, usually shards, that a rank or worker reads.

use crate::Topology;
use crate::error::{ErrorKind, Result};
use std::iter::{Skip, StepBy};

/// The items that this process reads: every `world_size`-th item, starting with item `rank`. If several ranks
/// [read the same samples](Topology::with_data_parallel), the data-parallel rank and the number of
/// data-parallel ranks are used instead.
///
/// ```
/// use shardstream::Topology;
/// use shardstream::plan::split_by_node;
///
/// let topology = Topology::new(1, 3)?;
/// assert!(split_by_node(0..8, &topology).eq([1, 4, 7]));
/// # Ok::<(), shardstream::Error>(())
/// ```
pub fn split_by_node<I: IntoIterator>(items: I, topology: &Topology) -> StepBy<Skip<I::IntoIter>> {
    items.into_iter().skip(topology.data_parallel_rank()).step_by(topology.data_parallel_size())
}

/// The items that this worker reads, out of the items of its process: every `workers`-th item, starting with
/// item `worker`.
///
/// ```
/// use shardstream::Topology;
/// use shardstream::plan::{split_by_node, split_by_worker};
///
/// let topology = Topology::new(1, 3)?.with_worker(1, 2)?;
/// assert!(split_by_worker(split_by_node(0..8, &topology), &topology).eq([4]));
/// # Ok::<(), shardstream::Error>(())
/// ```
pub fn split_by_worker<I: IntoIterator>(items: I, topology: &Topology) -> StepBy<Skip<I::IntoIter>> {
    items.into_iter().skip(topology.worker()).step_by(topology.workers())
}

/// The items that your own splitter keeps. `keeps` is called with the number of each item and the topology.
///
/// For each item, `keeps` should return true for exactly one reader. This is not checked.
///
/// ```
/// use shardstream::Topology;
/// use shardstream::plan::split_by;
///
/// // Contiguous blocks, for 8 items.
/// let blocks = |index: usize, topology: &Topology| index * topology.readers() / 8 == topology.reader();
/// assert!(split_by(0..8, &Topology::new(1, 2)?, blocks).eq([4, 5, 6, 7]));
/// # Ok::<(), shardstream::Error>(())
/// ```
pub fn split_by<I: IntoIterator>(
    items: I,
    topology: &Topology,
    mut keeps: impl FnMut(usize, &Topology) -> bool,
) -> impl Iterator<Item = I::Item> {
    let numbered = items.into_iter().enumerate();
    numbered.filter_map(move |(index, item)| keeps(index, topology).then_some(item))
}

/// Checks that there is a shard for each of `readers`. A reader without a shard would end its epoch at once,
/// and the other readers would wait for it in their next collective operation.
///
/// `what` names the readers in the error, such as "ranks" or "workers".
///
/// # Errors
/// [`ErrorKind::TooFewShards`].
pub(crate) fn check_enough(shards: usize, readers: usize, what: &'static str) -> Result<()> {
    if shards >= readers {
        return Ok(());
    }
    Err(ErrorKind::TooFewShards { shards, readers, what }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_split_as_by_webdataset() {
        // 8 shards, 3 ranks with 2 workers each.
        let expected: [&[usize]; 6] = [&[0, 6], &[3], &[1, 7], &[4], &[2], &[5]];
        for (reader, expected) in expected.into_iter().enumerate() {
            let topology = Topology::new(reader / 2, 3).unwrap().with_worker(reader % 2, 2).unwrap();
            let dealt = split_by_worker(split_by_node(0..8, &topology), &topology);
            assert_eq!(dealt.collect::<Vec<_>>(), expected);
            let same = split_by(0..8, &topology, |index, who| index % who.readers() == who.reader());
            assert_eq!(same.collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn the_error_for_too_few_shards_names_the_readers() {
        assert!(check_enough(2, 2, "ranks").is_ok());
        let error = check_enough(2, 3, "ranks").unwrap_err();
        assert!(error.to_string().contains("2 shards cannot feed 3 ranks"), "{error}");
    }
}
