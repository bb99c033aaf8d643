//! Writes a growing file on a thread of its own.

use super::LogDirError;
use super::sink::Sink;
use crate::causes::with_causes;
use shardstream::SecretUrl;
use shardstream::store::Store;
use std::collections::VecDeque;
use std::io::Write;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How an [`Appender`] writes.
#[derive(Debug, Clone, Copy)]
pub struct AppenderSettings {
    /// Interval between two writes of an object, and wait before a failed write is repeated.
    pub interval: Duration,
    /// The size in bytes at which a new object is begun, since each write of an object repeats all of it.
    pub rotate: usize,
    /// Maximum number of bytes that wait to be written. Beyond it, the oldest records are dropped.
    pub max_pending: usize,
    /// Maximum time to write the end of a log.
    pub finish_timeout: Duration,
    /// Prints the first error; by default to the standard error.
    pub on_error: fn(&str),
}

impl Default for AppenderSettings {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5),
            rotate: 1 << 20,
            max_pending: 16 << 20,
            finish_timeout: Duration::from_secs(30),
            // Not eprintln!, which panics when nobody reads any more.
            on_error: |what| drop(writeln!(std::io::stderr(), "{what}")),
        }
    }
}

/// Writes records, in order, to a file or to objects, on a thread of its own.
///
/// Files are appended to. Objects form a series, `URL`, `URL.00001` and so on, of which the last one is
/// rewritten as it grows. The series continues after the objects of an earlier process. Each object begins
/// with the same header, and no record is split.
#[derive(Debug)]
pub struct Appender {
    records: Records,
    /// Receives the result of the thread; `None` once it was received.
    end: Option<Receiver<Option<shardstream::Error>>>,
}

/// Adds records to an [`Appender`], from any thread. Clones add to the same appender.
#[derive(Debug, Clone)]
pub struct Records {
    url: String,
    settings: AppenderSettings,
    shared: Arc<SharedQueue>,
}

#[derive(Debug, Default)]
struct SharedQueue {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    records: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Number of dropped records and their bytes.
    dropped: (u64, u64),
    closing: bool,
}

impl SharedQueue {
    // Nothing that holds the lock can panic.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Adds a record. Returns whether records were dropped for the first time.
    fn push(&mut self, record: Vec<u8>, max_bytes: usize) -> bool {
        let before = self.dropped.0;
        self.bytes += record.len();
        self.records.push_back(record);
        while self.bytes > max_bytes {
            let oldest = self.pop().unwrap_or_default();
            self.dropped.0 += 1;
            self.dropped.1 += oldest.len() as u64;
        }
        before == 0 && self.dropped.0 > 0
    }

    fn pop(&mut self) -> Option<Vec<u8>> {
        let oldest = self.records.pop_front()?;
        self.bytes -= oldest.len();
        Some(oldest)
    }
}

impl Appender {
    /// Starts the thread. Nothing is written before the first record.
    pub fn start(
        store: &Store,
        url: &str,
        header: Vec<u8>,
        settings: AppenderSettings,
    ) -> Result<Self, LogDirError> {
        let sink = Sink::new(store, url, header, settings.rotate);
        let shared = Arc::new(SharedQueue::default());
        let (ended, end) = mpsc::channel();
        let (url, theirs) = (url.to_owned(), Arc::clone(&shared));
        let own_url = url.clone();
        let run = move || drop(ended.send(run(&theirs, sink, &own_url, settings).err()));
        std::thread::Builder::new().name("log".into()).spawn(run)?;
        Ok(Self { records: Records { url, settings, shared }, end: Some(end) })
    }

    /// Adds a record. Returns at once, whatever the store does.
    pub fn write(&self, record: Vec<u8>) {
        self.records.write(record);
    }

    /// A handle for other threads. Records that are added after the end of the appender are lost.
    pub fn records(&self) -> Records {
        self.records.clone()
    }

    /// Waits until all records are written, for at most the time that the settings allow.
    ///
    /// # Errors
    /// Fails if the end could not be written, or if records were dropped before.
    pub fn finish(mut self) -> Result<(), LogDirError> {
        self.close()
    }

    fn close(&mut self) -> Result<(), LogDirError> {
        let Some(end) = self.end.take() else { return Ok(()) };
        let Records { url, settings, shared } = &self.records;
        shared.queue().closing = true;
        shared.changed.notify_all();
        let (url, finish_timeout) = (SecretUrl::from(url), settings.finish_timeout);
        match end.recv_timeout(finish_timeout) {
            Ok(Some(source)) => return Err(LogDirError::Write { url, source }),
            Ok(None) => {}
            // The thread is abandoned, and ends with the process.
            Err(RecvTimeoutError::Timeout) => return Err(LogDirError::Late { url, finish_timeout }),
            Err(RecvTimeoutError::Disconnected) => return Err(LogDirError::Panicked { url }),
        }
        match shared.queue().dropped {
            (0, _) => Ok(()),
            (records, bytes) => Err(LogDirError::Dropped { url, records, bytes }),
        }
    }
}

impl Records {
    /// Adds a record. Returns at once, whatever the store does.
    pub fn write(&self, record: Vec<u8>) {
        if record.is_empty() {
            return;
        }
        let dropped = self.shared.queue().push(record, self.settings.max_pending);
        self.shared.changed.notify_all();
        if dropped {
            (self.settings.on_error)(&format!(
                "the log {} cannot be written: its oldest lines are dropped",
                self.url
            ));
        }
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        // The training has failed, and its last lines say why.
        if let Err(e) = self.close() {
            (self.records.settings.on_error)(&with_causes(&e));
        }
    }
}

/// Writes until the log is closed. Returns the error of the last attempt.
fn run(
    shared: &SharedQueue,
    mut sink: Sink,
    url: &str,
    settings: AppenderSettings,
) -> shardstream::Result<()> {
    let mut reported = false;
    loop {
        let mut queue = shared.queue();
        while queue.records.is_empty() && sink.is_clean() && !queue.closing {
            queue = shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        while sink.has_room()
            && let Some(record) = queue.pop()
        {
            sink.put(&record);
        }
        let closing = queue.closing;
        drop(queue);
        let flushed = sink.flush();
        if let Err(e) = &flushed
            && !std::mem::replace(&mut reported, true)
        {
            (settings.on_error)(&format!(
                "cannot write the log {}, trying again: {e:#}",
                SecretUrl::from(url)
            ));
        }
        let queue = shared.queue();
        if closing && (flushed.is_err() || queue.records.is_empty()) {
            return flushed;
        }
        let at_once = flushed.is_ok() && (sink.is_file() || queue.bytes >= settings.rotate);
        if !at_once {
            let waited = shared.changed.wait_timeout_while(queue, settings.interval, |queue| !queue.closing);
            drop(waited);
        }
    }
}
