//! `Threads`: threads that are stopped and joined when their owner is dropped.

use crate::Result;
use crate::wait::Interrupt;
use std::thread::{self, JoinHandle};

/// Threads whose waits can be interrupted.
///
/// Dropping a `Threads` interrupts all waits of its threads inside this crate, and joins the threads. Before
/// that, the owner must end all other waits of the threads.
#[derive(Debug, Default)]
pub(crate) struct Threads(Vec<(JoinHandle<()>, Interrupt)>);

impl Threads {
    /// Starts another thread.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if the system cannot start a thread.
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

    /// Joins the threads that have ended.
    pub(crate) fn join_ended(&mut self) {
        for (thread, _) in self.0.extract_if(.., |(thread, _)| thread.is_finished()) {
            let _ = thread.join();
        }
    }

    /// Number of threads that were started and not yet joined.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // All threads are interrupted before the first thread is joined, because threads may wait for each
        // other.
        self.0.iter().for_each(|(_, interrupt)| interrupt.interrupt());
        for (thread, _) in self.0.drain(..) {
            // Threads send panics as items. A panic that could not be sent is ignored here.
            let _ = thread.join();
        }
    }
}
