//! `shuffle`: shuffles items in a buffer.

use super::{Pipeline, Stage, Staged};
use crate::memory::{Gauge, Level};
use crate::{Result, Rng, Sample};
use std::any::Any;
use std::fmt;

/// The stage of [`shuffle`](super::Pipeline::shuffle): a buffer from which items are drawn at random.
///
/// The buffer is first filled up to its size. From then on, each added item replaces a random item of the
/// buffer, and the replaced item is returned. At the end, the remaining items are returned in random order.
/// The order depends only on the random numbers and the number of items, never on time or on the sizes of
/// items.
pub struct Shuffle<T> {
    size: usize,
    /// An item is drawn when the buffer has at least this number of items. The number is `initial` at first,
    /// and grows up to `size`.
    target: usize,
    /// Prepares an item for the buffer, and returns its size in bytes.
    admit: fn(&mut T) -> usize,
    /// The items, each with its size in bytes.
    buffer: Vec<(T, usize)>,
    bytes: usize,
    /// The gauge that shows `bytes`.
    level: Level,
    rng: Rng,
}

impl<T: 'static> Shuffle<T> {
    /// A buffer for items of any type. The buffer compacts samples and counts their bytes. Other items are
    /// unchanged, and their bytes are not counted.
    pub(super) fn of_any(size: usize, rng: Rng) -> Self {
        Self::new(size, rng, |item| {
            let Some(sample) = (item as &mut dyn Any).downcast_mut::<Sample>() else { return 0 };
            sample.compact();
            sample.size()
        })
    }
}

impl<T> Shuffle<T> {
    pub(crate) fn new(size: usize, rng: Rng, admit: fn(&mut T) -> usize) -> Self {
        let size = size.max(1);
        let (buffer, level) = (Vec::new(), Level::default());
        Shuffle { size, target: size, admit, buffer, bytes: 0, level, rng }
    }

    /// Keeps `gauge` at the number of bytes in this buffer. No other buffer may use the gauge.
    pub(crate) fn counted(self, gauge: &Gauge) -> Self {
        Shuffle { level: Level::of(gauge), ..self }
    }

    /// Adds these items to the buffer, in this order.
    pub(crate) fn holding(mut self, items: impl IntoIterator<Item = T>) -> Self {
        for item in items {
            self.push(item);
        }
        self
    }

    /// The items in the buffer.
    pub(crate) fn held(&self) -> impl Iterator<Item = &T> {
        self.buffer.iter().map(|(item, _)| item)
    }

    fn draw(&mut self) -> Option<Result<T>> {
        if self.buffer.is_empty() {
            return None;
        }
        let at = self.rng.below(self.buffer.len() as u64) as usize;
        let (item, bytes) = self.buffer.swap_remove(at);
        self.bytes -= bytes;
        self.level.set(self.bytes as u64);
        Some(Ok(item))
    }
}

/// The content of a shuffle buffer after a replay.
#[derive(Debug)]
pub(crate) struct ReplayedBuffer {
    /// The numbers of the items in the buffer, in the order of the buffer.
    pub(crate) held: Vec<u64>,
    /// Number of added items.
    pub(crate) inputs: u64,
    /// The random number generator after all draws.
    pub(crate) rng: Rng,
}

/// Computes the content of a buffer of `size` items after `taken` draws, without the items themselves.
/// `length` is the total number of items if the source had ended by then, otherwise `None`. Returns `None` if
/// `taken` items cannot have been drawn.
pub(crate) fn replay(size: usize, mut rng: Rng, taken: u64, length: Option<u64>) -> Option<ReplayedBuffer> {
    let (mut held, mut inputs) = (Vec::new(), 0);
    for _ in 0..taken {
        while held.len() < size.max(1) && length.is_none_or(|length| inputs < length) {
            held.push(inputs);
            inputs += 1;
        }
        if held.is_empty() {
            return None;
        }
        held.swap_remove(rng.below(held.len() as u64) as usize);
    }
    Some(ReplayedBuffer { held, inputs: length.unwrap_or(inputs), rng })
}

