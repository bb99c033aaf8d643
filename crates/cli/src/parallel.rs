//! Processes several shards at a time, and returns the results in the order of the list.

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use shardstream::prelude::*;
use shardstream::{Result, SecretUrl};

/// Calls `work` for each shard and its number in the list, on `threads` threads. Calls `take` for each
/// result, in the order of the list, on the calling thread.
///
/// `work` should check the interrupt between samples.
///
/// # Errors
/// The first error of `work` or `take`, and [`Failure::Interrupted`].
pub(crate) fn for_each_shard<T: Send + 'static>(
    shards: &ShardList,
    threads: usize,
    interrupt: &Interrupt,
    work: impl Fn(usize, &SecretUrl) -> Result<T> + Send + Sync + 'static,
    take: impl FnMut(usize, T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let list = shards.clone();
    for_each(shards.len(), threads, interrupt, move |number| work(number, &list[number]), take)
}

/// Does the same as [`for_each_shard`], for the numbers below `count`.
///
/// # Errors
/// See [`for_each_shard`].
pub(crate) fn for_each<T: Send + 'static>(
    count: usize,
    threads: usize,
    interrupt: &Interrupt,
    work: impl Fn(usize) -> Result<T> + Send + Sync + 'static,
    mut take: impl FnMut(usize, T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let flag = interrupt.clone();
    let numbers = (0..count).take_while(move |_| !flag.is_set()).map(Ok);
    let done = numbers.pipeline().par_map(threads, work);
    for (number, item) in done.enumerate() {
        interrupt.check()?;
        take(number, item?)?;
    }
    interrupt.check()
}
