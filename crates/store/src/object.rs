//! Object stores: Google Cloud Storage, S3, Azure, and anything else behind [`object_store::ObjectStore`].

use super::checksum::Checksum;
#[cfg(feature = "cloud")]
use super::connector::{self, Carried};
use super::failure::{body_fault, failed, refusal};
use super::fetch::FetchLimits;
use super::key;
#[cfg(feature = "cloud")]
use super::location::Failure;
use super::multipart::PartsUpload;
use super::object_url::ObjectUrl;
use super::source::{GetOptions, GetResponse, ObjectInfo, Refusal, Source};
#[cfg(feature = "cloud")]
use super::{cloud, response};
#[cfg(feature = "cloud")]
use crate::ErrorKind;
use crate::secret_url::SecretUrl;
use crate::{Error, Result};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes in one part of an upload. S3 allows 10,000 parts, so objects can have 160 GiB.
const PART_SIZE: usize = 16 << 20;
/// Time in which the object of an upload whose end is not known is compared with what was sent, and the
/// number of its bytes for which a second more is given.
const COMPARE_TIME: Duration = Duration::from_secs(60);
const MIN_COMPARE_RATE: u64 = 4 << 20;
/// Time between two readings of the credentials.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(5);

/// Makes the client of a bucket from its URL; `None` where there is none for such URLs.
type MakeClient = fn(&str, &FetchLimits) -> Result<Option<BucketClient>>;
type BucketClient = Arc<dyn ObjectStore>;

/// A bucket, or another object store whose objects have URLs of the form `base/key`.
pub(super) struct ObjectSource(Arc<Bucket>);

/// Shows no client: clients have credentials.
impl fmt::Debug for ObjectSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectSource").field("base", &self.0.base).finish_non_exhaustive()
    }
}

struct Bucket {
    base: SecretUrl,
    /// The account or container that the client names, and the endpoint that the environment names.
    place: String,
    client: Mutex<RenewableClient>,
    /// How a new client is made, unless the client is the caller's own.
    make: Option<(MakeClient, FetchLimits)>,
}

struct RenewableClient {
    client: BucketClient,
    renewed_at: Option<Instant>,
}

impl Bucket {
    fn lock(&self) -> MutexGuard<'_, RenewableClient> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client(&self) -> BucketClient {
        Arc::clone(&self.lock().client)
    }

    /// Replaces the client `refused`, whose credentials are not valid any more: the new one reads them again
    /// from their source. `None` if they were read a moment ago, or if the client is the caller's own.
    fn renew(&self, refused: &BucketClient) -> Option<BucketClient> {
        let mut current = self.lock();
        if Arc::ptr_eq(&current.client, refused) {
            if current.renewed_at.is_some_and(|at| at.elapsed() < RENEWAL_INTERVAL) {
                return None;
            }
            current.renewed_at = Some(Instant::now());
            let (make, limits) = self.make?;
            current.client = make(self.base.expose_secret(), &limits).ok()??;
        }
        Some(Arc::clone(&current.client))
    }

    /// The key as a path of `object_store`. Keys appear in URLs as they are, without percent-encoding, as in
    /// all tools for `gs://` and `s3://`.
    fn path(&self, url: &str) -> Result<Path> {
        key::path(self.key(url))
    }

    fn key<'a>(&self, url: &'a str) -> &'a str {
        let key = url.strip_prefix(self.base.expose_secret()).unwrap_or(url);
        key.strip_prefix('/').unwrap_or(key)
    }
}

impl Bucket {
    #[cfg_attr(not(feature = "cloud"), allow(unused_variables, reason = "for clients that the crate makes"))]
    async fn get(
        &self,
        client: &dyn ObjectStore,
        url: &str,
        path: &Path,
        options: &GetOptions,
    ) -> Result<GetResponse, Refusal> {
        let GetOptions { range, if_version } = options;
        #[allow(unused_mut, reason = "only clients that the crate makes look at the mark")]
        let mut request = object_store::GetOptions {
            range: range.clone().map(Into::into),
            if_match: if_version.clone(),
            ..Default::default()
        };
        #[cfg(feature = "cloud")]
        connector::mark_bytes_request(&mut request);
        #[cfg(feature = "cloud")]
        let result = connector::reading(client.get_opts(path, request)).await;
        #[cfg(not(feature = "cloud"))]
        let result = client.get_opts(path, request).await;
        #[cfg(feature = "cloud")]
        match result.as_ref().err().and_then(|error| connector::carried(error)) {
            Some(Carried::Response(response)) => {
                return response::read(*response, url, options, response::etag).await;
            }
            Some(Carried::Error(error)) => return Err(Refusal::Other(error)),
            None => {}
        }
        let result = result.map_err(|error| match error {
            // A client that the crate made and that has not sent the request could not sign it.
            #[cfg(feature = "cloud")]
            object_store::Error::Generic { .. } if self.make.is_some() => {
                let why = format!(
                    "there are no credentials ({}): {}",
                    Failure::of(url, &error),
                    cloud::hint(self.base.expose_secret())
                );
                Refusal::Other(ErrorKind::Denied(why.into()).into())
            }
            error => refusal(url, error, options),
        })?;
        let mut response = GetResponse::new(stream::empty().boxed()).with_size(result.meta.size);
        response.version = result.meta.e_tag.clone();
        response.range = range.is_some().then(|| result.range.clone());
        // The caller's store repeats requests by itself; the reader of ranges continues a body that breaks
        // off.
        let url = url.to_owned();
        response.body = result.into_stream().map_err(move |error| body_fault(&url, &error)).boxed();
        Ok(response)
    }
}

