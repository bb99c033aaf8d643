//! `Shapes`: the shape of each step of a job. It is a pure function of the seed and the shares of the shapes,
//! so that all ranks agree without communication.

use super::window::{MAX_WINDOW, WeightedWindow, WindowKey, window_length};
use crate::error::{ErrorKind, Result};
use crate::rng::Purpose;
use std::sync::Arc;

/// Iterates over the steps of a job. Each step has one of several shapes.
///
/// The steps are divided into [windows](super::window) whose length is the sum of the shares. In a window,
/// the number of steps of each shape is exactly the shape's share. Their order is random, and depends on the
/// seed and the number of the window.
#[derive(Debug, Clone)]
pub(crate) struct Shapes {
    shares: Arc<[u32]>,
    /// Number of sequence numbers that a step of each shape covers.
    sizes: Arc<[u64]>,
    seed: u64,
    /// Number of sequence numbers that a window covers.
    window_size: u64,
    /// Number of the current window.
    number: u64,
    /// The shapes of the steps of the current window.
    window: WeightedWindow,
    /// Index of the current step in its window.
    at: usize,
    /// The sequence number at which the current step starts.
    start: u64,
}

impl Shapes {
    /// # Errors
    /// [`ErrorKind::Config`] if a share is 0, or if the sum of the shares is above [`MAX_WINDOW`].
    pub(crate) fn new(shares: &[u32], sizes: impl IntoIterator<Item = u64>, seed: u64) -> Result<Self> {
        if shares.contains(&0) || window_length(shares).is_none() {
            let what = format!(
                "the shares {shares:?} of buckets: use whole numbers from 1 up whose sum is at most \
                 {MAX_WINDOW}"
            );
            return Err(ErrorKind::Config(what).into());
        }
        let sizes: Arc<[u64]> = sizes.into_iter().map(|size| size.max(1)).collect();
        let step_sizes = |(share, size): (&u32, &u64)| u64::from(*share).saturating_mul(*size);
        let window_size = shares.iter().zip(sizes.iter()).map(step_sizes).fold(0, u64::saturating_add);
        let (shares, window) = (shares.into(), WeightedWindow::default());
        let mut shapes = Shapes { shares, sizes, seed, window_size, number: 0, window, at: 0, start: 0 };
        shapes.open_window(0);
        Ok(shapes)
    }

    /// The shape of the current step.
    pub(crate) fn bucket(&self) -> usize {
        self.window.choice(self.at).unwrap_or_default()
    }

    /// The sequence number at which the current step starts.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// The sequence number at which the next step starts.
    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(self.sizes.get(self.bucket()).copied().unwrap_or(1))
    }

    /// Moves to the step that contains this sequence number.
    pub(crate) fn seek(&mut self, sequence_number: u64) {
        let number = sequence_number / self.window_size.max(1);
        if number != self.number || sequence_number < self.start {
            self.open_window(number);
        }
        while self.end() <= sequence_number {
            self.advance();
        }
    }

    pub(crate) fn advance(&mut self) {
        let end = self.end();
        match self.window.choice(self.at + 1) {
            Some(_) => (self.at, self.start) = (self.at + 1, end),
            None => self.open_window(self.number + 1),
        }
    }

    fn open_window(&mut self, number: u64) {
        let key = WindowKey { purpose: Purpose::Buckets, seed: self.seed, number, stream: 0 };
        self.window.enter(&self.shares, key);
        (self.number, self.at, self.start) = (number, 0, number.saturating_mul(self.window_size));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_order_of_shapes_is_golden() {
        let mut shapes = Shapes::new(&[3, 2, 1], [8, 4, 2], 42).unwrap();
        let mut steps = Vec::new();
        for _ in 0..12 {
            steps.push((shapes.bucket(), shapes.start()));
            shapes.advance();
        }
        let buckets: Vec<usize> = steps.iter().map(|(bucket, _)| *bucket).collect();
        assert_eq!(buckets, GOLDEN);
        assert_eq!(steps[6].1, 34);
    }

    const GOLDEN: [usize; 12] = [0, 1, 2, 0, 0, 1, 0, 2, 0, 1, 1, 0];

    #[test]
    fn shares_must_be_positive_and_limited() {
        for shares in [&[1, 0][..], &[u32::MAX, u32::MAX], &[]] {
            assert!(Shapes::new(shares, [1, 1], 0).is_err());
        }
        // A state may contain any sequence number.
        let mut shapes = Shapes::new(&[1, 1], [u64::MAX, u64::MAX], 0).unwrap();
        shapes.seek(u64::MAX - 1);
        let mut shapes = Shapes::new(&[1, 1], [2, 3], 0).unwrap();
        shapes.seek(1 << 48);
        assert!((shapes.start()..shapes.end()).contains(&(1 << 48)));
    }

    proptest! {
        #[test]
        fn every_window_has_the_shares_and_any_number_can_be_sought(
            shapes in prop::collection::vec((1u32..5, 1u64..9), 1..5), ahead in 0u64..500, back in 0u64..500,
        ) {
            let (shares, sizes): (Vec<u32>, Vec<u64>) = shapes.into_iter().unzip();
            let mut shapes = Shapes::new(&shares, sizes.iter().copied(), 7).unwrap();
            let window: u32 = shares.iter().sum();
            let mut steps = Vec::new();
            for _ in 0..4 {
                let mut counts = vec![0; shares.len()];
                for _ in 0..window {
                    let bucket = shapes.bucket();
                    counts[bucket] += 1;
                    prop_assert_eq!(shapes.end() - shapes.start(), sizes[bucket]);
                    steps.push((shapes.start()..shapes.end(), bucket));
                    shapes.advance();
                }
                prop_assert_eq!(&counts, &shares);
            }
            prop_assert!(steps.windows(2).all(|pair| pair[0].0.end == pair[1].0.start));
            for number in [ahead, back] {
                if let Some((range, bucket)) = steps.iter().find(|(range, _)| range.contains(&number)) {
                    shapes.seek(number);
                    let found = (shapes.start()..shapes.end(), shapes.bucket());
                    prop_assert_eq!(found, (range.clone(), *bucket));
                }
            }
        }
    }
}
