use super::*;
use crate::loader::event::StreamEvent;
use crate::loader::pool::chunk_length::{
    FIRST_SAMPLES, LONG, MAX_BYTES_WITHOUT_MEMORY, MAX_ROW_BYTES, QUICK, SHORT,
};
use proptest::prelude::*;
use std::cell::Cell;

const THREADS: usize = 2;

thread_local! {
    /// Number of comparisons of sources on this thread.
    pub(super) static COMPARISONS: Cell<usize> = const { Cell::new(0) };
}

fn schedule(sources: usize, budget: &Budget) -> ReadSchedule<char, u64> {
    let names = ('a'..='z').take(sources);
    ReadSchedule::new(names.map(|name| (name, budget.clone())), THREADS, 0)
}

fn roomy() -> Budget {
    Budget::new(1, u64::MAX)
}

/// Reads and maps a chunk of `samples` samples, each of which becomes one item. The value of the items is the
/// number of the chunk. Returns the source and that number.
fn make(schedule: &mut ReadSchedule<char, u64>, samples: usize) -> Option<(usize, u64)> {
    let id = begin(schedule, samples)?;
    end(schedule, id, samples);
    Some((id.source, id.number))
}

fn begin(schedule: &mut ReadSchedule<char, u64>, samples: usize) -> Option<ChunkId> {
    let ReadTask { source, reader, .. } = schedule.next_task()?;
    schedule.put_back(source, reader, &read(samples, 100 * samples, true), SourceStatus::Ready)
}

fn read(samples: usize, bytes: usize, is_chunk: bool) -> ReadSummary {
    ReadSummary { samples, bytes, is_chunk, ended: false }
}

fn end(schedule: &mut ReadSchedule<char, u64>, id: ChunkId, samples: usize) {
    let items = (0..samples).map(|_| StreamEvent::Input(id.number)).collect();
    let chunk = Chunk { items, outputs: samples, memory: roomy().reserve(0, &Gauge::default()) };
    schedule.finish(id, chunk, samples, Duration::ZERO);
}

fn taken(schedule: &mut ReadSchedule<char, u64>, source: usize) -> Option<u64> {
    match schedule.take(source) {
        NextChunk::Ready(chunk) => match chunk.items.first() {
            Some(StreamEvent::Input(number)) => Some(*number),
            _ => None,
        },
        NextChunk::Pending | NextChunk::Ended => None,
    }
}

#[test]
fn each_source_has_a_chunk_before_one_has_two() {
    let mut schedule = schedule(3, &roomy());
    let chunks: Vec<_> = std::iter::from_fn(|| make(&mut schedule, 1)).collect();
    // One chunk for each source, and two for each thread.
    assert_eq!(chunks, [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (0, 2)]);
    assert!(!schedule.is_readable());
    assert_eq!(taken(&mut schedule, 1), Some(0));
    assert_eq!(make(&mut schedule, 1), Some((1, 2)), "source 1 has the fewest chunks now");
}

#[test]
fn chunks_are_taken_in_the_order_in_which_they_were_read() {
    let mut schedule = schedule(1, &roomy());
    let (first, second) = (begin(&mut schedule, 1).unwrap(), begin(&mut schedule, 1).unwrap());
    end(&mut schedule, second, 1);
    assert_eq!(taken(&mut schedule, 0), None);
    assert!(!schedule.ends_wait(0));
    end(&mut schedule, first, 1);
    assert!(schedule.ends_wait(0));
    assert_eq!((taken(&mut schedule, 0), taken(&mut schedule, 0)), (Some(0), Some(1)));
}

#[test]
fn an_awaited_source_is_read_first_and_without_memory() {
    let budget = Budget::new(1, 0);
    let mut schedule = schedule(3, &budget);
    assert_eq!(taken(&mut schedule, 2), None);
    let task = schedule.next_task().unwrap();
    assert_eq!((task.reader, task.limits.bytes), ('c', MAX_BYTES_WITHOUT_MEMORY));
    schedule.put_back(2, 'c', &read(1, 10, true), SourceStatus::Ready);
    assert_eq!((make(&mut schedule, 1), make(&mut schedule, 1)), (Some((0, 0)), Some((1, 0))));
    assert!(schedule.next_task().is_none(), "a second chunk of each is not needed");
}

