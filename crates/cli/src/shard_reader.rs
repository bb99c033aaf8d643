//! [`ShardReader`]: reads shards within the limits of `--limit`.

use shardstream::index::IndexBuilder;
use shardstream::store::{Body, Store};
use shardstream::tar::{Limits, Read, SampleParser, read};
use shardstream::{Index, Result, SecretUrl};

/// A store, and the limits on shards that the user has set.
#[derive(Debug, Clone)]
pub(crate) struct ShardReader {
    pub(crate) store: Store,
    pub(crate) limits: Limits,
}

impl ShardReader {
    /// Reads the samples of a shard. After the error of a damaged sample, reading continues with the next
    /// sample.
    ///
    /// # Errors
    /// The errors of [`Store::open`].
    pub(crate) fn samples(&self, url: &SecretUrl) -> Result<Read<Body>> {
        Ok(read(self.store.open(url.expose_secret())?, self.parser(url)))
    }

    pub(crate) fn parser(&self, url: &SecretUrl) -> SampleParser {
        SampleParser::new(url).with_limits(self.limits)
    }

    pub(crate) fn index_builder(&self) -> IndexBuilder {
        Index::builder().store(self.store.clone()).limits(self.limits)
    }
}
