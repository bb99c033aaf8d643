//! Saves states in files and in objects of buckets, and loads states from them.

use super::{State, misfit};
use crate::error::{Error, ErrorKind, Result, SizeLimit};
use crate::store::{ObjectUrl, Store, write_to};
use std::path::Path;

/// Maximum size of a document in bytes. For comparison, a state with five thousand open shards has 200 KB.
const MAX_DOCUMENT: u64 = 1 << 30;

impl State {
    /// Saves the state in a local file, or at a URL such as `gs://bucket/run/state.json` if the feature for
    /// that store is enabled.
    ///
    /// No reader ever sees a partial file: the file is written under another name in the same directory,
    /// synced to the disk, and then renamed. An object appears when its upload is complete. An earlier state
    /// with the same name is replaced. Missing directories are created. Blocks.
    ///
    /// Save the state and the weights of the same step. Give both files names that contain the step. If a job
    /// is killed between the two saves, it then still has the two files of an earlier step. Each rank has its
    /// own state and needs its own file: `format!("checkpoint-{}.json", topology.rank())`.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let dir = tempfile::tempdir()?;
    /// let checkpoint = dir.path().join("checkpoint.json");
    /// let dataset = Dataset::builder("docs/data/digits-*.tar").shuffle_shards(true).build()?;
    /// let loader = Loader::builder(dataset).shuffle(1000).batch(8).build()?;
    /// let mut batches = match State::load(&checkpoint)? {
    ///     Some(state) => loader.restore(&state)?,
    ///     None => loader.epochs(0), // the first start
    /// };
    /// for step in 0..3 {
    ///     let batch = batches.next().transpose()?.expect("`epochs` has no end");
    ///     println!("step {step}: {} samples", batch.len());
    ///     batches.state().save(&checkpoint)?;
    /// }
    /// assert_eq!(State::load(&checkpoint)?.map(|state| state.batches()), Some(3));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// An error is returned if the file or object cannot be written; an earlier state with the same name is
    /// then kept. Names with the suffixes of compressed files (`.gz`, `.zst`) are refused.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.save_to(&Store::default(), url(path.as_ref())?)
    }

    /// Like [`save`](State::save), but uses your own store. The store can have other options, and it keeps
    /// the connections and credentials of a bucket from one save to the next.
    ///
    /// # Errors
    ///
    /// The same as for [`save`](State::save).
    pub fn save_to(&self, store: &Store, url: &str) -> Result<()> {
        let mut object = store.create_plain(url, false)?;
        let write = || {
            write_to(&mut *object, self.to_string().as_bytes())?;
            object.finish().map(drop)
        };
        write().map_err(|error: Error| error.in_shard(url))
    }

    /// Loads a state that was [saved](State::save). Returns `None` if no file or object has this name, as at
    /// the first start of a job. Blocks.
    ///
    /// Any other problem is an error, so that a fault never restarts a job from its beginning: a file without
    /// read permission, an unreachable server, an empty or damaged document.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::State`] for an empty or damaged document, with line and column, and the errors of reading
    /// the document. If the caller may not list a bucket, some stores return [`ErrorKind::Denied`] for an
    /// object that does not exist.
    pub fn load(path: impl AsRef<Path>) -> Result<Option<Self>> {
        State::load_from(&Store::default(), url(path.as_ref())?)
    }

    /// Like [`load`](State::load), but uses your own store. The store's cache is not used.
    ///
    /// # Errors
    ///
    /// The same as for [`load`](State::load).
    pub fn load_from(store: &Store, url: &str) -> Result<Option<Self>> {
        let bytes = match read(store, url) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) && !is_dangling(url) => {
                return Ok(None);
            }
            read => read?,
        };
        parse(&bytes).map(Some).map_err(|error| error.in_shard(url))
    }
}

fn url(path: &Path) -> Result<&str> {
    let why = || ErrorKind::Config(format!("the path {path:?} is not UTF-8: use another name"));
    Ok(path.to_str().ok_or_else(why)?)
}

