//! Object stores: Google Cloud Storage, S3, Azure, and anything else behind [`object_store::ObjectStore`].

use super::bucket::{Bucket, BucketClient, MakeClient, SentBytes};
use super::failure::failed;
use super::fetch::FetchLimits;
use super::key;
use super::multipart::PartsUpload;
use super::put_condition::PutCondition;
use super::source::{GetOptions, GetResponse, ObjectInfo, Refusal, Source};
use crate::secret_url::SecretUrl;
use crate::{Error, Result};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};
use std::fmt;
use std::sync::Arc;

/// Number of bytes of one part of an upload. S3 allows 10,000 parts, so an object can have up to 156 GiB.
pub(super) const PART_SIZE: usize = 16 << 20;

/// A bucket, or another object store whose objects have URLs of the form `base/key`.
pub(super) struct ObjectSource(Arc<Bucket>);

/// Leaves out the client, which has credentials.
impl fmt::Debug for ObjectSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectSource").field("base", &self.0.base).finish_non_exhaustive()
    }
}

impl ObjectSource {
    /// A bucket with the caller's own client. `base` is the bucket's URL without a `/` at the end.
    pub(super) fn new(base: SecretUrl, client: BucketClient) -> Self {
        ObjectSource(Arc::new(Bucket::new(base, client, None)))
    }

    /// A bucket with the crate's own client, which is rebuilt when a server rejects its credentials.
    pub(super) fn renewable(
        base: SecretUrl,
        client: BucketClient,
        make: MakeClient,
        limits: &FetchLimits,
    ) -> Self {
        ObjectSource(Arc::new(Bucket::new(base, client, Some((make, *limits)))))
    }
}

impl Source for ObjectSource {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let (bucket, path, url) = (Arc::clone(&self.0), self.0.path(url), url.to_owned());
        async move {
            let (path, mut client, mut options, mut renewed) = (path?, bucket.client(), options, false);
            loop {
                match bucket.get(&*client, &url, &path, &options).await {
                    Err(Refusal::Beyond) if options.range.is_some() => options.range = None,
                    Err(Refusal::Unauthenticated(error)) if !renewed => {
                        client = bucket.renew(&client).ok_or(error)?;
                        renewed = true;
                    }
                    result => return result.map_err(Error::from),
                }
            }
        }
        .boxed()
    }

    fn place(&self) -> String {
        self.0.place.clone()
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<ObjectInfo>> {
        let base = self.0.base.clone();
        let directory = self.0.key(prefix);
        let path = match key::path(directory.strip_suffix('/').unwrap_or(directory)) {
            Ok(path) => path,
            Err(error) => return stream::once(async { Err(error) }).boxed(),
        };
        let objects = self.0.client().list((!path.is_root()).then_some(&path));
        let prefix = prefix.to_owned();
        // Only the crate's own clients mark the keys that `object_store` cannot parse.
        let has_marks = self.0.make.is_some();
        objects
            .map_ok(move |meta| ObjectInfo {
                url: match has_marks {
                    true => format!("{}/{}", base.expose_secret(), key::unmark(meta.location.as_ref())),
                    false => format!("{}/{}", base.expose_secret(), meta.location),
                },
                size: meta.size,
                version: meta.e_tag,
            })
            .map_err(move |error| failed(&prefix, error))
            .boxed()
    }

    fn put(
        &self,
        url: &str,
        body: BoxStream<'static, Result<Bytes>>,
    ) -> BoxFuture<'static, Result<ObjectInfo>> {
        self.put_if(url, body, PutCondition::Any)
    }

    fn put_if(
        &self,
        url: &str,
        body: BoxStream<'static, Result<Bytes>>,
        condition: PutCondition,
    ) -> BoxFuture<'static, Result<ObjectInfo>> {
        let (bucket, path, url) = (Arc::clone(&self.0), self.0.path(url), url.to_owned());
        async move {
            let (size, version) = put(&bucket, &url, path?, body, &condition).await?;
            Ok(ObjectInfo { url, size, version })
        }
        .boxed()
    }

    fn copy(&self, from: &str, to: &str, condition: PutCondition) -> BoxFuture<'static, Result<()>> {
        let (bucket, paths, to) = (Arc::clone(&self.0), (self.0.path(from), self.0.path(to)), to.to_owned());
        async move { bucket.copy(&paths.0?, &paths.1?, &to, &condition).await }.boxed()
    }

    fn delete(&self, url: &str) -> BoxFuture<'static, Result<()>> {
        let (store, path, url) = (self.0.client(), self.0.path(url), url.to_owned());
        async move { store.delete(&path?).await.map_err(|error| failed(&url, error)) }.boxed()
    }
}

/// Uploads a body, in one request if it is smaller than a part, else in several parts. Returns the object's
/// size and version.
async fn put(
    bucket: &Bucket,
    url: &str,
    path: Path,
    mut body: BoxStream<'static, Result<Bytes>>,
    condition: &PutCondition,
) -> Result<(u64, Option<String>)> {
    let (first, more) = next_part(&mut body).await?;
    if !more {
        let size = first.content_length() as u64;
        return Ok((size, bucket.put_whole(url, &path, first, condition).await?));
    }
    let store = bucket.client();
    let mut upload = PartsUpload::begin(Arc::clone(&store), path.clone(), url).await?;
    let mut sent = SentBytes::default();
    if let Err(error) = put_parts(&mut upload, first, body, &mut sent).await {
        // Reports this error, whether or not the abort succeeds.
        upload.abort().await;
        return Err(error);
    }
    let error = match bucket.complete(url, &path, &mut upload, condition).await {
        Ok(version) => return Ok((sent.size, version)),
        Err(error) => error,
    };
    let stored = bucket.stored_or_refused(&*store, url, &path, sent, condition, error).await;
    if stored.is_err() {
        upload.abort().await;
    }
    stored.map(|version| (sent.size, version))
}

/// Sends all parts.
async fn put_parts(
    upload: &mut PartsUpload,
    first: PutPayload,
    mut body: BoxStream<'static, Result<Bytes>>,
    sent: &mut SentBytes,
) -> Result<()> {
    let mut next = Some(first);
    while let Some(part) = next.take() {
        part.iter().for_each(|chunk| sent.add(chunk));
        upload.put(part).await?;
        let (part, _) = next_part(&mut body).await?;
        next = (part.content_length() > 0).then_some(part);
    }
    Ok(())
}

/// Takes chunks until they have at least [`PART_SIZE`] bytes together. Returns these chunks, and whether more
/// chunks may follow.
async fn next_part(body: &mut BoxStream<'static, Result<Bytes>>) -> Result<(PutPayload, bool)> {
    let mut part = Vec::new();
    let mut size = 0;
    while size < PART_SIZE {
        match body.try_next().await? {
            Some(chunk) => {
                size += chunk.len();
                part.push(chunk);
            }
            None => return Ok((PutPayload::from_iter(part), false)),
        }
    }
    Ok((PutPayload::from_iter(part), true))
}
