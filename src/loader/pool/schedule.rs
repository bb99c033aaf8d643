//! Which source is read next, and how far ahead: a state machine that the threads share.
//!
//! Each source is read by one thread at a time, in chunks, and its chunks are given out in the order in which
//! they were read, whichever thread is done with its own first. A source of which nothing waits is always
//! read on, so that whoever waits for it is served, and there is a chunk for each thread; beyond that a few
//! chunks are made ahead, of the source that has the fewest, as long as there is memory for them.

use super::chunk::{Bounds, Chunk, Then};
use crate::activity::Activity;
use crate::loader::watch::StreamProgress;
use crate::memory::Gauge;
use crate::store::{Budget, ReadAheadMemory};
use std::collections::VecDeque;
use std::time::Duration;

/// Most samples of a chunk: with 16, two fifths of the time for small ones went into the
/// hand-over.
const SAMPLES: usize = 512;
/// The first ones have fewer: what they take is not known yet, and somebody waits for them.
const FIRST_SAMPLES: usize = 8;
/// Most bytes of a chunk: for large samples a hand-over costs nothing, and chunks of them would fill the
/// memory.
const BYTES: usize = 512 << 10;
/// The same where the budget has no room for it.
const BYTES_NEEDED: usize = 64 << 10;
/// Most bytes of the rows that a chunk becomes.
const BYTES_OUT: usize = 4 << 20;
/// Most items that a chunk becomes.
const OUTPUTS: u64 = 1024;

/// Chunks that take longer have fewer samples the next time, so that all threads come to their ends together.
const LONG: Duration = Duration::from_millis(1);
/// And chunks that take less than this have more.
const SHORT: Duration = Duration::from_micros(400);
/// Samples that take less than this are mapped at once: to keep them until others may read on would cost a
/// part of it, in memory that leaves the cache.
const QUICK: Duration = Duration::from_micros(5);

/// Chunks that are made ahead for each thread, beyond one for each source.
const AHEAD_PER_THREAD: usize = 2;
/// Bytes of waiting rows from which no chunk is made ahead.
const BYTES_WAITING: usize = 64 << 20;
/// Waiting items of a source from which none is made ahead.
const OUTPUTS_WAITING: usize = 1024;

/// What the threads share, about sources `S` whose samples become `T`.
#[derive(Debug)]
pub(super) struct Schedule<S, T> {
    places: Vec<Place<S, T>>,
    /// Chunks that were begun and not given out.
    ahead: usize,
    /// No more than this of them beyond those that are needed.
    most_ahead: usize,
    /// The bytes of rows that an item takes in its batch.
    row: usize,
    /// Items in the chunks.
    waiting: usize,
    /// The source that somebody waits for.
    wanted: Option<usize>,
    /// How many chunks there are in any case, whatever memory there is, beside one for each source.
    threads: usize,
    /// Whether there was no memory for more when it was last asked for.
    full: bool,
    closed: bool,
    /// Counts the bytes of all chunks.
    owner: Gauge,
}

/// One source.
#[derive(Debug)]
struct Place<S, T> {
    /// While nobody reads it.
    source: Option<S>,
    /// Whether it was taken out of turn, and has not come back.
    is_out: bool,
    /// Whether it has something to read, as far as is known.
    ready: bool,
    over: bool,
    budget: Budget,
    /// In their order; none where a thread is at work on it.
    chunks: VecDeque<Option<Chunk<T>>>,
    /// The number of the first of them.
    first: u64,
    /// How many samples the next chunk may have.
    samples: usize,
    /// How many bytes it is likely to have.
    bytes: u64,
    /// Whether the samples of the last chunk were [`QUICK`].
    quick: bool,
    /// Whether there was room for them when the source was last read.
    roomy: bool,
    /// How many inputs have come, and how many outputs of them.
    inputs: u64,
    outputs: u64,
    /// Items in its chunks.
    waiting: usize,
    /// The number of the item that the next sample becomes, if all samples at work become one.
    item: u64,
}

/// A source and its chunks when nothing is wanted any more.
pub(super) type Left<S, T> = (Option<S>, VecDeque<Option<Chunk<T>>>);

/// What a thread does next: it reads this source, so much of it.
#[derive(Debug)]
pub(super) struct Turn<S> {
    pub(super) place: usize,
    pub(super) source: S,
    pub(super) bounds: Bounds,
    /// Whether each sample is mapped as soon as it is read, before others may read the source.
    pub(super) at_once: bool,
    pub(super) memory: ReadAheadMemory,
}

