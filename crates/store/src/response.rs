//! Interprets HTTP responses, as an object, a range of an object, or an error. All clients of the crate use
//! this module.

use super::checksum::Checksum;
use super::compression::Compression;
use super::environment::{has_user_project, proxy_hint};
use super::http_time::parse_date;
use super::source::{GetOptions, GetResponse, Refusal};
use super::transport::{PROXY_PASSWORD, Response, region};
use crate::secret_url::SentSecrets;
use crate::{ErrorKind, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::stream::TryStreamExt;
use http::StatusCode;
use http::header::{self, HeaderMap};
use std::io;
use std::ops::Range;
use std::time::{Duration, SystemTime};

/// Maximum number of bytes that are read from the body of an error response.
const MAX_EXPLANATION: usize = 16 << 10;
/// Time limit for reading the body of an error response.
const EXPLANATION_TIMEOUT: Duration = Duration::from_secs(2);

/// Checks the status and headers of a response to a GET of `url`. `options` are the options of the request.
/// `version` returns the object's version from the headers of the response.
pub(super) async fn read(
    response: Response,
    url: &str,
    options: &GetOptions,
    version: fn(&HeaderMap) -> Option<String>,
) -> Result<GetResponse, Refusal> {
    let Response { status, headers, body, target } = response;
    if status.is_success() {
        refuse_coding(&headers, url, || target.sent()).map_err(Refusal::Other)?;
    }
    let (range, size) = match status {
        StatusCode::OK => (None, content_length(&headers)),
        StatusCode::PARTIAL_CONTENT => match content_range(&headers) {
            Some((range, size)) => (Some(range), size),
            // Some emulators respond to a request for a range of an empty object with 206 but without
            // `Content-Range`: that header cannot express an empty range.
            None if options.range.is_some() && content_length(&headers) == Some(0) => {
                return Err(Refusal::Beyond);
            }
            None => {
                let why = "the server sent a partial response without a valid Content-Range";
                return Err(Refusal::Other(ErrorKind::Store(why.into()).into()));
            }
        },
        StatusCode::RANGE_NOT_SATISFIABLE if options.range.is_some() => return Err(Refusal::Beyond),
        StatusCode::PRECONDITION_FAILED => return Err(Refusal::changed(options, version(&headers))),
        _ => return Err(refused(Response { status, headers, body, target }, url).await),
    };
    check_copy_status(&headers).map_err(Refusal::Other)?;
    let (version, checksum) = (version(&headers), checksum(&headers, range.is_none()));
    Ok(GetResponse { size, range, version, checksum, body })
}

/// Returns an error for a body with a content coding, because every request asks for the stored bytes. The
/// only allowed coding is the compression that belongs to the ending of the object's name.
fn refuse_coding(headers: &HeaderMap, url: &str, sent: impl Fn() -> SentSecrets) -> Result<()> {
    let codings = headers.get_all(header::CONTENT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let codings: Vec<_> =
        codings.flat_map(|value| value.split(',')).map(|coding| coding.trim().to_ascii_lowercase()).collect();
    for coding in &codings {
        let compression = match &**coding {
            "gzip" | "x-gzip" => Some(Compression::Gzip),
            "zstd" => Some(Compression::Zstd),
            "br" | "deflate" | "compress" | "x-compress" => None,
            // `identity`, or values that are not compressions.
            _ => continue,
        };
        if codings.len() > 1 || compression.is_none() || compression != Compression::of(url) {
            let coding = sent().redact(coding);
            let why = format!(
                "the body has the Content-Encoding {coding}, which was not requested: store the object \
                 without \
                 this header, or with a name that says how it is compressed (.gz, .zst)"
            );
            return Err(ErrorKind::UnsupportedCompression(why).into());
        }
    }
    Ok(())
}

/// Returns an error for an object that Azure has not finished copying: its bytes may be undefined.
fn check_copy_status(headers: &HeaderMap) -> Result<()> {
    match headers.get("x-ms-copy-status").and_then(|status| status.to_str().ok()) {
        Some("pending") => {
            let why = "the store has not finished copying this object".into();
            Err(ErrorKind::Busy { retry_after: None, source: why }.into())
        }
        Some("failed" | "aborted") => {
            Err(ErrorKind::Store("the store could not finish copying this object: copy it again".into())
                .into())
        }
        _ => Ok(()),
    }
}

pub(super) fn etag(headers: &HeaderMap) -> Option<String> {
    headers.get(header::ETAG)?.to_str().ok().map(str::to_owned)
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The range of the body and, if known, the size of the object (RFC 9110, 14.4).
fn content_range(headers: &HeaderMap) -> Option<(Range<u64>, Option<u64>)> {
    let value = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    let (range, size) = value.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last) = (first.parse().ok()?, last.parse::<u64>().ok()?);
    let size = if size == "*" { None } else { Some(size.parse().ok()?) };
    Some((first..last.checked_add(1)?, size))
}

/// Reads an error response to a request for `url`. The response's text may repeat secrets that were sent, so
/// the secrets are hidden before this crate adds its own text.
pub(super) async fn refused(response: Response, url: &str) -> Refusal {
    let Response { status, headers, mut body, target } = response;
    let mut text = Vec::new();
    let reading = async {
        while let Ok(Some(chunk)) = body.try_next().await {
            text.extend_from_slice(&chunk[..chunk.len().min(MAX_EXPLANATION - text.len())]);
            if text.len() == MAX_EXPLANATION {
                break;
            }
        }
    };
    // The status says the most important part, so the text is not worth a long wait.
    let _ = tokio::time::timeout(EXPLANATION_TIMEOUT, reading).await;
    let text = String::from_utf8_lossy(&text);
    let explanation = explanation(&text);
    let code = explanation[0].as_str();
    let mut message = format!("the server answered {status}");
    let mut sent = target.sent();
    sent.add_url(url);
    for part in explanation.iter().filter(|part| !part.is_empty()) {
        message = format!("{message}: {}", sent.redact(part));
    }
    message.extend(target.note.map(|note| format!("; {note}")));
    message += &advice(code, &text, &headers, &sent);
    message += &proxy_advice(status, url);
    let busy = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let expired = matches!(code, "ExpiredToken" | "RequestExpired" | "TokenRefreshRequired");
    let kind = match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => ErrorKind::NotFound(message.into()),
        _ if expired || status == StatusCode::UNAUTHORIZED => {
            return Refusal::Unauthenticated(ErrorKind::Denied(message.into()).into());
        }
        _ if code == "UserProjectMissing" => ErrorKind::Denied(message.into()),
        StatusCode::FORBIDDEN | StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            ErrorKind::Denied(message.into())
        }
        _ if busy || matches!(code, "SlowDown" | "ServerBusy") => {
            ErrorKind::Busy { retry_after: retry_after(&headers, SystemTime::now()), source: message.into() }
        }
        StatusCode::REQUEST_TIMEOUT => ErrorKind::Io(io::Error::other(message)),
        // The server does not support the request, or a network requires a log-in: a retry would not help.
        StatusCode::NOT_IMPLEMENTED
        | StatusCode::HTTP_VERSION_NOT_SUPPORTED
        | StatusCode::NOT_EXTENDED
        | StatusCode::NETWORK_AUTHENTICATION_REQUIRED => ErrorKind::Store(message.into()),
        status if status.is_server_error() => ErrorKind::Io(io::Error::other(message)),
        _ => ErrorKind::Store(message.into()),
    };
    Refusal::Other(kind.into())
}

