use super::*;
use crate::Rng;
use crate::error::{SizeLimit, one_of_each};

fn counts(in_a_row: u64, total: u64, samples: u64) -> Counts {
    Counts { in_a_row, total, samples }
}

fn damage() -> Error {
    Error::from(ErrorKind::Checksum).in_shard("s.tar").at_offset(512)
}

/// The error that the policy returns for damage, or `None` if it skips the damage.
fn stops(policy: &OnError, before: Counts) -> Option<Error> {
    match policy.judge(damage(), before) {
        Verdict::Skip(error) => {
            assert!(matches!(error.kind(), ErrorKind::Checksum), "{error:?}");
            None
        }
        Verdict::Stop(error) => Some(error),
    }
}

#[test]
fn every_error_kind_is_in_its_documented_class() {
    let named = |failures: Failures| -> Vec<&str> {
        one_of_each().iter().filter(|kind| failures.contains(kind)).map(ErrorKind::name).collect()
    };
    assert_eq!(
        named(Failures::damage()),
        [
            "decompress",
            "damaged",
            "sample_checksum",
            "truncated",
            "archive_end",
            "checksum",
            "header",
            "too_large",
            "too_many_members",
            "duplicate_member",
            "format",
            "scattered_sample"
        ]
    );
    assert_eq!(
        named(Failures::decode()),
        [
            "missing_sample",
            "field_conflict",
            "missing_field",
            "missing_tensor",
            "wrong_type",
            "decode",
            "pickle",
            "array"
        ]
    );
    let in_damaged_shard = ErrorKind::MissingSample { damaged: true };
    assert!(Failures::damage().contains(&in_damaged_shard));
    assert!(!Failures::decode().contains(&in_damaged_shard));
    assert_eq!(named(Failures::step()), ["encode", "unwritable", "step"]);
    assert_eq!(named(Failures::panics()), ["panicked"]);
    assert_eq!(named(Failures::missing_shards()), ["not_found"]);
    assert_eq!(named(Failures::all()).len(), 12 + 8 + 3 + 1 + 1);
    let of_no_shard = [
        SizeLimit::Index,
        SizeLimit::ParsedIndex,
        SizeLimit::CompactShard,
        SizeLimit::State,
        SizeLimit::Listing,
        SizeLimit::Document,
        SizeLimit::ResponseHead,
        SizeLimit::Response,
    ];
    for what in of_no_shard {
        assert!(!Failures::all().contains(&ErrorKind::TooLarge { what, size: 2, limit: 1 }), "{what}");
    }
}

#[test]
fn failures_are_combined_to_sets() {
    let set = Failures::damage() | Failures::step();
    assert_eq!(set, Failures::step().and(Failures::damage()).and(Failures::damage()));
    assert!(set.contains(&ErrorKind::Checksum) && set.contains(&ErrorKind::Step("".into())));
    assert!(!set.contains(&ErrorKind::Pickle { field: String::new() }));
    assert_eq!(format!("{set:?}"), "{Damage, Step}");
    assert_eq!(format!("{:?}", Failures::all()), "{Damage, Decode, Step, Panic, MissingShard}");
}

#[test]
fn a_failure_that_is_not_skipped_is_returned_unchanged() {
    for policy in [OnError::stop(), OnError::default(), OnError::skip(Failures::decode()).in_a_row(5)] {
        let error = stops(&policy, Counts::default()).unwrap();
        assert!(matches!(error.kind(), ErrorKind::Checksum), "{error:?}");
    }
    // An outage is never skipped, and never reported as `TooManySkipped`.
    let outage = || Error::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
    let policy = OnError::skip(Failures::all()).in_a_row(1);
    for before in [Counts::default(), counts(1, 1, 1)] {
        let Verdict::Stop(error) = policy.judge(outage(), before) else { panic!("an outage was skipped") };
        assert!(matches!(error.kind(), ErrorKind::Io(_)), "{error:?}");
    }
}

#[test]
fn failures_are_skipped_up_to_each_limit() {
    let policy = OnError::skip(Failures::damage());
    assert!(stops(&policy, counts(99, 1 << 40, 0)).is_none(), "the total has no limit by default");
    assert!(stops(&policy, counts(100, 100, 1 << 40)).is_some());
    let policy = policy.in_a_row(3).total(10);
    assert!(stops(&policy, counts(2, 9, 0)).is_none());
    assert!(stops(&policy, counts(3, 3, 1000)).is_some());
    assert!(stops(&policy, counts(0, 10, 1000)).is_some());
    for huge in [counts(u64::MAX, 0, 0), counts(0, u64::MAX, 0), counts(u64::MAX, u64::MAX, u64::MAX)] {
        assert!(stops(&policy.clone().share(0.5, 1), huge).is_some());
    }
}

#[test]
fn the_share_is_computed_of_at_least_the_minimum() {
    let policy = OnError::skip(Failures::damage()).share(0.25, 8);
    assert!(stops(&policy, counts(0, 1, 0)).is_none(), "2 of 2 count as 2 of 8");
    assert!(stops(&policy, counts(0, 2, 1)).is_some(), "3 of 4 count as 3 of 8, more than a quarter");
    assert!(stops(&policy, counts(0, 1, 6)).is_none(), "2 of 8 is not more than a quarter");
    assert!(stops(&policy, counts(0, 2, 6)).is_some(), "3 of 9");
    assert!(stops(&policy, counts(0, 2, 9)).is_none(), "3 of 12");
}

