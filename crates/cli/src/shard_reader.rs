//! Reads shards within the limits of the command line.

use shardstream::index::IndexBuilder;
use shardstream::store::{Body, Store};
use shardstream::tar::{Limits, Read, SampleParser, read};
use shardstream::{Index, Result, SecretUrl};

/// Reads shards within the limits that the user set.
#[derive(Debug, Clone)]
pub(crate) struct ShardReader {
    pub(crate) store: Store,
    pub(crate) limits: Limits,
}

impl ShardReader {
    /// Reads the samples of a shard. After an error in one sample, the next one follows.
    ///
    /// # Errors
    /// Those of [`Store::open`].
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
