//! `Rerun`: restores a stage that cannot save its state, by running it again.

use super::stream_stage::{ErasedItem, OutputOrigin, StageFailure, StageOutput, StreamStage};
use crate::adapters::SavedStage;
use crate::error::{ErrorKind, Result};
use crate::state::misfit;

/// Wraps a stage that does not [save](StreamStage::save) its state.
///
/// The saved state of the wrapper is the number of inputs since the stage was last
/// [fresh](StreamStage::is_fresh), and the number of results that the stage returned for them. A restore
/// pushes these inputs again, and drops that number of results.
///
/// Example: a stage joins two inputs at a time, and is fresh before the first input of each pair. It gets
/// the inputs 0, 1, 2, and so on. The field `numbers` of the saved state contains only the number of results.
///
/// ```text
/// after the item of 2 and 3    inputs: 2, numbers: [1]    2 and 3 are pushed again, one item is dropped
/// after input 4                inputs: 1, numbers: [0]    4 is pushed again
/// ```
pub(super) struct Rerun<T> {
    stage: Box<dyn StreamStage<T>>,
    /// Number of inputs since the stage was fresh.
    inputs: u64,
    /// Number of results (items and failures) since the stage was fresh.
    results: u64,
    /// Number of results to drop, because they were returned before a restore.
    to_drop: u64,
    draining: bool,
}

impl<T> Rerun<T> {
    pub(super) fn new(stage: Box<dyn StreamStage<T>>) -> Self {
        Rerun { stage, inputs: 0, results: 0, to_drop: 0, draining: false }
    }

    /// Checks that the stage has returned all results that were to be dropped.
    fn check(&mut self) -> Result<()> {
        if std::mem::take(&mut self.to_drop) == 0 {
            return Ok(());
        }
        Err(misfit(
            "a stateful stage returns fewer items than it did before for the same inputs: its outputs must \
             depend only on its inputs",
        ))
    }
}

impl<T> StreamStage<T> for Rerun<T> {
    fn push(&mut self, output: ErasedItem, at: &OutputOrigin) -> Result<()> {
        if self.stage.is_fresh() {
            if self.inputs > 0 {
                self.check()?;
            }
            (self.inputs, self.results) = (0, 0);
        }
        self.inputs += 1;
        self.stage.push(output, at)
    }

    fn pull(&mut self) -> Option<Result<StageOutput<T>, StageFailure>> {
        loop {
            let Some(result) = self.stage.pull() else {
                let checked = if self.draining { self.check() } else { Ok(()) };
                return checked.err().map(|error| Err(error.into()));
            };
            // A failure that ends the run cannot have been returned before the restore.
            let is_fatal = |failed: &StageFailure| matches!(failed.error.kind(), ErrorKind::State(_));
            if self.stage.is_broken() || result.as_ref().err().is_some_and(is_fatal) {
                return Some(result);
            }
            self.results += 1;
            if self.to_drop == 0 {
                return Some(result);
            }
            self.to_drop -= 1;
        }
    }

    fn end(&mut self) {
        self.stage.end();
        (self.inputs, self.results, self.draining) = (0, 0, false);
    }

    fn drain(&mut self) {
        self.draining = true;
        self.stage.drain();
    }

    fn save(&self) -> Option<SavedStage> {
        Some(SavedStage { inputs: self.inputs, numbers: vec![self.results] })
    }

    fn restore(&mut self, saved: &SavedStage) -> Result<()> {
        let [results] = saved.numbers[..] else {
            return Err(misfit("it lacks the number of items that a stateful stage had returned"));
        };
        self.to_drop = results;
        Ok(())
    }

    fn only_takes(&self) -> bool {
        self.stage.only_takes()
    }

    fn is_broken(&self) -> bool {
        self.stage.is_broken()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the sum of every two inputs.
    #[derive(Default)]
    struct Pairs {
        held: Option<u64>,
        ready: Option<u64>,
    }

    impl StreamStage<u64> for Pairs {
        fn push(&mut self, output: ErasedItem, _: &OutputOrigin) -> Result<()> {
            let input = *output.downcast::<u64>().unwrap();
            match self.held.take() {
                Some(held) => self.ready = Some(held + input),
                None => self.held = Some(input),
            }
            Ok(())
        }

        fn pull(&mut self) -> Option<Result<StageOutput<u64>, StageFailure>> {
            self.ready.take().map(|item| Ok(StageOutput::item(item)))
        }

        fn end(&mut self) {
            *self = Pairs::default();
        }

        fn is_fresh(&self) -> bool {
            self.held.is_none()
        }
    }

    /// Pushes these inputs, and returns the items of the stage.
    fn run(stage: &mut Rerun<u64>, inputs: std::ops::Range<u64>) -> Vec<u64> {
        let mut items = Vec::new();
        for input in inputs {
            stage.push(Box::new(input), &OutputOrigin::default()).unwrap();
            items.extend(std::iter::from_fn(|| stage.pull()).filter_map(|item| item.ok()?.item));
        }
        items
    }

    #[test]
    fn a_stage_is_run_again_on_the_inputs_since_it_was_fresh() {
        for stop in 0..7 {
            let mut stage = Rerun::new(Box::new(Pairs::default()));
            let before = run(&mut stage, 0..stop);
            let saved = stage.save().unwrap();
            assert!(saved.inputs <= 2, "{saved:?} after {stop}");
            let mut restored = Rerun::new(Box::new(Pairs::default()));
            restored.restore(&saved).unwrap();
            let after = run(&mut restored, stop - saved.inputs..8);
            assert_eq!([before, after].concat(), [1, 5, 9, 13], "after {stop}");
        }
    }

    #[test]
    fn a_stage_that_returns_fewer_items_than_before_is_an_error() {
        let mut stage = Rerun::new(Box::new(Pairs::default()));
        stage.restore(&SavedStage { inputs: 1, numbers: vec![1] }).unwrap();
        assert_eq!(run(&mut stage, 0..1), [0; 0]);
        stage.drain();
        let error = stage.pull().unwrap().err().unwrap().error.to_string();
        assert!(error.contains("fewer items than it did before"), "{error}");
        assert!(stage.restore(&SavedStage::default()).is_err());
    }
}