/// A chunk that was read: which one of its source, and the number of its first item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Begun {
    pub(super) place: usize,
    pub(super) number: u64,
    pub(super) item: u64,
}

/// What there is of a source.
#[derive(Debug)]
pub(super) enum Next<T> {
    Chunk(Chunk<T>),
    /// It is being read, or on its way.
    Later,
    /// Nothing comes any more.
    Over,
}

impl<S, T> Schedule<S, T> {
    /// Of sources, each with the budget of its memory, for `threads` threads. Items take `row` bytes in their
    /// batch.
    pub(super) fn new(sources: impl IntoIterator<Item = (S, Budget)>, threads: usize, row: usize) -> Self {
        let place = |(source, budget)| Place {
            source: Some(source),
            is_out: false,
            ready: true,
            over: false,
            budget,
            chunks: VecDeque::new(),
            first: 0,
            samples: FIRST_SAMPLES,
            bytes: BYTES as u64,
            quick: false,
            roomy: false,
            inputs: 0,
            outputs: 0,
            waiting: 0,
            item: 0,
        };
        let places: Vec<_> = sources.into_iter().map(place).collect();
        let schedule = Schedule {
            places,
            ahead: 0,
            most_ahead: 0,
            row,
            waiting: 0,
            wanted: None,
            threads,
            full: false,
            closed: false,
            owner: Gauge::default(),
        };
        schedule.with_threads(threads)
    }

    fn with_threads(mut self, threads: usize) -> Self {
        self.set_threads(threads);
        self
    }

    /// The work is for this number of threads from now on.
    pub(super) fn set_threads(&mut self, threads: usize) {
        self.threads = threads;
        self.most_ahead = threads.saturating_mul(AHEAD_PER_THREAD).saturating_add(self.places.len());
    }

    /// `owner` counts the bytes of all chunks.
    pub(super) fn counted(self, owner: Gauge) -> Self {
        Schedule { owner, ..self }
    }

    /// Whether there was no memory for more when it was last asked for.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// How many sources there are.
    pub(super) fn sources(&self) -> usize {
        self.places.len()
    }

    /// The next source to be read; none where all have enough ahead, or nothing to read.
    pub(super) fn turn(&mut self) -> Option<Turn<S>> {
        let first = self.next()?;
        let (number, memory) = match self.hold(first) {
            Some(memory) => (first, memory),
            // What is too large for the memory that is left must not keep others waiting.
            None => self.others(first).into_iter().find_map(|other| Some((other, self.hold(other)?)))?,
        };
        self.full = false;
        // Of each source there is a row in any case.
        let all = self.row.saturating_mul(self.places.len()).max(1);
        let sources = self.places.len();
        let place = self.places.get_mut(number)?;
        let Bounds { samples, bytes } = place.bounds(self.row);
        let bounds = Bounds { samples: samples.min(BYTES_WAITING / all).max(1), bytes };
        place.ready = false;
        let at_once = self.row == 0 && place.quick && self.threads <= sources;
        Some(Turn { place: number, source: place.source.take()?, bounds, at_once, memory })
    }

    /// The memory for another chunk of a source, if there is any, or it is needed.
    fn hold(&mut self, number: usize) -> Option<ReadAheadMemory> {
        let needed = self.ahead < self.threads;
        let place = self.places.get_mut(number)?;
        let held = place.budget.try_reserve(place.bytes, &self.owner);
        place.roomy = held.is_some();
        let held = held
            .or_else(|| (needed || place.chunks.is_empty()).then(|| place.budget.reserve(0, &self.owner)));
        self.full |= held.is_none();
        held
    }

    /// Whether there is a source to be read, if there is memory for it.
    pub(super) fn is_readable(&self) -> bool {
        let needed =
            |number| self.places.get(number).is_some_and(|place: &Place<S, T>| place.chunks.is_empty());
        self.next().is_some_and(|number| !self.full || self.ahead < self.threads || needed(number))
    }

    /// The source to be read next.
    fn next(&self) -> Option<usize> {
        if self.closed {
            return None;
        }
        let wanted = self.wanted.and_then(|wanted| Some((wanted, self.places.get(wanted)?)));
        let wanted = wanted.filter(|(_, place)| self.may_read(place) && place.chunks.is_empty());
        let fewest = || {
            let places = self.places.iter().enumerate().filter(|(_, place)| self.may_read(place));
            places.min_by_key(|(_, place)| place.rank())
        };
        wanted.or_else(fewest).map(|(number, _)| number)
    }

