//! The options of a store.

use super::budget::Budget;
use super::cache::Cache;
use super::decompress::Expansion;
use super::fetch::FetchLimits;
#[cfg(feature = "http")]
use super::http_headers::{HttpHeaders, WebOptions};
use super::object::ObjectSource;
use super::recording::RequestRecording;
use super::source::Source;
use super::source_registry::SourceRegistry;
use super::store::{Store, StoreInner};
use crate::error::{ErrorKind, Result};
use crate::secret_url::SecretUrl;
use object_store::ObjectStore;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Options of a [`Store`].
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
/// use shardstream::store::{Store, object_store::memory::InMemory};
/// use std::sync::Arc;
///
/// let store = Store::builder().with_object_store("mem://", Arc::new(InMemory::new())).build()?;
/// store.create("mem://a/b.txt")?.finish()?;
/// assert_eq!(store.list("mem://a")?[0].url, "mem://a/b.txt");
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct StoreBuilder {
    limits: FetchLimits,
    expansion: Expansion,
    budget: Option<Budget>,
    cache: Option<Cache>,
    recording: Option<RequestRecording>,
    registered: Vec<(SecretUrl, Arc<dyn Source>)>,
    #[cfg(feature = "http")]
    web: WebOptions,
}

impl Default for Store {
    /// A store of all schemes whose features are compiled in, configured from the environment.
    fn default() -> Self {
        Store::builder().build_unchecked()
    }
}

impl Store {
    /// Returns a builder of a store with options.
    pub fn builder() -> StoreBuilder {
        StoreBuilder {
            limits: FetchLimits::default(),
            expansion: Expansion::default(),
            budget: None,
            cache: None,
            recording: None,
            registered: Vec::new(),
            #[cfg(feature = "http")]
            web: WebOptions::default(),
        }
    }
}

impl StoreBuilder {
    /// Serves all URLs that begin with `prefix` from `source`. The prefix is a scheme (`ais` or `ais://`), or
    /// a longer beginning of a URL (`gs://bucket`).
    ///
    /// The longest prefix wins, and any prefix wins over the built-in clients.
    pub fn with_source(mut self, prefix: &str, source: Arc<dyn Source>) -> Self {
        self.registered.push((base_of(prefix), source));
        self
    }

    /// Serves all URLs that begin with `prefix` from `store`, with the rest of the URL as the key.
    pub fn with_object_store(self, prefix: &str, store: Arc<dyn ObjectStore>) -> Self {
        let source = ObjectSource::new(base_of(prefix), store);
        self.with_source(prefix, Arc::new(source))
    }

    /// Sends headers with each request for a URL that begins with `prefix`, such as
    /// `https://data.example.com/private`. If several prefixes match, only the headers of the longest prefix
    /// are sent.
    ///
    /// The values are [secrets](HttpHeaders). They are sent only over https (or to this machine), and to no
    /// other server: a request that is redirected to another host or port has none of these headers.
    #[cfg(feature = "http")]
    #[cfg_attr(docsrs, doc(cfg(feature = "http")))]
    pub fn headers(mut self, prefix: &str, headers: HttpHeaders) -> Self {
        self.web.headers.push((prefix.into(), headers));
        self
    }

    /// The server of `hf://` URLs, such as `https://hub.example.com`. Default: the server in the variable
    /// `HF_ENDPOINT`, or else the public Hub. [`headers`](StoreBuilder::headers) for this server are sent to
    /// it, and a token among them takes precedence over the token in the environment.
    #[cfg(feature = "http")]
    #[cfg_attr(docsrs, doc(cfg(feature = "http")))]
    pub fn hub_endpoint(mut self, url: &str) -> Self {
        self.web.hub_endpoint = Some(url.into());
        self
    }

    /// The connections and the memory that reading may use. Default: the budget of the
    /// [process](Budget::process).
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Caches objects in a local directory: see [`Cache`]. Local files are not cached.
    pub fn cache(mut self, cache: Cache) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Number of bytes of one request. Default: 8 to 32 MiB, so that the time until a response begins is
    /// short compared with the time to receive the response; less if many objects share little memory. If the
    /// [budget](StoreBuilder::budget) has little memory left, a waiting reader requests fewer bytes than
    /// this, but at least 64 KiB.
    pub fn range_size(mut self, bytes: u64) -> Self {
        self.limits.range_size = Some(bytes);
        self
    }

    /// Maximum number of requests for one object that are in flight, or whose responses have not been read.
    /// Default: as many as the [budget](StoreBuilder::budget) allows.
    pub fn ranges_in_flight(mut self, requests: usize) -> Self {
        self.limits.ranges_in_flight = requests;
        self
    }

    /// Number of times that a request, or the rest of a range, is retried after a temporary fault. Default:
    /// 16, which takes two minutes or more. It applies to reading, and to listings, uploads and deletions in
    /// a bucket.
    ///
    /// Tries and [time](StoreBuilder::retry_timeout) are counted anew after a response has delivered 256 KiB.
    /// A complete response that is shorter than the requested range counts as a failed try if it has less
    /// than 16 KiB and less than a sixteenth of the range.
    pub fn retries(mut self, retries: u32) -> Self {
        self.limits.retries = retries;
        self
    }

