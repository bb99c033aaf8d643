#![doc = include_str!("guide/links.md")]
#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! | stage | module | contents |
//! |---|---|---|
//! | which shards | [`shards`] | brace notation, wildcards, lists |
//! | order and split | [`topology`], [`plan`] | what each rank reads, and when: a pure function of the seed |
//! | bytes | [`store`] | local files, `gs://`, `s3://`, `az://`, `https://`, `hf://`, compression |
//! | samples | [`tar`], [`Sample`] | a sans-I/O parser, damage as typed errors |
//! | contents of the shards | [`index`] | counts and offsets of samples, without reading their data |
//! | dataset | [`dataset`] | the samples of this rank, read with all modules above |
//! | items | [`adapters`], [`codec`], [`image`] | shuffle, decode, map, batch, mix |
//! | batches for a device | [`collate`], [`tensor`] | samples written into slots of aligned memory |
//! | threads | [`loader`] | reads and decodes ahead of the trainer |
//! | mixtures as documents | `mixture` (feature `mixture`) | datasets, weights and their schedule in TOML |
//! | batches on devices | [`feed`] | uploads batches before their step, counts those ready in time |
//! | stop and resume | [`mod@state`] | the progress of a job, on any number of ranks |
//! | writing | [`mod@write`] | shards that read back unchanged |
//! | the pages of the documentation | [`guide`] | how to use all of this |
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
/// The prelude has the types that read, decode, batch, write and resume, the usual columns and transforms,
/// and the traits whose methods programs call. Import other names from their modules, as the examples do. The
/// prelude leaves out [`Result`] and [`Error`], because they would shadow other types of these names. It also
/// leaves out the traits that a program implements ([`Column`](crate::collate::Column),
/// [`Stage`](crate::adapters::Stage)). It imports [`StreamExt`](crate::adapters::StreamExt) as `_`, so that
/// its name does not clash with that of `futures::StreamExt`.
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
        CenterCrop, Image, ImageMode, Layout, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, Resize,
    };
    pub use crate::index::AutoIndex;
    pub use crate::loader::{Failures, LastBatch, OnError};
    #[doc(no_inline)]
    pub use crate::store::Store;
    pub use crate::write::ShardWriter;
    pub use crate::{Dataset, Feed, Index, Loader, Sample, ShardList, State, Topology, Value};
}
