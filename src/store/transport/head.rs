//! Heads: the request as it is sent, and what is before the body of the response.

use super::chunked::Chunked;
use super::origin::{Origin, malformed};
use super::tls::tls_fault;
use crate::{Error, ErrorKind, Result};
use bytes::BufMut;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, Uri};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes that heads may take, those of interim answers included.
const LARGEST: usize = 64 << 10;
/// Headers of one answer.
const HEADERS: usize = 100;
/// Bytes asked for at once. What comes behind the head in them is copied, so it is little.
const READ: usize = 4 << 10;

pub(in crate::store) const AGENT: &str = concat!("shardstream/", env!("CARGO_PKG_VERSION"));

/// A GET of `uri`. The types of `uri` and `headers` cannot hold the end of a line.
pub(super) fn request(origin: &Origin, uri: &Uri, headers: &HeaderMap) -> Vec<u8> {
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let mut request = Vec::with_capacity(1024);
    let mut line = |parts: &[&[u8]]| parts.iter().for_each(|part| request.extend_from_slice(part));
    line(&[b"GET ", target.as_bytes(), b" HTTP/1.1\r\nHost: ", origin.to_string().as_bytes(), b"\r\n"]);
    for (name, default) in [(header::USER_AGENT, AGENT), (header::ACCEPT, "*/*")] {
        if !headers.contains_key(&name) {
            line(&[name.as_str().as_bytes(), b": ", default.as_bytes(), b"\r\n"]);
        }
    }
    for (name, value) in headers.iter().filter(|(name, _)| **name != header::HOST) {
        line(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
    }
    line(&[b"\r\n"]);
    request
}

/// What is before a body, and where the body ends.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) framing: Framing,
    /// Whether the server will take another request on this connection.
    pub(super) keep: bool,
}

/// How the end of a body is told (RFC 9112, 6.3).
#[derive(Debug)]
pub(super) enum Framing {
    /// Bytes that are yet to come.
    Length(u64),
    Chunked(Chunked),
    /// The server closes the connection.
    Close,
}

/// Why there is no head.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) error: Error,
    /// Not one byte came: on a connection that was idle before, the server may never have seen the request.
    pub(super) silent: bool,
}

/// Reads the head of the final answer. What was received behind it stays in `received`.
pub(super) async fn read(
    io: &mut (impl AsyncRead + Unpin + ?Sized),
    received: &mut Vec<u8>,
) -> Result<Head, Fault> {
    let (mut taken, mut looked_at) = (0, 0);
    loop {
        if let Some(end) = end_of_head(received, looked_at) {
            let head = parse(&received[..end]).map_err(|error| Fault { error, silent: false })?;
            received.drain(..end);
            (taken, looked_at) = (taken + end, 0);
            match head {
                Some(head) => return Ok(head),
                None => continue,
            }
        }
        looked_at = received.len();
        let room = READ.min(LARGEST.saturating_sub(taken + received.len()));
        if room == 0 {
            let error = ErrorKind::TooLarge {
                what: "the head of an answer",
                size: LARGEST as u64 + 1,
                limit: LARGEST as u64,
            };
            return Err(Fault { error: error.into(), silent: false });
        }
        received.reserve(room);
        let silent = taken == 0 && received.is_empty();
        let error = match io.read_buf(&mut received.limit(room)).await {
            Ok(0) => io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server closed the connection without an answer",
            ),
            Ok(_) => continue,
            Err(error) => error,
        };
        return Err(Fault { error: tls_fault(error), silent });
    }
}

/// Where the first empty line ends, of which the first `looked_at` bytes hold none.
fn end_of_head(bytes: &[u8], looked_at: usize) -> Option<usize> {
    let from = looked_at.saturating_sub(2);
    let ends =
        bytes[from..].iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| from + at + 1);
    ends.into_iter().find_map(|end| match bytes[end..] {
        [b'\n', ..] => Some(end + 1),
        [b'\r', b'\n', ..] => Some(end + 2),
        _ => None,
    })
}

/// The head in `bytes`; `None` for an interim answer, after which another head comes.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(bytes) {
        Ok(httparse::Status::Complete(end)) if end == bytes.len() => {}
        Ok(_) => return Err(malformed("its head does not end where its lines do")),
        Err(error) => return Err(malformed(&error.to_string())),
    }
    let status = StatusCode::from_u16(response.code.unwrap_or_default());
    let status = status.map_err(|error| malformed(&error.to_string()))?;
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(malformed("it changes the protocol without being asked"));
    }
    if status.is_informational() {
        return Ok(None);
    }
    let mut map = HeaderMap::with_capacity(response.headers.len());
    for header in &*response.headers {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        let name = name.map_err(|error| malformed(&error.to_string()))?;
        map.append(
            name,
            HeaderValue::from_bytes(header.value).map_err(|error| malformed(&error.to_string()))?,
        );
    }
    let modern = response.version == Some(1);
    let framing = framing(status, &map, modern)?;
    let keep = modern && !says_close(&map) && !matches!(framing, Framing::Close);
    Ok(Some(Head { status, headers: map, framing, keep }))
}

/// Where two readers could see the end of the body in two places, there is no response at all.
fn framing(status: StatusCode, headers: &HeaderMap, modern: bool) -> Result<Framing> {
    let length = content_length(headers)?;
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        if !modern || codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            return Err(malformed("a transfer encoding other than chunked"));
        }
        if length.is_some() {
            return Err(malformed("both a length and a transfer encoding"));
        }
    }
    Ok(match length {
        _ if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) => Framing::Length(0),
        Some(length) => Framing::Length(length),
        None if headers.contains_key(header::TRANSFER_ENCODING) => Framing::Chunked(Chunked::default()),
        None => Framing::Close,
    })
}

/// The length, which may be said more than once, but not in two ways.
fn content_length(headers: &HeaderMap) -> Result<Option<u64>> {
    let mut length = None;
    for value in headers.get_all(header::CONTENT_LENGTH) {
        let digits = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let said = digits
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| malformed("a length that is no number"))?;
        if length.is_some_and(|length| length != said) {
            return Err(malformed("two different lengths"));
        }
        length = Some(said);
    }
    Ok(length)
}

fn says_close(headers: &HeaderMap) -> bool {
    let options = headers.get_all(header::CONNECTION);
    let mut options = options.iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
}
