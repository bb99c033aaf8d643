//! Blocks the current thread on a future, until it is ready or the thread is interrupted.

use crate::activity;
use crate::error::{ErrorKind, Result};
use futures::task::AtomicWaker;
use std::cell::{Cell, OnceCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

thread_local! {
    /// The interrupt of this thread, if it has one.
    static INTERRUPT: OnceCell<Interrupt> = const { OnceCell::new() };
    /// Wakes the current wait of this thread when the process is interrupted.
    static PROCESS_WAKER: OnceCell<Arc<AtomicWaker>> = const { OnceCell::new() };
    /// Whether this thread runs I/O tasks. Such a thread must not block on an I/O task.
    static RUNS_IO: Cell<bool> = const { Cell::new(false) };
}

/// Ends the current and all later waits of one thread, from another thread.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<InterruptState>);

#[derive(Debug, Default)]
struct InterruptState {
    interrupted: AtomicBool,
    /// Wakes the current wait. A thread has only one wait at a time.
    waker: AtomicWaker,
}

impl Interrupt {
    /// Makes this the interrupt of the current thread, unless the thread already has an interrupt.
    pub fn attach(&self) {
        let _ = INTERRUPT.try_with(|current| current.set(self.clone()));
    }

    /// Ends the current wait of the thread, and all later ones.
    pub fn interrupt(&self) {
        self.0.interrupted.store(true, Ordering::Release);
        self.0.waker.wake();
    }
}

/// Whether the process was interrupted, so that all waits end.
static PROCESS_INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// The wakers of all threads that have waited.
static PROCESS_WAKERS: Mutex<Vec<Weak<AtomicWaker>>> = Mutex::new(Vec::new());

/// Ends the waits of all threads of the process: the current ones, and all later ones. The interrupt cannot
/// be undone: call this function in a program that is about to exit.
pub fn interrupt_process() {
    PROCESS_INTERRUPTED.store(true, Ordering::Release);
    let wakers = PROCESS_WAKERS.lock().unwrap_or_else(PoisonError::into_inner);
    wakers.iter().filter_map(Weak::upgrade).for_each(|waker| waker.wake());
}

/// Whether the process has been interrupted. If not, a later interrupt wakes the task of `cx`.
fn poll_process_interrupted(cx: &Context<'_>) -> bool {
    // `try_with` fails if the thread is exiting and its waker is already destroyed. Such a thread no longer
    // waits.
    let _ = PROCESS_WAKER.try_with(|waker| waker.get_or_init(new_process_waker).register(cx.waker()));
    PROCESS_INTERRUPTED.load(Ordering::Acquire)
}

fn new_process_waker() -> Arc<AtomicWaker> {
    let waker = Arc::new(AtomicWaker::new());
    let mut wakers = PROCESS_WAKERS.lock().unwrap_or_else(PoisonError::into_inner);
    // Drops the wakers of threads that have ended.
    wakers.retain(|waker| waker.strong_count() > 0);
    wakers.push(Arc::downgrade(&waker));
    waker
}

/// Whether this thread or the process has been interrupted.
pub fn is_interrupted() -> bool {
    PROCESS_INTERRUPTED.load(Ordering::Acquire)
        || with_interrupt(|interrupt| interrupt.interrupted.load(Ordering::Acquire))
}

/// Whether this thread or the process has been interrupted. If not, a later interrupt wakes the task of `cx`,
/// whatever executor polls that task on this thread.
pub fn poll_interrupted(cx: &Context<'_>) -> bool {
    let thread = with_interrupt(|interrupt| {
        interrupt.waker.register(cx.waker());
        interrupt.interrupted.load(Ordering::Acquire)
    });
    poll_process_interrupted(cx) || thread
}

fn with_interrupt(check: impl FnOnce(&InterruptState) -> bool) -> bool {
    let checked = INTERRUPT.try_with(|current| current.get().is_some_and(|interrupt| check(&interrupt.0)));
    // `try_with` fails if the thread is exiting and its interrupt is already destroyed. Such a thread counts
    // as not interrupted.
    checked.unwrap_or(false)
}

/// Marks this thread as one that runs I/O tasks. Returns whether it was not marked before.
pub fn mark_io_thread() -> bool {
    !RUNS_IO.replace(true)
}

/// Returns an error on a thread that runs I/O tasks. Such a thread must not block: the task that it would
/// wait for may need this same thread.
pub fn may_block() -> Result<()> {
    if !RUNS_IO.try_with(Cell::get).unwrap_or(false) {
        return Ok(());
    }
    let what = "a blocking call on a thread of shardstream's I/O runtime would wait for this same thread; \
                in a `Source`, use the asynchronous face, such as `Body::into_stream`, or make the call in \
                `tokio::task::spawn_blocking`";
    Err(ErrorKind::Unsupported(what.into()).into())
}

/// Waits for `future` on this thread.
///
/// Unlike the `block_on` of tokio, this function does not panic inside an executor, so that an asynchronous
/// function can call the blocking API.
///
/// # Errors
///
/// [`ErrorKind::Stopped`] when the thread or the [process](interrupt_process) is [interrupted](Interrupt),
/// and [`ErrorKind::Unsupported`] on a thread that runs I/O tasks, if the future is not ready at once.
pub fn block_on<F: Future>(future: F) -> Result<F::Output> {
    /// Wakes the thread, and sets a flag. The flag is needed because code inside `poll` may park the thread
    /// itself, and so use up the wake-up.
    struct Parked {
        thread: thread::Thread,
        woken: AtomicBool,
    }

    impl Wake for Parked {
        fn wake(self: Arc<Self>) {
            self.woken.store(true, Ordering::Release);
            self.thread.unpark();
        }
    }

    if is_interrupted() {
        return Err(ErrorKind::Stopped.into());
    }
    let parked = Arc::new(Parked { thread: thread::current(), woken: AtomicBool::new(false) });
    let waker = Arc::clone(&parked).into();
    let mut context = Context::from_waker(&waker);
    // Within a tokio task, tokio's futures return `Pending` now and then to make the task yield. This
    // function never yields, so it switches this behaviour off.
    let mut future = pin!(tokio::task::unconstrained(future));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Ok(output);
        }
        may_block()?;
        // Registers the waker in each round: the future may itself have called `block_on`, which registers
        // another waker for this thread.
        if poll_interrupted(&context) {
            return Err(ErrorKind::Stopped.into());
        }
        let _parked = activity::while_parked();
        while !parked.woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

/// Polls a future without tokio's cooperative yielding, for a stream that any executor may poll.
///
/// Within a tokio task, tokio's futures return `Pending` now and then to make the task yield. An executor
/// that blocks inside the task, such as `futures::executor::block_on_stream`, would then wait forever.
pub fn poll_unconstrained<F: Future>(future: F, context: &mut Context<'_>) -> Poll<F::Output> {
    pin!(tokio::task::unconstrained(future)).poll(context)
}

/// Waits for `future`. While the future is pending, a guard from `make_guard` is held.
///
/// The guard is dropped as soon as the future is woken. The future may be polled again much later, because
/// the task may do other work first.
pub async fn until_woken<F, G>(future: F, make_guard: impl Fn() -> G + Send + Sync) -> F::Output
where
    F: Future + Send,
    G: Send + 'static,
{
    /// Drops the guard, and wakes the task.
    struct GuardedWaker<G> {
        guard: Mutex<Option<G>>,
        waker: Waker,
    }

    impl<G: Send + 'static> Wake for GuardedWaker<G> {
        fn wake(self: Arc<Self>) {
            drop(self.guard.lock().unwrap_or_else(PoisonError::into_inner).take());
            self.waker.wake_by_ref();
        }
    }

    let mut future = pin!(future);
    poll_fn(|cx| {
        let waker = GuardedWaker { guard: Mutex::new(Some(make_guard())), waker: cx.waker().clone() };
        future.as_mut().poll(&mut Context::from_waker(&Arc::new(waker).into()))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future;
    use std::sync::mpsc;

    #[test]
    fn a_guard_is_dropped_when_its_future_is_woken() {
        let (sender, receiver) = futures::channel::oneshot::channel();
        let guard = Arc::new(());
        let clone = Arc::clone(&guard);
        let mut waiting = Box::pin(until_woken(receiver, move || Arc::clone(&clone)));
        // Does not count `guard` itself and the clone in the closure.
        let guards = || Arc::strong_count(&guard) - 2;
        assert_eq!(guards(), 0);
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending() && guards() == 1);
        assert!(waiting.as_mut().poll(&mut context).is_pending() && guards() == 1);
        sender.send(7).unwrap();
        assert_eq!(guards(), 0, "the guard is dropped before the future is polled again");
        assert_eq!(waiting.as_mut().poll(&mut context), Poll::Ready(Ok(7)));
        let (_sender, receiver) = futures::channel::oneshot::channel::<()>();
        let clone = Arc::clone(&guard);
        drop(waiting);
        let mut waiting = Box::pin(until_woken(receiver, move || Arc::clone(&clone)));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        drop(waiting);
        assert_eq!(Arc::strong_count(&guard), 1);
    }

    #[test]
    fn an_interrupt_ends_the_current_and_later_waits() {
        let interrupt = Interrupt::default();
        let (waits, waiting) = mpsc::channel();
        let waiter = thread::spawn({
            let interrupt = interrupt.clone();
            move || {
                interrupt.attach();
                assert_eq!(block_on(future::ready(7)).unwrap(), 7);
                let wait = future::poll_fn(|_| {
                    let _ = waits.send(());
                    Poll::<()>::Pending
                });
                let errors = [block_on(wait).unwrap_err(), block_on(future::ready(())).unwrap_err()];
                assert!(errors.iter().all(|error| matches!(error.kind(), ErrorKind::Stopped)));
            }
        });
        waiting.recv().unwrap();
        interrupt.interrupt();
        waiter.join().unwrap();
        assert!(!is_interrupted(), "only the other thread is interrupted");
    }

    #[test]
    fn an_interrupt_wakes_a_task_of_another_executor() {
        let interrupt = Interrupt::default();
        let (waits, waiting) = mpsc::channel();
        let waiter = thread::spawn({
            let interrupt = interrupt.clone();
            move || {
                interrupt.attach();
                futures::executor::block_on(future::poll_fn(|cx| {
                    let _ = waits.send(());
                    if poll_interrupted(cx) { Poll::Ready(()) } else { Poll::Pending }
                }));
            }
        });
        waiting.recv().unwrap();
        interrupt.interrupt();
        waiter.join().unwrap();
    }

    #[test]
    fn an_io_thread_does_not_block() {
        let io = thread::spawn(|| {
            mark_io_thread();
            assert_eq!(block_on(future::ready(7)).unwrap(), 7, "there is nothing to wait for");
            block_on(future::pending::<()>()).unwrap_err()
        });
        let error = io.join().unwrap();
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
        assert!(error.to_string().contains("I/O runtime") && may_block().is_ok(), "{error}");
    }
}
