//! Writing objects: the blocking face over a source's `put`.

use super::runtime::{self, Task};
use super::source::{ObjectInfo, Source};
use crate::secret_url::SecretUrl;
use crate::{Error, ErrorKind, Result, wait};
use async_channel::{Receiver, Sender};
use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream, StreamExt};
use std::io::{self, Write};
use std::time::Duration;

/// A new object that is being written.
///
/// It appears whole when [`finish`](ObjectWriter::finish) returns, replacing what was there before. Dropped without
/// that, it never appears: an upload to an object store is called off, so that none of its parts is kept, and the drop waits
/// for that up to 10 seconds. An upload that ends with its process, or that cannot be called off in this time, may leave
/// parts behind that nobody sees but that cost money: give the bucket a lifecycle rule that ends incomplete multipart
/// uploads.
pub trait ObjectWriter: Write + Send {
    /// Completes the object.
    ///
    /// # Errors
    ///
    /// If any byte could not be stored; the object has not appeared then.
    fn finish(self: Box<Self>) -> Result<ObjectInfo>;
}

/// Bytes that are handed to the upload at once.
const CHUNK: usize = 1 << 20;
/// How long an upload whose writer has been dropped may take to see that its body breaks off, before it is cancelled.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a dropped writer waits for the upload to be called off after that.
const LIMIT: Duration = Duration::from_secs(9);

enum Part {
    Data(Bytes),
    /// Only this ends an object. A writer that just goes away abandons it.
    End,
}

/// Feeds the bytes written to an upload that runs on the I/O runtime.
#[derive(Debug)]
pub(super) struct UploadWriter {
    url: SecretUrl,
    buffer: BytesMut,
    parts: Sender<Part>,
    /// `None` once its end has been reported.
    upload: Option<Task<ObjectInfo>>,
}

impl UploadWriter {
    pub(super) fn create(source: &dyn Source, url: &str) -> Result<Self> {
        let (parts, receiver) = async_channel::bounded(4);
        let upload = Some(runtime::spawn(source.put(url, body(receiver)))?);
        Ok(UploadWriter { url: url.into(), buffer: BytesMut::new(), parts, upload })
    }

    fn send(&mut self, part: Part) -> Result<()> {
        // The upload drops its end of the channel only when it failed.
        if wait::block_on(self.parts.send(part))?.is_err() {
            self.end()?;
            return Err(stopped());
        }
        Ok(())
    }

    fn send_buffer(&mut self) -> Result<()> {
        let chunk = self.buffer.split().freeze();
        if chunk.is_empty() { Ok(()) } else { self.send(Part::Data(chunk)) }
    }

    /// Waits for the end of the upload.
    fn end(&mut self) -> Result<ObjectInfo> {
        match self.upload.take() {
            Some(upload) => {
                wait::block_on(upload).and_then(|end| end).map_err(|error| error.in_shard(&self.url))
            }
            None => Err(stopped()),
        }
    }
}

fn stopped() -> Error {
    io::Error::other("the upload has ended already").into()
}

impl Write for UploadWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.capacity() == 0 {
            self.buffer.reserve(CHUNK);
        }
        let length = bytes.len().min(CHUNK - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..length]);
        if self.buffer.len() == CHUNK {
            self.send_buffer().map_err(io::Error::other)?;
        }
        Ok(length)
    }

    /// Does nothing: an object has no visible part before it is whole.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for UploadWriter {
    fn drop(&mut self) {
        // The source sees that the body breaks off, and cleans up behind itself. A process that ends now, as after an error
        // or a panic, must not end before.
        self.parts.close();
        if let Some(upload) = self.upload.take() {
            let _ = upload.end_within(PATIENCE, LIMIT);
        }
    }
}

impl ObjectWriter for UploadWriter {
    fn finish(mut self: Box<Self>) -> Result<ObjectInfo> {
        self.send_buffer()?;
        self.send(Part::End)?;
        self.end()
    }
}

/// The parts as a body that ends without an error only after [`Part::End`].
fn body(parts: Receiver<Part>) -> BoxStream<'static, Result<Bytes>> {
    stream::try_unfold(parts, async |parts| match parts.recv().await {
        Ok(Part::Data(chunk)) => Ok(Some((chunk, parts))),
        Ok(Part::End) => Ok(None),
        Err(_) => Err(ErrorKind::Stopped.into()),
    })
    .boxed()
}
