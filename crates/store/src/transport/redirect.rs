//! Redirects: to which URI a request is sent next, and with which headers.

use super::origin::{HttpOrigin, request_uri};
use crate::location::Failure;
use crate::secret_url::SentSecrets;
use crate::{Error, ErrorKind, Result};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Uri};
use std::io;
use std::sync::Arc;

/// Maximum number of redirects of one request.
const MAX_REDIRECTS: usize = 10;

/// The URI and headers of a request. All redirects follow the same rules. A redirect from https must lead to
/// https. A redirect to another server keeps only [a few headers](is_public).
///
/// This type also keeps the secrets that were sent before each redirect, because a response may repeat them.
pub(crate) struct RequestTarget {
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    /// What a redirect changed in the request, to explain a refusal.
    pub(crate) note: Option<String>,
    /// The URIs and headers of this request before each redirect.
    earlier: Vec<(Uri, HeaderMap)>,
    /// The secrets that are sent in addition to the URI and headers: to a proxy, or in a body.
    other_secrets: Arc<SentSecrets>,
}

impl RequestTarget {
    /// `other_secrets` has the secrets that are sent in addition to `uri` and `headers`.
    pub(crate) fn new(uri: Uri, headers: HeaderMap, other_secrets: Arc<SentSecrets>) -> Self {
        RequestTarget { uri, headers, note: None, earlier: Vec::new(), other_secrets }
    }

    /// All secrets that have been sent.
    pub(crate) fn sent(&self) -> SentSecrets {
        let mut sent = SentSecrets::clone(&self.other_secrets);
        let earlier = self.earlier.iter().map(|(uri, headers)| (uri, headers));
        for (uri, headers) in earlier.chain([(&self.uri, &self.headers)]) {
            sent.add_url(uri.to_string());
            let is_secret =
                |name, value: &HeaderValue| value.is_sensitive() || !is_public(name) && !is_technical(name);
            for (_, value) in headers.iter().filter(|(name, value)| is_secret(name, value)) {
                sent.add_header(String::from_utf8_lossy(value.as_bytes()));
            }
        }
        sent
    }

    /// The fault of a request without a response. After a redirect, the fault's text may contain a host that
    /// a server chose. The server can put a secret of an earlier request into this host. Therefore the
    /// secrets are removed.
    pub(crate) fn fault(&self, error: Error) -> Error {
        if self.earlier.is_empty() {
            return error;
        }
        let shown = |text: String| self.sent().redact(&text);
        match error.kind() {
            ErrorKind::Io(fault) => io::Error::new(fault.kind(), shown(fault.to_string())).into(),
            ErrorKind::Store(fault) => ErrorKind::Store(shown(fault.to_string()).into()).into(),
            _ => error,
        }
    }

