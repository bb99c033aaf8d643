//! Errors of a plugin, and of calls with wrong arguments.

use std::fmt;
use std::path::PathBuf;

/// An error of a PJRT plugin, or a call with wrong arguments.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PjrtError {
    /// The shared library cannot be loaded.
    #[error("cannot load {path}")]
    Load {
        /// The library.
        path: PathBuf,
        /// The error of the dynamic linker.
        source: libloading::Error,
    },
    /// The shared library is not a PJRT plugin, or has an incompatible version.
    #[error("{path} is not a usable PJRT plugin: {reason}")]
    NotAPlugin {
        /// The library.
        path: PathBuf,
        /// Why the library is unusable.
        reason: String,
    },
    /// The plugin lacks a function of the C API.
    #[error("the plugin does not provide {call}")]
    Missing {
        /// The function of the C API.
        call: &'static str,
    },
    /// A call succeeded, but returned no result.
    #[error("{call} returned nothing")]
    Nothing {
        /// The function of the C API.
        call: &'static str,
    },
    /// The plugin refused a call.
    #[error("{call}: {message} ({code})")]
    Call {
        /// The function of the C API.
        call: &'static str,
        /// The kind of error.
        code: Code,
        /// The plugin's message.
        message: String,
    },
    /// The key-value store failed while a plugin opened the devices of a job.
    #[error("{call}: {source}")]
    Join {
        /// The function of the C API.
        call: &'static str,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An argument has the wrong type, shape, number or device. The plugin was not called.
    #[error("{what}: expected {expected}, got {got}")]
    Mismatch {
        /// The name of the argument.
        what: String,
        /// The expected value.
        expected: String,
        /// The value of the argument.
        got: String,
    },
}

impl PjrtError {
    pub(super) fn mismatch(
        what: impl Into<String>,
        expected: impl fmt::Display,
        got: impl fmt::Display,
    ) -> Self {
        Self::Mismatch { what: what.into(), expected: expected.to_string(), got: got.to_string() }
    }
}

/// A status code of gRPC and Abseil.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub u32);

impl Code {
    /// The key has no value.
    pub const NOT_FOUND: Self = Self(5);
    /// Memory or another resource is exhausted.
    pub const RESOURCE_EXHAUSTED: Self = Self(8);
    /// The plugin has the function, but its devices do not support it.
    pub const UNIMPLEMENTED: Self = Self(12);
    /// An internal error.
    pub const INTERNAL: Self = Self(13);
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 17] = [
            "ok",
            "cancelled",
            "unknown",
            "invalid argument",
            "deadline exceeded",
            "not found",
            "already exists",
            "permission denied",
            "resource exhausted",
            "failed precondition",
            "aborted",
            "out of range",
            "unimplemented",
            "internal",
            "unavailable",
            "data loss",
            "unauthenticated",
        ];
        match NAMES.get(self.0 as usize) {
            Some(name) => f.write_str(name),
            None => write!(f, "code {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_plugin_names_the_call_the_message_and_the_code() {
        let e = PjrtError::Call { call: "PJRT_Compile", code: Code(3), message: "bad name".into() };
        assert_eq!(e.to_string(), "PJRT_Compile: bad name (invalid argument)");
        assert_eq!(Code(99).to_string(), "code 99");
    }
}
