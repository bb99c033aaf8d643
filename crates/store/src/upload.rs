//! Writes objects, with blocking writers over the asynchronous `put` of a source.

use super::put_condition::PutCondition;
use super::requests::RequestEntry;
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
/// The complete object appears when [`finish`](ObjectWriter::finish) returns, and replaces an earlier object.
/// The object never appears if the writer is dropped before `finish` returns, or if a write has failed. Then
/// an upload to an object store is aborted, which deletes its parts; the drop waits up to 10 seconds for the
/// abort. If the process is killed, or the upload cannot be aborted in this time, parts may be left that are
/// invisible but billed: give the bucket a lifecycle rule that aborts incomplete multipart uploads.
pub trait ObjectWriter: Write + Send {
    /// Completes the object.
    ///
    /// # Errors
    ///
    /// If a byte could not be stored, or an earlier write failed. Then the object does not appear.
    fn finish(self: Box<Self>) -> Result<ObjectInfo>;
}

/// Options of [`Store::put_with`](super::Store::put_with). `private` and `sync` apply to local files.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// Whether only the owner can read the file. If its directory is created for it, the same applies to the
    /// directory. Default: false.
    pub private: bool,
    /// Whether to write the content to the disk before the file gets its name, so that it survives a power
    /// failure. For small files, this takes most of the time. Default: true.
    pub sync: bool,
    /// The condition on which the object is written. Default: none.
    pub condition: PutCondition,
}

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions { private: false, sync: true, condition: PutCondition::Any }
    }
}

/// Writes all of `bytes`. Unlike [`Write`], which wraps the error of an upload in an [`io::Error`], this
/// function returns the upload's own error with its kind.
#[doc(hidden)]
pub fn write_to(object: &mut dyn ObjectWriter, bytes: &[u8]) -> Result<()> {
    object.write_all(bytes).map_err(|error| error.downcast::<Error>().unwrap_or_else(Error::from))
}

/// Number of bytes that are passed to the upload at once.
const CHUNK_SIZE: usize = 1 << 20;
/// When a writer is dropped, the body of its upload breaks off, and the upload should end by itself. After
/// this time, it is cancelled.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// When the upload of a dropped writer has ended, the writer waits up to this time for the request that
/// aborts the upload at the object store.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(9);

/// A message from a writer to its upload.
enum UploadMessage {
    Data(Bytes),
    /// The end of the object. A writer that is dropped without sending this message abandons the object.
    End,
}

/// Passes the written bytes to an upload that runs on the I/O runtime.
#[derive(Debug)]
pub(super) struct UploadWriter {
    url: SecretUrl,
    buffer: BytesMut,
    messages: Sender<UploadMessage>,
    /// The running upload; `None` after it has ended.
    upload: Option<Task<ObjectInfo>>,
    /// The upload's entry in the store's table of requests.
    entry: Option<RequestEntry>,
}

impl UploadWriter {
    pub(super) fn create(source: &dyn Source, url: &str, condition: PutCondition) -> Result<Self> {
        let (messages, receiver) = async_channel::bounded(4);
        let upload = Some(runtime::spawn(source.put_if(url, body(receiver), condition))?);
        Ok(UploadWriter { url: url.into(), buffer: BytesMut::new(), messages, upload, entry: None })
    }

    /// Counts the sent bytes in `entry`.
    pub(super) fn with_entry(mut self, entry: RequestEntry) -> Self {
        self.entry = Some(entry);
        self
    }

    fn send(&mut self, message: UploadMessage) -> Result<()> {
        match wait::block_on(self.messages.send(message)) {
            Ok(Ok(())) => Ok(()),
            // The upload drops its end of the channel only when it has failed.
            Ok(Err(_)) => {
                self.end()?;
                Err(stopped())
            }
            Err(error) => {
                // The chunk is lost, so the object must not appear, even if more is written.
                self.messages.close();
                Err(error)
            }
        }
    }

    fn send_buffer(&mut self) -> Result<()> {
        let chunk = self.buffer.split().freeze();
        let length = chunk.len();
        if length == 0 {
            return Ok(());
        }
        self.send(UploadMessage::Data(chunk))?;
        if let Some(entry) = &self.entry {
            entry.received(length);
        }
        Ok(())
    }

    /// Waits for the upload to end.
    fn end(&mut self) -> Result<ObjectInfo> {
        let Some(upload) = &mut self.upload else { return Err(stopped()) };
        let end = wait::block_on(upload);
        if end.is_ok() {
            self.upload = None;
        }
        // If the wait was interrupted, `drop` aborts the upload and waits until it is aborted.
        end.and_then(|end| end).map_err(|error| error.in_shard(&self.url))
    }
}

fn stopped() -> Error {
    io::Error::other("the upload has ended already").into()
}

