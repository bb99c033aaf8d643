//! Single samples by number, by position and by key, and key indexes.

use super::*;
use crate::join::keyed::alike;
use crate::support::archive;
use proptest::prelude::*;
use shardstream::index::{KeyIndex, KeyIndexBuilder};
use shardstream::{Dataset, Error, Position, Topology};

/// A source and a list of shards whose samples have these keys. The bodies of samples have up to a few
/// kilobytes.
fn shelf(shards: &[Vec<String>]) -> (Arc<CountingSource>, ShardList) {
    let noted = Arc::new(CountingSource::default());
    let urls = ShardList::from_urls((0..shards.len()).map(|shard| format!("noted://d/{shard:02}.tar")));
    for (url, keys) in urls.iter().zip(shards) {
        let sample = |key: &String| {
            let size = key.bytes().fold(7, |sum, byte| (sum * 31 + usize::from(byte)) % 5000);
            Sample::new(key.as_str()).with("bin", vec![7; size]).with("txt", format!("of {key}"))
        };
        noted.put(url.expose_secret(), archive(&keys.iter().map(sample).collect::<Vec<_>>()));
    }
    (noted, urls)
}

fn numbered(sizes: &[usize]) -> Vec<Vec<String>> {
    let keys = |(shard, size): (usize, &usize)| (0..*size).map(|n| format!("{shard}/{n:03}")).collect();
    sizes.iter().enumerate().map(keys).collect()
}

fn keys_of(store: &Store, shards: &ShardList) -> KeyIndex {
    let mut keys = KeyIndexBuilder::default();
    for (shard, of_shard) in Index::builder().store(store.clone()).build_with_keys(shards).unwrap() {
        keys.add(shard, of_shard).unwrap();
    }
    keys.build()
}

fn dataset(store: &Store, shards: &ShardList, index: Option<Index>) -> Dataset {
    let builder = Dataset::builder(shards.clone()).store(store.clone()).topology(Topology::single());
    match index {
        Some(index) => builder.index(index).build().unwrap(),
        None => builder.build().unwrap(),
    }
}

fn index_of(store: &Store, shards: &ShardList) -> Index {
    Index::builder().store(store.clone()).checksums(true).build(shards).unwrap()
}

fn shown(sample: &Sample) -> (String, Position, Vec<Vec<u8>>) {
    let fields = sample.fields().map(|(_, value)| value.as_bytes().unwrap().to_vec()).collect();
    (sample.key().to_owned(), sample.position(), fields)
}

/// The bytes of a saved key index.
fn document(keys: &KeyIndex) -> Vec<u8> {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().join("k.shkeys");
    keys.save(&Store::default(), place.to_str().unwrap()).unwrap();
    std::fs::read(place).unwrap()
}

