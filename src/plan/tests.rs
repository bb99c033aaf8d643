use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

fn topologies(world_size: usize, workers: usize) -> impl Iterator<Item = Topology> {
    (0..world_size * workers).map(move |reader| {
        let topology = Topology::new(reader % world_size, world_size).unwrap();
        topology.with_worker(reader / world_size, workers).unwrap()
    })
}

fn shards(slices: Vec<Slice>) -> Vec<usize> {
    slices.into_iter().map(|slice| slice.shard).collect()
}

/// These orders must never change: otherwise a job that resumes after an update would read some shards twice.
#[test]
fn the_orders_of_plans_are_golden() {
    let plan = Plan::new(10, 4, 42).unwrap();
    assert_eq!(plan.order(0), [4, 8, 7, 5, 1, 6, 0, 3, 9, 2]);
    assert_eq!(plan.order(1), [2, 9, 0, 6, 8, 7, 5, 1, 4, 3]);
    assert_eq!(shards(Plan::new(10, 1, 43).unwrap().stream(0, 0)), [4, 3, 8, 9, 2, 7, 6, 0, 5, 1]);
    assert_eq!(shards(plan.stream(0, 1)), [8, 6, 2]);
    assert_eq!(shards(plan.stream(0, 3)), [5, 3]);
    let kept = plan.clone().kept(true);
    assert_eq!(kept.order(1), plan.order(0));
    assert_eq!([0, 1, 2].map(|epoch| shards(kept.stream(epoch, 1))), [[6, 8, 2], [2, 8, 6], [6, 2, 8]]);
    let drawn = plan.resampled(true);
    assert_eq!(shards(drawn.stream(0, 1)), [1, 8, 4]);
    assert_eq!(shards(drawn.stream(1, 1)), [6, 2, 6]);
}

#[test]
fn the_later_of_sampled_and_resampled_counts() {
    let plan = Plan::counted([3, 4], 2, 42).unwrap();
    let listed = || Sampler::listed([6, 0, 3, 5]);
    let drawn = plan.clone().sampled(listed()).unwrap().resampled(true);
    assert!(drawn.sampler().is_none() && drawn.is_resampled());
    let chosen = plan.clone().resampled(true).sampled(listed()).unwrap();
    assert!(chosen.sampler().is_some() && !chosen.is_resampled());
    assert_eq!(chosen.stream(0, 0), plan.sampled(listed()).unwrap().stream(0, 0));
}

#[test]
fn an_unshuffled_plan_has_the_order_of_the_shard_list() {
    let plan = Plan::new(7, 3, 42).unwrap().shuffled(false);
    assert_eq!(plan.order(5), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(shards(plan.stream(5, 0)), [0, 3, 6]);
    assert_eq!(shards(plan.stream(6, 2)), [2, 5]);
    assert!(plan.stream(6, 3).is_empty());
}

#[test]
fn each_stream_needs_a_shard() {
    assert!(matches!(Plan::new(5, 0, 1).unwrap_err().kind(), ErrorKind::Config(_)));
    for (shards, streams) in [(0, 1), (3, 4)] {
        let error = Plan::new(shards, streams, 1).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TooFewShards { what: "streams", .. }), "{error}");
    }
}

#[test]
fn the_error_for_uneven_readers_names_numbers_that_fit() {
    let topology = Topology::new(0, 4).unwrap().with_worker(1, 2).unwrap();
    let error = Plan::new(100, 12, 1).unwrap().streams_of(&topology).unwrap_err().to_string();
    assert!(error.contains("8 readers (4 ranks with 2 workers each)"), "{error}");
    assert!(error.contains("8 or 16 streams") && error.contains("1, 2, 3, 4, 6, 12"), "{error}");
    let error = Plan::new(100, 3, 1).unwrap().streams_of(&topology).unwrap_err().to_string();
    assert!(error.contains("use 8 streams"), "{error}");
}

