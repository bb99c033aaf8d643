//! Makes errors, and adds context to them on their way to the caller: shard, offset, member, key.

use super::{Attempts, Error, ErrorKind, ErrorSource, Location};
use crate::secret_url::{SecretUrl, SentSecrets};
use std::time::Duration;

impl Error {
    /// Wraps the error of a step that the caller supplies, such as a closure given to `map`.
    pub fn step(source: impl Into<ErrorSource>) -> Self {
        ErrorKind::Step(source.into()).into()
    }

    /// Makes the error of a decoder for `field`.
    pub fn decode(field: impl Into<String>, source: impl Into<ErrorSource>) -> Self {
        ErrorKind::Decode { field: field.into(), source: source.into() }.into()
    }

    /// Turns an [`ErrorKind::Step`] whose source is an `E` into an [`ErrorKind::Decode`] of `field`. Other
    /// errors are returned unchanged.
    #[doc(hidden)]
    pub fn in_field<E: std::error::Error + 'static>(mut self, field: &str) -> Self {
        self.0.kind = match self.0.kind {
            ErrorKind::Step(source) if source.is::<E>() => ErrorKind::Decode { field: field.into(), source },
            kind => kind,
        };
        self
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Where the error happened.
    #[must_use]
    pub fn location(&self) -> &Location {
        &self.0.location
    }

    /// The number and duration of the tries of the failed request; `None` if it was tried once.
    #[must_use]
    pub fn attempts(&self) -> Option<Attempts> {
        self.0.attempts
    }

    /// Sets the number and duration of the tries.
    #[must_use]
    #[doc(hidden)]
    pub fn after(mut self, tries: u32, elapsed: Duration) -> Self {
        self.0.attempts = Some(Attempts { tries, elapsed });
        self
    }

    /// Sets the location.
    #[doc(hidden)]
    pub fn located(mut self, location: Location) -> Self {
        self.0.location = location;
        self
    }

    /// Adds the shard, unless there is one already. [Secrets](SecretUrl) in its URL are removed.
    #[must_use]
    pub fn in_shard(mut self, shard: impl Into<SecretUrl>) -> Self {
        self.0.location.shard.get_or_insert_with(|| shard.into().shown());
        self
    }

    /// Marks this as the error of a custom source. The error's text may repeat the secrets in `sent`, so
    /// `Display` and `Debug` hide them. The kind and the causes stay as the source made them.
    #[must_use]
    #[doc(hidden)]
    pub fn repeating(mut self, sent: SentSecrets) -> Self {
        self.0.repeats.get_or_insert(sent);
        self
    }

    /// Adds the byte offset, unless there is one already.
    #[must_use]
    pub fn at_offset(mut self, offset: u64) -> Self {
        self.0.location.offset.get_or_insert(offset);
        self
    }

    /// Adds the tar member, unless there is one already.
    #[must_use]
    pub fn in_member(mut self, member: impl Into<String>) -> Self {
        self.0.location.member.get_or_insert_with(|| member.into());
        self
    }

    /// Adds the sample key, unless there is one already.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<String>) -> Self {
        self.0.location.key.get_or_insert_with(|| key.into());
        self
    }
}
