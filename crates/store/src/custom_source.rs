//! Sources of the caller's own: their errors enter the crate here.

use super::put_condition::PutCondition;
use super::source::{GetOptions, GetResponse, ObjectInfo, Source};
use crate::secret_url::SentSecrets;
use crate::{Error, Result};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt, TryFutureExt};
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use std::sync::Arc;

/// A source of the caller's own. The text of its errors is foreign: it may repeat the URL that it was given.
#[derive(Debug)]
pub(super) struct CustomSource(pub(super) Arc<dyn Source>);

fn repeating(url: &str) -> impl Fn(Error) -> Error + Send + 'static {
    let sent = SentSecrets::of_url(url);
    move |error| error.repeating(sent.clone())
}

impl Source for CustomSource {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let (of_head, of_body) = (repeating(url), repeating(url));
        let response = self.0.get(url, options).map_err(of_head);
        let checked = response.map_ok(|GetResponse { size, range, version, checksum, body }| {
            let body = body.map_err(of_body).boxed();
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
        let (of_source, of_copy) = (repeating(from), repeating(to));
        self.0.copy(from, to, condition).map_err(of_source).map_err(of_copy).boxed()
    }

    fn delete(&self, url: &str) -> BoxFuture<'static, Result<()>> {
        self.0.delete(url).map_err(repeating(url)).boxed()
    }
}
