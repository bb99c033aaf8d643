//! `Versions`: ensures that all readers of an epoch read the same version of each shard.

use crate::memory::Gauge;
use crate::secret_url::SecretUrl;
use crate::store::ObjectVersion;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of epochs whose versions are kept even while no reader of the epoch exists: the streams of an epoch
/// may be read one after the other.
const MAX_EPOCHS: usize = 2;

/// The state that the readers of a run share: for each epoch, the version of each shard that they have read,
/// and a gauge of the bytes that they have requested from the network and not read yet. Clones share both.
#[derive(Debug, Clone, Default)]
pub(crate) struct Versions {
    epochs: Arc<Mutex<BTreeMap<u64, EpochVersions>>>,
    network: Gauge,
}

/// The version of each shard that the readers of one epoch have read, by URL. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct EpochVersions(Arc<Mutex<HashMap<SecretUrl, ObjectVersion>>>);

impl Versions {
    /// Starts without recorded versions. `network` counts the bytes that the readers have requested from the
    /// network and not read yet.
    pub(crate) fn owned_by(network: &Gauge) -> Self {
        Versions { network: network.clone(), ..Versions::default() }
    }

    /// The gauge of the bytes that the readers have requested from the network and not read yet.
    pub(super) fn network(&self) -> &Gauge {
        &self.network
    }

    /// The versions of an epoch. If there are more than [`MAX_EPOCHS`] epochs, the versions of the oldest
    /// epochs without readers are dropped.
    pub(super) fn of(&self, epoch: u64) -> EpochVersions {
        let mut epochs = self.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        let versions = epochs.entry(epoch).or_default().clone();
        while epochs.len() > MAX_EPOCHS {
            let mut unused = epochs.iter().filter(|(_, versions)| Arc::strong_count(&versions.0) == 1);
            let Some(oldest) = unused.next().map(|(epoch, _)| *epoch) else { break };
            epochs.remove(&oldest);
        }
        versions
    }
}

impl EpochVersions {
    /// Records the object that was opened at `url`.
    ///
    /// # Errors
    /// The object that was opened there before, if it is different.
    pub(super) fn check(&self, url: &SecretUrl, object: &ObjectVersion) -> Result<(), ObjectVersion> {
        let mut versions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(before) = versions.get_mut(url) else {
            versions.insert(url.clone(), object.clone());
            return Ok(());
        };
        if before.compare(object).is_different() {
            return Err(before.clone());
        }
        before.size = before.size.or(object.size);
        if before.version.is_none() {
            before.version.clone_from(&object.version);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(size: u64, version: Option<&str>) -> ObjectVersion {
        ObjectVersion::new(Some(size), version)
    }

    #[test]
    fn another_version_than_the_first_one_is_an_error() {
        let (versions, url) = (EpochVersions::default(), SecretUrl::from("a.tar"));
        let check = |url: &SecretUrl, size, version| {
            versions.check(url, &object(size, version)).map_err(|before| before.to_string())
        };
        assert_eq!(check(&url, 1, None), Ok(()));
        assert_eq!(check(&url, 2, None), Err("1 bytes".into()));
        assert_eq!(check(&url, 1, Some("v1")), Ok(()));
        assert_eq!(check(&url, 1, Some("v2")), Err("1 bytes, version v1".into()));
        assert_eq!(check(&url, 1, None), Ok(()));
        assert_eq!(check(&SecretUrl::from("b.tar"), 2, Some("v2")), Ok(()));
    }

    #[test]
    fn the_versions_of_old_epochs_are_dropped() {
        let (versions, url) = (Versions::default(), SecretUrl::from("a.tar"));
        let read = versions.of(0);
        for epoch in 0..100 {
            versions.of(epoch).check(&url, &object(epoch, None)).unwrap();
            let changed = versions.of(epoch).check(&url, &object(epoch + 1, None));
            assert!(changed.is_err(), "the last epoch is remembered");
        }
        assert!(read.check(&url, &object(1, None)).is_err());
        assert!(versions.epochs.lock().unwrap().len() <= MAX_EPOCHS + 1);
    }
}
