//! Lock-free counters of the memory that the parts of a pipeline hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of bytes that are held now, by one holder or by several. Clones share one counter.
#[derive(Debug, Clone, Default)]
pub struct Gauge(Arc<AtomicU64>);

impl Gauge {
    pub fn bytes(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The bytes of one holder, in a [`Gauge`] that adds up several holders. Dropping this subtracts them.
#[derive(Debug, Default)]
pub struct MemoryShare {
    gauge: Gauge,
    bytes: u64,
}

impl MemoryShare {
    pub fn of(gauge: &Gauge, bytes: u64) -> Self {
        let mut share = MemoryShare { gauge: gauge.clone(), bytes: 0 };
        share.set(bytes);
        share
    }

    /// Changes the number of bytes.
    pub fn set(&mut self, bytes: u64) {
        let all = &self.gauge.0;
        match bytes.checked_sub(self.bytes) {
            Some(more) => all.fetch_add(more, Relaxed),
            None => all.fetch_sub(self.bytes - bytes, Relaxed),
        };
        self.bytes = bytes;
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Sets a [`Gauge`] that has a single holder. Dropping this sets the gauge to 0. A change is a plain store,
/// which is cheap enough to make for each sample.
#[derive(Debug, Default)]
pub struct Level(Gauge);

impl Level {
    pub fn of(gauge: &Gauge) -> Self {
        Level(gauge.clone())
    }

    /// Changes the number of bytes.
    pub fn set(&self, bytes: u64) {
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
    fn bytes_count_until_their_holder_is_dropped() {
        let gauge = Gauge::default();
        let (mut one, other) = (MemoryShare::of(&gauge, 10), MemoryShare::of(&gauge, 5));
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
