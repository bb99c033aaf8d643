use super::*;
use crate::error::ErrorKind;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

fn failure(number: u64) -> Error {
    let kinds = [ErrorKind::Checksum, ErrorKind::Truncated { missing: number }, ErrorKind::ScatteredSample];
    let kind = kinds.into_iter().nth(number as usize % 3).unwrap();
    Error::from(kind).in_shard(format!("{number:06}.tar")).with_key(number.to_string())
}

/// The ledger of a stream with this number of skips.
fn ledger(dataset: usize, stream: usize, skips: u64) -> Ledger {
    let mut ledger = Ledger::default();
    for number in 0..skips {
        ledger.skip(dataset, stream, number / 3, &failure(number));
    }
    ledger
}

fn json(ledger: &Ledger) -> Json {
    serde_json::to_value(ledger).unwrap()
}

#[test]
fn a_skip_is_recorded_with_its_position_and_its_cause() {
    let error = Error::decode("jpg", std::io::Error::other("line\nlost at https://me:s3cret@h/a?s3cret"));
    let error =
        error.in_shard("https://me:s3cret@h/s.tar?s3cret").at_offset(512).in_member("a.jpg").with_key("a");
    let mut ledger = Ledger::default();
    ledger.skip(1, 3, 7, &error);
    let expected = json!({
        "dataset": 1, "epoch": 7, "stream": 3, "number": 0,
        "shard": "https://[redacted]@h/s.tar?[redacted]", "offset": 512, "member": "a.jpg", "key": "a",
        "kind": "decode", "message": "cannot decode the field \"jpg\": line lost at \
                                      https://[redacted]@h/a?[redacted]",
    });
    assert_eq!(json(&ledger), json!({"entries": [expected], "kinds": {"decode": 1}}));
    assert_eq!(
        ledger.to_string(),
        "1 skipped: 1 decode\n  dataset 1, epoch 7, stream 3: cannot decode the field \"jpg\": line lost at \
         https://[redacted]@h/a?[redacted] (shard https://[redacted]@h/s.tar?[redacted], byte 512, member \
         a.jpg, sample a)"
    );
    for text in [format!("{ledger:?}"), format!("{ledger:#}"), json(&ledger).to_string()] {
        assert!(!text.contains("s3cret"), "{text}");
    }
}

#[test]
fn the_first_skips_of_a_stream_are_kept_and_all_are_counted() {
    let ledger = ledger(0, 2, 40);
    assert_eq!(ledger.skipped(), 40);
    assert_eq!(
        ledger.by_kind().collect::<Vec<_>>(),
        [("checksum", 14), ("scattered_sample", 13), ("truncated", 13)]
    );
    let numbers: Vec<_> = ledger.entries().iter().map(|skip| skip.number).collect();
    assert_eq!(numbers, (0..MAX_ENTRIES as u64).collect::<Vec<_>>());
    assert_eq!(ledger.check_stream(0, 2, 40), Ok(()));
    assert!(ledger.check_stream(0, 2, 39).is_err(), "more skips than samples");
    assert!(ledger.check_stream(0, 1, 40).is_err(), "of another stream");
    assert!(ledger.check_stream(1, 2, 40).is_err(), "of another dataset");
    let text = ledger.to_string();
    assert_eq!(text.lines().count(), 1 + MAX_SHOWN + 1, "{text}");
    assert!(text.starts_with("40 skipped: 14 checksum, 13 scattered_sample, 13 truncated\n"), "{text}");
    assert!(text.ends_with("\n  and 32 more"), "{text}");
    let all = format!("{ledger:#}");
    assert_eq!(all.lines().count(), 1 + MAX_ENTRIES + 1, "{all}");
    assert!(all.ends_with("\n  and 24 more"), "{all}");
}

#[test]
fn an_empty_ledger_has_no_entries_and_an_empty_document() {
    let empty = Ledger::default();
    assert!(empty.is_empty() && empty.entries().is_empty());
    assert_eq!((empty.skipped(), empty.padded(), empty.repeated()), (0, 0, 0));
    assert_eq!(json(&empty), json!({}));
    assert_eq!(empty.to_string(), "nothing was skipped");
    assert_eq!(size_of::<Ledger>(), size_of::<usize>());
    let mut none = Ledger::default();
    none.pad(0);
    none.repeat(0);
    assert_eq!(none, empty);
    assert_eq!(empty.clone().merge(none), empty);
}

