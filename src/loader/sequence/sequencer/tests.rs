use super::*;
use crate::loader::sequence::MixedStream;
use crate::loader::sequence::testing::{Listed, fatal, fault, item};
use crate::plan::DatasetOrder;

/// The sequence of `streams`. Each stream is given as the number of items taken before a restore, and the
/// events that are left.
fn sequenced(streams: Vec<(u64, Vec<LoaderEvent<u32>>)>, config: SequenceConfig) -> Vec<String> {
    let order = || DatasetOrder::new(&[1], 0, 0).unwrap();
    let taken = streams.iter().enumerate();
    let all = taken.map(|(source, (taken, _))| MixedStream::new(vec![source], order(), *taken, 0)).collect();
    let listed = Listed::events(streams.into_iter().map(|(_, events)| events));
    shown(Sequencer::new(listed, all, &config))
}

fn shown(events: impl IntoIterator<Item = LoaderEvent<u32>>) -> Vec<String> {
    let shown = |event| match event {
        LoaderEvent::Item(tag, item) => format!("{}:{item}", tag.sequence_number),
        LoaderEvent::Gap(tag) => format!("{}:empty", tag.sequence_number),
        LoaderEvent::Fault(_) => "fault".into(),
        LoaderEvent::Fatal(_) => "fatal".into(),
        LoaderEvent::BatchEnd(end) => format!("|{}", end.next_number),
    };
    events.into_iter().map(shown).collect()
}

/// The sequence of the streams of rank `rank` of `ranks`.
fn sequence(
    streams: &[&[u32]],
    (rank, ranks): (usize, usize),
    batch: usize,
    first_number: u64,
    batching: Batching,
) -> Vec<String> {
    let streams = streams.iter().map(|items| (0, items.iter().copied().map(item).collect()));
    sequenced(
        streams.collect(),
        SequenceConfig {
            rank,
            ranks,
            batch,
            shapes: None,
            first_number,
            furthest: 0,
            batching,
            alone: false,
            repeat_streams: false,
        },
    )
}

#[test]
fn a_stream_that_has_ended_leaves_gaps() {
    let events = sequence(&[&[0, 2, 4], &[1]], (0, 1), 2, 0, Batching::Aligned);
    assert_eq!(events, ["0:0", "1:1", "|2", "2:2", "|4", "4:4", "|6"]);
    assert_eq!(sequence(&[&[], &[]], (0, 1), 2, 0, Batching::Aligned), [""; 0]);
    assert_eq!(sequence(&[], (0, 1), 2, 0, Batching::Aligned), [""; 0]);
}

#[test]
fn gaps_do_not_count_in_a_full_batch() {
    let events = sequence(&[&[0, 2, 4, 6, 8], &[1]], (0, 1), 2, 0, Batching::WhenFull);
    assert_eq!(events, ["0:0", "1:1", "|2", "2:2", "4:4", "|5", "6:6", "8:8", "|9"]);
    let events = sequence(&[&[1, 5, 9, 13], &[3]], (1, 2), 2, 0, Batching::WhenFull);
    assert_eq!(events, ["1:1", "3:3", "|4", "5:5", "9:9", "|11", "13:13"], "the last batch is not full");
    // A sequence that starts at number 11 continues the previous sequence.
    assert_eq!(
        sequence(&[&[13, 17, 21], &[]], (1, 2), 2, 11, Batching::WhenFull)[..3],
        ["13:13", "17:17", "|19"]
    );
}

#[test]
fn each_rank_computes_its_sequence_numbers() {
    let aligned = Batching::Aligned;
    assert_eq!(sequence(&[&[0, 4], &[2]], (0, 2), 2, 0, aligned), ["0:0", "2:2", "|4", "4:4", "|8"]);
    assert_eq!(sequence(&[&[1], &[3]], (1, 2), 2, 0, aligned), ["1:1", "3:3", "|4"]);
}

#[test]
fn a_sequence_can_start_at_any_number() {
    let aligned = Batching::Aligned;
    let first = sequence(&[&[6, 12], &[3, 9]], (0, 3), 1, 3, aligned);
    assert_eq!(first, ["3:3", "|6", "6:6", "|9", "9:9", "|12", "12:12", "|15"]);
    assert_eq!(sequence(&[&[7], &[4]], (1, 3), 1, 3, aligned), ["4:4", "|6", "7:7", "|9"]);
}

