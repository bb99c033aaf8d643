//! What the clients of a [`Connector`](super::Connector) return through `object_store`: errors of this crate,
//! and the responses to requests for bytes.
//!
//! `object_store` returns the error of a client as the cause of its own error, and does not retry errors of
//! the kind [`HttpErrorKind::Unknown`]. So values that must be returned unchanged are returned inside such an
//! error.

use crate::Error;
#[cfg(any(feature = "gcs", feature = "s3"))]
use crate::ErrorKind;
#[cfg(any(feature = "gcs", feature = "s3"))]
use crate::location::Failure;
use crate::transport::Response;
use object_store::client::{HttpError, HttpErrorKind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fmt, iter};

/// A value that is returned through `object_store`, inside an error.
pub(crate) enum Carried {
    Error(Error),
    /// The response to a request for bytes, whatever its status.
    Response(Box<Response>),
}

/// The error that carries the value; `None` after the value was taken out.
struct CarriedError(Mutex<Option<Carried>>);

impl CarriedError {
    fn new(carried: Carried) -> Self {
        CarriedError(Mutex::new(Some(carried)))
    }

    fn content(&self) -> MutexGuard<'_, Option<Carried>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for CarriedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.content() {
            Some(Carried::Error(error)) => write!(f, "{error:#}"),
            Some(Carried::Response(response)) => write!(f, "a response with the status {}", response.status),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for CarriedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for CarriedError {}

/// Wraps a value in an error that `object_store` returns unchanged and does not retry.
pub(super) fn carry(carried: Carried) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, CarriedError::new(carried))
}

/// Takes the value out of an error of `object_store`, or out of one of the error's causes.
pub(crate) fn carried(error: &(dyn std::error::Error + 'static)) -> Option<Carried> {
    let mut causes = iter::successors(Some(error), |error| (**error).source());
    causes.find_map(|error| error.downcast_ref::<CarriedError>()?.content().take())
}

/// The error of this crate inside an error of `object_store`, if there is one. Takes it out.
pub(crate) fn carried_error(error: &(dyn std::error::Error + 'static)) -> Option<Error> {
    match carried(error)? {
        Carried::Error(error) => Some(error),
        Carried::Response(_) => None,
    }
}

/// Wraps an error of this crate in an error of `object_store`. [`carried_error`] takes it out again.
#[cfg(any(feature = "gcs", feature = "s3"))]
pub(crate) fn store_error(error: Error) -> object_store::Error {
    object_store::Error::Generic {
        store: "credentials",
        source: Box::new(CarriedError::new(Carried::Error(error))),
    }
}

/// The error of this crate inside an error of `object_store`; [`ErrorKind::Denied`] if there is none inside.
#[cfg(any(feature = "gcs", feature = "s3"))]
pub(crate) fn own_error(error: object_store::Error) -> Error {
    carried_error(&error).unwrap_or_else(|| ErrorKind::Denied(Failure::boxed(&error)).into())
}
