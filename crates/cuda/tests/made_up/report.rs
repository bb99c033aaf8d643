//! What the fake driver says of itself, for the tests.

/// What a process has done with the driver.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Report {
    /// Ranges that are pinned.
    pub(crate) registered: usize,
    /// How often memory was pinned.
    pub(crate) registrations: usize,
    /// Retained contexts that are not released.
    pub(crate) contexts: i64,
    /// Events that exist.
    pub(crate) events: i64,
    /// Contexts that are current on the calling thread.
    pub(crate) depth: usize,
    /// Calls without a current context, and of what does not exist.
    pub(crate) misuses: usize,
}
