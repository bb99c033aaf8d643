//! `map`, `filter_map` and `flat_map`: convert each item to one, at most one, or any number of items.

use super::Stage;
use crate::Result;
use std::fmt;

/// The stage of [`map`](super::Pipeline::map).
pub(crate) struct Map<F>(pub(super) F);

impl<T, U, F: FnMut(T) -> Result<U>> Stage<T> for Map<F> {
    type Out = U;

    fn push(&mut self, item: T) -> Option<Result<U>> {
        Some((self.0)(item))
    }

    fn size_hint(&self, upstream: (usize, Option<usize>)) -> (usize, Option<usize>) {
        upstream
    }
}

/// The stage of [`filter_map`](super::Pipeline::filter_map).
pub(crate) struct FilterMap<F>(pub(super) F);

impl<T, U, F: FnMut(T) -> Result<Option<U>>> Stage<T> for FilterMap<F> {
    type Out = U;

    fn push(&mut self, item: T) -> Option<Result<U>> {
        (self.0)(item).transpose()
    }

    fn size_hint(&self, upstream: (usize, Option<usize>)) -> (usize, Option<usize>) {
        (0, upstream.1)
    }
}

/// The stage of [`flat_map`](super::Pipeline::flat_map).
pub(crate) struct FlatMap<F, I> {
    f: F,
    /// The remaining outputs of the last item.
    outputs: Option<I>,
}

impl<F, I> FlatMap<F, I> {
    pub(super) fn new(f: F) -> Self {
        FlatMap { f, outputs: None }
    }
}

impl<T, I, F> Stage<T> for FlatMap<F, I::IntoIter>
where
    I: IntoIterator,
    F: FnMut(T) -> Result<I>,
{
    type Out = I::Item;

    fn push(&mut self, item: T) -> Option<Result<I::Item>> {
        match (self.f)(item) {
            Ok(outputs) => {
                self.outputs = Some(outputs.into_iter());
                Stage::<T>::pull(self)
            }
            Err(error) => Some(Err(error)),
        }
    }

    fn pull(&mut self) -> Option<Result<I::Item>> {
        self.outputs.as_mut()?.next().map(Ok)
    }

    fn drain(&mut self) -> Option<Result<I::Item>> {
        Stage::<T>::pull(self)
    }

    fn size_hint(&self, upstream: (usize, Option<usize>)) -> (usize, Option<usize>) {
        let (least, most) = self.outputs.as_ref().map_or((0, Some(0)), Iterator::size_hint);
        (least, most.filter(|_| upstream.1 == Some(0)))
    }
}

macro_rules! debug {
    ($($name:ident<$($of:ident),+>),+) => {$(
        impl<$($of),+> fmt::Debug for $name<$($of),+> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    )+};
}

debug!(Map<F>, FilterMap<F>, FlatMap<F, I>);

#[cfg(test)]
mod tests {
    use crate::Error;
    use crate::adapters::testing::{both, oks};

    #[test]
    fn an_error_replaces_its_item() {
        let out = both!(oks(0..4), |source| source.map(|n: i32| match n {
            2 => Err(Error::step("two")),
            n => Ok(n * 10),
        }));
        let shown: Vec<_> = out.iter().map(|item| item.as_ref().ok().copied()).collect();
        assert_eq!(shown, [Some(0), Some(10), None, Some(30)]);
    }

    #[test]
    fn filter_map_and_flat_map_return_any_number_of_outputs() {
        let half =
            |n: i32| if n == 3 { Err(Error::step("three")) } else { Ok((n % 2 == 0).then_some(n / 2)) };
        let out = both!(oks(0..5), |source| source.filter_map(half));
        let shown: Vec<_> = out.iter().map(|item| item.as_ref().ok().copied()).collect();
        assert_eq!(shown, [Some(0), Some(1), None, Some(2)]);
        let upto = |n: i32| if n == 1 { Err(Error::step("one")) } else { Ok(0..n) };
        let out = both!(oks(0..4), |source| source.flat_map(upto));
        let shown: Vec<_> = out.iter().map(|item| item.as_ref().ok().copied()).collect();
        assert_eq!(shown, [None, Some(0), Some(1), Some(0), Some(1), Some(2)]);
    }
}