#[test]
fn a_source_that_may_not_be_read_does_not_block_others() {
    // Many items of the first source wait, and a chunk of the second source is being mapped.
    let mut several = schedule(2, &roomy());
    make(&mut several, 2 * MAX_ITEMS_WAITING);
    begin(&mut several, 1).unwrap();
    assert!(several.is_readable());
    assert_eq!(several.next_task().map(|task| task.reader), Some('b'));
    // There is no memory for another chunk of the first source, but enough for a chunk of the second source.
    let budgets = [Budget::new(1, 0), roomy()];
    let mut several = ReadSchedule::<char, u64>::new(['a', 'b'].into_iter().zip(budgets), THREADS, 0);
    assert_eq!([make(&mut several, 1), make(&mut several, 1)], [Some((0, 0)), Some((1, 0))]);
    assert_eq!(several.next_task().map(|task| task.reader), Some('b'));
    assert!(several.next_task().is_none() && several.next_task().is_none() && !several.is_readable());
}

#[test]
fn without_memory_one_chunk_is_read_for_each_thread() {
    let budget = Budget::new(1, 0);
    let mut one = schedule(1, &budget);
    assert_eq!([make(&mut one, 1), make(&mut one, 1), make(&mut one, 1)], [Some((0, 0)), Some((0, 1)), None]);
}

#[test]
fn large_rows_of_many_streams_are_mapped_one_by_one() {
    let sources = || (0..64).map(|_| ('a', roomy()));
    let samples = |row| ReadSchedule::<char, u64>::new(sources(), 1, row).next_task().unwrap().limits.samples;
    assert_eq!([samples(0), samples(1 << 20), samples(1 << 30)], [FIRST_SAMPLES, 1, 1]);
}

#[test]
fn a_pending_source_is_read_again_when_it_is_woken() {
    let mut schedule = schedule(1, &roomy());
    let wait = |schedule: &mut ReadSchedule<char, u64>| {
        let task = schedule.next_task().unwrap();
        assert!(schedule.next_task().is_none(), "a thread reads the source");
        assert_eq!(schedule.put_back(0, task.reader, &read(0, 0, false), SourceStatus::Pending), None);
    };
    wait(&mut schedule);
    assert!(schedule.next_task().is_none());
    schedule.wake(0);
    let task = schedule.next_task().unwrap();
    // The source is woken while a thread reads it.
    schedule.wake(0);
    schedule.put_back(0, task.reader, &read(0, 0, false), SourceStatus::Pending);
    wait(&mut schedule);
    schedule.wake(0);
    let task = schedule.next_task().unwrap();
    let id = schedule.put_back(0, task.reader, &read(0, 0, true), SourceStatus::Ended).unwrap();
    assert!(matches!(schedule.take(0), NextChunk::Pending));
    end(&mut schedule, id, 0);
    assert!(matches!(schedule.take(0), NextChunk::Ready(_)));
    assert!(matches!(schedule.take(0), NextChunk::Ended));
    schedule.wake(0);
    assert!(schedule.next_task().is_none());
}

#[test]
fn chunks_grow_while_they_are_fast() {
    let mut schedule = schedule(1, &roomy());
    let mut chunk = |took| {
        let ReadTask { reader, limits, .. } = schedule.next_task().unwrap();
        let id = schedule.put_back(0, reader, &read(limits.samples, 1, true), SourceStatus::Ready).unwrap();
        let chunk = Chunk {
            items: Vec::new(),
            outputs: limits.samples,
            memory: roomy().reserve(0, &Gauge::default()),
        };
        schedule.finish(id, chunk, limits.samples, took);
        assert!(matches!(schedule.take(0), NextChunk::Ready(_)));
        limits.samples
    };
    let grown: Vec<_> = (0..8).map(|_| chunk(Duration::ZERO)).collect();
    assert_eq!(grown, [8, 16, 32, 64, 128, 256, 512, 512]);
    assert_eq!([chunk(2 * LONG), chunk(2 * LONG), chunk(SHORT), chunk(SHORT)], [512, 256, 128, 128]);
}

#[test]
fn quick_samples_are_mapped_while_reading_if_every_thread_has_a_source() {
    // Number of sources for two threads, bytes of a row, and the time for eight samples.
    for (count, row, took, maps_at_once) in [
        (2, 0, QUICK, true),
        (2, 0, 8 * QUICK, false),
        (1, 0, QUICK, false),
        // Slots are known only when the whole chunk has been read.
        (2, 8, QUICK, false),
    ] {
        let sources = ('a'..='z').take(count).map(|name| (name, roomy()));
        let mut schedule = ReadSchedule::<char, u64>::new(sources, THREADS, row);
        for number in 0..=count {
            let task = schedule.next_task().unwrap();
            // The time for a sample is known after the first chunk of each source.
            assert_eq!(task.maps_at_once, maps_at_once && number == count, "{row} {took:?}");
            let id =
                schedule.put_back(task.source, task.reader, &read(8, 1, true), SourceStatus::Ready).unwrap();
            let memory = roomy().reserve(0, &Gauge::default());
            let chunk = Chunk { items: Vec::new(), outputs: 8, memory };
            schedule.finish(id, chunk, 8, took);
            assert!(matches!(schedule.take(task.source), NextChunk::Ready(_)));
        }
    }
}

