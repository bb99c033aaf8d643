//! [`Interrupt`] by Ctrl-C or SIGTERM, and [`Stop`] for threads that work together.

use crate::failure::Failure;
use shardstream::store::interrupt_process;
use shardstream::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Whether the process has received Ctrl-C or SIGTERM. Clones share the flag.
///
/// Commands check the flag between samples, and all waits for a store end at once. If a command has not ended
/// after [`GRACE`], because it waits for a disk or for a server to abort an upload, the process exits. A
/// second Ctrl-C makes the process exit at once. Even then no file is half written: files and objects appear
/// under their names only when they are complete.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

/// Maximum time that a command has to clean up after a signal.
const GRACE: Duration = Duration::from_millis(900);

fn exit() -> ! {
    std::process::exit(i32::from(Failure::Interrupted.code()))
}

impl Interrupt {
    /// Installs the signal handler. Call it once.
    pub(crate) fn listen() -> std::result::Result<Self, Failure> {
        let interrupt = Interrupt::default();
        let flag = interrupt.clone();
        ctrlc::set_handler(move || {
            if flag.0.swap(true, Ordering::SeqCst) {
                exit();
            }
            interrupt_process();
            // Another thread waits, because the handler must return before it can handle a second signal.
            thread::spawn(|| {
                thread::sleep(GRACE);
                let _ = Failure::Interrupted.report();
                exit();
            });
        })
        .map_err(|error| Failure::Failed(format!("cannot listen for Ctrl-C: {error}")))?;
        Ok(interrupt)
    }

    /// Whether a signal was received.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// [`Failure::Interrupted`] if a signal was received.
    pub(crate) fn check(&self) -> std::result::Result<(), Failure> {
        if self.is_set() { Err(Failure::Interrupted) } else { Ok(()) }
    }
}

/// Stops threads that work together, after a signal or when one of them fails. Clones share the state.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    interrupt: Interrupt,
    has_failed: Arc<AtomicBool>,
    /// The error that stopped the threads.
    first_error: Arc<Mutex<Option<Error>>>,
}

impl Stop {
    pub(crate) fn new(interrupt: &Interrupt) -> Self {
        Stop { interrupt: interrupt.clone(), has_failed: Arc::default(), first_error: Arc::default() }
    }

    /// Whether the threads should stop.
    pub(crate) fn is_set(&self) -> bool {
        self.interrupt.is_set() || self.has_failed.load(Ordering::SeqCst)
    }

    /// Returns an error if the threads should stop. A thread ends its work with this error.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_set() { Err(interrupted()) } else { Ok(()) }
    }

    /// Runs `work` on this thread, unless the threads were stopped. If `work` fails, the other threads are
    /// stopped. Returns `None` if `work` failed or did not run.
    pub(crate) fn guard<T>(&self, work: impl FnOnce() -> Result<T>) -> Option<T> {
        match self.check().and_then(|()| work()) {
            Ok(done) => Some(done),
            Err(error) => {
                let mut first = self.first_error.lock().unwrap_or_else(PoisonError::into_inner);
                if !self.is_set() {
                    *first = Some(error);
                    self.has_failed.store(true, Ordering::SeqCst);
                }
                None
            }
        }
    }

    /// If the threads were stopped, returns the reason as an error. Call this when the threads have ended.
    pub(crate) fn finish(&self) -> std::result::Result<(), Failure> {
        self.interrupt.check()?;
        match self.first_error.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

/// The error of work that was stopped.
pub(crate) fn interrupted() -> Error {
    std::io::Error::from(std::io::ErrorKind::Interrupted).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::other_error;

    #[test]
    fn the_first_error_stops_the_others() {
        let stop = Stop::new(&Interrupt::default());
        assert_eq!(stop.guard(|| Ok(1)), Some(1));
        assert!(!stop.is_set() && stop.finish().is_ok());
        // The inner work fails while the outer work is running: the error of the inner work is the first.
        let outer = stop.guard(|| {
            assert!(stop.guard(|| Err::<(), _>(other_error("first"))).is_none());
            Err::<(), _>(other_error("second"))
        });
        assert!(outer.is_none() && stop.is_set());
        assert!(stop.guard(|| -> Result<()> { unreachable!("it was stopped") }).is_none());
        let Err(Failure::Crate(error)) = stop.finish() else { unreachable!("it has failed") };
        assert!(format!("{error:#}").ends_with("first"), "{error:#}");
    }

    #[test]
    fn an_interrupt_is_reported_as_such_and_not_as_an_error() {
        let interrupt = Interrupt::default();
        let stop = Stop::new(&interrupt);
        let done = stop.guard(|| {
            interrupt.0.store(true, Ordering::SeqCst);
            stop.check()
        });
        assert!(done.is_none() && matches!(stop.finish(), Err(Failure::Interrupted)));
    }
}
