//! Warnings of waits, and the notes of several ranks.

use super::*;

fn note(rank: usize, word: &str, steps: u64) -> Note {
    Note { rank, word: word.into(), steps }
}

#[test]
fn the_rank_that_holds_up_the_others_is_named() {
    let waiting = [note(0, "devices", 12), note(1, "batch", 11), note(2, "devices", 12)];
    assert_eq!(describe_ranks(&waiting, 3), "the job waits for: rank 1 waits for a batch after 11 steps");
    let said = describe_ranks(&[note(0, "devices", 12)], 3);
    assert!(said.starts_with("the job waits for: ranks 1, 2 left no note"), "{said}");
    assert_eq!(
        describe_ranks(&[note(0, "devices", 12), note(1, "devices", 12)], 2),
        "all 2 ranks wait for the devices after 12 steps"
    );
    assert_eq!(
        describe_ranks(&[note(0, "devices", 12), note(1, "devices", 11)], 2),
        "behind are, with 11 of 12 steps, the ranks 1"
    );
}

#[test]
fn the_last_note_of_a_rank_counts() {
    let notes = vec![note(1, "batch", 3), note(0, "devices", 3), note(1, "devices", 40)];
    assert_eq!(newest_notes(notes), [note(0, "devices", 3), note(1, "devices", 40)]);
}

type Lines = Arc<Mutex<Vec<String>>>;

fn start(rank: usize, ranks: usize, url: Option<&str>, warn_ms: u64) -> (Watchdog, Lines) {
    let lines = Lines::default();
    let said = lines.clone();
    let settings = WatchdogSettings {
        warn_after: Some(Duration::from_millis(warn_ms)),
        end_after: None,
        batch_wait: Box::new(|| Some("a request of shard 7".into())),
        print: Box::new(move |line| said.lock().unwrap().push(line.into())),
    };
    let topology = Topology::new(rank, ranks).unwrap();
    (Watchdog::start(settings, topology, url.map(Into::into), 0).unwrap(), lines)
}

fn wait_for(lines: &Lines, what: &str) -> String {
    let begun = Instant::now();
    loop {
        let all = lines.lock().unwrap().join("\n");
        if all.contains(what) {
            return all;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no {what:?} in {all:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_wait_is_warned_of_again_and_its_end_is_told() {
    let (dog, lines) = start(0, 1, None, 50);
    dog.begin(2, Split::Train);
    dog.set_activity(Activity::Launch);
    dog.set_activity(Activity::Batch);
    let said = wait_for(&lines, "warning");
    assert!(
        said.contains(
            "rank 0 waits for a batch (a request of shard 7) after 1 steps, in the training of epoch 3"
        ),
        "{said}"
    );
    wait_for(
        &lines,
        "warning: no step for 0 s: rank 0 waits for a batch (a request of shard 7) after 1 steps, in the \
         training of epoch 3\nwarning",
    );
    dog.set_activity(Activity::Launch);
    wait_for(&lines, "continues after a wait of");
    dog.finish();
}

#[test]
fn ranks_name_the_one_that_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let url = dir.path().join("watch");
    let dogs = [0, 1, 2].map(|rank| start(rank, 3, url.to_str(), 300));
    for (rank, (dog, _)) in dogs.iter().enumerate() {
        dog.set_activity(Activity::Launch);
        dog.set_activity(if rank == 1 { Activity::Checkpoint } else { Activity::Devices });
    }
    for (_, lines) in &dogs {
        wait_for(lines, "the job waits for: rank 1 waits for its checkpoint after 1 steps");
    }
    dogs.iter().for_each(|(dog, _)| dog.finish());
}
