//! Downloads over HTTP/1.1 that cost little: the way of the bytes of objects.
//!
//! `reqwest` does all the rest (uploads, listings, tokens, and whatever goes through a proxy), and did this too. For a
//! gigabyte from a server on the same machine it took about twice the time of a core that `curl` takes: it reads into
//! memory that was never touched before, in small pieces, and each wakes a chain of tasks. Here bytes go from the socket
//! into buffers that have been used before, and those are what samples share. That is all this module is for: GETs,
//! HTTP/1.1 (many connections carry more than many streams of one), no proxy, no cookies, no compression.
//!
//! It watches the time only until a connection is made. Who waits for an answer or a chunk gives it up by dropping it.

mod body;
mod chunked;
mod connection;
mod head;
mod pool;
#[cfg(test)]
mod tests;

use crate::store::location::Failure;
use crate::{Error, ErrorKind, Result};
use body::Body;
use bytes::Bytes;
use connection::Connection;
use futures::stream::{BoxStream, StreamExt};
use head::{Fault, Head};
use http::header::{self, HeaderMap};
use http::{StatusCode, Uri};
use std::fmt;

/// How often an answer may say that the object is elsewhere.
const REDIRECTS: usize = 10;

/// An answer, whatever its status.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: BoxStream<'static, Result<Bytes>>,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Whether the environment asks for a proxy, for any place: then `reqwest` finds out for which.
pub(super) fn is_proxied() -> bool {
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"].into_iter().any(|name| {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        set(name) || set(&name.to_ascii_lowercase())
    })
}

/// Asks for what is at `uri`, and wherever it says that it is. Must be polled on the crate's runtime.
pub(super) async fn get(mut uri: Uri, mut headers: HeaderMap) -> Result<Answer> {
    for _ in 0..=REDIRECTS {
        let origin = Origin::of(&uri)?;
        let (head, connection) = exchange(&origin, &head::request(&origin, &uri, &headers)).await?;
        let Head { status, headers: told, framing, keep } = head;
        let body = Body::new(connection, framing, keep);
        match redirect(status, &told, &uri)? {
            None => return Ok(Answer { status, headers: told, body: body.boxed() }),
            Some(next) => {
                if Origin::of(&next)? != origin {
                    forget_credentials(&mut headers);
                }
                uri = next;
            }
        }
    }
    Err(ErrorKind::Store(format!("the server redirects more than {REDIRECTS} times").into()).into())
}

/// One request and the head of its answer, on a connection that waits for one or on a new one.
async fn exchange(origin: &Origin, request: &[u8]) -> Result<(Head, Connection)> {
    if let Some(mut connection) = pool::take(origin) {
        match connection.ask(request).await {
            Ok(head) => return Ok((head, connection)),
            // The server closed it before the request arrived; and if not, a GET may be sent twice.
            Err(Fault { silent: true, .. }) => {}
            Err(fault) => return Err(fault.error),
        }
    }
    let mut connection = Connection::open(origin).await?;
    match connection.ask(request).await {
        Ok(head) => Ok((head, connection)),
        Err(fault) => Err(fault.error),
    }
}

/// Where the answer says that the object is, if it says so.
fn redirect(status: StatusCode, headers: &HeaderMap, uri: &Uri) -> Result<Option<Uri>> {
    let (301..=303 | 307 | 308) = status.as_u16() else { return Ok(None) };
    let Some(location) = headers.get(header::LOCATION) else { return Ok(None) };
    let refused = |why: &str| Error::from(ErrorKind::Store(format!("a redirect {why}").into()));
    let location = location.to_str().map_err(|_| refused("to something that is no URL"))?;
    let base = url::Url::parse(&uri.to_string()).map_err(|error| ErrorKind::Store(Failure::boxed(&error)))?;
    let next =
        base.join(location).map_err(|error| refused(&format!("to something that is no URL: {error}")))?;
    if base.scheme() == "https" && next.scheme() != "https" {
        return Err(refused("from https to something else is not followed"));
    }
    Ok(Some(parsed(&next)?))
}

/// Another server must not get what was meant for this one.
fn forget_credentials(headers: &mut HeaderMap) {
    let secret = |name: &str| {
        matches!(name, "authorization" | "cookie" | "proxy-authorization")
            || ["x-amz-", "x-goog-", "x-ms-"].iter().any(|prefix| name.starts_with(prefix))
    };
    let names: Vec<_> = headers.keys().filter(|name| secret(name.as_str())).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// The URL as requests take it.
pub(super) fn parsed(url: &url::Url) -> Result<Uri> {
    url.as_str().parse().map_err(|error| ErrorKind::Config(format!("bad URL: {error}")).into())
}

/// Whom a connection leads to. Displayed as in the header `Host`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Origin {
    tls: bool,
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
}

impl Origin {
    fn of(uri: &Uri) -> Result<Self> {
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(ErrorKind::Config("bad URL: it is neither http nor https".into()).into()),
        };
        let host = uri.host().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(ErrorKind::Config("bad URL: it has no host".into()).into());
        }
        let port = uri.port_u16().unwrap_or(Self::default_port(tls));
        Ok(Origin { tls, host: host.to_ascii_lowercase(), port })
    }

    fn default_port(tls: bool) -> u16 {
        if tls { 443 } else { 80 }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]", self.host)?,
            false => f.write_str(&self.host)?,
        }
        if self.port != Self::default_port(self.tls) {
            write!(f, ":{}", self.port)?;
        }
        Ok(())
    }
}

/// What came is no answer that this client reads: trying again would not help.
fn malformed(why: &str) -> Error {
    ErrorKind::Store(format!("the server's answer cannot be read: {why}").into()).into()
}
