use super::*;
use serde_json::{Value as Json, json};

/// The state of rank `rank` of two ranks. The job has two datasets and four streams.
fn document(rank: usize) -> Json {
    let dataset = json!({
        "seed": 42, "shards": 9, "names": "00000000000000ff", "order": "shuffled", "shuffle": 5,
        "weight": 1, "repeats": 2
    });
    let at = |dataset: usize, stream: usize, taken: u64| {
        let open =
            json!([{"slice": 0, "start": 0, "size": 10240, "version": "v1"}, {"slice": 2, "start": 3}]);
        let digest =
            json!({"samples": taken, "order": format!("{stream:016x}"), "content": "00000000000000aa"});
        let cursor = json!({"taken": taken, "open": open});
        json!({"dataset": dataset, "stream": stream, "cursor": cursor, "digest": digest})
    };
    json!({
        "shardstream_state": 1,
        "of": {"streams": 4, "read": {"epoch": 3}, "datasets": [dataset, dataset]},
        "next_number": 24,
        "batches": 3,
        "at": [at(0, rank, 4), at(0, rank + 2, 4), at(1, rank, 2), at(1, rank + 2, 2)],
    })
}

fn parse(document: &Json) -> Result<State> {
    document.to_string().parse()
}

pub(super) fn state(rank: usize) -> State {
    parse(&document(rank)).unwrap()
}

/// The document of a rank, with the value at `path` replaced by `value`.
fn with(rank: usize, path: &str, value: Json) -> Json {
    let mut document = document(rank);
    let (parent, key) = path.rsplit_once('/').unwrap();
    match document.pointer_mut(parent).unwrap() {
        Json::Object(object) => drop(object.insert(key.into(), value)),
        Json::Array(array) => array[key.parse::<usize>().unwrap()] = value,
        _ => panic!("{path}"),
    }
    document
}

fn error<T: fmt::Debug>(found: Result<T>) -> String {
    let error = found.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::State(_)), "{error:?}");
    error.to_string()
}

#[test]
fn states_of_all_ranks_merge_in_any_order() {
    let whole = State::merge([state(0), state(1)]).unwrap();
    assert_eq!(State::merge([state(1), state(0)]).unwrap(), whole);
    assert!(whole.is_whole() && !state(0).is_whole());
    assert_eq!((whole.samples(), whole.epoch()), (24, 3));
    assert_eq!(whole.digest(), state(0).digest().merge(state(1).digest()));
    assert_eq!(State::merge([whole.clone()]).unwrap(), whole);
    let text = whole.to_string();
    assert_eq!(text.parse::<State>().unwrap(), whole);
    assert_eq!(serde_json::from_value::<State>(serde_json::to_value(&whole).unwrap()).unwrap(), whole);
    assert!(!text.contains('\n') && format!("{whole:#}").contains('\n'));
    assert_eq!(format!("{whole:#}").parse::<State>().unwrap(), whole);
}

#[test]
fn states_of_missing_ranks_or_different_steps_do_not_merge() {
    let merge = |ranks: &[Json]| error(State::merge(ranks.iter().map(|rank| parse(rank).unwrap())));
    assert!(merge(&[]).contains("no state to merge"));
    assert!(merge(&[document(0)]).contains("stream 1: a rank is missing"));
    assert!(merge(&[document(1)]).contains("stream 0: a rank is missing"));
    let later = merge(&[document(0), with(1, "/batches", json!(4))]);
    assert!(
        later.contains("after 3 batches") && later.contains("after 4: take them at the same step"),
        "{later}"
    );
}

#[test]
fn states_of_ranks_that_read_the_same_count_once() {
    let whole = State::merge([state(0), state(1)]).unwrap();
    let groups = [[0, 1, 0, 1], [0, 0, 1, 1], [1, 1, 0, 0]];
    for ranks in groups {
        assert_eq!(State::merge(ranks.map(state)).unwrap(), whole, "{ranks:?}");
    }
    assert_eq!(State::merge([whole.clone(), whole.clone(), state(1)]).unwrap(), whole);
    // Two states of one rank do not replace the state of a missing rank.
    assert!(error(State::merge([state(0), state(0)])).contains("stream 1: a rank is missing"));
    assert!(error(State::merge([state(1), state(1), state(1)])).contains("stream 0: a rank is missing"));
}

