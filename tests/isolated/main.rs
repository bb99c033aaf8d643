//! Tests that count resources of the whole process, its threads and allocations, so that one runs at a time.

#[path = "../support/mod.rs"]
mod support;

mod allocations;
mod memory;
mod threads;
mod tuning;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by the test that runs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
