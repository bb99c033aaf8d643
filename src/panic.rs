//! Panics as errors.

use crate::error::{Error, ErrorKind, Result};
use crate::secret_url::redact_urls;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls a closure and turns its panic into an error. Whatever the closure mutates must not be used after a
/// panic, or must be sound in any state.
///
/// # Errors
/// [`ErrorKind::Panicked`] with the message of the panic.
pub(crate) fn catch<T>(call: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(call)).map_err(panicked)
}

/// The error for a caught panic of a thread of the pipeline.
pub(crate) fn panicked(payload: Box<dyn Any + Send>) -> Error {
    ErrorKind::Panicked(message(&*payload)).into()
}

/// The message of a panic, without secrets.
pub(crate) fn message(payload: &(dyn Any + Send)) -> String {
    let message = payload.downcast_ref::<&str>().copied();
    let message = message.or_else(|| payload.downcast_ref().map(String::as_str));
    redact_urls(message.unwrap_or("no message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_has_the_message_without_secrets() {
        let shown = |call: fn()| catch(call).unwrap_err().to_string();
        assert_eq!(shown(|| panic!("bad")), "a pipeline thread panicked: bad");
        assert_eq!(shown(|| panic!("bad {}", 1 + 1)), "a pipeline thread panicked: bad 2");
        assert_eq!(shown(|| std::panic::panic_any(7)), "a pipeline thread panicked: no message");
        assert!(!shown(|| panic!("at https://me:secret@host/x?token=secret")).contains("secret"));
        assert_eq!(catch(|| 7).unwrap(), 7);
    }
}
