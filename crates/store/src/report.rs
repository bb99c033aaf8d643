//! Reports of the transfers of a store. Their counters are always active.

use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The transfers since a [`Store`](super::Store) was made, or [since](StoreReport::since) an earlier report.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StoreReport {
    /// One report for each bucket, registered prefix, or web server, sorted by name.
    pub sources: Vec<SourceReport>,
    /// The reads of local files.
    pub files: FileReport,
    /// The [warning](super::Cache::warning) of the store's cache.
    pub cache_warning: Option<String>,
}

/// The reads of local files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FileReport {
    /// Number of times that a file was opened.
    pub opened: u64,
    /// Number of bytes that were read.
    pub bytes: u64,
    /// Time spent reading, summed over all threads.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub reading: Duration,
}

/// The transfers from one bucket or host.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SourceReport {
    /// The bucket, registered prefix, or scheme and host.
    pub source: String,
    /// Number of requests for bytes of objects, including failed requests.
    pub requests: u64,
    /// Number of responses that were not errors.
    pub responses: u64,
    /// Number of bytes of objects that were received, including wasted ones: the bytes that a provider bills
    /// as egress.
    pub bytes: u64,
    /// Number of requests that were retries after a fault.
    pub retries: u64,
    /// Number of responses that asked to slow down (429, 503).
    pub throttled: u64,
    /// Number of second requests for a range, sent because the response to the first was late.
    pub hedges: u64,
    /// Number of received bytes that no reader needed: received twice, or before the requested range.
    pub wasted: u64,
    /// Number of bytes that were read from the cache instead of being requested.
    pub cached: u64,
    /// Number of bytes that the cache has fetched ahead of their readers.
    pub prefetched: u64,
    /// Number of bytes among `cached` that had been prefetched.
    pub prefetch_hits: u64,
    /// Time that readers have waited for bytes, summed over all readers, including waits in progress.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub waited: Duration,
    /// Time in which at least one request was in flight.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub active: Duration,
    /// Mean time from a request to the first byte of its response.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub first_byte: Duration,
}

impl SourceReport {
    /// Mean number of bytes received per second while at least one request was in flight.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        match self.active.as_secs_f64() {
            0.0 => 0.0,
            seconds => self.bytes as f64 / seconds,
        }
    }

    /// The fraction of the readers' bytes that came from the cache; 0 if there were no bytes.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        match self.cached.saturating_add(self.bytes.saturating_sub(self.prefetched)) {
            0 => 0.0,
            all => self.cached as f64 / all as f64,
        }
    }

    /// Combines each number with the corresponding number of `other`: counts by `count`, and times by `time`.
    /// Either both functions add, or both subtract.
    fn combine(
        &mut self,
        other: &SourceReport,
        count: impl Fn(u64, u64) -> u64,
        time: impl Fn(Duration, Duration) -> Duration,
    ) {
        let first_bytes = |report: &SourceReport| {
            report.first_byte.saturating_mul(u32::try_from(report.responses).unwrap_or(u32::MAX))
        };
        let waited = time(first_bytes(self), first_bytes(other));
        for (mine, others) in [
            (&mut self.requests, other.requests),
            (&mut self.responses, other.responses),
            (&mut self.bytes, other.bytes),
            (&mut self.retries, other.retries),
            (&mut self.throttled, other.throttled),
            (&mut self.hedges, other.hedges),
            (&mut self.wasted, other.wasted),
            (&mut self.cached, other.cached),
            (&mut self.prefetched, other.prefetched),
            (&mut self.prefetch_hits, other.prefetch_hits),
        ] {
            *mine = count(*mine, others);
        }
        self.waited = time(self.waited, other.waited);
        self.active = time(self.active, other.active);
        self.first_byte =
            waited.checked_div(u32::try_from(self.responses).unwrap_or(u32::MAX)).unwrap_or_default();
    }
}

impl StoreReport {
    /// Returns the transfers since `earlier`, a report of the same store.
    #[must_use]
    pub fn since(mut self, earlier: &StoreReport) -> StoreReport {
        for report in &mut self.sources {
            if let Some(before) = earlier.sources.iter().find(|before| before.source == report.source) {
                report.combine(before, u64::saturating_sub, Duration::saturating_sub);
            }
        }
        self.files.combine(&earlier.files, u64::saturating_sub, Duration::saturating_sub);
        self
    }

    /// Returns the sum over all sources, without local files. Its `active` is the sum of the times of all
    /// sources, which may overlap.
    #[must_use]
    pub fn total(&self) -> SourceReport {
        let mut total = SourceReport { source: "all".into(), ..SourceReport::default() };
        for report in &self.sources {
            total.combine(report, u64::saturating_add, Duration::saturating_add);
        }
        total
    }

