//! Handles SIGTERM and SIGINT, which stop a training.
//!
//! The signals are blocked in all threads, and one thread waits for them. So no signal handler runs, not even
//! a handler that a plugin installs when the plugin is loaded, as libtpu does.

use std::io;

/// SIGTERM and SIGINT, blocked.
#[derive(Debug)]
pub struct Signals(#[cfg(unix)] nix::sys::signal::SigSet);

#[cfg(unix)]
impl Signals {
    /// Blocks the signals in this thread and in the threads that this thread starts from now on. Must be
    /// called before any other thread is started.
    pub fn block() -> io::Result<Self> {
        use nix::sys::signal::{SigSet, Signal};
        let mut set = SigSet::empty();
        set.add(Signal::SIGTERM);
        set.add(Signal::SIGINT);
        set.thread_block()?;
        Ok(Self(set))
    }

    /// Calls `on_signal` with the number of each signal, on a thread of its own.
    pub fn listen(self, mut on_signal: impl FnMut(i32) + Send + 'static) -> io::Result<()> {
        let listen = move || {
            while let Ok(signal) = self.0.wait() {
                on_signal(signal as i32);
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(listen).map(drop)
    }
}

#[cfg(not(unix))]
impl Signals {
    /// Blocks nothing: the signals end the program at once.
    pub fn block() -> io::Result<Self> {
        Ok(Self())
    }

    /// Does nothing.
    pub fn listen(self, _: impl FnMut(i32) + Send + 'static) -> io::Result<()> {
        Ok(())
    }
}