impl Write for UploadWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.capacity() == 0 {
            self.buffer.reserve(CHUNK_SIZE);
        }
        let length = bytes.len().min(CHUNK_SIZE - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..length]);
        if self.buffer.len() == CHUNK_SIZE {
            self.send_buffer().map_err(io::Error::other)?;
        }
        Ok(length)
    }

    /// Does nothing, because no part of an object is visible before it is complete.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for UploadWriter {
    fn drop(&mut self) {
        // Makes the body break off, so that the source cleans up. A process that is about to end, such as
        // after an error or a panic, must wait for the cleanup.
        self.messages.close();
        if let Some(upload) = self.upload.take() {
            let _ = upload.end_within(END_TIMEOUT, CLEANUP_TIMEOUT);
        }
    }
}

impl ObjectWriter for UploadWriter {
    fn finish(mut self: Box<Self>) -> Result<ObjectInfo> {
        self.send_buffer()?;
        self.send(UploadMessage::End)?;
        self.end()
    }
}

/// Turns the messages into a body, which ends without an error only after [`UploadMessage::End`].
fn body(messages: Receiver<UploadMessage>) -> BoxStream<'static, Result<Bytes>> {
    stream::try_unfold(messages, async |messages| match messages.recv().await {
        Ok(UploadMessage::Data(chunk)) => Ok(Some((chunk, messages))),
        Ok(UploadMessage::End) => Ok(None),
        Err(_) => Err(ErrorKind::Stopped.into()),
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GetOptions, GetResponse};
    use futures::future::{BoxFuture, FutureExt};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::Instant;
    use wait::Interrupt;

    /// A source that begins an upload when it is notified, and ends it `time` after the end of the body.
    #[derive(Debug, Default)]
    struct Slow {
        begin: Arc<tokio::sync::Notify>,
        time: Duration,
        /// Whether the upload has ended, with an object or with an error.
        ended: Arc<AtomicBool>,
    }

    impl Source for Slow {
        fn get(&self, _: &str, _: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
            unreachable!("nothing is read")
        }

        fn put(
            &self,
            url: &str,
            body: BoxStream<'static, Result<Bytes>>,
        ) -> BoxFuture<'static, Result<ObjectInfo>> {
            let Slow { begin, time, ended } = self;
            let (url, begin, time, ended) = (url.to_owned(), Arc::clone(begin), *time, Arc::clone(ended));
            async move {
                begin.notified().await;
                let bytes = body.map(|chunk| chunk.map(|chunk| chunk.len() as u64)).collect::<Vec<_>>().await;
                tokio::time::sleep(time).await;
                ended.store(true, Ordering::SeqCst);
                Ok(ObjectInfo::new(url, bytes.into_iter().sum::<Result<u64>>()?))
            }
            .boxed()
        }
    }

    fn writer(source: &Slow) -> Box<UploadWriter> {
        Box::new(UploadWriter::create(source, "slow://a", PutCondition::Any).unwrap())
    }

    /// One thread writes again after a failed write, and another thread finishes the object.
    #[test]
    fn an_object_with_a_failed_write_does_not_appear() {
        for interrupts in [false, true] {
            let source = Slow::default();
            let mut writer = writer(&source);
            let writing = thread::spawn(move || {
                if interrupts {
                    let interrupt = Interrupt::default();
                    interrupt.attach();
                    interrupt.interrupt();
                } else {
                    wait::mark_io_thread();
                }
                // More than the channel holds.
                let error = writer.write_all(&vec![0; 8 * CHUNK_SIZE]).unwrap_err();
                let _ = writer.write(b"more");
                (writer, error)
            });
            let (writer, error) = writing.join().unwrap();
            assert!(error.get_ref().is_some_and(|error| error.is::<Error>()), "{error:?}");
            source.begin.notify_one();
            let error = (writer as Box<dyn ObjectWriter>).finish().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Stopped), "{error:?}");
        }
    }

    #[test]
    fn an_interrupted_finish_leaves_waiting_to_drop() {
        let source = Slow { time: Duration::from_millis(300), ..Slow::default() };
        source.begin.notify_one();
        let (mut writer, interrupt) = (writer(&source), Interrupt::default());
        let (waits, waiting) = mpsc::channel();
        let writing = thread::spawn({
            let interrupt = interrupt.clone();
            move || {
                interrupt.attach();
                writer.write_all(b"some").unwrap();
                waits.send(()).unwrap();
                (writer as Box<dyn ObjectWriter>).finish().unwrap_err()
            }
        });
        waiting.recv().unwrap();
        thread::sleep(Duration::from_millis(100));
        interrupt.interrupt();
        let error = writing.join().unwrap();
        assert!(matches!(error.kind(), ErrorKind::Stopped), "{error:?}");
        assert!(source.ended.load(Ordering::SeqCst), "the writer was dropped before the upload had ended");
    }

    #[test]
    fn dropping_a_writer_on_an_io_thread_does_not_block() {
        // This source waits forever before it reads the body. The upload therefore ends only when it is
        // cancelled.
        let writer = writer(&Slow::default());
        let start = Instant::now();
        runtime::run(async move {
            drop(writer);
            Ok(())
        })
        .unwrap();
        assert!(start.elapsed() < END_TIMEOUT, "{:?}", start.elapsed());
    }
}
