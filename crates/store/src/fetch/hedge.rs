//! Requests, and hedging: a late request is sent a second time.

use super::stall::with_stall_timeout;
use super::target::QueuedTarget;
use crate::Result;
use crate::meter::RequestTimer;
use crate::source::{GetOptions, GetResponse};
use crate::telemetry::log;
use bytes::Bytes;
use futures::future::{self, Either};
use futures::stream::{BoxStream, Stream, StreamExt};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

/// Maximum size in bytes of a range that is requested twice.
const MAX_HEDGED: u64 = 8 << 20;

/// Sends a request, with the stall limit as its timeout. If the response is late and may be hedged, sends a
/// second request, and returns the response that begins first. The caller checks only that response.
/// `attempt` is the number of this try, from 1.
pub(super) async fn get(target: &QueuedTarget, options: GetOptions, attempt: u32) -> Result<GetResponse> {
    let first = request(target, options.clone(), attempt);
    let Some(late) = may_hedge(target, &options) else { return first.await };
    let mut first = pin!(first);
    match future::select(first.as_mut(), pin!(tokio::time::sleep(late))).await {
        Either::Left((response, _)) => return response,
        Either::Right(_) => {}
    }
    if !target.meter.try_hedge(length(&options), target.limits.hedge) {
        return first.await;
    }
    log!(DEBUG, "a late request is sent a second time", url = target.url, after_ms = late.as_millis());
    let second = pin!(request(target, options, attempt));
    match future::select(first, second).await {
        Either::Left((Ok(response), _)) | Either::Right((Ok(response), _)) => Ok(response),
        // If one request fails, the result of the other request is returned.
        Either::Left((Err(_), other)) => other.await,
        Either::Right((Err(_), other)) => other.await,
    }
}

/// How long to wait for a response before a second request is sent; `None` if no second request may be sent.
fn may_hedge(target: &QueuedTarget, options: &GetOptions) -> Option<Duration> {
    let is_free = target.meter.host_pause().left().is_zero();
    let may = target.limits.hedge > 0.0 && length(options) <= MAX_HEDGED && is_free;
    may.then(|| target.meter.late()).flatten()
}

/// Length of the requested range in bytes; [`u64::MAX`] for a whole object.
fn length(options: &GetOptions) -> u64 {
    options.range.as_ref().map_or(u64::MAX, |range| range.end - range.start)
}

async fn request(target: &QueuedTarget, options: GetOptions, attempt: u32) -> Result<GetResponse> {
    let mut timer = target.meter.request(&target.url, options.range.clone(), attempt);
    let budget = &target.queued.budget;
    let mut response =
        pin!(with_stall_timeout(target.limits.stall, target.source.get(target.url.expose_secret(), options)));
    let response = match budget.first_response_timeout() {
        Some(timeout) => match tokio::time::timeout(timeout, response.as_mut()).await {
            Ok(response) => response,
            Err(_) => {
                log!(DEBUG, "a response is late", url = target.url, after_ms = timeout.as_millis());
                budget.first_response_is_late();
                response.await
            }
        },
        None => response.await,
    }
    .inspect_err(|error| timer.failed(error))?;
    budget.record_first_byte(timer.answered());
    Ok(GetResponse { body: CountedBody { timer, body: response.body }.boxed(), ..response })
}

/// A body whose bytes are counted. Its request counts as in progress until the body is dropped.
struct CountedBody {
    timer: RequestTimer,
    body: BoxStream<'static, Result<Bytes>>,
}

impl Stream for CountedBody {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let chunk = std::task::ready!(self.body.poll_next_unpin(cx));
        match &chunk {
            Some(Ok(chunk)) => self.timer.received(chunk.len()),
            Some(Err(error)) => self.timer.failed(error),
            None => self.timer.done(),
        }
        Poll::Ready(chunk)
    }
}
