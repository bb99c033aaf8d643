//! Tests of the warnings, and of the notes of several ranks.

use super::*;

fn note(rank: usize, word: &str, steps: u64) -> Note {
    Note { rank, word: word.into(), steps }
}

#[test]
fn the_ranks_that_hold_up_the_job_are_named() {
    let waiting = [note(0, "devices", 12), note(1, "batch", 11), note(2, "devices", 12)];
    assert_eq!(describe_ranks(&waiting, 3), "the job waits for: rank 1 waits for a batch after 11 steps");
    let text = describe_ranks(&[note(0, "devices", 12)], 3);
    assert!(text.starts_with("the job waits for: ranks 1, 2 left no note"), "{text}");
    assert_eq!(
        describe_ranks(&[note(0, "devices", 12), note(1, "devices", 12)], 2),
        "all 2 ranks wait for the devices after 12 steps"
    );
    assert_eq!(
        describe_ranks(&[note(0, "devices", 12), note(1, "devices", 11)], 2),
        "these ranks are behind, with 11 of 12 steps: 1"
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
    let printed = lines.clone();
    let settings = WatchdogSettings {
        warn_after: Some(Duration::from_millis(warn_ms)),
        end_after: None,
        batch_wait: Box::new(|| Some("a request of shard 7".into())),
        print: Box::new(move |line| printed.lock().unwrap().push(line.into())),
    };
    let topology = Topology::new(rank, ranks).unwrap();
    (Watchdog::start(settings, topology, url.map(Into::into), 0).unwrap(), lines)
}

/// Waits until the printed lines contain a text, and returns the lines.
fn wait_for(lines: &Lines, text: &str) -> String {
    let start = Instant::now();
    loop {
        let all = lines.lock().unwrap().join("\n");
        if all.contains(text) {
            return all;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no {text:?} in {all:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_long_wait_is_warned_about_twice_and_its_end_is_reported() {
    let (dog, lines) = start(0, 1, None, 50);
    dog.begin(2, Split::Train);
    dog.set_activity(Activity::Launch);
    dog.set_activity(Activity::Batch);
    let printed = wait_for(&lines, "warning");
    assert!(
        printed.contains(
            "rank 0 waits for a batch (a request of shard 7) after 1 steps, in the training of epoch 3"
        ),
        "{printed}"
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
fn all_ranks_name_the_rank_that_hangs() {
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
