//! Loading any bytes as a JSON index returns an error or a consistent index.

use shardstream::{ErrorKind, Index};

pub fn run(text: &[u8]) {
    let index = match Index::from_json(text, "gs://bucket/dir") {
        Ok(index) => index,
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Index(_)), "{error}");
            return;
        }
    };
    for shard in &index {
        assert!(index.get(shard.url()).is_some());
        let samples = shard.samples().min(1000);
        assert_eq!(shard.checksum_of(shard.samples()), None);
        for sample in 0..=samples {
            let stored = shard.position_of(sample);
            assert_eq!(stored.is_some(), sample < shard.samples());
            assert!(stored.is_none_or(|stored| (sample..shard.stored_samples()).contains(&stored)));
            if let Some(members) = shard.members(sample) {
                let mut at = shard.range(sample..sample).expect("a sample has a place").start;
                let mut size = 0;
                for (_, content) in members {
                    assert!(at <= content.start);
                    at = content.end;
                    size += content.end - content.start;
                }
                assert_eq!(shard.size_of(sample), Some(size));
            }
            if let Some(range) = shard.range(sample..samples) {
                assert!(range.start <= range.end && range.end <= shard.bytes().expect("places have a size"));
            }
        }
    }
}
