//! Streams training data: WebDataset tar shards from object storage into any Rust trainer.
//!
//! Point it at tar shards in a bucket or on a disk, and get batches: in an order that is a pure function of a
//! seed, on any number of nodes and threads, with typed errors in place of silently wrong samples.
//!
//! # The way of a byte
//!
//! ```text
//!  urls ─► plan ─► fetch ─► parse ─► group ─► shuffle ─► decode ─► augment ─► batch ─► trainer
//! ```
//!
//! | stage | module | what it knows |
//! |---|---|---|
//! | which shards | [`shards`] | brace notation, wildcards, lists |
//! | who reads what, in which order | [`topology`], [`plan`] | ranks and workers; a pure function of the seed |
//! | bytes | [`store`] | local files, `gs://`, `s3://`, `az://`, `https://`, compression |
//! | samples | [`tar`], [`Sample`] | a sans-I/O parser, damage as typed errors |
//! | what is where in the shards | [`index`] | counts and offsets of samples, without reading them |
//! | all of the above as one | [`dataset`] | the samples of this rank |
//! | items | [`adapters`], [`codec`], [`image`] | shuffle, decode, map, batch, mix |
//! | batches for a device | [`collate`], [`tensor`] | samples written into slots of aligned memory |
//! | threads | [`loader`] | all of it, ahead of the trainer |
//! | mixtures as documents | `mixture` (feature `mixture`) | datasets, weights and their schedule in TOML |
//! | batches on devices | [`feed`] | uploads ahead of the step, and whether they were in time |
//! | stop and resume | [`mod@state`] | where a job is, on any number of ranks |
//! | the other direction | [`mod@write`] | shards that read back as they are |
//!
//! # A first pipeline
//!
//! ```
//! use shardstream::prelude::*;
//!
//! # fn main() -> shardstream::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let pattern = format!("{}/train-%06d.tar", dir.path().display());
//! # let mut writer = ShardWriter::builder(&pattern).max_count(25).build()?;
//! # for i in 0..100 {
//! #     let image = Image::new(ImageMode::Rgb8, 8, vec![i as u8; 192])?;
//! #     writer.write(&Sample::new(format!("{i:06}")).with("png", image).with("cls", i % 10))?;
//! # }
//! # writer.finish()?;
//! # let shards = pattern.replace("%06d", "{000000..000003}");
//! // let shards = "gs://my-bucket/train-{000000..000146}.tar";
//! let dataset = Dataset::builder(shards).streams(4).shuffle_shards(true).seed(42).build()?;
//!
//! let decoder = Decoder::new().images(ImageMode::Rgb8);
//! let loader = Loader::builder(dataset)
//!     .shuffle(1000)
//!     .map(move |sample| {
//!         let mut sample = decoder.decode(sample)?;
//!         Ok((sample.take::<Image>("jpg;png")?, sample.take::<i64>("cls")?))
//!     })
//!     .batch(32)
//!     .last_batch(LastBatch::Drop)
//!     .build()?;
//!
//! for epoch in 0..2 {
//!     for batch in loader.epoch(epoch) {
//!         let (images, labels): (Vec<Image>, Vec<i64>) = batch?.unzip();
//!         assert_eq!((images.len(), labels.len()), (32, 32));
//!         // train on them
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Other stages of a loader filter samples, split them and join them
//! ([`LoaderBuilder`](loader::LoaderBuilder)), and [`on_error`](loader::LoaderBuilder::on_error) skips
//! damaged ones. [`collate`](loader::LoaderBuilder::collate) makes batches of tensors, decoded and augmented
//! straight into memory that a device can take.
//!
//! Without threads, the same stages are adapters on any iterator of results
//! ([`IteratorExt`](adapters::IteratorExt)) or stream ([`StreamExt`](adapters::StreamExt)); and on their own
//! all of them are state machines without I/O.
//!
//! # What is random, and what is not
//!
//! The order of an epoch depends on the list of shards and their index, the seed, the epoch, the number of
//! logical streams, the bounds of the shuffle buffer and the stages. It does not depend on ranks, threads,
//! time or the network. Augmentations take their numbers from [`Sample::rng`], which depends on the seed, the
//! epoch and the sample.
//!
//! # Features
//!
//! | feature | what it adds | default |
//! |---|---|---|
//! | `gzip` | `.tar.gz` shards, `.gz` fields | yes |
//! | `image` | JPEG, PNG, WebP and PNM images, in pure Rust | yes |
//! | `turbojpeg` | JPEG by libjpeg-turbo: faster, and at the scale that serves (builds C; needs cmake and nasm) | |
//! | `npz`, `safetensors` | `.npz` fields; tensors of `.safetensors` fields | |
//! | `mixture` | mixtures of datasets as TOML documents | |
//! | `ndarray`, `dlpack` | tensors as arrays of `ndarray`, and for other frameworks by DLPack, without a copy | |
//! | `zstd` | `.tar.zst` shards (builds a C library) | |
//! | `gcs`, `s3`, `azure`, `http` | these stores, with TLS | |
//! | `tracing` | events and spans for a log: retries, stalls, skipped samples, epochs | yes |
//! | `metrics` | counters, gauges and distributions for the exporter of your choice | |
//! | `cli` | the program `shardstream`, which looks into shards, checks and indexes them; with the stores and `zstd` | |
#![cfg_attr(docsrs, feature(doc_cfg))]

