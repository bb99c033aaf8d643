//! Slices for several devices, resume, and datasets of unknown length.
#![allow(missing_docs)]

mod support;

use burn::data::dataloader::DataLoader;
use burn::data::dataloader::split::split_dataloader;
use burn::tensor::{BoolStore, DType, Device, Int, Tensor};
use shardstream::codec::DType as TensorType;
use shardstream::{State, Topology};
use shardstream_burn::{ShardLoader, SliceError, UNKNOWN_ITEMS, tensor_data};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use support::{BATCH, STEPS};

/// A batch, and the device that it was uploaded to.
type Item = (Vec<i32>, Device);

fn numbered(dir: &Path, index: bool) -> ShardLoader<Item> {
    let loader = support::loader(&support::shards(dir), 1, index).unwrap();
    ShardLoader::new(loader, BATCH, Device::flex(), |batch, device| {
        Ok((support::labels(&batch)?, device.clone()))
    })
}

/// The batches of the first `count` epochs, read by a plain `Loader`.
fn epochs(dir: &Path, index: bool, count: u64) -> Vec<Vec<Vec<i32>>> {
    let loader = support::loader(&support::shards(dir), 1, index).unwrap();
    let epoch = |epoch| loader.epoch(epoch).map(|batch| support::labels(&batch.unwrap()).unwrap()).collect();
    (0..count).map(epoch).collect()
}

/// Two devices that are not equal.
fn devices() -> [Device; 2] {
    [Device::flex(), Device::flex().autodiff()]
}

fn split(loader: &ShardLoader<Item>, devices: &[Device]) -> Vec<Arc<dyn DataLoader<Item>>> {
    split_dataloader(Arc::new(loader.clone()), devices)
}

/// Reads an epoch, one batch from each slice in turn, as burn's strategies do.
fn in_turn(slices: &[Arc<dyn DataLoader<Item>>]) -> Vec<Item> {
    let mut iterators: Vec<_> = slices.iter().map(|slice| slice.iter()).collect();
    let mut items = Vec::new();
    loop {
        let round: Vec<_> = iterators.iter_mut().filter_map(|iterator| iterator.next()).collect();
        if round.is_empty() {
            return items;
        }
        assert_eq!(round.len(), slices.len(), "a device without a batch");
        items.extend(round.into_iter().map(Result::unwrap));
    }
}

fn batches(items: Vec<Item>) -> Vec<Vec<i32>> {
    items.into_iter().map(|(labels, _)| labels).collect()
}

#[test]
fn devices_take_the_batches_of_each_epoch_in_turn() {
    let dir = tempfile::tempdir().unwrap();
    for index in [true, false] {
        let expected = epochs(dir.path(), index, 3);
        let slices = split(&numbered(dir.path(), index), &devices());
        for epoch in &expected {
            let items = in_turn(&slices);
            for (number, (_, device)) in items.iter().enumerate() {
                assert_eq!(*device, devices()[number % 2], "device of batch {number}");
            }
            assert_eq!(batches(items), *epoch);
        }
    }
}

#[test]
fn an_incomplete_last_round_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    for index in [true, false] {
        let expected = epochs(dir.path(), index, 2);
        let slices = split(&numbered(dir.path(), index), &vec![Device::flex(); 5]);
        for epoch in &expected {
            assert_eq!(batches(in_turn(&slices)), epoch[..10]);
        }
    }
}

#[test]
fn slices_may_be_read_one_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let expected = epochs(dir.path(), true, 2);
    let slices = split(&numbered(dir.path(), true), &devices());
    for epoch in &expected {
        for (device, slice) in slices.iter().enumerate() {
            assert_eq!(slice.num_items(), STEPS / 2 * BATCH);
            let received: Vec<_> = slice.iter().map(|batch| batch.unwrap().0).collect();
            let expected: Vec<_> = epoch.iter().skip(device).step_by(2).cloned().collect();
            assert_eq!(received, expected);
        }
    }
}

#[test]
fn a_loader_moved_to_another_device_continues_with_the_next_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let expected = epochs(dir.path(), true, 2);
    let loader = numbered(dir.path(), true);
    assert_eq!(loader.iter().map(|batch| batch.unwrap().0).collect::<Vec<_>>(), expected[0]);
    let [_, other] = devices();
    let moved: Vec<_> = loader.to_device(&other).iter().map(Result::unwrap).collect();
    assert!(moved.iter().all(|(_, device)| *device == other));
    assert_eq!(batches(moved), expected[1]);
    assert_eq!((loader.report().batches, loader.report().firsts), (24, 2));
    assert!(loader.skipped().is_empty());
}

