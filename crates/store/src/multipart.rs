//! Uploads an object in several parts. An upload that is not completed is aborted.

use super::failure::failed;
use super::runtime::{panicked, spawn_cleanup};
use crate::secret_url::SecretUrl;
use crate::{ErrorKind, Result};
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, PutMultipartOptions, PutPayload, PutResult};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinHandle, JoinSet};

/// Maximum number of parts of one object in flight.
const MAX_IN_FLIGHT: usize = 4;
/// Time for which an abort waits for parts in flight.
const ABORT_GRACE: Duration = Duration::from_secs(5);

/// An upload in parts. Dropping it before it is completed aborts it, even during `begin`.
#[derive(Debug)]
pub(super) struct PartsUpload(Option<RunningUpload>);

#[derive(Debug)]
struct RunningUpload {
    /// The URL of the object.
    url: SecretUrl,
    upload: Box<dyn MultipartUpload>,
    in_flight: JoinSet<object_store::Result<()>>,
}

impl PartsUpload {
    /// Begins an upload. Must be polled on the crate's runtime.
    pub(super) async fn begin(store: Arc<dyn ObjectStore>, path: Path, url: &str) -> Result<Self> {
        // Runs in a separate task: if the caller drops the future, a request in flight may still begin an
        // upload, which must then be aborted.
        let at = SecretUrl::from(url);
        let beginning = tokio::spawn(async move {
            let upload = store.put_multipart_opts(&path, PutMultipartOptions::default()).await?;
            Ok(PartsUpload(Some(RunningUpload { url: at, upload, in_flight: JoinSet::new() })))
        });
        BeginningUpload(Some(beginning)).wait(url).await
    }

    /// Sends a part, and waits until fewer than [`MAX_IN_FLIGHT`] parts are in flight.
    pub(super) async fn put(&mut self, part: PutPayload) -> Result<()> {
        let RunningUpload { url, upload, in_flight } = self.running()?;
        in_flight.spawn(upload.put_part(part));
        while in_flight.len() >= MAX_IN_FLIGHT {
            part_sent(url, in_flight).await?;
        }
        Ok(())
    }

    pub(super) async fn complete(&mut self) -> Result<PutResult> {
        let RunningUpload { url, upload, in_flight } = self.running()?;
        while !in_flight.is_empty() {
            part_sent(url, in_flight).await?;
        }
        let result = upload.complete().await.map_err(|error| failed(url.expose_secret(), error))?;
        self.0 = None;
        Ok(result)
    }

    /// Aborts the upload. Dropping this future does not stop the abort.
    pub(super) async fn abort(mut self) {
        if let Some(running) = self.0.take()
            && let Ok(cleanup) = spawn_cleanup(running.abort())
        {
            let _ = cleanup.await;
        }
    }

    fn running(&mut self) -> Result<&mut RunningUpload> {
        self.0.as_mut().ok_or_else(|| ErrorKind::Stopped.into())
    }
}

impl Drop for PartsUpload {
    fn drop(&mut self) {
        if let Some(running) = self.0.take() {
            let _ = spawn_cleanup(running.abort());
        }
    }
}

/// An upload that is beginning. If this is dropped, the upload is aborted as soon as it has begun.
struct BeginningUpload(Option<JoinHandle<object_store::Result<PartsUpload>>>);

impl BeginningUpload {
    async fn wait(mut self, url: &str) -> Result<PartsUpload> {
        let Some(beginning) = &mut self.0 else { return Err(ErrorKind::Stopped.into()) };
        let begun = beginning.await;
        self.0 = None;
        begun.map_err(panicked)?.map_err(|error| failed(url, error))
    }
}

impl Drop for BeginningUpload {
    fn drop(&mut self) {
        if let Some(beginning) = self.0.take() {
            let _ = spawn_cleanup(async move {
                if let Ok(Ok(upload)) = beginning.await {
                    upload.abort().await;
                }
            });
        }
    }
}

/// Waits until one of the parts in flight has been sent.
async fn part_sent(url: &SecretUrl, in_flight: &mut JoinSet<object_store::Result<()>>) -> Result<()> {
    match in_flight.join_next().await {
        Some(Ok(result)) => result.map_err(|error| failed(url.expose_secret(), error)),
        Some(Err(error)) => Err(panicked(error)),
        None => Ok(()),
    }
}

impl RunningUpload {
    async fn abort(self) {
        let RunningUpload { mut upload, mut in_flight, .. } = self;
        // A part that arrives after the abort would be stored, and billed.
        let arriving = async { while in_flight.join_next().await.is_some() {} };
        let late = tokio::time::timeout(ABORT_GRACE, arriving).await.is_err();
        in_flight.shutdown().await;
        let _ = upload.abort().await;
        if late {
            // A slow server may still store a part that it had received completely. S3 recommends to abort
            // again.
            tokio::spawn(async move {
                tokio::time::sleep(ABORT_GRACE).await;
                let _ = upload.abort().await;
            });
        }
    }
}
