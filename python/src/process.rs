//! Waits that Ctrl-C ends, and values that a fork leaves without their threads.

use crate::{error, log};
use pyo3::prelude::*;
use std::mem;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::Duration;

/// Time between two looks for a signal. Ctrl-C is to be noticed within a tenth of a second.
const SIGNAL_PERIOD: Duration = Duration::from_millis(25);

/// The process that has started threads of the library; 0 before.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Checks that this process has the library's threads, or may start them.
pub(crate) fn check_not_forked() -> PyResult<()> {
    let process = process::id();
    match OWNER.compare_exchange(0, process, Relaxed, Relaxed) {
        Err(owner) if owner != process => Err(error::forked(owner)),
        _ => Ok(()),
    }
}

/// Whether this process is a child of the one that has the library's threads.
pub(crate) fn is_forked() -> bool {
    ![0, process::id()].contains(&OWNER.load(Relaxed))
}

/// A value that uses threads or locks of the process it was made in. In a child that was forked from it, the
/// threads do not exist and the locks may be held by them: there, the value is leaked.
pub(crate) struct Owned<T>(Option<T>);

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Owned(Some(value))
    }

    pub(crate) fn get(&self) -> Option<&T> {
        self.0.as_ref()
    }

    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.0.as_mut()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if is_forked() {
            mem::forget(self.0.take());
        }
    }
}

/// Wakes a thread that waits in [`wait`].
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls until there is a result, without the interpreter meanwhile, and handles signals.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T> + Send,
) -> PyResult<T> {
    let waker = Arc::new(Unpark(thread::current())).into();
    loop {
        // Logging runs Python code, which a signal may end: before a result is there that could be lost.
        log::flush(py)?;
        let polled = py.detach(|| {
            let polled = poll(&mut Context::from_waker(&waker));
            if polled.is_pending() {
                thread::park_timeout(SIGNAL_PERIOD);
            }
            polled
        });
        if let Poll::Ready(output) = polled {
            return Ok(output);
        }
        py.check_signals()?;
    }
}

/// Runs `work` on a thread, without the interpreter meanwhile, and handles signals. After an interrupt, the
/// thread continues to the end of `work`, and its result is dropped.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (sender, mut receiver) = mpsc::channel();
    let work = move || drop(sender.send(work()));
    thread::Builder::new().name("shardstream-python".into()).spawn(work)?;
    loop {
        let receiver = &mut receiver;
        let received = py.detach(move || receiver.recv_timeout(SIGNAL_PERIOD));
        log::flush(py)?;
        match received {
            Ok(output) => return Ok(output),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => return Err(error::panicked()),
        }
    }
}
