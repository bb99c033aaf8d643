//! The state of a cache in this process.

use super::directory::Directory;
use super::progress::Progress;
use md5::{Digest, Md5};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// The flights of a cache by the keys of their objects.
type Flights = Mutex<HashMap<String, watch::Sender<Progress>>>;

/// What the clones of a cache and its readers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) directory: Directory,
    pub(super) revalidate: bool,
    pub(super) flights: Flights,
    /// How many objects have come whole and are yet to be entries, or are fetched in place of entries that
    /// were damaged.
    pub(super) finishing: watch::Sender<usize>,
    /// The keys of objects in whose files damage was found.
    pub(super) damaged: Mutex<HashSet<String>>,
    pub(super) warning: Mutex<Option<String>>,
}

impl Shared {
    pub(super) fn new(directory: Directory, revalidate: bool) -> Self {
        Shared {
            directory,
            revalidate,
            flights: Flights::default(),
            finishing: watch::Sender::new(0),
            damaged: Mutex::default(),
            warning: Mutex::default(),
        }
    }

    pub(super) fn flights(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<Progress>>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn damaged(&self) -> MutexGuard<'_, HashSet<String>> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn warn(&self, what: impl fmt::Display) {
        let warning = format!("the cache {}: {what:#}", self.directory.path().display());
        *self.warning.lock().unwrap_or_else(PoisonError::into_inner) = Some(warning);
    }
}

/// The name of an object's files: any URL makes one of the same length, and all processes make the same.
pub(super) fn key(url: &str) -> String {
    Md5::digest(url).iter().map(|byte| format!("{byte:02x}")).collect()
}
