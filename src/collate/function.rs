//! Columns that a function fills.

use super::cell::{Cell, Output};
use super::column::Column;
use crate::error::Result;
use crate::sample::{Element, Sample};
use bytemuck::{CheckedBitPattern, NoUninit};
use std::marker::PhantomData;

/// The column of [`Columns::with_fn`].
pub(super) struct FnColumn<T, F> {
    shape: Vec<usize>,
    fill: F,
    number: PhantomData<fn() -> T>,
}

impl<T, F> FnColumn<T, F> {
    pub(super) fn new(shape: impl Into<Vec<usize>>, fill: F) -> Self {
        FnColumn { shape: shape.into(), fill, number: PhantomData }
    }
}

impl<T, F> Column for FnColumn<T, F>
where
    T: Element + CheckedBitPattern + NoUninit,
    F: Fn(&Sample, &mut [T]) -> Result<()> + Send + Sync,
{
    fn outputs(&self) -> Vec<Output> {
        vec![Output::fixed(T::DTYPE, &self.shape[..])]
    }

    fn write(&self, sample: &Sample, _: u64, cells: &mut [Cell]) -> Result<()> {
        cells.iter_mut().try_for_each(|cell| {
            cell.bytes().fill(0);
            (self.fill)(sample, cell.numbers()?)
        })
    }
}
