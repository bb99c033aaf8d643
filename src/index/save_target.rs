//! `SaveTarget`: a document in which an index can be saved. Also finds, among several targets, the first that
//! can be written.

use crate::error::{ErrorKind, Result};
use crate::secret_url::SecretUrl;
use crate::store::{ObjectUrl, Store, write_to};

/// A document that an index is saved in.
pub(super) struct SaveTarget {
    pub(super) url: SecretUrl,
    pub(super) private: bool,
}

impl SaveTarget {
    /// Checks that the document can be written, by writing another object beside it.
    ///
    /// A test write to the document itself could replace a whole document that another rank has just saved.
    /// In a bucket where objects may be created but not replaced, it would even prevent saving the index.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] and [`ErrorKind::Denied`] if the document cannot be written, and faults of
    /// the network or the disk.
    pub(super) fn probe(&self, store: &Store) -> Result<()> {
        let url = self.url.expose_secret();
        if store.is_web(url) {
            return Err(ErrorKind::Unsupported("web servers cannot be written to".into()).into());
        }
        if ObjectUrl::parse(url).is_local() {
            // Dropping the unfinished file removes it.
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
            // If many ranks start at the same time, they write the probe object more often than some stores
            // allow. The resulting `Busy` does not mean that the document cannot be written.
            Err(error) if matches!(error.kind(), ErrorKind::Busy { .. }) => Ok(()),
            // If objects may be created but neither replaced nor deleted, the probe object of an earlier
            // check still exists.
            Err(error) if matches!(error.kind(), ErrorKind::Denied(_)) && store.stat(&url).is_ok() => Ok(()),
            Err(error) => Err(error),
            // If objects may not be deleted, the probe object stays.
            Ok(_) => store.delete(&url).or(Ok(())),
        }
    }
}

/// The URL of the probe object for the document at `url`. It is in the same directory and has the same
/// suffixes, so that access rules that match one of the two objects also match the other.
fn probe_url(url: &str) -> String {
    let name = url.rfind('/').map_or(0, |slash| slash + 1);
    let dot = url[name..].find('.').map_or(url.len(), |dot| name + dot);
    format!("{}.probe{}", &url[..dot], &url[dot..])
}

/// Calls `act` for each document until a call succeeds, and returns that document's number. Documents that
/// cannot be written are skipped; other errors are returned.
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
    fn a_probe_object_has_the_directory_and_suffixes_of_its_document() {
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
