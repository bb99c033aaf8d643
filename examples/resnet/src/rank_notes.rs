//! Notes through which the ranks of a job communicate when no collective operation is possible. A note is an
//! empty object below a URL that all ranks share; the content of the note is in the object's name.

use shardstream::store::Store;
use shardstream::{ErrorKind, Topology};
use std::path::MAIN_SEPARATOR;

/// The notes of one run of a job.
#[derive(Debug, Clone)]
pub(crate) struct RankNotes {
    store: Store,
    url: String,
    topology: Topology,
    /// The first step of the run. It is a part of the notes' names, so that notes of an earlier run are
    /// ignored.
    first_step: u64,
}

/// A note of a rank: a word and a number of steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) rank: usize,
    /// Has letters only.
    pub(crate) word: String,
    pub(crate) steps: u64,
}

impl RankNotes {
    /// Notes below `url`. `first_step` is the step at which the run begins or resumes, the same on all ranks.
    pub(crate) fn new(url: String, topology: Topology, first_step: u64) -> Self {
        Self { store: Store::default(), url, topology, first_step }
    }

    /// This rank and the number of ranks.
    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Writes a note of this rank.
    pub(crate) fn write(&self, word: &str, steps: u64) -> shardstream::Result<()> {
        let (rank, first) = (self.topology.rank(), self.first_step);
        let url = format!("{}/rank-{rank:05}.from-{first}.{word}.{steps}", self.url);
        self.store.put(&url, b"").map(drop)
    }

    /// All notes that this rank and the other ranks have written in this run.
    pub(crate) fn read(&self) -> shardstream::Result<Vec<Note>> {
        let notes = self.objects()?.into_iter().filter_map(|url| parse(&url));
        Ok(notes.filter(|(first, _)| *first == self.first_step).map(|(_, note)| note).collect())
    }

    /// Deletes the notes of this rank, or on rank 0 the notes of all ranks. Called at the start of a run.
    pub(crate) fn clear(&self) {
        self.delete(|rank| rank == self.topology.rank() || self.topology.rank() == 0);
    }

    /// Deletes the notes of this rank.
    pub(crate) fn withdraw(&self) {
        self.delete(|rank| rank == self.topology.rank());
    }

    /// Deletes the notes of the ranks that `includes` selects.
    fn delete(&self, includes: impl Fn(usize) -> bool) {
        for url in self.objects().unwrap_or_default() {
            if parse(&url).is_some_and(|(_, note)| includes(note.rank)) {
                // Another rank may have deleted the note already.
                let _ = self.store.delete(&url);
            }
        }
    }

    fn objects(&self) -> shardstream::Result<Vec<String>> {
        match self.store.list(&self.url) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound(_)) => Ok(vec![]),
            listed => Ok(listed?.into_iter().map(|object| object.url).collect()),
        }
    }
}

/// Parses the name of a note's object. Returns the first step of its run, and the note.
fn parse(url: &str) -> Option<(u64, Note)> {
    let name = url.rsplit(['/', MAIN_SEPARATOR]).next()?;
    let (rank, rest) = name.strip_prefix("rank-")?.split_once('.')?;
    let (first, rest) = rest.strip_prefix("from-")?.split_once('.')?;
    let (word, steps) = rest.split_once('.')?;
    let note = Note { rank: rank.parse().ok()?, word: word.into(), steps: steps.parse().ok()? };
    Some((first.parse().ok()?, note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_another_run_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let url = dir.path().join("notes").to_str().unwrap().to_owned();
        let notes =
            |rank, first_step| RankNotes::new(url.clone(), Topology::new(rank, 3).unwrap(), first_step);
        let note = |rank, steps| Note { rank, word: "stop".into(), steps };
        assert_eq!(notes(0, 40).read().unwrap(), []);
        notes(1, 40).write("stop", 17).unwrap();
        notes(2, 40).write("stop", 18).unwrap();
        assert_eq!(notes(0, 40).read().unwrap(), [note(1, 17), note(2, 18)]);
        assert_eq!(notes(1, 57).read().unwrap(), []);
        notes(1, 57).withdraw();
        assert_eq!(notes(1, 40).read().unwrap(), [note(2, 18)]);
        notes(0, 57).clear();
        assert_eq!(notes(1, 40).read().unwrap(), []);
    }

    #[test]
    fn objects_with_other_names_are_ignored() {
        for name in
            ["x", "rank-1.stop.3", "rank-a.from-0.stop.3", "rank-1.from-0.stop", "rank-1.from-0.stop.x"]
        {
            assert_eq!(parse(&format!("gs://bucket/stop/{name}")), None, "{name}");
        }
    }
}
