//! `round_robin` and `random_mix`: mix several sources into one.

use super::Stage;
use super::stage::config_text;
use crate::plan::DatasetOrder;
use crate::{ErrorKind, Result};
use futures::Stream;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Takes one item from each source in turn.
///
/// The mix ends when a source has no item at its turn; with [`longest`](Mix::longest), when all sources have
/// ended.
///
/// ```
/// use shardstream::adapters::round_robin;
///
/// let sources = || [vec![1, 2], vec![3], vec![4, 5, 6]].map(IntoIterator::into_iter);
/// assert_eq!(round_robin(sources()).collect::<Vec<_>>(), [1, 3, 4, 2]);
/// assert_eq!(round_robin(sources()).longest().collect::<Vec<_>>(), [1, 3, 4, 2, 5, 6]);
/// ```
pub fn round_robin<S>(sources: impl IntoIterator<Item = S>) -> Mix<S> {
    Mix::new(sources.into_iter().collect(), MixOrder::RoundRobin { next: 0 })
}

/// Takes items from several sources in random order, in proportion to their weights.
///
/// The order consists of windows. A window has as many items as the sum of the weights, and exactly `weight`
/// items from each source. A [mix of datasets](crate::Loader::mix) has the same order in each of its streams.
/// The order depends only on the seed and the weights. The mix ends when a source has no item at its turn;
/// with [`longest`](Mix::longest), the next source that has not ended takes the turn.
///
/// # Errors
/// [`ErrorKind::Config`] if a weight is 0, or if they add up to more than 65,536.
///
/// ```
/// use shardstream::adapters::random_mix;
///
/// let mix = random_mix([(std::iter::repeat("common"), 9), (std::iter::repeat("rare"), 1)], 42)?;
/// let rare = mix.take(1000).filter(|item| *item == "rare").count();
/// assert_eq!(rare, 100);
/// # Ok::<(), shardstream::Error>(())
/// ```
pub fn random_mix<S>(sources: impl IntoIterator<Item = (S, u32)>, seed: u64) -> Result<Mix<S>> {
    let (sources, weights): (Vec<S>, Vec<u32>) = sources.into_iter().unzip();
    Ok(Mix::new(sources, MixOrder::by_weights(&weights, seed, 0)?))
}

/// Several sources mixed into one: an [`Iterator`] if the sources are iterators, a [`Stream`] if they are
/// streams.
///
/// [`round_robin`] and [`random_mix`] return it. All sources must have the same type. To mix sources of
/// different types, box them as `Box<dyn Iterator<Item = T> + Send>` or `futures::stream::BoxStream`. An
/// error of a source is counted as an item.
#[must_use = "adapters are lazy: they do nothing unless they are iterated over or polled"]
pub struct Mix<S> {
    sources: Vec<S>,
    order: MixOrder,
    /// The chosen source, until it returns an item or ends.
    current: Option<usize>,
    longest: bool,
}

/// How the next source is chosen.
enum MixOrder {
    RoundRobin { next: usize },
    Random(Box<WeightedOrder>),
}

/// The order of a mix by weights.
struct WeightedOrder {
    order: DatasetOrder,
    /// Number of items that have been returned.
    index: u64,
    /// The sources that have not ended, by their numbers in `order`.
    running: Vec<usize>,
}

/// The stage after a mix of pipelines. It returns the items unchanged. If the weights are bad, it returns an
/// error instead.
#[derive(Debug)]
pub(super) struct CheckedMix(Option<String>);

impl<T> Stage<T> for CheckedMix {
    type Out = T;

    fn push(&mut self, item: T) -> Option<Result<T>> {
        Some(Ok(item))
    }

    fn check(&self) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), |what| Err(ErrorKind::Config(what.clone()).into()))
    }

    fn size_hint(&self, upstream: (usize, Option<usize>)) -> (usize, Option<usize>) {
        upstream
    }
}

