//! The methods of `Pipeline` that append stages. They have the same names, arguments and results as the
//! methods of `LoaderBuilder`.

use super::{
    Background, Batch, Batched, Chunked, FilterMap, Filtered, FlatMap, FromFields, GroupBy, IntoStream, Map,
    Pack, PackedRow, Pipeline, Rename, Shuffle, Sliced, Stage, Staged, ToTuple, Unbatched, parallel,
};
use crate::codec::Decoder;
use crate::{PredicateResult, Result, Sample};
use bytestring::ByteString;
use std::fmt::Debug;
use std::hash::Hash;
use std::ops::RangeBounds;

/// Stages on items of any type.
impl<S, T> Pipeline<S, T> {
    /// Appends any [`Stage`], such as your own. Errors of its options contain `name`.
    ///
    /// ```
    /// use shardstream::adapters::{GroupBy, IteratorExt};
    ///
    /// let numbers = [1, 2, 3, 4].into_iter().map(Ok).pipeline();
    /// let pairs = numbers.stage("pairs", || GroupBy::new(2, |n| Ok(n % 2)));
    /// assert_eq!(pairs.collect::<shardstream::Result<Vec<_>>>()?, [[1, 3], [2, 4]]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn stage<C: Stage<T>>(
        self,
        name: impl Into<String>,
        make: impl FnOnce() -> C,
    ) -> Pipeline<Staged<S, C>, C::Out> {
        self.over(|source| Staged::new(source, make()).named(name.into()))
    }

    /// Maps each item to another one or to an error, such as [`Error::step`](crate::Error::step).
    ///
    /// ```
    /// use shardstream::Error;
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let texts = ["1", "two"].into_iter().map(Ok).pipeline();
    /// let mut numbers = texts.map(|text| text.parse::<u8>().map_err(Error::step));
    /// assert_eq!(numbers.next().transpose()?, Some(1));
    /// assert!(numbers.next().unwrap().is_err());
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn map<U, F>(self, f: F) -> Pipeline<Staged<S, impl Stage<T, Out = U> + Debug>, U>
    where
        F: FnMut(T) -> Result<U>,
    {
        self.then(Map(f))
    }

    /// Maps each batch to another batch or another type, for example to mix its pictures, or to convert it
    /// for a framework. It does the same as [`map`](Pipeline::map), under the name of the [loader's
    /// method](crate::loader::LoaderBuilder::map_batch).
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let batches = (1..7).map(Ok).pipeline().batch(3);
    /// let sums = batches.map_batch(|batch| Ok(batch.iter().sum::<i32>()));
    /// assert_eq!(sums.collect::<shardstream::Result<Vec<_>>>()?, [6, 15]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[doc(alias = "collate_fn")]
    pub fn map_batch<U, F>(self, f: F) -> Pipeline<Staged<S, impl Stage<T, Out = U> + Debug>, U>
    where
        F: FnMut(T) -> Result<U>,
    {
        self.map(f)
    }

    /// Keeps the items for which the predicate returns true. Errors are kept, including errors of the
    /// [predicate](crate::PredicateResult).
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let even = (0..6).map(Ok).pipeline().filter(|n| n % 2 == 0);
    /// assert_eq!(even.collect::<shardstream::Result<Vec<_>>>()?, [0, 2, 4]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[doc(alias = "select")]
    pub fn filter<R, F>(self, predicate: F) -> Pipeline<Staged<S, impl Stage<T, Out = T> + Debug>, T>
    where
        R: PredicateResult,
        F: FnMut(&T) -> R,
    {
        self.then(Filtered(predicate))
    }

    /// Maps each item to another one, or drops the item.
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let halves = (0..6).map(Ok).pipeline().filter_map(|n| Ok((n % 2 == 0).then_some(n / 2)));
    /// assert_eq!(halves.collect::<shardstream::Result<Vec<_>>>()?, [0, 1, 2]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn filter_map<U, F>(self, f: F) -> Pipeline<Staged<S, impl Stage<T, Out = U> + Debug>, U>
    where
        F: FnMut(T) -> Result<Option<U>>,
    {
        self.then(FilterMap(f))
    }

    /// Maps each item to any number of items.
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let twice = (0..3).map(Ok).pipeline().flat_map(|n| Ok([n, n * 10]));
    /// assert_eq!(twice.collect::<shardstream::Result<Vec<_>>>()?, [0, 0, 1, 10, 2, 20]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn flat_map<I, F>(self, f: F) -> Pipeline<Staged<S, impl Stage<T, Out = I::Item> + Debug>, I::Item>
    where
        I: IntoIterator,
        F: FnMut(T) -> Result<I>,
    {
        self.then(FlatMap::new(f))
    }

    /// Shuffles items in a buffer of `size` items. A size of 0 or 1 keeps their order.
    ///
    /// The order depends only on the [seed](Pipeline::seed) and the number of items. For a dataset with one
    /// logical stream, the order is the same as in a [`Loader`](crate::Loader), which has one buffer for each
    /// stream. An error is returned as soon as it occurs, before the items in the buffer. See
    /// [`initial`](Pipeline::initial) to return the first items sooner.
    ///
    /// Shuffle samples before they are converted to other items. The buffer [compacts](Sample::compact)
    /// samples, so that a small sample does not keep a whole network chunk in memory. Items of other types
    /// are held unchanged.
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let shuffled = (0..12).map(Ok).pipeline().seed(42, 0, 0).shuffle(4);
    /// let shuffled = shuffled.collect::<shardstream::Result<Vec<_>>>()?;
    /// assert_eq!(shuffled, [3, 4, 5, 2, 7, 0, 6, 8, 11, 1, 10, 9]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn shuffle(mut self, size: usize) -> Pipeline<Staged<S, Shuffle<T>>, T>
    where
        T: 'static,
    {
        let rng = self.next_rng();
        self.then(Shuffle::of_any(size, rng))
    }

    /// Collects `size` items at a time into a [`Batch`].
    ///
    /// The last batch is smaller if too few items are left: see [`last_batch`](Pipeline::last_batch). An
    /// error is returned as soon as it occurs, before the current batch; the batch is then filled with later
    /// items. With a size of 0, the first and only item is an error.
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let batches = (0..5).map(Ok).pipeline().batch(2);
    /// let batches = batches.map(|batch| Ok(batch.into_items()));
    /// let batches = batches.collect::<shardstream::Result<Vec<_>>>()?;
    /// assert_eq!(batches, [vec![0, 1], vec![2, 3], vec![4]]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[doc(alias = "batched")]
    #[doc(alias = "batch_size")]
    pub fn batch(self, size: usize) -> Pipeline<Staged<S, Batched<T>>, Batch<T>> {
        self.then(Batched::new(size))
    }

    /// Collects items with the same key into groups of `size`, for example samples of one class, speaker or
    /// video. To set options, pass a [`GroupBy`] to [`stage`](Pipeline::stage).
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let pairs = [1, 2, 3, 4, 5].into_iter().map(Ok).pipeline().group_by(2, |n| Ok(n % 2));
    /// assert_eq!(pairs.collect::<shardstream::Result<Vec<_>>>()?, [vec![1, 3], vec![2, 4], vec![5]]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[expect(clippy::type_complexity, reason = "an alias would hide which stage it is")]
    pub fn group_by<K, F>(self, size: usize, key: F) -> Pipeline<Staged<S, GroupBy<T, K, F>>, Vec<T>>
    where
        K: Eq + Hash + Clone,
        F: Fn(&T) -> Result<K>,
    {
        self.stage(format!("group_by({size})"), || GroupBy::new(size, key))
    }

    /// Takes a range of the items: `slice(..1000)`, `slice(10..20)`.
    ///
    /// Errors before the end of the range are returned and not counted. (`take` and `skip` of [`Iterator`]
    /// count them.) The source is not asked for items after the range.
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let items = (0..10).map(Ok).pipeline().slice(2..5);
    /// assert_eq!(items.collect::<shardstream::Result<Vec<_>>>()?, [2, 3, 4]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[doc(alias = "take")]
    #[doc(alias = "skip")]
    pub fn slice(
        self,
        range: impl RangeBounds<usize>,
    ) -> Pipeline<Staged<S, impl Stage<T, Out = T> + Debug>, T> {
        self.then(Sliced::new(range))
    }

    /// Cuts a source, which is usually endless, into epochs: returns an epoch of the next `length` items. An
    /// epoch is shorter if the source ends. Errors are returned in addition to these items.
    ///
    /// If an epoch is dropped before its end, the next epoch continues after the last returned item, and has
    /// its full length. An epoch is a stream only if the source is `Unpin`: use `Box::pin` for other sources.
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let mut numbers = (0..).map(Ok).pipeline();
    /// assert_eq!(numbers.epoch(3).collect::<shardstream::Result<Vec<_>>>()?, [0, 1, 2]);
    /// assert_eq!(numbers.epoch(3).collect::<shardstream::Result<Vec<_>>>()?, [3, 4, 5]);
    ///
    /// // Each epoch is shuffled with other random numbers.
    /// let mut numbers = (0..9).cycle().map(Ok).pipeline();
    /// let mut order = || numbers.epoch(9).shuffle(9).collect::<shardstream::Result<Vec<u32>>>();
    /// assert_ne!(order()?, order()?);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[doc(alias = "with_epoch")]
    pub fn epoch(&mut self, length: usize) -> Pipeline<Staged<&mut S, impl Stage<T, Out = T> + Debug>, T> {
        self.by_mut().then(Sliced::new(..length))
    }
}

