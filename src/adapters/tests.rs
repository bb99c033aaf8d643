//! Properties of all adapters.

use super::testing::{fault, oks};
use super::*;
use crate::{Result, Sample};
use proptest::prelude::*;
use std::cell::Cell;

type Samples = std::vec::IntoIter<Result<Sample>>;
type Numbers = std::vec::IntoIter<Result<i32>>;

/// If both traits of this module and the traits of `futures` are in scope, no method may be ambiguous, not
/// even on a [`Background`].
#[test]
fn all_traits_can_be_imported_together() {
    use futures::{StreamExt as _, TryStreamExt as _};

    let items = oks(0..20)
        .into_iter()
        .pipeline()
        .filter(|n| n % 2 == 0)
        .prefetch(2)
        .map(|n| Ok(n + 1))
        .batch(3)
        .slice(1..);
    let stream = items.par_map(2, Ok).into_stream().unbatch().map(Ok).results().map(|n| n);
    let out: Vec<i32> = futures::executor::block_on(stream.try_collect()).unwrap();
    assert_eq!(out, [7, 9, 11, 13, 15, 17, 19]);
}

/// A Tokio task must yield after a limited number of operations. If another executor runs inside the task,
/// the task never yields. A stream that respects the limit would then wait forever.
#[test]
fn another_executor_inside_a_tokio_task_reads_long_streams() {
    use futures::executor::block_on_stream;
    use tokio::runtime::Builder;

    let numbers = || (0..300).map(Ok).pipeline();
    let read = move || {
        assert_eq!(block_on_stream(numbers().prefetch(2).into_stream()).count(), 300);
        assert_eq!(block_on_stream(numbers().par_map(2, Ok).into_stream()).count(), 300);
    };
    for mut builder in [Builder::new_current_thread(), Builder::new_multi_thread()] {
        let (done, waited) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = builder.build().unwrap();
            runtime.block_on(async { runtime.spawn(async move { read() }).await.unwrap() });
            done.send(()).unwrap();
        });
        waited.recv_timeout(std::time::Duration::from_secs(60)).expect("it waits forever");
    }
}

#[test]
fn adapters_are_send_if_the_source_is() {
    fn is_send<T: Send>() {}
    fn is_unpin<T: Unpin>() {}
    is_send::<Staged<Samples, Shuffle<Sample>>>();
    is_send::<Staged<Samples, Rename>>();
    // The outputs need not be `Send`.
    is_send::<Staged<Samples, ToTuple<(i64, crate::Value)>>>();
    is_send::<Staged<Numbers, Map<fn(i32) -> Result<i32>>>>();
    is_send::<Staged<Numbers, Filtered<fn(&i32) -> bool>>>();
    is_send::<Pipeline<Numbers, std::rc::Rc<i32>>>();
    is_send::<Staged<Staged<Numbers, Batched<i32>>, Unbatched<i32>>>();
    is_send::<Staged<Numbers, Sliced>>();
    is_send::<Mix<Numbers>>();
    is_send::<Background<i32>>();
    is_send::<IntoStream<Background<i32>>>();
    is_unpin::<IntoStream<Background<std::marker::PhantomPinned>>>();
}

#[test]
fn adapters_ask_for_one_item_only_when_they_are_asked() {
    let requests = Cell::new(0);
    let count = || requests.set(requests.get() + 1);
    let numbers = || oks(0..10).into_iter().inspect(|_| count()).pipeline();
    let samples = || (0..10).map(|n| Ok(Sample::new("k").with("cls", n))).inspect(|_| count()).pipeline();
    type Next<'a> = Box<dyn FnOnce() -> bool + 'a>;
    let mut one_each: Vec<(&str, Next<'_>)> = Vec::new();
    macro_rules! lazy {
        ($($name:literal: $made:expr),* $(,)?) => {$({
            let mut made = $made;
            one_each.push(($name, Box::new(move || made.next().is_some())));
        })*};
    }
    lazy! {
        "map": numbers().map(Ok),
        "filter": numbers().filter(|_| true),
        "filter_map": numbers().filter_map(|n| Ok(Some(n))),
        "flat_map": numbers().flat_map(|n| Ok([n])),
        "shuffle": samples().shuffle(1),
        "rename": samples().rename([("y", "cls")]),
        "to_tuple": samples().to_tuple::<(i64,)>(["cls"]),
        "decode": samples().decode(crate::codec::Decoder::new()),
        "batch": numbers().batch(1),
        "unbatch": numbers().map(|n| Ok(Batch::from(vec![n]))).unbatch(),
        "slice": numbers().slice(..),
        "round_robin": round_robin([numbers()]),
        "random_mix": random_mix([(numbers(), 1)], 0).unwrap(),
    }
    assert_eq!(requests.get(), 0, "making an adapter asks for no item");
    for (done, (name, next)) in one_each.into_iter().enumerate() {
        assert!(next(), "{name}");
        assert_eq!(requests.get(), done + 1, "{name} asks for one item to return one");
    }
}

#[test]
fn adapters_return_none_forever_after_the_end() {
    // This source returns more items after it has returned `None`.
    let mut turn = 0;
    let source = std::iter::from_fn(|| {
        turn += 1;
        (turn % 4 != 0).then_some(Ok(turn))
    });
    let mut batches = source.pipeline().batch(2).slice(..);
    assert_eq!(batches.by_ref().count(), 2);
    assert!(batches.next().is_none());
    assert_eq!(batches.size_hint(), (0, Some(0)));
}

#[test]
fn debug_output_contains_the_stages_and_their_options() {
    let shown = format!(
        "{:?}",
        oks(0..2).into_iter().pipeline().map(Ok).shuffle(7).batch(3).last_batch(LastBatch::Pad)
    );
    for part in ["Map", "Shuffle { size: 7, buffered: 0", "Batched { size: 3, last: Pad"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
}

proptest! {
    #[test]
    fn size_hints_are_correct_before_every_item(
        items in proptest::collection::vec(any::<bool>(), 0..20),
        n in 0usize..6,
        start in 0usize..9,
        len in 0usize..9,
    ) {
        let source = || items.clone().into_iter().map(|ok| if ok { Ok(1) } else { fault("x") }).pipeline();
        check_size_hints(|| source().map(Ok))?;
        check_size_hints(|| source().filter(|_| n == 0))?;
        check_size_hints(|| source().filter_map(|item| Ok((n == 0).then_some(item))))?;
        check_size_hints(|| source().flat_map(|_| Ok(0..n)))?;
        check_size_hints(|| source().shuffle(n).initial(start))?;
        check_size_hints(|| source().batch(n))?;
        for last in [LastBatch::Drop, LastBatch::Pad] {
            check_size_hints(|| source().batch(n).last_batch(last))?;
            check_size_hints(|| source().batch(n).last_batch(last).unbatch())?;
        }
        check_size_hints(|| source().slice(start..start + len))?;
        check_size_hints(|| source().slice(start..))?;
        check_size_hints(|| round_robin([source(), source()]))?;
    }
}

/// Checks the size hint before every item and after the last item.
fn check_size_hints<I: Iterator>(make: impl Fn() -> I) -> std::result::Result<(), TestCaseError> {
    let mut left = make().count();
    let mut items = make();
    loop {
        let (least, most) = items.size_hint();
        prop_assert!(least <= left && most.is_none_or(|most| left <= most), "{least} {left} {most:?}");
        if items.next().is_none() {
            return Ok(());
        }
        left -= 1;
    }
}
