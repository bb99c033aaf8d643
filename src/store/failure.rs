//! Errors of the crate `object_store` as errors of this one.

#[cfg(feature = "cloud")]
use super::connector;
use super::location::Failure;
use crate::{Error, ErrorKind};

/// What an error of the library says of a request for `url`.
pub(super) fn failed(url: &str, error: object_store::Error) -> Error {
    #[cfg(feature = "cloud")]
    if let Some(error) = connector::kept(&error) {
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
