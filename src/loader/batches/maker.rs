//! `BatchMaker`: turns the rows of a batch into a list or tensors.

use crate::adapters::Batch;
use crate::collate::{Collator, Row, Step, TensorBatch};
use crate::error::{ErrorKind, Result};
use std::sync::Arc;

/// Clones an item to pad a batch; `None` if batches are not padded.
pub(in crate::loader) type PadFn<T> = Option<fn(&T) -> T>;

/// Turns rows into a batch.
pub(in crate::loader) struct BatchMaker<R, B> {
    /// The owners of the tensors' memory, one for each shape; empty if batches are lists.
    pub(in crate::loader) collators: Arc<[Collator]>,
    /// Clones a row to pad a batch; `None` if batches are not padded.
    pub(in crate::loader) pad: PadFn<R>,
    /// Makes an empty row of a shape, if rows are tensors.
    pub(in crate::loader) blank: Option<BlankRow<R>>,
    /// Makes a batch. The arguments are the rows, the number of rows at the front that are not padding, and
    /// the shape.
    pub(in crate::loader) batch: MakeBatch<R, B>,
    /// Whether [`FinishBatch`] calls a function of the caller.
    pub(in crate::loader) maps: bool,
}

type BlankRow<R> = Arc<dyn Fn(Option<usize>) -> R + Send + Sync>;
type MakeBatch<R, B> = Arc<dyn Fn(Vec<R>, usize, Option<usize>) -> Result<FinishBatch<B>> + Send + Sync>;

/// Finishes a batch: adds the state and the other values of its [`Step`], and calls the function of
/// `map_batch`.
pub(in crate::loader) type FinishBatch<B> = Box<dyn FnOnce(Step) -> Result<B>>;

/// The function that the caller gave to `map_batch`. It is applied to each batch with its state.
pub(in crate::loader) struct MapBatch<B, C> {
    map: Arc<dyn Fn(B) -> Result<C> + Send + Sync>,
    is_identity: bool,
}

impl<B: 'static> MapBatch<B, B> {
    pub(in crate::loader) fn identity() -> Self {
        MapBatch { map: Arc::new(Ok), is_identity: true }
    }
}

impl<B: 'static, C: 'static> MapBatch<B, C> {
    /// Appends another function.
    pub(in crate::loader) fn then<D>(
        self,
        after: impl Fn(C) -> Result<D> + Send + Sync + 'static,
    ) -> MapBatch<B, D> {
        let map = self.map;
        MapBatch { map: Arc::new(move |batch| after(map(batch)?)), is_identity: false }
    }
}

impl<B, C> Clone for MapBatch<B, C> {
    fn clone(&self) -> Self {
        MapBatch { map: Arc::clone(&self.map), is_identity: self.is_identity }
    }
}

impl<R, B> BatchMaker<R, B> {
    /// Bytes of the largest batch, if the shapes are fixed.
    pub(in crate::loader) fn batch_bytes(&self) -> Option<u64> {
        let sizes: Option<Vec<u64>> = self.collators.iter().map(Collator::batch_bytes).collect();
        sizes?.into_iter().max()
    }

    /// Whether making a batch may fail, because it calls the caller's code.
    pub(in crate::loader) fn may_fail(&self) -> bool {
        self.maps || self.pad.is_some() || self.collators.iter().any(Collator::may_fail)
    }
}

impl<T: 'static, C: 'static> BatchMaker<T, C> {
    /// Makes batches that are lists of items.
    pub(in crate::loader) fn items(pad: PadFn<T>, then: MapBatch<Batch<T>, C>) -> Self {
        let MapBatch { map, is_identity } = then;
        let batch = move |rows: Vec<T>, _, _| -> Result<FinishBatch<C>> {
            let (batch, map) = (Batch::from(rows), Arc::clone(&map));
            Ok(Box::new(move |step| map(batch.at(step))))
        };
        let (collators, blank, batch) = (Arc::default(), None, Arc::new(batch));
        BatchMaker { collators, pad, blank, batch, maps: !is_identity }
    }
}

impl<C: 'static> BatchMaker<Row, C> {
    /// Makes batches of tensors, with one collator for each shape. If `pads` is true, batches are padded to
    /// their full size.
    pub(in crate::loader) fn tensors(
        collators: Arc<[Collator]>,
        pads: bool,
        then: MapBatch<TensorBatch, C>,
    ) -> Self {
        let (of_shapes, blanks) = (Arc::clone(&collators), Arc::clone(&collators));
        let MapBatch { map, is_identity } = then;
        let batch = move |rows, valid, bucket: Option<usize>| -> Result<FinishBatch<C>> {
            let Some(collator) = of_shapes.get(bucket.unwrap_or_default()) else {
                return Err(ErrorKind::Config("a batch has a shape without columns".into()).into());
            };
            let (batch, map) = (collator.batch(rows, valid)?, Arc::clone(&map));
            Ok(Box::new(move |step| map(batch.at(step))))
        };
        let blank = move |bucket: Option<usize>| {
            blanks.get(bucket.unwrap_or_default()).map_or_else(Row::default, Collator::blank_row)
        };
        BatchMaker {
            collators,
            pad: pads.then_some(Row::clone),
            blank: Some(Arc::new(blank)),
            batch: Arc::new(batch),
            maps: !is_identity,
        }
    }
}

impl<R, B> Clone for BatchMaker<R, B> {
    fn clone(&self) -> Self {
        BatchMaker {
            collators: Arc::clone(&self.collators),
            pad: self.pad,
            blank: self.blank.clone(),
            batch: Arc::clone(&self.batch),
            maps: self.maps,
        }
    }
}
