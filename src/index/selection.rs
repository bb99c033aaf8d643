//! The samples of one shard that a filter selected.

use crate::state::hash_texts;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// The samples of an archive that a filter selected, as runs of adjacent samples.
///
/// A selected sample has two numbers: its number among the selected samples, and its *stored* number among
/// all samples of the archive. The sample's [position](crate::Sample::position) contains the stored number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selection {
    name: Arc<str>,
    runs: Vec<SelectionRun>,
    /// The number of samples in the archive.
    stored: u64,
    /// The number of selected samples.
    selected: u64,
}

/// Selected samples that are adjacent in the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SelectionRun {
    /// The stored number of the run's first sample.
    stored: u64,
    /// The number of the run's first sample among the selected samples.
    selected: u64,
    /// The number of samples in the run.
    count: u64,
}

impl Selection {
    /// Selects some of the samples that `of` has selected or, if `of` is `None`, some of an archive's
    /// `stored` samples. `ranges` is ascending. Its numbers count the samples that `of` has selected or, if
    /// `of` is `None`, the stored samples.
    pub(super) fn narrowed(
        name: Arc<str>,
        of: Option<&Selection>,
        stored: u64,
        ranges: &[Range<u64>],
    ) -> Self {
        let all = [SelectionRun { stored: 0, selected: 0, count: stored }];
        let of = of.map_or(&all[..], |selection| &selection.runs);
        let (mut runs, mut selected): (Vec<SelectionRun>, u64) = (Vec::new(), 0);
        for range in ranges {
            let first = of.partition_point(|run| run.selected + run.count <= range.start);
            let inside = of.get(first..).unwrap_or_default().iter();
            for run in inside.take_while(|run| run.selected < range.end) {
                let start = range.start.max(run.selected);
                let count = range.end.min(run.selected + run.count) - start;
                let stored = run.stored + (start - run.selected);
                match runs.last_mut() {
                    Some(last) if last.stored + last.count == stored => last.count += count,
                    _ if count > 0 => runs.push(SelectionRun { stored, selected, count }),
                    _ => {}
                }
                selected += count;
            }
        }
        Selection { name, runs, stored, selected }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn selected(&self) -> u64 {
        self.selected
    }

    pub(super) fn stored(&self) -> u64 {
        self.stored
    }

    /// The stored number of a selected sample.
    pub(super) fn position_of(&self, sample: u64) -> Option<u64> {
        let run = self.runs.get(self.runs.partition_point(|run| run.selected <= sample).checked_sub(1)?)?;
        (sample - run.selected < run.count).then(|| run.stored + (sample - run.selected))
    }

    /// Whether the sample with this stored number is selected.
    pub(super) fn contains(&self, stored: u64) -> bool {
        self.number_of(stored).is_some()
    }

    /// The number of a sample among the selected samples, by its stored number.
    pub(super) fn number_of(&self, stored: u64) -> Option<u64> {
        let run = self.runs.get(self.runs.partition_point(|run| run.stored <= stored).checked_sub(1)?)?;
        (stored - run.stored < run.count).then(|| run.selected + (stored - run.stored))
    }

    /// The range of stored numbers from the first to the last of these selected samples.
    ///
    /// The span of an empty range is empty, and begins at the stored number of the sample `samples.start`. A
    /// bound of `samples` may exceed the number of selected samples by some `n`. The same bound of the span
    /// then exceeds the number of stored samples by `n`.
    pub(super) fn span(&self, samples: &Range<u64>) -> Range<u64> {
        let beyond = |sample: u64| self.stored.saturating_add(sample - self.selected.min(sample));
        let start = self.position_of(samples.start).unwrap_or_else(|| beyond(samples.start));
        let end = match samples.end.checked_sub(1) {
            Some(last) if last >= samples.start => {
                self.position_of(last).map_or_else(|| beyond(samples.end), |stored| stored + 1)
            }
            _ => start,
        };
        start..end
    }

    /// Splits a range of selected samples into pieces. It is split between two selected samples if `is_far`
    /// returns true for the range of stored numbers between the two.
    pub(super) fn pieces(
        &self,
        samples: &Range<u64>,
        is_far: impl Fn(Range<u64>) -> bool,
    ) -> Vec<Range<u64>> {
        let first = self.runs.partition_point(|run| run.selected + run.count <= samples.start);
        let mut pieces = Vec::new();
        let mut piece = samples.clone();
        for pair in self.runs.get(first..).unwrap_or_default().windows(2) {
            let [before, run] = pair else { continue };
            if run.selected >= samples.end {
                break;
            }
            if is_far(before.stored + before.count..run.stored) {
                pieces.push(piece.start..run.selected);
                piece.start = run.selected;
            }
        }
        pieces.push(piece);
        pieces
    }

    /// A hash of the filter's name and of the selected samples.
    pub(super) fn fingerprint(&self) -> u64 {
        let runs: Vec<String> = self.document().runs.iter().map(u64::to_string).collect();
        hash_texts(std::iter::once(&*self.name).chain(runs.iter().map(String::as_str)))
    }

    pub(super) fn document(&self) -> SelectionDocument {
        let mut runs = Vec::with_capacity(2 * self.runs.len() + 1);
        let mut end = 0;
        for run in &self.runs {
            runs.extend([run.stored - end, run.count]);
            end = run.stored + run.count;
        }
        if end < self.stored {
            runs.push(self.stored - end);
        }
        SelectionDocument { name: Arc::clone(&self.name), runs }
    }
}

/// Builds a [`Selection`] sample by sample.
#[derive(Debug)]
pub(super) struct SelectionBuilder(Selection);

impl SelectionBuilder {
    pub(super) fn new(name: Arc<str>) -> Self {
        SelectionBuilder(Selection { name, runs: Vec::new(), stored: 0, selected: 0 })
    }

