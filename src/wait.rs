//! Blocking waits: for a future on this thread, until it is ready or the thread is interrupted.

use crate::activity;
use crate::{ErrorKind, Result};
use futures::task::AtomicWaker;
use std::cell::{Cell, OnceCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

thread_local! {
    /// What ends the waits of this thread, if anything does.
    static INTERRUPT: OnceCell<Interrupt> = const { OnceCell::new() };
    /// Whether this thread runs the tasks that move bytes. Whoever waits for them must be elsewhere.
    static RUNS_IO: Cell<bool> = const { Cell::new(false) };
}

/// Ends the waits of one thread from another: the one under way, and all that come later.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    interrupted: AtomicBool,
    /// Of what the thread waits for: a thread waits in one place at a time.
    waker: AtomicWaker,
}

impl Interrupt {
    /// Applies to the current thread from now on, if no other does.
    pub(crate) fn attach(&self) {
        let _ = INTERRUPT.try_with(|current| current.set(self.clone()));
    }

    /// Ends the waits.
    pub(crate) fn interrupt(&self) {
        self.0.interrupted.store(true, Ordering::Release);
        self.0.waker.wake();
    }
}

/// Whether the waits of this thread have been ended.
pub(crate) fn is_interrupted() -> bool {
    with_interrupt(|interrupt| interrupt.interrupted.load(Ordering::Acquire))
}

/// The same, with a task of this thread to be woken when it comes true: whatever executor polls it here.
pub(crate) fn poll_interrupted(cx: &Context<'_>) -> bool {
    with_interrupt(|interrupt| {
        interrupt.waker.register(cx.waker());
        interrupt.interrupted.load(Ordering::Acquire)
    })
}

fn with_interrupt(ask: impl FnOnce(&Shared) -> bool) -> bool {
    let asked = INTERRUPT.try_with(|current| current.get().is_some_and(|interrupt| ask(&interrupt.0)));
    // A thread that is about to end has no interrupt any more.
    asked.unwrap_or(false)
}

/// Says that this thread runs the tasks that move bytes. Whether that is news.
pub(crate) fn mark_io_thread() -> bool {
    !RUNS_IO.replace(true)
}

/// Refuses to block a thread that runs I/O tasks: what is waited for might need this very thread.
pub(crate) fn may_block() -> Result<()> {
    if !RUNS_IO.try_with(Cell::get).unwrap_or(false) {
        return Ok(());
    }
    let what = "a blocking call on a thread of shardstream's own I/O runtime, which the call would wait for; \
                in a `Source`, use the asynchronous face, such as `Body::into_stream`, or make the call in \
                `tokio::task::spawn_blocking`";
    Err(ErrorKind::Unsupported(what.into()).into())
}

/// Waits for `future` on this thread.
///
/// Unlike the `block_on` of an executor this never panics inside another one, so that the blocking face can
/// be used (if need be) from within an asynchronous function.
///
/// # Errors
/// [`ErrorKind::Stopped`] when the thread is [interrupted](Interrupt), and [`ErrorKind::Unsupported`] instead
/// of a wait on a thread that runs I/O tasks.
pub(crate) fn block_on<F: Future>(future: F) -> Result<F::Output> {
    /// The flag keeps a wake-up that arrives while something inside `poll` parks this thread for its own
    /// reasons.
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
    // Inside a task of tokio's, its futures would rest after a while for the task to yield, as this never
    // does.
    let mut future = pin!(tokio::task::unconstrained(future));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Ok(output);
        }
        may_block()?;
        // What was polled may have waited here itself, with a waker of its own.
        if poll_interrupted(&context) {
            return Err(ErrorKind::Stopped.into());
        }
        let _parked = activity::while_parked();
        while !parked.woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

/// Waits for `future`. What `hold` gives is held while nothing comes, and not until this is polled again:
/// whoever polls may have other work by then.
pub(crate) async fn until_woken<F, H>(future: F, hold: impl Fn() -> H + Send + Sync) -> F::Output
where
    F: Future + Send,
    H: Send + 'static,
{
    /// Lets go what is held, and wakes whoever waits.
    struct Holding<H> {
        held: Mutex<Option<H>>,
        waker: Waker,
    }

    impl<H: Send + 'static> Wake for Holding<H> {
        fn wake(self: Arc<Self>) {
            drop(self.held.lock().unwrap_or_else(PoisonError::into_inner).take());
            self.waker.wake_by_ref();
        }
    }

    let mut future = pin!(future);
    poll_fn(|cx| {
        let holding = Holding { held: Mutex::new(Some(hold())), waker: cx.waker().clone() };
        future.as_mut().poll(&mut Context::from_waker(&Arc::new(holding).into()))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future;
    use std::sync::mpsc;

    #[test]
    fn what_is_held_while_a_future_is_waited_for_goes_when_it_is_woken() {
        let (sender, receiver) = futures::channel::oneshot::channel();
        let held = Arc::new(());
        let hold = Arc::clone(&held);
        let mut waiting = Box::pin(until_woken(receiver, move || Arc::clone(&hold)));
        // The function itself holds one.
        let holders = || Arc::strong_count(&held) - 2;
        assert_eq!(holders(), 0);
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending() && holders() == 1);
        assert!(waiting.as_mut().poll(&mut context).is_pending() && holders() == 1);
        sender.send(7).unwrap();
        assert_eq!(holders(), 0, "nobody has polled it since");
        assert_eq!(waiting.as_mut().poll(&mut context), Poll::Ready(Ok(7)));
        let (_sender, receiver) = futures::channel::oneshot::channel::<()>();
        let hold = Arc::clone(&held);
        drop(waiting);
        let mut waiting = Box::pin(until_woken(receiver, move || Arc::clone(&hold)));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        drop(waiting);
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[test]
    fn an_interrupt_ends_the_wait_under_way_and_those_after_it() {
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
        assert!(!is_interrupted(), "it is of another thread");
    }

    #[test]
    fn an_interrupt_wakes_what_another_executor_waits_for() {
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
    fn an_io_thread_does_not_wait() {
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
