//! Counts the reads of local files.

use crate::FileReport;
use crate::telemetry::count;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct FileMeter {
    opened: AtomicU64,
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
}

impl FileMeter {
    pub(super) fn opened(&self) {
        self.opened.fetch_add(1, Relaxed);
    }

    pub(super) fn read(&self, bytes: usize, duration: Duration) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
        count!("shardstream_file_bytes_total", bytes as u64);
        self.nanoseconds.fetch_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(crate) fn report(&self) -> FileReport {
        FileReport {
            opened: self.opened.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            reading: Duration::from_nanos(self.nanoseconds.load(Relaxed)),
        }
    }
}
