//! Trains [burn](burn) models from WebDataset tar shards, which [`shardstream`] reads.
//!
//! [`ShardLoader`] implements burn's [`DataLoader`](burn::data::dataloader::DataLoader) over a shardstream
//! [`Loader`](shardstream::Loader), so burn's `Learner` and any other code that trains from a `DataLoader`
//! can train from shards. The `Loader` shuffles, batches, divides the data among ranks, runs the threads and
//! skips damaged samples; burn's own shuffling, batching and worker threads are not needed. Each iteration
//! reads the next epoch.
//!
//! ```
//! use burn::data::dataloader::DataLoader;
//! use burn::tensor::{Device, Int, Tensor};
//! use shardstream::collate::{Columns, Scalar};
//! use shardstream::prelude::*;
//! use shardstream_burn::{ShardLoader, tensor_data};
//!
//! # let dir = tempfile::tempdir()?;
//! # let pattern = format!("{}/train-%06d.tar", dir.path().display());
//! # let mut writer = ShardWriter::builder(&pattern).max_count(20).build()?;
//! # for i in 0..80 { writer.write(&Sample::new(format!("{i:06}")).with("cls", i % 10))?; }
//! # writer.finish()?;
//! # let shards = pattern.replace("%06d", "{000000..000003}");
//! let dataset = Dataset::builder(&shards).auto_index(AutoIndex::beside());
//! let dataset = dataset.shuffle_shards(true).seed(42).build()?;
//! let columns = Columns::new().with("label", Scalar::<i32>::new("cls"));
//! let loader = Loader::builder(dataset).batch(16).collate(columns).last_batch(LastBatch::Drop).build()?;
//!
//! let train = ShardLoader::new(loader, 16, Device::flex(), |mut batch, device| {
//!     let labels = tensor_data(batch.take("label")?); // the loader's memory, without a copy
//!     Ok(Tensor::<1, Int>::from_data(labels, device))
//! });
//! assert_eq!(train.num_items(), 80);
//! for epoch in 0..2 {
//!     for labels in train.iter() {
//!         assert_eq!(labels?.dims(), [16]); // a step
//!     }
//! }
//! println!("{}", train.report()); // data readiness 100.0 % (0 of 8 late, …
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Several devices
//! burn's multi-device strategies divide a data loader into slices of its items, one for each device. Here
//! all slices read one epoch of the loader together: each of `n` devices takes every `n`-th batch, which is
//! uploaded to it ahead of the step. So no device has its own reader of the shards, and the loader can be
//! sliced without an index. All devices get the same number of batches; up to `n - 1` batches at the end of
//! an epoch are left out. With several processes, each process reads the shards of its rank: see
//! [`Topology`](shardstream::Topology).
//!
//! # Resume
//! burn saves checkpoints at the end of an epoch, without the state of its data loader: a resumed training
//! would begin again with the order of epoch 0. [`ShardLoader::checkpointer`] saves the state with the model;
//! on restore it checks the state against the shards and options of the job, and continues with the next
//! epoch. If a checkpoint has no state, set the next epoch with [`ShardLoader::first_epoch`]. To stop in the
//! middle of an epoch, save [`ShardLoader::state`], and pass it to [`ShardLoader::resume`], which continues
//! with the next batch.
//!
//! # Datasets of unknown length
//! Without an index, the number of items is not known. [`ShardLoader`] then reports [`UNKNOWN_ITEMS`] items,
//! so burn's progress bars stay at 0 % until the last batch of the epoch is returned.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(all(doctest, feature = "train"))]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(feature = "train")]
mod checkpointer;
mod error;
mod loader;
mod run;
mod shared;
mod split;
mod tensor;

#[cfg(feature = "train")]
pub use checkpointer::StateCheckpointer;
pub use error::SliceError;
pub use loader::{ShardLoader, UNKNOWN_ITEMS};
pub use tensor::tensor_data;
