//! The state of a cache in this process.

use super::directory::CacheDirectory;
use super::progress::FlightProgress;
use super::salt::{self, Salt};
use crate::secret_url::without_secrets;
use md5::{Digest, Md5};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::watch;

/// The flights of a cache, by the keys of their objects.
pub(super) type Flights = HashMap<String, watch::Sender<FlightProgress>>;

/// The state that the clones of a cache and its readers share.
#[derive(Debug)]
pub(super) struct CacheState {
    pub(super) directory: CacheDirectory,
    pub(super) revalidate: bool,
    flights: Mutex<Flights>,
    /// Number of objects that are complete but not entries yet, or that are fetched in place of damaged
    /// entries.
    pub(super) finishing: watch::Sender<usize>,
    /// The keys of objects in whose files damage was found.
    damaged: Mutex<HashSet<String>>,
    pub(super) warning: Mutex<Option<String>>,
    /// What is hashed with a URL that has secrets, once it was needed.
    salt: OnceLock<Salt>,
}

impl CacheState {
    pub(super) fn new(directory: CacheDirectory, revalidate: bool) -> Self {
        CacheState {
            directory,
            revalidate,
            flights: Mutex::default(),
            finishing: watch::Sender::new(0),
            damaged: Mutex::default(),
            warning: Mutex::default(),
            salt: OnceLock::new(),
        }
    }

    /// The key of an object, which is the name of its files: a hash of the URL. It has the same length for
    /// any URL, and is the same in all processes that share the directory.
    ///
    /// A URL with secrets is hashed with the [`Salt`] of the directory, which only its owner can read: names
    /// of files can be read by more people, and a password could be guessed by a hash of nothing but the URL.
    /// May block.
    pub(super) fn key(&self, url: &str) -> String {
        let mut hash = Md5::new();
        if let Cow::Owned(_) = without_secrets(url) {
            hash.update(self.salt.get_or_init(|| {
                self.directory.salt().unwrap_or_else(|error| {
                    self.warn(&error);
                    salt::new()
                })
            }));
        }
        hash.update(url);
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(super) fn flights(&self) -> MutexGuard<'_, Flights> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn damaged(&self) -> MutexGuard<'_, HashSet<String>> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the warning of the cache.
    pub(super) fn warn(&self, what: impl fmt::Display) {
        let warning = format!("the cache {}: {what:#}", self.directory.path().display());
        *self.warning.lock().unwrap_or_else(PoisonError::into_inner) = Some(warning);
    }
}
