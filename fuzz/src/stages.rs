//! Any chain of stages over any items and errors returns the same results whether it runs as an iterator or
//! as a stream. Size hints are right, no item follows the end, and no item is lost or invented.

use futures::Stream;
use shardstream::adapters::{IteratorExt, LastBatch, Partial, StreamExt};
use shardstream::codec::Decoder;
use shardstream::{Error, ErrorKind, Result, Sample};
use std::fmt::Debug;
use std::pin::Pin;
use std::task::Poll;

/// A stage on numbers, or a stage followed by its inverse, such as `batch` and `unbatch`.
#[derive(Debug, Clone, Copy)]
enum Op {
    Map { fails: u32 },
    FlatMap { of: u32 },
    Filter { drops: u32 },
    Shuffle { size: usize, initial: usize },
    Batch { size: usize, last: LastBatch },
    Slice { start: usize, end: usize },
    Chunked { length: usize, partial: Partial },
}

fn op(&[kind, a, b]: &[u8; 3]) -> Op {
    let partial = if b % 2 == 0 { Partial::Keep } else { Partial::Drop };
    let last = if b % 2 == 0 { LastBatch::Keep } else { LastBatch::Drop };
    let (a, b) = (usize::from(a % 16), usize::from(b % 16));
    match kind % 8 {
        0 => Op::Map { fails: a as u32 + 2 },
        1 => Op::FlatMap { of: a as u32 + 2 },
        2 => Op::Filter { drops: a as u32 + 2 },
        3 => Op::Shuffle { size: a, initial: b },
        4 => Op::Batch { size: a, last },
        5 => Op::Batch { size: a, last: LastBatch::Pad },
        6 => Op::Slice { start: a, end: b },
        _ => Op::Chunked { length: a, partial },
    }
}

fn fault(text: &str) -> Error {
    ErrorKind::UnsupportedCompression(text.into()).into()
}

fn fails(number: u32, at: u32) -> Result<u32> {
    if number.is_multiple_of(at) { Err(fault("map")) } else { Ok(number) }
}

/// Applies an [`Op`] to an iterator or a stream.
macro_rules! apply {
    ($boxed:path, $source:expr, $op:expr) => {{
        let source = $source.pipeline();
        match $op {
            Op::Map { fails: at } => $boxed(source.map(move |number| fails(number, at))),
            Op::FlatMap { of } => $boxed(source.flat_map(move |number: u32| {
                Ok((!number.is_multiple_of(of)).then_some(number.wrapping_add(1)))
            })),
            Op::Filter { drops } => $boxed(source.filter(move |number: &u32| !number.is_multiple_of(drops))),
            Op::Shuffle { size, initial } => $boxed(source.seed(1, 2, 3).shuffle(size).initial(initial)),
            Op::Batch { size, last } => $boxed(source.batch(size).last_batch(last).unbatch()),
            Op::Slice { start, end } => $boxed(source.slice(start..end)),
            Op::Chunked { length, partial } => {
                let documents = source.map(|number: u32| Ok(vec![number; number as usize % 5]));
                let rows = documents.chunked(length, 7).partial(partial);
                $boxed(rows.map(|row| Ok(row.into_iter().fold(0, u32::wrapping_add))))
            }
        }
    }};
}

type Iterated<T> = Box<dyn Iterator<Item = Result<T>>>;
type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T>>>>;

