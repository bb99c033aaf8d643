//! A file that only grows, written beside the training.

use super::sink::Sink;
use super::{Error, Result};
use crate::error::with_causes;
use shardstream::SecretUrl;
use shardstream::store::Store;
use std::collections::VecDeque;
use std::io::Write;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How a log is written.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Between two writes of an object, and before anything that failed is tried again.
    pub interval: Duration,
    /// The size in bytes at which an object is followed by another one: each is written as a whole, again and
    /// again.
    pub rotate: usize,
    /// The most bytes that wait to be written. What is oldest of them is dropped for what is new.
    pub most: usize,
    /// How long the end of a log may take to be written.
    pub patience: Duration,
    /// Where the first error is told; the standard error by default.
    pub tell: fn(&str),
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5),
            rotate: 1 << 20,
            most: 16 << 20,
            patience: Duration::from_secs(30),
            // Not eprintln!, which panics when nobody reads any more.
            tell: |what| drop(writeln!(std::io::stderr(), "{what}")),
        }
    }
}

/// Writes records, in order, to a file or to objects, on a thread of its own.
///
/// A file is appended to. Of objects there is a row: `URL`, `URL.00001` and so on, of which the last one is
/// written anew while it grows; after those that an earlier process has left. Each begins with the same
/// header, and no record is divided.
#[derive(Debug)]
pub struct Appender {
    records: Records,
    /// Told when the thread ends; `None` once that was heard.
    end: Option<Receiver<Option<shardstream::Error>>>,
}

/// Adds records to an [`Appender`], from any thread. Clones add to the same one.
#[derive(Debug, Clone)]
pub struct Records {
    url: String,
    settings: Settings,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    records: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Records and bytes that were not kept.
    dropped: (u64, u64),
    closing: bool,
}

impl Shared {
    // Nothing that could panic happens under the lock.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Whether anything had to be dropped, for the first time.
    fn push(&mut self, record: Vec<u8>, most: usize) -> bool {
        let before = self.dropped.0;
        self.bytes += record.len();
        self.records.push_back(record);
        while self.bytes > most {
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
    pub fn start(store: &Store, url: &str, header: Vec<u8>, settings: Settings) -> Result<Self> {
        let sink = Sink::new(store, url, header, settings.rotate);
        let shared = Arc::new(Shared::default());
        let (ended, end) = mpsc::channel();
        let (url, theirs) = (url.to_owned(), Arc::clone(&shared));
        let told = url.clone();
        let run = move || drop(ended.send(run(&theirs, sink, &told, settings).err()));
        std::thread::Builder::new().name("log".into()).spawn(run)?;
        Ok(Self { records: Records { url, settings, shared }, end: Some(end) })
    }

    /// Adds a record. Returns at once, whatever the store does.
    pub fn write(&self, record: Vec<u8>) {
        self.records.write(record);
    }

    /// What other threads add records with. Those that come after the end of the appender are lost.
    pub fn records(&self) -> Records {
        self.records.clone()
    }

    /// Waits until all is written, but no longer than the settings allow.
    ///
    /// # Errors
    /// If that fails, or if something had to be dropped before.
    pub fn finish(mut self) -> Result<()> {
        self.close()
    }

    fn close(&mut self) -> Result<()> {
        let Some(end) = self.end.take() else { return Ok(()) };
        let Records { url, settings, shared } = &self.records;
        shared.queue().closing = true;
        shared.changed.notify_all();
        let (url, patience) = (SecretUrl::from(url), settings.patience);
        match end.recv_timeout(patience) {
            Ok(Some(source)) => return Err(Error::Write { url, source }),
            Ok(None) => {}
            // The thread is left to itself, and ends with the process.
            Err(RecvTimeoutError::Timeout) => return Err(Error::Late { url, patience }),
            Err(RecvTimeoutError::Disconnected) => return Err(Error::Panicked { url }),
        }
        match shared.queue().dropped {
            (0, _) => Ok(()),
            (records, bytes) => Err(Error::Dropped { url, records, bytes }),
        }
    }
}

impl Records {
    /// Adds a record. Returns at once, whatever the store does.
    pub fn write(&self, record: Vec<u8>) {
        if record.is_empty() {
            return;
        }
        let dropped = self.shared.queue().push(record, self.settings.most);
        self.shared.changed.notify_all();
        if dropped {
            (self.settings.tell)(&format!(
                "the log {} cannot be written: its oldest lines are dropped",
                self.url
            ));
        }
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        // The training has failed already: what it said last is wanted all the more.
        if let Err(e) = self.close() {
            (self.records.settings.tell)(&with_causes(&e));
        }
    }
}

/// Writes until the log is closed. The error is that of the last try.
fn run(shared: &Shared, mut sink: Sink, url: &str, settings: Settings) -> shardstream::Result<()> {
    let mut told = false;
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
            && !std::mem::replace(&mut told, true)
        {
            (settings.tell)(&format!("cannot write the log {}, trying again: {e:#}", SecretUrl::from(url)));
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
