//! Writing shards.