/// The sequence of `streams`. Each stream is given as the number of items taken before a restore, and the
/// items that are left.
fn sequence_after(streams: &[(u64, &[u32])], batch: usize, batching: Batching) -> Vec<String> {
    let streams = streams.iter().map(|(taken, items)| (*taken, items.iter().copied().map(item).collect()));
    sequenced(
        streams.collect(),
        SequenceConfig {
            rank: 0,
            ranks: 1,
            batch,
            shapes: None,
            first_number: 0,
            furthest: 0,
            batching,
            alone: false,
            repeat_streams: false,
        },
    )
}

#[test]
fn items_that_one_rank_consumed_before_others_leave_gaps() {
    let streams: [(u64, &[u32]); 2] = [(0, &[0, 2, 4, 6]), (3, &[7])];
    let events = sequence_after(&streams, 2, Batching::Aligned);
    assert_eq!(events, ["0:0", "|2", "2:2", "|4", "4:4", "|6", "6:6", "7:7", "|8"]);
    assert_eq!(
        sequence_after(&streams, 2, Batching::WhenFull),
        ["0:0", "2:2", "|3", "4:4", "6:6", "|7", "7:7"]
    );
    assert_eq!(sequence_after(&streams, 2, Batching::Steps(2)), ["0:0", "|2", "2:2", "|4"]);
}

/// A state may contain any sequence number. If the gaps before that number were skipped one by one, the loop
/// might never end.
#[test]
fn any_number_of_gaps_is_skipped_at_once() {
    const FAR: u64 = 1 << 40;
    let end = format!("|{}", FAR + 2);
    assert_eq!(sequence_after(&[(FAR, &[1])], 2, Batching::Aligned), [format!("{FAR}:1"), end]);
    let full = sequence_after(&[(0, &[0]), (FAR, &[1])], 2, Batching::WhenFull);
    assert_eq!(full, ["0:0".into(), format!("{}:1", 2 * FAR + 1), format!("|{}", 2 * FAR + 2)]);
}

#[test]
fn steps_is_the_exact_number_of_batches() {
    assert_eq!(sequence(&[&[0, 1, 2, 3]], (0, 1), 2, 0, Batching::Steps(1)), ["0:0", "1:1", "|2"]);
    assert_eq!(sequence(&[&[0]], (0, 1), 2, 0, Batching::Steps(2)), ["0:0", "|2", "|4"]);
    assert_eq!(sequence(&[&[0]], (0, 1), 2, 0, Batching::Steps(0)), [""; 0]);
}

#[test]
fn an_error_between_samples_takes_no_number_and_a_fatal_one_ends_the_sequence() {
    let first = || (0, vec![item(0), fault(), item(2)]);
    let config = || SequenceConfig {
        rank: 0,
        ranks: 1,
        batch: 4,
        shapes: None,
        first_number: 0,
        furthest: 0,
        batching: Batching::Aligned,
        alone: false,
        repeat_streams: false,
    };
    let streams = vec![first(), (0, vec![item(1), item(3)])];
    assert_eq!(sequenced(streams, config()), ["0:0", "1:1", "fault", "2:2", "3:3", "|4"]);
    let streams = vec![first(), (0, vec![fatal(), item(1)])];
    assert_eq!(sequenced(streams, config()), ["0:0", "fatal"]);
}

#[test]
fn streams_are_repeated_until_all_batches_are_full() {
    let order = || DatasetOrder::new(&[1], 0, 0).unwrap();
    let streams = |count| (0..count).map(|source| MixedStream::new(vec![source], order(), 0, 0)).collect();
    let sequence = |listed, count, steps| {
        let batching = Batching::Steps(steps);
        shown(Sequencer::new(
            listed,
            streams(count),
            &SequenceConfig {
                rank: 0,
                ranks: 1,
                batch: 3,
                shapes: None,
                first_number: 0,
                furthest: 0,
                batching,
                alone: false,
                repeat_streams: true,
            },
        ))
    };
    let listed = Listed::items([vec![0, 2, 4], vec![1]]).repeated();
    assert_eq!(sequence(listed, 2, 2), ["0:0", "1:1", "2:2", "|3", "3:1", "4:4", "5:1", "|6"]);
    let listed = Listed::items([vec![0, 2], vec![]]).repeated();
    assert_eq!(sequence(listed, 2, 1), ["0:0", "fatal"], "a stream without samples is an error");
}

#[test]
fn a_step_that_another_rank_completed_before_a_restore_is_skipped() {
    // The first step covers numbers 0 to 3. Stream 0 has numbers 0 and 2: its items were taken before the
    // restore. Stream 1 has numbers 1 and 3, but it had ended and had no items for them.
    let sequence = |furthest| {
        let config = SequenceConfig {
            rank: 0,
            ranks: 1,
            batch: 4,
            shapes: Some(Shapes::new(&[1], [4], 0).unwrap()),
            first_number: 0,
            furthest,
            batching: Batching::Aligned,
            alone: false,
            repeat_streams: false,
        };
        sequenced(vec![(2, vec![item(4), item(6)]), (0, Vec::new())], config)
    };
    assert_eq!(sequence(4), ["4:4", "6:6", "|8"]);
    assert_eq!(sequence(0), ["|4", "4:4", "6:6", "|8"], "no rank had completed the step");
}

