//! `ShardEntry`: the entry of a shard in a JSON index.

use super::ShardIndex;
use super::layout::{LayoutDocument, ShardLayout};
use super::selection::{Selection, SelectionDocument};
use crate::secret_url::{shown, without_secrets};
use crate::store::ObjectUrl;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::sync::Arc;

/// Largest accepted number of samples of a shard. With this limit, the samples of [`MAX_SHARDS`] shards can
/// be counted in a `u64`.
const MAX_SAMPLES: u64 = 1 << 40;

/// Size in bytes of a header of a tar archive.
const HEADER: u64 = 512;

/// Largest accepted number of shards in a document, the same as in a [`ShardList`](crate::ShardList).
pub(super) const MAX_SHARDS: usize = 10_000_000;

/// A shard in JSON: the keys of `wids`, and this crate's own `version`, `layout` and `select`.
#[derive(Serialize, Deserialize)]
pub(super) struct ShardEntry {
    pub(super) url: Box<str>,
    pub(super) nsamples: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) filesize: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) layout: Option<LayoutDocument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) select: Option<SelectionDocument>,
}

impl From<ShardIndex> for ShardEntry {
    fn from(shard: ShardIndex) -> Self {
        ShardEntry {
            layout: shard.layout.as_deref().map(LayoutDocument::from),
            url: without_secrets(shard.url()).into(),
            nsamples: shard.samples,
            filesize: shard.bytes,
            version: shard.version.as_deref().map(Into::into),
            select: shard.selection.as_deref().map(Selection::document),
        }
    }
}

impl TryFrom<ShardEntry> for ShardIndex {
    type Error = String;

    fn try_from(entry: ShardEntry) -> Result<Self, String> {
        let ShardEntry { url, nsamples: samples, filesize: bytes, version, layout, select } = entry;
        let bad = |what: &str| Err(format!("the entry of the shard {}: {what}", shown(&url)));
        if url.is_empty() {
            return bad("the URL is empty");
        }
        if samples > MAX_SAMPLES {
            return bad("the number of samples is impossible");
        }
        // Each sample has at least one header. Only a compressed header takes less than 512 bytes.
        if is_plain(&url) && bytes.is_some_and(|bytes| samples > bytes / HEADER) {
            return bad("the shard has no room for that many samples");
        }
        let layout = match layout.map(ShardLayout::try_from).transpose() {
            Ok(layout) => layout,
            Err(what) => return bad(&format!("the layout has {what}")),
        };
        let selection = match select.map(|select| select.read(MAX_SAMPLES)).transpose() {
            Ok(selection) => selection,
            Err(what) => return bad(&format!("the selection has {what}")),
        };
        if selection.as_ref().is_some_and(|selection| selection.selected() != samples) {
            return bad("the selection has another number of samples");
        }
        if let Some(layout) = &layout {
            if layout.samples() != selection.as_ref().map_or(samples, Selection::stored) {
                return bad("the layout has another number of samples");
            }
            if layout.seekable() && bytes.is_none_or(|bytes| layout.end() > bytes) {
                return bad("the layout is longer than the shard");
            }
        }
        let (version, layout) = (version.map(Into::into), layout.map(Arc::new));
        let selection = selection.map(Arc::new);
        Ok(ShardIndex { url: url.into(), samples, bytes, version, layout, selection })
    }
}

/// Whether a shard is an uncompressed tar archive according to its name.
fn is_plain(url: &str) -> bool {
    ObjectUrl::parse(url).file_name().to_ascii_lowercase().ends_with(".tar")
}

impl Serialize for ShardIndex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ShardEntry::from(self.clone()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ShardIndex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ShardEntry::deserialize(deserializer)?.try_into().map_err(de::Error::custom)
    }
}
