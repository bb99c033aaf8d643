//! A bucket and its client: reads, and conditional writes.

use super::checksum::Checksum;
#[cfg(feature = "cloud")]
use super::connector::{self, Carried};
#[cfg(feature = "cloud")]
use super::environment::variable;
use super::failure::{body_fault, failed, refusal};
use super::fetch::FetchLimits;
use super::key;
#[cfg(feature = "cloud")]
use super::location::Failure;
use super::multipart::PartsUpload;
use super::object_url::ObjectUrl;
use super::object_version::ObjectVersion;
use super::put_condition::{PutCondition, exists};
use super::source::{GetOptions, GetResponse, Refusal};
#[cfg(feature = "cloud")]
use super::{cloud, response};
use crate::secret_url::SecretUrl;
use crate::{ErrorKind, Result};
use futures::stream::{self, StreamExt, TryStreamExt};
#[cfg(feature = "cloud")]
use http::header::{self, HeaderName, HeaderValue};
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time limit for comparing the stored object with the sent bytes after an upload whose result is unknown.
const COMPARE_TIME: Duration = Duration::from_secs(60);
/// In bytes per second. The time limit is [`COMPARE_TIME`] plus the object's size divided by this rate.
const MIN_COMPARE_RATE: u64 = 4 << 20;
/// Minimum time between two reads of the credentials.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(5);

/// Makes the client of a bucket from its URL; `None` if the crate has no client for such URLs.
pub(super) type MakeClient = fn(&str, &FetchLimits) -> Result<Option<BucketClient>>;
pub(super) type BucketClient = Arc<dyn ObjectStore>;

pub(super) struct Bucket {
    pub(super) base: SecretUrl,
    /// The client's account or container, and the endpoint that the environment sets.
    pub(super) place: String,
    client: Mutex<RenewableClient>,
    /// How to make a new client; `None` if the client is the caller's own.
    pub(super) make: Option<(MakeClient, FetchLimits)>,
}

struct RenewableClient {
    client: BucketClient,
    renewed_at: Option<Instant>,
}

impl Bucket {
    pub(super) fn new(
        base: SecretUrl,
        client: BucketClient,
        make: Option<(MakeClient, FetchLimits)>,
    ) -> Self {
        let endpoint = make.and_then(|_| ObjectUrl::parse(base.expose_secret()).endpoint());
        let place = format!("{client} {}", endpoint.unwrap_or_default());
        let client = Mutex::new(RenewableClient { client, renewed_at: None });
        Bucket { base, place, client, make }
    }

    fn lock(&self) -> MutexGuard<'_, RenewableClient> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn client(&self) -> BucketClient {
        Arc::clone(&self.lock().client)
    }

    /// Replaces the client `refused`, whose credentials have expired, by a new one that reads the credentials
    /// again. `None` if the credentials were read a moment ago, or if the client is the caller's own.
    pub(super) fn renew(&self, refused: &BucketClient) -> Option<BucketClient> {
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

    /// The object's key as a path of `object_store`. Keys appear in URLs without percent-encoding, as in all
    /// tools for `gs://` and `s3://`.
    pub(super) fn path(&self, url: &str) -> Result<Path> {
        key::path(self.key(url))
    }

    pub(super) fn key<'a>(&self, url: &'a str) -> &'a str {
        let key = url.strip_prefix(self.base.expose_secret()).unwrap_or(url);
        key.strip_prefix('/').unwrap_or(key)
    }
}

impl Bucket {
    #[cfg_attr(not(feature = "cloud"), allow(unused_variables, reason = "for clients that the crate makes"))]
    pub(super) async fn get(
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
            // If one of the crate's own clients fails before it sends the request, the reason is that the
            // client could not sign the request.
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
        // A client that the caller made retries requests itself. If a body fails midway, `fetch` requests the
        // rest.
        let url = url.to_owned();
        response.body = result.into_stream().map_err(move |error| body_fault(&url, &error)).boxed();
        Ok(response)
    }
}

