//! Tensor and pipeline parallelism: ranks with the same data-parallel rank read the same samples, and all
//! data-parallel ranks together read every sample once.

use crate::support::Every;
use crate::support::shards::{all_keys, sorted};
use crate::support::versioned_source::{VersionedSource, counts};
use shardstream::plan::{split_by_node, split_by_worker};
use shardstream::prelude::*;
use shardstream::{Digest, Result, State};
use std::sync::Arc;

const SIZES: [usize; 8] = [7, 12, 3, 9, 6, 2, 14, 7];
/// Number of items in a batch of all ranks together.
const GLOBAL: usize = 12;

/// The key of a sample, and a random number.
type Item = (String, u64);

fn loader(source: &Arc<VersionedSource>, indexed: bool, topology: Topology) -> Loader<Batch<Item>> {
    let dataset = source.dataset(SIZES.len()).topology(topology).streams(4).shuffle_shards(true).seed(42);
    let dataset = if indexed { dataset.index(counts(&SIZES)) } else { dataset };
    let items = Loader::builder(dataset.build().unwrap()).shuffle(6).threads(1);
    let items = items.map(|sample| Ok((sample.key().to_owned(), sample.rng(7).below(1 << 40))));
    items.uneven_steps(true).batch(GLOBAL / topology.readers()).build().unwrap()
}

fn collect(batches: impl Iterator<Item = Result<Batch<Item>>>) -> Vec<Vec<Item>> {
    batches.map(|batch| batch.unwrap().into_items()).collect()
}

/// Two layouts of eight ranks with four data-parallel ranks: in the first, neighbouring ranks read the same
/// samples; in the second, ranks at a distance of four read the same samples.
fn layouts() -> [Vec<Topology>; 2] {
    let rank = |rank, group| Topology::new(rank, 8).unwrap().with_data_parallel(group, 4).unwrap();
    [(0..8).map(|r| rank(r, r / 2)).collect(), (0..8).map(|r| rank(r, r % 4)).collect()]
}

#[test]
fn ranks_of_a_group_read_the_same_samples_and_groups_share_the_dataset() {
    let source = VersionedSource::of(&SIZES);
    for indexed in [false, true] {
        let groups: Vec<_> = (0..4)
            .map(|group| collect(loader(&source, indexed, Topology::new(group, 4).unwrap()).epoch(3)))
            .collect();
        for ranks in layouts() {
            let mut digests = Vec::new();
            for topology in ranks {
                let mut batches = loader(&source, indexed, topology).epoch(3);
                let found = collect(batches.by_ref());
                assert_eq!(found, groups[topology.data_parallel_rank()], "{topology}");
                digests.push((topology.data_parallel_rank(), batches.state().digest()));
            }
            digests.sort_by_key(|(group, _)| *group);
            assert!(digests.chunks(2).every(|twins| twins[0] == twins[1]), "{digests:?}");
            let once: Digest = digests.iter().step_by(2).map(|(_, digest)| *digest).sum();
            assert_eq!(once.samples(), SIZES.iter().sum::<usize>() as u64);
        }
        let all: Vec<Item> = groups.concat().concat();
        assert_eq!(sorted(all.into_iter().map(|(key, _)| key).collect()), sorted(all_keys(&SIZES)));
    }
}

#[test]
fn splitters_divide_among_data_parallel_ranks() {
    for ranks in layouts() {
        let mut seen = Vec::new();
        for (topology, worker) in ranks.iter().flat_map(|rank| [(rank, 0), (rank, 1)]) {
            let topology = topology.with_worker(worker, 2).unwrap();
            let mine: Vec<_> = split_by_worker(split_by_node(0..64, &topology), &topology).collect();
            assert!(mine.iter().every(|item| item % topology.readers() == topology.reader()), "{topology}");
            seen.extend(mine);
        }
        assert_eq!(sorted(seen), (0..128).map(|at| at / 2).collect::<Vec<_>>());
    }
}

#[test]
fn states_resume_on_other_groups_of_ranks() {
    let source = VersionedSource::of(&SIZES);
    let alone = collect(loader(&source, true, Topology::single()).epoch(0));
    for ranks in layouts() {
        let states = ranks.iter().map(|topology| {
            let last = loader(&source, true, *topology).epoch(0).take(2).last().unwrap().unwrap();
            last.state().unwrap().clone()
        });
        let states: Vec<State> = states.collect();
        let whole = State::merge(states.clone()).unwrap();
        assert_eq!((whole.samples(), whole.batches()), (2 * GLOBAL as u64, 2));
        assert_eq!(State::merge(states.into_iter().rev()).unwrap(), whole);
        let rest = loader(&source, true, Topology::single()).restore(&whole).unwrap();
        assert_eq!(collect(rest), alone[2..]);
        // Two data-parallel ranks. Each data-parallel rank is shared by three ranks.
        for rank in 0..6 {
            let topology = Topology::new(rank, 6).unwrap().with_data_parallel(rank / 3, 2).unwrap();
            let rest = collect(loader(&source, true, topology).restore(&whole).unwrap());
            let expected = alone[2..].iter().map(|batch| {
                let mine = batch.iter().enumerate().filter(|(at, _)| at % 2 == rank / 3);
                mine.map(|(_, item)| item.clone()).collect::<Vec<_>>()
            });
            assert!(rest.iter().flatten().eq(expected.collect::<Vec<_>>().iter().flatten()), "rank {rank}");
        }
    }
}

#[test]
fn streams_must_be_a_multiple_of_the_data_parallel_ranks() {
    let source = VersionedSource::of(&SIZES);
    let build = |group, groups, streams| {
        let topology = Topology::new(5, 6).unwrap().with_data_parallel(group, groups).unwrap();
        source.dataset(SIZES.len()).topology(topology).streams(streams).build()
    };
    assert_eq!(build(1, 2, 4).unwrap().streams(), [1, 3]);
    let error = build(2, 3, 4).unwrap_err().to_string();
    assert!(error.contains("3 readers (3 data-parallel ranks with 1 workers each)"), "{error}");
    // The default number of streams depends on the number of data-parallel ranks. So two shards suffice for
    // six ranks that share two data-parallel ranks.
    let topology = Topology::new(5, 6).unwrap().with_data_parallel(1, 2).unwrap();
    assert_eq!(source.dataset(2).topology(topology).build().unwrap().streams().len(), 1);
    let error = source.dataset(1).topology(topology).build().unwrap_err().to_string();
    assert!(error.contains("1 shards cannot feed 2 data-parallel ranks"), "{error}");
}
