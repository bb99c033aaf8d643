//! Requests tokens from Google, and parses the responses.

use super::document::Document;
use super::renewed::Expiring;
use super::values::{after_seconds, unusable, with_origin};
use crate::Result;
use crate::connector::CredentialClient;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use object_store::client::{HttpRequest, HttpRequestBody};
use std::time::SystemTime;

/// The scope of all tokens, the same as `object_store` requests.
pub(super) const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// A request with a form. A client's name and secret, if given, are sent as a header (RFC 6749, 2.3.1).
pub(super) fn post_form(
    url: &str,
    form: &[(&str, &str)],
    client: Option<&(String, String)>,
) -> Result<HttpRequest> {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    let mut request = http::Request::post(url).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    if let Some((id, secret)) = client {
        let encoded = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let pair = BASE64.encode(format!("{}:{}", encoded(id), encoded(secret)));
        request = request.header(AUTHORIZATION, format!("Basic {pair}"));
    }
    checked(request.body(HttpRequestBody::from(body)), "the file of credentials")
}

pub(super) fn checked(request: http::Result<HttpRequest>, place: &str) -> Result<HttpRequest> {
    // The error's own message is dropped, since it could quote a header.
    request.map_err(|_| unusable(format!("{place}: it has characters that cannot be sent in a request")))
}

/// Sends a request, and parses the JSON of its response. `place` names the file and the field that caused the
/// request. The messages of permanent errors contain `place`.
pub(super) async fn send_json(
    client: &CredentialClient,
    request: HttpRequest,
    place: &str,
) -> Result<Document> {
    let body = client.send(request).await.map_err(|error| with_origin(error, place))?;
    Document::parse(&body, format!("{place}: the server's response"))
}

/// Reads the token from a response of RFC 6749 or RFC 8693.
pub(super) fn access_token(response: &Document) -> Result<Expiring<String>> {
    let end: Option<SystemTime> = response.number("expires_in")?.map(after_seconds);
    Ok(Expiring {
        credential: response.token("access_token")?,
        end: end.or_else(|| Some(after_seconds(3600))),
    })
}
