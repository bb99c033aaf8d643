//! [`ShardCutter`], which decides where one shard ends and the next begins.

use crate::write_options::ShardLimits;
use shardstream::write::ArchiveSize;
use std::ops::Range;

/// Divides samples into shards, exactly as `ShardWriter` does.
#[derive(Debug)]
pub(crate) struct ShardCutter {
    limits: ShardLimits,
    /// For each full shard, the number of its last sample plus one.
    ends: Vec<usize>,
    /// Number of samples in the current shard.
    count: u64,
    /// Size of the current shard.
    size: ArchiveSize,
    /// Number of the next sample.
    next: usize,
}

impl ShardCutter {
    pub(crate) fn new(limits: ShardLimits) -> Self {
        ShardCutter { limits, ends: Vec::new(), count: 0, size: ArchiveSize::new(), next: 0 }
    }

    /// Adds the next sample. `fields` are the names and sizes of its fields.
    pub(crate) fn push<'a>(&mut self, key: &str, fields: impl Iterator<Item = (&'a str, u64)> + Clone) {
        self.push_members(|size| fields.clone().for_each(|(field, bytes)| size.add(key, field, bytes)));
    }

    /// Adds the next sample. `members` adds the sample's members to the size of an archive.
    pub(crate) fn push_members(&mut self, members: impl Fn(&mut ArchiveSize)) {
        let add = |mut size: ArchiveSize| {
            members(&mut size);
            size
        };
        let more = add(self.size);
        if self.count > 0 && (self.count >= self.limits.max_count || more.bytes() > self.limits.max_size) {
            self.ends.push(self.next);
            (self.count, self.size) = (0, add(ArchiveSize::new()));
        } else {
            self.size = more;
        }
        self.count += 1;
        self.next += 1;
    }

    /// The range of samples of each shard.
    pub(crate) fn finish(mut self) -> Vec<Range<usize>> {
        if self.count > 0 {
            self.ends.push(self.next);
        }
        let starts = std::iter::once(0).chain(self.ends.clone());
        starts.zip(&self.ends).map(|(start, end)| start..*end).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardstream::Sample;
    use shardstream::write::ShardWriter;

    #[test]
    fn the_cutter_cuts_as_the_shard_writer_does() {
        let dir = tempfile::tempdir().unwrap();
        let limits = ShardLimits { max_count: 7, max_size: 40_960 };
        let pattern = format!("{}/%d.tar", dir.path().display());
        let mut writer = ShardWriter::builder(pattern).max_count(7).max_bytes(40_960).build().unwrap();
        let mut cutter = ShardCutter::new(limits);
        for number in 0..100_usize {
            let (key, size) =
                (format!("{number:04}"), if number == 50 { 60_000 } else { number * 97 % 9_000 });
            cutter.push(&key, [("bin", size as u64)].into_iter());
            writer.write(&Sample::new(&key).with("bin", vec![1; size])).unwrap();
        }
        let written: Vec<u64> = writer.finish().unwrap().iter().map(|shard| shard.samples).collect();
        let planned: Vec<u64> = cutter.finish().iter().map(|samples| samples.len() as u64).collect();
        assert_eq!(planned, written);
        assert!(
            planned.len() > 10 && planned.contains(&7) && planned.iter().any(|count| *count < 7),
            "{planned:?}"
        );
        assert!(ShardCutter::new(limits).finish().is_empty());
    }
}
