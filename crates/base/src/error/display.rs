//! The texts of errors.

use super::{Attempts, Error, ErrorDetails, ErrorKind};
use crate::secret_url::redact_urls;
use std::fmt;

impl Error {
    /// Removes secrets from `text`, a message of this error or of one of its causes.
    fn shown(&self, text: &str) -> String {
        self.0.repeats.as_ref().map_or_else(|| redact_urls(text), |sent| sent.redact(text))
    }

    /// The message without the location, with all causes.
    #[doc(hidden)]
    pub fn message(&self) -> String {
        let mut message = match self.0.repeats {
            Some(_) => self.shown(&self.0.kind.to_string()),
            None => self.0.kind.to_string(),
        };
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            message.push_str(": ");
            match error.downcast_ref::<Error>() {
                Some(error) => message.push_str(&error.to_string()),
                // Errors of libraries and of the caller may contain URLs.
                None => message.push_str(&self.shown(&error.to_string())),
            }
            cause = error.source();
        }
        message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ErrorDetails { kind, location, attempts, repeats } = &*self.0;
        match (repeats, kind, location.offset) {
            (Some(sent), ..) => f.write_str(&sent.redact(&kind.to_string()))?,
            // The file is empty rather than truncated.
            (None, ErrorKind::Truncated { .. }, Some(0)) => {
                f.write_str(
                    "there is no data: the file is empty, and a tar archive has at least 1024 bytes",
                )?;
            }
            _ => kind.fmt(f)?,
        }
        let mut separator = " (";
        let mut part = |name: &str, value: Option<&dyn fmt::Display>| -> fmt::Result {
            if let Some(value) = value {
                write!(f, "{separator}{name} {value}")?;
                separator = ", ";
            }
            Ok(())
        };
        let object = if matches!(kind, ErrorKind::State(_)) { "file" } else { "shard" };
        part(object, location.shard.as_ref().map(|v| v as _))?;
        part("byte", location.offset.as_ref().map(|v| v as _))?;
        part("member", location.member.as_ref().map(|v| v as _))?;
        part("sample", location.key.as_ref().map(|v| v as _))?;
        if let Some(Attempts { tries, elapsed }) = attempts {
            write!(f, "{separator}after {tries} tries in {:.1} s", elapsed.as_secs_f64())?;
            separator = ", ";
        }
        if separator == ", " {
            f.write_str(")")?;
        }
        if f.alternate() {
            let mut cause = std::error::Error::source(self);
            while let Some(error) = cause {
                match error.is::<Error>() {
                    true => write!(f, ": {error}")?,
                    // Errors of libraries and of the caller may contain URLs.
                    false => write!(f, ": {}", self.shown(&error.to_string()))?,
                }
                cause = error.source();
            }
        }
        Ok(())
    }
}

/// The message with all causes in one line: Rust prints this form if `main` returns an error.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#}")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.0.kind)
    }
}