mod activity;
pub mod adapters;
pub mod codec;
pub mod collate;
pub mod dataset;
mod dtype;
pub mod error;
pub mod feed;
#[cfg(feature = "image")]
pub mod image;
pub mod index;
pub mod loader;
mod memory;
#[cfg(feature = "mixture")]
pub mod mixture;
pub mod plan;
mod rng;
mod sample;
mod seconds;
mod secret_url;
pub mod shards;
pub mod state;
pub mod store;
pub mod tar;
mod telemetry;
pub mod tensor;
pub mod topology;
mod wait;
pub mod write;

pub use dataset::Dataset;
pub use error::{Attempts, Error, ErrorKind, Location, Result};
pub use feed::Feed;
pub use index::Index;
pub use loader::Loader;
pub use rng::Rng;
pub use sample::{Array, FromValue, Position, Sample, Value};
pub use secret_url::SecretUrl;
pub use shards::ShardList;
pub use state::{Digest, State};
pub use topology::Topology;

/// What most programs use: `use shardstream::prelude::*;`.
///
/// It has what reads, decodes, batches, writes and resumes, all columns, and all transforms of pictures. Not
/// in it are [`Result`] and [`Error`], which would hide others of these names, traits to implement
/// ([`Column`](crate::collate::Column), [`Stage`](crate::adapters::Stage)), and what few programs name.
/// [`StreamExt`](crate::adapters::StreamExt) comes without its name, so that it can be beside that of
/// `futures`.
pub mod prelude {
    pub use crate::adapters::{Batch, IteratorExt, Partial, StreamExt as _, random_mix, round_robin};
    pub use crate::codec::{Array, DType, Decoder, Encoder};
    pub use crate::collate::{
        ArrayColumn, Blob, Columns, KeyColumn, Mixup, Optional, PackedTokens, PositionColumn, Ragged, Scalar,
        ShardColumn, Stack, TensorBatch, Text, Tokens,
    };
    #[cfg(feature = "image")]
    pub use crate::collate::{BoxFormat, Boxes, CutMix, ImageColumn, Mask, RaggedImages};
    #[cfg(feature = "image")]
    pub use crate::image::{
        CenterCrop, ColorJitter, Filter, Frame, Image, ImageMode, Layout, Pixels, RandAugment, RandomCrop,
        RandomErasing, RandomGrayscale, RandomHorizontalFlip, RandomResizedCrop, Resize, Transforms,
        TrivialAugmentWide,
    };
    pub use crate::index::AutoIndex;
    pub use crate::loader::{Failures, LastBatch, OnError};
    pub use crate::store::{Budget, Cache, Store};
    pub use crate::write::ShardWriter;
    pub use crate::{Dataset, Digest, Feed, Index, Loader, Sample, ShardList, State, Topology, Value};
}

#[cfg(all(doctest, feature = "image"))]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(all(doctest, feature = "image"))]
#[doc = include_str!("../docs/guide.md")]
mod guide {}

#[cfg(all(doctest, feature = "image"))]
#[doc = include_str!("../docs/pipelines.md")]
mod pipelines {}

#[cfg(all(doctest, feature = "image"))]
#[doc = include_str!("../docs/determinism.md")]
mod determinism {}

#[cfg(all(doctest, feature = "image"))]
#[doc = include_str!("../docs/network.md")]
mod network {}

#[cfg(all(doctest, feature = "image"))]
#[doc = include_str!("../docs/batches.md")]
mod batches {}

#[cfg(all(doctest, feature = "image"))]
#[doc = include_str!("../docs/recipes.md")]
mod recipes {}

#[cfg(all(doctest, feature = "image"))]
#[doc = include_str!("../docs/trainers.md")]
mod trainers {}
