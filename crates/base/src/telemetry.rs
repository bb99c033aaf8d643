//! Macros for events and spans of `tracing`, and for metrics of `metrics`. Without these features the macros
//! do nothing. The crates that call the macros need neither the features nor the dependencies.

#[cfg(feature = "metrics")]
pub use metrics;
#[cfg(feature = "tracing")]
pub use tracing;

pub use crate::{count, log, observe, span};

/// `log!(WARN, "message", field = value, …)` emits an event. Values need `Display`, and are formatted only if
/// there is a subscriber.
#[cfg(feature = "tracing")]
#[doc(hidden)]
#[macro_export]
macro_rules! log {
    ($level:ident, $message:literal $(, $name:ident = $value:expr)* $(,)?) => {
        $crate::telemetry::tracing::event!(
            target: "shardstream", $crate::telemetry::tracing::Level::$level, $($name = %$value,)* $message
        )
    };
}

#[cfg(not(feature = "tracing"))]
#[doc(hidden)]
#[macro_export]
macro_rules! log {
    ($level:ident, $message:literal $(, $name:ident = $value:expr)* $(,)?) => {{
        $(let _ = || { let _ = &$value; };)*
    }};
}

/// `span!("name", field = number)` enters a span on this thread until the returned guard is dropped. Only for
/// work that stays on one thread.
#[cfg(feature = "tracing")]
#[doc(hidden)]
#[macro_export]
macro_rules! span {
    ($name:literal $(, $field:ident = $value:expr)* $(,)?) => {
        $crate::telemetry::tracing::trace_span!(target: "shardstream", $name, $($field = $value),*).entered()
    };
}

#[cfg(not(feature = "tracing"))]
#[doc(hidden)]
#[macro_export]
macro_rules! span {
    ($name:literal $(, $field:ident = $value:expr)* $(,)?) => {{
        $(let _ = || { let _ = &$value; };)*
        $crate::telemetry::NoSpan
    }};
}

/// Takes the place of a span if the feature `tracing` is off.
#[cfg(not(feature = "tracing"))]
#[derive(Debug)]
pub struct NoSpan;

/// Callers may `drop` a span before its scope ends. This impl keeps clippy from objecting to such a `drop` if
/// the feature is off.
#[cfg(not(feature = "tracing"))]
impl Drop for NoSpan {
    fn drop(&mut self) {}
}

/// `count!("name", number)` adds to a counter.
#[cfg(feature = "metrics")]
#[doc(hidden)]
#[macro_export]
macro_rules! count {
    ($name:literal, $value:expr) => {
        $crate::telemetry::metrics::counter!($name).increment($value)
    };
}

/// `observe!("name", number)` adds a value to a histogram.
#[cfg(feature = "metrics")]
#[doc(hidden)]
#[macro_export]
macro_rules! observe {
    ($name:literal, $value:expr) => {
        $crate::telemetry::metrics::histogram!($name).record($value)
    };
}

#[cfg(not(feature = "metrics"))]
#[doc(hidden)]
#[macro_export]
macro_rules! count {
    ($name:literal, $value:expr) => {{
        let _ = || {
            let _ = $value;
        };
    }};
}

#[cfg(not(feature = "metrics"))]
#[doc(hidden)]
#[macro_export]
macro_rules! observe {
    ($name:literal, $value:expr) => {{
        let _ = || {
            let _ = $value;
        };
    }};
}