impl MixOrder {
    /// A random order in which each source occurs in proportion to its weight.
    fn by_weights(weights: &[u32], seed: u64, stream: usize) -> Result<Self> {
        if weights.is_empty() {
            return Err(ErrorKind::Config("a mix of no sources: give it at least one".into()).into());
        }
        let order = DatasetOrder::new(weights, seed, stream)?;
        let weighted = WeightedOrder { order, index: 0, running: (0..weights.len()).collect() };
        Ok(MixOrder::Random(Box::new(weighted)))
    }

    /// Chooses one of `count` sources for the next item.
    fn choose(&mut self, count: usize) -> Option<usize> {
        match self {
            MixOrder::RoundRobin { next } => {
                let at = next.checked_rem(count)?;
                *next = at + 1;
                Some(at)
            }
            MixOrder::Random(weighted) => {
                let WeightedOrder { order, index, running } = &mut **weighted;
                // `running` is sorted.
                let number = order.dataset_at(*index, |number| running.binary_search(&number).is_err());
                running.binary_search(&number).ok()
            }
        }
    }

    /// Called when the chosen source has returned an item.
    fn advance(&mut self) {
        if let MixOrder::Random(weighted) = self {
            weighted.index += 1;
        }
    }

    /// Called when the source at this position has ended.
    fn remove(&mut self, at: usize) {
        match self {
            MixOrder::RoundRobin { next } => *next = at,
            MixOrder::Random(weighted) => drop(weighted.running.remove(at)),
        }
    }
}

impl<S> Mix<S> {
    /// Returns a mix that orders items as a mix of datasets does, and the stage that reports bad weights. The
    /// mix ends when all sources have ended.
    pub(super) fn of_pipelines(sources: Vec<(S, u32)>, seed: u64, stream: u64) -> (Self, CheckedMix) {
        let (sources, weights): (Vec<S>, Vec<u32>) = sources.into_iter().unzip();
        match MixOrder::by_weights(&weights, seed, stream as usize) {
            Ok(order) => (Mix::new(sources, order).longest(), CheckedMix(None)),
            Err(error) => (
                Mix::new(Vec::new(), MixOrder::RoundRobin { next: 0 }),
                CheckedMix(Some(config_text(&error))),
            ),
        }
    }

    fn new(sources: Vec<S>, order: MixOrder) -> Self {
        Mix { sources, order, current: None, longest: false }
    }

    /// When a source ends, the mix continues with the other sources.
    ///
    /// ```
    /// use shardstream::adapters::round_robin;
    ///
    /// assert!(round_robin([0..1, 10..13]).longest().eq([0, 10, 11, 12]));
    /// ```
    pub fn longest(mut self) -> Self {
        self.longest = true;
        self
    }

    /// The source for the next item.
    fn source(&mut self) -> Option<usize> {
        if self.current.is_none() {
            self.current = self.order.choose(self.sources.len());
        }
        self.current
    }

    /// Records what source `at` returned: an item, or `None` because it has ended. Returns the item. If the
    /// source has ended, the next call of `source` chooses another one, unless the mix has ended too.
    fn received<T>(&mut self, at: usize, item: Option<T>) -> Option<T> {
        self.current = None;
        if item.is_some() {
            self.order.advance();
        } else if self.longest {
            self.sources.remove(at);
            self.order.remove(at);
        } else {
            self.sources.clear();
            self.order = MixOrder::RoundRobin { next: 0 };
        }
        item
    }
}

impl<S: Iterator> Iterator for Mix<S> {
    type Item = S::Item;

    fn next(&mut self) -> Option<S::Item> {
        loop {
            let at = self.source()?;
            let item = self.sources[at].next();
            if let Some(item) = self.received(at, item) {
                return Some(item);
            }
        }
    }
}

impl<S: Iterator> std::iter::FusedIterator for Mix<S> {}