/// Returns the end of an error message: advice for the cloud's error code `code`, or nothing. The cloud's own
/// text does not name the environment variables that users of this crate can set.
fn advice(code: &str, text: &str, headers: &HeaderMap, sent: &SentSecrets) -> String {
    match code {
        // Google Cloud Storage sends this error code.
        "UserProjectMissing" if has_user_project() => {
            "; the requester pays, and GOOGLE_USER_PROJECT is sent for gs:// URLs alone: read this object by \
             its \
             gs:// URL"
                .into()
        }
        "UserProjectAccessDenied" | "UserProjectInvalid" => {
            "; GOOGLE_USER_PROJECT is the project that is billed for this request: set it to a project that \
             this account may use, or unset it if the requester does not pay"
                .into()
        }
        "UserProjectMissing" => {
            "; the requester pays: set GOOGLE_USER_PROJECT to the project that is billed".into()
        }
        // The header `x-amz-request-id` means that S3 sent the response. Its text does not mention that the
        // requester pays.
        "AccessDenied" if headers.contains_key("x-amz-request-id") => {
            "; if the requester pays for this bucket, set AWS_REQUEST_PAYER=requester".into()
        }
        "NotImplemented" => {
            "; if this S3 server does not support conditional writes, set AWS_CONDITIONAL_PUT=disabled".into()
        }
        "PermanentRedirect" | "TemporaryRedirect" | "AuthorizationHeaderMalformed" => {
            match (region(headers, sent), element(text, "Region")) {
                (region, None) => region,
                (region, Some(_)) if !region.is_empty() => region,
                (_, Some(region)) => {
                    let region = sent.redact(region);
                    format!("; the bucket is in the region {region}: set AWS_REGION={region}")
                }
            }
        }
        _ => String::new(),
    }
}

