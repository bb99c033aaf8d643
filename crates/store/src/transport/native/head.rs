//! The heads of requests and responses: start line and headers.

use super::chunked::ChunkedDecoder;
use crate::error::{Error, ErrorKind, Result, SizeLimit};
use crate::transport::USER_AGENT;
use crate::transport::fault::{malformed, network_fault};
use crate::transport::origin::HttpOrigin;
use bytes::BufMut;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, Uri};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Maximum number of bytes of a head, including those of interim responses (1xx) before it.
const MAX_BYTES: usize = 64 << 10;
/// Maximum number of headers in a response.
const MAX_HEADERS: usize = 100;
/// Bytes per read. It is small because the part of the body that comes with the head is copied.
const READ_SIZE: usize = 4 << 10;

/// The head of a GET for `uri`. The types of `uri` and `headers` rule out line breaks in them.
pub(super) fn request(origin: &HttpOrigin, uri: &Uri, headers: &HeaderMap) -> Vec<u8> {
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let mut request = Vec::with_capacity(1024);
    let mut line = |parts: &[&[u8]]| parts.iter().for_each(|part| request.extend_from_slice(part));
    line(&[b"GET ", target.as_bytes(), b" HTTP/1.1\r\nHost: ", origin.to_string().as_bytes(), b"\r\n"]);
    for (name, default) in [(header::USER_AGENT, USER_AGENT), (header::ACCEPT, "*/*")] {
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

/// The head of a response, and what it says about the body and the connection.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) framing: Framing,
    /// Whether the server accepts another request on this connection.
    pub(super) keep_alive: bool,
}

/// How the end of a body is marked (RFC 9112, 6.3).
#[derive(Debug)]
pub(super) enum Framing {
    /// By its length: the number of bytes not received yet.
    Length(u64),
    Chunked(ChunkedDecoder),
    /// By the end of the connection.
    Close,
}

/// Why a request got no head of a response.
#[derive(Debug)]
pub(super) struct HeadError {
    pub(super) error: Error,
    /// Whether not one byte arrived. On a connection that was idle before, the server may never have seen the
    /// request.
    pub(super) nothing_received: bool,
}

impl HeadError {
    /// An error of a response that has begun.
    fn begun(error: impl Into<Error>) -> Self {
        HeadError { error: error.into(), nothing_received: false }
    }
}

/// Reads the head of the final response. Bytes received behind it stay in `received`.
pub(super) async fn read(
    io: &mut (impl AsyncRead + Unpin + ?Sized),
    received: &mut Vec<u8>,
) -> Result<ResponseHead, HeadError> {
    // Bytes of interim responses, and bytes of `received` that hold no end of a head.
    let (mut taken, mut searched) = (0, 0);
    loop {
        if let Some(end) = end_of_head(received, searched) {
            let head = parse(&received[..end]).map_err(HeadError::begun)?;
            received.drain(..end);
            (taken, searched) = (taken + end, 0);
            match head {
                Some(head) => return Ok(head),
                None => continue,
            }
        }
        searched = received.len();
        let room = READ_SIZE.min(MAX_BYTES.saturating_sub(taken + received.len()));
        if room == 0 {
            let error = ErrorKind::TooLarge {
                what: SizeLimit::ResponseHead,
                size: MAX_BYTES as u64 + 1,
                limit: MAX_BYTES as u64,
            };
            return Err(HeadError::begun(error));
        }
        received.reserve(room);
        let nothing_received = taken == 0 && received.is_empty();
        let error = match io.read_buf(&mut received.limit(room)).await {
            Ok(0) => io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server closed the connection without a response",
            ),
            Ok(_) => continue,
            Err(error) => error,
        };
        return Err(HeadError { error: network_fault(&error, None), nothing_received });
    }
}

/// The end of the first empty line. The first `searched` bytes are known to hold none.
fn end_of_head(bytes: &[u8], searched: usize) -> Option<usize> {
    let from = searched.saturating_sub(2);
    let ends =
        bytes[from..].iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| from + at + 1);
    ends.into_iter().find_map(|end| match bytes[end..] {
        [b'\n', ..] => Some(end + 1),
        [b'\r', b'\n', ..] => Some(end + 2),
        _ => None,
    })
}

/// Parses the head in `bytes`. Returns `None` for an interim response (1xx), which another head follows.
fn parse(bytes: &[u8]) -> Result<Option<ResponseHead>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
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
    let is_http_1_1 = response.version == Some(1);
    let framing = framing(status, &map, is_http_1_1)?;
    let keep_alive = is_http_1_1 && !says_close(&map) && !matches!(framing, Framing::Close);
    Ok(Some(ResponseHead { status, headers: map, framing, keep_alive }))
}

/// The framing of the body. A response whose body two readers could see end in two places is an error.
fn framing(status: StatusCode, headers: &HeaderMap, is_http_1_1: bool) -> Result<Framing> {
    let length = content_length(headers)?;
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        if !is_http_1_1 || codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            return Err(malformed("a transfer encoding other than chunked"));
        }
        if length.is_some() {
            return Err(malformed("both a length and a transfer encoding"));
        }
    }
    Ok(match length {
        _ if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) => Framing::Length(0),
        Some(length) => Framing::Length(length),
        None if headers.contains_key(header::TRANSFER_ENCODING) => {
            Framing::Chunked(ChunkedDecoder::default())
        }
        None => Framing::Close,
    })
}

/// The `Content-Length`. It may be repeated, but not with another value.
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
