//! Turns panics of foreign code into errors.
//!
//! Each call of foreign code (the caller's functions, stages and columns; `Clone`, `Drop` and `Display` of
//! the caller's types; drivers that pin memory) goes through [`catch`], and holds no lock that other threads
//! need. The loop of each thread is also wrapped in [`catch`] as a whole: if a call of foreign code was left
//! unwrapped by mistake, its panic ends the run with an error instead of leaving other threads waiting.

use crate::error::{Error, ErrorKind, Result};
use crate::secret_url::redact_urls;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls a closure and turns its panic into an error. Whatever the closure mutates must not be used after a
/// panic, or must be sound in any state.
///
/// # Errors
/// [`ErrorKind::Panicked`] with the message of the panic.
pub fn catch<T>(call: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(call)).map_err(panicked)
}

/// Drops a value that may contain values of the caller's types. If their `drop` panics, the panic becomes an
/// error.
///
/// # Errors
/// As [`catch`].
pub fn drop_caught<T>(value: T) -> Result<()> {
    catch(|| drop(value))
}

/// The error for a panic that was caught on a thread of the pipeline.
pub fn panicked(payload: Box<dyn Any + Send>) -> Error {
    ErrorKind::Panicked(message(payload)).into()
}

/// The message of a panic, without the secrets of URLs.
pub fn message(payload: Box<dyn Any + Send>) -> String {
    let message = payload.downcast_ref::<&str>().copied();
    let message = message.or_else(|| payload.downcast_ref().map(String::as_str));
    let message = redact_urls(message.unwrap_or("no message"));
    // A payload may be of any type. Its drop may panic too; the payload of that panic is leaked.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
    message
}

/// Shows an error whose causes may be of the caller's types. If a cause panics while it is shown, the message
/// of the panic is shown instead.
pub struct Shown<'a>(pub &'a dyn fmt::Display);

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shown").finish_non_exhaustive()
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = catch(|| if f.alternate() { format!("{:#}", self.0) } else { self.0.to_string() });
        f.write_str(&text.unwrap_or_else(|panic| format!("an error that cannot be shown: {panic}")))
    }
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

    /// A value that panics when it is dropped or shown.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::panic_any(7);
        }
    }

    impl fmt::Display for Bomb {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("not shown")
        }
    }

    #[test]
    fn values_that_panic_when_they_are_dropped_or_shown_are_errors() {
        assert!(drop_caught(Bomb).is_err() && drop_caught(Some(Bomb)).is_err());
        let bomb = std::mem::ManuallyDrop::new(Bomb);
        let shown = Shown(&*bomb).to_string();
        assert_eq!(shown, "an error that cannot be shown: a pipeline thread panicked: not shown");
        assert_eq!(Shown(&"text").to_string(), "text");
        assert!(catch(|| std::panic::panic_any(Bomb)).is_err(), "the payload is dropped too");
    }
}
