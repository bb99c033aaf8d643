//! Loads and saves an index as a document.

use super::compact::{self, CompactReader};
use super::relative_url::{directory, relative, resolved};
use super::shard_entry::{MAX_SHARDS, ShardEntry};
use super::{Index, ShardIndex};
use crate::error::{Error, ErrorKind, Result, SizeLimit};
use crate::json::{self, ParsedAs};
use crate::secret_url::{redact_text, without_secrets};
use crate::store::{Body, ObjectUrl, Store, WriteOptions, write_to};
use serde::Deserialize;
use std::borrow::Cow;

const KIND: &str = "wids-shard-index-v1";

/// The `__kind__` of a document with selected samples. Such a document has no `wids_version`. So a reader
/// that does not know selections refuses the document, instead of reading the wrong samples.
const SELECTED: &str = "shardstream-selected-index-v1";

/// Size in bytes of the longest accepted document.
const MAX_DOCUMENT: u64 = 4 << 30;

/// Smallest size in bytes of the pieces in which a JSON document is written.
const MIN_PIECE: usize = 256 << 10;

/// The keys of a JSON index that this crate reads.
#[derive(Debug, Deserialize)]
struct IndexDocument {
    #[serde(default, rename = "__kind__")]
    kind: Option<String>,
    wids_version: Option<u64>,
    #[serde(default)]
    base: Option<String>,
    #[serde(default)]
    datasets: Vec<serde::de::IgnoredAny>,
    shardlist: Option<Vec<ShardIndex>>,
}

/// Reads a document that has the entry of one shard.
pub(super) fn read_entry(store: &Store, url: &str) -> Result<ShardIndex> {
    let mut text = Vec::new();
    let stored = read_chunks(store, url, |chunk, _| {
        text.extend_from_slice(chunk);
        Ok(())
    })?;
    parse(&text, stored)
}

/// Parses a document whose stored size is `stored` bytes. Refuses a document that would take much more memory
/// than its stored size.
fn parse<'a, T: Deserialize<'a>>(text: &'a [u8], stored: u64) -> Result<T> {
    if text.starts_with(b"v1.") {
        let what = "this is an index of NVIDIA DALI (wds2idx), which does not name its shards: build an \
                    index with `Index::builder` or `shardstream index build`";
        return Err(ErrorKind::Index(what.into()).into());
    }
    let limit = json::limit_of(stored);
    if let Some(size) = json::excess(text, ParsedAs::Lists, limit) {
        return Err(ErrorKind::TooLarge { what: SizeLimit::ParsedIndex, size, limit }.into());
    }
    serde_json::from_slice(text).map_err(|error| malformed(&error))
}

pub(super) fn write_entry(store: &Store, url: &str, shard: &ShardIndex, private: bool) -> Result<()> {
    let mut text = json(shard)?;
    text.push(b'\n');
    store.put_with(url, &text, WriteOptions { private, ..WriteOptions::default() }).map(drop)
}

fn json(shard: &ShardIndex) -> Result<Vec<u8>> {
    serde_json::to_vec(shard).map_err(|error| malformed(&error))
}

/// Reads a document of at most [`MAX_DOCUMENT`] bytes. Calls `take` with each chunk and the stored size of
/// the document, which is smaller than the document if it is compressed. Returns the stored size.
fn read_chunks(store: &Store, url: &str, mut take: impl FnMut(&[u8], u64) -> Result<()>) -> Result<u64> {
    let mut size = 0;
    let mut body = store.open(url)?;
    let stored = |body: &Body, size| body.object().and_then(|object| object.size).unwrap_or(size);
    while let Some(chunk) = body.next() {
        let chunk = chunk?;
        size += chunk.len() as u64;
        if size > MAX_DOCUMENT {
            return Err(ErrorKind::TooLarge { what: SizeLimit::Index, size, limit: MAX_DOCUMENT }.into());
        }
        take(&chunk, stored(&body, size))?;
    }
    Ok(stored(&body, size))
}

