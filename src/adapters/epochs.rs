//! `with_epoch`: cuts an endless source into epochs of a fixed length.

use super::{Pipeline, Sliced, Staged};

/// A source cut into epochs of a fixed length, each of which resumes where the last one stopped.
///
/// Made by [`with_epoch`](super::Pipeline::with_epoch).
///
/// ```
/// use shardstream::adapters::IteratorExt;
///
/// let mut epochs = (0..10).cycle().map(Ok).pipeline().with_epoch(4);
/// let mut epoch = || epochs.epoch().collect::<shardstream::Result<Vec<_>>>();
/// assert_eq!(epoch()?, [0, 1, 2, 3]);
/// assert_eq!(epoch()?, [4, 5, 6, 7]);
/// assert_eq!(epoch()?, [8, 9, 0, 1]);
/// # Ok::<_, shardstream::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "adapters are lazy: call `epoch`"]
pub struct Epochs<S, T> {
    source: Pipeline<Staged<S, Sliced>, T>,
    length: usize,
}

/// One of the [`Epochs`] of a source.
pub type Epoch<'a, S, T> = Pipeline<Staged<&'a mut Staged<S, Sliced>, Sliced>, T>;

impl<S, T> Epochs<S, T> {
    pub(super) fn new(source: Pipeline<S, T>, length: usize) -> Self {
        Epochs { source: source.then(Sliced::new(..)), length }
    }

    /// The next epoch: as many items of the source as the length says, or fewer if the source ends. Errors
    /// are returned in addition.
    ///
    /// If an epoch is dropped before its end, the next one continues after the last item that was returned,
    /// and has its full length. An epoch is a stream only if the source is `Unpin`: put any other source into
    /// a `Box::pin`.
    pub fn epoch(&mut self) -> Epoch<'_, S, T> {
        let length = self.length;
        self.source.by_mut().over(|source| Staged::new(source, Sliced::new(..length)))
    }

    /// Whether the source has ended. It is known once an epoch was shorter than its length.
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let mut epochs = (0..3).map(Ok).pipeline().with_epoch(2);
    /// assert_eq!((epochs.epoch().count(), epochs.is_ended()), (2, false));
    /// assert_eq!((epochs.epoch().count(), epochs.is_ended()), (1, true));
    /// ```
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.source.source().is_ended()
    }
}

#[cfg(test)]
mod tests {
    use crate::adapters::testing::{Hesitant, fault, oks, show, show_stream};
    use crate::adapters::{IteratorExt, StreamExt};

    fn items() -> Vec<crate::Result<i32>> {
        [oks(0..3), vec![fault("bad")], oks(3..7)].into_iter().flatten().collect()
    }

    #[test]
    fn an_epoch_resumes_where_the_last_one_stopped() {
        let mut iterated = IteratorExt::pipeline(items().into_iter()).with_epoch(3);
        let mut streamed = StreamExt::pipeline(Hesitant::new(items())).with_epoch(3);
        let mut epochs = Vec::new();
        for _ in 0..4 {
            let epoch = show(iterated.epoch());
            assert_eq!(epoch, show_stream(streamed.epoch()));
            epochs.push((epoch, iterated.is_ended()));
            assert_eq!(streamed.is_ended(), iterated.is_ended());
        }
        assert_eq!(epochs[0], (vec![Ok(0), Ok(1), Ok(2)], false));
        assert_eq!(epochs[1], (vec![Err("bad".into()), Ok(3), Ok(4), Ok(5)], false));
        assert_eq!(epochs[2], (vec![Ok(6)], true));
        assert_eq!(epochs[3], (vec![], true));
    }

    #[test]
    fn an_epoch_that_is_dropped_loses_nothing() {
        let mut epochs = IteratorExt::pipeline(oks(0..9).into_iter()).with_epoch(4);
        assert_eq!(epochs.epoch().next().unwrap().unwrap(), 0);
        assert_eq!(show(epochs.epoch()), [Ok(1), Ok(2), Ok(3), Ok(4)]);
    }
}