#[test]
fn a_gap_shows_that_this_rank_had_not_completed_a_step() {
    let config = SequenceConfig {
        rank: 0,
        ranks: 1,
        batch: 4,
        shapes: Some(Shapes::new(&[1], [4], 0).unwrap()),
        first_number: 0,
        furthest: 4,
        batching: Batching::Aligned,
        alone: false,
        repeat_streams: false,
    };
    let gap = || LoaderEvent::Gap(crate::loader::event::Tag::default());
    let events = sequenced(vec![(0, vec![gap(), gap(), item(4), item(6)]), (0, Vec::new())], config);
    assert_eq!(events, ["0:empty", "2:empty", "|4", "4:4", "6:6", "|8"]);
}

/// A sequencer of one rank in batches of two.
fn pairs(streams: &[&[u32]], batching: Batching) -> Sequencer<Listed> {
    let order = || DatasetOrder::new(&[1], 0, 0).unwrap();
    let mixed = (0..streams.len()).map(|source| MixedStream::new(vec![source], order(), 0, 0)).collect();
    let config = SequenceConfig {
        rank: 0,
        ranks: 1,
        batch: 2,
        shapes: None,
        first_number: 0,
        furthest: 0,
        batching,
        alone: false,
        repeat_streams: false,
    };
    Sequencer::new(Listed::items(streams.iter().map(|items| items.to_vec())), mixed, &config)
}

#[test]
fn a_batch_that_failed_gets_the_next_items_of_its_streams() {
    let streams: [&[u32]; 2] = [&[0, 2, 4, 6, 8], &[1, 3, 5]];
    let mut aligned = pairs(&streams, Batching::Aligned);
    assert_eq!(shown(aligned.by_ref().take(3)), ["0:0", "1:1", "|2"]);
    aligned.restart();
    assert_eq!(shown(aligned.by_ref().take(6)), ["0:2", "1:3", "|2", "2:4", "3:5", "|4"]);
    aligned.restart();
    assert_eq!(shown(aligned.by_ref().take(2)), ["2:6", "|4"]);
    aligned.restart();
    assert_eq!(shown(aligned.by_ref().take(2)), ["2:8", "|4"]);
    assert!(aligned.next().is_none());
    let mut steps = pairs(&streams, Batching::Steps(2));
    steps.by_ref().take(3).for_each(drop);
    steps.restart();
    assert_eq!(shown(steps.by_ref().take(6)), ["0:2", "1:3", "|2", "2:4", "3:5", "|4"]);
    steps.restart();
    assert_eq!(shown(steps), ["2:6", "|4"], "the restarted batch is still the second step");
}

#[test]
fn a_full_batch_that_failed_gets_the_next_items_of_its_streams() {
    let mut full = pairs(&[&[0, 2, 4, 6, 8], &[1, 3]], Batching::WhenFull);
    assert_eq!(shown(full.by_ref().take(3)), ["0:0", "1:1", "|2"]);
    full.restart();
    assert_eq!(shown(full.by_ref().take(3)), ["0:2", "1:3", "|2"]);
    assert_eq!(shown(full.by_ref().take(3)), ["2:4", "4:6", "|5"]);
    full.restart();
    assert_eq!(shown(full), ["2:8"], "no other item is left to fill the batch");
}

/// The items of the first batches were consumed before a restore, so the sequence skips these batches. A
/// restart does not return to them.
#[test]
fn a_batch_after_skipped_batches_restarts_at_its_own_start() {
    let order = || DatasetOrder::new(&[1], 0, 0).unwrap();
    let mixed = (0..2).map(|source| MixedStream::new(vec![source], order(), 4, 0)).collect();
    let config = SequenceConfig {
        rank: 0,
        ranks: 1,
        batch: 2,
        shapes: None,
        first_number: 0,
        furthest: 8,
        batching: Batching::Aligned,
        repeat_streams: false,
        alone: true,
    };
    let mut ahead = Sequencer::new(Listed::items([vec![8, 10], vec![9, 11]]), mixed, &config);
    assert_eq!(shown(ahead.by_ref().take(3)), ["8:8", "9:9", "|10"]);
    ahead.restart();
    assert_eq!(shown(ahead), ["8:10", "9:11", "|10"]);
}