    /// Whether a source has something to be read that may be made ahead.
    fn may_read(&self, place: &Place<S, T>) -> bool {
        self.has_room(place) && place.ready && place.source.is_some()
    }

    /// Whether more of a source may be made ahead.
    fn has_room(&self, place: &Place<S, T>) -> bool {
        let room = self.ahead < self.most_ahead && self.waiting.saturating_mul(self.row) < BYTES_WAITING;
        place.chunks.is_empty() || room && place.waiting < OUTPUTS_WAITING
    }

    /// What a thread waits for that has nothing to do.
    pub(super) fn idle(&self) -> Activity {
        let wants = |place: &&Place<S, T>| !place.over && self.has_room(place);
        let mut wanting = self.places.iter().filter(wants);
        let awaits_bytes = |place: &Place<S, T>| place.is_out || place.source.is_some() && !place.ready;
        match wanting.clone().any(awaits_bytes) {
            true => Activity::AwaitBytes,
            false if wanting.any(|place| place.source.is_none()) => Activity::AwaitStream,
            false => Activity::AwaitRoom,
        }
    }

    /// How far the sources are ahead.
    pub(super) fn progress(&self) -> Vec<StreamProgress> {
        let progress = |place: &Place<S, T>| StreamProgress {
            is_being_read: place.source.is_none(),
            is_readable: place.ready,
            has_ended: place.over,
            items: place.waiting,
        };
        self.places.iter().map(progress).collect()
    }

    /// The sources that may be read, the next one first, without this one.
    fn others(&self, first: usize) -> Vec<usize> {
        let places = self.places.iter().enumerate();
        let mut others: Vec<_> =
            places.filter(|(number, place)| *number != first && self.may_read(place)).collect();
        others.sort_by_key(|(_, place)| place.rank());
        others.into_iter().map(|(number, _)| number).collect()
    }

    /// Takes sources out of turn, which come back as those that were read.
    pub(super) fn take_out(&mut self, which: impl Fn(&S) -> bool) -> Vec<(usize, S)> {
        let take = |(number, place): (usize, &mut Place<S, T>)| {
            place.ready = !place.source.as_ref().is_some_and(&which);
            let taken = if place.ready { None } else { place.source.take() };
            place.is_out = taken.is_some();
            taken.map(|source| (number, source))
        };
        self.places.iter_mut().enumerate().filter_map(take).collect()
    }

    /// A source was read, and is there for others again. `samples` of `bytes` bytes came of it; where it was
    /// anything at all, that is a chunk.
    pub(super) fn read(
        &mut self,
        number: usize,
        source: S,
        (samples, bytes, is_chunk): (usize, usize, bool),
        then: Then,
    ) -> Option<Begun> {
        let place = self.places.get_mut(number)?;
        // Even where nothing comes any more: to let it go may wake somebody who looks here.
        place.source = Some(source);
        place.is_out = false;
        match then {
            // It may have been woken in the meantime.
            Then::Wait => {}
            Then::More => place.ready = true,
            Then::Over => (place.over, place.ready) = (true, false),
        }
        if !is_chunk {
            return None;
        }
        // What is read without room is cut short: it says no more than that the one before it was unusually
        // large.
        place.bytes = match (place.roomy, bytes as u64) {
            (true, bytes) => bytes,
            (false, bytes) => place.bytes.min(bytes.max(BYTES as u64)),
        };
        let item = place.item;
        place.item += samples as u64;
        place.chunks.push_back(None);
        self.ahead += 1;
        Some(Begun { place: number, number: place.first + place.chunks.len() as u64 - 1, item })
    }

