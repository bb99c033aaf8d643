//! Events and spans through `tracing`, and metrics through `metrics`. Without these features the macros do
//! nothing.

/// `log!(WARN, "message", field = value, …)` emits an event. Values need `Display`, and are formatted only if
/// there is a subscriber.
macro_rules! log {
    ($level:ident, $message:literal $(, $name:ident = $value:expr)* $(,)?) => {{
        #[cfg(feature = "tracing")]
        ::tracing::event!(
            target: "shardstream", ::tracing::Level::$level, $($name = %$value,)* $message
        );
        #[cfg(not(feature = "tracing"))]
        { $(let _ = || { let _ = &$value; };)* }
    }};
}

/// `span!("what", field = number)` enters a span on this thread until the guard is dropped. For work that
/// stays on one thread.
macro_rules! span {
    ($name:literal $(, $field:ident = $value:expr)* $(,)?) => {{
        #[cfg(feature = "tracing")]
        { ::tracing::trace_span!(target: "shardstream", $name, $($field = $value),*).entered() }
        #[cfg(not(feature = "tracing"))]
        {
            $(let _ = || { let _ = &$value; };)*
            crate::telemetry::NoSpan
        }
    }};
}

/// Stands in for a span without the feature `tracing`.
#[cfg(not(feature = "tracing"))]
pub(crate) struct NoSpan;

/// A span can be dropped before its scope ends. This makes the same code valid without the feature.
#[cfg(not(feature = "tracing"))]
impl Drop for NoSpan {
    fn drop(&mut self) {}
}

/// `count!("name", number)` adds to a counter.
macro_rules! count {
    ($name:literal, $value:expr) => {{
        #[cfg(feature = "metrics")]
        ::metrics::counter!($name).increment($value);
        #[cfg(not(feature = "metrics"))]
        let _ = || {
            let _ = $value;
        };
    }};
}

/// `observe!("name", number)` adds a value to a histogram.
macro_rules! observe {
    ($name:literal, $value:expr) => {{
        #[cfg(feature = "metrics")]
        ::metrics::histogram!($name).record($value);
        #[cfg(not(feature = "metrics"))]
        let _ = || {
            let _ = $value;
        };
    }};
}

pub(crate) use {count, log, observe, span};
