//! Events, which report the completion of work that a plugin does in the background.

use super::error::PjrtError;
use super::{Plugin, sys};
use std::cell::Cell;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

/// An event of the plugin. Dropping it destroys the plugin's event.
pub(super) struct Event {
    plugin: Plugin,
    event: NonNull<sys::PJRT_Event>,
}

/// A value that [`Event::keep`] keeps until the event.
struct KeptValue<T> {
    plugin: Plugin,
    value: T,
}

impl Event {
    /// Takes ownership of an event; `None` for null, which means that the event has happened already.
    ///
    /// # Safety
    ///
    /// `event` is null or a live event of `plugin` that nobody else destroys.
    pub(super) unsafe fn from_raw(plugin: Plugin, event: *mut sys::PJRT_Event) -> Option<Self> {
        NonNull::new(event).map(|event| Self { plugin, event })
    }

    /// Waits for the event. Returns an error if the operation of the event failed.
    pub(super) fn wait(self) -> Result<(), PjrtError> {
        let mut args = args!(PJRT_Event_Await_Args { event: self.event.as_ptr() });
        // SAFETY: the event is alive until `self` is dropped.
        unsafe { call!(self.plugin, PJRT_Event_Await, args) }
    }

    /// Keeps a value until the event has happened, also if the event's operation fails. A thread of the
    /// plugin then drops the value; if the event has happened already, the value is dropped at once.
    ///
    /// Returns an error if the plugin refuses the callback. This function then waits for the event and drops
    /// the value, or leaks the value if waiting fails too.
    pub(super) fn keep<T: Send + 'static>(self, value: T) -> Result<(), PjrtError> {
        let kept = Box::into_raw(Box::new(KeptValue { plugin: self.plugin, value }));
        let mut args = args!(PJRT_Event_OnReady_Args {
            event: self.event.as_ptr(),
            callback: Some(drop_kept::<T>),
            user_arg: kept.cast(),
        });
        // SAFETY: the event is alive during the call, and may be destroyed after it. The callback expects an
        // argument of the type of `kept`, takes ownership of it, and is called once.
        let Err(error) = (unsafe { call!(self.plugin, PJRT_Event_OnReady, args) }) else { return Ok(()) };
        // SAFETY: after an error the plugin does not call the callback, so the box is still ours.
        let kept = unsafe { Box::from_raw(kept) };
        if self.wait().is_err() {
            // The value may still be in use, so it is leaked.
            std::mem::forget(kept);
        }
        Err(error)
    }
}

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Whether the current thread is in the callback that drops a [kept](Event::keep) value.
pub(super) fn in_callback() -> bool {
    IN_CALLBACK.get()
}

/// Drops a [kept](Event::keep) value. The plugin calls this function when the event has happened.
///
/// # Safety
///
/// `kept` is a `Box<KeptValue<T>>`, and `error` is null or an error of its plugin. This function takes
/// ownership of `kept` and `error`.
unsafe extern "C" fn drop_kept<T>(error: *mut sys::PJRT_Error, kept: *mut c_void) {
    let drop_all = || {
        // SAFETY: `kept` is such a box, by this function's contract.
        let kept = unsafe { Box::from_raw(kept.cast::<KeptValue<T>>()) };
        if let Some(error) = NonNull::new(error) {
            // Reading the array returns the same error, so here it is only freed. SAFETY: `error` is owned,
            // by this function's contract.
            drop(unsafe { kept.plugin.take_error("PJRT_Event_OnReady", error) });
        }
        drop(kept.value);
    };
    let before = IN_CALLBACK.replace(true);
    // A panic must not unwind into the caller, which is C++.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(drop_all)) {
        std::mem::forget(panic);
    }
    IN_CALLBACK.set(before);
}

impl Drop for Event {
    fn drop(&mut self) {
        let mut args = args!(PJRT_Event_Destroy_Args { event: self.event.as_ptr() });
        // SAFETY: the event is ours and is not used again. `drop` cannot return an error.
        let _ = unsafe { call!(self.plugin, PJRT_Event_Destroy, args) };
    }
}
