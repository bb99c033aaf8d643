//! Who am I: rank and worker, given or discovered.