    /// Adds the next sample of the archive.
    pub(super) fn push(&mut self, is_selected: bool) {
        let Selection { runs, stored, selected, .. } = &mut self.0;
        if is_selected {
            match runs.last_mut() {
                Some(run) if run.stored + run.count == *stored => run.count += 1,
                _ => runs.push(SelectionRun { stored: *stored, selected: *selected, count: 1 }),
            }
            *selected += 1;
        }
        *stored += 1;
    }

    pub(super) fn finish(self) -> Selection {
        self.0
    }
}

/// A [`Selection`] in JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SelectionDocument {
    pub(super) name: Arc<str>,
    /// The samples of the archive form runs that are alternately not selected and selected. These are the
    /// lengths of the runs.
    pub(super) runs: Vec<u64>,
}

impl SelectionDocument {
    /// Reads the selection of an archive of at most `max_samples` samples.
    pub(super) fn read(self, max_samples: u64) -> Result<Selection, &'static str> {
        let SelectionDocument { name, runs: lengths } = self;
        if name.is_empty() {
            return Err("no name");
        }
        let (mut runs, mut stored, mut selected) = (Vec::new(), 0_u64, 0_u64);
        for (number, &count) in lengths.iter().enumerate() {
            if count == 0 && number > 0 {
                return Err("an empty run");
            }
            if number % 2 == 1 {
                runs.push(SelectionRun { stored, selected, count });
                selected = selected.saturating_add(count);
            }
            stored = stored
                .checked_add(count)
                .filter(|stored| *stored <= max_samples)
                .ok_or("too many samples")?;
        }
        Ok(Selection { name, runs, stored, selected })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn built(chosen: &[bool]) -> Selection {
        let mut builder = SelectionBuilder::new("f".into());
        chosen.iter().for_each(|chosen| builder.push(*chosen));
        builder.finish()
    }

    proptest! {
        #[test]
        fn numbers_spans_and_pieces_are_those_of_the_chosen_samples(
            chosen in prop::collection::vec(any::<bool>(), 0..40),
            far in any::<u64>(),
        ) {
            let selection = built(&chosen);
            let stored = (0..).zip(&chosen).filter(|(_, chosen)| **chosen);
            let stored: Vec<u64> = stored.map(|(number, _)| number).collect();
            let (all, count) = (chosen.len() as u64, stored.len() as u64);
            prop_assert_eq!((selection.stored(), selection.selected()), (all, count));
            for (number, chosen) in (0..).zip(chosen.iter().chain([&false, &false])) {
                prop_assert_eq!(selection.contains(number), *chosen);
            }
            for number in 0..count + 2 {
                prop_assert_eq!(selection.position_of(number), stored.get(number as usize).copied());
            }
            // For each gap, one bit of `far` decides whether `pieces` splits there.
            let is_far = |gap: Range<u64>| far >> (gap.start % 64) & 1 == 1;
            for start in 0..count {
                for end in start + 1..=count {
                    let span = selection.span(&(start..end));
                    prop_assert_eq!(span, stored[start as usize]..stored[end as usize - 1] + 1);
                    let pieces = selection.pieces(&(start..end), is_far);
                    let together: Vec<_> = pieces.iter().cloned().flatten().collect();
                    prop_assert_eq!(together, (start..end).collect::<Vec<_>>());
                    let cuts: Vec<u64> = (start + 1..end)
                        .filter(|next| {
                            let [before, after] = [next - 1, *next].map(|number| stored[number as usize]);
                            before + 1 < after && is_far(before + 1..after)
                        })
                        .collect();
                    prop_assert_eq!(pieces.iter().skip(1).map(|piece| piece.start).collect::<Vec<_>>(), cuts);
                }
                let nothing = selection.span(&(start..start));
                prop_assert_eq!(nothing, stored[start as usize]..stored[start as usize]);
            }
            prop_assert_eq!(selection.span(&(count..count)), all..all);
            prop_assert!(selection.span(&(0..count + 1)).end > all);
        }

        #[test]
        fn a_document_reads_back_as_the_same_selection(
            chosen in prop::collection::vec(any::<bool>(), 0..40),
        ) {
            let selection = built(&chosen);
            let text = serde_json::to_string(&selection.document()).unwrap();
            let read: SelectionDocument = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(read.read(40), Ok(selection));
        }

        #[test]
        fn any_document_is_read_without_a_panic(
            runs in prop::collection::vec(prop_oneof![0u64..4, any::<u64>()], 0..8),
            sample: u64,
        ) {
            if let Ok(selection) = (SelectionDocument { name: "f".into(), runs }).read(u64::MAX) {
                prop_assert!(selection.selected() <= selection.stored());
                prop_assert!(selection.position_of(sample).is_none_or(|stored| selection.contains(stored)));
                selection.span(&(sample..u64::MAX));
                selection.pieces(&(sample..u64::MAX), |_| true);
            }
        }
    }

    #[test]
    fn documents_are_bounded_and_have_no_empty_runs() {
        let read = |name: &str, runs: &[u64]| {
            SelectionDocument { name: name.into(), runs: runs.into() }.read(10).map(|found| found.selected())
        };
        assert_eq!(read("f", &[0, 4, 2, 3]), Ok(7));
        assert_eq!(read("f", &[]), Ok(0));
        assert_eq!(read("", &[0, 1]), Err("no name"));
        assert_eq!(read("f", &[2, 4, 0, 3]), Err("an empty run"));
        assert_eq!(read("f", &[8, 3]), Err("too many samples"));
        assert_eq!(read("f", &[1, u64::MAX]), Err("too many samples"));
    }
}
