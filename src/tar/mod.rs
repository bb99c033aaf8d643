//! From bytes to samples: the sans-I/O tar walker and the grouping by key.