/// Stages on samples.
impl<S> Pipeline<S, Sample> {
    /// Decodes the fields of samples by their extensions.
    ///
    /// A sample with a field that cannot be decoded is replaced by an error. To decode on several threads,
    /// use [`par_map`](Pipeline::par_map): `par_map(threads, move |sample| decoder.decode(sample))`.
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    /// use shardstream::codec::Decoder;
    /// use shardstream::{Sample, Value};
    ///
    /// let stored = [Ok(Sample::new("a").with("cls", b"7"))].into_iter();
    /// let sample = stored.pipeline().decode(Decoder::new()).next().unwrap()?;
    /// assert!(matches!(sample.get("cls"), Some(Value::Int(7))));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn decode(self, decoder: Decoder) -> Pipeline<Staged<S, Decoder>, Sample> {
        self.then(decoder)
    }

    /// Renames fields. `names` are pairs of the new name and the old name.
    ///
    /// If the old name has alternatives (`"jpg;png"`), the first field that the sample has is renamed, and
    /// the other alternatives are removed. Fields that are not named stay;
    /// [`rename_only`](Pipeline::rename_only) drops them. Names can be swapped. If a sample lacks a field to
    /// rename, it is replaced by an error, [`ErrorKind::MissingField`](crate::ErrorKind::MissingField).
    ///
    /// ```
    /// use shardstream::Sample;
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let samples = [Ok(Sample::new("a").with("png", b"...").with("cls", 7))].into_iter().pipeline();
    /// let sample = samples.rename([("image", "jpg;png"), ("label", "cls")]).next().unwrap()?;
    /// assert!(sample.get("image").is_some() && sample.get("png").is_none());
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn rename<N, O>(
        self,
        names: impl IntoIterator<Item = (N, O)>,
    ) -> Pipeline<Staged<S, impl Stage<Sample, Out = Sample> + Debug>, Sample>
    where
        N: Into<ByteString>,
        O: Into<ByteString>,
    {
        self.stage("rename", || Rename::new(names))
    }

    /// Like [`rename`](Pipeline::rename), and drops all fields that are not named.
    ///
    /// ```
    /// use shardstream::Sample;
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let samples = [Ok(Sample::new("a").with("jpg", b"...").with("cls", 7))].into_iter().pipeline();
    /// let sample = samples.rename_only([("label", "cls")]).next().unwrap()?;
    /// assert!(sample.get("label").is_some() && sample.get("jpg").is_none());
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn rename_only<N, O>(
        self,
        names: impl IntoIterator<Item = (N, O)>,
    ) -> Pipeline<Staged<S, impl Stage<Sample, Out = Sample> + Debug>, Sample>
    where
        N: Into<ByteString>,
        O: Into<ByteString>,
    {
        self.stage("rename_only", || Rename::new(names).only())
    }

    /// Converts each sample to a tuple of fields. Each field is converted to the type at its position in the
    /// tuple.
    ///
    /// `names` has one name for each type. A name may have alternatives separated by semicolons: the first
    /// field that the sample has is used. Two names may choose the same field. If a sample lacks the field,
    /// it is replaced by an error, [`ErrorKind::MissingField`](crate::ErrorKind::MissingField); if the field
    /// has another type, by [`ErrorKind::WrongType`](crate::ErrorKind::WrongType).
    ///
    /// ```
    /// use shardstream::Sample;
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let samples = [Ok(Sample::new("a").with("txt", "a cat").with("cls", 7))].into_iter().pipeline();
    /// let (text, class) = samples.to_tuple::<(String, i64)>(["txt;json", "cls"]).next().unwrap()?;
    /// assert_eq!((&*text, class), ("a cat", 7));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn to_tuple<R: FromFields>(
        self,
        names: R::Specs<'_>,
    ) -> Pipeline<Staged<S, impl Stage<Sample, Out = R> + Debug>, R> {
        self.then(ToTuple::new(names))
    }
}