/// If half of the samples are damaged, a run ends after a few samples. If the share of damaged samples is
/// half of the allowed share, hardly any run of 10,000 samples ends by chance.
#[test]
fn a_share_ends_a_run_over_heavily_damaged_data_early_and_no_other_run() {
    let policy = OnError::skip(Failures::damage()).share(0.001, 10_000);
    // Each sample is damaged with a probability of 1 in `samples_per_failure`.
    let read_until_stopped = |samples_per_failure: u64, rng: &mut Rng| {
        let mut before = Counts::default();
        (0..10_000).find(|_| {
            if rng.below(samples_per_failure) > 0 {
                (before.samples, before.in_a_row) = (before.samples + 1, 0);
                return false;
            }
            let stopped = stops(&policy, before).is_some();
            (before.total, before.in_a_row) = (before.total + 1, before.in_a_row + 1);
            stopped
        })
    };
    let runs = |samples_per_failure| {
        (0..200).map(move |run| read_until_stopped(samples_per_failure, &mut Rng::new(3, run, 0)))
    };
    assert!(runs(2).all(|read| read.is_some_and(|read| read < 60)));
    assert!(runs(50).all(|read| read.is_some_and(|read| read < 1500)));
    // A run of 10,000 samples has 5 failures on average. It has more than 10 with a probability of 1.4 %.
    assert!(runs(2000).flatten().count() < 10);
}

#[test]
fn an_exceeded_limit_is_named_with_the_last_failure() {
    let error = stops(&OnError::skip(Failures::damage()).total(10), counts(0, 10, 1000)).unwrap();
    match error.kind() {
        ErrorKind::TooManySkipped { limit, skipped: 10, last } => {
            assert_eq!(limit, "10 in total");
            assert!(matches!(last.kind(), ErrorKind::Checksum), "{last:?}");
        }
        kind => panic!("{kind:?}"),
    }
    assert_eq!((error.location().shard(), error.location().offset()), (Some("s.tar"), Some(512)));
    let text = format!("{error:#}");
    assert!(text.contains("10 in total, and 10 were skipped before this one; find the cause"), "{text}");
    assert!(text.contains("bad tar header checksum"), "{text}");
    let limit = |policy: OnError, before| match stops(&policy, before).unwrap().kind() {
        ErrorKind::TooManySkipped { limit, skipped, .. } => format!("{limit}: {skipped}"),
        kind => panic!("{kind:?}"),
    };
    let skip = || OnError::skip(Failures::damage());
    assert_eq!(limit(skip().in_a_row(3), counts(3, 7, 9)), "3 in a row: 3");
    assert_eq!(limit(skip().share(0.5, 1), counts(3, 7, 2)), "a share of 0.5 of 10 items and failures: 7");
}

#[test]
fn only_damage_skips_the_rest_of_a_shard() {
    let policy = OnError::skip(Failures::all()).rest_of_shard(true);
    assert!(policy.ends_shard(&damage()));
    assert!(!policy.ends_shard(&ErrorKind::Pickle { field: "p".into() }.into()));
    assert!(!policy.ends_shard(&ErrorKind::Stopped.into()));
    assert!(!policy.rest_of_shard(false).ends_shard(&damage()));
    assert!(!OnError::skip(Failures::decode()).rest_of_shard(true).ends_shard(&damage()));
}

#[test]
fn contradictory_options_are_errors() {
    let skip = || OnError::skip(Failures::damage());
    let valid = [
        OnError::stop(),
        skip(),
        skip().in_a_row(1).total(1).share(0.5, 1).rest_of_shard(true),
        OnError::skip(Failures::step()).in_a_row(u64::MAX),
    ];
    for policy in valid {
        assert!(policy.check().is_ok(), "{policy:?}");
    }
    let cases = [
        (OnError::stop().in_a_row(3), "skips nothing: use `OnError::skip`"),
        (OnError::stop().total(3), "skips nothing: use `OnError::skip`"),
        (OnError::stop().share(0.1, 3), "skips nothing: use `OnError::skip`"),
        (OnError::stop().rest_of_shard(true), "skips nothing: use `OnError::skip`"),
        (skip().in_a_row(0), "limit of 0"),
        (skip().total(0), "limit of 0"),
        (skip().share(0.0, 9), "a share of 0 failures"),
        (skip().share(1.0, 9), "a share of 1 failures"),
        (skip().share(-0.5, 9), "a share of -0.5"),
        (skip().share(f64::NAN, 9), "a share of NaN"),
        (skip().share(f64::INFINITY, 9), "a share of inf"),
        (skip().share(0.5, 0), "at least 1"),
        (OnError::skip(Failures::step()).rest_of_shard(true), "add `Failures::damage()`"),
    ];
    for (policy, expected) in cases {
        let error = policy.check().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error:?}");
        assert!(error.to_string().contains(expected), "{policy:?}: {error}");
    }
}
