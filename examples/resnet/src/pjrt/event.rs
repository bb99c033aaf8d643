//! Completion of work that a plugin does in the background.

use super::error::Result;
use super::{Plugin, sys};
use std::ptr::NonNull;

/// An event of the plugin; destroyed when dropped.
pub(super) struct Event {
    plugin: Plugin,
    event: NonNull<sys::PJRT_Event>,
}

impl Event {
    /// Takes over an event; `None` for null, which stands for "already happened".
    ///
    /// # Safety
    ///
    /// `event` is null or a live event of `plugin` that nobody else destroys.
    pub(super) unsafe fn from_raw(plugin: Plugin, event: *mut sys::PJRT_Event) -> Option<Self> {
        NonNull::new(event).map(|event| Self { plugin, event })
    }

    /// Waits for the event; an error if what it stands for failed.
    pub(super) fn wait(self) -> Result<()> {
        let mut args = args!(PJRT_Event_Await_Args { event: self.event.as_ptr() });
        // SAFETY: the event is alive until `self` is dropped.
        unsafe { call!(self.plugin, PJRT_Event_Await, args) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let mut args = args!(PJRT_Event_Destroy_Args { event: self.event.as_ptr() });
        // SAFETY: ours, and used no more. There is nobody to tell of an error.
        let _ = unsafe { call!(self.plugin, PJRT_Event_Destroy, args) };
    }
}
