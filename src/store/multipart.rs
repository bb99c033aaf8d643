//! Uploads in several parts, which are called off unless they are completed.

use super::failure::failed;
use super::runtime::{panicked, spawn_cleanup};
use crate::secret_url::SecretUrl;
use crate::{ErrorKind, Result};
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, PutMultipartOptions, PutPayload, PutResult};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinHandle, JoinSet};

/// Parts of one object in flight.
const PARTS_IN_FLIGHT: usize = 4;
/// How long parts in flight may take to arrive before an upload is called off without them.
const GRACE: Duration = Duration::from_secs(5);

/// An upload in parts. Dropped before it is complete, it is called off, also if that is while it begins.
#[derive(Debug)]
pub(super) struct Upload(Option<Running>);

#[derive(Debug)]
struct Running {
    /// Where the object will be.
    url: SecretUrl,
    upload: Box<dyn MultipartUpload>,
    in_flight: JoinSet<object_store::Result<()>>,
}

impl Upload {
    /// Begins an upload, on the I/O runtime.
    pub(super) async fn begin(store: Arc<dyn ObjectStore>, path: Path, url: &str) -> Result<Self> {
        // In a task of its own: a request that is under way may begin an upload though nobody waits for it
        // any more.
        let at = SecretUrl::from(url);
        let beginning = tokio::spawn(async move {
            let upload = store.put_multipart_opts(&path, PutMultipartOptions::default()).await?;
            Ok(Upload(Some(Running { url: at, upload, in_flight: JoinSet::new() })))
        });
        Beginning(Some(beginning)).end(url).await
    }

    /// Sends a part, when there is room for it in flight.
    pub(super) async fn put(&mut self, part: PutPayload) -> Result<()> {
        let Running { url, upload, in_flight } = self.running()?;
        in_flight.spawn(upload.put_part(part));
        while in_flight.len() >= PARTS_IN_FLIGHT {
            arrived(url, in_flight).await?;
        }
        Ok(())
    }

    /// Makes an object of all parts.
    pub(super) async fn complete(&mut self) -> Result<PutResult> {
        let Running { url, upload, in_flight } = self.running()?;
        while !in_flight.is_empty() {
            arrived(url, in_flight).await?;
        }
        let result = upload.complete().await.map_err(|error| failed(url.expose_secret(), error))?;
        self.0 = None;
        Ok(result)
    }

    /// Calls the upload off. That continues if this is dropped.
    pub(super) async fn call_off(mut self) {
        if let Some(running) = self.0.take()
            && let Ok(cleanup) = spawn_cleanup(running.call_off())
        {
            let _ = cleanup.await;
        }
    }

    fn running(&mut self) -> Result<&mut Running> {
        self.0.as_mut().ok_or_else(|| ErrorKind::Stopped.into())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(running) = self.0.take() {
            let _ = spawn_cleanup(running.call_off());
        }
    }
}

/// An upload that is about to begin. Dropped before it has, it is called off as soon as it has.
struct Beginning(Option<JoinHandle<object_store::Result<Upload>>>);

impl Beginning {
    async fn end(mut self, url: &str) -> Result<Upload> {
        let Some(beginning) = &mut self.0 else { return Err(ErrorKind::Stopped.into()) };
        let begun = beginning.await;
        self.0 = None;
        begun.map_err(panicked)?.map_err(|error| failed(url, error))
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        if let Some(beginning) = self.0.take() {
            let _ = spawn_cleanup(async move {
                if let Ok(Ok(upload)) = beginning.await {
                    upload.call_off().await;
                }
            });
        }
    }
}

/// Waits for one part in flight.
async fn arrived(url: &SecretUrl, in_flight: &mut JoinSet<object_store::Result<()>>) -> Result<()> {
    match in_flight.join_next().await {
        Some(Ok(result)) => result.map_err(|error| failed(url.expose_secret(), error)),
        Some(Err(error)) => Err(panicked(error)),
        None => Ok(()),
    }
}

impl Running {
    async fn call_off(self) {
        let Running { mut upload, mut in_flight, .. } = self;
        // A part that arrives after the upload was called off would be kept, and paid for.
        let arriving = async { while in_flight.join_next().await.is_some() {} };
        let late = tokio::time::timeout(GRACE, arriving).await.is_err();
        in_flight.shutdown().await;
        let _ = upload.abort().await;
        if late {
            // A server that had all of a part, and was slow, may keep it after all. S3 advises to call off
            // again then.
            tokio::spawn(async move {
                tokio::time::sleep(GRACE).await;
                let _ = upload.abort().await;
            });
        }
    }
}