/// Returns the end of an error message: the environment variables that set the proxy, if the proxy may have
/// sent the response instead of the server. A proxy can do that only if the request was sent without TLS.
fn proxy_advice(status: StatusCode, url: &str) -> String {
    let is_of_proxy = matches!(status.as_u16(), 403 | 407 | 502..=504) && url.starts_with("http://");
    match status {
        _ if !is_of_proxy => String::new(),
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => format!("{}; {PROXY_PASSWORD}", proxy_hint()),
        _ => proxy_hint(),
    }
}

/// The code and the message in the body of a cloud's error response, which is XML, or JSON from a token
/// server.
fn explanation(text: &str) -> [String; 2] {
    let document = serde_json::from_str::<serde_json::Value>(text).unwrap_or_default();
    let error = &document["error"];
    let find = |name: &str, in_json: [&serde_json::Value; 2]| {
        let found = element(text, name).or_else(|| in_json.into_iter().find_map(serde_json::Value::as_str));
        found.unwrap_or_default().to_owned()
    };
    [
        find("Code", [error, &error["status"]]),
        find("Message", [&document["error_description"], &error["message"]]),
    ]
}

/// The text of the first XML element of this name in a cloud's error response.
pub(super) fn element<'a>(document: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = document.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0.trim())
}

/// The pause that the server asks for: `Retry-After` in seconds or as a date (RFC 9110, 10.2.3), or the time
/// until a used-up rate limit resets. The longest of these pauses counts.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let retry_after = || {
        let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
        match value.parse() {
            Ok(seconds) => Some(Duration::from_secs(seconds)),
            Err(_) => Some(parse_date(value)?.duration_since(now).unwrap_or_default()),
        }
    };
    let limits = headers.get_all("ratelimit").iter().filter_map(|value| value.to_str().ok());
    limits.flat_map(|value| value.split(',')).filter_map(limit_reset).chain(retry_after()).max()
}

/// The time until a used-up rate limit resets: `"api";r=0;t=55` (draft-ietf-httpapi-ratelimit-headers).
fn limit_reset(limit: &str) -> Option<Duration> {
    let parameter = |name: &str| {
        let mut parameters = limit.split(';').filter_map(|part| part.split_once('='));
        parameters.find(|(found, _)| found.trim() == name)?.1.trim().parse::<u64>().ok()
    };
    (parameter("r")? == 0).then(|| parameter("t").map(Duration::from_secs))?
}

/// The checksum of the whole object, if the response has one. Some headers have the checksum of the stored
/// object, others that of the sent body. The latter are ignored unless the body is the whole object
/// (`is_whole`).
fn checksum(headers: &HeaderMap, is_whole: bool) -> Option<Checksum> {
    let values = |name: &str| -> Vec<&str> {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).map(str::trim).collect()
    };
    let is =
        |name: &str, expected: &str| values(name).iter().all(|value| value.eq_ignore_ascii_case(expected));
    let single = |name: &str| match values(name)[..] {
        [value] => Some(value),
        _ => None,
    };
    // `x-goog-hash` has checksums of the stored bytes. If the object is stored compressed, Google may
    // decompress the body, so the header is ignored.
    let google =
        if is("x-goog-stored-content-encoding", "identity") { values("x-goog-hash") } else { Vec::new() };
    let google_sum = |name: &str| google.iter().find_map(|value| value.strip_prefix(name)?.strip_prefix('='));
    // RFC 9530: `crc32c=:base64:`.
    let digests = values("repr-digest");
    let digest = |name: &str| {
        let value = digests.iter().find_map(|value| value.strip_prefix(name)?.strip_prefix("=:"));
        value.and_then(|value| value.strip_suffix(':'))
    };
    // For an object that was uploaded in parts, this header may have a checksum of the parts' checksums.
    let is_composite = !values("x-amz-checksum-type").is_empty() && is("x-amz-checksum-type", "COMPOSITE");
    let amazon = single("x-amz-checksum-crc32c").filter(|_| is_whole && !is_composite);
    let sent = single("content-md5").filter(|_| is_whole);
    let crc = google_sum("crc32c").or(amazon).or_else(|| digest("crc32c"));
    let md5 =
        google_sum("md5").or_else(|| digest("md5")).or_else(|| single("x-ms-blob-content-md5")).or(sent);
    let crc = crc.and_then(decode_base64).map(|sum| Checksum::Crc32c(u32::from_be_bytes(sum)));
    crc.or_else(|| md5.and_then(decode_base64).map(Checksum::Md5))
}

