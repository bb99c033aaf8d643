//! Events for the log, through `tracing` where its feature is on; nothing without it.

/// `log!(WARN, "message", field = value, …)`: values need `Display`, and are only looked at if somebody listens.
macro_rules! log {
    ($level:ident, $message:literal $(, $name:ident = $value:expr)* $(,)?) => {{
        #[cfg(feature = "tracing")]
        ::tracing::event!(
            target: "shardstream", ::tracing::Level::$level, $($name = %$value,)* $message
        );
        #[cfg(not(feature = "tracing"))]
        { $(let _ = || &$value;)* }
    }};
}

pub(crate) use log;
