//! The extension traits: one list of adapters, for iterators and for streams.

use super::{
    Background, Batch, Batched, Chunked, Epochs, FromFields, MapItem, Rename, Select, Shuffle, Sliced, Stage,
    Staged, ToTuple, TryMap, Unbatched, parallel,
};
use crate::codec::Decoder;
use crate::rng::Purpose;
use crate::{Result, Rng, Sample};
use bytestring::ByteString;
use futures::Stream;
use std::ops::RangeBounds;

/// Defines an extension trait of `$base`, which is `Iterator` or `Stream`. The examples use iterators in
/// both.
macro_rules! extension {
    ($(#[$doc:meta])* $name:ident of $base:ident { $($more:item)* }) => {
        $(#[$doc])*
        pub trait $name: $base + Sized {
            /// Appends a [`Stage`], such as one of your own.
            ///
            /// ```
            /// use shardstream::adapters::{GroupBy, IteratorExt};
            ///
            /// let numbers = [1, 2, 3, 4].into_iter().map(Ok);
            /// let pairs = numbers.stage(GroupBy::new(2, |n| Ok(n % 2)));
            /// assert_eq!(pairs.collect::<shardstream::Result<Vec<_>>>()?, [[1, 3], [2, 4]]);
            /// # Ok::<_, shardstream::Error>(())
            /// ```
            fn stage<T, C>(self, stage: C) -> Staged<Self, C>
            where
                Self: $base<Item = Result<T>>,
                C: Stage<T>,
            {
                Staged::new(self, stage)
            }

            /// Maps each item to another one or to an error, such as [`Error::step`](crate::Error::step).
            ///
            /// ```
            /// use shardstream::Error;
            /// use shardstream::adapters::IteratorExt;
            ///
            /// let texts = ["1", "two"].into_iter().map(Ok);
            /// let mut numbers = texts.try_map(|text| text.parse::<u8>().map_err(Error::step));
            /// assert_eq!(numbers.next().transpose()?, Some(1));
            /// assert!(numbers.next().unwrap().is_err());
            /// # Ok::<_, Error>(())
            /// ```
            fn try_map<T, U, F>(self, f: F) -> Staged<Self, TryMap<F>>
            where
                Self: $base<Item = Result<T>>,
                F: FnMut(T) -> Result<U>,
            {
                self.stage(TryMap(f))
            }

            /// Maps each item to another one.
            ///
            /// The closure gets the value of the `Ok`, where that of `map` gets the whole `Result`. (The
            /// usual name of this, `map_ok`, would be ambiguous beside that of `futures` or `itertools`.)
            ///
            /// ```
            /// use shardstream::adapters::IteratorExt;
            ///
            /// let squares = [1, 2, 3].into_iter().map(Ok).map_item(|n| n * n);
            /// assert_eq!(squares.collect::<shardstream::Result<Vec<_>>>()?, [1, 4, 9]);
            /// # Ok::<_, shardstream::Error>(())
            /// ```
            fn map_item<T, U, F>(self, f: F) -> Staged<Self, MapItem<F>>
            where
                Self: $base<Item = Result<T>>,
                F: FnMut(T) -> U,
            {
                self.stage(MapItem(f))
            }

            /// Keeps only the items for which the predicate is true, and all errors, those of the
            /// [predicate](crate::PredicateResult) included.
            ///
            /// ```
            /// use shardstream::adapters::IteratorExt;
            ///
            /// let even = (0..6).map(Ok).select(|n| n % 2 == 0);
            /// assert_eq!(even.collect::<shardstream::Result<Vec<_>>>()?, [0, 2, 4]);
            /// # Ok::<_, shardstream::Error>(())
            /// ```
            fn select<T, R, F>(self, predicate: F) -> Staged<Self, Select<F>>
            where
                Self: $base<Item = Result<T>>,
                R: $crate::PredicateResult,
                F: FnMut(&T) -> R,
            {
                self.stage(Select(predicate))
            }

            /// Shuffles samples in a buffer of `size` samples. A size of 0 or 1 keeps their order.
            ///
            /// The order depends on the seed and the number of samples only, and is the same every time: for
            /// a new one in each epoch, see [`shuffle_with`](Self::shuffle_with). An error is returned as
            /// soon as it is met, ahead of the samples in the buffer. The buffer holds
            /// [compact](Sample::compact) samples, so that a few bytes keep no network chunk in memory. Bound
            /// it by [`Staged::max_bytes`] if samples are large, and see [`Staged::initial`] to start sooner.
            ///
            /// ```
            /// use shardstream::Sample;
            /// use shardstream::adapters::IteratorExt;
            ///
            /// let samples = || ["a", "b", "c", "d"].into_iter().map(|key| Ok(Sample::new(key)));
            /// let keys = |seed| samples().shuffle(100, seed).map_item(|sample| sample.key().to_owned());
            /// let shuffled = keys(42).collect::<shardstream::Result<Vec<_>>>()?;
            /// assert_eq!(shuffled, keys(42).collect::<shardstream::Result<Vec<_>>>()?);
            /// assert_ne!(shuffled, ["a", "b", "c", "d"]);
            /// # Ok::<_, shardstream::Error>(())
            /// ```
            fn shuffle(self, size: usize, seed: u64) -> Staged<Self, Shuffle<Sample>>
            where
                Self: $base<Item = Result<Sample>>,
            {
                self.shuffle_with(size, Rng::keyed(Purpose::Shuffle, seed, 0, 0))
            }

            /// [`shuffle`](Self::shuffle) with a generator of your own: for a new order in each epoch and
            /// stream, [`Rng::new(seed, epoch, stream)`](Rng::new).
            ///
            /// ```
            /// use shardstream::adapters::IteratorExt;
            /// use shardstream::{Rng, Sample};
            ///
            /// let samples = || (0..100).map(|n| Ok(Sample::new(n.to_string())));
            /// let keys = |epoch| {
            ///     let shuffled = samples().shuffle_with(100, Rng::new(42, epoch, 0));
            ///     let keys = shuffled.map_item(|sample| sample.key().to_owned());
            ///     keys.collect::<shardstream::Result<Vec<_>>>()
            /// };
            /// assert_ne!(keys(0)?, keys(1)?);
            /// # Ok::<_, shardstream::Error>(())
            /// ```
            fn shuffle_with(self, size: usize, rng: Rng) -> Staged<Self, Shuffle<Sample>>
            where
                Self: $base<Item = Result<Sample>>,
            {
                self.stage(Shuffle::samples(size, rng))
            }

            /// [`shuffle`](Self::shuffle) for items of any type.
            ///
            /// The buffer holds the items as they are. An item with a slice of a network chunk, such as the
            /// `Bytes` of a field, keeps the whole chunk in memory: shuffle samples instead, before they
            /// become other items.
            ///
            /// ```
            /// use shardstream::Rng;
            /// use shardstream::adapters::IteratorExt;
            ///
            /// let shuffled = (0..12).map(Ok).shuffle_items(4, Rng::new(42, 0, 0));
            /// let shuffled = shuffled.collect::<shardstream::Result<Vec<_>>>()?;
            /// assert_eq!(shuffled, [2, 3, 1, 5, 0, 4, 6, 8, 10, 7, 9, 11]);
            /// # Ok::<_, shardstream::Error>(())
            /// ```
            fn shuffle_items<T>(self, size: usize, rng: Rng) -> Staged<Self, Shuffle<T>>
            where
                Self: $base<Item = Result<T>>,
            {
                self.stage(Shuffle::items(size, rng))
            }

            /// Decodes the fields of samples by their extensions.
            ///
            /// A sample with a field that cannot be decoded becomes an error. To decode on several threads,
            /// use [`IteratorExt::par_map`]: `par_map(threads, move |sample| decoder.decode(sample))`.
            ///
            /// ```
            /// use shardstream::adapters::IteratorExt;
            /// use shardstream::codec::Decoder;
            /// use shardstream::{Sample, Value};
            ///
            /// let stored = [Ok(Sample::new("a").with("cls", b"7"))].into_iter();
            /// let sample = stored.decode(Decoder::new()).next().unwrap()?;
            /// assert!(matches!(sample.get("cls"), Some(Value::Int(7))));
            /// # Ok::<_, shardstream::Error>(())
            /// ```
            fn decode(self, decoder: Decoder) -> Staged<Self, Decoder>
            where
                Self: $base<Item = Result<Sample>>,
            {
                self.stage(decoder)
            }

            /// Renames fields: pairs of the new name and the old one.
            ///
            /// If the old name has alternatives (`"jpg;png"`), the first one present is renamed, and the
            /// others are removed. Fields that are not named stay, unless [`Staged::only`] is called. Names
            /// can be swapped. A sample without a field to rename becomes an error,
            /// [`ErrorKind::MissingField`](crate::ErrorKind::MissingField).
            ///
            /// ```
            /// use shardstream::Sample;
            /// use shardstream::adapters::IteratorExt;
            ///
            /// let samples = [Ok(Sample::new("a").with("png", b"...").with("cls", 7))].into_iter();
            /// let sample = samples.rename([("image", "jpg;png"), ("label", "cls")]).next().unwrap()?;
            /// assert!(sample.get("image").is_some() && sample.get("png").is_none());
            /// # Ok::<_, shardstream::Error>(())
            /// ```
            fn rename<N, O>(self, names: impl IntoIterator<Item = (N, O)>) -> Staged<Self, Rename>
            where
                Self: $base<Item = Result<Sample>>,
                N: Into<ByteString>,
                O: Into<ByteString>,
            {
                self.stage(Rename::new(names))
            }

            /// Converts each sample to a tuple of its fields, of the types that are asked for.
            ///
            /// There must be as many names as types. Alternatives are separated by a semicolon: the first one
            /// present is taken. Two names may choose the same field. A sample without the field becomes an
            /// error, [`ErrorKind::MissingField`](crate::ErrorKind::MissingField), and so does one whose
            /// field has another type, [`ErrorKind::WrongType`](crate::ErrorKind::WrongType).
            ///
            /// ```
            /// use shardstream::Sample;
            /// use shardstream::adapters::IteratorExt;
            ///
            /// let samples = [Ok(Sample::new("a").with("txt", "a cat").with("cls", 7))].into_iter();
            /// let (text, class) = samples.to_tuple::<(String, i64)>(["txt;json", "cls"]).next().unwrap()?;
            /// assert_eq!((&*text, class), ("a cat", 7));
            /// # Ok::<_, shardstream::Error>(())
            /// ```
            fn to_tuple<R: FromFields>(self, names: R::Specs<'_>) -> Staged<Self, ToTuple<R>>
            where
                Self: $base<Item = Result<Sample>>,
            {
                self.stage(ToTuple::new(names))
            }

            /// Collects `size` items at a time into a [`Batch`].
            ///
            /// The last batch is smaller if too few items are left: see [`Staged::partial`] to drop it, and
            /// [`Staged::pad`] to fill it up. An error is returned as soon as it is met, ahead of the batch
            /// being filled, which continues with the next item. A size of 0 is an error, the first and only
            /// item.
            ///
            /// ```
            /// use shardstream::adapters::IteratorExt;
            ///
            /// let batches = (0..5).map(Ok).batched(2);
            /// let batches = batches.map_item(|batch| batch.into_items());
            /// let batches = batches.collect::<shardstream::Result<Vec<_>>>()?;
            /// assert_eq!(batches, [vec![0, 1], vec![2, 3], vec![4]]);
            /// # Ok::<_, shardstream::Error>(())
            /// ```
            fn batched<T>(self, size: usize) -> Staged<Self, Batched<T>>
            where
                Self: $base<Item = Result<T>>,
            {
                self.stage(Batched::new(size))
            }

            /// Splits batches into their items again, without the padding.
            ///
            /// ```
            /// use shardstream::adapters::IteratorExt;
            ///
            /// let items = (0..5).map(Ok).batched(2).pad().unbatched();
            /// assert_eq!(items.collect::<shardstream::Result<Vec<_>>>()?, [0, 1, 2, 3, 4]);
            /// # Ok::<_, shardstream::Error>(())
            /// ```
            fn unbatched<T>(self) -> Staged<Self, Unbatched<T>>
            where
                Self: $base<Item = Result<Batch<T>>>,
            {
                self.stage(Unbatched::new())
            }

            /// Concatenates documents of tokens, and cuts them into rows of `length` tokens.
            ///
            /// [`Staged::separator`] appends a token to each document. A rest that does not fill a row is
            /// dropped, unless [`Staged::partial`] says otherwise. A row may start anywhere in a document, so
            /// this has no state to resume from: after a [loader](crate::Loader), a stop loses the tokens
            /// that wait for their row. Use [`LoaderBuilder::chunked`](crate::loader::LoaderBuilder::chunked)
            /// there, or pack the documents of a batch by [`PackedTokens`](crate::collate::PackedTokens).
            ///
            /// ```
            /// use shardstream::adapters::IteratorExt;
            ///
            /// let documents = [vec![1, 2, 3], vec![4, 5]].into_iter().map(Ok);
            /// let rows = documents.chunked(2).separator(0).collect::<shardstream::Result<Vec<_>>>()?;
            /// assert_eq!(rows, [[1, 2], [3, 0], [4, 5]]);
            /// # Ok::<_, shardstream::Error>(())
            /// ```
            fn chunked<T>(self, length: usize) -> Staged<Self, Chunked<T>>
            where
                Self: $base<Item = Result<Vec<T>>>,
                T: Clone,
            {
                self.stage(Chunked::new(length))
            }

            /// Takes a range of the items: `slice(..1000)`, `slice(10..20)`.
            ///
            /// Errors up to the end of the range are returned and not counted, where `take` and `skip` count
            /// them. Nothing after the range is asked of the source.
            ///
            /// ```
            /// use shardstream::adapters::IteratorExt;
            ///
            /// let items = (0..10).map(Ok).slice(2..5);
            /// assert_eq!(items.collect::<shardstream::Result<Vec<_>>>()?, [2, 3, 4]);
            /// # Ok::<_, shardstream::Error>(())
            /// ```
            fn slice<T>(self, range: impl RangeBounds<usize>) -> Staged<Self, Sliced>
            where
                Self: $base<Item = Result<T>>,
            {
                self.stage(Sliced::new(range))
            }

            /// Cuts a source, usually an endless one, into epochs of `length` items. Each epoch resumes where
            /// the last one stopped: see [`Epochs`].
            ///
            /// ```
            /// use shardstream::adapters::IteratorExt;
            ///
            /// let mut epochs = (0..).map(Ok).with_epoch(3);
            /// assert_eq!(epochs.epoch().collect::<shardstream::Result<Vec<_>>>()?, [0, 1, 2]);
            /// assert_eq!(epochs.epoch().collect::<shardstream::Result<Vec<_>>>()?, [3, 4, 5]);
            /// # Ok::<_, shardstream::Error>(())
            /// ```
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
    /// Adapters on iterators of [`Result`]s.
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
        /// Runs everything before this on a thread, up to `ahead` items ahead of the one that is asked for.
        ///
        /// The thread starts when the first item is asked for: see [`Background`].
        ///
        /// ```
        /// use shardstream::adapters::IteratorExt;
        ///
        /// let numbers = (0..4).map(Ok).prefetch(2);
        /// assert_eq!(numbers.collect::<shardstream::Result<Vec<_>>>()?, [0, 1, 2, 3]);
        /// # Ok::<_, shardstream::Error>(())
        /// ```
        fn prefetch<T>(self, ahead: usize) -> Background<T>
        where
            Self: Iterator<Item = Result<T>> + Send + 'static,
            T: Send + 'static,
        {
            parallel::prefetch(self, ahead)
        }

        /// Maps each item to another one or to an error, on `threads` threads, and keeps the order: the
        /// result is that of [`try_map`](IteratorExt::try_map) for any number of threads.
        ///
        /// It pays if the closure takes tens of microseconds per item or more, as decoding an image does:
        /// handing an item from thread to thread takes a few. Up to four items per thread are prepared ahead;
        /// [`Background::ahead`] changes that. The source runs on those threads too, one item at a time.
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
    /// Adapters on streams of [`Result`]s: those of [`IteratorExt`], with the same results.
    ///
    /// It shares its name with `futures::StreamExt`, but no method: import it as
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
