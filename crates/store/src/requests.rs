//! The table of requests in flight, to find out why no data arrives.

use crate::SecretUrl;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A request that is in flight or pauses before a retry, or a listing, upload or deletion in progress.
/// Returned by [`Store::requests`](super::Store::requests).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RequestReport {
    /// The URL of the object. It is serialised without its secrets.
    #[serde(serialize_with = "shown_url")]
    pub url: SecretUrl,
    /// The requested range of bytes; `None` for the whole object.
    pub range: Option<Range<u64>>,
    /// The phase of the request.
    #[serde(flatten)]
    pub phase: RequestPhase,
    /// Time since the request was sent, or since the pause began.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub elapsed: Duration,
    /// Time since the last bytes arrived; if none have, since the request was sent.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub idle: Duration,
    /// Number of bytes of the response's body that have arrived; for an upload, number of bytes that were
    /// sent.
    pub received: u64,
}

fn shown_url<S: Serializer>(url: &SecretUrl, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(url)
}

/// The phase of a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case", tag = "phase")]
pub enum RequestPhase {
    /// The request was sent, and its response has not begun.
    AwaitsResponse,
    /// The response has begun, and its body is being received.
    Body,
    /// The request failed, and is retried after a pause.
    Pause {
        /// Number of times that the request has failed.
        tries: u32,
        /// The last error.
        error: String,
    },
    /// The objects below a URL are being listed.
    Listing,
    /// An object is being written.
    Upload,
    /// An object is being deleted.
    Deletion,
}

impl fmt::Display for RequestReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.url)?;
        let is_other =
            matches!(self.phase, RequestPhase::Listing | RequestPhase::Upload | RequestPhase::Deletion);
        match &self.range {
            Some(range) => write!(f, " bytes {}-{}", range.start, range.end.saturating_sub(1))?,
            None if is_other => {}
            None => f.write_str(" (whole object)")?,
        }
        let (elapsed, idle) = (self.elapsed.as_secs_f64(), self.idle.as_secs_f64());
        match &self.phase {
            RequestPhase::AwaitsResponse => write!(f, ": sent {elapsed:.1} s ago, no response yet"),
            RequestPhase::Body => {
                let received = self.received;
                write!(f, ": {received} bytes in {elapsed:.1} s, the last of them {idle:.1} s ago")
            }
            RequestPhase::Pause { tries, error } => {
                write!(f, ": failed {tries} times, pauses since {elapsed:.1} s before the next try: {error}")
            }
            RequestPhase::Listing => write!(f, ": its listing began {elapsed:.1} s ago"),
            RequestPhase::Upload => {
                let sent = self.received;
                write!(f, ": {sent} bytes written in {elapsed:.1} s, the last of them {idle:.1} s ago")
            }
            RequestPhase::Deletion => write!(f, ": its deletion began {elapsed:.1} s ago"),
        }
    }
}

/// The requests in flight to one bucket or host.
#[derive(Debug, Default)]
pub(super) struct Requests(Mutex<RequestTable>);

#[derive(Debug, Default)]
struct RequestTable {
    next: u64,
    by_number: BTreeMap<u64, OpenRequest>,
}

#[derive(Debug)]
struct OpenRequest {
    url: SecretUrl,
    range: Option<Range<u64>>,
    phase: RequestPhase,
    start: Instant,
    last: Instant,
    received: u64,
}

impl Requests {
    /// Adds a request to the table. Dropping the returned entry removes it.
    pub(super) fn begin(
        self: &Arc<Self>,
        url: &SecretUrl,
        range: Option<Range<u64>>,
        phase: RequestPhase,
    ) -> RequestEntry {
        let start = Instant::now();
        let mut table = self.lock();
        let number = table.next;
        table.next += 1;
        let request = OpenRequest { url: url.clone(), range, phase, start, last: start, received: 0 };
        table.by_number.insert(number, request);
        RequestEntry { requests: Arc::clone(self), number }
    }

    pub(super) fn report(&self) -> Vec<RequestReport> {
        let report = |request: &OpenRequest| RequestReport {
            url: request.url.clone(),
            range: request.range.clone(),
            phase: request.phase.clone(),
            elapsed: request.start.elapsed(),
            idle: request.last.elapsed(),
            received: request.received,
        };
        self.lock().by_number.values().map(report).collect()
    }

    fn lock(&self) -> MutexGuard<'_, RequestTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request in the table. Dropping the entry removes it.
#[derive(Debug)]
pub(super) struct RequestEntry {
    requests: Arc<Requests>,
    number: u64,
}

impl RequestEntry {
    pub(super) fn answered(&self) {
        self.change(|request| request.phase = RequestPhase::Body);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.change(|request| request.received += bytes as u64);
    }

    fn change(&self, change: impl FnOnce(&mut OpenRequest)) {
        if let Some(request) = self.requests.lock().by_number.get_mut(&self.number) {
            request.last = Instant::now();
            change(request);
        }
    }
}

impl Drop for RequestEntry {
    fn drop(&mut self) {
        self.requests.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_listed_until_it_ends() {
        let requests = Arc::new(Requests::default());
        let url = SecretUrl::from("https://host/a.tar?signature=abc");
        let entry = requests.begin(&url, Some(0..100), RequestPhase::AwaitsResponse);
        let shown = |requests: &Requests| requests.report().first().map(ToString::to_string);
        let unanswered = "https://host/a.tar?[redacted] bytes 0-99: sent 0.0 s ago, no response yet";
        assert_eq!(shown(&requests).as_deref(), Some(unanswered));
        entry.answered();
        entry.received(40);
        let body = "https://host/a.tar?[redacted] bytes 0-99: 40 bytes in 0.0 s, the last of them 0.0 s ago";
        assert_eq!(shown(&requests).as_deref(), Some(body));
        let json = serde_json::to_string(&requests.report()).unwrap();
        for part in [r#""received":40"#, r#""phase":"body""#, r#""url":"https://host/a.tar?[redacted]""#] {
            assert!(json.contains(part), "no {part} in {json}");
        }
        drop(entry);
        assert_eq!(shown(&requests), None);
    }
}
