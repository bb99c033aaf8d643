//! `select`: keeps the items for which a predicate is true.

use super::Stage;
use crate::Result;
use std::fmt;

/// The stage of [`select`](super::IteratorExt::select).
pub struct Select<F>(pub(super) F);

impl<T, F: FnMut(&T) -> bool> Stage<T> for Select<F> {
    type Out = T;

    fn push(&mut self, item: T) -> Option<Result<T>> {
        (self.0)(&item).then_some(Ok(item))
    }

    fn size_hint(&self, upstream: (usize, Option<usize>)) -> (usize, Option<usize>) {
        (0, upstream.1)
    }
}

impl<F> fmt::Debug for Select<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Select")
    }
}

#[cfg(test)]
mod tests {
    use crate::adapters::testing::{both, fault, oks};

    #[test]
    fn drops_items_but_never_errors() {
        let items =
            || [vec![fault("a")], oks(0..6), vec![fault("b")]].into_iter().flatten().collect::<Vec<_>>();
        let out = both!(items(), |source| source.select(|n: &i32| n % 2 == 1));
        assert_eq!(out, [Err("a".into()), Ok(1), Ok(3), Ok(5), Err("b".into())]);
    }
}
