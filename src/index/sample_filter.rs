//! `SampleFilter`: a named predicate that selects samples.

use crate::error::Result;
use crate::panic::catch;
use crate::predicate::PredicateResult;
use crate::sample::Sample;
use std::fmt;
use std::sync::Arc;

/// Returns whether a sample is selected.
type Predicate = dyn Fn(&Sample) -> Result<bool> + Send + Sync;

/// A named predicate over samples. Cheap to clone.
#[derive(Clone)]
pub(super) struct SampleFilter {
    name: Arc<str>,
    predicate: Arc<Predicate>,
}

impl SampleFilter {
    pub(super) fn new<R: PredicateResult>(
        name: String,
        predicate: impl Fn(&Sample) -> R + Send + Sync + 'static,
    ) -> Self {
        let predicate = Arc::new(move |sample: &Sample| predicate(sample).into_result());
        SampleFilter { name: name.into(), predicate }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Calls the predicate for a sample.
    ///
    /// # Errors
    /// The error of the predicate; [`ErrorKind::Panicked`](crate::ErrorKind::Panicked) if it panics.
    pub(super) fn selects(&self, sample: &Sample) -> Result<bool> {
        catch(|| (self.predicate)(sample))
            .and_then(|selected| selected)
            .map_err(|error| error.in_shard(sample.shard()).with_key(sample.key()))
    }
}

impl fmt::Debug for SampleFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SampleFilter").field(&self.name).finish()
    }
}
