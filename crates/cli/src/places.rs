//! [`Places`], which finds a shard by any spelling of its URL.

use shardstream::store::ObjectUrl;
use std::collections::HashMap;

/// Numbered shards, which are found by any spelling of their URL: `s3a://b/a.tar` is the same as
/// `s3://b/a.tar`.
#[derive(Debug, Default)]
pub(crate) struct Places<'a> {
    urls: Vec<&'a str>,
    /// Numbers of the shards by file name, which is the same in all spellings of a URL.
    by_name: HashMap<String, Vec<usize>>,
}

impl<'a> Places<'a> {
    /// Adds a shard with the next number.
    pub(crate) fn push(&mut self, url: &'a str) {
        let name = ObjectUrl::parse(url).file_name().into_owned();
        self.by_name.entry(name).or_default().push(self.urls.len());
        self.urls.push(url);
    }

    /// The numbers of the shards with this URL, in any spelling.
    pub(crate) fn same<'b>(&'b self, url: &'b str) -> impl Iterator<Item = usize> + 'b {
        let wanted = ObjectUrl::parse(url);
        let is_same = move |number: &usize| wanted.is_same_place(&ObjectUrl::parse(self.urls[*number]));
        self.named(url).iter().copied().filter(is_same)
    }

    /// The numbers of the shards with the file name of this URL.
    pub(crate) fn named(&self, url: &str) -> &[usize] {
        self.by_name.get(&*ObjectUrl::parse(url).file_name()).map_or(&[], Vec::as_slice)
    }
}
