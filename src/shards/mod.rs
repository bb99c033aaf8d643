//! What to read: shard URLs in brace notation, lists and listings.