    /// The samples of a chunk have become items, which took so long.
    pub(super) fn done(&mut self, begun: Begun, chunk: Chunk<T>, samples: usize, took: Duration) {
        let Some(place) = self.places.get_mut(begun.place) else { return };
        let outputs = chunk.outputs;
        (place.inputs, place.outputs) =
            (place.inputs.saturating_add(samples as u64), place.outputs.saturating_add(outputs as u64));
        place.item = place.item.saturating_add(outputs as u64).saturating_sub(samples as u64);
        if took > LONG {
            place.samples = (samples / 2).max(1);
        } else if took < SHORT && samples >= place.samples {
            place.samples = place.samples.saturating_mul(2).min(SAMPLES);
        }
        place.quick = took < QUICK * u32::try_from(samples).unwrap_or(u32::MAX);
        place.waiting += outputs;
        self.waiting += outputs;
        let at = begun.number.checked_sub(place.first).and_then(|at| usize::try_from(at).ok());
        if let Some(slot) = at.and_then(|at| place.chunks.get_mut(at)) {
            *slot = Some(chunk);
        }
    }

    /// The next chunk of a source. Where there is none, it is what is wanted most.
    pub(super) fn take(&mut self, number: usize) -> Next<T> {
        self.wanted = Some(number);
        let Some(place) = self.places.get_mut(number) else { return Next::Over };
        let Some(chunk) = place.chunks.front_mut().and_then(Option::take) else {
            return if place.over && place.chunks.is_empty() { Next::Over } else { Next::Later };
        };
        place.chunks.pop_front();
        place.first += 1;
        place.waiting -= chunk.outputs;
        self.waiting -= chunk.outputs;
        self.ahead -= 1;
        (self.wanted, self.full) = (None, false);
        Next::Chunk(chunk)
    }

    /// Whether somebody waits for this source, and need not any longer.
    pub(super) fn is_awaited(&self, number: usize) -> bool {
        let served = |place: &Place<S, T>| match place.chunks.front() {
            Some(front) => front.is_some(),
            None => place.over,
        };
        self.wanted == Some(number) && self.places.get(number).is_some_and(served)
    }

    /// A source has something to read.
    pub(super) fn wake(&mut self, number: usize) {
        if let Some(place) = self.places.get_mut(number) {
            place.ready = !place.over;
        }
    }

    /// Nothing is wanted any more: gives back what is left.
    pub(super) fn close(&mut self) -> Vec<Left<S, T>> {
        self.closed = true;
        let left = |place: &mut Place<S, T>| (place.source.take(), std::mem::take(&mut place.chunks));
        self.places.iter_mut().map(left).collect()
    }

    /// Whether [`close`](Schedule::close) was called.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }
}

impl<S, T> Place<S, T> {
    /// That which has the fewest chunks ahead is read next.
    fn rank(&self) -> (usize, u64) {
        (self.chunks.len(), self.first)
    }

