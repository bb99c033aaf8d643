//! The tokio runtime of all network I/O of the process.
//!
//! The runtime starts when the first object is read from a network, and lives as long as the process. So no
//! caller needs a runtime of its own, and no runtime can be dropped during a read. Except for TLS, no work
//! that takes much CPU time runs on it.

use crate::panic;
use crate::wait::{self, block_on};
use crate::{Error, ErrorKind, Result};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, LazyLock, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use std::{io, thread};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};

/// Number of [cleanups](spawn_cleanup) that have not ended.
static CLEANUPS: LazyLock<watch::Sender<usize>> = LazyLock::new(|| watch::Sender::new(0));

static RUNTIME: OnceLock<io::Result<Runtime>> = OnceLock::new();

fn runtime() -> Result<&'static Runtime> {
    RUNTIME
        .get_or_init(start)
        .as_ref()
        .map_err(|error| io::Error::new(error.kind(), error.to_string()).into())
}

fn start() -> io::Result<Runtime> {
    let cores = thread::available_parallelism().map_or(2, usize::from);
    let workers = (cores / 2).clamp(1, 8);
    let started = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&started);
    let runtime = Builder::new_multi_thread()
        .worker_threads(workers)
        // Each local file that is open as a stream occupies a blocking thread. With too few threads, streams
        // would wait for each other.
        .max_blocking_threads(1 << 16)
        .thread_name("shardstream-io")
        .on_thread_park(move || {
            // Marks the threads that run tasks: only they park. A thread that runs blocking work must not be
            // marked, since it is allowed to wait. When a thread starts, its kind of work is not known yet.
            if wait::mark_io_thread() {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        })
        .enable_all()
        .build()?;
    while started.load(Ordering::Relaxed) < workers {
        thread::yield_now();
    }
    Ok(runtime)
}

/// Spawns `future` on the I/O runtime, from any thread and any executor.
pub(super) fn spawn<T: Send + 'static>(
    future: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<Task<T>> {
    Ok(Task::new(runtime()?.spawn(future)))
}

/// Spawns blocking work on a separate thread. Dropping the task does not cancel the work.
pub(super) fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<Task<T>> {
    Ok(Task::new(runtime()?.spawn_blocking(work)))
}

/// Spawns work that runs to its end even if the returned handle is dropped.
pub(super) fn spawn_cleanup(work: impl Future<Output = ()> + Send + 'static) -> Result<JoinHandle<()>> {
    struct CountedCleanup;

    impl Drop for CountedCleanup {
        fn drop(&mut self) {
            CLEANUPS.send_modify(|cleanups| *cleanups -= 1);
        }
    }

    let runtime = runtime()?;
    CLEANUPS.send_modify(|cleanups| *cleanups += 1);
    let counted = CountedCleanup;
    Ok(runtime.spawn(async move {
        let _counted = counted;
        work.await;
    }))
}

/// Runs `future` on the I/O runtime and waits for it, from any thread, including asynchronous contexts.
pub(super) fn run<T: Send + 'static>(future: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    block_on(spawn(future)?)?
}

/// A task of the I/O runtime. Dropping it cancels it, unless it is detached.
#[derive(Debug)]
pub(super) struct Task<T> {
    handle: JoinHandle<Result<T>>,
    is_detached: bool,
}

impl<T> Task<T> {
    fn new(handle: JoinHandle<Result<T>>) -> Self {
        Task { handle, is_detached: false }
    }

    /// Waits up to `end_timeout` for the task to end, then cancels it. Then waits up to `cleanup_timeout` for
    /// all cleanups, some of which the task may have started. On a thread that runs I/O tasks, the waiting
    /// happens in the background.
    pub(super) fn end_within(mut self, end_timeout: Duration, cleanup_timeout: Duration) -> Result<()>
    where
        T: Send + 'static,
    {
        let (ended, waiting) = mpsc::channel();
        let deadline = Instant::now() + end_timeout + cleanup_timeout;
        let ending = async move {
            if tokio::time::timeout(end_timeout, &mut self.handle).await.is_err() {
                self.handle.abort();
                let _ = (&mut self.handle).await;
            }
            let _ = CLEANUPS.subscribe().wait_for(|cleanups| *cleanups == 0).await;
            let _ = ended.send(());
            Ok(())
        };
        spawn(ending)?.detach();
        // On an I/O thread, blocking could wait for tasks that need this same thread.
        if wait::may_block().is_err() {
            return Ok(());
        }
        let _ = waiting.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        Ok(())
    }

    /// Lets the task run to its end without waiting for it.
    pub(super) fn detach(mut self) {
        self.is_detached = true;
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        Pin::new(&mut self.handle).poll(cx).map(|joined| joined.unwrap_or_else(|error| Err(panicked(error))))
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        if !self.is_detached {
            self.handle.abort();
        }
    }
}

/// The error of a task that panicked or was cancelled.
pub(super) fn panicked(error: JoinError) -> Error {
    let Ok(payload) = error.try_into_panic() else { return ErrorKind::Stopped.into() };
    ErrorKind::SourcePanicked(panic::message(payload)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_works_inside_other_executors() {
        let nested = || -> Result<_> { block_on(async { run(async { Ok(7) }) })? };
        assert_eq!(futures::executor::block_on(async { nested() }).unwrap(), 7);
        let tokio = Builder::new_current_thread().build().unwrap();
        assert_eq!(tokio.block_on(async { nested() }).unwrap(), 7);
    }

    /// Tokio limits the number of operations of a task until the task yields. A blocking wait never yields.
    #[test]
    fn one_task_may_call_run_any_number_of_times() {
        let (done, waited) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let tokio = Builder::new_current_thread().build().unwrap();
            tokio.block_on(async {
                (0..1000).for_each(|n| assert_eq!(run(async move { Ok(n) }).unwrap(), n))
            });
            done.send(()).unwrap();
        });
        waited.recv_timeout(std::time::Duration::from_secs(60)).expect("it waits forever");
    }

    /// With a single worker thread, the task would wait for itself.
    #[test]
    fn a_task_may_not_wait_for_another_and_blocking_work_may() {
        let nested = || run(async { Ok(7) });
        let error = run(async move { nested() }).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
        assert_eq!(run(async move { spawn_blocking(nested)?.await }).unwrap(), 7);
    }

    /// A thread of the runtime may take other work than the work for which it was started.
    #[test]
    fn threads_that_run_tasks_are_marked_even_if_blocking_work_comes_at_once() {
        for _ in 0..300 {
            let runtime = start().unwrap();
            let work = runtime.spawn_blocking(|| wait::may_block().is_ok());
            let task = runtime.spawn(async { wait::may_block().is_err() });
            let (work, task) = block_on(async { (work.await, task.await) }).unwrap();
            assert!(work.unwrap(), "blocking work is refused");
            assert!(task.unwrap(), "a task may wait for itself");
            runtime.shutdown_background();
        }
    }

    #[test]
    fn a_panic_is_an_error() {
        let error = run::<()>(async { panic!("on purpose") }).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::SourcePanicked(text) if text == "on purpose"));
    }
}