#[test]
fn different_states_of_one_stream_are_an_error_with_the_difference() {
    let digest = |key: &str, value: Json| {
        let mut digest = document(0)["at"][1]["digest"].clone();
        digest[key] = value;
        digest
    };
    let fewer = |at: &mut Json| {
        at["cursor"]["taken"] = json!(3);
        at["digest"]["samples"] = json!(3);
    };
    type Change<'a> = &'a dyn Fn(&mut Json);
    let cases: [(&str, Change<'_>); 10] = [
        ("the samples of the pass that were taken are 4 in the first, and 3 in the second", &fewer),
        ("the passes that have ended are 0 in the first, and 1 in the second", &|at| {
            at["cursor"]["pass"] = json!(1)
        }),
        ("the digest of what was taken is 4-", &|at| at["digest"] = digest("order", json!("0f"))),
        ("the digest of what was taken is 4-", &|at| at["digest"] = digest("content", json!("0f"))),
        ("the digest of what was taken is 0-", &|at| at["before"] = digest("samples", json!(0))),
        ("the length of the pass is unknown in the first, and 9 in the second", &|at| {
            at["cursor"]["length"] = json!(9)
        }),
        ("the shards that are open, or their versions", &|at| {
            at["cursor"]["open"][0]["version"] = json!("v2")
        }),
        ("the shards that are open, or their versions", &|at| at["cursor"]["open"][1]["slice"] = json!(3)),
        ("other failures were skipped", &|at| at["cursor"]["failures"] = json!(1)),
        ("other failures were skipped", &|at| at["ledger"] = json!({"padded": 1})),
    ];
    for (expected, change) in cases {
        let mut other = document(0);
        change(&mut other["at"][1]);
        let found = error(State::merge([state(0), state(1), parse(&other).unwrap()]));
        let what = "stream 2 is in state 0 and in state 2, whose ranks must read the same, but ";
        assert!(found.contains(what) && found.contains(expected), "{expected}: {found}");
    }
    let mut other = document(0);
    other["at"][3]["digest"]["order"] = json!("0f");
    let found = error(State::merge([parse(&other).unwrap(), state(0), state(1)]));
    assert!(found.contains("dataset 1, stream 2 is in state 0 and in state 1"), "{found}");
}

#[test]
fn states_of_one_stream_may_differ_in_the_messages_of_skips() {
    let skipped = |rank: usize, message: &str| {
        let mut state = state(rank);
        let mut streams = state.streams.to_vec();
        Arc::make_mut(&mut streams[0]).skip(3, &Error::step(message.to_owned()).with_key("a"));
        state.streams = streams.into();
        state
    };
    let merged = |first: &str, second: &str| State::merge([skipped(0, first), state(1), skipped(0, second)]);
    let found = merged("after 3 s", "after 2 s").unwrap();
    assert_eq!(found, merged("after 2 s", "after 3 s").unwrap());
    assert_eq!(found.ledger().skipped(), 1, "it counts once");
    assert!(found.ledger().entries()[0].message.contains("after 2 s"));
    let mut other = skipped(0, "after 2 s");
    let mut streams = other.streams.to_vec();
    let stream = Arc::make_mut(&mut streams[0]);
    (stream.ledger, stream.cursor.failures) = (Ledger::default(), 1);
    stream.ledger.skip(0, 0, 3, &Error::step("after 2 s").with_key("b"));
    other.streams = streams.into();
    let found = error(State::merge([skipped(0, "after 2 s"), state(1), other]));
    assert!(found.contains("other failures were skipped"), "{found}");
}

#[test]
fn a_rank_whose_run_has_ended_may_have_fewer_batches() {
    for how in ["/ended", "/failed"] {
        let mut ended = with(0, how, json!(true));
        let mut later = with(1, "/next_number", json!(96));
        later["batches"] = json!(12);
        let later = parse(&later).unwrap();
        let whole = State::merge([parse(&ended).unwrap(), later.clone()]).unwrap();
        // The merged `next_number` is the smaller one. It is that of the first rank, which may have samples
        // left.
        assert_eq!(
            (whole.next_number(), whole.furthest(), whole.batches(), whole.end),
            (24, 96, 12, RunEnd::Open)
        );
        assert_eq!(whole.to_string().parse::<State>().unwrap(), whole);
        ended["batches"] = json!(13);
        assert!(
            error(State::merge([parse(&ended).unwrap(), later])).contains("same step"),
            "it ended at a later step"
        );
    }
    let all = [0, 1].map(|rank| parse(&with(rank, "/ended", json!(true))).unwrap());
    assert_eq!(State::merge(all).unwrap().end, RunEnd::Ended);
}

#[test]
fn ranks_may_differ_in_sequence_numbers_but_not_in_batch_sizes() {
    let with = |rank, next_number: u64, step: Option<u64>| {
        let mut document = document(rank);
        document["next_number"] = json!(next_number);
        step.iter().for_each(|step| document["step"] = json!(step));
        parse(&document).unwrap()
    };
    let merged = State::merge([with(0, 24, Some(8)), with(1, 40, Some(8))]).unwrap();
    assert_eq!((merged.next_number(), merged.furthest()), (24, 40));
    let document: Json = serde_json::from_str(&merged.to_string()).unwrap();
    assert_eq!((&document["furthest"], &document["step"]), (&json!(40), &json!(8)));
    assert_eq!(State::merge([merged.clone()]).unwrap(), merged);

    let found = error(State::merge([with(0, 24, Some(8)), with(1, 48, Some(16))]));
    let expected = "8 items by state 0, and 16 by state 1: give all ranks batches of the same size";
    assert!(found.contains(expected), "{found}");
    let found = error(State::merge([with(0, 24, None), with(1, 24, Some(16))]));
    assert!(found.contains("several items by state 0, and 16 by state 1"), "{found}");
}

#[test]
fn each_difference_between_jobs_is_an_error_that_names_it() {
    let dataset = "/of/datasets/1";
    let cases = [
        ("/of/streams".into(), json!(8), "the number of streams is 8 in the state, and 4 here"),
        ("/of/read".into(), json!({"epoch": 4}), "epoch 4 in the state, and epoch 3 here"),
        ("/of/read".into(), json!({"epochs_from": 3}), "the epochs from 3 on in the state"),
        ("/of/read".into(), json!({"epoch_repeated": 3}), "repeated to fill the last step in the state"),
        (format!("{dataset}/seed"), json!(43), "dataset 1: the seed is 43"),
        (format!("{dataset}/shards"), json!(10), "dataset 1: the number of shards is 10"),
        (format!("{dataset}/names"), json!("0f"), "dataset 1: the list of shards differs"),
        (
            format!("{dataset}/index"),
            json!("0f"),
            "dataset 1: the state was taken with an index, and here is none",
        ),
        (
            format!("{dataset}/order"),
            json!("listed"),
            "`resample_shards`, `sampler`) is listed in the state, and shuffled here",
        ),
        (format!("{dataset}/order"), json!("kept"), "is shuffled within each stream in the state"),
        (format!("{dataset}/shuffle"), json!(6), "the shuffle buffer is 6"),
        (format!("{dataset}/weight"), json!(3), "the weight is 3"),
        (format!("{dataset}/repeats"), json!(3), "the passes are 3"),
        (
            format!("{dataset}/begins"),
            json!(3),
            "the epochs before its first one are 3 in the state, and 0 here",
        ),
        (
            format!("{dataset}/stages"),
            json!(["filter"]),
            "change the number of items are filter in the state, and none",
        ),
    ];
    for (path, value, expected) in cases {
        let mut other = with(1, &path, value);
        (other["next_number"], other["batches"]) = (json!(96), json!(12));
        let other = parse(&other).unwrap();
        let found = error(State::merge([state(0), other]));
        assert!(
            found.contains("state 1 is not of the same job as state 0") && found.contains(expected),
            "{found}"
        );
    }
    let change = json!([{"from": 9, "weights": [1, 2]}]);
    for (key, value, expected) in [
        ("schedule", change, "the changes of weights are [1, 2] from item 9 on in the state, and none here"),
        ("origin", json!(24), "the mixture holds since item 24 in the state, and item 0 here"),
    ] {
        let found = error(State::merge([state(0), parse(&with(1, &format!("/of/{key}"), value)).unwrap()]));
        assert!(found.contains(expected), "{found}");
    }
    let indexed = |fingerprint: &str| parse(&with(0, "/of/datasets/0/index", json!(fingerprint))).unwrap();
    assert!(error(State::merge([indexed("aa"), indexed("bb")])).contains("sizes, counts or versions"));
    assert!(
        error(State::merge([indexed("aa"), state(1)])).contains("taken without an index, and here is one")
    );
    let mut single = document(1);
    single["of"]["datasets"].as_array_mut().unwrap().pop();
    single["at"].as_array_mut().unwrap().truncate(2);
    assert!(error(State::merge([state(0), parse(&single).unwrap()])).contains("number of datasets is 1"));
}

#[test]
fn unknown_versions_and_keys_are_errors() {
    let found = error(parse(&with(0, "/shardstream_state", json!(2))));
    assert!(found.contains("version 2, and this release knows version 1"), "{found}");
    let text = document(0).to_string().replacen("\"shardstream_state\":1", "\"later\":[]", 1);
    assert!(error(text.parse::<State>()).contains("later"));
    // If the document has another version, its other keys are not read.
    assert!(error("{\"shardstream_state\": 9, \"other\": 1}".parse::<State>()).contains("version 9"));
    for path in [
        "/other",
        "/of/other",
        "/of/datasets/0/other",
        "/at/0/other",
        "/at/0/cursor/other",
        "/at/0/cursor/open/0/other",
        "/at/0/digest/other",
    ] {
        assert!(error(parse(&with(0, path, json!(1)))).contains("unknown field `other`"), "{path}");
    }
    assert!(error(parse(&with(0, "/of/read", json!({"pages": 3})))).contains("pages"));
    assert!(error(parse(&with(0, "/of/datasets/0/order", json!("other")))).contains("other"));
    for text in ["", "{", "null", "[]", "1", "\"\"", "{}", "{\"shardstream_state\": 1}", "\u{0}"] {
        assert!(error(text.parse::<State>()).contains("cannot be read"), "{text}");
    }
}

#[test]
fn impossible_numbers_are_errors() {
    let huge = u64::MAX;
    let cases = [
        ("/at/0/stream", json!(2), "out of order"),
        ("/at/0/stream", json!(3), "out of order"),
        ("/at/0/stream", json!(usize::MAX), "out of order"),
        ("/at/0/dataset", json!(2), "out of order"),
        ("/of/datasets", json!([]), "not those of the job"),
        ("/of/streams", json!(0), "not those of the job"),
        ("/next_number", json!(huge), "more than there can be"),
        ("/next_number", json!(22), "6 items were taken, and 22 sequence numbers have 5 for it"),
        ("/next_number", json!(0), "more than there can be"),
        ("/furthest", json!(23), "no rank has come further than sequence number 23"),
        ("/furthest", json!(huge), "more than there can be"),
        ("/batches", json!(huge), "more than there can be"),
        ("/of/origin", json!(25), "begins later than is possible"),
        ("/of/datasets/0/begins", json!(huge), "begins later than is possible"),
        ("/of/schedule", json!([{"from": 1, "weights": [1, -1]}]), "cannot be read"),
        ("/at/1/before", json!({"samples": huge, "order": "0f", "content": "0f"}), "larger than"),
        ("/at/1/before", json!({"samples": 1, "order": "0f", "content": "0f"}), "7 items were taken"),
        ("/at/1/cursor/taken", json!(huge), "larger than there can be samples"),
        ("/at/1/cursor/taken", json!(3), "not those that were taken"),
        ("/at/1/cursor/taken", json!(0), "not those that were taken"),
        ("/at/1/cursor/pass", json!(huge), "larger than"),
        ("/at/1/cursor/length", json!(huge), "larger than"),
        ("/at/1/cursor/length", json!(3), "more samples were taken than there were"),
        ("/at/1/digest/samples", json!(huge), "larger than"),
        ("/at/1/digest/samples", json!(5), "not those that were taken"),
        ("/at/1/cursor/open", json!([]), "slices that were opened"),
        ("/at/1/cursor/open/0/start", json!(3), "out of order"),
        ("/at/1/cursor/open/1/start", json!(huge), "larger than"),
        ("/at/1/cursor/open/1/slice", json!(0), "out of order"),
    ];
    for (path, value, expected) in cases {
        let found = error(parse(&with(0, path, value.clone())));
        assert!(found.contains(expected), "{path} {value}: {found}");
    }
    for value in [json!(-1), json!(1.5), json!("1"), json!(null), json!(1e30)] {
        for path in [
            "/next_number",
            "/batches",
            "/of/streams",
            "/at/0/cursor/taken",
            "/at/0/stream",
            "/at/0/cursor/open/0/start",
            "/of/datasets/0/seed",
        ] {
            error(parse(&with(0, path, value.clone())));
        }
    }
    // Without datasets, no stream can be missing from a state. The checks must not loop over the number of
    // streams, which may be `usize::MAX`.
    let none = json!({
        "shardstream_state": 1, "of": {"streams": usize::MAX, "read": {"epoch": 0}, "datasets": []},
        "next_number": 0, "batches": 0, "at": []
    });
    assert!(parse(&none).unwrap().is_whole());
    assert!(State::merge([parse(&none).unwrap()]).is_ok());
    let mut many = with(0, "/of/streams", json!(usize::MAX));
    many["at"] = json!([]);
    let many = parse(&many).unwrap();
    assert!(!many.is_whole());
    assert!(error(State::merge([many])).contains("a rank is missing"));
}

#[test]
fn seeds_and_hashes_of_all_sizes_are_kept() {
    for number in [0, u64::MAX, 1 << 53, (1 << 53) + 1] {
        let document = with(0, "/of/datasets/0/seed", json!(number));
        let state = parse(&document).unwrap();
        assert_eq!(state.header().datasets[0].seed, number);
        assert_eq!(state.to_string().parse::<State>().unwrap(), state);
    }
}

/// A document with optional keys: those for steps to skip, for stages, and for skipped failures.
fn extended() -> Json {
    let entry = |number: u64| {
        json!({
            "epoch": 3, "stream": 0, "number": number, "shard": "s.tar", "kind": "checksum", "message": "bad"
        })
    };
    let mut document = with(0, "/skip", json!(7));
    for at in 0..2 {
        // A dataset number of 0 is not written.
        document["at"][at].as_object_mut().unwrap().remove("dataset");
    }
    document["of"]["datasets"][1]["stages"] = json!(["flat_map"]);
    document["at"][2]["cursor"]["past"] = json!(2);
    document["at"][0]["cursor"]["failures"] = json!(2);
    document["at"][2]["cursor"]["stage"] = json!({"inputs": 3, "numbers": [1, 2], "rerun": true, "part": 4});
    document["at"][0]["ledger"] =
        json!({"entries": [entry(0), entry(1)], "kinds": {"checksum": 2}, "padded": 1});
    document["at"][1]["digest"]["samples"] = json!(3);
    document["at"][1]["digest"]["skipped"] = json!(1);
    document
}

#[test]
fn skips_and_stage_records_are_saved_and_restored() {
    let state = parse(&extended()).unwrap();
    let text = state.to_string();
    assert_eq!(text.parse::<State>().unwrap(), state);
    assert_eq!(serde_json::from_str::<Json>(&text).unwrap(), extended());
    let at = state.stream(0, 0).unwrap();
    assert_eq!((at.cursor.failures, at.ledger.skipped()), (2, 2));
    assert_eq!(state.stream(1, 0).unwrap().cursor.past, 2);
    assert_eq!((state.ledger().skipped(), state.ledger().padded()), (2, 1));
    assert_eq!(state.steps_to_skip(), 7);
    assert_eq!((state.digest().skipped(), state.samples()), (1, 11));
    assert!(state.digest().to_string().ends_with("+skipped 1"), "{}", state.digest());
    // If a state has no value for an optional key, the document leaves out the key.
    let plain = State::merge([self::state(0), self::state(1)]).unwrap().to_string();
    assert!(
        ["skip", "past", "stage", "failures", "ledger"].iter().all(|key| !plain.contains(key)),
        "{plain}"
    );
    assert!(!self::state(0).digest().to_string().contains('+'));
}

#[test]
fn a_stream_records_what_it_skips() {
    let mut at = StreamState::new(1, 2);
    for _ in 0..3 {
        at.skip(5, &ErrorKind::Checksum.into());
    }
    assert_eq!(at.ledger.skipped(), 3);
    let entry = &at.ledger.entries()[2];
    assert_eq!((entry.dataset, entry.stream, entry.epoch, entry.number), (1, 2, 5, 2));
}

#[test]
fn steps_to_skip_add_up() {
    let [first, second] = [0, 1].map(state);
    assert_eq!(first.clone().skip(0), first);
    let merged = State::merge([first.clone().skip(2).skip(3), second.clone().skip(5)]).unwrap();
    assert_eq!(merged.steps_to_skip(), 5);
    assert_eq!(merged.skip(1), State::merge([first.clone(), second.clone()]).unwrap().skip(6));
    let endless = first.clone().skip(u64::MAX).skip(u64::MAX);
    assert_eq!(endless.to_string().parse::<State>().unwrap(), endless);
    let found = error(State::merge([first.skip(2), second]));
    assert!(
        found.contains("state 0 skips 2 steps, and state 1 0: skip steps of the merged state"),
        "{found}"
    );
}

#[test]
fn impossible_skips_and_stage_records_are_errors() {
    let huge = u64::MAX;
    let cases = [
        ("/skip", json!(huge), "steps to skip are more than there can be"),
        ("/at/2/cursor/past", json!(huge), "larger than"),
        ("/at/0/cursor/failures", json!(huge), "larger than"),
        ("/at/2/cursor/stage/inputs", json!(huge), "larger than"),
        ("/at/2/cursor/stage/part", json!(huge), "larger than"),
        ("/at/2/cursor/stage/other", json!(0), "unknown field"),
        ("/of/datasets/1/stages", json!([]), "outputs are to be made again, and no stage holds any"),
        ("/at/0/ledger/kinds/checksum", json!(huge), "more was skipped than"),
        ("/at/0/ledger/kinds/checksum", json!(3), "not the first ones"),
        ("/at/0/ledger/padded", json!(huge), "more was skipped than"),
        ("/at/0/ledger/repeated", json!(huge), "more was skipped than"),
        ("/at/0/ledger/entries/0/stream", json!(1), "out of order"),
        ("/at/0/ledger/entries/1/number", json!(2), "not the first ones"),
        ("/at/0/ledger/entries", json!([]), "not the first ones"),
        ("/at/1/digest/skipped", json!(huge), "larger than"),
        ("/at/1/digest/skipped", json!(2), "not those that were taken"),
    ];
    for (path, value, expected) in cases {
        let mut document = extended();
        let (parent, key) = path.rsplit_once('/').unwrap();
        match document.pointer_mut(parent).unwrap() {
            Json::Array(array) => array[key.parse::<usize>().unwrap()] = value.clone(),
            parent => parent[key] = value.clone(),
        }
        let found = error(parse(&document));
        assert!(found.contains(expected), "{path} {value}: {found}");
    }
}
