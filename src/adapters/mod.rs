//! The stages between samples and batches, on iterators and on streams.
//!
//! [`IteratorExt`] and [`StreamExt`] add the same adapters to iterators and to streams of
//! [`Result`](crate::Result)s: each is one [`Stage`], a state machine that both faces drive, so that they
//! give the same.
//!
//! | adapter | what it does |
//! |---|---|
//! | [`try_map`](IteratorExt::try_map), [`map_item`](IteratorExt::map_item) | another item for each item |
//! | [`par_map`](IteratorExt::par_map) | `try_map` on several threads, in the same order |
//! | [`select`](IteratorExt::select) | only the items that a predicate is true of |
//! | [`shuffle`](IteratorExt::shuffle), [`shuffle_with`](IteratorExt::shuffle_with), [`shuffle_items`](IteratorExt::shuffle_items) | a random order within a buffer |
//! | [`decode`](IteratorExt::decode) | raw fields become values |
//! | [`rename`](IteratorExt::rename) | other names for fields |
//! | [`to_tuple`](IteratorExt::to_tuple) | samples become tuples of Rust types |
//! | [`batched`](IteratorExt::batched), [`unbatched`](IteratorExt::unbatched) | items in lists of a fixed length, and back |
//! | [`chunked`](IteratorExt::chunked) | documents of tokens become rows of one length |
//! | [`stage`](IteratorExt::stage) with [`Pack`] | documents are packed into rows |
//! | [`stage`](IteratorExt::stage) with [`GroupBy`] | groups of items of one class, speaker or video |
//! | [`slice`](IteratorExt::slice) | a range of the items |
//! | [`with_epoch`](IteratorExt::with_epoch) | epochs of a fixed length that resume where the last one stopped |
//! | [`prefetch`](IteratorExt::prefetch) | everything before it runs ahead on a thread |
//! | [`stage`](IteratorExt::stage) | a stage of your own |
//! | [`round_robin`], [`random_mix`] | one source out of several |
//!
//! The names are those of Python's webdataset where it has the stage. None of them is a method of the
//! standard library, `futures` or `itertools`, so that all can be imported side by side; `map`, `take`,
//! `filter`, `chain` and the like are theirs. `par_map` and `prefetch` are for iterators, and their outcome
//! becomes a stream by [`Background::into_stream`]; `futures::executor::block_on_stream` makes an iterator of
//! a stream.
//!
//! # Errors
//!
//! An error passes every adapter at once, ahead of what is waiting in a buffer or a batch. It ends nothing:
//! the next call continues with the next item, and it is for the caller to stop or to skip.
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
//! An option that makes no sense is an error that comes out as the first and only item.

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
mod slice;
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
pub use parallel::{Background, BackgroundStream};
pub(crate) use parallel::Threads;
pub use rename::Rename;
pub use select::Select;
pub use shuffle::Shuffle;
pub(crate) use shuffle::{ReplayedBuffer, replay};
pub use slice::Slice;
pub use stage::{SavedStage, Stage, Staged};
pub use to_tuple::{FromFields, ToTuple};
pub use unbatched::Unbatched;