    /// How much is read at once, where items take `row` bytes.
    fn bounds(&self, row: usize) -> Bounds {
        // A sample that has become nothing yet may become anything.
        let outputs = if self.inputs == 0 { 1 } else { self.outputs.div_ceil(self.inputs).max(1) };
        let rows = row.saturating_mul(usize::try_from(outputs).unwrap_or(usize::MAX)).max(1);
        let items = usize::try_from(OUTPUTS / outputs).unwrap_or(usize::MAX);
        Bounds {
            samples: self.samples.min(BYTES_OUT / rows).min(items).max(1),
            bytes: if self.roomy { BYTES } else { BYTES_NEEDED },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::pool::chunk::Fed;

    const THREADS: usize = 2;

    fn schedule(sources: usize, budget: &Budget) -> Schedule<char, u64> {
        let names = ('a'..='z').take(sources);
        Schedule::new(names.map(|name| (name, budget.clone())), THREADS, 0)
    }

    fn roomy() -> Budget {
        Budget::new(1, u64::MAX)
    }

    /// Reads a chunk of this many samples, each of which becomes the number of the chunk.
    fn make(schedule: &mut Schedule<char, u64>, samples: usize) -> Option<(usize, u64)> {
        let begun = begin(schedule, samples)?;
        end(schedule, begun, samples);
        Some((begun.place, begun.number))
    }

    fn begin(schedule: &mut Schedule<char, u64>, samples: usize) -> Option<Begun> {
        let Turn { place, source, .. } = schedule.turn()?;
        schedule.read(place, source, (samples, 100 * samples, true), Then::More)
    }

    fn end(schedule: &mut Schedule<char, u64>, begun: Begun, samples: usize) {
        let items = (0..samples).map(|_| Fed::Input(begun.number)).collect();
        let chunk = Chunk { items, outputs: samples, memory: roomy().reserve(0, &Gauge::default()) };
        schedule.done(begun, chunk, samples, Duration::ZERO);
    }

    fn taken(schedule: &mut Schedule<char, u64>, source: usize) -> Option<u64> {
        match schedule.take(source) {
            Next::Chunk(chunk) => match chunk.items.first() {
                Some(Fed::Input(number)) => Some(*number),
                _ => None,
            },
            Next::Later | Next::Over => None,
        }
    }

    #[test]
    fn each_source_has_a_chunk_before_one_has_two() {
        let mut schedule = schedule(3, &roomy());
        let made: Vec<_> = std::iter::from_fn(|| make(&mut schedule, 1)).collect();
        // One for each source, and two for each thread.
        assert_eq!(made, [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (0, 2)]);
        assert!(!schedule.is_readable());
        assert_eq!(taken(&mut schedule, 1), Some(0));
        assert_eq!(make(&mut schedule, 1), Some((1, 2)), "it has the fewest now");
    }

    #[test]
    fn chunks_come_in_the_order_in_which_they_were_read() {
        let mut schedule = schedule(1, &roomy());
        let (first, second) = (begin(&mut schedule, 1).unwrap(), begin(&mut schedule, 1).unwrap());
        end(&mut schedule, second, 1);
        assert_eq!(taken(&mut schedule, 0), None);
        assert!(!schedule.is_awaited(0));
        end(&mut schedule, first, 1);
        assert!(schedule.is_awaited(0));
        assert_eq!((taken(&mut schedule, 0), taken(&mut schedule, 0)), (Some(0), Some(1)));
    }

    #[test]
    fn what_somebody_waits_for_is_read_first_and_without_room() {
        let budget = Budget::new(1, 0);
        let mut schedule = schedule(3, &budget);
        assert_eq!(taken(&mut schedule, 2), None);
        let turn = schedule.turn().unwrap();
        assert_eq!((turn.source, turn.bounds.bytes), ('c', BYTES_NEEDED));
        schedule.read(2, 'c', (1, 10, true), Then::More);
        assert_eq!((make(&mut schedule, 1), make(&mut schedule, 1)), (Some((0, 0)), Some((1, 0))));
        assert!(schedule.turn().is_none(), "a second one of each is not needed");
    }

    #[test]
    fn a_source_that_has_enough_keeps_no_other_one_from_being_read() {
        // Many items wait of the first one, and one chunk of the second is being made.
        let mut several = schedule(2, &roomy());
        make(&mut several, 2 * OUTPUTS_WAITING);
        begin(&mut several, 1).unwrap();
        assert!(several.is_readable());
        assert_eq!(several.turn().map(|turn| turn.source), Some('b'));
        // There is no memory for the next chunk of the first one, and enough for one of the second.
        let budgets = [Budget::new(1, 0), roomy()];
        let mut several = Schedule::<char, u64>::new(['a', 'b'].into_iter().zip(budgets), THREADS, 0);
        assert_eq!([make(&mut several, 1), make(&mut several, 1)], [Some((0, 0)), Some((1, 0))]);
        assert_eq!(several.turn().map(|turn| turn.source), Some('b'));
        assert!(several.turn().is_none() && several.turn().is_none() && !several.is_readable());
    }

    #[test]
    fn without_memory_there_is_a_chunk_for_each_thread() {
        let budget = Budget::new(1, 0);
        let mut one = schedule(1, &budget);
        assert_eq!(
            [make(&mut one, 1), make(&mut one, 1), make(&mut one, 1)],
            [Some((0, 0)), Some((0, 1)), None]
        );
    }

    #[test]
    fn large_rows_of_many_streams_are_made_one_by_one() {
        let sources = || (0..64).map(|_| ('a', roomy()));
        let samples = |row| Schedule::<char, u64>::new(sources(), 1, row).turn().unwrap().bounds.samples;
        assert_eq!([samples(0), samples(1 << 20), samples(1 << 30)], [FIRST_SAMPLES, 1, 1]);
    }

    #[test]
    fn a_source_that_waits_is_read_again_when_it_is_woken() {
        let mut schedule = schedule(1, &roomy());
        let wait = |schedule: &mut Schedule<char, u64>| {
            let turn = schedule.turn().unwrap();
            assert!(schedule.turn().is_none(), "one thread reads it");
            assert_eq!(schedule.read(0, turn.source, (0, 0, false), Then::Wait), None);
        };
        wait(&mut schedule);
        assert!(schedule.turn().is_none());
        schedule.wake(0);
        let turn = schedule.turn().unwrap();
        // It is woken while it is read.
        schedule.wake(0);
        schedule.read(0, turn.source, (0, 0, false), Then::Wait);
        wait(&mut schedule);
        schedule.wake(0);
        let turn = schedule.turn().unwrap();
        let begun = schedule.read(0, turn.source, (0, 0, true), Then::Over).unwrap();
        assert!(matches!(schedule.take(0), Next::Later));
        end(&mut schedule, begun, 0);
        assert!(matches!(schedule.take(0), Next::Chunk(_)));
        assert!(matches!(schedule.take(0), Next::Over));
        schedule.wake(0);
        assert!(schedule.turn().is_none());
    }

    #[test]
    fn chunks_grow_while_they_take_no_time() {
        let mut schedule = schedule(1, &roomy());
        let mut chunk = |took| {
            let Turn { source, bounds, .. } = schedule.turn().unwrap();
            let begun = schedule.read(0, source, (bounds.samples, 1, true), Then::More).unwrap();
            let chunk = Chunk {
                items: Vec::new(),
                outputs: bounds.samples,
                memory: roomy().reserve(0, &Gauge::default()),
            };
            schedule.done(begun, chunk, bounds.samples, took);
            assert!(matches!(schedule.take(0), Next::Chunk(_)));
            bounds.samples
        };
        let grown: Vec<_> = (0..8).map(|_| chunk(Duration::ZERO)).collect();
        assert_eq!(grown, [8, 16, 32, 64, 128, 256, 512, 512]);
        assert_eq!([chunk(2 * LONG), chunk(2 * LONG), chunk(SHORT), chunk(SHORT)], [512, 256, 128, 128]);
    }

    #[test]
    fn quick_samples_are_mapped_at_once_where_no_thread_is_left_without_a_source() {
        // Sources for two threads, the bytes of rows, and how long eight samples take.
        for (count, row, took, at_once) in [
            (2, 0, QUICK, true),
            (2, 0, 8 * QUICK, false),
            (1, 0, QUICK, false),
            // Where their rows are is known when all of them have been read.
            (2, 8, QUICK, false),
        ] {
            let sources = ('a'..='z').take(count).map(|name| (name, roomy()));
            let mut schedule = Schedule::<char, u64>::new(sources, THREADS, row);
            for number in 0..=count {
                let turn = schedule.turn().unwrap();
                // How long samples take is not known before each source has had a chunk.
                assert_eq!(turn.at_once, at_once && number == count, "{row} {took:?}");
                let begun = schedule.read(turn.place, turn.source, (8, 1, true), Then::More).unwrap();
                let memory = roomy().reserve(0, &Gauge::default());
                let chunk = Chunk { items: Vec::new(), outputs: 8, memory };
                schedule.done(begun, chunk, 8, took);
                assert!(matches!(schedule.take(turn.place), Next::Chunk(_)));
            }
        }
    }

    #[test]
    fn a_chunk_does_not_become_too_many_items_or_bytes() {
        let mut schedule = Schedule::<char, u64>::new([('a', roomy())], 1, BYTES_OUT / 3);
        let mut chunk = |outputs| {
            let Turn { source, bounds, .. } = schedule.turn().unwrap();
            let begun = schedule.read(0, source, (bounds.samples, 1, true), Then::More).unwrap();
            let chunk = Chunk { items: Vec::new(), outputs, memory: roomy().reserve(0, &Gauge::default()) };
            schedule.done(begun, chunk, bounds.samples, Duration::ZERO);
            assert!(matches!(schedule.take(0), Next::Chunk(_)));
            bounds.samples
        };
        assert_eq!([chunk(3), chunk(300), chunk(1)], [3, 3, 1]);
    }

    #[test]
    fn the_number_of_an_item_follows_what_samples_became() {
        let mut schedule = schedule(1, &roomy());
        let first = begin(&mut schedule, 10).unwrap();
        let second = begin(&mut schedule, 10).unwrap();
        assert_eq!((first.item, second.item), (0, 10));
        let chunk = Chunk { items: Vec::new(), outputs: 7, memory: roomy().reserve(0, &Gauge::default()) };
        schedule.done(first, chunk, 10, Duration::ZERO);
        assert_eq!(begin(&mut schedule, 10).unwrap().item, 17, "3 of 20 became nothing");
    }
}
