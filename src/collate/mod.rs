//! Collates samples into batches of tensors.
//!
//! [`Columns`] map fields of a sample to tensors of a batch. Each [`Column`] writes its field directly into
//! the sample's slot of the batch, on the thread that decodes the field, without an intermediate picture or
//! array. The memory of batches is reused.
//!
//! | column | content of its tensor |
//! |---|---|
//! | [`Scalar`] | one number |
//! | `ImageColumn` (feature `image`) | a picture, transformed |
//! | [`ArrayColumn`] | an array of a fixed shape: npy, raw numbers, safetensors |
//! | [`Tokens`] | a sequence of whole numbers, padded to a length |
//! | [`PackedTokens`] | the sequences of a batch, packed into rows |
//! | [`Ragged`], [`Text`], [`Blob`] | numbers, text and bytes of any length |
//! | `ImageColumn::boxes` and `mask` | boxes and label images that follow the picture's crop and flip |
//! | `RaggedImages` (feature `image`) | any number of pictures per sample |
//! | [`Origin`] | the key, shard or position of a sample |
//! | [`Optional`] | the tensor of another column, for a field that samples may lack |
//! | [`Stack`] | several columns of one shape in one tensor, such as several pictures |
//! | [`Columns::with_fn`] | the numbers that a function writes |
//! | a [`Column`] of your own | anything |
//!
//! [`Mixup`] and `CutMix` mix the pictures and labels of a finished batch.
//!
//! ```
//! use shardstream::prelude::*;
//!
//! let dataset = Dataset::builder("docs/data/digits-{000000..000003}.tar").build()?;
//! let columns = Columns::new().with("label", Scalar::<i32>::new("cls"));
//! let loader = Loader::builder(dataset)
//!     .collate(columns)
//!     .batch(8)
//!     .last_batch(LastBatch::Drop)
//!     .build()?;
//! for batch in loader.epoch(0) {
//!     let batch = batch?;
//!     assert_eq!(batch["label"].shape(), [8]);
//!     let labels: &[i32] = batch["label"].as_slice()?;
//!     assert!(labels.iter().all(|label| *label < 10));
//! }
//! # Ok::<(), shardstream::Error>(())
//! ```

mod array;
#[cfg(feature = "audio")]
mod audio;
mod batch;
#[cfg(feature = "image")]
mod boxes;
mod cell;
mod check;
mod collator;
mod column;
#[cfg(feature = "image")]
mod cutmix;
mod field;
mod fit;
mod function;
#[cfg(feature = "image")]
mod image;
#[cfg(feature = "image")]
mod mask;
mod mixup;
mod number;
mod optional;
mod origin;
mod packed;
mod ragged;
#[cfg(feature = "image")]
mod ragged_images;
mod scalar;
mod stack;
mod step;
mod tokens;

pub use array::ArrayColumn;
#[cfg(feature = "audio")]
pub use audio::{AudioColumn, Cut};
pub use batch::TensorBatch;
#[cfg(feature = "image")]
pub use boxes::{BoxFormat, Boxes};
pub use cell::{Cell, Output, Shape};
pub(crate) use collator::{Collator, Row, RowSlots, SlotAllocator};
pub use column::{Column, Columns};
#[cfg(feature = "image")]
pub use cutmix::CutMix;
pub(crate) use fit::{RowFit, fit_decreasing};
#[cfg(feature = "image")]
pub use image::ImageColumn;
#[cfg(feature = "image")]
pub use mask::Mask;
pub use mixup::Mixup;
pub use optional::Optional;
pub use origin::Origin;
pub use packed::PackedTokens;
pub use ragged::{Blob, Ragged, Text};
#[cfg(feature = "image")]
pub use ragged_images::RaggedImages;
pub use scalar::Scalar;
pub use stack::Stack;
pub(crate) use step::Step;
pub use tokens::Tokens;
