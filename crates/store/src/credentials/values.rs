//! Helpers for all credentials: errors, variables, times, and a check whether a secret can be sent.

use crate::{Error, ErrorKind};
use std::path::PathBuf;
use std::time::SystemTime;

/// The error for credentials that cannot be used. `what` names the file and says what to do.
pub(super) fn unusable(what: impl Into<String>) -> Error {
    ErrorKind::Denied(what.into().into()).into()
}

/// Prefixes the message of a request's error with `place`, which names the file and the field of the
/// credential. Returns temporary faults unchanged.
pub(super) fn with_origin(error: Error, place: &str) -> Error {
    match error.kind() {
        ErrorKind::Denied(_) | ErrorKind::NotFound(_) | ErrorKind::Store(_) => {
            unusable(format!("{place}: {error:#}"))
        }
        _ => error,
    }
}

/// A variable of the environment, unless it is empty.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The user's home directory.
pub(super) fn home() -> Option<PathBuf> {
    let name = if cfg!(windows) { "USERPROFILE" } else { "HOME" };
    std::env::var_os(name).filter(|home| !home.is_empty()).map(PathBuf::from)
}

/// Parses an RFC 3339 time in UTC, in the variants that credential servers and tools for credentials write.
pub(super) fn parse_time(text: &str) -> Option<SystemTime> {
    let text = text.trim();
    let end = ["+00:00", "-00:00", "+0000", "UTC", "Z", "z"].into_iter().find(|end| text.ends_with(end))?;
    humantime::parse_rfc3339(&format!("{}Z", text.strip_suffix(end)?)).ok()
}

#[cfg(feature = "gcs")]
pub(super) fn after_seconds(seconds: u64) -> SystemTime {
    SystemTime::now() + std::time::Duration::from_secs(seconds.min(1 << 30))
}

/// Whether a secret can be sent in a header: it is not empty, and has only printable ASCII characters without
/// spaces.
pub(super) fn is_sendable(secret: &str) -> bool {
    !secret.is_empty() && secret.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_parsed_in_the_formats_that_tools_write() {
        let expected = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600);
        for text in [
            "2026-01-01T00:00:00Z",
            "2026-01-01T00:00:00+00:00",
            "2026-01-01T00:00:00.000Z",
            "2026-01-01T00:00:00UTC",
            " 2026-01-01T00:00:00Z\n",
        ] {
            assert_eq!(parse_time(text), Some(expected), "{text}");
        }
        for text in ["", "soon", "2026-01-01", "2026-01-01T00:00:00+01:00", "é"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
