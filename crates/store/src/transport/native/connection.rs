//! One connection to a server: how it is opened, and what is sent and received on it.

use super::head::{self, HeadError, ResponseHead};
use super::tls::client_config;
use crate::transport::addresses::addresses;
use crate::transport::fault::network_fault;
use crate::transport::origin::HttpOrigin;
use crate::{Error, ErrorKind, Result};
use bytes::BytesMut;
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

/// Time limit for opening a connection: the look-up of the name, TCP, and the TLS handshake together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which one address is tried alone, before the next one is tried beside it.
const HEAD_START: Duration = Duration::from_millis(250);

/// A stream of bytes in both directions: a socket, or TLS over one.
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
    /// The end of the connection, or a message that it is about to end.
    End,
    /// Bytes that no request asked for.
    Surplus,
}

impl Unread {
    /// Classifies the first bytes that arrived. Servers may close an idle connection with the status 408
    /// (RFC 9110, 15.5.9).
    fn of(bytes: &[u8]) -> Self {
        let is_timeout = [&b"HTTP/1.1 408"[..], b"HTTP/1.0 408"].iter().any(|head| bytes.starts_with(head));
        if is_timeout { Unread::End } else { Unread::Surplus }
    }
}

/// A connection to a server. Dropping it closes it.
pub(super) struct HttpConnection {
    origin: HttpOrigin,
    wire: Box<dyn Wire>,
    /// Bytes of the body that came together with the head of the last response.
    received: Vec<u8>,
}

impl fmt::Debug for HttpConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpConnection").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl HttpConnection {
    pub(super) fn new(origin: HttpOrigin, wire: impl Wire + 'static) -> Self {
        HttpConnection { origin, wire: Box::new(wire), received: Vec::new() }
    }

    pub(super) async fn open(origin: &HttpOrigin) -> Result<Self> {
        let opening = async {
            let socket = connect(origin).await?;
            socket.set_nodelay(true)?;
            if !origin.tls {
                return Ok(HttpConnection::new(origin.clone(), socket));
            }
            let name = ServerName::try_from(origin.host.clone());
            let name = name.map_err(|error| ErrorKind::Config(format!("bad host name: {error}")))?;
            let stream = TlsConnector::from(client_config()?).connect(name, socket).await;
            let stream = stream.map_err(|error| network_fault(&error, None))?;
            Ok(HttpConnection::new(origin.clone(), stream))
        };
        tokio::time::timeout(CONNECT_TIMEOUT, opening).await.unwrap_or_else(|_| {
            let why = format!("no connection to {origin} within {} s", CONNECT_TIMEOUT.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, why).into())
        })
    }

    pub(super) fn origin(&self) -> &HttpOrigin {
        &self.origin
    }

    /// Sends a request and reads the head of its response.
    pub(super) async fn send(&mut self, request: &[u8]) -> Result<ResponseHead, HeadError> {
        self.received.clear();
        let sending = async {
            self.wire.write_all(request).await?;
            self.wire.flush().await
        };
        let sent: io::Result<()> = sending.await;
        let unsent =
            |error: io::Error| HeadError { error: network_fault(&error, None), nothing_received: true };
        sent.map_err(unsent)?;
        head::read(&mut *self.wire, &mut self.received).await
    }

    /// Takes the bytes of the body that were received together with the head.
    pub(super) fn take_received(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.received)
    }

    /// Reads what has arrived into `buffer`, at most `room` bytes. Returns their number, 0 at the end.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        pin!(self.wire.read_buf(&mut bytes::BufMut::limit(buffer, room))).poll(cx)
    }

    /// Looks for bytes that have arrived behind the last response, and discards some of them. Later arrivals
    /// wake the task of `cx`.
    pub(super) fn unread(&mut self, cx: &mut Context<'_>) -> Unread {
        let mut bytes = [0; 16];
        // TLS may have decrypted more than was read.
        let mut buffer = ReadBuf::new(&mut bytes);
        match Pin::new(&mut *self.wire).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => return Unread::of(buffer.filled()),
            Poll::Ready(_) => return Unread::End,
            Poll::Pending => {}
        }
        // The runtime does not know of bytes that the socket received since it last polled all sockets: ask
        // the system.
        let Some(socket) = self.wire.socket() else { return Unread::Nothing };
        match (&*SockRef::from(socket)).read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Unread::Nothing,
            // TLS records may announce the end of the connection, or belong to the connection itself.
            Ok(length) if length > 0 && !self.origin.tls => Unread::of(&bytes[..length]),
            _ => Unread::End,
        }
    }
}

/// Connects to the address of a name that answers first.
async fn connect(origin: &HttpOrigin) -> Result<TcpStream> {
    let unreachable = |error: io::Error| {
        Error::from(io::Error::new(error.kind(), format!("no connection to {origin}: {error}")))
    };
    let mut untried = addresses(&origin.host, origin.port).await.map_err(unreachable)?.into_iter();
    let mut attempts = FuturesUnordered::new();
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        match untried.next() {
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
