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
    /// Begins a store with options.
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
    /// Serves all URLs that begin with `prefix` from `source`. The prefix is a scheme (`ais` or `ais://`) or
    /// more (`gs://bucket`).
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
    /// `https://data.example.com/private`, or with a longer part of its path. The longest prefix counts
    /// alone.
    ///
    /// The values are [secrets](HttpHeaders). They are sent over https only (or to this machine), and to no
    /// other server: a redirect to another host or port goes without them.
    #[cfg(feature = "http")]
    #[cfg_attr(docsrs, doc(cfg(feature = "http")))]
    pub fn headers(mut self, prefix: &str, headers: HttpHeaders) -> Self {
        self.web.headers.push((prefix.into(), headers));
        self
    }

    /// The server of `hf://` URLs, such as `https://hub.example.com`; unless set, it is that of the variable
    /// `HF_ENDPOINT`, or the public one. [`headers`](StoreBuilder::headers) for this server are sent to it,
    /// and a token among them is used in place of that of the environment.
    #[cfg(feature = "http")]
    #[cfg_attr(docsrs, doc(cfg(feature = "http")))]
    pub fn hub_endpoint(mut self, url: &str) -> Self {
        self.web.hub_endpoint = Some(url.into());
        self
    }

    /// The connections and the memory that reading may use; the budget of the [process](Budget::process)
    /// unless set.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Caches objects that are not local files in a local directory: see [`Cache`].
    pub fn cache(mut self, cache: Cache) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Number of bytes that one request asks for. Unless set it is 8 to 32 MiB, so that the time until a
    /// response begins is short compared with the rest of it; less where many objects share little memory. A
    /// size that is set holds unless the [budget](StoreBuilder::budget) has little memory left: a reader that
    /// waits then asks for less at a time, 64 KiB at least.
    pub fn range_size(mut self, bytes: u64) -> Self {
        self.limits.range_size = Some(bytes);
        self
    }

    /// Maximum number of requests of one object in flight, or answered and not read yet; as many as the
    /// [budget](StoreBuilder::budget) allows unless set.
    pub fn ranges_in_flight(mut self, requests: usize) -> Self {
        self.limits.ranges_in_flight = requests;
        self
    }

    /// Number of times that a request, or the rest of a range, is retried after a fault that may pass; 16
    /// unless set, which takes two minutes or more. It holds for reading, and for listings, uploads and
    /// deletions in a bucket.
    ///
    /// Tries and [time](StoreBuilder::retry_timeout) are counted anew when a response has brought 256 KiB. A
    /// response that is whole but shorter than requested counts as a failed try if it brings less than 16 KiB
    /// and less than a sixteenth of what was requested.
    pub fn retries(mut self, retries: u32) -> Self {
        self.limits.retries = retries;
        self
    }

    /// Time for which a request, or the rest of a range, is retried without progress, pauses included; 5
    /// minutes unless set. Time in which a reader rests does not count. The last try may end up to one
    /// [`stall_timeout`](StoreBuilder::stall_timeout) later.
    ///
    /// A server that has never answered is given up sooner: after 2 seconds if it refuses connections or its
    /// name has no address, and after a minute of silence.
    pub fn retry_timeout(mut self, time: Duration) -> Self {
        self.limits.retry_timeout = time;
        self
    }

    /// Pause before the first retry; 100 ms unless set. It doubles with each retry, up to 30 s, and is
    /// shortened at random by up to a half. A store that asks for more time (`Retry-After`) gets it, up to
    /// the end of the [time](StoreBuilder::retry_timeout) for all tries, when the request is sent once more.
    pub fn retry_pause(mut self, pause: Duration) -> Self {
        self.limits.pause = pause;
        self
    }

    /// Time without a byte of a response after which it is given up and the rest is requested again; 20 s
    /// unless set, and never longer than [`retry_timeout`](StoreBuilder::retry_timeout). Less than 1 KiB per
    /// second over this time counts as nothing.
    pub fn stall_timeout(mut self, time: Duration) -> Self {
        self.limits.stall = time;
        self
    }

    /// Sends a second request for a range of up to 8 MiB when the first is answered later than nearly all
    /// others were, and takes the response that comes first. `share` is the maximum share of all bytes that
    /// may be requested twice: 0.05 for a twentieth. Unless set it is 0: no second requests.
    pub fn hedge(mut self, share: f64) -> Self {
        self.limits.hedge = share;
        self
    }

    /// Whether the received bytes are compared with the checksum that a store gives with an object, where the
    /// whole object is read; true unless set. CRC-32C costs next to nothing; MD5, where a store has nothing
    /// else, some 2 ns per byte.
    pub fn checksums(mut self, compare: bool) -> Self {
        self.limits.checksums = compare;
        self
    }

    /// Records the time of each request for bytes of an object, without its name: see [`RequestRecording`].
    pub fn record_requests(mut self, recording: &RequestRecording) -> Self {
        self.recording = Some(recording.clone());
        self
    }

    /// Maximum number of decompressed bytes for each byte of a compressed object, beyond the first 64 MiB;
    /// 1000 unless set. Archives hardly reach that unless they were made to.
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
    /// [`ErrorKind::Config`] for options that make no sense, such as requests of 0 bytes or two sources of
    /// one prefix.
    pub fn build(self) -> Result<Store> {
        self.check()?;
        Ok(self.build_unchecked())
    }

    fn check(&self) -> Result<()> {
        let bad = |what: String| Err(ErrorKind::Config(what).into());
        let FetchLimits { range_size, ranges_in_flight, stall, hedge, .. } = self.limits;
        if range_size == Some(0) {
            return bad("`range_size` of 0 bytes: make it at least 1".into());
        }
        if ranges_in_flight == 0 {
            return bad("`ranges_in_flight` of 0: make it at least 1".into());
        }
        if stall.is_zero() {
            return bad("`stall_timeout` of 0 s: give a response some time".into());
        }
        if !(0.0..=1.0).contains(&hedge) {
            return bad(format!("`hedge` of {hedge}: make it a share from 0 to 1"));
        }
        if self.budget.as_ref().is_some_and(|budget| budget.connections() == 0) {
            return bad("`budget` of 0 connections: make it at least 1".into());
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

/// The part before `/key` of the URLs of a prefix: `mem:/` for `mem` and `mem://`, `gs://bucket` for itself.
fn base_of(prefix: &str) -> SecretUrl {
    let prefix = prefix.trim_end_matches('/');
    match prefix.contains('/') {
        true => prefix.into(),
        false => format!("{}:/", prefix.trim_end_matches(':')).into(),
    }
}