/// Stages on documents of tokens.
impl<S, N> Pipeline<S, Vec<N>> {
    /// Concatenates documents of tokens and cuts the result into rows of `length` tokens. If `separator` is
    /// not `None`, it is added after each document.
    ///
    /// If the last tokens do not fill a row, they are dropped: see [`partial`](Pipeline::partial).
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let documents = [vec![1, 2, 3], vec![4, 5]].into_iter().map(Ok).pipeline();
    /// let rows = documents.chunked(2, 0).collect::<shardstream::Result<Vec<_>>>()?;
    /// assert_eq!(rows, [[1, 2], [3, 0], [4, 5]]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn chunked(
        self,
        length: usize,
        separator: impl Into<Option<N>>,
    ) -> Pipeline<Staged<S, Chunked<N>>, Vec<N>>
    where
        N: Clone,
    {
        self.then(Chunked::new(length, separator.into()))
    }

    /// [Packs](Pack) whole documents of tokens into rows of one length, with little padding. Use
    /// `pack(2048)`, or, to set options, `pack(Pack::new(2048).look_ahead(100))`.
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let documents = [vec![1; 5], vec![2; 2], vec![3; 3]].into_iter().map(Ok).pipeline();
    /// let rows: Vec<_> = documents.pack(8).collect::<shardstream::Result<_>>()?;
    /// assert_eq!(rows[0].tokens(), [1, 1, 1, 1, 1, 3, 3, 3]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn pack(self, pack: impl Into<Pack<N>>) -> Pipeline<Staged<S, Pack<N>>, PackedRow<N>> {
        let pack = pack.into();
        self.stage(pack.name(), || pack)
    }
}

