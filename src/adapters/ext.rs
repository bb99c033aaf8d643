//! The extension traits: one list of adapters, for iterators and for streams.

use super::{
    Background, Batch, Batched, Chunked, Epochs, FromFields, MapItem, Rename, Select, Shuffle, Slice, Stage,
    Staged, ToTuple, TryMap, Unbatched, parallel,
};
use crate::codec::Decoder;
use crate::{Result, Rng, Sample};
use bytestring::ByteString;
use futures::Stream;
use std::ops::RangeBounds;

/// Writes an extension trait of `$base`, which is `Iterator` or `Stream`.
macro_rules! extension {
    ($(#[$doc:meta])* $name:ident of $base:ident { $($more:item)* }) => {
        $(#[$doc])*
        pub trait $name: $base + Sized {
            /// Puts a [`Stage`] behind this: one of your own.
            fn stage<T, C>(self, stage: C) -> Staged<Self, C>
            where
                Self: $base<Item = Result<T>>,
                C: Stage<T>,
            {
                Staged::new(self, stage)
            }

            /// Makes of each item another one, or an error: see [`Error::step`](crate::Error::step).
            fn try_map<T, U, F>(self, f: F) -> Staged<Self, TryMap<F>>
            where
                Self: $base<Item = Result<T>>,
                F: FnMut(T) -> Result<U>,
            {
                self.stage(TryMap(f))
            }

            /// Makes of each item another one.
            ///
            /// The closure gets what is in the `Ok`, where that of `map` gets the whole `Result`. (The usual
            /// name of this, `map_ok`, would be ambiguous beside that of `futures` or `itertools`.)
            fn map_item<T, U, F>(self, f: F) -> Staged<Self, MapItem<F>>
            where
                Self: $base<Item = Result<T>>,
                F: FnMut(T) -> U,
            {
                self.stage(MapItem(f))
            }

            /// Lets only those items through that the predicate is true of, and all errors.
            fn select<T, F>(self, predicate: F) -> Staged<Self, Select<F>>
            where
                Self: $base<Item = Result<T>>,
                F: FnMut(&T) -> bool,
            {
                self.stage(Select(predicate))
            }

            /// Gives samples in a random order within a buffer of `size` samples; with a size of 0 or 1 in
            /// the order in which they come.
            ///
            /// The order depends on the seed and the number of samples only. It is the same every time: for
            /// another one in each epoch, see [`shuffle_with`]($name::shuffle_with). An error comes out as
            /// soon as it is met, ahead of the samples in the buffer. The buffer holds
            /// [compact](Sample::compact) samples, so that no network chunk stays in memory for a few bytes
            /// of it; bound it by [`Staged::max_bytes`] where samples are large, and see [`Staged::initial`]
            /// to start sooner.
            fn shuffle(self, size: usize, seed: u64) -> Staged<Self, Shuffle<Sample>>
            where
                Self: $base<Item = Result<Sample>>,
            {
                self.shuffle_with(size, Rng::new(seed, 0, 0))
            }

            /// [`shuffle`]($name::shuffle) with random numbers of your own: for one order per epoch and
            /// stream, [`Rng::new(seed, epoch, stream)`](Rng::new).
            fn shuffle_with(self, size: usize, rng: Rng) -> Staged<Self, Shuffle<Sample>>
            where
                Self: $base<Item = Result<Sample>>,
            {
                self.stage(Shuffle::samples(size, rng))
            }

            /// [`shuffle`]($name::shuffle) for items of any type.
            ///
            /// The items stay in the buffer as they are. One that has a slice of a network chunk, such as the
            /// `Bytes` of a field, keeps the whole chunk in memory: shuffle samples rather, before they
            /// become other things.
            fn shuffle_items<T>(self, size: usize, rng: Rng) -> Staged<Self, Shuffle<T>>
            where
                Self: $base<Item = Result<T>>,
            {
                self.stage(Shuffle::items(size, rng))
            }

            /// Decodes the fields of samples by their extensions.
            ///
            /// A field that cannot be decoded makes an error of its sample. On several threads it is
            /// `par_map(threads, move |sample| decoder.decode(sample))`, of [`IteratorExt::par_map`].
            fn decode(self, decoder: Decoder) -> Staged<Self, Decoder>
            where
                Self: $base<Item = Result<Sample>>,
            {
                self.stage(decoder)
            }

            /// Gives fields other names: pairs of the new name and the old one.
            ///
            /// Where the old one has alternatives (`"jpg;png"`), the first one present is taken, and the
            /// others are removed. All fields that are not named stay, unless [`Staged::only`] is called.
            /// Names can be swapped. A sample without a field to rename becomes an error,
            /// [`ErrorKind::MissingField`](crate::ErrorKind::MissingField).
            fn rename<N, O>(self, names: impl IntoIterator<Item = (N, O)>) -> Staged<Self, Rename>
            where
                Self: $base<Item = Result<Sample>>,
                N: Into<ByteString>,
                O: Into<ByteString>,
            {
                self.stage(Rename::new(names))
            }

            /// Makes of each sample a tuple of its fields, as the types that are asked for:
            /// `to_tuple::<(Image, i64)>(["jpg;png", "cls"])`.
            ///
            /// There must be as many names as types. Alternatives are separated by a semicolon: the first one
            /// present is taken. Two names may choose the same field. A sample without the field becomes an
            /// error, [`ErrorKind::MissingField`](crate::ErrorKind::MissingField), and so does one whose
            /// field is of another type, [`ErrorKind::WrongType`](crate::ErrorKind::WrongType).
            fn to_tuple<R: FromFields>(self, names: R::Specs<'_>) -> Staged<Self, ToTuple<R>>
            where
                Self: $base<Item = Result<Sample>>,
            {
                self.stage(ToTuple::new(names))
            }

            /// Puts `size` items at a time into a [`Batch`].
            ///
            /// The last batch is smaller where the items don't come out even: see [`Staged::partial`] to drop
            /// it and [`Staged::pad`] to fill it up. An error comes out as soon as it is met, ahead of the
            /// batch, and the batch continues with the next item. A size of 0 is an error, the first and only
            /// item.
            fn batched<T>(self, size: usize) -> Staged<Self, Batched<T>>
            where
                Self: $base<Item = Result<T>>,
            {
                self.stage(Batched::new(size))
            }

            /// Gives the items of batches one by one, without the padding.
            fn unbatched<T>(self) -> Staged<Self, Unbatched<T>>
            where
                Self: $base<Item = Result<Batch<T>>>,
            {
                self.stage(Unbatched::new())
            }

            /// Joins documents of tokens, and cuts them into rows of `length`, whatever document they are of.
            ///
            /// [`Staged::separator`] puts a token behind each document. What is left at the end and does not
            /// fill a row is dropped, unless [`Staged::partial`] says otherwise. A row begins anywhere in a
            /// document, so that this has no state to resume from: behind a [loader](crate::Loader), a stop
            /// loses what is waiting for its row. [`PackedTokens`](crate::collate::PackedTokens) packs the
            /// documents of a batch and loses nothing.
            fn chunked<T>(self, length: usize) -> Staged<Self, Chunked<T>>
            where
                Self: $base<Item = Result<Vec<T>>>,
                T: Clone,
            {
                self.stage(Chunked::new(length))
            }

            /// Gives a range of the items: `slice(..1000)`, `slice(10..20)`.
            ///
            /// Errors come out, up to the end of the range, and are not counted, where `take` and `skip`
            /// count them. Nothing after the range is asked of the source.
            fn slice<T>(self, range: impl RangeBounds<usize>) -> Staged<Self, Slice>
            where
                Self: $base<Item = Result<T>>,
            {
                self.stage(Slice::new(range))
            }

            /// Cuts a source, usually an endless one, into epochs of `length` items. Each resumes where the
            /// last one stopped: see [`Epochs`].
            fn with_epoch<T>(self, length: usize) -> Epochs<Self>
            where
                Self: $base<Item = Result<T>>,
            {
                Epochs::new(self, length)
            }

            $($more)*
        }

        impl<S: $base> $name for S {}
    };
}

extension! {
    /// The adapters on iterators of [`Result`]s.
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    /// use shardstream::Sample;
    ///
    /// let samples = (0..10).map(|n| Ok(Sample::new(n.to_string()).with("cls", n)));
    /// let batches = samples.shuffle(100, 42).to_tuple::<(i64,)>(["cls"]).batched(4);
    /// let sizes: Vec<usize> = batches.map(|batch| batch.map(|b| b.len())).collect::<Result<_, _>>()?;
    /// assert_eq!(sizes, [4, 4, 2]);
    /// # Ok::<_, shardstream::Error>(())
    /// ```
    IteratorExt of Iterator {
        /// Runs everything before this on a thread of its own, up to `ahead` items ahead of the one that is
        /// asked for.
        ///
        /// The thread starts when the first item is asked for: see [`Background`].
        fn prefetch<T>(self, ahead: usize) -> Background<T>
        where
            Self: Iterator<Item = Result<T>> + Send + 'static,
            T: Send + 'static,
        {
            parallel::prefetch(self, ahead)
        }

        /// Makes of each item another one, or an error, on `threads` threads, and keeps the order: the
        /// outcome is that of [`try_map`](IteratorExt::try_map), whatever the number of threads.
        ///
        /// It is worth it where the closure takes tens of microseconds per item or more, as decoding an image
        /// does: to hand an item from thread to thread takes a few. Up to four items per thread are prepared
        /// ahead; [`Background::ahead`] changes that. What is before this runs on those threads too, one
        /// item at a time.
        ///
        /// ```
        /// use shardstream::adapters::IteratorExt;
        ///
        /// let squares = (0..100u64).map(Ok).par_map(4, |n| Ok(n * n));
        /// assert!(squares.map(Result::unwrap).eq((0..100).map(|n| n * n)));
        /// ```
        fn par_map<T, U, F>(self, threads: usize, f: F) -> Background<U>
        where
            Self: Iterator<Item = Result<T>> + Send + 'static,
            F: Fn(T) -> Result<U> + Send + Sync + 'static,
            U: Send + 'static,
        {
            parallel::par_map(self, threads, f)
        }
    }
}

extension! {
    /// The adapters on streams of [`Result`]s.
    ///
    /// It has its name in common with `futures::StreamExt`, but no method: import it as
    /// `use shardstream::adapters::StreamExt as _` beside that.
    ///
    /// ```
    /// use futures::{StreamExt as _, TryStreamExt as _, executor::block_on, stream};
    /// use shardstream::adapters::StreamExt as _;
    ///
    /// let batches = stream::iter(0..10).map(Ok).select(|n| n % 2 == 0).batched(3);
    /// let batches: Vec<_> = block_on(batches.try_collect())?;
    /// assert_eq!(*batches[1], [6, 8]);
    /// # Ok::<_, shardstream::Error>(())
    /// ```
    StreamExt of Stream {}
}
