//! One connection, and how it comes to be.

use super::addresses::addresses;
use super::head::{self, Fault, Head};
use super::origin::Origin;
use super::tls::{tls, tls_fault};
use crate::{Error, ErrorKind, Result};
use futures::stream::{FuturesUnordered, StreamExt};
use socket2::SockRef;
use std::future::Future;
use std::io::Read as _;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

/// How long all of it may take: the name, the connection, the handshake.
const CONNECT: Duration = Duration::from_secs(10);
/// How long one address is tried alone before the next is tried beside it.
const HEAD_START: Duration = Duration::from_millis(250);

/// What bytes go through: a socket, or TLS over one.
pub(super) trait Wire: AsyncRead + AsyncWrite + Send + Sync + Unpin {
    /// The socket, if there is one.
    fn socket(&self) -> Option<&TcpStream>;
}

impl Wire for TcpStream {
    fn socket(&self) -> Option<&TcpStream> {
        Some(self)
    }
}

impl Wire for TlsStream<TcpStream> {
    fn socket(&self) -> Option<&TcpStream> {
        Some(self.get_ref().0)
    }
}

/// What has arrived on a connection on which no response is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unread {
    Nothing,
    /// The end, or something that says that the end is near.
    End,
    /// Bytes that no request asked for.
    Surplus,
}

impl Unread {
    /// What these first bytes mean. Servers may close an idle connection with the status 408 (RFC 9110,
    /// 15.5.9).
    fn of(bytes: &[u8]) -> Self {
        let is_timeout = [&b"HTTP/1.1 408"[..], b"HTTP/1.0 408"].iter().any(|head| bytes.starts_with(head));
        if is_timeout { Unread::End } else { Unread::Surplus }
    }
}

/// A connection to a server. Dropping it closes it.
pub(super) struct Connection {
    origin: Origin,
    wire: Box<dyn Wire>,
    /// What came behind the head of the last response.
    received: Vec<u8>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl Connection {
    pub(super) fn new(origin: Origin, wire: impl Wire + 'static) -> Self {
        Connection { origin, wire: Box::new(wire), received: Vec::new() }
    }

    pub(super) async fn open(origin: &Origin) -> Result<Self> {
        let opening = async {
            let socket = reach(origin).await?;
            socket.set_nodelay(true)?;
            if !origin.tls {
                return Ok(Connection::new(origin.clone(), socket));
            }
            let name = ServerName::try_from(origin.host.clone());
            let name = name.map_err(|error| ErrorKind::Config(format!("bad host name: {error}")))?;
            let stream = TlsConnector::from(tls()?).connect(name, socket).await.map_err(tls_fault)?;
            Ok(Connection::new(origin.clone(), stream))
        };
        tokio::time::timeout(CONNECT, opening).await.unwrap_or_else(|_| {
            let why = format!("no connection to {origin} within {} s", CONNECT.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, why).into())
        })
    }

    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Sends a request and reads the head of its response.
    pub(super) async fn ask(&mut self, request: &[u8]) -> Result<Head, Fault> {
        self.received.clear();
        let sent = async {
            self.wire.write_all(request).await?;
            self.wire.flush().await
        };
        sent.await.map_err(|error: io::Error| Fault { error: tls_fault(error), silent: true })?;
        head::read(&mut *self.wire, &mut self.received).await
    }

    /// What was received of the body together with the head.
    pub(super) fn take_received(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.received)
    }

    /// Reads what has come, but no more than `room` bytes; 0 at the end.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        pin!(self.wire.read_buf(&mut bytes::BufMut::limit(buffer, room))).poll(cx)
    }

    /// What has arrived behind the last response; what has is gone then. Later arrivals wake the task of
    /// `cx`.
    pub(super) fn unread(&mut self, cx: &mut Context<'_>) -> Unread {
        let mut bytes = [0; 16];
        // TLS may have decrypted more than was read.
        let mut buffer = ReadBuf::new(&mut bytes);
        match Pin::new(&mut *self.wire).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => return Unread::of(buffer.filled()),
            Poll::Ready(_) => return Unread::End,
            Poll::Pending => {}
        }
        // What the socket received a moment ago is not known to the runtime before its next look at all
        // sockets.
        let Some(socket) = self.wire.socket() else { return Unread::Nothing };
        match (&*SockRef::from(socket)).read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Unread::Nothing,
            // Records of TLS may well be the end of the connection, or belong to it.
            Ok(length) if length > 0 && !self.origin.tls => Unread::of(&bytes[..length]),
            _ => Unread::End,
        }
    }
}

/// Connects to whichever address of a name answers first.
async fn reach(origin: &Origin) -> Result<TcpStream> {
    let unreachable = |error: io::Error| {
        Error::from(io::Error::new(error.kind(), format!("no connection to {origin}: {error}")))
    };
    let mut waiting = addresses(&origin.host, origin.port).await.map_err(unreachable)?.into_iter();
    let mut attempts = FuturesUnordered::new();
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        match waiting.next() {
            Some(address) => attempts.push(TcpStream::connect(address)),
            None if attempts.is_empty() => return Err(unreachable(failure)),
            None => {}
        }
        match tokio::time::timeout(HEAD_START, attempts.next()).await {
            Ok(Some(Ok(socket))) => return Ok(socket),
            Ok(Some(Err(error))) => failure = error,
            Ok(None) | Err(_) => {}
        }
    }
}