fn error<T: std::fmt::Debug>(found: Result<T>) -> (&'static str, String) {
    let error: Error = found.unwrap_err();
    (error.kind().name(), error.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_lookup_returns_the_sample_that_reading_in_order_returns(
        sizes in prop::collection::vec(0usize..9, 1..5),
        (indexed, selected) in any::<(bool, bool)>(),
        wanted in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        // At least one sample has an odd number, so that the selection is not empty.
        prop_assume!(sizes.iter().any(|size| *size > 1));
        let (noted, shards) = shelf(&numbered(&sizes));
        let store = noted.store();
        let odd = |sample: &Sample| sample.key().as_bytes().last().is_some_and(|last| last % 2 == 1);
        let index = match selected {
            true => Index::builder().store(store.clone()).select("odd", odd).build(&shards).unwrap(),
            false => index_of(&store, &shards),
        };
        let dataset = dataset(&store, &shards, indexed.then_some(index));
        let whole: Vec<Sample> = dataset.samples(0).collect::<Result<_>>().unwrap();
        let keys = keys_of(&store, &shards);
        let keys = [KeyIndex::from_bytes(document(&keys), "").unwrap(), keys];
        for sample in &whole {
            prop_assert_eq!(shown(&dataset.sample(sample.position()).unwrap()), shown(sample));
            for keys in &keys {
                prop_assert_eq!(shown(&dataset.by_key(keys, sample.key()).unwrap()), shown(sample));
            }
        }
        if indexed && !whole.is_empty() {
            let view = dataset.indexed_view().unwrap();
            prop_assert_eq!((view.len(), view.is_empty()), (whole.len() as u64, false));
            for (number, sample) in (0..).zip(&whole) {
                prop_assert_eq!(shown(&view.get(number).unwrap()), shown(sample));
                prop_assert_eq!(view.position(number), Some(sample.position()));
            }
            let wanted: Vec<usize> = wanted.iter().map(|wanted| wanted.index(whole.len())).collect();
            let numbers: Vec<u64> = wanted.iter().map(|wanted| *wanted as u64).collect();
            let found = view.get_many(&numbers).unwrap();
            let expected: Vec<_> = wanted.iter().map(|wanted| shown(&whole[*wanted])).collect();
            prop_assert_eq!(found.iter().map(shown).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn a_damaged_key_index_is_an_error(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<Option<u8>>()), 1..4),
    ) {
        let (noted, shards) = shelf(&numbered(&[300, 400, 7]));
        let sound = document(&keys_of(&noted.store(), &shards));
        let mut bytes = sound.clone();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            match byte {
                Some(byte) => bytes[at] = byte,
                None => bytes.truncate(at.max(1)),
            }
        }
        match KeyIndex::from_bytes(bytes.clone(), "") {
            Ok(_) => prop_assert_eq!(bytes, sound),
            Err(error) => prop_assert!(matches!(error.kind(), ErrorKind::Index(_)), "{}", error),
        }
    }
}

#[test]
fn one_sample_takes_one_request_for_its_bytes() {
    let (noted, shards) = shelf(&numbered(&[50, 50, 50]));
    let (store, urls) = (noted.store(), ShardList::clone(&shards));
    let index = index_of(&store, &shards);
    let saved = document(&keys_of(&store, &shards));
    noted.put("noted://d/k.shkeys", saved.clone());
    noted.take_counts();
    let keys = KeyIndex::open(&store, "noted://d/k.shkeys").unwrap();
    assert_eq!(noted.take_counts(), (1, saved.len()), "a small key index is read at once");
    let dataset = dataset(&store, &urls, Some(index.clone()));
    let range = index.at(1).range(30..31).unwrap();
    assert_eq!(dataset.by_key(&keys, "1/030").unwrap().key(), "1/030");
    assert_eq!(noted.take_counts(), (1, (range.end - range.start) as usize));
    // Three neighbouring samples, and one in another shard.
    let view = dataset.indexed_view().unwrap();
    assert_eq!(view.get_many(&[81, 3, 80, 82]).unwrap().len(), 4);
    let bytes =
        |shard: usize, samples| index.at(shard).range(samples).map_or(0, |r| (r.end - r.start) as usize);
    assert_eq!(noted.take_counts(), (2, bytes(0, 3..4) + bytes(1, 30..33)));
    assert!(dataset.by_key(&keys, "1/03").is_err());
    assert_eq!(noted.take_counts(), (0, 0), "a key that is not there costs no request");
}

/// Finds the entry of a shard by the shard's number.
trait At {
    fn at(&self, shard: usize) -> &ShardIndex;
}

impl At for Index {
    fn at(&self, shard: usize) -> &ShardIndex {
        self.iter().nth(shard).unwrap()
    }
}

#[test]
fn keys_that_are_missing_or_not_unique_are_named_with_what_was_searched() {
    let shards = [vec!["a".to_owned(), "b".into()], vec!["c".into(), "a".into()]];
    let (noted, shards) = shelf(&shards);
    let (store, keys) = (noted.store(), keys_of(&noted.store(), &shards));
    for index in [None, Some(index_of(&store, &shards))] {
        let dataset = dataset(&store, &shards, index);
        let (kind, text) = error(dataset.by_key(&keys, "x"));
        assert!(kind == "no_such_key" && text.contains("the 4 keys of 2 shards"), "{kind}: {text}");
        let (kind, text) = error(dataset.by_key(&keys, "a"));
        assert_eq!(kind, "repeated_key");
        assert!(text.contains("sample 0 of noted://d/00.tar"), "{text}");
        assert!(text.contains("sample 1 of noted://d/01.tar"), "{text}");
        assert_eq!(dataset.by_key(&keys, "c").unwrap().position().shard, 1);
    }
    let part = Dataset::builder(shards.clone()).store(store.clone()).topology(Topology::single()).only([1]);
    let part = part.build().unwrap();
    let (kind, text) = error(part.by_key(&keys, "b"));
    assert!(
        kind == "no_such_key" && text.contains("a sample of noted://d/00.tar has a key"),
        "{kind}: {text}"
    );
    assert_eq!(part.by_key(&keys, "a").unwrap().position().shard, 1, "the other one is not in the dataset");
    let mut position = Position::default();
    position.shard = 9;
    let (kind, text) = error(part.sample(position));
    assert!(kind == "config" && text.contains("reads no shard 9"), "{text}");
    assert!(error(part.indexed_view()).1.contains("auto_index"));
    let view = dataset(&store, &shards, Some(index_of(&store, &shards))).indexed_view().unwrap();
    for found in [view.get(4).map(|_| ()), view.get_many(&[0, 4]).map(|_| ())] {
        assert!(error(found).1.contains("no sample 4: the dataset has 4"));
    }
}

#[test]
fn a_sample_of_a_shard_that_is_listed_twice_is_one_sample() {
    let (noted, shards) = shelf(&numbered(&[2, 3]));
    let store = noted.store();
    let urls = ["noted://d/00.tar", "noted://d/01.tar", "noted://d/00.tar"];
    let twice = ShardList::from_urls(urls);
    let keys = keys_of(&store, &twice);
    for shards in [&twice, &shards] {
        for index in [None, Some(index_of(&store, shards))] {
            let dataset = dataset(&store, shards, index);
            for key in ["0/001", "1/002"] {
                assert_eq!(dataset.by_key(&keys, key).unwrap().key(), key);
            }
        }
    }
    let part = shardstream::index::DatasetPart::by_key(keys, 0.0..1.0);
    let whole = Dataset::builder(twice.clone()).store(store.clone()).topology(Topology::single());
    assert_eq!(whole.index(index_of(&store, &twice)).part(part).build().unwrap().len(), Some(2 + 3 + 2));
}

#[test]
fn two_keys_of_one_hash_are_told_apart() {
    let [one, other] = alike();
    let (noted, shards) = shelf(&[vec![one.clone()], vec!["between".into(), other.clone()]]);
    let (store, keys) = (noted.store(), keys_of(&noted.store(), &shards));
    let dataset = dataset(&store, &shards, Some(index_of(&store, &shards)));
    for key in [&one, &other] {
        assert_eq!(dataset.by_key(&keys, key).unwrap().key(), key);
    }
    // If the shards have only one of the two keys, the other key is not found.
    let (noted, shards) = shelf(&[vec![one], vec!["between".into()]]);
    let (store, keys) = (noted.store(), keys_of(&noted.store(), &shards));
    for index in [None, Some(index_of(&store, &shards))] {
        assert_eq!(error(self::dataset(&store, &shards, index).by_key(&keys, &other)).0, "no_such_key");
    }
}

#[test]
fn a_key_index_that_is_older_than_a_shard_says_what_to_run() {
    let before = numbered(&[3, 3]);
    let (noted, shards) = shelf(&before);
    let (store, keys) = (noted.store(), keys_of(&noted.store(), &shards));
    let old = index_of(&store, &shards);
    // The second shard is replaced by a shard with the same keys in another order.
    let turned: Vec<String> = before[1].iter().rev().cloned().collect();
    let (other, _) = shelf(&[before[0].clone(), turned]);
    let bytes = other.objects.lock().unwrap().get("noted://d/01.tar").cloned().unwrap().0;
    noted.put("noted://d/01.tar", bytes);
    let advice = "`shardstream index build --keys`";
    for index in [None, Some(index_of(&store, &shards))] {
        let dataset = dataset(&store, &shards, index);
        for key in ["1/000", "new"] {
            let (kind, text) = error(dataset.by_key(&keys, key));
            // Without an index, a key that is missing from the key index is reported as not found, without
            // any request.
            let is_known = key != "new" || dataset.len().is_some();
            assert_eq!(kind, if is_known { "index" } else { "no_such_key" }, "{text}");
            assert!(!is_known || text.contains(advice) && text.contains("noted://d/01.tar"), "{text}");
        }
        assert_eq!(dataset.by_key(&keys, "0/002").unwrap().key(), "0/002");
        assert_eq!(dataset.by_key(&keys_of(&store, &shards), "1/000").unwrap().position().sample, 2);
    }
    // The shard has fewer samples than the key index says, so the sample's number does not exist.
    let (fewer, _) = shelf(&[before[0].clone(), before[1][..1].to_vec()]);
    let bytes = fewer.objects.lock().unwrap().get("noted://d/01.tar").cloned().unwrap().0;
    noted.put("noted://d/01.tar", bytes);
    let (kind, text) = error(dataset(&store, &shards, None).by_key(&keys, "1/002"));
    assert!(kind == "index" && text.contains(advice), "{kind}: {text}");
    // The index is as old as the key index, so it does not match the new shard.
    assert_eq!(error(dataset(&store, &shards, Some(old)).by_key(&keys, "1/000")).0, "stale");
    let less = keys_of(&store, &ShardList::from_urls(["noted://d/00.tar"]));
    let (kind, text) =
        error(dataset(&store, &shards, Some(index_of(&store, &shards))).by_key(&less, "1/000"));
    assert!(kind == "index" && text.contains("does not know this shard") && text.contains(advice), "{text}");
}

/// Reads two samples in one range, with a damaged sample between them. Both undamaged samples are returned.
#[test]
fn damage_between_two_samples_loses_neither() {
    let (noted, shards) = shelf(&numbered(&[9]));
    let store = noted.store();
    let index = index_of(&store, &shards);
    let (bytes, _) = noted.objects.lock().unwrap().get("noted://d/00.tar").cloned().unwrap();
    let mut bytes = bytes.to_vec();
    bytes[index.at(0).range(4..5).unwrap().start as usize + 3] ^= 1;
    noted.put("noted://d/00.tar", bytes);
    let view = dataset(&store, &shards, Some(index)).indexed_view().unwrap();
    let found = view.get_many(&[5, 3]).unwrap();
    assert!(found.iter().map(Sample::key).eq(["0/005", "0/003"]));
    assert_eq!(error(view.get_many(&[3, 4, 5])).0, "checksum");
}

#[test]
fn the_number_of_keys_must_equal_the_number_of_samples() {
    let (noted, shards) = shelf(&numbered(&[2]));
    let shard = index_of(&noted.store(), &shards).at(0).clone();
    let (kind, text) = error(KeyIndex::builder().add(shard.clone(), ["only one"]));
    assert!(kind == "index" && text.contains("there are 1 keys for its 2 samples"), "{text}");
    // Shards whose keys were refused leave nothing in the key index.
    let mut keys = KeyIndex::builder();
    keys.add(shard.clone(), ["only one"]).unwrap_err();
    keys.add(shard, ["a", "b"]).unwrap();
    let keys = keys.build();
    assert_eq!((keys.len(), keys.index().len(), keys.find("only one").unwrap()), (2, 1, vec![]));
    assert_eq!(keys.find("b").unwrap(), [(0, 1)]);
    for not_one in [&b""[..], b"PK\x03\x04", &[b'x'; 4000]] {
        assert_eq!(error(KeyIndex::from_bytes(not_one.to_vec(), "")).0, "index");
    }
}
