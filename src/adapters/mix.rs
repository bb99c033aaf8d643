//! `round_robin` and `random_mix`: mix several sources into one.

use crate::rng::Purpose;
use crate::{ErrorKind, Result, Rng};
use futures::Stream;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Takes one item from each source in turn.
///
/// It ends when a source has no item at its turn; with [`longest`](Mix::longest), when all have ended.
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

/// Takes each item from a source drawn at random, with probabilities in proportion to the weights.
///
/// The draws depend on the seed only. It ends when the source that is drawn has ended; with
/// [`longest`](Mix::longest), when all sources of a weight above 0 have.
///
/// # Errors
/// [`ErrorKind::Config`] if a weight is negative, infinite or not a number, or if all are 0.
///
/// ```
/// use shardstream::adapters::random_mix;
///
/// let mix = random_mix([(std::iter::repeat("common"), 9.0), (std::iter::repeat("rare"), 1.0)], 42)?;
/// let rare = mix.take(1000).filter(|item| *item == "rare").count();
/// assert!((50..150).contains(&rare));
/// # Ok::<_, shardstream::Error>(())
/// ```
pub fn random_mix<S>(sources: impl IntoIterator<Item = (S, f64)>, seed: u64) -> Result<Mix<S>> {
    let (sources, weights): (Vec<S>, Vec<f64>) = sources.into_iter().unzip();
    if let Some(weight) = weights.iter().find(|weight| !weight.is_finite() || **weight < 0.0) {
        return Err(ErrorKind::Config(format!("{weight} is no weight: weights are numbers from 0 up")).into());
    }
    let total = weights.iter().sum::<f64>();
    if total == 0.0 || !total.is_finite() {
        return Err(ErrorKind::Config(format!("weights that add up to {total} cannot be drawn from")).into());
    }
    let rng = Box::new(Rng::keyed(Purpose::Mix, seed, 0, 0));
    Ok(Mix::new(sources, MixOrder::Random { weights, rng }))
}

/// Several sources mixed into one: an [`Iterator`] or a [`Stream`], as the sources are.
///
/// Made by [`round_robin`] and [`random_mix`]. The sources must have one type: box them otherwise, as
/// `Box<dyn Iterator<Item = T> + Send>` or `futures::stream::BoxStream`. An error of a source counts as an
/// item.
#[must_use = "adapters are lazy: they do nothing unless they are iterated over or polled"]
pub struct Mix<S> {
    sources: Vec<S>,
    order: MixOrder,
    /// The source that has been chosen and has not returned an item yet.
    current: Option<usize>,
    longest: bool,
}

/// How the next source is chosen.
enum MixOrder {
    RoundRobin { next: usize },
    Random { weights: Vec<f64>, rng: Box<Rng> },
}

impl MixOrder {
    /// Chooses the source of the next item among `count` sources.
    fn choose(&mut self, count: usize) -> Option<usize> {
        match self {
            MixOrder::RoundRobin { next } => {
                let at = next.checked_rem(count)?;
                *next = at + 1;
                Some(at)
            }
            MixOrder::Random { weights, rng } => {
                let mut point = rng.unit() * weights.iter().sum::<f64>();
                let fits = |weight: &f64| {
                    let here = point < *weight;
                    point -= weight;
                    here
                };
                // Rounding may carry the point beyond the last weight.
                weights.iter().position(fits).or_else(|| weights.iter().rposition(|weight| *weight > 0.0))
            }
        }
    }

    fn remove(&mut self, at: usize) {
        match self {
            MixOrder::RoundRobin { next } => *next = at,
            MixOrder::Random { weights, .. } => drop(weights.remove(at)),
        }
    }
}

impl<S> Mix<S> {
    fn new(sources: Vec<S>, order: MixOrder) -> Self {
        Mix { sources, order, current: None, longest: false }
    }

    /// Continues with the other sources when one ends.
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

    /// The source of the next item.
    fn source(&mut self) -> Option<usize> {
        if self.current.is_none() {
            self.current = self.order.choose(self.sources.len());
        }
        self.current
    }

    /// Takes what source `at` returned: an item, or its end, after which another source may be asked.
    fn received<T>(&mut self, at: usize, item: Option<T>) -> Option<T> {
        self.current = None;
        if item.is_none() && self.longest {
            self.sources.remove(at);
            self.order.remove(at);
        } else if item.is_none() {
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
        shown.field("sources", &self.sources.len()).field("longest", &self.longest);
        if let MixOrder::Random { weights, .. } = &self.order {
            shown.field("weights", weights);
        }
        shown.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::testing::{Hesitant, show, show_stream};

    /// The items of a mix as an iterator, after a check that they are the same as a stream.
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

    fn drawn<S>(sources: impl Iterator<Item = S>) -> Mix<S> {
        random_mix(sources.zip([1.0, 0.0, 3.0]), 7).unwrap()
    }

    #[test]
    fn random_mix_draws_by_weight() {
        let sources = [vec![0; 1000], vec![1; 1000], vec![2; 1000]];
        let out = mixed!(sources, |s| drawn(s));
        assert_eq!(out[..16], [2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 2, 2, 2, 0, 2]);
        let count = |source| out.iter().filter(|&&n| n == source).count();
        assert_eq!((count(1), count(2)), (0, 1000), "ends with a source that has no item left");
        assert!((270..400).contains(&count(0)), "{}", count(0));
        let longest = mixed!(sources, |s| drawn(s).longest());
        assert_eq!(longest.len(), 2000, "all but the one of weight 0");
        assert_eq!(longest[..out.len()], out);
    }

    #[test]
    fn bad_weights_are_errors() {
        let mix = |weights: &[f64]| random_mix(weights.iter().map(|&w| (0..3, w)), 0);
        for weights in
            [&[][..], &[0.0], &[0.0, -0.0], &[1.0, -1.0], &[f64::NAN], &[f64::INFINITY], &[f64::MAX; 2]]
        {
            assert!(matches!(mix(weights).unwrap_err().kind(), ErrorKind::Config(_)), "{weights:?}");
        }
        assert_eq!(mix(&[f64::MIN_POSITIVE]).unwrap().count(), 3);
    }

    #[test]
    fn an_error_counts_as_an_item() {
        let sources =
            || [vec![Ok(1), crate::adapters::testing::fault("a"), Ok(2)], vec![Ok(3), Ok(4), Ok(5)]];
        let out = show(round_robin(sources().map(IntoIterator::into_iter)));
        assert_eq!(out, [Ok(1), Ok(3), Err("a".into()), Ok(4), Ok(2), Ok(5)]);
        assert_eq!(show_stream(round_robin(sources().map(Hesitant::new))), out);
    }
}
