//! `filter`: keeps the items for which a predicate is true. If the predicate fails for an item, its error
//! replaces the item.

use super::Stage;
use crate::Result;
use crate::predicate::PredicateResult;
use std::fmt;

/// The stage of [`filter`](super::Pipeline::filter).
pub(crate) struct Filtered<F>(pub(super) F);

impl<T, R: PredicateResult, F: FnMut(&T) -> R> Stage<T> for Filtered<F> {
    type Out = T;

    fn push(&mut self, item: T) -> Option<Result<T>> {
        match (self.0)(&item).into_result() {
            Ok(true) => Some(Ok(item)),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    fn size_hint(&self, upstream: (usize, Option<usize>)) -> (usize, Option<usize>) {
        (0, upstream.1)
    }
}

impl<F> fmt::Debug for Filtered<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Filtered")
    }
}

#[cfg(test)]
mod tests {
    use crate::adapters::testing::{both, fault, oks};

    #[test]
    fn filter_drops_items_but_no_errors() {
        let items =
            || [vec![fault("a")], oks(0..6), vec![fault("b")]].into_iter().flatten().collect::<Vec<_>>();
        let out = both!(items(), |source| source.filter(|n: &i32| n % 2 == 1));
        assert_eq!(out, [Err("a".into()), Ok(1), Ok(3), Ok(5), Err("b".into())]);
    }

    #[test]
    fn an_error_of_the_predicate_replaces_the_item() {
        let items = || oks(0..4).into_iter().collect::<Vec<_>>();
        let odd = |n: &i32| if *n == 2 { Err(crate::Error::step("unreadable")) } else { Ok(n % 2 == 1) };
        let out = both!(items(), |source| source.filter(odd));
        assert_eq!(out.len(), 3);
        assert!(out[0] == Ok(1) && out[1].is_err() && out[2] == Ok(3), "{out:?}");
    }
}
