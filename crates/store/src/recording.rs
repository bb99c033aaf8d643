//! Records the times of requests. With a recording, the tuning of connections can be tested without the
//! network on which the recording was made.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of requests in a recording. 200,000 requests take about 16 MB of memory, and are enough for
/// 1.6 TB of objects in ranges of the default size.
const MAX_REQUESTS: usize = 200_000;

/// Records how long each request of a store takes, to test the tuning of connections with data of a real
/// network.
///
/// A recording has sizes, times and outcomes. It has no name, URL or key of an object, bucket or account, so
/// that it can be published. Clones share one recording. It stores up to 200,000 requests, and counts the
/// rest.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
/// use shardstream::store::{RequestRecording, Store, object_store::memory::InMemory};
/// use std::sync::Arc;
///
/// let recording = RequestRecording::new();
/// let store = Store::builder()
///     .with_object_store("mem://", Arc::new(InMemory::new()))
///     .record_requests(&recording)
///     .build()?;
/// store.put("mem://a/b.txt", b"12345")?;
/// store.open("mem://a/b.txt")?.read_all()?;
/// let lines = recording.to_json_lines();
/// assert_eq!(lines.lines().count(), 2);
/// assert!(lines.contains(r#""bytes":5"#));
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Clone)]
pub struct RequestRecording(Arc<RecordingInner>);

struct RecordingInner {
    start: Instant,
    recorded: Mutex<Recorded>,
}

#[derive(Default)]
struct Recorded {
    requests: Vec<RecordedRequest>,
    left_out: u64,
}

/// One request for bytes of an object, from a [`RequestRecording`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordedRequest {
    /// The time from the start of the recording until the request was sent.
    #[serde(rename = "start_us", with = "microseconds")]
    pub(crate) start: Duration,
    /// Offset of the first requested byte in the object.
    pub(crate) offset: u64,
    /// Number of requested bytes; `None` for the whole object.
    pub(crate) size: Option<u64>,
    /// The number of this try since the last progress, from 1.
    pub(crate) attempt: u32,
    /// Time until the response began; `None` if it never did.
    #[serde(rename = "first_byte_us", with = "optional_microseconds")]
    pub(crate) first_byte: Option<Duration>,
    /// Time until the last byte, or until the request failed or was dropped.
    #[serde(rename = "duration_us", with = "microseconds")]
    pub(crate) duration: Duration,
    /// Number of bytes of the body that were received.
    pub(crate) bytes: u64,
    /// How the request ended.
    pub(crate) outcome: RequestOutcome,
}

/// How a recorded request ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RequestOutcome {
    /// The response was read to its end.
    Done,
    /// The server asked to slow down.
    Busy,
    /// The request or its response failed.
    Failed,
    /// The reader did not need the rest of the response.
    #[default]
    Dropped,
}

/// The first line of a recording.
#[derive(Serialize, Deserialize)]
struct RecordingHead {
    format: String,
    version: u32,
    /// Number of requests beyond the maximum.
    left_out: u64,
}

const FORMAT: &str = "shardstream requests";
const VERSION: u32 = 1;

impl RequestRecording {
    /// Begins a recording.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The requests that have ended so far, in the order in which they ended.
    #[cfg(test)]
    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.recorded().requests.clone()
    }

    /// The recording as lines of JSON: one that names the format and its version, and one for each request
    /// that has ended. `docs/network.md` explains the fields.
    #[must_use]
    pub fn to_json_lines(&self) -> String {
        let recorded = self.recorded();
        let head = RecordingHead { format: FORMAT.into(), version: VERSION, left_out: recorded.left_out };
        let lines = recorded.requests.iter().map(serde_json::to_string);
        // Cannot fail: the lines have only numbers and fixed names.
        let lines = std::iter::once(serde_json::to_string(&head)).chain(lines).map(Result::unwrap_or_default);
        lines.map(|line| line + "\n").collect()
    }

    /// Whether `text` begins like a recording.
    #[doc(hidden)]
    #[must_use]
    pub fn is_recording(text: &[u8]) -> bool {
        let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        serde_json::from_slice::<RecordingHead>(line).is_ok_and(|head| head.format == FORMAT)
    }

    /// Adds a request that was sent at `sent` and has ended.
    pub(super) fn add(&self, sent: Instant, request: RecordedRequest) {
        let start = sent.saturating_duration_since(self.0.start);
        let mut recorded = self.recorded();
        match recorded.requests.len() < MAX_REQUESTS {
            true => recorded.requests.push(RecordedRequest { start, ..request }),
            false => recorded.left_out += 1,
        }
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.0.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for RequestRecording {
    fn default() -> Self {
        RequestRecording(Arc::new(RecordingInner { start: Instant::now(), recorded: Mutex::default() }))
    }
}

impl fmt::Debug for RequestRecording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestRecording").field("requests", &self.recorded().requests.len()).finish()
    }
}

/// Durations as whole microseconds.
mod microseconds {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub(super) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_micros)
    }
}

/// Durations that may be absent, as whole microseconds.
mod optional_microseconds {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub(super) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => super::microseconds::serialize(time, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_micros))
    }
}

/// Parses the requests in the text of a recording.
#[cfg(test)]
pub(super) fn parse(text: &str) -> serde_json::Result<Vec<RecordedRequest>> {
    let mut lines = text.lines();
    let head: RecordingHead = serde_json::from_str(lines.next().unwrap_or_default())?;
    assert_eq!((&*head.format, head.version), (FORMAT, VERSION), "another format or version");
    lines.map(serde_json::from_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> RecordedRequest {
        RecordedRequest {
            start: Duration::ZERO,
            offset: 5,
            size: Some(100),
            attempt: 2,
            first_byte: Some(Duration::from_micros(20_100)),
            duration: Duration::from_millis(30),
            bytes: 100,
            outcome: RequestOutcome::Done,
        }
    }

    #[test]
    fn the_text_of_a_recording_has_its_requests() {
        let recording = RequestRecording::new();
        let failed = RecordedRequest {
            size: None,
            first_byte: None,
            bytes: 0,
            outcome: RequestOutcome::Busy,
            ..request()
        };
        let sent = recording.0.start + Duration::from_millis(7);
        recording.add(sent, request());
        recording.add(sent, failed);
        let text = recording.to_json_lines();
        let line = r#"{"start_us":7000,"offset":5,"size":100,"attempt":2,"first_byte_us":20100,"#;
        assert!(text.lines().nth(1).unwrap().starts_with(line), "{text}");
        assert_eq!(parse(&text).unwrap(), recording.requests());
        assert!(RequestRecording::is_recording(text.as_bytes()));
        for other in ["", "[\n{}", "{}\n", "a.tar\0"] {
            assert!(!RequestRecording::is_recording(other.as_bytes()), "{other:?}");
        }
    }

    #[test]
    fn requests_beyond_the_limit_are_counted() {
        let recording = RequestRecording::new();
        (0..MAX_REQUESTS + 3).for_each(|_| recording.add(recording.0.start, request()));
        assert_eq!(recording.requests().len(), MAX_REQUESTS);
        assert!(recording.to_json_lines().lines().next().unwrap().ends_with(r#""left_out":3}"#));
    }
}
