//! Tests that count threads and allocations of the whole process, and therefore run one at a time.

#[path = "../support/mod.rs"]
mod support;

mod allocations;
mod memory;
mod threads;
mod tuning;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// While a test holds this guard, no other test runs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