    /// The URI to which a response redirects, if it is on another server.
    ///
    /// # Errors
    ///
    /// As for [`follow`](RequestTarget::follow).
    #[cfg(feature = "http")]
    pub(crate) fn redirect_to_other_server(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Result<Option<Uri>> {
        let Some(next) = redirect(status, headers, &self.uri, || self.sent())? else { return Ok(None) };
        Ok((HttpOrigin::of(&self.uri)? != HttpOrigin::of(&next)?).then_some(next))
    }

    /// If the response is a redirect, sets the URI and headers of the next request, and returns true.
    ///
    /// # Errors
    ///
    /// If the request must not be sent to the new URI.
    pub(crate) fn follow(
        &mut self,
        method: &Method,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Result<bool> {
        let safe = matches!(*method, Method::GET | Method::HEAD);
        // Only the statuses 307 and 308 repeat an unsafe method unchanged (RFC 9110, 15.4).
        if !safe && !matches!(status.as_u16(), 307 | 308) {
            return Ok(false);
        }
        let Some(next) = redirect(status, headers, &self.uri, || self.sent())? else { return Ok(false) };
        if self.earlier.len() == MAX_REDIRECTS {
            return Err(refused(format!("the server redirects more than {MAX_REDIRECTS} times")));
        }
        let (from, to) = (HttpOrigin::of(&self.uri)?, HttpOrigin::of(&next)?);
        let before = self.headers.clone();
        if from != to {
            let sent = self.sent();
            let (region, to) = (region(headers, &sent), sent.redact(&to.to_string()));
            if !safe {
                let why =
                    format!("{method} was redirected from {from} to {to}, and is not sent to another server");
                return Err(refused(why + &region));
            }
            if keep_public(&mut self.headers) {
                let why = format!("redirected from {from} to {to}, to which no credentials are sent");
                self.note = Some(why + &region);
            }
        }
        self.earlier.push((std::mem::replace(&mut self.uri, next), before));
        Ok(true)
    }
}

/// The URI to which a response redirects, if it does.
fn redirect(
    status: StatusCode,
    headers: &HeaderMap,
    uri: &Uri,
    sent: impl Fn() -> SentSecrets,
) -> Result<Option<Uri>> {
    let (301..=303 | 307 | 308) = status.as_u16() else { return Ok(None) };
    let Some(location) = headers.get(header::LOCATION) else { return Ok(None) };
    let location = location.to_str().map_err(|_| refused("a redirect to an invalid URL".into()))?;
    let base = url::Url::parse(&uri.to_string()).map_err(|error| ErrorKind::Store(Failure::boxed(&error)))?;
    let next = base.join(location);
    let next = next.map_err(|error| refused(format!("a redirect to an invalid URL: {error}")))?;
    match next.scheme() {
        "http" if base.scheme() == "https" => {
            Err(refused("a redirect from https to http is not followed".into()))
        }
        "http" | "https" => Ok(Some(request_uri(next)?)),
        scheme => Err(refused(format!(
            "a redirect to another scheme, {}, is not followed: only http and https are",
            sent().redact(scheme)
        ))),
    }
}

fn refused(why: String) -> Error {
    ErrorKind::Store(why.into()).into()
}

/// Whether a header may be sent to another server: only headers that say which bytes are requested, and in
/// which form. All other headers may contain credentials.
pub(crate) fn is_public(name: &HeaderName) -> bool {
    let public = [
        header::RANGE,
        header::ACCEPT,
        header::ACCEPT_ENCODING,
        header::USER_AGENT,
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        header::IF_RANGE,
        header::IF_MODIFIED_SINCE,
        header::IF_UNMODIFIED_SINCE,
    ];
    public.contains(name)
}

/// Whether the header only describes the request, so that its value is no secret. Such a value is not removed
/// from error messages, because the messages may contain the same text by chance. Nevertheless, a redirect to
/// another server removes the header.
fn is_technical(name: &HeaderName) -> bool {
    let technical = [
        "content-encoding",
        "content-length",
        "content-md5",
        "content-type",
        "host",
        "metadata",
        "metadata-flavor",
        "x-amz-content-sha256",
        "x-amz-date",
        "x-amz-request-payer",
        "x-amz-sdk-checksum-algorithm",
        "x-amz-target",
        "x-aws-ec2-metadata-token-ttl-seconds",
        "x-goog-user-project",
        "x-ms-blob-type",
        "x-ms-date",
        "x-ms-version",
    ];
    technical.contains(&name.as_str())
}

/// Removes all headers that must not be sent to another server. Returns whether there were any.
fn keep_public(headers: &mut HeaderMap) -> bool {
    let is_kept = |(name, value): &(&HeaderName, &HeaderValue)| is_public(name) && !value.is_sensitive();
    let names: Vec<_> =
        headers.iter().filter(|header| !is_kept(header)).map(|(name, _)| name.clone()).collect();
    for name in &names {
        headers.remove(name);
    }
    !names.is_empty()
}

/// If S3 responds that the bucket is in another region: advice for the end of an error message. Else empty.
pub(crate) fn region(headers: &HeaderMap, sent: &SentSecrets) -> String {
    match headers.get("x-amz-bucket-region").and_then(|region| region.to_str().ok()) {
        Some(region) => {
            let region = sent.redact(region);
            format!("; the bucket is in the region {region}: set AWS_REGION={region}")
        }
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(to: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::LOCATION, to.parse().unwrap())])
    }

