//! The stages between the shuffle buffer and the sequence: what the threads do with each sample, and what is
//! done with their results in the order of the stream.
//!
//! ```text
//! pipe      the stages on the threads: from a sample to any number of outputs
//! buckets   items that wait for a place of their shape
//! join      what a stage behind the threads is
//! memory    a stage of any kind behind the threads
//! since     where such a stage is to begin again on a restore
//! rows      documents of tokens joined and cut into rows, behind the threads
//! unfold    outputs one by one, each with what the state must know of it
//! ```

mod buckets;
mod join;
mod memory;
mod pipe;
mod rows;
mod since;
mod unfold;

pub(super) use join::Join;
pub(super) use pipe::{Out, Pipe, Sink, identity};
pub(super) use rows::Rows;
pub(super) use unfold::{Mapped, Unfold};

use self::join::Part;
use super::event::{Begins, Input};
use crate::adapters::BucketPlan;
use crate::collate::RowSlots;
use crate::error::Result;
use std::sync::Arc;

/// What is done with the samples of one dataset, behind its shuffle buffer.
pub(super) struct Stages<T> {
    pub(super) pipe: Pipe<Out<T>>,
    /// The stage behind the threads, where there is one.
    pub(super) join: Option<MakeJoin<T>>,
    /// The names of the stages that are not one to one, with their options: a state must be restored with
    /// the same ones.
    pub(super) names: Vec<String>,
    /// Whether the stage behind the threads is run again on a restore.
    pub(super) remembers: bool,
    /// Whether there is no stage yet.
    pub(super) none: bool,
}

impl<T: 'static> Stages<T> {
    pub(super) fn map<U: 'static>(
        self,
        f: Arc<impl Fn(T) -> Result<U> + Send + Sync + 'static>,
    ) -> Stages<U> {
        let behind = Arc::clone(&f);
        let join = self.behind(move |item| behind(item).map(Some));
        let pipe = pipe::map(self.pipe, move |out| match out {
            Out::Item(item) => f(item).map(Out::Item),
            Out::Part(part) => Ok(Out::Part(part)),
        });
        Stages { pipe, join, names: self.names, remembers: self.remembers, none: false }
    }

    pub(super) fn filter_map<U: 'static>(
        mut self,
        f: Arc<impl Fn(T) -> Result<Option<U>> + Send + Sync + 'static>,
    ) -> Stages<U> {
        let behind = Arc::clone(&f);
        let join = self.behind(move |item| behind(item));
        let pipe = pipe::filter_map(self.pipe, move |out| match out {
            Out::Item(item) => Ok(f(item)?.map(Out::Item)),
            Out::Part(part) => Ok(Some(Out::Part(part))),
        });
        self.names.push("filter_map".into());
        Stages { pipe, join, names: self.names, remembers: self.remembers, none: false }
    }

    /// Not behind a stage that joins.
    pub(super) fn flat_map<I>(
        mut self,
        f: Arc<impl Fn(T) -> Result<I> + Send + Sync + 'static>,
    ) -> Stages<I::Item>
    where
        I: IntoIterator + 'static,
        I::Item: 'static,
    {
        let pipe = pipe::flat_map(self.pipe, move |out| match out {
            Out::Item(item) => f(item).map(|items| Outs::Items(items.into_iter())),
            Out::Part(part) => Ok(Outs::Part(Some(part))),
        });
        self.names.push("flat_map".into());
        Stages { pipe, join: None, names: self.names, remembers: false, none: false }
    }

    /// Puts a stage with a memory behind the threads.
    pub(super) fn remembering<C>(self, name: String, make: memory::Make<C>) -> Stages<C::Out>
    where
        T: Send,
        C: crate::adapters::Stage<T> + Send + 'static,
        C::Out: Send + 'static,
    {
        let join = move |begins: &Begins| -> Box<dyn Join<C::Out>> {
            Box::new(memory::Memory::new(Arc::clone(&make), begins.clone()))
        };
        Stages { remembers: true, ..self.joined(name, join) }
    }

    /// Puts items in the places of their shapes. `measure` gives the shape of an item, and how much of it it
    /// fills.
    pub(super) fn bucketed(
        self,
        plan: Arc<BucketPlan>,
        measure: Arc<impl Fn(&T) -> Result<(usize, u64)> + Send + Sync + 'static>,
    ) -> Stages<T>
    where
        T: Send,
    {
        let measured = self.map(Arc::new(move |item: T| {
            let (bucket, used) = measure(&item)?;
            Ok(buckets::Measured { item, bucket, used })
        }));
        let join = move |begins: &Begins| -> Box<dyn Join<T>> {
            Box::new(buckets::Queues::new(Arc::clone(&plan), begins))
        };
        let names = measured.names.clone();
        Stages { remembers: true, names, ..measured.joined(String::new(), join) }
    }

    /// Joins the outputs of the threads, which are all of what `join` takes.
    pub(super) fn joined<U: 'static>(
        mut self,
        name: String,
        join: impl Fn(&Begins) -> Box<dyn Join<U>> + Send + Sync + 'static,
    ) -> Stages<U>
    where
        T: Send,
    {
        let pipe = pipe::map(self.pipe, |out| match out {
            Out::Item(item) => Ok(Out::Part(Box::new(item))),
            Out::Part(part) => Ok(Out::Part(part)),
        });
        self.names.push(name);
        Stages { pipe, join: Some(Arc::new(join)), names: self.names, remembers: false, none: false }
    }

    /// The stage behind the threads, with another one behind it.
    fn behind<U: 'static>(
        &self,
        f: impl Fn(T) -> Result<Option<U>> + Send + Sync + 'static,
    ) -> Option<MakeJoin<U>> {
        let (join, f) = (self.join.clone()?, Arc::new(f));
        Some(Arc::new(move |begins: &Begins| Box::new(rows::Behind::new(join(begins), Arc::clone(&f)))))
    }
}

impl<T> Stages<T> {
    /// Does what the threads do with a sample.
    pub(super) fn run(&self, input: Input, seat: RowSlots) -> Mapped<T> {
        let place = self.join.as_ref().map(|_| Box::new(input.sample.location()));
        Mapped::new(input.origin, self.pipe.run(input.sample, seat), place)
    }

    /// What gives the items of one source of a dataset in order, through the stage behind the threads.
    pub(super) fn unfold(&self, dataset: usize, begins: &Begins, endless: bool) -> Unfold<T> {
        let join = self.join.as_ref().map(|join| join(begins));
        let name = self.names.last().cloned().unwrap_or_default();
        Unfold::new(dataset, (join, name, self.remembers), begins, endless)
    }
}

/// Makes the stage behind the threads, one for each stream.
type MakeJoin<T> = Arc<dyn Fn(&Begins) -> Box<dyn Join<T>> + Send + Sync>;

/// What happens to one output of the stage before.
enum Outs<I> {
    Items(I),
    Part(Option<Part>),
}

impl<I: Iterator> Iterator for Outs<I> {
    type Item = Out<I::Item>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Outs::Items(items) => items.next().map(Out::Item),
            Outs::Part(part) => part.take().map(Out::Part),
        }
    }
}

impl<T> Clone for Stages<T> {
    fn clone(&self) -> Self {
        Stages {
            pipe: self.pipe.clone(),
            join: self.join.clone(),
            names: self.names.clone(),
            remembers: self.remembers,
            none: self.none,
        }
    }
}
