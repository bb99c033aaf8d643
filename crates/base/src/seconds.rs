//! Serializes a duration as a number of seconds.

use serde::{Serialize, Serializer};
use std::time::Duration;

pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    time.as_secs_f64().serialize(serializer)
}