    /// Returns one report for two stores.
    #[must_use]
    #[doc(hidden)]
    pub fn with(mut self, other: StoreReport) -> StoreReport {
        for report in other.sources {
            match self.sources.iter_mut().find(|mine| mine.source == report.source) {
                Some(mine) => mine.combine(&report, u64::saturating_add, Duration::saturating_add),
                None => self.sources.push(report),
            }
        }
        self.sources.sort_by(|a, b| a.source.cmp(&b.source));
        self.files.combine(&other.files, u64::saturating_add, Duration::saturating_add);
        self.cache_warning = self.cache_warning.or(other.cache_warning);
        self
    }

    /// Whether nothing has been transferred or read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty() && self.files == FileReport::default()
    }
}

impl FileReport {
    fn combine(
        &mut self,
        other: &FileReport,
        count: impl Fn(u64, u64) -> u64,
        time: impl Fn(Duration, Duration) -> Duration,
    ) {
        self.opened = count(self.opened, other.opened);
        self.bytes = count(self.bytes, other.bytes);
        self.reading = time(self.reading, other.reading);
    }
}

impl fmt::Display for FileReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, seconds) = (self.bytes as f64 / 1e6, self.reading.as_secs_f64());
        write!(f, "local files: {bytes:.1} MB of {} files, reading took {seconds:.2} s", self.opened)
    }
}

/// One line for each bucket or host, for a log.
impl fmt::Display for StoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, report) in self.sources.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            report.fmt(f)?;
        }
        if self.files != FileReport::default() {
            let between = if self.sources.is_empty() { "" } else { "\n" };
            write!(f, "{between}{}", self.files)?;
        }
        if let Some(warning) = &self.cache_warning {
            let between = if self.is_empty() { "" } else { "\n" };
            write!(f, "{between}{warning}")?;
        }
        Ok(())
    }
}

impl fmt::Display for SourceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = |bytes: f64| bytes / 1e6;
        write!(
            f,
            "{}: {:.1} MB in {} requests, {:.1} MB/s, first byte after {:.1} ms, waited {:.2} s",
            self.source,
            megabytes(self.bytes as f64),
            self.requests,
            megabytes(self.throughput()),
            self.first_byte.as_secs_f64() * 1e3,
            self.waited.as_secs_f64(),
        )?;
        for (count, what) in
            [(self.retries, "retries"), (self.throttled, "throttled"), (self.hedges, "hedges")]
        {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        if self.wasted > 0 {
            write!(f, ", {:.1} MB received for nothing", megabytes(self.wasted as f64))?;
        }
        if self.cached > 0 {
            let (bytes, rate) = (megabytes(self.cached as f64), self.hit_rate() * 100.0);
            write!(f, ", {bytes:.1} MB from the cache ({rate:.1} %)")?;
        }
        if self.prefetched > 0 {
            let (bytes, hits) = (megabytes(self.prefetched as f64), megabytes(self.prefetch_hits as f64));
            write!(f, ", {bytes:.1} MB prefetched, of which {hits:.1} MB were read")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_leaves_out_zeros() {
        let quiet = SourceReport { source: "mem:".into(), ..SourceReport::default() };
        assert_eq!(
            quiet.to_string(),
            "mem:: 0.0 MB in 0 requests, 0.0 MB/s, first byte after 0.0 ms, waited 0.00 s"
        );
        let loud = SourceReport { retries: 2, bytes: 1_000_000, cached: 3_000_000, ..quiet };
        assert!(loud.to_string().ends_with(", 2 retries, 3.0 MB from the cache (75.0 %)"));
        let ahead = SourceReport { prefetched: 1_000_000, prefetch_hits: 500_000, ..loud };
        let end = ", 3.0 MB from the cache (100.0 %), 1.0 MB prefetched, of which 0.5 MB were read";
        assert!(ahead.to_string().ends_with(end), "{ahead}");
    }

    #[test]
    fn reports_of_the_same_bucket_are_added() {
        let of = |source: &str, bytes| StoreReport {
            sources: vec![SourceReport { source: source.into(), bytes, ..SourceReport::default() }],
            files: FileReport { opened: 1, bytes, ..FileReport::default() },
            cache_warning: (bytes == 2).then(|| "the cache d: full".into()),
        };
        let both = of("b", 1).with(of("a", 2)).with(of("b", 4));
        assert_eq!(both.sources.iter().map(|report| report.bytes).collect::<Vec<_>>(), [2, 5]);
        assert_eq!((both.total().bytes, both.files.bytes, both.files.opened), (7, 7, 3));
        assert!(both.to_string().ends_with("\nthe cache d: full"), "{both}");
    }
}