impl<S: Stream + Unpin> Stream for Mix<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let this = self.get_mut();
        loop {
            let Some(at) = this.source() else { return Poll::Ready(None) };
            let item = ready!(Pin::new(&mut this.sources[at]).poll_next(context));
            if let Some(item) = this.received(at, item) {
                return Poll::Ready(Some(item));
            }
        }
    }
}

impl<S> fmt::Debug for Mix<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Mix");
        shown.field("sources", &self.sources.len()).field("longest", &self.longest).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::testing::{Hesitant, show, show_stream};

    /// The items of a mix of iterators. Checks that a mix of streams has the same items.
    macro_rules! mixed {
        ($sources:expr, |$s:ident| $mix:expr) => {{
            let items =
                || $sources.clone().into_iter().map(|n: Vec<i32>| n.into_iter().map(Ok).collect::<Vec<_>>());
            let $s = items().map(IntoIterator::into_iter);
            let iterated = show($mix);
            let $s = items().map(Hesitant::new);
            assert_eq!(show_stream($mix), iterated);
            iterated.into_iter().map(Result::unwrap).collect::<Vec<i32>>()
        }};
    }

    #[test]
    fn round_robin_takes_turns() {
        let sources = [vec![1, 2], vec![3], vec![4, 5, 6]];
        assert_eq!(mixed!(sources, |s| round_robin(s)), [1, 3, 4, 2]);
        assert_eq!(mixed!(sources, |s| round_robin(s).longest()), [1, 3, 4, 2, 5, 6]);
        assert_eq!(mixed!([vec![], vec![1, 2], vec![3]], |s| round_robin(s).longest()), [1, 3, 2]);
        assert_eq!(mixed!(Vec::<Vec<i32>>::new(), |s| round_robin(s)), Vec::<i32>::new());
    }

    fn weighted<S>(sources: impl Iterator<Item = S>) -> Mix<S> {
        random_mix(sources.zip([1, 2, 3]), 7).unwrap()
    }

    #[test]
    fn each_window_of_a_random_mix_has_the_weights() {
        let sources = [vec![0; 60], vec![1; 60], vec![2; 60]];
        let out = mixed!(sources, |s| weighted(s));
        assert_eq!(out.len(), 20 * 6 + out[120..].len(), "it ends with the source that has no item left");
        for window in out.chunks_exact(6) {
            assert_eq!([0, 1, 2].map(|source| window.iter().filter(|&&n| n == source).count()), [1, 2, 3]);
        }
        assert_ne!(out[..6], out[6..12], "windows have orders of their own");
        let longest = mixed!(sources, |s| weighted(s).longest());
        assert_eq!((longest.len(), &longest[..out.len()]), (180, &*out));
        assert_eq!(mixed!([vec![5, 6]], |s| random_mix(s.map(|s| (s, 3)), 7).unwrap()), [5, 6]);
    }

    #[test]
    fn bad_weights_are_errors() {
        let mix = |weights: &[u32]| random_mix(weights.iter().map(|&weight| (0..3, weight)), 0);
        for weights in [&[][..], &[0], &[0, 1], &[1 << 16, 1], &[u32::MAX; 2]] {
            assert!(matches!(mix(weights).unwrap_err().kind(), ErrorKind::Config(_)), "{weights:?}");
        }
        assert_eq!(mix(&[1 << 16]).unwrap().count(), 3);
    }

    #[test]
    fn an_error_of_a_source_is_counted_as_an_item() {
        let sources =
            || [vec![Ok(1), crate::adapters::testing::fault("a"), Ok(2)], vec![Ok(3), Ok(4), Ok(5)]];
        let out = show(round_robin(sources().map(IntoIterator::into_iter)));
        assert_eq!(out, [Ok(1), Ok(3), Err("a".into()), Ok(4), Ok(2), Ok(5)]);
        assert_eq!(show_stream(round_robin(sources().map(Hesitant::new))), out);
    }
}
