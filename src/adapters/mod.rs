//! Adapters on iterators and streams: the stages between samples and batches.
//!
//! [`Pipeline`] is an iterator or a stream of [`Result`](crate::Result)s with stages as methods. The methods
//! have the same names, arguments and results as the methods of a
//! [`LoaderBuilder`](crate::loader::LoaderBuilder). Each stage is a [`Stage`], a state machine. Iterators and
//! streams drive the same state machine, so their results are the same.
//!
//! | stage | what it does |
//! |---|---|
//! | [`map`](Pipeline::map) | map each item to another one |
//! | [`filter`](Pipeline::filter) | keep the items for which a predicate is true |
//! | [`filter_map`](Pipeline::filter_map) | map each item to another one, or to none |
//! | [`flat_map`](Pipeline::flat_map) | map each item to any number of others |
//! | [`shuffle`](Pipeline::shuffle) | shuffle in a buffer |
//! | [`decode`](Pipeline::decode) | decode the fields of samples |
//! | [`rename`](Pipeline::rename), [`rename_only`](Pipeline::rename_only) | rename fields |
//! | [`to_tuple`](Pipeline::to_tuple) | convert samples to tuples of Rust types |
//! | [`batch`](Pipeline::batch), [`last_batch`](Pipeline::last_batch) | collect items into batches |
//! | [`buckets`](Pipeline::buckets) | make batches of a few shapes |
//! | [`collate`](Pipeline::collate) | convert batches of samples to tensors |
//! | [`map_batch`](Pipeline::map_batch) | map each batch to another one |
//! | [`mix`](Pipeline::mix), [`weight`](Pipeline::weight) | mix several sources by weights |
//! | [`chunked`](Pipeline::chunked) | cut documents of tokens into rows of one length |
//! | [`pack`](Pipeline::pack) | pack whole documents into rows |
//! | [`group_by`](Pipeline::group_by) | group items by class, speaker or video |
//! | [`stage`](Pipeline::stage) | append a stage of your own |
//!
//! These adapters exist only for pipelines:
//!
//! | adapter | what it does |
//! |---|---|
//! | [`unbatch`](Pipeline::unbatch) | split batches into items |
//! | [`slice`](Pipeline::slice) | take a range of the items |
//! | [`epoch`](Pipeline::epoch) | cut an endless source into epochs |
//! | [`par_map`](Pipeline::par_map) | `map` on several threads, in the same order |
//! | [`prefetch`](Pipeline::prefetch) | run all earlier stages in advance on a thread |
//! | [`round_robin`], [`random_mix`] | mix several iterators or streams of any items |
//!
//! `par_map` and `prefetch` are for iterators. [`into_stream`](Pipeline::into_stream) converts their result
//! to a stream; `futures::executor::block_on_stream` converts a stream to an iterator.
//!
//! # Errors
//!
//! An error passes through all stages immediately, ahead of the items that wait in a buffer or a batch. It
//! does not end the iteration: the next call returns the next item. The caller decides whether to stop or to
//! skip the error.
//!
//! ```
//! use shardstream::adapters::IteratorExt;
//! use shardstream::{Error, Result};
//!
//! let texts = ["1", "2", "three", "4"].into_iter().map(Ok).pipeline();
//! let batches = texts.map(|text| text.parse::<i32>().map_err(Error::step)).batch(2).results();
//! let shown: Vec<_> = batches.map(|batch| batch.map_or("error".into(), |b| format!("{:?}", &*b))).collect();
//! assert_eq!(shown, ["[1, 2]", "error", "[4]"]);
//! ```
//!
//! # Options
//!
//! Options follow their stage: `batch(32).last_batch(LastBatch::Pad)`, `shuffle(1000).initial(100)`. With a
//! bad option, the first and only item is an error.

mod batch;
mod batched;
mod bucket_queues;
mod buckets;
mod chunked;
mod collated;
mod decode;
mod fields;
mod filter;
mod group_by;
mod last_batch;
mod map;
mod methods;
mod mix;
mod pack;
mod parallel;
mod pipeline;
mod rename;
mod shaped_items;
mod shuffle;
mod sliced;
mod stage;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod to_tuple;
mod unbatched;

pub use batch::Batch;
pub(crate) use batch::{pad_to, reserve};
pub use batched::{Batched, Partial};
pub(crate) use bucket_queues::{BucketQueues, Measured, Taken};
pub use buckets::Buckets;
pub(crate) use buckets::{BucketPlan, NOT_DROPPED};
pub use chunked::Chunked;
pub(crate) use filter::Filtered;
pub use group_by::GroupBy;
pub use last_batch::LastBatch;
pub(crate) use map::{FilterMap, FlatMap, Map};
pub use mix::{Mix, random_mix, round_robin};
pub use pack::{Fit, Pack, PackedRow};
pub use parallel::{Background, IntoStream};
pub(crate) use parallel::{PollItem, Threads, prefetch};
pub use pipeline::{IteratorExt, Pipeline, StreamExt};
pub(crate) use rename::Rename;
pub use shuffle::Shuffle;
pub(crate) use shuffle::{ReplayedBuffer, replay};
pub(crate) use sliced::Sliced;
pub(crate) use stage::bad_option;
pub use stage::{SavedStage, Stage, Staged};
pub use to_tuple::FromFields;
pub(crate) use to_tuple::ToTuple;
pub(crate) use unbatched::Unbatched;
