//! Reads ranges of one object. The content of the earlier ranges may decide which ranges follow.

use super::body::Body;
use super::budget::ReadQueue;
use super::object_cell::ObjectCell;
use super::object_version::ObjectVersion;
use super::store::Store;
use crate::memory::Gauge;
use crate::secret_url::SecretUrl;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use futures::stream::{BoxStream, Stream, StreamExt};
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

/// A list of the ranges of an object that a parser requests. The parser receives the bytes of the ranges in
/// the order of the list. Clones share one list.
///
/// A parser appends ranges while it reads; for example, a table of contents at the end of a file says which
/// ranges to read. When the parser reads its next bytes, the fetches of all appended ranges begin. So a range
/// can arrive while the parser still works on the bytes of the previous range.
#[derive(Debug, Clone, Default)]
pub struct RangeRequests(Arc<Mutex<VecDeque<Range<u64>>>>);

impl RangeRequests {
    /// Appends a range of bytes of the object. Does nothing if the range is empty.
    pub fn push(&self, range: Range<u64>) {
        if !range.is_empty() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(range);
        }
    }

    /// Removes and returns the first range. The caller must then read the bytes of this range.
    #[must_use]
    pub fn take(&self) -> Option<Range<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

impl Store {
    /// Opens the requested ranges of the object at `url`. The body has the bytes of one range after the
    /// other, and ends when all ranges that were requested have been read. The object must have the version
    /// `version`.
    ///
    /// # Errors
    /// Fails as [`open_range`](Store::open_range) does. The body returns [`ErrorKind::Length`] if the object
    /// ends within a range.
    #[doc(hidden)]
    pub fn open_ranges(&self, url: &str, requests: &RangeRequests, version: &ObjectVersion) -> Result<Body> {
        let queue = self.queue(&Gauge::default());
        queue.set_remaining(u64::MAX);
        let (body, _) = self.open_ranges_in(&queue, url, requests, |_| ())?;
        Ok(body.of_version(version))
    }

    /// As [`open_ranges`](Store::open_ranges), but accepts any version of the object, and reads the ranges
    /// after all objects that were opened in `queue` before. Each range has a body of its own; `prepare` is
    /// called with it before its fetch begins. Begins to fetch the ranges that have already been requested.
    /// Returns one body for all ranges, and the number of later objects in `queue` whose fetches should begin
    /// too.
    #[doc(hidden)]
    pub fn open_ranges_in(
        &self,
        queue: &ReadQueue,
        url: &str,
        requests: &RangeRequests,
        prepare: impl Fn(&mut Body) + Send + 'static,
    ) -> Result<(Body, usize)> {
        let object = ObjectCell::default();
        let mut chunks = RangeChunks {
            store: self.clone(),
            queue: queue.place(),
            url: url.into(),
            requests: requests.clone(),
            prepare: Box::new(prepare),
            opened: VecDeque::new(),
            object: object.clone(),
        };
        let behind = chunks.open_requested()?;
        Ok((Body::from_stream(chunks).part_of(object, 0).named(url), behind))
    }
}

/// A stream of the bytes of the requested ranges, in the order of the requests.
struct RangeChunks {
    store: Store,
    /// A reserved position in the reader's queue. All ranges are read at this position, so a range that is
    /// requested late is still read before the objects that were opened after this stream.
    queue: ReadQueue,
    url: SecretUrl,
    requests: RangeRequests,
    prepare: Box<dyn Fn(&mut Body) + Send>,
    /// The ranges whose fetches have begun. The first one is being read.
    opened: VecDeque<OpenedRange>,
    /// The version of the object in the first response. The responses for all other ranges must have the same
    /// version.
    object: ObjectCell,
}

struct OpenedRange {
    range: Range<u64>,
    received: u64,
    chunks: BoxStream<'static, Result<Bytes>>,
    object: ObjectCell,
}

impl RangeChunks {
    /// Begins to fetch all ranges that were requested. Returns the number of later objects in the queue whose
    /// fetches should begin too.
    fn open_requested(&mut self) -> Result<usize> {
        let mut behind = 0;
        while let Some(range) = self.requests.take() {
            let url = self.url.expose_secret();
            let mut body = self.store.open_range_in(&self.queue, url, range.clone())?;
            (self.prepare)(&mut body);
            if let Some(object) = self.object.get() {
                body.set_known_version(object.clone());
                body = body.of_version(&object);
            }
            behind = behind.max(body.begin());
            let object = body.object_cell();
            self.opened.push_back(OpenedRange {
                range,
                received: 0,
                chunks: body.into_stream().boxed(),
                object,
            });
        }
        Ok(behind)
    }
}

impl Stream for RangeChunks {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Err(error) = this.open_requested() {
                return Poll::Ready(Some(Err(error)));
            }
            let Some(first) = this.opened.front_mut() else { return Poll::Ready(None) };
            let item = ready!(first.chunks.poll_next_unpin(cx));
            if let Some(object) = first.object.get() {
                this.object.set(object);
            }
            match item {
                Some(Ok(chunk)) => {
                    first.received += chunk.len() as u64;
                    return Poll::Ready(Some(Ok(chunk)));
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    let (expected, received) = (first.range.end - first.range.start, first.received);
                    let end = first.range.start.saturating_add(received);
                    this.opened.pop_front();
                    if received != expected {
                        let error = Error::from(ErrorKind::Length { expected, received });
                        return Poll::Ready(Some(Err(error.at_offset(end))));
                    }
                }
            }
        }
    }
}

impl fmt::Debug for RangeChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeChunks").field("url", &self.url).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn object(bytes: &[u8]) -> (tempfile::TempDir, String) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("object").display().to_string();
        fs::write(&path, bytes).unwrap();
        (directory, path)
    }

    #[test]
    fn ranges_are_read_in_the_order_in_which_they_were_requested() {
        let (_directory, path) = object(b"0123456789");
        let (store, requests) = (Store::default(), RangeRequests::default());
        requests.push(8..10);
        let mut body = store.open_ranges(&path, &requests, &ObjectVersion::any()).unwrap();
        assert_eq!(body.next().unwrap().unwrap(), "89");
        requests.push(2..5);
        requests.push(7..7);
        requests.push(0..1);
        assert_eq!(body.object().unwrap().size, Some(10));
        assert_eq!(body.read_all().unwrap(), "2340");
    }

    #[test]
    fn a_range_beyond_the_end_of_the_object_is_an_error() {
        let (_directory, path) = object(b"0123456789");
        let requests = RangeRequests::default();
        requests.push(6..14);
        let body = Store::default().open_ranges(&path, &requests, &ObjectVersion::any()).unwrap();
        let error = body.read_all().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Length { expected: 8, received: 4 }), "{error}");
        assert_eq!(error.location().offset(), Some(10));
    }

    #[test]
    fn an_object_that_is_replaced_between_two_ranges_is_an_error() {
        let (_directory, path) = object(b"0123456789");
        let requests = RangeRequests::default();
        requests.push(0..2);
        let mut body = Store::default().open_ranges(&path, &requests, &ObjectVersion::any()).unwrap();
        assert_eq!(body.next().unwrap().unwrap(), "01");
        fs::write(&path, "another object").unwrap();
        requests.push(2..4);
        let error = body.read_all().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Changed { .. }), "{error}");
    }

    #[test]
    fn a_compressed_object_has_no_ranges() {
        let requests = RangeRequests::default();
        requests.push(0..2);
        let error = Store::default().open_ranges("x.gz", &requests, &ObjectVersion::any()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_) | ErrorKind::UnsupportedCompression(_)));
    }
}
