//! Web servers: `http://` and `https://`, signed URLs included.
//!
//! [`object_store`] has a client for them too, but it drops the query of a URL and requires a length.

use super::source::{GetOptions, GetResponse, Refusal, Source};
use super::transport::{BodyClient, proxy_secrets, request_uri};
use super::{client, response};
use crate::{Error, ErrorKind, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::future::{BoxFuture, FutureExt};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Web servers, whose objects have URLs of their own.
#[derive(Debug)]
pub(super) struct HttpSource {
    client: BodyClient,
}

impl HttpSource {
    pub(super) fn new() -> Result<Self> {
        Ok(HttpSource { client: BodyClient::new(client::web()?, proxy_secrets(None)) })
    }
}

impl Source for HttpSource {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let (client, url) = (self.client.clone(), url::Url::parse(url));
        async move {
            let url = url.map_err(|error| ErrorKind::Config(format!("bad URL: {error}")))?;
            match get(&client, &url, &options).await {
                Err(Refusal::Beyond) => {
                    let options = GetOptions { range: None, ..options };
                    get(&client, &url, &options).await.map_err(Error::from)
                }
                result => result.map_err(Error::from),
            }
        }
        .boxed()
    }
}

async fn get(client: &BodyClient, url: &url::Url, options: &GetOptions) -> Result<GetResponse, Refusal> {
    let response = async {
        let headers = headers(url, options)?;
        client.get(request_uri(url.clone())?, headers).await
    };
    response::read(response.await.map_err(Refusal::Other)?, url.as_str(), options, version).await
}

/// The headers of a request: range, condition and credentials.
fn headers(url: &url::Url, options: &GetOptions) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    let value = |text: &str| {
        let value = HeaderValue::from_str(text);
        value.map_err(|error| Error::from(ErrorKind::Config(format!("cannot be sent to a server: {error}"))))
    };
    if let Some(range) = &options.range {
        let range = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
        headers.insert(header::RANGE, value(&range)?);
    }
    if let Some((name, version)) = options.if_version.as_deref().and_then(condition) {
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

/// The version of an object: its ETag, or else its modification time.
fn version(headers: &HeaderMap) -> Option<String> {
    let changed = || headers.get(header::LAST_MODIFIED)?.to_str().ok().map(str::to_owned);
    response::etag(headers).or_else(changed)
}

/// The header that requests this version and no other (RFC 9110, 13.1). None for a weak ETag, which would
/// never match; the reader compares the version of each response in any case.
fn condition(version: &str) -> Option<(HeaderName, &str)> {
    if version.starts_with("W/") {
        None
    } else if version.starts_with('"') {
        Some((header::IF_MATCH, version))
    } else {
        Some((header::IF_UNMODIFIED_SINCE, version))
    }
}