fn read(store: &Store, url: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for chunk in store.open_uncached(url)? {
        let chunk = chunk?;
        let size = (bytes.len() + chunk.len()) as u64;
        if size > MAX_DOCUMENT {
            let kind = ErrorKind::TooLarge { what: SizeLimit::State, size, limit: MAX_DOCUMENT };
            return Err(Error::from(kind).in_shard(url));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// Whether `url` is a symbolic link to a file that does not exist. The target was probably lost or is not
/// mounted, so this is not the first start of the job.
fn is_dangling(url: &str) -> bool {
    let path = ObjectUrl::parse(url).local_path();
    path.ok().flatten().is_some_and(|path| path.symlink_metadata().is_ok())
}

fn parse(bytes: &[u8]) -> Result<State> {
    let damaged = |at| misfit(format!("it cannot be read: it is not UTF-8 at byte {at}"));
    std::str::from_utf8(bytes).map_err(|error| damaged(error.valid_up_to()))?.parse()
}

#[cfg(test)]
mod tests {
    use super::super::tests::state;
    use super::*;
    use crate::store::Cache;
    use crate::store::object_store::ObjectStore;
    use crate::store::object_store::memory::InMemory;
    use std::fs;
    use std::sync::Arc;

    #[test]
    fn a_saved_state_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/state.json");
        assert_eq!(State::load(&path).unwrap(), None);
        for rank in 0..2 {
            state(rank).save(&path).unwrap();
            assert_eq!(State::load(&path).unwrap(), Some(state(rank)));
        }
        // No temporary files are left.
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        let url = format!("file://{}", path.display());
        assert_eq!(State::load(url).unwrap(), Some(state(1)));
    }

    #[test]
    fn a_failed_save_keeps_the_earlier_state() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        state(0).save(&path).unwrap();
        let error = state(1).save(path.join("below/a/file.json")).unwrap_err();
        assert!(error.location().shard().is_some(), "{error}");
        assert!(state(1).save(dir.path().join("state.json.gz")).is_err());
        assert_eq!(State::load(&path).unwrap(), Some(state(0)));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    /// A program that gets `None` starts its job from the beginning. So all other cases must be errors.
    #[test]
    fn only_a_missing_file_is_loaded_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        let refused = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            let error = State::load(&path).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::State(_)), "{error}");
            assert!(
                error.to_string().contains("(file ") && error.to_string().contains("state.json"),
                "{error}"
            );
            error.to_string()
        };
        assert!(refused(b"").contains("it is empty"));
        let text = state(0).to_string();
        let cut = &text[..text.len() / 2];
        let column = format!("line 1 column {}", cut.len());
        assert!(refused(cut.as_bytes()).contains(&column));
        assert!(refused(&[0; 100]).contains("line 1 column 1"));
        assert!(refused(b"{\"shardstream_state\": \xff").contains("byte 22"));
        fs::remove_file(&path).unwrap();

        fs::create_dir(&path).unwrap();
        assert!(State::load(&path).is_err());
        assert!(State::load("nowhere://bucket/state.json").is_err());
        assert!(State::load(path.join("below")).unwrap().is_none());
        #[cfg(unix)]
        {
            let link = dir.path().join("latest.json");
            std::os::unix::fs::symlink(dir.path().join("not mounted/state.json"), &link).unwrap();
            assert!(matches!(State::load(&link).unwrap_err().kind(), ErrorKind::NotFound(_)));
            let file = dir.path().join("file");
            fs::write(&file, "").unwrap();
            assert!(State::load(file.join("state.json")).is_err(), "the directory is a file");
            let secret = dir.path().join("secret.json");
            state(0).save(&secret).unwrap();
            use std::os::unix::fs::PermissionsExt as _;
            fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
            // The superuser can read the file in spite of its permissions.
            if fs::read(&secret).is_err() {
                assert!(matches!(State::load(&secret).unwrap_err().kind(), ErrorKind::Denied(_)));
            }
        }
    }

    #[test]
    fn a_state_in_a_bucket_is_replaced_and_never_read_from_the_cache() {
        let bucket: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::builder(dir.path()).revalidate(false).build().unwrap();
        let store =
            Store::builder().with_object_store("mem://", bucket).cache(cache.clone()).build().unwrap();
        let url = "mem://bucket/state.json";
        assert_eq!(State::load_from(&store, url).unwrap(), None);
        for rank in 0..2 {
            state(rank).save_to(&store, url).unwrap();
            cache.flush();
            assert_eq!(State::load_from(&store, url).unwrap(), Some(state(rank)));
        }
    }
}