fn malformed(error: &dyn std::fmt::Display) -> Error {
    ErrorKind::Index(redact_text(&error.to_string())).into()
}

impl Index {
    /// Loads an index that was [saved](Index::save), or a `wids-shard-index-v1` document of Python's `wids`,
    /// which has the number of samples of each shard but no offsets. The first bytes of the document
    /// determine whether it is JSON or in the compact form. A compact document is parsed while it is read,
    /// and is never in memory as a whole.
    ///
    /// A relative URL is relative to the document's directory, or to the document's `base` if the document
    /// has a `base`. Unknown keys are ignored.
    ///
    /// # Errors
    /// [`ErrorKind::Index`] if the document is not an index or contradicts itself; [`ErrorKind::TooLarge`] if
    /// the document has more than 4 GiB or would take far more memory than its stored size; and the errors of
    /// [`Store::open`] and of reading.
    pub fn load(store: &Store, url: &str) -> Result<Self> {
        let load = || {
            let (mut text, mut compact) = (Vec::new(), None::<CompactReader>);
            let stored = read_chunks(store, url, |chunk, stored| {
                if let Some(reader) = &mut compact {
                    return reader
                        .push(chunk, json::limit_of(stored), |shard| resolve_shard(directory(url), shard));
                }
                text.extend_from_slice(chunk);
                if text.starts_with(compact::MAGIC) {
                    let (reader, limit) = (compact.insert(CompactReader::new()), json::limit_of(stored));
                    let begun = std::mem::take(&mut text);
                    reader.push(&begun, limit, |shard| resolve_shard(directory(url), shard))?;
                }
                Ok(())
            })?;
            match compact {
                Some(reader) => Self::read_compact(reader),
                None => Self::of_document(parse(&text, stored)?, directory(url)),
            }
        };
        load().map_err(|error: Error| error.in_shard(url))
    }

    /// Reads an index from the bytes of a compact document. Relative URLs are relative to `directory`: a URL
    /// or a path, or empty for the working directory.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let dir = tempfile::tempdir()?;
    /// let path = dir.path().join("train.shidx");
    /// let json = br#"{"wids_version": 1, "shardlist": [{"url": "gs://b/train-0.tar", "nsamples": 7}]}"#;
    /// let index = Index::from_json(json, "")?;
    /// index.save(&Store::default(), path.to_str().unwrap())?;
    /// assert_eq!(Index::from_compact(&std::fs::read(&path)?, "")?, index);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Index`] if the bytes are not a compact index, have a format version that this release
    /// does not know, are damaged, or contradict themselves.
    pub fn from_compact(bytes: &[u8], directory: &str) -> Result<Self> {
        let mut reader = CompactReader::new();
        reader.push(bytes, json::limit_of(bytes.len() as u64), |shard| resolve_shard(directory, shard))?;
        Self::read_compact(reader)
    }

    fn read_compact(reader: CompactReader) -> Result<Self> {
        reader.finish()?.into_iter().collect::<Index>().consistent()
    }

    /// Reads an index from the text of a JSON document. Relative URLs are relative to `directory`: a URL or a
    /// path, or empty for the working directory.
    ///
    /// # Errors
    /// [`ErrorKind::Index`] if the document is not an index or contradicts itself; [`ErrorKind::TooLarge`] if
    /// the document would take far more memory than its text.
    pub fn from_json(text: &[u8], directory: &str) -> Result<Self> {
        Self::of_document(parse(text, text.len() as u64)?, directory)
    }