/// A plan of `shards` shards, counted or not, whose streams keep their shards.
fn kept_plan(shards: usize, streams: usize, is_counted: bool, seed: u64) -> Plan {
    let counts: Vec<u64> = (0..shards as u64).map(|shard| 1 + shard * 7 % 10).collect();
    let plan = match is_counted {
        true => Plan::counted(counts, streams, seed),
        false => Plan::new(shards, streams, seed),
    };
    plan.unwrap().kept(true)
}

/// The slices of all streams of one rank in an epoch.
fn of_rank(plan: &Plan, epoch: u64, topology: &Topology) -> HashSet<Slice> {
    plan.streams_of(topology).unwrap().flat_map(|stream| plan.stream(epoch, stream)).collect()
}

#[test]
fn with_kept_shards_8_nodes_read_from_their_caches_after_the_first_epoch() {
    for is_counted in [false, true] {
        let plan = kept_plan(200, 16, is_counted, 42);
        let requests = |plan: &Plan| -> Vec<usize> {
            let mut caches = vec![HashSet::new(); 8];
            let of_epoch = |epoch| {
                let nodes = topologies(8, 1).zip(&mut caches);
                let missing = nodes.map(|(topology, cache): (_, &mut HashSet<Slice>)| {
                    let read = of_rank(plan, epoch, &topology);
                    let missing = read.iter().filter(|slice| !cache.contains(*slice)).count();
                    cache.extend(read);
                    missing
                });
                missing.sum()
            };
            (0..5).map(of_epoch).collect()
        };
        let all = (0..16).map(|stream| plan.stream(0, stream).len()).sum();
        assert_eq!(requests(&plan), [all, 0, 0, 0, 0]);
        // If streams do not keep their shards, only one slice in eight is read by the same node again.
        let dealt = requests(&plan.kept(false));
        assert!(dealt[1] > all / 2, "{dealt:?}");
    }
}

#[test]
fn kept_has_no_effect_on_unshuffled_and_resampled_plans() {
    let plan = Plan::new(20, 3, 42).unwrap();
    for plan in [plan.clone().shuffled(false), plan.resampled(true)] {
        let kept = plan.clone().kept(true);
        assert!(!kept.is_kept());
        assert!((0..3).all(|stream| kept.stream(5, stream) == plan.stream(5, stream)));
    }
}