impl Bucket {
    /// Checks whether an upload succeeded although its last request failed. Returns the version of the object
    /// if the object has the `sent` bytes, otherwise `None`. An upload can succeed in this way: the response
    /// to the last request is lost, the request is repeated, and the second response says that there is no
    /// such upload.
    ///
    /// Compares the bytes, not only the sizes, because an earlier object with this name may have the same
    /// size. If the store has a checksum of the object, compares the checksums instead of the bytes.
    pub(super) async fn stored(
        &self,
        client: &dyn ObjectStore,
        url: &str,
        path: &Path,
        sent: SentBytes,
    ) -> Option<Option<String>> {
        let compare = async {
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
        tokio::time::timeout(time, compare).await.ok()?
    }
}

/// Conditional writes.
impl Bucket {
    /// The size and version of the object; `None` if there is no object.
    async fn find(&self, client: &dyn ObjectStore, url: &str, path: &Path) -> Result<Option<ObjectMeta>> {
        match client.head(path).await.map_err(|error| failed(url, error)) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Checks the condition with a separate request.
    pub(super) async fn check(
        &self,
        client: &dyn ObjectStore,
        url: &str,
        path: &Path,
        condition: &PutCondition,
    ) -> Result<()> {
        match condition {
            PutCondition::Any => Ok(()),
            _ => condition.check(self.find(client, url, path).await?.as_ref().map(version).as_ref()),
        }
    }

    /// Converts the condition to `object_store`'s mode. If no mode expresses it, checks the condition first
    /// with a separate request.
    async fn mode(
        &self,
        client: &dyn ObjectStore,
        url: &str,
        path: &Path,
        condition: &PutCondition,
    ) -> Result<PutMode> {
        let expected = match condition {
            PutCondition::Any => return Ok(PutMode::Overwrite),
            PutCondition::Absent => return Ok(PutMode::Create),
            PutCondition::Version(expected) => expected,
        };
        let Some(tag) = expected.strong().map(str::to_owned) else {
            self.check(client, url, path, condition).await?;
            return Ok(PutMode::Overwrite);
        };
        if ObjectUrl::parse(self.base.expose_secret()).scheme() != Some("gs") {
            return Ok(PutMode::Update(UpdateVersion { e_tag: Some(tag), version: None }));
        }
        // Google Cloud Storage compares generations, but `expected` has only an ETag.
        let found = self.find(client, url, path).await?;
        condition.check(found.as_ref().map(version).as_ref())?;
        Ok(match found.and_then(|found| found.version) {
            Some(generation) => PutMode::Update(UpdateVersion { e_tag: None, version: Some(generation) }),
            None => PutMode::Overwrite,
        })
    }

    /// Writes a whole object in one request, if the condition is met. Returns its version.
    pub(super) async fn put_whole(
        &self,
        url: &str,
        path: &Path,
        bytes: PutPayload,
        condition: &PutCondition,
    ) -> Result<Option<String>> {
        let client = self.client();
        let mode = self.mode(&*client, url, path, condition).await?;
        let error = match client.put_opts(path, bytes.clone(), mode.into()).await {
            Ok(written) => return Ok(written.e_tag),
            Err(object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. }) => {
                self.check(&*client, url, path, condition).await?;
                let written = client.put(path, bytes).await;
                return written.map(|written| written.e_tag).map_err(|error| failed(url, error));
            }
            Err(error) => error,
        };
        let is_refused = is_refused(&error);
        let error = failed(url, error);
        // S3 responds with `NotFound` if the object to be replaced no longer exists.
        let is_gone = matches!((condition, error.kind()), (PutCondition::Version(_), ErrorKind::NotFound(_)));
        if !is_refused && !is_gone {
            return Err(error);
        }
        let mut sent = SentBytes::default();
        bytes.iter().for_each(|chunk| sent.add(chunk));
        self.stored_or_refused(&*client, url, path, sent, condition, error).await
    }

    /// Checks whether a write succeeded although the store has reported that the condition is not met. This
    /// happens when the response to the first request is lost: the first request has created the object, and
    /// therefore the condition is no longer met for the repeated request. Returns the version of the object
    /// if the object has the `sent` bytes, otherwise an error.
    pub(super) async fn stored_or_refused(
        &self,
        client: &dyn ObjectStore,
        url: &str,
        path: &Path,
        sent: SentBytes,
        condition: &PutCondition,
        error: crate::Error,
    ) -> Result<Option<String>> {
        if let Some(version) = self.stored(client, url, path, sent).await {
            return Ok(version);
        }
        self.check(client, url, path, condition).await?;
        Err(error)
    }

    /// Completes an upload in parts, if the condition is met. S3 checks the condition when it completes the
    /// upload. For other stores, a separate request checks the condition before the upload is completed.
    pub(super) async fn complete(
        &self,
        url: &str,
        path: &Path,
        upload: &mut PartsUpload,
        condition: &PutCondition,
    ) -> Result<Option<String>> {
        self.check(&*self.client(), url, path, condition).await?;
        #[cfg(feature = "cloud")]
        let completing = connector::completing(self.completion(condition)?, upload.complete());
        #[cfg(not(feature = "cloud"))]
        let completing = upload.complete();
        completing.await.map(|result| result.e_tag)
    }

    /// The header with the condition on which S3 completes an upload in parts.
    #[cfg(feature = "cloud")]
    fn completion(&self, condition: &PutCondition) -> Result<Option<(HeaderName, HeaderValue)>> {
        let is_s3 = ObjectUrl::parse(self.base.expose_secret()).scheme() == Some("s3");
        let is_enabled =
            || Ok::<_, crate::Error>(variable("AWS_CONDITIONAL_PUT")?.is_none_or(|put| put != "disabled"));
        if !is_s3 || self.make.is_none() || !is_enabled()? {
            return Ok(None);
        }
        Ok(match condition {
            PutCondition::Any => None,
            PutCondition::Absent => Some((header::IF_NONE_MATCH, HeaderValue::from_static("*"))),
            PutCondition::Version(expected) => {
                let tag = expected.strong().and_then(|tag| HeaderValue::from_str(tag).ok());
                tag.map(|tag| (header::IF_MATCH, tag))
            }
        })
    }

    /// Copies an object to another key, if the condition is met.
    pub(super) async fn copy(
        &self,
        from: &Path,
        to: &Path,
        url: &str,
        condition: &PutCondition,
    ) -> Result<()> {
        let client = self.client();
        if matches!(condition, PutCondition::Absent) {
            let options = CopyOptions::new().with_mode(CopyMode::Create);
            match client.copy_opts(from, to, options).await {
                // S3 has no conditional copy: a separate request checks the condition before the copy.
                Err(
                    object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. },
                ) => {}
                Err(error) if is_refused(&error) => return Err(exists()),
                copied => return copied.map_err(|error| failed(url, error)),
            }
        }
        self.check(&*client, url, to, condition).await?;
        client.copy(from, to).await.map_err(|error| failed(url, error))
    }
}

fn version(found: &ObjectMeta) -> ObjectVersion {
    ObjectVersion { size: Some(found.size), version: found.e_tag.clone() }
}

/// Whether the store refused to write because the condition was not met.
fn is_refused(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. })
}

/// The number of sent bytes, and their CRC-32C.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SentBytes {
    pub(super) size: u64,
    sum: u32,
}

impl SentBytes {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        self.sum = crc32c::crc32c_append(self.sum, bytes);
    }
}
