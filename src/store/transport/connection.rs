//! One connection, and how it comes to be.

use super::head::{self, Fault, Head};
use super::{Origin, malformed};
use crate::store::location::Failure;
use crate::{Error, ErrorKind, Result};
use futures::stream::{FuturesUnordered, StreamExt};
use socket2::SockRef;
use std::future::Future;
use std::io::Read as _;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig};

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

/// The addresses of a host, in the order in which they are tried.
pub(in crate::store) async fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match tokio::net::lookup_host((host, port)).await {
        Ok(found) => Ok(in_turn(found.collect())),
        Err(error) => Err(unresolved(&error)),
    }
}

/// A name that could not be looked up. The system gives the failure no kind: unless it calls it temporary, in
/// which case nobody answered, the name has no address.
fn unresolved(error: &io::Error) -> io::Error {
    let text = error.to_string();
    let temporary = ["emporary", "ry again"].iter().any(|word| text.contains(word));
    io::Error::new(if temporary { io::ErrorKind::TimedOut } else { io::ErrorKind::NotFound }, text)
}

/// The addresses in the order in which they are tried. Connections to a name with many addresses, as those of
/// object stores are, begin with different ones; where there are two families, they take turns.
fn in_turn(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let preferred = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (mut first, second): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == preferred);
    if !first.is_empty() {
        let turn = TURN.fetch_add(1, Ordering::Relaxed) % first.len();
        first.rotate_left(turn);
    }
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let pairs = std::iter::from_fn(|| {
        let pair = [first.next(), second.next()];
        pair.iter().any(Option::is_some).then_some(pair)
    });
    pairs.flatten().flatten().collect()
}

/// What the system trusts, as it was at the first connection; `SSL_CERT_FILE` is heeded where the system
/// heeds it.
fn tls() -> Result<Arc<ClientConfig>> {
    static CONFIG: OnceLock<Result<Arc<ClientConfig>, rustls::Error>> = OnceLock::new();
    let config = CONFIG.get_or_init(|| {
        use rustls_platform_verifier::BuilderVerifierExt;
        let provider = CryptoProvider::get_default().cloned();
        let provider = provider.unwrap_or_else(|| Arc::new(aws_lc_rs::default_provider()));
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = config.with_platform_verifier()?.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    });
    config.clone().map_err(|error| ErrorKind::Store(Failure::boxed(&error)).into())
}

/// A fault of a connection that may use TLS.
pub(super) fn tls_fault(error: io::Error) -> Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) if is_final(error) => ErrorKind::Store(Failure::boxed(error)).into(),
        Some(rustls::Error::InvalidMessage(_)) => malformed("it does not speak TLS"),
        _ => error.into(),
    }
}

/// Whether the next handshake will fail as this one did: a certificate that is not trusted now, or two sides
/// that have nothing in common.
pub(in crate::store) fn is_final(error: &rustls::Error) -> bool {
    use rustls::{AlertDescription as Alert, Error as Fault};

    match error {
        Fault::InvalidCertificate(_) | Fault::PeerIncompatible(_) | Fault::NoApplicationProtocol => true,
        Fault::AlertReceived(alert) => matches!(
            alert,
            Alert::ProtocolVersion
                | Alert::HandshakeFailure
                | Alert::InsufficientSecurity
                | Alert::UnrecognisedName
                | Alert::NoApplicationProtocol
                | Alert::CertificateRequired
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_and_addresses_take_turns() {
        let addresses = ["[::1]:80", "[::2]:80", "[::3]:80", "1.1.1.1:80"].map(|text| text.parse().unwrap());
        let orders: Vec<_> = (0..3).map(|_| in_turn(addresses.to_vec())).collect();
        for order in &orders {
            assert_eq!(order[1], addresses[3]);
            assert!(addresses.iter().all(|address| order.contains(address)));
        }
        assert!(orders[0][0] != orders[1][0] && orders[1][0] != orders[2][0]);
        assert!(in_turn(Vec::new()).is_empty());
    }

    #[test]
    fn a_name_without_an_address_is_told_from_one_that_nobody_answers_for() {
        for (text, kind) in [
            (
                "failed to lookup address information: Temporary failure in name resolution",
                io::ErrorKind::TimedOut,
            ),
            ("failed to lookup address information: Try again", io::ErrorKind::TimedOut),
            ("failed to lookup address information: Name or service not known", io::ErrorKind::NotFound),
        ] {
            let fault = unresolved(&io::Error::other(text));
            assert!(fault.kind() == kind && fault.to_string() == text, "{fault:?}");
        }
    }

    #[test]
    fn what_fails_again_is_told_from_what_may_pass() {
        use rustls::{AlertDescription as Alert, CertificateError, Error as Fault, PeerIncompatible};

        for (fault, ends) in [
            (Fault::InvalidCertificate(CertificateError::UnknownIssuer), true),
            (
                Fault::PeerIncompatible(PeerIncompatible::ServerSentHelloRetryRequestWithUnknownExtension),
                true,
            ),
            (Fault::NoApplicationProtocol, true),
            (Fault::AlertReceived(Alert::HandshakeFailure), true),
            (Fault::AlertReceived(Alert::CertificateRequired), true),
            (Fault::AlertReceived(Alert::InternalError), false),
            (Fault::AlertReceived(Alert::CloseNotify), false),
            (Fault::DecryptError, false),
        ] {
            let text = fault.to_string();
            let error = tls_fault(io::Error::new(io::ErrorKind::InvalidData, fault));
            assert_eq!(matches!(error.kind(), ErrorKind::Store(_)), ends, "{text}");
            assert_eq!(matches!(error.kind(), ErrorKind::Io(_)), !ends, "{text}");
        }
    }
}
