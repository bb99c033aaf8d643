//! Events and spans through `tracing`, and metrics through `metrics`, where their features are on; nothing
//! without.

/// `log!(WARN, "message", field = value, …)`: values need `Display`, and are only looked at if somebody
/// listens.
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

/// `span!("what", field = number)`: as long as the guard lives, this thread is at it; for traces of single
/// threads.
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

/// In place of a span, where there is no log.
#[cfg(not(feature = "tracing"))]
pub(crate) struct NoSpan;

/// So that it may end before its scope does, as a span may.
#[cfg(not(feature = "tracing"))]
impl Drop for NoSpan {
    fn drop(&mut self) {}
}

/// `count!("name", number)`: adds to a counter.
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

/// `observe!("name", number)`: one more value of a distribution.
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
