//! Appends records to a log on a thread of its own.

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

/// Settings of an [`Appender`].
#[derive(Debug, Clone, Copy)]
pub struct AppenderSettings {
    /// Time between two writes of an object, and between a failed write and its retry.
    pub interval: Duration,
    /// Size in bytes at which an object is full and the next object is begun. The size is limited because
    /// each write of an object writes the whole object again.
    pub rotate: usize,
    /// Maximum number of bytes that wait to be written. If there are more, the oldest records are dropped.
    pub max_pending: usize,
    /// Maximum time for writing the end of a log.
    pub finish_timeout: Duration,
    /// Prints errors; by default to the standard error.
    pub on_error: fn(&str),
}

impl Default for AppenderSettings {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5),
            rotate: 1 << 20,
            max_pending: 16 << 20,
            finish_timeout: Duration::from_secs(30),
            // `eprintln!` would panic if the standard error is closed.
            on_error: |what| drop(writeln!(std::io::stderr(), "{what}")),
        }
    }
}

/// Writes records, in order, to a file or to objects, on a thread of its own.
///
/// A file is appended to. Objects cannot be appended to, so the records are in a series of objects, `URL`,
/// `URL.00001` and so on, and the last object is rewritten as it grows. The series continues after the
/// objects of an earlier process. Each object begins with the same header, and no record is split between
/// objects.
#[derive(Debug)]
pub struct Appender {
    records: Records,
    /// Receives the result of the thread; `None` after the result was received.
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
    dropped: DroppedRecords,
    closing: bool,
}

/// Totals of the records that were dropped.
#[derive(Debug, Default, Clone, Copy)]
struct DroppedRecords {
    records: u64,
    bytes: u64,
}

impl SharedQueue {
    // The lock is never poisoned: no code panics while it holds the lock.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Adds a record. Returns whether this call was the first to drop records.
    fn push(&mut self, record: Vec<u8>, max_bytes: usize) -> bool {
        let before = self.dropped.records;
        self.bytes += record.len();
        self.records.push_back(record);
        while self.bytes > max_bytes {
            let oldest = self.pop().unwrap_or_default();
            self.dropped.records += 1;
            self.dropped.bytes += oldest.len() as u64;
        }
        before == 0 && self.dropped.records > 0
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
        let (sender, end) = mpsc::channel();
        let records = Records { url: url.to_owned(), settings, shared };
        let Records { url, shared, .. } = records.clone();
        let run = move || drop(sender.send(run(&shared, sink, &url, settings).err()));
        std::thread::Builder::new().name("log".into()).spawn(run)?;
        Ok(Self { records, end: Some(end) })
    }

    /// Adds a record. Never waits for the store.
    pub fn write(&self, record: Vec<u8>) {
        self.records.write(record);
    }

    /// A handle with which other threads add records. Records that are added after the appender has finished
    /// are lost.
    pub fn records(&self) -> Records {
        self.records.clone()
    }

    /// Waits until all records are written, for at most `finish_timeout`.
    ///
    /// # Errors
    /// Fails if the end could not be written, or if records were dropped.
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
            DroppedRecords { records: 0, .. } => Ok(()),
            DroppedRecords { records, bytes } => Err(LogDirError::Dropped { url, records, bytes }),
        }
    }
}

impl Records {
    /// Adds a record. Never waits for the store.
    pub fn write(&self, record: Vec<u8>) {
        if record.is_empty() {
            return;
        }
        let is_first_drop = self.shared.queue().push(record, self.settings.max_pending);
        self.shared.changed.notify_all();
        if is_first_drop {
            (self.settings.on_error)(&format!(
                "the log {} cannot be written: its oldest lines are dropped",
                self.url
            ));
        }
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        // If `finish` was not called, the training has failed. Its last records, which say why, are written
        // here.
        if let Err(e) = self.close() {
            (self.records.settings.on_error)(&with_causes(&e));
        }
    }
}

/// Writes records until the log is closed. Returns the error of the last attempt, if that attempt failed.
fn run(
    shared: &SharedQueue,
    mut sink: Sink,
    url: &str,
    settings: AppenderSettings,
) -> shardstream::Result<()> {
    let mut is_reported = false;
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
            && !is_reported
        {
            is_reported = true;
            (settings.on_error)(&format!(
                "cannot write the log {}, trying again: {e:#}",
                SecretUrl::from(url)
            ));
        }
        let queue = shared.queue();
        if closing && (flushed.is_err() || queue.records.is_empty()) {
            return flushed;
        }
        // Records are written to a file at once. An object is written only when the interval is over, or when
        // it is full.
        let writes_at_once = flushed.is_ok() && (sink.is_file() || queue.bytes >= settings.rotate);
        if !writes_at_once {
            drop(shared.changed.wait_timeout_while(queue, settings.interval, |queue| !queue.closing));
        }
    }
}
