//! Redirects: where a request goes next, and with which headers.

use super::origin::{HttpOrigin, request_uri};
use crate::store::location::Failure;
use crate::{Error, ErrorKind, Result};
use http::header::{self, HeaderMap};
use http::{Method, StatusCode, Uri};

/// Maximum number of redirects of one request.
const MAX_REDIRECTS: usize = 10;

/// The URI and headers of a request. The same rules hold for all requests, whichever client sends them: https
/// redirects only to https, and another server gets no credentials.
pub(in crate::store) struct RequestTarget {
    pub(in crate::store) uri: Uri,
    pub(in crate::store) headers: HeaderMap,
    /// What a redirect changed in the request, to explain a refusal.
    pub(in crate::store) note: Option<String>,
    /// Number of redirects followed so far.
    followed: usize,
}

impl RequestTarget {
    pub(in crate::store) fn new(uri: Uri, headers: HeaderMap) -> Self {
        RequestTarget { uri, headers, note: None, followed: 0 }
    }

    /// Follows the redirect of a response, if it is one. Returns whether it is: then the request is sent
    /// again, to the new URI.
    ///
    /// # Errors
    ///
    /// If the request must not be sent to where the response leads.
    pub(in crate::store) fn follow(
        &mut self,
        method: &Method,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Result<bool> {
        let safe = matches!(*method, Method::GET | Method::HEAD);
        // Only after these is an unsafe method repeated as it is (RFC 9110, 15.4).
        if !safe && !matches!(status.as_u16(), 307 | 308) {
            return Ok(false);
        }
        let Some(next) = redirect(status, headers, &self.uri)? else { return Ok(false) };
        if self.followed == MAX_REDIRECTS {
            return Err(refused(format!("the server redirects more than {MAX_REDIRECTS} times")));
        }
        let (from, to) = (HttpOrigin::of(&self.uri)?, HttpOrigin::of(&next)?);
        if from != to {
            let region = region(headers);
            if !safe {
                let why =
                    format!("{method} was redirected from {from} to {to}, and is sent to no other server");
                return Err(refused(why + &region));
            }
            if remove_credentials(&mut self.headers) {
                let why = format!("redirected from {from} to {to}, which is sent no credentials");
                self.note = Some(why + &region);
            }
        }
        self.followed += 1;
        self.uri = next;
        Ok(true)
    }
}

/// The URI to which a response redirects, if it does.
fn redirect(status: StatusCode, headers: &HeaderMap, uri: &Uri) -> Result<Option<Uri>> {
    let (301..=303 | 307 | 308) = status.as_u16() else { return Ok(None) };
    let Some(location) = headers.get(header::LOCATION) else { return Ok(None) };
    let location = location.to_str().map_err(|_| refused("a redirect to something that is no URL".into()))?;
    let base = url::Url::parse(&uri.to_string()).map_err(|error| ErrorKind::Store(Failure::boxed(&error)))?;
    let next = base.join(location);
    let next = next.map_err(|error| refused(format!("a redirect to something that is no URL: {error}")))?;
    match next.scheme() {
        "http" if base.scheme() == "https" => {
            Err(refused("a redirect from https to http is not followed".into()))
        }
        "http" | "https" => Ok(Some(request_uri(next)?)),
        scheme => Err(refused(format!(
            "a redirect to another scheme, {scheme}, is not followed: only http and https are"
        ))),
    }
}

fn refused(why: String) -> Error {
    ErrorKind::Store(why.into()).into()
}

/// Removes the headers that another server must not get. Returns whether there were any.
fn remove_credentials(headers: &mut HeaderMap) -> bool {
    let secret = |name: &str| {
        matches!(name, "authorization" | "cookie" | "proxy-authorization")
            || ["x-amz-", "x-goog-", "x-ms-"].iter().any(|prefix| name.starts_with(prefix))
    };
    let names: Vec<_> = headers.keys().filter(|name| secret(name.as_str())).cloned().collect();
    for name in &names {
        headers.remove(name);
    }
    !names.is_empty()
}

/// What to do where S3 says that the bucket is in another region, as the end of a message; or nothing.
pub(in crate::store) fn region(headers: &HeaderMap) -> String {
    match headers.get("x-amz-bucket-region").and_then(|region| region.to_str().ok()) {
        Some(region) => format!("; the bucket is in the region {region}: set AWS_REGION={region}"),
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
        let names =
            ["authorization", "x-amz-security-token", "cookie", "x-ms-date", "x-goog-user-project", "range"];
        let headers = names.map(|name| (name.parse::<header::HeaderName>().unwrap(), "a".parse().unwrap()));
        RequestTarget::new(uri.parse().unwrap(), HeaderMap::from_iter(headers))
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
    fn what_changes_something_goes_to_no_other_server() {
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
    fn a_bucket_elsewhere_is_named() {
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
