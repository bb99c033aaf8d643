//! Web servers: `http://` and `https://`, signed URLs included.
//!
//! This is a client of the crate's own because [`object_store`]'s drops the query of a URL and needs a length.

use super::answer;
use super::location::Failure;
use super::source::{GetOptions, GetResponse, Refusal, Source};
use super::transport::{self, Answer};
use crate::{Error, ErrorKind, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{StreamExt, TryStreamExt};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::Client;
use std::io;
use std::time::Duration;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct HttpSource {
    /// The client for what goes through a proxy; `None` if nothing does.
    proxied: Option<Client>,
}

impl HttpSource {
    pub(super) fn new() -> Result<Self> {
        Ok(HttpSource { proxied: if transport::is_proxied() { Some(client()?) } else { None } })
    }
}

fn client() -> Result<Client> {
    let client = Client::builder()
        .connect_timeout(CONNECT)
        // Many connections carry more than many streams of one.
        .http1_only()
        // Where another crate turns decompression on, it would make bytes of a range that are not in the object.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .user_agent(concat!("shardstream/", env!("CARGO_PKG_VERSION")))
        .build();
    client.map_err(|error| ErrorKind::Store(Failure::boxed(&error)).into())
}

impl Source for HttpSource {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let (proxied, url) = (self.proxied.clone(), url::Url::parse(url));
        async move {
            let url = url.map_err(|error| ErrorKind::Config(format!("bad URL: {error}")))?;
            match get(proxied.as_ref(), &url, &options).await {
                Err(Refusal::Beyond) => {
                    let options = GetOptions { range: None, ..options };
                    get(proxied.as_ref(), &url, &options).await.map_err(Error::from)
                }
                result => result.map_err(Error::from),
            }
        }
        .boxed()
    }
}

async fn get(proxied: Option<&Client>, url: &url::Url, asked: &GetOptions) -> Result<GetResponse, Refusal> {
    let answer = async {
        let headers = headers(url, asked)?;
        match proxied {
            None => transport::get(transport::parsed(url)?, headers).await,
            Some(client) => through_proxy(client.get(url.clone()).headers(headers)).await,
        }
    };
    answer::read(answer.await.map_err(Refusal::Other)?, asked, version).await
}

fn headers(url: &url::Url, asked: &GetOptions) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    let value = |text: &str| {
        let value = HeaderValue::from_str(text);
        value.map_err(|error| Error::from(ErrorKind::Config(format!("cannot be sent to a server: {error}"))))
    };
    // Bytes as they are stored: a range of a body compressed on the way would be a range of something else.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if let Some(range) = &asked.range {
        let range = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
        headers.insert(header::RANGE, value(&range)?);
    }
    if let Some((name, version)) = asked.if_version.as_deref().and_then(condition) {
        headers.insert(name, value(version)?);
    }
    if !url.username().is_empty() || url.password().is_some() {
        let decoded = |text| percent_encoding::percent_decode_str(text).collect::<Vec<u8>>();
        let user =
            [decoded(url.username()), b":".to_vec(), decoded(url.password().unwrap_or_default())].concat();
        let mut authorization = value(&format!("Basic {}", BASE64.encode(user)))?;
        authorization.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, authorization);
    }
    Ok(headers)
}

async fn through_proxy(request: reqwest::RequestBuilder) -> Result<Answer> {
    let response = request.send().await.map_err(fault)?;
    let (status, headers) = (response.status(), response.headers().clone());
    Ok(Answer { status, headers, body: response.bytes_stream().map_err(fault).boxed() })
}

/// The ETag, or else the modification time.
fn version(headers: &HeaderMap) -> Option<String> {
    let changed = || headers.get(header::LAST_MODIFIED)?.to_str().ok().map(str::to_owned);
    answer::etag(headers).or_else(changed)
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

/// A failure of the connection: it may pass.
fn fault(error: reqwest::Error) -> Error {
    let error = error.without_url();
    if error.is_builder() || error.is_redirect() {
        return ErrorKind::Store(Failure::boxed(&error)).into();
    }
    io::Error::other(Failure::new(&error)).into()
}
