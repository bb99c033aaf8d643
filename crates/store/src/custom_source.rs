//! Wraps sources that the caller implements, so that their errors do not show the secrets of a URL.

use super::put_condition::PutCondition;
use super::source::{GetOptions, GetResponse, ObjectInfo, Source};
use crate::secret_url::SentSecrets;
use crate::{Error, Result};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt, TryFutureExt};
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use std::sync::Arc;

/// A source that the caller implements. The text of its errors may repeat secrets of the URL. This type
/// therefore stores these secrets with each error, so that the error's `Display` and `Debug` can hide them.
#[derive(Debug)]
pub(super) struct CustomSource(pub(super) Arc<dyn Source>);

fn repeating(url: &str) -> impl Fn(Error) -> Error + Send + 'static {
    let sent = SentSecrets::of_url(url);
    move |error| error.repeating(sent.clone())
}

impl Source for CustomSource {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let (mark_head, mark_body) = (repeating(url), repeating(url));
        let response = self.0.get(url, options).map_err(mark_head);
        let checked = response.map_ok(|GetResponse { size, range, version, checksum, body }| {
            let body = body.map_err(mark_body).boxed();
            GetResponse { size, range, version, checksum, body }
        });
        checked.boxed()
    }

    fn place(&self) -> String {
        self.0.place()
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<ObjectInfo>> {
        self.0.list(prefix).map_err(repeating(prefix)).boxed()
    }

    fn put(
        &self,
        url: &str,
        body: BoxStream<'static, Result<Bytes>>,
    ) -> BoxFuture<'static, Result<ObjectInfo>> {
        self.0.put(url, body).map_err(repeating(url)).boxed()
    }

    fn put_if(
        &self,
        url: &str,
        body: BoxStream<'static, Result<Bytes>>,
        condition: PutCondition,
    ) -> BoxFuture<'static, Result<ObjectInfo>> {
        self.0.put_if(url, body, condition).map_err(repeating(url)).boxed()
    }

    fn copy(&self, from: &str, to: &str, condition: PutCondition) -> BoxFuture<'static, Result<()>> {
        let (mark_source, mark_copy) = (repeating(from), repeating(to));
        self.0.copy(from, to, condition).map_err(mark_source).map_err(mark_copy).boxed()
    }

    fn delete(&self, url: &str) -> BoxFuture<'static, Result<()>> {
        self.0.delete(url).map_err(repeating(url)).boxed()
    }
}
