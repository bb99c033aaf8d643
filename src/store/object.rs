//! Object stores (Google Cloud Storage, S3, Azure) and anything else behind [`object_store::ObjectStore`].

#[cfg(feature = "cloud")]
use super::connector::{self, Slot};
use super::failure::failed;
use super::fetch::FetchLimits;
use super::key;
use super::location::Failure;
use super::multipart::Upload;
use super::source::{GetOptions, GetResponse, ObjectInfo, Refusal, Source};
#[cfg(feature = "cloud")]
use super::{cloud, response};
use crate::secret_url::SecretUrl;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, PutResult};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes in one part of an upload: with at most 10,000 parts, as S3 allows, objects of 160 GiB.
const PART: usize = 16 << 20;
/// How long credentials that were read anew are not read again.
const RENEWAL: Duration = Duration::from_secs(5);

/// Makes the client of a bucket from its URL; `None` where there is none for such URLs.
type Make = fn(&str, &FetchLimits) -> Result<Option<Client>>;
type Client = Arc<dyn ObjectStore>;

/// A bucket or other object store whose objects have URLs of the form `base/key`.
pub(super) struct ObjectSource(Arc<Bucket>);

/// Clients have credentials.
impl fmt::Debug for ObjectSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectSource").field("base", &self.0.base).finish_non_exhaustive()
    }
}

struct Bucket {
    base: SecretUrl,
    client: Mutex<Renewed>,
    /// With what it makes clients by.
    make: Option<(Make, FetchLimits)>,
}

struct Renewed {
    client: Client,
    at: Option<Instant>,
}

impl Bucket {
    fn renewed(&self) -> MutexGuard<'_, Renewed> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client(&self) -> Client {
        Arc::clone(&self.renewed().client)
    }

    /// A client other than `refused`, whose credentials are no longer good: they are read again from where
    /// they come from, unless that was a moment ago or the client is the caller's own.
    fn renew(&self, refused: &Client) -> Option<Client> {
        let mut renewed = self.renewed();
        if Arc::ptr_eq(&renewed.client, refused) {
            if renewed.at.is_some_and(|at| at.elapsed() < RENEWAL) {
                return None;
            }
            renewed.at = Some(Instant::now());
            let (make, limits) = self.make?;
            renewed.client = make(self.base.expose_secret(), &limits).ok()??;
        }
        Some(Arc::clone(&renewed.client))
    }

    /// Keys are in URLs as they are, without percent-encoding, as all tools for `gs://` and `s3://` have
    /// it.
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
        asked: &GetOptions,
    ) -> Result<GetResponse, Refusal> {
        let GetOptions { range, if_version } = asked;
        #[allow(unused_mut, reason = "what comes back is told by clients that the crate makes itself")]
        let mut options = object_store::GetOptions {
            range: range.clone().map(Into::into),
            // A weak ETag never matches by the rules of HTTP; the version of the response is compared in any
            // case.
            if_match: if_version.clone().filter(|version| !version.starts_with("W/")),
            ..Default::default()
        };
        #[cfg(feature = "cloud")]
        let slot = Slot::of(&mut options);
        #[cfg(feature = "cloud")]
        let result = connector::reading(client.get_opts(path, options)).await;
        #[cfg(not(feature = "cloud"))]
        let result = client.get_opts(path, options).await;
        #[cfg(feature = "cloud")]
        if let Some(answer) = slot.take() {
            return response::read(answer.map_err(Refusal::Other)?, url, asked, response::etag).await;
        }
        #[cfg(feature = "cloud")]
        if let Err(error) = &result
            && let Some(error) = connector::kept(error)
        {
            return Err(Refusal::Other(error));
        }
        let result = result.map_err(|error| match error {
            // A client of the crate's own that has not sent the request could not sign it.
            #[cfg(feature = "cloud")]
            object_store::Error::Generic { .. } if self.make.is_some() => {
                let why = format!(
                    "there are no credentials ({}): {}",
                    Failure::of(url, &error),
                    cloud::hint(self.base.expose_secret())
                );
                Refusal::Other(ErrorKind::Denied(why.into()).into())
            }
            // The range may begin after the end, as every range of an empty object does, and some servers
            // know no ranges at all. An object of a known version is past such questions.
            object_store::Error::Generic { .. } if range.is_some() && if_version.is_none() => Refusal::Beyond,
            object_store::Error::Unauthenticated { .. } => Refusal::Unauthenticated(failed(url, error)),
            object_store::Error::Precondition { .. } => Refusal::Other(changed(if_version.clone())),
            error => Refusal::Other(failed(url, error)),
        })?;
        let mut response = GetResponse::new(stream::empty().boxed()).with_size(result.meta.size);
        response.version = result.meta.e_tag.clone();
        response.range = range.is_some().then(|| result.range.clone());
        // Requests are repeated by the store itself; a body that breaks is continued by the reader of ranges.
        let url = url.to_owned();
        response.body = result.into_stream().map_err(move |error| broken(&url, &error)).boxed();
        Ok(response)
    }
}

