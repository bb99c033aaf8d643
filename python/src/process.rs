//! Functions that wait until there is a result or Ctrl-C is pressed, and a wrapper for values that a forked
//! child cannot use.

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

/// Interval at which a wait checks for signals, so that Ctrl-C is noticed within a tenth of a second.
const SIGNAL_PERIOD: Duration = Duration::from_millis(25);

/// The number of the process that first used the library; 0 before the first use.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Returns an error if this process is a forked child of the process that uses the library.
pub(crate) fn check_not_forked() -> PyResult<()> {
    let process = process::id();
    match OWNER.compare_exchange(0, process, Relaxed, Relaxed) {
        Err(owner) if owner != process => Err(error::forked(owner)),
        _ => Ok(()),
    }
}

/// Whether this process is a forked child of the process that uses the library.
pub(crate) fn is_forked() -> bool {
    ![0, process::id()].contains(&OWNER.load(Relaxed))
}

/// A value that uses threads or locks of its process. A forked child leaks it instead of dropping it: the
/// threads do not exist in the child, and a lock that a thread held during the fork is never released there.
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

/// Polls until there is a result, without the interpreter's lock, and handles signals.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T> + Send,
) -> PyResult<T> {
    let waker = Arc::new(Unpark(thread::current())).into();
    loop {
        // Logging runs Python code, in which a signal may raise an exception. So the events are logged before
        // the poll: after the poll, the exception would lose the result.
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

/// Runs `work` on a thread, and waits for it without the interpreter's lock, handling signals. After an
/// interrupt, the thread runs `work` to its end, and drops the result.
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
