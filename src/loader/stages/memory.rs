//! A stage with a memory behind the threads, for one stream.

use super::join::{At, Failed, Join, Part, Pulled};
use crate::adapters::{SavedStage, Stage};
use crate::error::{ErrorKind, Result};
use crate::loader::event::Begins;
use crate::panic::catch;
use std::sync::Arc;

/// Makes a stage, one for each stream and pass.
pub(super) type Make<C> = Arc<dyn Fn(&Begins) -> C + Send + Sync>;

/// Drives any [`Stage`].
pub(super) struct Memory<C: Stage<In>, In> {
    make: Make<C>,
    begins: Begins,
    stage: C,
    ready: Option<Result<C::Out>>,
    /// No more goes in in this pass.
    draining: bool,
    /// It has panicked: nobody knows what it remembers.
    broken: bool,
}

impl<C: Stage<In>, In> Memory<C, In> {
    pub(super) fn new(make: Make<C>, begins: Begins) -> Self {
        Memory { stage: make(&begins), make, begins, ready: None, draining: false, broken: false }
    }

    fn call<T>(&mut self, call: impl FnOnce(&mut C) -> Option<Result<T>>) -> Option<Result<T>> {
        if self.broken {
            return None;
        }
        let stage = &mut self.stage;
        catch(|| call(stage)).unwrap_or_else(|panic| {
            self.broken = true;
            Some(Err(panic))
        })
    }
}

impl<C, In> Join<C::Out> for Memory<C, In>
where
    C: Stage<In> + Send,
    C::Out: Send,
    In: 'static,
{
    fn push(&mut self, part: Part, _: u64, _: &At) -> Result<()> {
        let Ok(item) = part.downcast::<In>() else {
            return Err(ErrorKind::Config("a stage was given items of another type".into()).into());
        };
        if !self.is_done() {
            self.ready = self.call(|stage| stage.push(*item));
        }
        Ok(())
    }

    fn pull(&mut self) -> Option<Result<Pulled<C::Out>, Failed>> {
        let draining = self.draining;
        let item = self.ready.take().or_else(|| self.call(Stage::pull));
        let item = item.or_else(|| draining.then(|| self.call(Stage::drain)).flatten());
        let fill = |item: &C::Out| catch(|| self.stage.fill(item)).unwrap_or_default();
        let pulled = |item| Pulled { fill: fill(&item), ..Pulled::item(item) };
        item.map(|item| item.map(pulled).map_err(Failed::from))
    }

    fn end(&mut self) {
        *self = Memory::new(Arc::clone(&self.make), self.begins.clone());
    }

    fn drain(&mut self) {
        self.draining = true;
    }

    fn is_fresh(&self) -> bool {
        catch(|| self.stage.is_fresh()).unwrap_or_default()
    }

    fn save(&self) -> Option<SavedStage> {
        catch(|| self.stage.save()).unwrap_or_default()
    }

    fn restore(&mut self, saved: &SavedStage) -> Result<()> {
        catch(|| self.stage.restore(saved)).and_then(|restored| restored)
    }

    fn is_done(&self) -> bool {
        catch(|| self.stage.is_done()).unwrap_or_default()
    }

    fn is_broken(&self) -> bool {
        self.broken
    }
}