#[test]
fn the_items_and_bytes_of_a_chunk_are_limited() {
    let mut schedule = ReadSchedule::<char, u64>::new([('a', roomy())], 1, MAX_ROW_BYTES / 3);
    let mut chunk = |outputs| {
        let ReadTask { reader, limits, .. } = schedule.next_task().unwrap();
        let id = schedule.put_back(0, reader, &read(limits.samples, 1, true), SourceStatus::Ready).unwrap();
        let chunk = Chunk { items: Vec::new(), outputs, memory: roomy().reserve(0, &Gauge::default()) };
        schedule.finish(id, chunk, limits.samples, Duration::ZERO);
        assert!(matches!(schedule.take(0), NextChunk::Ready(_)));
        limits.samples
    };
    assert_eq!([chunk(3), chunk(300), chunk(1)], [3, 3, 1]);
}

#[test]
fn the_number_of_the_next_item_follows_the_number_of_outputs() {
    let mut schedule = schedule(1, &roomy());
    let first = begin(&mut schedule, 10).unwrap();
    let second = begin(&mut schedule, 10).unwrap();
    assert_eq!((first.first_item, second.first_item), (0, 10));
    let chunk = Chunk { items: Vec::new(), outputs: 7, memory: roomy().reserve(0, &Gauge::default()) };
    schedule.finish(first, chunk, 10, Duration::ZERO);
    assert_eq!(begin(&mut schedule, 10).unwrap().first_item, 17, "3 of 20 samples became no item");
}

#[test]
fn the_work_for_a_chunk_does_not_grow_with_the_number_of_sources() {
    let comparisons = |sources: usize, budget: &Budget| {
        let readers = (0..sources).map(|_| ('a', budget.clone()));
        let mut schedule = ReadSchedule::<char, u64>::new(readers, THREADS, 0);
        while make(&mut schedule, 1).is_some() {}
        let chunks = 1000;
        COMPARISONS.set(0);
        for chunk in 0..chunks {
            assert_eq!(taken(&mut schedule, chunk % sources), Some((chunk / sources) as u64));
            assert!(schedule.is_readable() && make(&mut schedule, 1).is_some());
        }
        COMPARISONS.get() / chunks
    };
    for budget in [roomy(), Budget::new(1, 0)] {
        let (few, many) = (comparisons(10, &budget), comparisons(10_000, &budget));
        assert!(few > 0 && many < 10 * few.max(30), "{few} comparisons with 10 sources, {many} with 10,000");
    }
}

/// The source to read next, by a search of all sources.
fn scanned(schedule: &ReadSchedule<char, u64>) -> Option<usize> {
    let may_read = |number: &usize| {
        let source = &schedule.sources[*number];
        let has_room = schedule.ahead < schedule.max_ahead && source.items_waiting < MAX_ITEMS_WAITING;
        source.is_readable && source.reader.is_some() && (source.chunks.is_empty() || has_room)
    };
    let awaited = schedule.awaited.filter(|number| schedule.sources[*number].chunks.is_empty());
    let key =
        |number: &usize| (schedule.sources[*number].chunks.len(), schedule.sources[*number].first_chunk);
    awaited.filter(may_read).or_else(|| (0..schedule.sources.len()).filter(may_read).min_by_key(key))
}

proptest! {
    #[test]
    fn the_next_source_equals_the_result_of_a_search_of_all_sources(
        sources in 1usize..6, steps in prop::collection::vec((0u8..6, 0usize..6, 0usize..900), 0..80),
    ) {
        let mut schedule = schedule(sources, &roomy());
        let (mut reading, mut mapping) = (Vec::new(), Vec::new());
        for (step, pick, samples) in steps {
            match step {
                0 | 1 => reading.extend(schedule.next_task().map(|task| (task.source, task.reader))),
                2 if !reading.is_empty() => {
                    let (source, reader) = reading.remove(pick % reading.len());
                    let status = match pick {
                        0 => SourceStatus::Pending,
                        1 => SourceStatus::Ended,
                        _ => SourceStatus::Ready,
                    };
                    let id = schedule.put_back(source, reader, &read(samples, samples, samples > 0), status);
                    mapping.extend(id.map(|id| (id, samples)));
                }
                3 if !mapping.is_empty() => {
                    let (id, samples) = mapping.remove(pick % mapping.len());
                    end(&mut schedule, id, samples);
                }
                4 => drop(schedule.take(pick % sources)),
                5 => schedule.wake(pick % sources),
                _ => {}
            }
            prop_assert_eq!(schedule.next_source(), scanned(&schedule));
        }
    }
}