impl Bucket {
    /// The version of the object if it is `sent`, after the last request of an upload has failed. The request
    /// is repeated if its response is lost, and the answer to the second one is that there is no such upload,
    /// although the first one has made the object.
    ///
    /// The bytes are compared, by a checksum of the store if it has one: an earlier object of this name may
    /// have the same size.
    async fn stored(
        &self,
        client: &dyn ObjectStore,
        url: &str,
        path: &Path,
        sent: SentBytes,
    ) -> Option<Option<String>> {
        let comparing = async {
            let response = self.get(client, url, path, &GetOptions::default()).await.ok()?;
            let GetResponse { size, version, checksum, mut body, .. } = response;
            if size.is_some_and(|size| size != sent.size) {
                return None;
            }
            if let Some(Checksum::Crc32c(sum)) = checksum {
                return (size == Some(sent.size) && sum == sent.sum).then_some(version);
            }
            let mut found = SentBytes::default();
            while let Some(chunk) = body.try_next().await.ok()? {
                found.add(&chunk);
            }
            (found == sent).then_some(version)
        };
        let time = COMPARE_TIME + Duration::from_secs(sent.size / MIN_COMPARE_RATE);
        tokio::time::timeout(time, comparing).await.ok()?
    }
}

impl ObjectSource {
    /// A bucket with the caller's own client. `base` is its URL without a `/` at the end.
    pub(super) fn new(base: SecretUrl, client: BucketClient) -> Self {
        Self::with_client(base, client, None)
    }

    /// A bucket whose client is made anew when its credentials have expired.
    pub(super) fn renewable(
        base: SecretUrl,
        client: BucketClient,
        make: MakeClient,
        limits: &FetchLimits,
    ) -> Self {
        Self::with_client(base, client, Some((make, *limits)))
    }

    fn with_client(base: SecretUrl, client: BucketClient, make: Option<(MakeClient, FetchLimits)>) -> Self {
        let endpoint = make.and_then(|_| ObjectUrl::parse(base.expose_secret()).endpoint());
        let place = format!("{client} {}", endpoint.unwrap_or_default());
        let client = Mutex::new(RenewableClient { client, renewed_at: None });
        ObjectSource(Arc::new(Bucket { base, place, client, make }))
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
        // Only the crate's own clients mark keys that `object_store` could not read.
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
        let (bucket, path, url) = (Arc::clone(&self.0), self.0.path(url), url.to_owned());
        async move {
            let (size, version) = put(&bucket, &url, path?, body).await?;
            Ok(ObjectInfo { url, size, version })
        }
        .boxed()
    }

    fn delete(&self, url: &str) -> BoxFuture<'static, Result<()>> {
        let (store, path, url) = (self.0.client(), self.0.path(url), url.to_owned());
        async move { store.delete(&path?).await.map_err(|error| failed(&url, error)) }.boxed()
    }
}

/// Uploads a body: in one request if it fits into a part, else in several parts. Returns its size and
/// version.
async fn put(
    bucket: &Bucket,
    url: &str,
    path: Path,
    mut body: BoxStream<'static, Result<Bytes>>,
) -> Result<(u64, Option<String>)> {
    let store = bucket.client();
    let (first, more) = next_part(&mut body).await?;
    if !more {
        let size = first.content_length() as u64;
        let result = store.put(&path, first).await.map_err(|error| failed(url, error))?;
        return Ok((size, result.e_tag));
    }
    let mut upload = PartsUpload::begin(Arc::clone(&store), path.clone(), url).await?;
    let mut sent = SentBytes::default();
    let result = match put_parts(&mut upload, first, body, &mut sent).await {
        Ok(()) => upload.complete().await.map(|result| result.e_tag),
        Err(error) => {
            // The first error is the one to report.
            upload.abort().await;
            return Err(error);
        }
    };
    let error = match result {
        Ok(version) => return Ok((sent.size, version)),
        Err(error) => error,
    };
    if let Some(version) = bucket.stored(&*store, url, &path, sent).await {
        return Ok((sent.size, version));
    }
    upload.abort().await;
    Err(error)
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

/// The number of some bytes and their CRC-32C.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct SentBytes {
    size: u64,
    sum: u32,
}

impl SentBytes {
    fn add(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        self.sum = crc32c::crc32c_append(self.sum, bytes);
    }
}

/// Takes the next [`PART_SIZE`] bytes or more. Returns them, and whether more may follow.
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