impl ObjectSource {
    /// `base` is the URL of the bucket without a `/` at the end.
    pub(super) fn new(base: SecretUrl, client: Client) -> Self {
        Self::made(base, client, None)
    }

    /// One whose client is made anew when its credentials have expired.
    pub(super) fn renewable(base: SecretUrl, client: Client, make: Make, limits: &FetchLimits) -> Self {
        Self::made(base, client, Some((make, *limits)))
    }

    fn made(base: SecretUrl, client: Client, make: Option<(Make, FetchLimits)>) -> Self {
        let client = Mutex::new(Renewed { client, at: None });
        ObjectSource(Arc::new(Bucket { base, client, make }))
    }
}

impl Source for ObjectSource {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let (bucket, path, url) = (Arc::clone(&self.0), self.0.path(url), url.to_owned());
        async move {
            let (path, mut client, mut asked, mut renewed) = (path?, bucket.client(), options, false);
            loop {
                match bucket.get(&*client, &url, &path, &asked).await {
                    Err(Refusal::Beyond) if asked.range.is_some() => asked.range = None,
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

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<ObjectInfo>> {
        let base = self.0.base.clone();
        let directory = self.0.key(prefix);
        let path = match key::path(directory.strip_suffix('/').unwrap_or(directory)) {
            Ok(path) => path,
            Err(error) => return stream::once(async { Err(error) }).boxed(),
        };
        let objects = self.0.client().list((!path.is_root()).then_some(&path));
        let prefix = prefix.to_owned();
        // The caller's own clients know nothing of marks.
        let marked = self.0.make.is_some();
        objects
            .map_ok(move |meta| ObjectInfo {
                url: match marked {
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
        let (store, path, url) = (self.0.client(), self.0.path(url), url.to_owned());
        async move {
            let (size, result) = put(store, &url, path?, body).await?;
            Ok(ObjectInfo { url, size, version: result.e_tag })
        }
        .boxed()
    }

    fn delete(&self, url: &str) -> BoxFuture<'static, Result<()>> {
        let (store, path, url) = (self.0.client(), self.0.path(url), url.to_owned());
        async move { store.delete(&path?).await.map_err(|error| failed(&url, error)) }.boxed()
    }
}

fn changed(before: Option<String>) -> Error {
    ErrorKind::Changed { before: before.unwrap_or_default(), after: "another one".into() }.into()
}

fn broken(url: &str, error: &object_store::Error) -> Error {
    std::io::Error::other(Failure::of(url, error)).into()
}

/// Stores a body in one request if it fits into a part, and in several parts if not.
async fn put(
    store: Client,
    url: &str,
    path: Path,
    mut body: BoxStream<'static, Result<Bytes>>,
) -> Result<(u64, PutResult)> {
    let (first, more) = next_part(&mut body).await?;
    if !more {
        let size = first.content_length() as u64;
        return Ok((size, store.put(&path, first).await.map_err(|error| failed(url, error))?));
    }
    let mut upload = Upload::begin(store, path, url).await?;
    match put_parts(&mut upload, first, body).await {
        Ok(put) => Ok(put),
        Err(error) => {
            // What failed first is what matters.
            upload.call_off().await;
            Err(error)
        }
    }
}

async fn put_parts(
    upload: &mut Upload,
    first: PutPayload,
    mut body: BoxStream<'static, Result<Bytes>>,
) -> Result<(u64, PutResult)> {
    let mut size = 0;
    let mut next = Some(first);
    while let Some(part) = next.take() {
        size += part.content_length() as u64;
        upload.put(part).await?;
        let (part, _) = next_part(&mut body).await?;
        next = (part.content_length() > 0).then_some(part);
    }
    Ok((size, upload.complete().await?))
}

/// The next [`PART`] bytes or more, and whether there may be more after them.
async fn next_part(body: &mut BoxStream<'static, Result<Bytes>>) -> Result<(PutPayload, bool)> {
    let mut part = Vec::new();
    let mut size = 0;
    while size < PART {
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
