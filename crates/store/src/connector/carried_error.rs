//! Errors of this crate on their way through `object_store`.

use crate::Error;
#[cfg(any(feature = "gcs", feature = "s3"))]
use crate::ErrorKind;
#[cfg(any(feature = "gcs", feature = "s3"))]
use crate::location::Failure;
use object_store::client::{HttpError, HttpErrorKind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fmt, iter};

/// An error of this crate on its way through `object_store`.
struct CarriedError(Mutex<Option<Error>>);

impl CarriedError {
    fn error(&self) -> MutexGuard<'_, Option<Error>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for CarriedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error().as_ref().map_or(Ok(()), |error| write!(f, "{error:#}"))
    }
}

impl fmt::Debug for CarriedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for CarriedError {}

pub(super) fn carry(kind: HttpErrorKind, error: Error) -> HttpError {
    HttpError::new(kind, CarriedError(Mutex::new(Some(error))))
}

/// Takes out the error of this crate that an error of `object_store` carries, if it does.
pub(crate) fn carried_error(error: &object_store::Error) -> Option<Error> {
    carried(error)
}

pub(super) fn carried(error: &(dyn std::error::Error + 'static)) -> Option<Error> {
    let mut causes = iter::successors(Some(error), |error| (**error).source());
    causes.find_map(|error| error.downcast_ref::<CarriedError>()?.error().take())
}

/// An error of this crate as one of `object_store`, from which [`carried_error`] takes it out again.
#[cfg(any(feature = "gcs", feature = "s3"))]
pub(crate) fn store_error(error: Error) -> object_store::Error {
    object_store::Error::Generic {
        store: "credentials",
        source: Box::new(CarriedError(Mutex::new(Some(error)))),
    }
}

/// An error of `object_store` as one of this crate.
#[cfg(any(feature = "gcs", feature = "s3"))]
pub(crate) fn own_error(error: object_store::Error) -> Error {
    carried_error(&error).unwrap_or_else(|| ErrorKind::Denied(Failure::boxed(&error)).into())
}
