//! A bound on the memory that a target holds.

/// Runs `work` and asserts that it never holds more than `limit` bytes of memory.
pub(crate) fn within(limit: u64, work: impl FnOnce()) {
    let held = allocation_counter::measure(work).bytes_max;
    assert!(held <= limit, "{held} bytes were held, of at most {limit}");
}
