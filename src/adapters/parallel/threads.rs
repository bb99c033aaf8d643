//! Threads that are stopped and joined when their owner goes.

use crate::Result;
use crate::wait::Interrupt;
use std::thread::{self, JoinHandle};

/// Dropping it ends the waits of all threads, and joins them. Whatever else they wait for must have been
/// ended before.
#[derive(Debug, Default)]
pub(crate) struct Threads(Vec<(JoinHandle<()>, Interrupt)>);

impl Threads {
    /// Starts one more.
    pub(crate) fn start(&mut self, name: String, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let interrupt = Interrupt::default();
        let attached = interrupt.clone();
        let thread = thread::Builder::new().name(name).spawn(move || {
            attached.attach();
            work();
        })?;
        self.0.push((thread, interrupt));
        Ok(())
    }

    /// Joins those that have ended.
    pub(crate) fn join_ended(&mut self) {
        for (thread, _) in self.0.extract_if(.., |(thread, _)| thread.is_finished()) {
            let _ = thread.join();
        }
    }

    /// How many were started.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // All of them before one is waited for: they may wait for each other.
        self.0.iter().for_each(|(_, interrupt)| interrupt.interrupt());
        for (thread, _) in self.0.drain(..) {
            // A thread hands its panics over as items; one that it could not hand over is nobody's to handle.
            let _ = thread.join();
        }
    }
}