#[test]
fn padded_and_repeated_slots_are_counted_separately() {
    let mut ledger = ledger(0, 0, 1);
    ledger.pad(2);
    ledger.pad(3);
    ledger.repeat(4);
    assert_eq!((ledger.skipped(), ledger.padded(), ledger.repeated()), (1, 5, 4));
    assert!(ledger.to_string().starts_with("1 skipped: 1 checksum; 5 slots padded; 4 slots repeated\n"));
    let mut other = Ledger::default();
    other.pad(1);
    assert_eq!(other.to_string(), "nothing was skipped; 1 slot padded");
    assert_eq!(ledger.merge(other).padded(), 6);
}

#[test]
fn long_texts_are_cut_between_characters() {
    for (length, before) in [98, 99, 100, 101, 1000].into_iter().flat_map(|n| [(n, ""), (n, "x"), (n, "xx")])
    {
        let text = before.to_owned() + &"€".repeat(length);
        let cut = line(&text);
        assert!(cut.len() <= MAX_TEXT, "{length}: {}", cut.len());
        assert_eq!(cut == text, text.len() <= MAX_TEXT, "{length}");
        assert_eq!(line(&cut), cut);
    }
    let mut ledger = Ledger::default();
    ledger.skip(0, 0, 0, &Error::step("x".repeat(1 << 20)).with_key("k".repeat(1 << 20)));
    assert!(json(&ledger).to_string().len() < 1000);
    assert_eq!(serde_json::from_value::<Ledger>(json(&ledger)).unwrap(), ledger);
}

#[test]
fn a_clone_does_not_change_with_the_original() {
    let mut now = ledger(0, 0, 3);
    let then = now.clone();
    now.skip(0, 0, 9, &failure(3));
    now.pad(1);
    assert_eq!((then.skipped(), then.entries().len(), then.padded()), (3, 3, 0));
    assert_eq!(then, ledger(0, 0, 3));
}

#[test]
fn documents_that_contradict_themselves_are_refused() {
    let sound = json(&ledger(0, 0, 3));
    assert_eq!(serde_json::from_value::<Ledger>(sound.clone()).unwrap(), ledger(0, 0, 3));
    let many: serde_json::Map<_, _> = (0..=MAX_KINDS).map(|at| (at.to_string(), json!(1))).collect();
    let cases = [
        ("/kinds", json!({}), "counts"),
        ("/kinds", json!({"checksum": 3}), "counts"),
        ("/kinds/checksum", json!(0), "counts"),
        ("/kinds/other", json!(0), "counts"),
        ("/kinds", json!(many), "too many"),
        ("/kinds/checksum", json!(-1), "invalid value"),
        ("/entries/0/kind", json!("truncated"), "counts"),
        ("/entries/1/epoch", json!(1), "out of order"),
        ("/entries/0/number", json!(9), "out of order"),
        ("/entries/0/message", json!("x".repeat(MAX_TEXT + 1)), "too long"),
        ("/entries/0/shard", json!("two\nlines"), "too long"),
        ("/entries/0/other", json!(1), "unknown field"),
        ("/other", json!(1), "unknown field"),
    ];
    for (path, value, expected) in cases {
        let mut document = sound.clone();
        let (parent, key) = path.rsplit_once('/').unwrap();
        document.pointer_mut(parent).unwrap()[key] = value;
        let error = serde_json::from_value::<Ledger>(document).unwrap_err().to_string();
        assert!(error.contains(expected), "{path}: {error}");
    }
}

proptest! {
    /// The ledgers of all streams add up to the same ledger, in any order and for any number of ranks.
    #[test]
    fn ledgers_add_up_in_any_order(
        streams in prop::collection::vec((0u64..30, 0usize..3), 0..8),
        order in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let ledgers: Vec<Ledger> = streams.iter().enumerate()
            .map(|(stream, (skips, dataset))| ledger(*dataset, stream, *skips))
            .collect();
        let whole: Ledger = ledgers.iter().cloned().sum();
        let mut turned = ledgers.clone();
        if !turned.is_empty() {
            turned.rotate_left(order.index(ledgers.len()));
            turned.reverse();
        }
        let (left, right) = turned.split_at(cut.index(turned.len() + 1));
        let sum = |part: &[Ledger]| part.iter().cloned().sum::<Ledger>();
        prop_assert_eq!(sum(left).merge(sum(right)), whole.clone());
        prop_assert_eq!(sum(right).merge(sum(left)), whole.clone());
        prop_assert_eq!(whole.skipped(), streams.iter().map(|(skips, _)| skips).sum::<u64>());
        prop_assert!(whole.entries().is_sorted_by(|a, b| a.sort_key() < b.sort_key()));
        prop_assert_eq!(serde_json::from_value::<Ledger>(json(&whole)).unwrap(), whole);
    }
}