proptest! {
    #[test]
    fn streams_that_keep_their_shards_have_them_in_a_new_order_in_each_epoch(
        streams in 1usize..12, more in 0usize..60, is_counted: bool, seed: u64, epoch in 1..u64::MAX,
    ) {
        let plan = kept_plan(streams + more, streams, is_counted, seed);
        let dealt = plan.clone().kept(false);
        for stream in 0..streams {
            let (first, slices) = (plan.stream(0, stream), plan.stream(epoch, stream));
            let of = |slices: &[Slice]| slices.iter().cloned().collect::<HashSet<Slice>>();
            prop_assert_eq!(of(&first), of(&slices));
            prop_assert_eq!(slices.len(), first.len());
            // These are the slices that the stream has in epoch 0 if it does not keep its shards. The length
            // of the stream is therefore the same with and without kept shards.
            prop_assert_eq!(of(&dealt.stream(0, stream)), of(&slices));
            prop_assert_eq!(dealt.samples(stream), plan.samples(stream));
            // Two orders are equal by chance with a probability of 1 in 30!.
            if slices.len() >= 30 {
                prop_assert_ne!(first, slices);
            }
        }
    }

    #[test]
    fn all_readers_together_read_the_dataset_once(
        world_size in 1usize..6, workers in 1usize..4, rounds in 1usize..4, more in 0usize..40,
        seed: u64, epoch: u64, shuffled: bool, kept: bool,
    ) {
        let streams = world_size * workers * rounds;
        let plan = Plan::new(streams + more, streams, seed).unwrap().shuffled(shuffled).kept(kept);
        let mut read: Vec<usize> = topologies(world_size, workers)
            .flat_map(|topology| plan.streams_of(&topology).unwrap())
            .flat_map(|stream| shards(plan.stream(epoch, stream)))
            .collect();
        read.sort_unstable();
        prop_assert_eq!(read, (0..plan.shards()).collect::<Vec<_>>());
    }

    #[test]
    fn the_first_shards_of_all_streams_are_the_same_on_any_number_of_nodes(
        world_size in 1usize..6, workers in 1usize..4, rounds in 1usize..4, more in 0usize..40, seed: u64,
        kept: bool,
    ) {
        let streams = world_size * workers * rounds;
        let plan = Plan::new(streams + more, streams, seed).unwrap().kept(kept);
        // The sorted first shards of all streams, if `world_size` nodes with `workers` workers read them.
        let firsts = |world_size, workers| {
            let mut firsts: Vec<usize> = topologies(world_size, workers)
                .flat_map(|topology| plan.streams_of(&topology).unwrap())
                .map(|stream| plan.stream(3, stream)[0].shard)
                .collect();
            firsts.sort_unstable();
            firsts
        };
        prop_assert_eq!(firsts(world_size, workers), firsts(1, 1));
        prop_assert_eq!(firsts(world_size, 1), firsts(1, workers));
    }

    #[test]
    fn with_one_stream_per_reader_the_plan_equals_the_two_splitters(
        world_size in 1usize..6, workers in 1usize..4, more in 0usize..40, seed: u64, epoch: u64,
    ) {
        let streams = world_size * workers;
        let plan = Plan::new(streams + more, streams, seed).unwrap();
        for topology in topologies(world_size, workers) {
            let mine = plan.streams_of(&topology).unwrap();
            let planned: Vec<usize> = mine.flat_map(|stream| shards(plan.stream(epoch, stream))).collect();
            let split = split_by_worker(split_by_node(plan.order(epoch), &topology), &topology);
            prop_assert_eq!(planned, split.collect::<Vec<_>>());
        }
    }

    #[test]
    fn epochs_and_seeds_have_different_orders(seed in 0..u64::MAX, epoch in 0..u64::MAX) {
        // Two orders are equal by chance with a probability of 1 in 50!.
        let order = |seed, epoch| Plan::new(50, 1, seed).unwrap().order(epoch);
        prop_assert_ne!(order(seed, epoch), order(seed, epoch + 1));
        prop_assert_ne!(order(seed, epoch), order(seed + 1, epoch));
        prop_assert_eq!(order(seed, epoch), order(seed, epoch));
    }

    #[test]
    fn counted_shards_are_cut_into_equal_shares(
        counts in prop::collection::vec(0u64..9, 1..12), streams in 1usize..20, seed: u64, epoch: u64,
    ) {
        let total: u64 = counts.iter().sum();
        let Ok(plan) = Plan::counted(counts.clone(), streams, seed) else {
            prop_assert!(total < streams as u64);
            return Ok(());
        };
        let mut read = Vec::new();
        for stream in 0..streams {
            let slices = plan.stream(epoch, stream);
            let samples: Vec<(usize, u64)> = slices
                .iter()
                .flat_map(|slice| slice.samples.clone().map(|sample| (slice.shard, sample)))
                .collect();
            prop_assert_eq!(Some(samples.len() as u64), plan.samples(stream));
            let expected = total / streams as u64..=total.div_ceil(streams as u64);
            prop_assert!(expected.contains(&(samples.len() as u64)));
            read.extend(samples);
        }
        // The shares of streams 0, 1, 2 and so on, joined together, are all samples in the epoch's order.
        let order = plan.order(epoch).into_iter();
        let samples = order.flat_map(|shard| (0..counts[shard]).map(move |n| (shard, n)));
        prop_assert_eq!(read, samples.collect::<Vec<_>>());
    }
}
