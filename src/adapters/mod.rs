//! Adapters on iterators and streams: the stages between samples and batches.
//!
//! [`IteratorExt`] and [`StreamExt`] add the same adapters to iterators and to streams of
//! [`Result`](crate::Result)s. Each adapter is one [`Stage`], a state machine that iterators and streams
//! drive alike, so that the results are the same.
//!
//! | adapter | what it does |
//! |---|---|
//! | [`try_map`](IteratorExt::try_map), [`map_item`](IteratorExt::map_item) | map each item to another one |
//! | [`par_map`](IteratorExt::par_map) | `try_map` on several threads, in the same order |
//! | [`select`](IteratorExt::select) | keep the items for which a predicate is true |
//! | [`shuffle`], [`shuffle_with`], [`shuffle_items`] | shuffle in a buffer |
//! | [`decode`](IteratorExt::decode) | decode the fields of samples |
//! | [`rename`](IteratorExt::rename) | rename fields |
//! | [`to_tuple`](IteratorExt::to_tuple) | convert samples to tuples of Rust types |
//! | [`batched`](IteratorExt::batched) | collect items into batches |
//! | [`unbatched`](IteratorExt::unbatched) | split batches into items |
//! | [`chunked`](IteratorExt::chunked) | cut documents of tokens into rows of one length |
//! | [`stage`](IteratorExt::stage) with [`Pack`] | pack documents into rows |
//! | [`stage`](IteratorExt::stage) with [`GroupBy`] | group items by class, speaker or video |
//! | [`slice`](IteratorExt::slice) | take a range of the items |
//! | [`with_epoch`](IteratorExt::with_epoch) | cut an endless source into epochs |
//! | [`prefetch`](IteratorExt::prefetch) | run everything before it ahead on a thread |
//! | [`stage`](IteratorExt::stage) | append a stage of your own |
//! | [`round_robin`], [`random_mix`] | mix several sources |
//!
//! [`shuffle`]: IteratorExt::shuffle
//! [`shuffle_with`]: IteratorExt::shuffle_with
//! [`shuffle_items`]: IteratorExt::shuffle_items
//!
//! The names are those of Python's webdataset, where it has the stage. The standard library, `futures` and
//! `itertools` have no methods of these names, so that all can be imported side by side; `map`, `take`,
//! `filter`, `chain` and the like are theirs. `par_map` and `prefetch` are for iterators;
//! [`Background::into_stream`] turns their result into a stream, and `futures::executor::block_on_stream` a
//! stream into an iterator.
//!
//! # Errors
//!
//! An error passes every adapter at once, ahead of the items that wait in a buffer or a batch. It does not
//! end the iteration: the next call continues with the next item, and the caller decides whether to stop or
//! to skip.
//!
//! ```
//! use shardstream::adapters::IteratorExt;
//! use shardstream::{Error, Result};
//!
//! let numbers = ["1", "2", "three", "4"].into_iter().map(Ok);
//! let batches = numbers.try_map(|text| text.parse::<i32>().map_err(Error::step)).batched(2);
//! let shown: Vec<_> = batches.map(|batch| batch.map_or("error".into(), |b| format!("{:?}", &*b))).collect();
//! assert_eq!(shown, ["[1, 2]", "error", "[4]"]);
//! ```
//!
//! # Options
//!
//! Options are set on what an adapter returns: `batched(32).pad()`, `shuffle(1000, 42).max_bytes(1 << 30)`.
//! A bad option is an error, which is the first and only item.

mod batch;
mod batched;
mod buckets;
mod chunked;
mod decode;
mod epochs;
mod ext;
mod fields;
mod group_by;
mod map;
mod mix;
mod pack;
mod parallel;
mod rename;
mod select;
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
pub(crate) use buckets::BucketPlan;
pub use buckets::Buckets;
pub use chunked::Chunked;
pub use epochs::{Epoch, Epochs};
pub use ext::{IteratorExt, StreamExt};
pub use group_by::GroupBy;
pub use map::{MapItem, TryMap};
pub use mix::{Mix, random_mix, round_robin};
pub use pack::{Fit, Pack, PackedRow};
pub(crate) use parallel::Threads;
pub use parallel::{Background, BackgroundStream};
pub use rename::Rename;
pub use select::Select;
pub use shuffle::Shuffle;
pub(crate) use shuffle::{ReplayedBuffer, replay};
pub use sliced::Sliced;
pub use stage::{SavedStage, Stage, Staged};
pub use to_tuple::{FromFields, ToTuple};
pub use unbatched::Unbatched;
