//! Credentials that `object_store` does not read: files of Google's federated and impersonated accounts, and
//! profiles of AWS. `docs/network.md` has the table of all that is read, in which order.
//!
//! [`google::configure`] and [`aws::configure`] look whether there are such credentials, without a request,
//! and give the builder of the bucket a provider of them. The provider, [`Renewed`], requests a credential
//! when it is first needed and again before it expires. Requests go through the client of a
//! [`Connector`](super::connector::Connector): they are retried and redirected as all others are, and their
//! errors show nothing that was sent.

#[cfg(feature = "s3")]
pub(super) mod aws;
mod document;
#[cfg(feature = "gcs")]
mod external_account;
#[cfg(feature = "gcs")]
pub(super) mod google;
mod process;
#[cfg(feature = "s3")]
mod profiles;
mod renewed;
#[cfg(feature = "s3")]
mod sts;

use crate::{Error, ErrorKind};
use document::Document;
use renewed::{CredentialSource, Expiring, Renewed};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// The error for credentials that cannot be used. `what` names the file and what to do.
fn unusable(what: impl Into<String>) -> Error {
    ErrorKind::Denied(what.into().into()).into()
}

/// The error of a request for a credential, with the file and the field that it comes from. Faults that may
/// pass stay as they are.
fn in_place(error: Error, place: &str) -> Error {
    match error.kind() {
        ErrorKind::Denied(_) | ErrorKind::NotFound(_) | ErrorKind::Store(_) => {
            unusable(format!("{place}: {error:#}"))
        }
        _ => error,
    }
}

/// A variable of the environment, unless it is empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The home directory of the user.
fn home() -> Option<PathBuf> {
    let name = if cfg!(windows) { "USERPROFILE" } else { "HOME" };
    std::env::var_os(name).filter(|home| !home.is_empty()).map(PathBuf::from)
}

/// Parses a time of RFC 3339 in UTC, as servers and tools of credentials write it.
fn parse_time(text: &str) -> Option<SystemTime> {
    let text = text.trim();
    let end = ["+00:00", "-00:00", "+0000", "UTC", "Z", "z"].into_iter().find(|end| text.ends_with(end))?;
    humantime::parse_rfc3339(&format!("{}Z", text.strip_suffix(end)?)).ok()
}

/// The time that is so many seconds ahead.
#[cfg(feature = "gcs")]
fn after_seconds(seconds: u64) -> SystemTime {
    SystemTime::now() + Duration::from_secs(seconds.min(1 << 30))
}

/// Whether a secret can be sent in a header. Files and programs may end it with a line break.
fn is_sendable(secret: &str) -> bool {
    !secret.is_empty() && secret.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_the_forms_that_tools_write() {
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
