//! Web servers: `http://` and `https://`, signed URLs included.
//!
//! This is a client of the crate's own because [`object_store`]'s drops the query of a URL and needs a length.

use super::location::Failure;
use super::source::{GetOptions, GetResponse, Source};
use crate::{Error, ErrorKind, Result};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{StreamExt, TryStreamExt};
use reqwest::header::{self, HeaderMap, HeaderName};
use reqwest::{Client, Response, StatusCode};
use std::io;
use std::ops::Range;
use std::time::Duration;

/// How long a connection may take to be made, and how long a response may be silent. A body as a whole may take any
/// time.
const CONNECT: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct HttpSource(Client);

impl HttpSource {
    pub(super) fn new() -> Result<Self> {
        let client = Client::builder()
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            // Many connections carry more than many streams of one.
            .http1_only()
            // Where another crate turns decompression on, it would make bytes of a range that are not in the object.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .user_agent(concat!("shardstream/", env!("CARGO_PKG_VERSION")))
            .build();
        client.map(HttpSource).map_err(|error| ErrorKind::Store(Failure::boxed(&error)).into())
    }
}

impl Source for HttpSource {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let (client, url) = (self.0.clone(), url::Url::parse(url));
        async move {
            let url = url.map_err(|error| ErrorKind::Config(format!("bad URL: {error}")))?;
            get(&client, url, options).await
        }
        .boxed()
    }
}

async fn get(client: &Client, url: url::Url, options: GetOptions) -> Result<GetResponse> {
    let GetOptions { range, if_version } = options;
    // Bytes as they are stored: a range of a body compressed on the way would be a range of something else.
    let mut request = client.get(url.clone()).header(header::ACCEPT_ENCODING, "identity");
    if let Some(range) = &range {
        request =
            request.header(header::RANGE, format!("bytes={}-{}", range.start, range.end.saturating_sub(1)));
    }
    if let Some((name, value)) = if_version.as_deref().and_then(condition) {
        request = request.header(name, value);
    }
    let response = request.send().await.map_err(fault)?;
    match response.status() {
        StatusCode::OK => Ok(answer(response, None, None)),
        StatusCode::PARTIAL_CONTENT => {
            let (range, size) = content_range(response.headers()).ok_or_else(|| {
                Error::from(ErrorKind::Store("a partial response does not say which part it is".into()))
            })?;
            Ok(answer(response, Some(range), size))
        }
        // The range begins at the end or after it, as every range of an empty object does: the whole object's answer
        // tells its size.
        StatusCode::RANGE_NOT_SATISFIABLE if range.is_some() => {
            let options = GetOptions { range: None, if_version };
            Box::pin(get(client, url, options)).await
        }
        StatusCode::PRECONDITION_FAILED => {
            let before = if_version.unwrap_or_default();
            let after = version(response.headers()).unwrap_or_else(|| "another one".into());
            Err(ErrorKind::Changed { before, after }.into())
        }
        status => Err(refused(status)),
    }
}

fn answer(response: Response, range: Option<Range<u64>>, size: Option<u64>) -> GetResponse {
    let version = version(response.headers());
    let size = if range.is_some() { size } else { response.content_length() };
    let body = response.bytes_stream().map_err(fault).boxed();
    GetResponse { size, range, version, checksum: None, body }
}

/// The ETag, or else the modification time.
fn version(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::ETAG).or_else(|| headers.get(header::LAST_MODIFIED))?;
    value.to_str().ok().map(str::to_owned)
}

/// The header that asks for a version and no other (RFC 9110, 13.1). A weak ETag would never match; the reader
/// compares the version of each answer in any case.
fn condition(version: &str) -> Option<(HeaderName, &str)> {
    if version.starts_with("W/") {
        None
    } else if version.starts_with('"') {
        Some((header::IF_MATCH, version))
    } else {
        Some((header::IF_UNMODIFIED_SINCE, version))
    }
}

/// The part and, if known, the size of the whole (RFC 9110, 14.4).
fn content_range(headers: &HeaderMap) -> Option<(Range<u64>, Option<u64>)> {
    let value = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    let (range, size) = value.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last) = (first.parse().ok()?, last.parse::<u64>().ok()?);
    let size = if size == "*" { None } else { Some(size.parse().ok()?) };
    Some((first..last.checked_add(1)?, size))
}

/// A failure of the connection: it may pass.
fn fault(error: reqwest::Error) -> Error {
    let error = error.without_url();
    if error.is_builder() || error.is_redirect() {
        return ErrorKind::Store(Failure::boxed(&error)).into();
    }
    io::Error::other(Failure::new(&error)).into()
}

fn refused(status: StatusCode) -> Error {
    let answer = format!("the server answered {status}");
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => ErrorKind::NotFound(answer.into()),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ErrorKind::Denied(answer.into()),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => io::Error::other(answer).into(),
        status if status.is_server_error() => io::Error::other(answer).into(),
        _ => ErrorKind::Store(answer.into()),
    }
    .into()
}