    fn signed(uri: &str) -> RequestTarget {
        let names = [
            "authorization",
            "x-amz-security-token",
            "x-aws-ec2-metadata-token",
            "x-own-key",
            "x-ms-date",
            "range",
        ];
        let headers = names.map(|name| (name.parse::<header::HeaderName>().unwrap(), "a".parse().unwrap()));
        RequestTarget::new(uri.parse().unwrap(), HeaderMap::from_iter(headers), Arc::default())
    }

    #[test]
    fn redirects_do_not_give_secrets_away() {
        let to = |from: &str, to: &'static str| {
            let mut target = signed(from);
            let followed = target.follow(&Method::GET, StatusCode::FOUND, &location(to))?;
            assert!(followed);
            Ok::<_, Error>((target.uri.to_string(), target.headers.len()))
        };
        for (from, location, expected, headers) in [
            ("https://a/b/c?d", "e?f", "https://a/b/e?f", 6),
            ("https://a/b", "https://A:443/d", "https://a/d", 6),
            ("http://a/b", "https://a/d", "https://a/d", 1),
            ("https://a/b", "https://a:444/d", "https://a:444/d", 1),
            ("http://a/b", "https://c/d", "https://c/d", 1),
            ("https://a/b", "//me:s3cret@c/d", "https://c/d", 1),
        ] {
            assert_eq!(to(from, location).unwrap(), (expected.to_owned(), headers), "{from} to {location}");
        }
        for (location, word) in [
            ("http://a/b", "https to http"),
            ("ftp://a/b", "scheme, ftp"),
            ("s3://a/b", "scheme, s3"),
            ("http://[", "URL"),
        ] {
            let error = to("https://a/b?sig=s3cret", location).unwrap_err();
            let text = format!("{error:#} {error:?}");
            assert!(matches!(error.kind(), ErrorKind::Store(_)) && text.contains(word), "{text}");
            assert!(!text.contains("s3cret"), "{text}");
        }
    }

    #[test]
    fn writes_are_not_redirected_to_another_server() {
        for (status, to, expected) in [
            (307, "https://a/c", Some(true)),
            (308, "c", Some(true)),
            (301, "https://a/c", Some(false)),
            (302, "https://b/c", Some(false)),
            (307, "https://b/c", None),
            (307, "http://a/c", None),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let followed = signed("https://a/b").follow(&Method::PUT, status, &location(to));
            assert_eq!(followed.ok(), expected, "{status} to {to}");
        }
    }

    #[test]
    fn the_region_of_a_bucket_is_in_the_note() {
        let mut headers = location("https://bucket.s3.eu-west-1.amazonaws.com/b");
        headers.insert("x-amz-bucket-region", "eu-west-1".parse().unwrap());
        let mut target = signed("https://s3.us-east-1.amazonaws.com/bucket/b");
        assert!(target.follow(&Method::GET, StatusCode::TEMPORARY_REDIRECT, &headers).unwrap());
        let note = target.note.unwrap();
        assert!(
            note.contains("from s3.us-east-1.amazonaws.com to bucket.s3.eu-west-1.amazonaws.com"),
            "{note}"
        );
        assert!(note.contains("set AWS_REGION=eu-west-1"), "{note}");
    }

    #[test]
    fn redirects_end() {
        let mut target = signed("https://a/b");
        let mut follow = || target.follow(&Method::GET, StatusCode::FOUND, &location("b"));
        assert!((0..MAX_REDIRECTS).all(|_| follow().unwrap()));
        assert!(matches!(follow().unwrap_err().kind(), ErrorKind::Store(_)));
    }
}