impl<S, T> Pipeline<S, Batch<T>> {
    /// Splits batches into their items again, without the padding.
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let items = (0..5).map(Ok).pipeline().batch(2).unbatch();
    /// assert_eq!(items.collect::<shardstream::Result<Vec<_>>>()?, [0, 1, 2, 3, 4]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn unbatch(self) -> Pipeline<Staged<S, impl Stage<Batch<T>, Out = T> + Debug>, T> {
        self.then(Unbatched::new())
    }
}

/// Stages on threads of their own, for iterators. [`into_stream`](Pipeline::into_stream) converts the result
/// to a stream; `futures::executor::block_on_stream` converts a stream to an iterator.
impl<S, T> Pipeline<S, T>
where
    S: Iterator<Item = Result<T>> + Send + 'static,
    T: Send + 'static,
{
    /// Runs all earlier stages on another thread, which prepares up to `ahead` items in advance.
    ///
    /// The thread starts when the first item is asked for: see [`Background`].
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let numbers = (0..4).map(Ok).pipeline().prefetch(2);
    /// assert_eq!(numbers.collect::<shardstream::Result<Vec<_>>>()?, [0, 1, 2, 3]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn prefetch(self, ahead: usize) -> Pipeline<Background<T>, T> {
        self.over(|source| parallel::prefetch(source, ahead))
    }

    /// Maps each item to another one or to an error, on `threads` threads. The order is kept: for any number
    /// of threads, the result is the same as that of [`map`](Pipeline::map).
    ///
    /// Use it if the closure takes tens of microseconds per item or more, for example to decode an image.
    /// Passing an item between threads takes a few microseconds. Up to four items per thread are prepared in
    /// advance; [`ahead`](Pipeline::ahead) sets another number. The source runs on these threads too, one
    /// item at a time.
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let squares = (0..100u64).map(Ok).pipeline().par_map(4, |n| Ok(n * n));
    /// assert!(squares.results().map(Result::unwrap).eq((0..100).map(|n| n * n)));
    /// ```
    #[doc(alias = "num_workers")]
    pub fn par_map<U, F>(self, threads: usize, f: F) -> Pipeline<Background<U>, U>
    where
        F: Fn(T) -> Result<U> + Send + Sync + 'static,
        U: Send + 'static,
    {
        self.over(|source| parallel::par_map(source, threads, f))
    }
}

/// Options of [`prefetch`](Pipeline::prefetch) and [`par_map`](Pipeline::par_map).
impl<T> Pipeline<Background<T>, T> {
    /// Sets the number of items prepared in advance: see [`Background::ahead`].
    pub fn ahead(self, items: usize) -> Self {
        self.over(|background| background.ahead(items))
    }

    /// Starts the threads now: see [`Background::start`].
    pub fn start(&mut self) {
        self.source_mut().start();
    }

    /// Returns the same items as a stream, for any executor.
    ///
    /// ```
    /// use futures::{TryStreamExt as _, executor::block_on};
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let numbers = (0..3).map(Ok).pipeline().prefetch(2).into_stream();
    /// assert_eq!(block_on(numbers.try_collect::<Vec<_>>())?, [0, 1, 2]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn into_stream(self) -> Pipeline<IntoStream<Background<T>>, T> {
        self.over(Background::into_stream)
    }
}
