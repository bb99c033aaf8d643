//! Web servers: `http://` and `https://`, signed URLs included.
//!
//! [`object_store`] has a client for web servers too, but that client drops the query of a URL, and requires
//! that the server sends the length.

use super::http_headers::{HeaderRule, HeaderRules};
use super::http_time::parse_date;
use super::object_version::WEAK;
use super::source::{GetOptions, GetResponse, Refusal, Source};
use super::transport::{BodyClient, proxy_secrets, request_uri};
use super::{client, response};
use crate::{Error, ErrorKind, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::future::{BoxFuture, FutureExt};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The modification time of an object identifies its bytes only if the object was at least this old at the
/// time of the response. The clocks of a server and its disks may differ by some seconds.
const MIN_AGE: Duration = Duration::from_secs(60);

/// Web servers: each object has its own URL.
#[derive(Debug, Clone)]
pub(super) struct HttpSource {
    client: BodyClient,
    rules: Arc<HeaderRules>,
}

impl HttpSource {
    /// `rules` has the caller's headers.
    pub(super) fn new(rules: Arc<HeaderRules>) -> Result<Self> {
        Ok(HttpSource { client: web_client()?, rules })
    }

    async fn get(&self, url: &url::Url, options: &GetOptions) -> Result<GetResponse, Refusal> {
        let Some(rule) = self.rules.find(url) else { return self.get_with(url, options, None, None).await };
        let Some(bearer) = &rule.bearer else { return self.get_with(url, options, Some(rule), None).await };
        let token = bearer.header().await.map_err(Refusal::Other)?;
        match self.get_with(url, options, Some(rule), token.as_ref()).await {
            Err(Refusal::Unauthenticated(error)) => {
                let renewed = bearer.renewed(token.as_ref()).await.map_err(Refusal::Other)?;
                let renewed = renewed.ok_or(Refusal::Unauthenticated(error))?;
                self.get_with(url, options, Some(rule), Some(&renewed)).await
            }
            result => result,
        }
    }

    async fn get_with(
        &self,
        url: &url::Url,
        options: &GetOptions,
        rule: Option<&HeaderRule>,
        token: Option<&HeaderValue>,
    ) -> Result<GetResponse, Refusal> {
        let response = async {
            let mut headers = rule.map(|rule| rule.headers.clone()).unwrap_or_default();
            headers.extend(range_and_version(options)?);
            if let Some(authorization) = basic_authorization(url)?.or(token.cloned()) {
                headers.insert(header::AUTHORIZATION, authorization);
            }
            self.client.get(request_uri(url.clone())?, headers).await
        };
        response::read(response.await.map_err(Refusal::Other)?, url.as_str(), options, version).await
    }
}

/// A client for web servers.
pub(super) fn web_client() -> Result<BodyClient> {
    Ok(BodyClient::new(client::web()?, proxy_secrets(None)))
}

impl Source for HttpSource {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let (source, url) = (self.clone(), url::Url::parse(url));
        async move {
            let url = url.map_err(|error| ErrorKind::Config(format!("bad URL: {error}")))?;
            match source.get(&url, &options).await {
                Err(Refusal::Beyond) => {
                    let options = GetOptions { range: None, ..options };
                    source.get(&url, &options).await.map_err(Error::from)
                }
                result => result.map_err(Error::from),
            }
        }
        .boxed()
    }
}

fn header_value(text: &str) -> Result<HeaderValue> {
    let value = HeaderValue::from_str(text);
    value.map_err(|error| ErrorKind::Config(format!("cannot be sent to a server: {error}")).into())
}

/// The headers that request a range and a version of an object.
pub(super) fn range_and_version(options: &GetOptions) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    if let Some(range) = &options.range {
        let range = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
        headers.insert(header::RANGE, header_value(&range)?);
    }
    if let Some(version) = &options.if_version {
        headers.insert(condition(version), header_value(version)?);
    }
    Ok(headers)
}

/// The header for the user and password in a URL, if it has any.
fn basic_authorization(url: &url::Url) -> Result<Option<HeaderValue>> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let decoded = |text| percent_encoding::percent_decode_str(text).collect::<Vec<u8>>();
    let user = [decoded(url.username()), b":".to_vec(), decoded(url.password().unwrap_or_default())].concat();
    let mut authorization = header_value(&format!("Basic {}", BASE64.encode(user)))?;
    authorization.set_sensitive(true);
    Ok(Some(authorization))
}

/// The version of an object: its ETag, or else its modification time.
pub(super) fn version(headers: &HeaderMap) -> Option<String> {
    response::etag(headers).or_else(|| modification_time(headers, SystemTime::now()))
}

/// The modification time, as the server sent it. It is marked as weak unless the object is much older than
/// the response, since the object could have been written twice within one second (RFC 9110, 8.8.2.2).
fn modification_time(headers: &HeaderMap, now: SystemTime) -> Option<String> {
    let text = |name| headers.get(name)?.to_str().ok();
    let modified = text(header::LAST_MODIFIED)?;
    let sent = text(header::DATE).and_then(parse_date).unwrap_or(now);
    let age = parse_date(modified).and_then(|modified| sent.duration_since(modified).ok());
    Some(match age {
        Some(age) if age >= MIN_AGE => modified.to_owned(),
        _ => format!("{WEAK}{modified}"),
    })
}

/// The name of the header that requests this version only (RFC 9110, 13.1).
fn condition(version: &str) -> HeaderName {
    match version.starts_with('"') {
        true => header::IF_MATCH,
        false => header::IF_UNMODIFIED_SINCE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modification_time_of_a_new_object_is_weak() {
        let modified = "Fri, 20 Nov 2020 12:00:00 GMT";
        let now = parse_date("Fri, 20 Nov 2020 13:00:00 GMT").unwrap();
        for (date, is_weak) in [
            (Some("Fri, 20 Nov 2020 12:00:00 GMT"), true),
            (Some("Fri, 20 Nov 2020 12:00:59 GMT"), true),
            (Some("Fri, 20 Nov 2020 12:01:00 GMT"), false),
            (Some("Fri, 20 Nov 2020 11:00:00 GMT"), true),
            (Some("no date"), false),
            (None, false),
        ] {
            let mut headers = HeaderMap::from_iter([(header::LAST_MODIFIED, modified.parse().unwrap())]);
            headers.extend(date.map(|date| (header::DATE, date.parse().unwrap())));
            let expected = if is_weak { format!("W/{modified}") } else { modified.to_owned() };
            assert_eq!(modification_time(&headers, now), Some(expected), "{date:?}");
        }
        let unreadable = HeaderMap::from_iter([(header::LAST_MODIFIED, "yesterday".parse().unwrap())]);
        assert_eq!(modification_time(&unreadable, now).as_deref(), Some("W/yesterday"));
        assert_eq!(modification_time(&HeaderMap::new(), now), None);
    }
}