    fn of_document(document: IndexDocument, directory: &str) -> Result<Self> {
        let bad = |what: &str| Err(ErrorKind::Index(what.into()).into());
        let kind = (document.kind.as_deref(), document.wids_version);
        let known = matches!(kind, (None | Some(KIND), Some(1)) | (Some(SELECTED), None));
        if !known {
            return bad("this is not a `wids-shard-index-v1` document of `wids_version` 1");
        }
        if !document.datasets.is_empty() {
            return bad(
                "it refers to other `datasets`, which is not supported: load their indexes one by one",
            );
        }
        let Some(shards) = document.shardlist else { return bad("there is no `shardlist`") };
        if shards.len() > MAX_SHARDS {
            return bad("there are more than 10 million shards");
        }
        let base =
            document.base.filter(|base| !base.is_empty()).map(|base| resolved(directory, &base).into_owned());
        let base = base.as_deref().unwrap_or(directory);
        let shards = shards.into_iter().map(|shard| resolve_shard(base, shard));
        shards.collect::<Index>().consistent()
    }

    /// Returns the index, or an error if two entries of one shard differ.
    fn consistent(self) -> Result<Self> {
        if self.is_ascending() {
            return Ok(self);
        }
        match self.iter().find(|shard| self.get(shard.url()) != Some(*shard)) {
            Some(shard) => {
                let what = format!("two entries disagree on the shard {}", shard.url);
                Err(ErrorKind::Index(what).into())
            }
            None => Ok(self),
        }
    }

    /// Saves the index as a JSON document, or in the compact form if the name ends in `.shidx`.
    /// [`load`](Index::load) reads both. Python's `wids` reads the JSON document too, unless samples were
    /// [selected](super::IndexBuilder::select).
    ///
    /// URLs of shards below the document's directory are stored as relative URLs, so that shards and document
    /// can be moved together. Passwords and the queries of signed URLs are left out.
    ///
    /// A JSON document has one shard per line. The line of a shard with 10 000 samples of two fields takes 65
    /// KB if samples have 1 KB (0.2 % of the shard), and 85 KB if they have 100 KB (0.01 %). The document of
    /// 1300 such shards takes 85 to 110 MB and loads in about two seconds. If that is too much, save only the
    /// [`counts`](Index::counts). The compact form takes half as many bytes as JSON. If shards have no
    /// layouts, it takes an eighth as many bytes as JSON: about 15 MB for a million shards.
    ///
    /// # Errors
    /// [`ErrorKind::Index`] if shards differ only in the parts of their URLs that are left out;
    /// [`ErrorKind::Unsupported`] for a name such as `train.json.gz`, because documents are not compressed;
    /// and the errors of [`Store::create`] and of writing.
    pub fn save(&self, store: &Store, url: &str) -> Result<()> {
        self.save_for(store, url, false)
    }