impl<S, T> Pipeline<Staged<S, Shuffle<T>>, T> {
    /// Returns the first item when `count` items are in the buffer. The buffer then grows by one with each
    /// returned item, until it is full.
    ///
    /// So the first item is returned sooner than from a full buffer, but the first items are shuffled less
    /// than later items. By default, the buffer is filled first. (Python's webdataset starts at 100 items.) A
    /// `count` of 0 means 1; a `count` above the size of the buffer means the size of the buffer.
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let mut numbers = (0..1000).map(Ok).pipeline().shuffle(500).initial(10);
    /// assert!(numbers.next().unwrap()? < 10);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn initial(self, count: usize) -> Self {
        self.with(|stage| stage.target = count.clamp(1, stage.size))
    }
}

impl<T> Stage<T> for Shuffle<T> {
    type Out = T;

    fn push(&mut self, mut item: T) -> Option<Result<T>> {
        let bytes = (self.admit)(&mut item);
        self.bytes += bytes;
        self.level.set(self.bytes as u64);
        self.buffer.push((item, bytes));
        None
    }

    fn pull(&mut self) -> Option<Result<T>> {
        if self.buffer.len() >= self.target {
            self.target = self.size.min(self.target + 1);
            self.draw()
        } else {
            None
        }
    }

    fn drain(&mut self) -> Option<Result<T>> {
        self.draw()
    }

    fn size_hint(&self, (least, most): (usize, Option<usize>)) -> (usize, Option<usize>) {
        let buffered = self.buffer.len();
        (least.saturating_add(buffered), most.and_then(|most| most.checked_add(buffered)))
    }
}

