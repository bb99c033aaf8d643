//! The documents in which an index can be saved, and the choice of a writable one.

use crate::error::{ErrorKind, Result};
use crate::secret_url::SecretUrl;
use crate::store::{ObjectUrl, Store, write_to};

/// A document in which an index is saved.
pub(super) struct SaveTarget {
    pub(super) url: SecretUrl,
    pub(super) private: bool,
}

impl SaveTarget {
    /// Checks that the document can be written, without touching it.
    ///
    /// The document itself is not used for the check: a partial one could replace the whole one that another
    /// rank has saved meanwhile, and where objects may be created but not replaced, the partial one would
    /// stay.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] and [`ErrorKind::Denied`] if it cannot be written, and faults of the
    /// network or the disk.
    pub(super) fn probe(&self, store: &Store) -> Result<()> {
        let url = self.url.expose_secret();
        if store.is_web(url) {
            return Err(ErrorKind::Unsupported("web servers cannot be written to".into()).into());
        }
        if ObjectUrl::parse(url).is_local() {
            // The file is removed when it is dropped.
            return store.create_plain(url, self.private).map(drop);
        }
        let url = probe_url(url);
        let write = || {
            let mut object = store.create_plain(&url, self.private)?;
            write_to(
                &mut *object,
                b"This object was a test whether an index can be saved here. It may be deleted.\n",
            )?;
            object.finish()
        };
        match write() {
            // Many ranks that start at once write the same object more often than some stores allow.
            Err(error) if matches!(error.kind(), ErrorKind::Busy { .. }) => Ok(()),
            // Where objects may be created, and neither replaced nor deleted, an earlier probe is still
            // there.
            Err(error) if matches!(error.kind(), ErrorKind::Denied(_)) && store.stat(&url).is_ok() => Ok(()),
            Err(error) => Err(error),
            // If nothing may be deleted, the probe stays.
            Ok(_) => store.delete(&url).or(Ok(())),
        }
    }
}

/// The URL of the object that is written to check the document at `url`. It is in the same directory and has
/// the same suffixes, so that rules that match the one match the other.
fn probe_url(url: &str) -> String {
    let name = url.rfind('/').map_or(0, |slash| slash + 1);
    let dot = url[name..].find('.').map_or(url.len(), |dot| name + dot);
    format!("{}.probe{}", &url[..dot], &url[dot..])
}

/// Runs `act` for each document until it succeeds, and returns that document's number. Documents that cannot
/// be written are skipped.
pub(super) fn first_writable(
    targets: &[SaveTarget],
    mut act: impl FnMut(&SaveTarget) -> Result<()>,
) -> Result<usize> {
    let mut refused = None;
    for (number, target) in targets.iter().enumerate() {
        match act(target) {
            Ok(()) => return Ok(number),
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported(_) | ErrorKind::Denied(_)) => {
                let hint = "save it elsewhere: `AutoIndex::in_directory`, `or_in_directory`, `at`";
                let message = format!("the index cannot be saved at {}: {error}; {hint}", target.url);
                refused = Some(ErrorKind::Config(message).into());
            }
            Err(error) => return Err(error),
        }
    }
    Err(refused.unwrap_or_else(|| ErrorKind::Config("there is no place to save the index".into()).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_beside_its_document() {
        for (url, expected) in [
            ("gs://b.c/t/s-01.index.json", "gs://b.c/t/s-01.probe.index.json"),
            ("gs://b.c/t.d/index", "gs://b.c/t.d/index.probe"),
            ("gs://b.c/x.json.gz", "gs://b.c/x.probe.json.gz"),
            ("gs://b.c/.json", "gs://b.c/.probe.json"),
        ] {
            assert_eq!(probe_url(url), expected);
        }
    }
}
