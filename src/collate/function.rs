//! `Columns::with_fn`: a column that the caller's function fills.

use super::cell::{Cell, Output};
use super::column::{Column, Columns};
use crate::error::Result;
use crate::sample::{Element, Sample};
use bytemuck::{CheckedBitPattern, NoUninit};
use std::marker::PhantomData;

/// The column of [`Columns::with_fn`].
struct FnColumn<T, F> {
    shape: Vec<usize>,
    fill: F,
    number: PhantomData<fn() -> T>,
}

impl<T, F> FnColumn<T, F> {
    fn new(shape: impl Into<Vec<usize>>, fill: F) -> Self {
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

impl Columns {
    /// Adds a tensor of a fixed shape that the function `fill` writes, for fields that no column of this
    /// module reads.
    ///
    /// `fill` is called with each sample and its slot in the tensor. Before the call, the slot contains
    /// zeros.
    ///
    /// ```
    /// use shardstream::Sample;
    /// use shardstream::collate::Columns;
    ///
    /// let columns = Columns::new().with_fn("histogram", [256], |sample: &Sample, counts: &mut [u32]| {
    ///     for byte in sample.field("bin")?.as_bytes().into_iter().flatten() {
    ///         counts[usize::from(*byte)] += 1;
    ///     }
    ///     Ok(())
    /// });
    /// let batch = columns.collate([Sample::new("0001").with("bin", b"aba")])?;
    /// assert_eq!(batch["histogram"].as_slice::<u32>()?[97..99], [2, 1]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[must_use]
    pub fn with_fn<T: Element + CheckedBitPattern + NoUninit + 'static>(
        self,
        name: &str,
        shape: impl Into<Vec<usize>>,
        fill: impl Fn(&Sample, &mut [T]) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.with(name, FnColumn::new(shape, fill))
    }
}
