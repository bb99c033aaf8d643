//! Requests, and second requests for what is late.

use super::object::Reading;
use super::stall::timed;
use crate::Result;
use crate::store::meter::Answering;
use crate::store::source::{GetOptions, GetResponse};
use crate::telemetry::log;
use bytes::Bytes;
use futures::future::{self, Either};
use futures::stream::{BoxStream, StreamExt};
use std::pin::pin;
use std::time::Duration;

/// Only ranges up to this size are asked for twice.
pub(super) const SMALL: u64 = 8 << 20;

/// Sends a request, which may take as long as a response may stall. If it is late and may be hedged, another
/// is sent, and the one that is answered first counts: whatever is checked of a response is checked of this
/// one.
pub(super) async fn get(object: &Reading, options: GetOptions) -> Result<GetResponse> {
    let first = request(object, options.clone());
    let Some(late) = may_hedge(object, &options) else { return first.await };
    let mut first = pin!(first);
    match future::select(first.as_mut(), pin!(tokio::time::sleep(late))).await {
        Either::Left((response, _)) => return response,
        Either::Right(_) => {}
    }
    if !object.meter.try_hedge(range_of(&options), object.limits.hedge) {
        return first.await;
    }
    log!(DEBUG, "a late request is sent a second time", url = object.url, after_ms = late.as_millis());
    let second = pin!(request(object, options));
    match future::select(first, second).await {
        Either::Left((Ok(response), _)) | Either::Right((Ok(response), _)) => Ok(response),
        // One that failed leaves it to the other.
        Either::Left((Err(_), other)) => other.await,
        Either::Right((Err(_), other)) => other.await,
    }
}

/// How long to wait before a second request, if there may be one.
fn may_hedge(object: &Reading, options: &GetOptions) -> Option<Duration> {
    let may = object.limits.hedge > 0.0 && range_of(options) <= SMALL;
    may.then(|| object.meter.late()).flatten()
}

fn range_of(options: &GetOptions) -> u64 {
    options.range.as_ref().map_or(u64::MAX, |range| range.end - range.start)
}

async fn request(object: &Reading, options: GetOptions) -> Result<GetResponse> {
    let answering = object.meter.request(&object.url, options.range.clone());
    let budget = &object.place.budget;
    let mut response =
        pin!(timed(object.limits.stall, object.source.get(object.url.expose_secret(), options)));
    let response = match budget.patience() {
        Some(patience) => match tokio::time::timeout(patience, response.as_mut()).await {
            Ok(response) => response,
            Err(_) => {
                log!(DEBUG, "a response is late", url = object.url, after_ms = patience.as_millis());
                budget.late();
                response.await
            }
        },
        None => response.await,
    }?;
    budget.answered(answering.answered());
    Ok(GetResponse { body: counted(answering, response.body), ..response })
}

/// The request counts as being answered as long as its body is held.
fn counted(
    answering: Answering,
    body: BoxStream<'static, Result<Bytes>>,
) -> BoxStream<'static, Result<Bytes>> {
    body.map(move |chunk| {
        answering.received(chunk.as_ref().map_or(0, Bytes::len));
        chunk
    })
    .boxed()
}
