//! What batches are made of, and how.

use crate::adapters::Batch;
use crate::collate::{Collator, Columns, Row, TensorBatch};
use crate::error::Result;
use crate::state::State;
use std::sync::Arc;

/// Makes a batch of items, of which the first so many are real, and says where the job stands after it.
type MakeBatch<T, B> = Arc<dyn Fn(Vec<T>, usize, State) -> Result<B> + Send + Sync>;

/// How items become batches.
pub(in crate::loader) struct Make<T, B> {
    /// Where items write into the slots of their batch.
    pub(in crate::loader) collator: Option<Collator>,
    pub(in crate::loader) batch: MakeBatch<T, B>,
}

impl<T: 'static> Make<T, Batch<T>> {
    /// The items as they are.
    pub(in crate::loader) fn items() -> Self {
        let batch = |items, valid, state| Ok(Batch::padded(items, valid).at(state));
        Make { collator: None, batch: Arc::new(batch) }
    }
}

impl Make<Row, TensorBatch> {
    /// Tensors of `rows` samples.
    pub(in crate::loader) fn tensors(columns: Columns, rows: usize) -> Self {
        let collator = Collator::new(columns, rows);
        let made = collator.clone();
        let batch = move |rows, valid, state| Ok(made.batch(rows, valid)?.at(state));
        Make { collator: Some(collator), batch: Arc::new(batch) }
    }
}

impl<T, B> Clone for Make<T, B> {
    fn clone(&self) -> Self {
        Make { collator: self.collator.clone(), batch: Arc::clone(&self.batch) }
    }
}
