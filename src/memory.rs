//! How much memory each owner holds: counters without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes that one owner holds now. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gauge(Arc<AtomicU64>);

impl Gauge {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Bytes of a [`Gauge`] that several holders share, until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Share {
    gauge: Gauge,
    bytes: u64,
}

impl Share {
    pub(crate) fn of(gauge: &Gauge, bytes: u64) -> Self {
        let mut share = Share { gauge: gauge.clone(), bytes: 0 };
        share.set(bytes);
        share
    }

    /// Sets the number of bytes.
    pub(crate) fn set(&mut self, bytes: u64) {
        let all = &self.gauge.0;
        match bytes.checked_sub(self.bytes) {
            Some(more) => all.fetch_add(more, Relaxed),
            None => all.fetch_sub(self.bytes - bytes, Relaxed),
        };
        self.bytes = bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Bytes of a [`Gauge`] that has this holder alone, until this is dropped: a change is a plain store, cheap
/// enough for each sample.
#[derive(Debug, Default)]
pub(crate) struct Level(Gauge);

impl Level {
    pub(crate) fn of(gauge: &Gauge) -> Self {
        Level(gauge.clone())
    }

    /// Sets the number of bytes.
    pub(crate) fn set(&self, bytes: u64) {
        self.0.0.store(bytes, Relaxed);
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_counted_until_it_is_let_go() {
        let gauge = Gauge::default();
        let (mut one, other) = (Share::of(&gauge, 10), Share::of(&gauge, 5));
        assert_eq!(gauge.bytes(), 15);
        one.set(3);
        assert_eq!(gauge.bytes(), 8);
        one.set(30);
        assert_eq!(gauge.bytes(), 35);
        drop((one, other));
        assert_eq!(gauge.bytes(), 0);
        let level = Level::of(&gauge);
        level.set(7);
        level.set(4);
        assert_eq!(gauge.bytes(), 4);
        drop(level);
        assert_eq!(gauge.bytes(), 0);
    }
}
