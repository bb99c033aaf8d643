//! `try_map` and `map_item`: map each item to another one.

use super::Stage;
use crate::Result;
use std::fmt;

/// The stage of [`try_map`](super::IteratorExt::try_map).
pub struct TryMap<F>(pub(super) F);

impl<T, U, F: FnMut(T) -> Result<U>> Stage<T> for TryMap<F> {
    type Out = U;

    fn push(&mut self, item: T) -> Option<Result<U>> {
        Some((self.0)(item))
    }

    fn size_hint(&self, upstream: (usize, Option<usize>)) -> (usize, Option<usize>) {
        upstream
    }
}

impl<F> fmt::Debug for TryMap<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TryMap")
    }
}

/// The stage of [`map_item`](super::IteratorExt::map_item).
pub struct MapItem<F>(pub(super) F);

impl<T, U, F: FnMut(T) -> U> Stage<T> for MapItem<F> {
    type Out = U;

    fn push(&mut self, item: T) -> Option<Result<U>> {
        Some(Ok((self.0)(item)))
    }

    fn size_hint(&self, upstream: (usize, Option<usize>)) -> (usize, Option<usize>) {
        upstream
    }
}

impl<F> fmt::Debug for MapItem<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MapItem")
    }
}

#[cfg(test)]
mod tests {
    use crate::Error;
    use crate::adapters::testing::{both, oks};

    #[test]
    fn errors_are_in_the_place_of_their_item() {
        let out = both!(oks(0..4), |source| source.try_map(|n: i32| match n {
            2 => Err(Error::step("two")),
            n => Ok(n * 10),
        }));
        let shown: Vec<_> = out.iter().map(|item| item.as_ref().ok().copied()).collect();
        assert_eq!(shown, [Some(0), Some(10), None, Some(30)]);
    }

    #[test]
    fn map_item_cannot_fail() {
        assert_eq!(both!(oks(0..3), |source| source.map_item(|n: i32| n + 1)), [Ok(1), Ok(2), Ok(3)]);
    }
}