impl<T> fmt::Debug for Shuffle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shuffle")
            .field("size", &self.size)
            .field("buffered", &self.buffer.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use crate::adapters::IteratorExt;
    use crate::adapters::testing::{both, fault, oks, show};
    use crate::rng::Purpose;
    use proptest::prelude::*;

    fn order(count: i32, size: usize, seed: u64) -> Vec<i32> {
        let out = both!(oks(0..count), |source| source.seed(seed, 0, 0).shuffle(size));
        out.into_iter().map(Result::unwrap).collect()
    }

    #[test]
    fn the_order_of_a_seed_never_changes() {
        assert_eq!(order(12, 4, 42), [3, 4, 5, 2, 7, 0, 6, 8, 11, 1, 10, 9]);
        assert_eq!(order(12, 100, 42), [9, 10, 7, 4, 11, 1, 3, 6, 5, 8, 0, 2]);
        let initial = both!(oks(0..12), |source| source.seed(1, 2, 3).shuffle(6).initial(2));
        assert_eq!(
            initial.into_iter().map(Result::unwrap).collect::<Vec<_>>(),
            [1, 2, 3, 7, 9, 5, 4, 11, 10, 8, 6, 0]
        );
    }

    #[test]
    fn a_buffer_of_one_keeps_the_order() {
        for size in [0, 1] {
            assert_eq!(order(6, size, 7), [0, 1, 2, 3, 4, 5]);
        }
    }

    #[test]
    fn an_error_is_returned_before_the_items_in_the_buffer() {
        let items = || {
            [oks(0..3), vec![fault("a")], oks(3..20), vec![fault("b")]]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
        };
        let out = both!(items(), |source| source.shuffle(5));
        assert_eq!(out[0], Err("a".into()), "three items are waiting for the buffer to fill");
        assert_eq!(
            out.iter().position(|item| *item == Err("b".into())),
            Some(17),
            "four items are in the buffer"
        );
        let clean = order(20, 5, 0);
        assert_eq!(out.into_iter().flatten().collect::<Vec<_>>(), clean, "errors don't change the order");
    }

    #[test]
    fn the_buffer_grows_by_one_per_returned_item() {
        let requests = std::cell::Cell::new(0);
        let source = (0..100).map(|n| {
            requests.set(requests.get() + 1);
            Ok(n)
        });
        let mut items = source.pipeline().shuffle(10).initial(4);
        let mut steps = vec![requests.get()];
        for _ in 0..9 {
            items.next();
            steps.push(requests.get());
        }
        assert_eq!(steps, [0, 4, 6, 8, 10, 12, 14, 16, 17, 18], "grows by one per item up to its size");
    }

    #[test]
    fn a_replay_of_more_draws_than_items_is_none() {
        let rng = || Rng::new(0, 0, 0);
        assert!(replay(4, rng(), 11, Some(10)).is_none());
        assert!(replay(4, rng(), 10, Some(10)).unwrap().held.is_empty());
    }

    #[test]
    fn samples_in_the_buffer_keep_no_chunk_in_memory() {
        let chunk = bytes::Bytes::from(vec![1u8; 1000]);
        let samples = [Ok(Sample::new("a").with("bin", chunk.slice(..10))), Ok(Sample::new("b"))];
        let mut shuffled = samples.into_iter().pipeline().shuffle(1);
        let sample = shuffled.next().unwrap().unwrap();
        assert!(chunk.is_unique(), "the sample holds no slice of the chunk");
        assert_eq!(sample.get("bin").unwrap().as_bytes().unwrap().len(), 10);
    }

    /// Each of the items that first fill the buffer is equally often the first output. The mean displacement
    /// is about the size of the buffer.
    #[test]
    fn outputs_are_uniform_and_items_move_far() {
        let (count, size, rounds) = (40, 10, 2000);
        let mut first = vec![0u32; count as usize];
        let mut displacement = 0.0;
        for seed in 0..rounds {
            let items = oks(0..count).into_iter().pipeline().seed(seed, 0, 0).shuffle(size);
            let out: Vec<i32> = items.results().map(Result::unwrap).collect();
            first[out[0] as usize] += 1;
            displacement +=
                out.iter().enumerate().map(|(at, &n)| f64::from((at as i32 - n).abs())).sum::<f64>();
        }
        assert!(first[..size].iter().all(|&n| (140..260).contains(&n)), "{first:?}");
        assert!(first[size..].iter().all(|&n| n == 0), "{first:?}");
        let mean = displacement / (f64::from(count) * rounds as f64);
        assert!((5.0..10.0).contains(&mean), "{mean}");
    }

    proptest! {
        #[test]
        fn a_replayed_buffer_returns_the_remaining_items_in_the_same_order(
            count in 0u64..200, size in 0usize..50, seed: u64, taken: prop::sample::Index
        ) {
            let rng = || Rng::of_dataset(0, Purpose::Shuffle, seed, 0, 0);
            let shuffled = (0..count).map(Ok).pipeline().seed(seed, 0, 0).shuffle(size);
            let whole: Vec<u64> = shuffled.results().map(Result::unwrap).collect();
            let taken = taken.index(count as usize + 1) as u64;
            // The buffer knows that the items have ended once too few items are left to fill it again.
            let ended = taken > 0 && taken + size.max(1) as u64 > count + 1;
            let replayed = replay(size, rng(), taken, ended.then_some(count)).unwrap();
            let ReplayedBuffer { held, inputs, rng } = replayed;
            let stage = Shuffle::new(size, rng, |_| 0).holding(held);
            let rest = Staged::new((inputs..count).map(Ok), stage).map(Result::unwrap);
            prop_assert_eq!(rest.collect::<Vec<_>>(), &whole[taken as usize..]);
        }

        #[test]
        fn the_output_is_a_permutation_without_items_that_are_too_early(
            count in 0i32..200, size in 0usize..50, initial in 0usize..60, seed: u64
        ) {
            let source =
                || oks(0..count).into_iter().pipeline().seed(seed, 0, 0).shuffle(size).initial(initial);
            let mut out: Vec<i32> = source().results().map(Result::unwrap).collect();
            for (at, &n) in out.iter().enumerate() {
                // An item is returned fewer than `size` positions early, or any number of positions late.
                prop_assert!((n as usize) < at + size.max(1), "item {n} at {at}");
            }
            prop_assert_eq!(show(source()), show(source()));
            prop_assert_eq!(source().size_hint(), (count as usize, Some(count as usize)));
            out.sort();
            prop_assert_eq!(out, (0..count).collect::<Vec<_>>());
        }
    }
}
