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
/// It appears whole when [`finish`](ObjectWriter::finish) returns, replacing what was there before. Dropped
/// without that, or after a write that failed, it never appears: an upload to an object store is called off,
/// so that none of its parts is kept, and the drop waits for that up to 10 seconds. An upload that ends with
/// its process, or that cannot be called off in this time, may leave parts behind that nobody sees but that
/// cost money: give the bucket a lifecycle rule that ends incomplete multipart uploads.
pub trait ObjectWriter: Write + Send {
    /// Completes the object.
    ///
    /// # Errors
    ///
    /// If any byte could not be stored, or a write failed before; the object has not appeared then.
    fn finish(self: Box<Self>) -> Result<ObjectInfo>;
}

/// Writes all of `bytes`. Why an upload was refused is told by the kind of the error, while [`Write`] can
/// only wrap it in an [`io::Error`], which would become [`ErrorKind::Io`].
pub(crate) fn write_to(object: &mut dyn ObjectWriter, bytes: &[u8]) -> Result<()> {
    object.write_all(bytes).map_err(|error| error.downcast::<Error>().unwrap_or_else(Error::from))
}

/// Bytes that are handed to the upload at once.
const CHUNK: usize = 1 << 20;
/// How long an upload whose writer has been dropped may take to see that its body breaks off, before it is
/// cancelled.
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
    /// `None` once it has ended.
    upload: Option<Task<ObjectInfo>>,
}

impl UploadWriter {
    pub(super) fn create(source: &dyn Source, url: &str) -> Result<Self> {
        let (parts, receiver) = async_channel::bounded(4);
        let upload = Some(runtime::spawn(source.put(url, body(receiver)))?);
        Ok(UploadWriter { url: url.into(), buffer: BytesMut::new(), parts, upload })
    }

    fn send(&mut self, part: Part) -> Result<()> {
        match wait::block_on(self.parts.send(part)) {
            Ok(Ok(())) => Ok(()),
            // The upload drops its end of the channel only when it failed.
            Ok(Err(_)) => {
                self.end()?;
                Err(stopped())
            }
            Err(error) => {
                // The part is lost. Without it there must be no object, whatever is written after it.
                self.parts.close();
                Err(error)
            }
        }
    }

    fn send_buffer(&mut self) -> Result<()> {
        let chunk = self.buffer.split().freeze();
        if chunk.is_empty() { Ok(()) } else { self.send(Part::Data(chunk)) }
    }

    /// Waits for the end of the upload.
    fn end(&mut self) -> Result<ObjectInfo> {
        let Some(upload) = &mut self.upload else { return Err(stopped()) };
        let end = wait::block_on(upload);
        if end.is_ok() {
            self.upload = None;
        }
        // A wait that was interrupted leaves the upload to the drop, which waits until it is called off.
        end.and_then(|end| end).map_err(|error| error.in_shard(&self.url))
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
        // The source sees that the body breaks off, and cleans up behind itself. A process that ends now, as
        // after an error or a panic, must not end before.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{GetOptions, GetResponse};
    use futures::future::{BoxFuture, FutureExt};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::Instant;
    use wait::Interrupt;

    /// Takes an object when it is told to, and some time after its body has ended.
    #[derive(Debug, Default)]
    struct Slow {
        begin: Arc<tokio::sync::Notify>,
        time: Duration,
        /// Whether it is done, with an object or with an error.
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
        Box::new(UploadWriter::create(source, "slow://a").unwrap())
    }

    /// A thread may write again what it could not write before, and have the object completed by another.
    #[test]
    fn an_object_with_a_hole_does_not_appear() {
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
                let error = writer.write_all(&vec![0; 8 * CHUNK]).unwrap_err();
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
    fn a_finish_that_is_interrupted_leaves_the_wait_to_the_drop() {
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
    fn a_writer_that_is_dropped_on_an_io_thread_holds_it_up_for_no_time() {
        // It never begins, so that nothing ends it but being cancelled.
        let writer = writer(&Slow::default());
        let begun = Instant::now();
        runtime::run(async move {
            drop(writer);
            Ok(())
        })
        .unwrap();
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    }
}
