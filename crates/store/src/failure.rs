//! Converts errors of the crate `object_store` to errors of this crate. Error responses that a client of this
//! crate received are converted in `response.rs`.

#[cfg(feature = "cloud")]
use super::connector;
use super::location::Failure;
use super::source::{GetOptions, Refusal};
use crate::{Error, ErrorKind};
use std::io;

/// Converts an error of a request for the object at `url`.
pub(super) fn failed(url: &str, error: object_store::Error) -> Error {
    #[cfg(feature = "cloud")]
    if let Some(error) = connector::carried_error(&error) {
        return error;
    }
    let failure = Box::new(Failure::of(url, &error));
    match error {
        object_store::Error::NotFound { .. } => ErrorKind::NotFound(failure),
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
            ErrorKind::Denied(failure)
        }
        _ => ErrorKind::Store(failure),
    }
    .into()
}

/// Converts an error of a request for bytes of the object at `url`. `options` are those of the request.
pub(super) fn refusal(url: &str, error: object_store::Error, options: &GetOptions) -> Refusal {
    match error {
        // Either the range begins at or after the end of the object, or the server does not support ranges.
        // If the version is known, an earlier response has ruled out both.
        object_store::Error::Generic { .. } if options.range.is_some() && options.if_version.is_none() => {
            Refusal::Beyond
        }
        object_store::Error::Unauthenticated { .. } => Refusal::Unauthenticated(failed(url, error)),
        object_store::Error::Precondition { .. } => Refusal::changed(options, None),
        error => Refusal::Other(failed(url, error)),
    }
}

/// Converts an error in the body of the object at `url` to a temporary fault, which is retried.
pub(super) fn body_fault(url: &str, error: &object_store::Error) -> Error {
    io::Error::other(Failure::of(url, error)).into()
}