    /// Like [`save`](Index::save). If `private`, only the owner can read a local file.
    pub(super) fn save_for(&self, store: &Store, url: &str, private: bool) -> Result<()> {
        let write = || {
            let index = self.named_in(url)?;
            let mut object = store.create_plain(url, private)?;
            let name = ObjectUrl::parse(url).file_name();
            if name.ends_with(compact::SUFFIX) {
                let entries = index.iter().cloned().map(ShardEntry::from);
                compact::write(index.len(), entries, |bytes| write_to(&mut *object, bytes))?;
                return object.finish().map(drop);
            }
            let name = name.split('.').next().unwrap_or_default();
            let name = serde_json::to_string(name).map_err(|error| malformed(&error))?;
            let kind = match index.iter().any(|shard| shard.selection.is_some()) {
                true => format!(r#""__kind__":"{SELECTED}""#),
                false => format!(r#""__kind__":"{KIND}","wids_version":1"#),
            };
            let head = format!(r#"{{{kind},"name":{name},"shardlist":["#);
            let mut text = head.into_bytes();
            for (number, shard) in index.iter().enumerate() {
                text.extend_from_slice(if number > 0 { b",\n" } else { b"\n" });
                serde_json::to_writer(&mut text, shard).map_err(|error| malformed(&error))?;
                if text.len() >= MIN_PIECE {
                    write_to(&mut *object, &text)?;
                    text.clear();
                }
            }
            text.extend_from_slice(b"\n]}\n");
            write_to(&mut *object, &text)?;
            object.finish().map(drop)
        };
        write().map_err(|error: Error| error.in_shard(url))
    }

    /// The same index with the shard URLs that a document at `url` stores. They have no secrets, and are
    /// relative if the shard is below the document's directory.
    pub(super) fn named_in(&self, url: &str) -> Result<Self> {
        let named = |shard: &ShardIndex| shard.at(relative(directory(url), &without_secrets(shard.url())));
        self.iter().map(named).collect::<Index>().consistent()
    }
}

/// The shard with its URL resolved: a relative URL is relative to `directory`, where the document is.
pub(super) fn resolve_shard(directory: &str, shard: ShardIndex) -> ShardIndex {
    match resolved(directory, shard.url()) {
        Cow::Borrowed(url) if url == shard.url() => shard,
        url => shard.at(url),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A document that has every key.
    const WHOLE: &str = concat!(
        r#"{"__kind__":"wids-shard-index-v1","wids_version":1,"name":"n","base":"b","#,
        r#""shardlist":[
        {"url":"0.tar","nsamples":3,"filesize":9000,"version":"v","layout":{"fields":["a","b"],
        "shapes":[[0,0,512],[512,0,512,1,1536]],"runs":[0,1,1,2],"sizes":[7,1,513,0,1],
        "crc32c":"00000001e3069283ffffffff"}},
        {"url":"1.tgz","nsamples":1,"layout":{"seekable":false,"fields":["a"],"shapes":[[0,0,512]],"#,
        r#""runs":[0,1],
        "sizes":[7]}},
        {"url":"2.tar","nsamples":2,"filesize":9000,"layout":{"fields":["a"],"shapes":[[0,0,512]],"#,
        r#""runs":[0,4],
        "sizes":[7,1,5,0]},"select":{"name":"f","runs":[1,1,1,1]}}]}"#,
    );

    /// Calls all functions of an index, and checks that no function panics and that their results agree.
    pub(in crate::index) fn call_all_getters(index: &Index) {
        for shard in index {
            let last = shard.samples().min(1000);
            for sample in 0..=last {
                assert_eq!(shard.position_of(sample).is_some(), sample < shard.samples());
                let members =
                    shard.members(sample).map(|members| members.map(|(_, at)| at.end - at.start).sum());
                assert!(members.is_none() || members == shard.size_of(sample));
                assert!(shard.checksum_of(sample).is_none() || sample < last);
                if let Some(range) = shard.range(sample..last) {
                    assert!(range.start <= range.end && range.end <= shard.bytes().unwrap());
                }
            }
            assert!(index.get(shard.url()).is_some());
        }
    }

    #[test]
    fn a_document_with_every_key_is_read() {
        let index = Index::from_json(WHOLE.as_bytes(), "d").unwrap();
        call_all_getters(&index);
        let shard = index.get("d/b/0.tar").unwrap();
        assert_eq!((shard.range(0..1), shard.range(2..3)), (Some(0..1536), Some(5632..9000)));
        assert_eq!((shard.checksum_of(1), shard.checksum_of(3)), (Some(0xe306_9283), None));
        let selected = index.get("2.tar").unwrap();
        assert_eq!((selected.range(0..1), selected.range(1..2)), (Some(1024..2048), Some(3072..9000)));
        assert_eq!(
            index.get("1.tgz").map(|shard| (shard.size_of(0), shard.range(0..1))),
            Some((Some(7), None))
        );
    }

    proptest! {
        #[test]
        fn a_damaged_document_is_an_error_or_consistent(
            damage in prop::collection::vec(
                (
                    any::<prop::sample::Index>(),
                    prop_oneof![Just(0u8), any::<u8>(), b'0'..=b'9', Just(b','), Just(b'-')],
                ),
                1..4,
            ),
        ) {
            let mut text = WHOLE.as_bytes().to_vec();
            for (at, byte) in damage {
                let at = at.index(text.len());
                match byte {
                    0 => drop(text.remove(at)),
                    byte => text[at] = byte,
                }
            }
            if let Ok(index) = Index::from_json(&text, "") {
                call_all_getters(&index);
            }
        }
    }
}