/// Decodes base64 of exactly `N` bytes.
fn decode_base64<const N: usize>(text: &str) -> Option<[u8; N]> {
    BASE64.decode(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (header::HeaderName::from_static(name), header::HeaderValue::from_static(value))
        };
        lines.iter().map(pair).collect()
    }

    const CRC: Checksum = Checksum::Crc32c(0xe306_9283);

    #[test]
    fn checksums_are_those_of_the_whole_object() {
        // The checksums of "123456789": CRC-32C e3069283, MD5 25f9e794323b453885f5181f1b624d0b.
        let md5 = Some(Checksum::Md5(decode_base64("JfnnlDI7RTiF9RgfG2JNCw==").unwrap()));
        let both = "crc32c=4waSgw==,md5=JfnnlDI7RTiF9RgfG2JNCw==";
        let (goog, blob, amz) = ("x-goog-hash", "x-ms-blob-content-md5", "x-amz-checksum-crc32c");
        let sum = "JfnnlDI7RTiF9RgfG2JNCw==";
        for (lines, whole, part) in [
            (&[(goog, both)][..], Some(CRC), Some(CRC)),
            (&[(goog, "md5=JfnnlDI7RTiF9RgfG2JNCw=="), (goog, "crc32c=4waSgw==")], Some(CRC), Some(CRC)),
            (&[(goog, "md5=JfnnlDI7RTiF9RgfG2JNCw==")], md5, md5),
            (&[(goog, both), ("x-goog-stored-content-encoding", "gzip")], None, None),
            (&[(goog, both), ("x-goog-stored-content-encoding", "identity")], Some(CRC), Some(CRC)),
            (&[(amz, "4waSgw==")], Some(CRC), None),
            (&[(amz, "4waSgw=="), ("x-amz-checksum-type", "FULL_OBJECT")], Some(CRC), None),
            (&[(amz, "4waSgw=="), ("x-amz-checksum-type", "COMPOSITE")], None, None),
            (&[(amz, "4waSgw==-2")], None, None),
            (&[("content-md5", sum)], md5, None),
            (&[(blob, sum), ("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")], md5, md5),
            (&[("repr-digest", "sha-256=:AAAA:, crc32c=:4waSgw==:")], Some(CRC), Some(CRC)),
            (&[("content-md5", "no base64"), (goog, "crc32c=AAAA")], None, None),
            (&[("content-md5", sum), ("content-md5", sum)], None, None),
            (&[], None, None),
        ] {
            let headers = headers(lines);
            assert_eq!((checksum(&headers, true), checksum(&headers, false)), (whole, part), "{lines:?}");
        }
    }

    #[test]
    fn retry_after_may_be_seconds_or_a_date() {
        let now = parse_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        assert_eq!(now, SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777));
        for (value, expected) in [
            ("120", Some(120)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Tue, 29 Feb 2000 00:00:00 GMT", Some(951_782_400 - 784_111_777)),
            ("-1", None),
            ("soon", None),
            ("Sun, 06 anF 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 24:00:00 GMT", None),
            ("Sunday, 06-Nov-94 08:49:37 GMT", None),
        ] {
            let wait = retry_after(&headers(&[("retry-after", value)]), now);
            assert_eq!(wait, expected.map(Duration::from_secs), "{value}");
        }
    }

    #[test]
    fn a_used_up_rate_limit_is_a_pause() {
        for (lines, expected) in [
            (&[("ratelimit", "\"api\";r=0;t=55")][..], Some(55)),
            (&[("ratelimit", "\"api\";r=1;t=55")], None),
            (&[("ratelimit", "\"api\";r=1;t=55, \"pages\" ; r = 0 ; t = 7")], Some(7)),
            (&[("ratelimit", "\"api\";r=0;t=55"), ("retry-after", "3")], Some(55)),
            (&[("ratelimit", "\"api\";r=0;t=2"), ("retry-after", "3")], Some(3)),
            (&[("ratelimit", "\"api\";r=0")], None),
            (&[("ratelimit", "\"api\";r=0;t=-1")], None),
            (&[("ratelimit-policy", "\"fixed window\";\"api\";q=500;w=300")], None),
        ] {
            let wait = retry_after(&headers(lines), SystemTime::now());
            assert_eq!(wait, expected.map(Duration::from_secs), "{lines:?}");
        }
    }

    #[test]
    fn ranges_have_a_first_and_a_last_byte() {
        for (value, expected) in [
            ("bytes 0-0/1", Some((0..1, Some(1)))),
            ("bytes 5-9/*", Some((5..10, None))),
            ("bytes */10", None),
            ("bytes 5-18446744073709551615/*", None),
            ("items 0-0/1", None),
        ] {
            assert_eq!(content_range(&headers(&[("content-range", value)])), expected, "{value}");
        }
    }
}
