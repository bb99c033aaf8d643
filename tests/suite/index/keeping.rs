//! Indexes of single shards, cached beside the shards and in a directory.

use super::*;
use crate::support::files;
use crate::support::shards::put;
use std::fs;

#[test]
fn indexes_are_cached_beside_shards_or_in_a_directory() {
    let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::default();
    let infos = write(ShardWriter::builder(pattern(dir.path(), ".tar")), &motley());
    let expected = built(&store, &infos);
    let urls = expected.shards();
    let sidecar = |number: usize| format!("{}.index.json", infos[number].url);
    let keeping = || Index::builder().beside(true).cache(cache.path());
    assert_eq!(keeping().build(&urls).unwrap(), expected);
    let kept: ShardIndex = serde_json::from_slice(&fs::read(sidecar(1)).unwrap()).unwrap();
    assert_eq!(
        (kept.url(), kept.range(0..3)),
        ("s-001.tar", expected.get(&infos[1].url).unwrap().range(0..3))
    );
    assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 6);

    // The cached index is used without reading the shard. The shard's content may even have been replaced, as
    // long as its size and modification time are the same.
    let ruin = |number: usize| {
        let url = &infos[number].url;
        let time = fs::metadata(url).unwrap().modified().unwrap();
        let length = fs::metadata(url).unwrap().len();
        fs::write(url, vec![b'x'; length as usize]).unwrap();
        fs::File::options().write(true).open(url).unwrap().set_modified(time).unwrap();
    };
    ruin(0);
    assert_eq!(keeping().build(&urls).unwrap(), expected);
    assert_eq!(Index::builder().cache(cache.path()).build(&urls).unwrap(), expected);
    assert_eq!(Index::builder().beside(true).build(&urls).unwrap(), expected);
    assert!(Index::builder().build(&urls).is_err());

    // A cached index is not used if it is damaged or belongs to another shard.
    let none = tempfile::tempdir().unwrap();
    for damage in ["", "{", "{}", r#"{"url":"s-000.tar","nsamples":7}"#] {
        fs::write(sidecar(0), damage).unwrap();
        assert!(Index::builder().beside(true).cache(none.path()).build(&urls).is_err());
    }
    fs::copy(sidecar(1), sidecar(0)).unwrap();
    assert!(Index::builder().beside(true).build(&urls).is_err());
    // The cache is tried first. The damaged file beside the shard is not read, and so not repaired.
    assert_eq!(keeping().build(&urls).unwrap(), expected);
}

#[test]
fn an_index_of_an_old_version_is_rebuilt() {
    let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let infos = write(ShardWriter::builder(pattern(dir.path(), ".tar")).index(true), &motley());
    let (url, store) = (infos[0].url.as_str(), Store::default());
    let urls = ShardList::from_urls([url]);
    let sidecar = format!("{url}.index.json");
    assert!(fs::exists(&sidecar).unwrap());
    let keeping = || Index::builder().beside(true).cache(cache.path());
    assert_eq!(keeping().build(&urls).unwrap().iter().next(), Some(&infos[0].index));
    // Another archive of the same length.
    let mut other = files(&["x.txt", "y.txt", "z.txt"]);
    other.resize(infos[0].bytes as usize, 0);
    put(&store, url, &other);
    fs::File::options()
        .write(true)
        .open(url)
        .unwrap()
        .set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    let now = keeping().build(&urls).unwrap();
    assert_eq!(now.samples(), 3);
    let kept: ShardIndex = serde_json::from_slice(&fs::read(&sidecar).unwrap()).unwrap();
    assert_eq!((kept.samples(), kept.version()), (3, now.get(url).unwrap().version()));
}

#[test]
fn progress_counts_every_shard_once() {
    let dir = tempfile::tempdir().unwrap();
    let infos = write(ShardWriter::builder(pattern(dir.path(), ".tar")), &motley());
    let urls: Vec<&str> = infos.iter().chain(&infos[..2]).map(|info| info.url.as_str()).collect();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let index = Index::builder()
        .on_shard(move |shard| noted.lock().unwrap().push(shard.url().to_owned()))
        .build(&ShardList::from_urls(urls.clone()))
        .unwrap();
    assert_eq!(index.iter().map(ShardIndex::url).collect::<Vec<_>>(), urls);
    let mut seen = seen.lock().unwrap().clone();
    seen.sort();
    assert_eq!(seen, urls[..6]);
}

/// Some storage services return an object's name as a single URL component, with its slashes encoded.
#[test]
fn a_cached_index_of_a_name_with_a_slash_is_found() {
    let (noted, cache) = (Arc::new(CountingSource::default()), tempfile::tempdir().unwrap());
    let store =
        Store::builder().with_source("https://h", Arc::clone(&noted) as Arc<dyn Source>).build().unwrap();
    let urls = ShardList::from_urls(["https://h/o/train%2F0.tar"]);
    noted.put(urls[0].expose_secret(), files(&["a.txt", "b.txt"]));
    let keeping = || Index::builder().store(store.clone()).cache(cache.path());
    let index = keeping().build(&urls).unwrap();
    noted.take_counts();
    assert_eq!(keeping().build(&urls).unwrap(), index);
    assert_eq!(noted.take_counts().0, 1, "one request, to compare the version");
}

/// An index in the user's cache may list the samples of a private bucket, so only the user may read it. An
/// index beside a shard is as readable as the shard.
#[cfg(unix)]
#[test]
fn only_the_owner_can_read_the_index_cache() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let dir = tempfile::tempdir().unwrap();
    let shard = dir.path().join("0.tar");
    fs::write(&shard, crate::support::archive(&[Sample::new("a").with("cls", 1)])).unwrap();
    let shards = ShardList::from_urls([shard.to_str().unwrap()]);
    let cache = dir.path().join("cache/of/indexes");
    Index::builder().beside(true).cache(&cache).build(&shards).unwrap();
    let kept: Vec<_> = fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(kept.len(), 1);
    assert_eq!((mode(&cache), mode(&kept[0])), (0o700, 0o600));
    assert_eq!(
        mode(&dir.path().join("0.tar.index.json")),
        mode(&shard),
        "an index beside a shard has the shard's mode"
    );
}