/// A stream of the items. If `hesitant`, every other poll returns `Pending`.
fn stream<T: 'static>(items: impl Iterator<Item = Result<T>> + 'static, hesitant: bool) -> Streamed<T> {
    let (mut items, mut polls) = (items, 0_u32);
    Box::pin(futures::stream::poll_fn(move |context| {
        polls += 1;
        if hesitant && polls % 2 == 1 {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(items.next())
    }))
}

/// Returns all results as text. Asserts that the size hint before each item is right, and that nothing
/// follows the end.
fn drain<T: Debug>(mut items: impl Iterator<Item = Result<T>>) -> Vec<String> {
    let (mut out, mut hints) = (Vec::new(), vec![items.size_hint()]);
    while let Some(item) = items.next() {
        out.push(format!("{item:?}"));
        hints.push(items.size_hint());
    }
    for (done, (lower, upper)) in hints.into_iter().enumerate() {
        let left = out.len() - done;
        assert!(lower <= left && upper.is_none_or(|upper| left <= upper), "{lower} {left} {upper:?}");
    }
    assert!(items.next().is_none() && items.size_hint() == (0, Some(0)), "nothing follows the end");
    out
}

fn drain_stream<T: Debug>(items: impl Stream<Item = Result<T>>) -> Vec<String> {
    use futures::StreamExt as _;
    futures::executor::block_on(items.map(|item| format!("{item:?}")).collect())
}

/// The expected results in any order.
struct Expected {
    numbers: Vec<u32>,
    errors: usize,
}

/// Computes the expected results. Returns `None` for chains whose results depend on the order of the items.
fn model(items: &[Option<u32>], ops: &[Op]) -> Option<Expected> {
    let mut numbers: Vec<u32> = items.iter().flatten().copied().collect();
    let mut errors = items.len() - numbers.len();
    for op in ops {
        match *op {
            Op::Map { fails: at } => {
                let before = numbers.len();
                numbers.retain(|number| fails(*number, at).is_ok());
                errors += before - numbers.len();
            }
            Op::FlatMap { of } => {
                numbers.retain(|number| !number.is_multiple_of(of));
                numbers.iter_mut().for_each(|number| *number = number.wrapping_add(1));
            }
            Op::Filter { drops } => numbers.retain(|number| !number.is_multiple_of(drops)),
            Op::Shuffle { .. } => {}
            Op::Batch { size: 1.., last: LastBatch::Keep | LastBatch::Pad } => {}
            _ => return None,
        }
    }
    numbers.sort_unstable();
    Some(Expected { numbers, errors })
}

fn numbers(items: &[Option<u32>], ops: &[Op]) {
    let owned = items.to_vec();
    let source = move || {
        let items = owned.clone().into_iter();
        items.map(|item| item.ok_or_else(|| fault("source")))
    };
    let mut iterated: Iterated<u32> = Box::new(source());
    let mut streamed = [stream(source(), false), stream(source(), true)];
    for &op in ops {
        iterated = apply!(Box::new, iterated, op);
        streamed = streamed.map(|source| -> Streamed<u32> { apply!(Box::pin, source, op) });
    }
    let out = drain(iterated);
    for stream in streamed {
        assert_eq!(drain_stream(stream), out);
    }
    if let Some(expected) = model(items, ops) {
        let mut numbers: Vec<u32> =
            out.iter().filter_map(|item| item.strip_prefix("Ok(")?.strip_suffix(')')?.parse().ok()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, expected.numbers);
        assert_eq!(out.len() - numbers.len(), expected.errors);
    }
}

/// Asserts that the stages on samples return one item for each sample, or a single error if the names are
/// invalid.
fn samples(items: &[Option<u32>], names: &[u8; 4], text: &[u8]) {
    const NAMES: [&str; 5] = ["cls", "txt", "json", "x", "seg.png"];
    let name = |at: u8| NAMES[usize::from(at) % NAMES.len()];
    let renames = [(name(names[0]), name(names[1])), (name(names[2]), name(names[3]))];
    let (owned, text) = (items.to_vec(), text.to_vec());
    let source = move || {
        let text = text.clone();
        owned.clone().into_iter().map(move |item| {
            let number = item.ok_or_else(|| fault("source"))?;
            Ok(Sample::new("k").with("cls", i64::from(number)).with("txt", text.clone()))
        })
    };
    macro_rules! chain {
        ($source:expr) => {
            $source
                .pipeline()
                .shuffle(3)
                .rename(renames)
                .decode(Decoder::new())
                .to_tuple::<(i64, String)>(["cls", "txt;x"])
        };
    }
    let out = drain(chain!(source()));
    assert!(out.len() == items.len() || out.len() == 1, "{out:?}");
    for hesitant in [false, true] {
        assert_eq!(drain_stream(chain!(stream(source(), hesitant))), out);
    }
}

/// The first byte of `data` is the number of items. The items follow, a byte each (255 is an error). The
/// other bytes are the chain, three bytes for each stage.
pub fn run(data: &[u8]) {
    let [count, data @ ..] = data else { return };
    let (items, rest) = data.split_at(usize::from(count % 64).min(data.len()));
    let items: Vec<Option<u32>> =
        items.iter().map(|byte| (*byte < 255).then_some(u32::from(*byte))).collect();
    let ops: Vec<Op> = rest.as_chunks().0.iter().take(8).map(op).collect();
    numbers(&items, &ops);
    if let Some((names, text)) = rest.split_first_chunk() {
        samples(&items, names, text);
    }
}