    /// If a request makes no progress for this time, it is not retried any more. Default: 5 minutes. Pauses
    /// between tries count. Time in which the reader does not ask for data does not count. The last try may
    /// end up to one [`stall_timeout`](StoreBuilder::stall_timeout) later.
    ///
    /// A server that has never responded gets less time: 2 seconds if it refuses connections or its name has
    /// no address, and a minute if it is silent.
    pub fn retry_timeout(mut self, time: Duration) -> Self {
        self.limits.retry_timeout = time;
        self
    }

    /// Pause before the first retry. Default: 100 ms. The pause doubles with each retry, up to 30 s, and is
    /// shortened at random by up to half. If a store asks for a longer pause (`Retry-After`), the pause is
    /// that long. If the pause would end after the [time](StoreBuilder::retry_timeout) for all tries, the
    /// request is sent once more at the end of that time.
    pub fn retry_pause(mut self, pause: Duration) -> Self {
        self.limits.pause = pause;
        self
    }

    /// If no byte of a response arrives for this time, the response is dropped and the rest is requested
    /// again. Default: 20 s. Never longer than [`retry_timeout`](StoreBuilder::retry_timeout). A response
    /// that delivers less than 1 KiB per second over this time counts as silent.
    pub fn stall_timeout(mut self, time: Duration) -> Self {
        self.limits.stall = time;
        self
    }

    /// Sends a second request for a range of up to 8 MiB if the response to the first request takes longer
    /// than nearly all other responses did, and uses the response that arrives first. `share` is the maximum
    /// fraction of all bytes that may be requested twice, such as 0.05. Default: 0, no second requests.
    pub fn hedge(mut self, share: f64) -> Self {
        self.limits.hedge = share;
        self
    }

    /// Whether the bytes of an object that is read whole are compared with the checksum that the store sends.
    /// Default: true. CRC-32C takes almost no time; MD5, if the store has only that, about 2 ns per byte.
    pub fn checksums(mut self, compare: bool) -> Self {
        self.limits.checksums = compare;
        self
    }

    /// Records the time of each request for bytes of an object, without the object's name: see
    /// [`RequestRecording`].
    pub fn record_requests(mut self, recording: &RequestRecording) -> Self {
        self.recording = Some(recording.clone());
        self
    }

    /// Maximum number of decompressed bytes for each compressed byte of an object. Default: 1000; an archive
    /// with a higher ratio was probably made to exhaust memory. In addition, each object may have 64 MiB of
    /// decompressed bytes.
    ///
    /// An object that expands further ends with [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge).
    pub fn max_expansion(mut self, ratio: u32) -> Self {
        self.expansion.ratio = ratio;
        self
    }

    /// Builds the store.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] for invalid options, such as requests of 0 bytes or two sources with the same
    /// prefix.
    pub fn build(self) -> Result<Store> {
        self.check()?;
        Ok(self.build_unchecked())
    }

    fn check(&self) -> Result<()> {
        let bad = |what: String| Err(ErrorKind::Config(what).into());
        let FetchLimits { range_size, ranges_in_flight, stall, hedge, .. } = self.limits;
        if range_size == Some(0) {
            return bad("`range_size` of 0 bytes: set it to at least 1".into());
        }
        if ranges_in_flight == 0 {
            return bad("`ranges_in_flight` of 0: set it to at least 1".into());
        }
        if stall.is_zero() {
            return bad("`stall_timeout` of 0 s: set it to more than 0".into());
        }
        if !(0.0..=1.0).contains(&hedge) {
            return bad(format!("`hedge` of {hedge}: set it to a fraction from 0 to 1"));
        }
        if self.budget.as_ref().is_some_and(|budget| budget.connections() == 0) {
            return bad("`budget` of 0 connections: allow at least 1".into());
        }
        #[cfg(feature = "http")]
        self.web.check()?;
        for (at, (prefix, _)) in self.registered.iter().enumerate() {
            if prefix.expose_secret().starts_with(':') {
                return bad(
                    "`with_source` for the prefix \"\": give a scheme or more, as in \"mem://\"".into()
                );
            }
            if self.registered[..at].iter().any(|(other, _)| other == prefix) {
                return bad(format!("`with_source` twice for the prefix {prefix}: leave one of them out"));
            }
        }
        Ok(())
    }

    /// Builds the store from options that were checked.
    fn build_unchecked(mut self) -> Store {
        if !self.limits.retry_timeout.is_zero() {
            self.limits.stall = self.limits.stall.min(self.limits.retry_timeout);
        }
        Store(Arc::new(StoreInner {
            limits: self.limits,
            expansion: self.expansion,
            budget: self.budget.unwrap_or_else(Budget::process),
            meters: Mutex::default(),
            files: Arc::default(),
            cache: self.cache,
            recording: self.recording,
            sources: SourceRegistry::new(
                self.registered,
                self.limits,
                #[cfg(feature = "http")]
                self.web,
            ),
        }))
    }
}

impl fmt::Debug for StoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreBuilder").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Converts a prefix to the text that precedes `/key` in its URLs: `mem` and `mem://` to `mem:/`;
/// `gs://bucket` does not change.
fn base_of(prefix: &str) -> SecretUrl {
    let prefix = prefix.trim_end_matches('/');
    match prefix.contains('/') {
        true => prefix.into(),
        false => format!("{}:/", prefix.trim_end_matches(':')).into(),
    }
}
