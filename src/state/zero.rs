//! Detects default values, which documents leave out.

pub(super) fn is_zero<T: PartialEq + Default>(value: &T) -> bool {
    *value == T::default()
}