#[test]
fn a_training_resumes_in_the_middle_of_an_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let expected = epochs(dir.path(), true, 3);
    for (before, after) in [(1, 1), (2, 2), (1, 2), (2, 1)] {
        let loader = numbered(dir.path(), true).first_epoch(1);
        assert!(loader.state().is_none());
        let slices = split(&loader, &devices()[..before]);
        let mut iterators: Vec<_> = slices.iter().map(|slice| slice.iter()).collect();
        for round in 0..4 / before {
            for (device, iterator) in iterators.iter_mut().enumerate() {
                assert_eq!(iterator.next().unwrap().unwrap().0, expected[1][round * before + device]);
            }
        }
        let state: State = loader.state().unwrap().to_string().parse().unwrap();
        assert_eq!((state.epoch(), state.batches()), (1, 4));

        let resumed = numbered(dir.path(), true).resume(state.clone()).unwrap();
        let before_first_step = resumed.state().unwrap();
        assert_eq!(before_first_step.to_string(), state.to_string());
        let slices = split(&resumed, &devices()[..after]);
        let mut first = slices[0].iter();
        assert!(first.next().is_some());
        assert_eq!(first.progress().items_processed, (4 / after + 1) * BATCH);
        assert_eq!(first.progress().items_total, slices[0].num_items());
        drop(first);
        let slices =
            split(&numbered(dir.path(), true).resume(loader.state().unwrap()).unwrap(), &devices()[..after]);
        assert_eq!(batches(in_turn(&slices)), expected[1][4..]);
        assert_eq!(batches(in_turn(&slices)), expected[2]);
    }
}

#[test]
fn a_training_that_resumes_with_another_batch_size_or_world_size_completes_its_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let shards = support::shards(dir.path());
    let loader = numbered(dir.path(), true);
    assert_eq!(loader.iter().take(4).filter(Result::is_ok).count(), 4);
    for (batch, ranks, count) in [(16, 1, 1), (4, 1, 1), (4, 1, 2), (BATCH, 2, 1), (16, 2, 2)] {
        let rank = Topology::new(0, ranks).unwrap();
        let resumed = support::loader_of_rank(rank, batch, &shards, 1, true).unwrap();
        let steps = resumed.restore(&loader.state().unwrap()).unwrap().count() / count;
        let resumed = ShardLoader::new(resumed, batch, Device::flex(), |batch, device| {
            Ok((support::labels(&batch)?, device.clone()))
        });
        let slices = split(&resumed.resume(loader.state().unwrap()).unwrap(), &devices()[..count]);
        let mut iterators: Vec<_> = slices.iter().map(|slice| slice.iter()).collect();
        for step in 1..=steps {
            for (slice, iterator) in slices.iter().zip(&mut iterators) {
                iterator.next().unwrap().unwrap();
                let progress = iterator.progress();
                assert_eq!(progress.is_completed(), step == steps, "{batch} {ranks} {count} {progress:?}");
                assert_eq!(progress.items_total, slice.num_items());
            }
        }
        assert!(iterators.iter_mut().all(|iterator| iterator.next().is_none()));
    }
}

#[test]
fn a_state_of_epochs_without_an_end_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let endless = support::loader(&support::shards(dir.path()), 1, true).unwrap().epochs(0);
    let states = endless.take(STEPS + 1).map(|batch| batch.unwrap().state().unwrap().clone());
    for state in states {
        assert!(state.is_endless());
        let error = numbered(dir.path(), true).resume(state).unwrap_err().to_string();
        assert!(error.contains("`Loader::epochs`") && error.contains("single epochs"), "{error}");
    }
}

#[test]
fn a_state_of_another_order_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let loader = numbered(dir.path(), true);
    loader.iter().next().unwrap().unwrap();
    let other = support::loader(&support::shards(dir.path()), 2, true).unwrap();
    let other = ShardLoader::new(other, BATCH, Device::flex(), |batch, _| support::labels(&batch));
    let error = other.resume(loader.state().unwrap()).unwrap_err();
    assert!(error.to_string().contains("seed"), "{error}");
}

