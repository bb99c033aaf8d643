//! A named filter that selects samples.

use crate::error::Result;
use crate::panic::catch;
use crate::sample::Sample;
use std::fmt;
use std::sync::Arc;

/// A predicate over samples and its name. Cheap to clone.
#[derive(Clone)]
pub(super) struct SampleFilter {
    name: Arc<str>,
    predicate: Arc<dyn Fn(&Sample) -> bool + Send + Sync>,
}

impl SampleFilter {
    pub(super) fn new(name: String, predicate: impl Fn(&Sample) -> bool + Send + Sync + 'static) -> Self {
        SampleFilter { name: name.into(), predicate: Arc::new(predicate) }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether the predicate is true of a sample.
    ///
    /// # Errors
    /// [`ErrorKind::Panicked`](crate::ErrorKind::Panicked) if it panics.
    pub(super) fn selects(&self, sample: &Sample) -> Result<bool> {
        catch(|| (self.predicate)(sample))
            .map_err(|error| error.in_shard(sample.shard()).with_key(sample.key()))
    }
}

impl fmt::Debug for SampleFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SampleFilter").field(&self.name).finish()
    }
}
