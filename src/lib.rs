#![doc = include_str!("guide/links.md")]
#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! | stage | module | what it knows |
//! |---|---|---|
//! | which shards | [`shards`] | brace notation, wildcards, lists |
//! | which rank reads what, in which order | [`topology`], [`plan`] | ranks and workers; a pure function of the seed |
//! | bytes | [`store`] | local files, `gs://`, `s3://`, `az://`, `https://`, `hf://`, compression |
//! | samples | [`tar`], [`Sample`] | a sans-I/O parser, damage as typed errors |
//! | contents of the shards | [`index`] | counts and offsets of samples, without reading them |
//! | all of the above as one | [`dataset`] | the samples of this rank |
//! | items | [`adapters`], [`codec`], [`image`] | shuffle, decode, map, batch, mix |
//! | batches for a device | [`collate`], [`tensor`] | samples written into slots of aligned memory |
//! | threads | [`loader`] | all of it, ahead of the trainer |
//! | mixtures as documents | `mixture` (feature `mixture`) | datasets, weights and their schedule in TOML |
//! | batches on devices | [`feed`] | uploads ahead of the step, and the share that was in time |
//! | stop and resume | [`mod@state`] | how far a job has come, on any number of ranks |
//! | writing | [`mod@write`] | shards that read back as they are |
//! | the pages of the documentation | [`guide`] | how all of this is used |
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod adapters;
#[cfg(feature = "audio")]
pub mod audio;
pub mod codec;
pub mod collate;
mod cpu_time;
pub mod dataset;
pub mod feed;
pub mod formats;
#[cfg(all(any(doc, doctest), feature = "image"))]
pub mod guide;
#[cfg(feature = "image")]
pub mod image;
pub mod index;
mod json;
pub mod loader;
#[cfg(feature = "mixture")]
pub mod mixture;
pub mod plan;
mod predicate;
mod sample;
pub mod shards;
pub mod state;
pub mod store;
pub mod tar;
pub mod tensor;
pub mod topology;
pub mod write;

use shardstream_base::{
    activity, aligned, dtype, file_kind, memory, panic, read_buffer, rng, seconds, secret_url, telemetry,
    wait,
};

#[doc(no_inline)]
pub use bytes;
pub use dataset::Dataset;
pub use error::{Attempts, Error, ErrorKind, Location, Result};
pub use feed::Feed;
#[doc(no_inline)]
pub use half;
pub use index::Index;
pub use loader::Loader;
pub use predicate::PredicateResult;
pub use sample::{Array, FromValue, Position, Sample, Value};
pub use shards::ShardList;
#[doc(inline)]
pub use shardstream_base::error;
#[doc(inline)]
pub use shardstream_base::{Rng, SecretUrl};
pub use state::{Digest, State};
pub use topology::Topology;

/// The names that most programs use: `use shardstream::prelude::*;`.
///
/// The prelude has what it takes to read, decode, batch, write and resume, the usual columns and transforms,
/// and the traits whose methods programs call. Import other names from their modules, as the examples do. It
/// has neither [`Result`] and [`Error`], which would hide others of these names, nor traits to implement
/// ([`Column`](crate::collate::Column), [`Stage`](crate::adapters::Stage)).
/// [`StreamExt`](crate::adapters::StreamExt) is imported as `_`, so that it does not clash with that of
/// `futures`.
pub mod prelude {
    pub use crate::adapters::{Batch, IteratorExt, Pipeline, StreamExt as _};
    #[doc(no_inline)]
    pub use crate::codec::{DType, Decoder};
    #[cfg(feature = "image")]
    pub use crate::collate::ImageColumn;
    pub use crate::collate::{Columns, PackedTokens, Scalar, TensorBatch, Text, Tokens};
    #[cfg(feature = "image")]
    #[doc(no_inline)]
    pub use crate::image::{
        Image, ImageMode, Layout, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, Resize,
    };
    pub use crate::index::AutoIndex;
    pub use crate::loader::{Failures, LastBatch, OnError};
    #[doc(no_inline)]
    pub use crate::store::Store;
    pub use crate::write::ShardWriter;
    pub use crate::{Dataset, Feed, Index, Loader, Sample, ShardList, State, Topology, Value};
}