#[test]
fn the_last_batch_completes_an_epoch_of_unknown_length() {
    let dir = tempfile::tempdir().unwrap();
    let loader = numbered(dir.path(), false);
    assert_eq!(loader.num_items(), UNKNOWN_ITEMS);
    // burn's progress bars multiply the number of items by the number of epochs.
    assert!(loader.num_items().checked_mul(10_000).is_some());
    for slices in [split(&loader, &devices()[..1]), split(&loader, &devices())] {
        let mut iterators: Vec<_> = slices.iter().map(|slice| slice.iter()).collect();
        for round in 1..=STEPS / slices.len() {
            for iterator in &mut iterators {
                iterator.next().unwrap().unwrap();
                let progress = iterator.progress();
                assert_eq!(progress.items_processed, round * BATCH);
                assert_eq!(progress.is_completed(), round == STEPS / slices.len(), "{progress:?}");
            }
        }
        assert!(iterators.iter_mut().all(|iterator| iterator.next().is_none()));
    }
}

#[test]
fn slices_that_no_strategy_makes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let loader = numbered(dir.path(), true);
    let items = STEPS * BATCH;
    let refused = |slice: Arc<dyn DataLoader<Item>>| {
        let error = slice.iter().next().unwrap().unwrap_err();
        assert_eq!(slice.iter().count(), 1);
        *error.source().unwrap().downcast_ref::<SliceError>().unwrap()
    };
    let error = refused(loader.slice(0, 16));
    assert_eq!((error.start, error.end, error.items), (0, 16, items));
    assert!(error.to_string().contains("items 0..16 of 96"), "{error}");
    assert_eq!(refused(loader.slice(20, items)).start, 20);
    assert_eq!(refused(loader.slice(40, 50)).start, 40);
    // The slices of a slice do not cover all items, so they cannot be read.
    let half = loader.slice(0, items / 2);
    let other = loader.slice(items / 2, items);
    assert_eq!(refused(half.slice(0, 8)).items, items / 2);
    assert_eq!(refused(other.slice(0, items)).end, items);
    // A slice that covers all items can be read without the other slices.
    assert_eq!(loader.slice(0, items).iter().count(), STEPS);
}

#[test]
fn an_error_names_the_shard_and_ends_the_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let loader = numbered(dir.path(), true);
    std::fs::remove_file(dir.path().join("train-000002.tar")).unwrap();
    let slices = split(&loader, &devices());
    let mut first = slices[0].iter();
    let error = first.by_ref().find_map(Result::err).unwrap();
    let source = error.source().unwrap().downcast_ref::<shardstream::Error>().unwrap();
    assert!(source.to_string().contains("train-000002.tar"), "{source}");
    assert!(first.next().is_none());
    assert!(!first.progress().is_completed());
}

#[test]
fn tensor_data_keeps_the_type_and_shares_the_loader_s_memory() {
    let mut tensor = shardstream::tensor::Tensor::zeros(TensorType::F32, [2, 3]).unwrap();
    tensor.as_mut_slice::<f32>().unwrap()[4] = 0.5;
    let address = tensor.as_bytes().as_ptr();
    let data = tensor_data(tensor);
    assert_eq!(data.as_bytes().as_ptr(), address);
    let tensor = Tensor::<2>::from_data(data, &Device::flex());
    assert_eq!(tensor.dims(), [2, 3]);
    assert_eq!(tensor.into_data().try_to_vec::<f32>().unwrap(), [0., 0., 0., 0., 0.5, 0.]);

    let types = [
        (TensorType::Bool, DType::Bool(BoolStore::Native)),
        (TensorType::BF16, DType::BF16),
        (TensorType::U16, DType::U16),
    ];
    for (tensor_type, dtype) in types {
        let tensor = shardstream::tensor::Tensor::zeros(tensor_type, [3]).unwrap();
        assert_eq!(tensor_data(tensor).dtype(), dtype);
    }
    for tensor_type in [TensorType::I64, TensorType::U8] {
        let data = tensor_data(shardstream::tensor::Tensor::zeros(tensor_type, [3]).unwrap());
        let dtype = data.dtype();
        assert_eq!(Tensor::<1, Int>::from_data(data, (&Device::flex(), dtype)).dtype(), dtype);
    }
}
