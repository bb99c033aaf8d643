//! Requests keys of a role from AWS's Security Token Service.

use super::profiles::Profile;
use super::renewed::Expiring;
use super::values::{is_sendable, parse_time, unusable, variable, with_origin};
use crate::Result;
use crate::connector::{CredentialClient, own_error};
use crate::response::element;
use http::header::CONTENT_TYPE;
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::HttpRequestBody;
use std::fs;
use std::path::PathBuf;

/// A role, from the settings of a profile.
pub(super) struct AssumedRole {
    place: String,
    region: String,
    role: String,
    session: String,
    external_id: Option<String>,
    seconds: u64,
    /// The file with a token of another identity provider.
    identity: Option<PathBuf>,
}

/// The identity that requests the role.
pub(super) enum Signer {
    Keys(AwsCredential),
    /// The token of another identity provider: see [`AssumedRole::has_identity`].
    Identity,
}

impl AssumedRole {
    pub(super) fn new(profile: &Profile<'_>, region: &str) -> Result<Self> {
        let seconds = match profile.get("duration_seconds") {
            None => 3600,
            Some(text) => {
                text.parse().map_err(|_| profile.wrong("duration_seconds", "is not a whole number"))?
            }
        };
        Ok(AssumedRole {
            place: format!("{}, the setting `role_arn`", profile.place()),
            region: region.to_owned(),
            role: profile.text("role_arn")?,
            session: profile.get("role_session_name").unwrap_or_else(|| "shardstream".into()),
            external_id: profile.get("external_id"),
            seconds,
            identity: profile.get("web_identity_token_file").map(PathBuf::from),
        })
    }

    /// Whether a token of another identity provider is exchanged for the role.
    pub(super) fn has_identity(&self) -> bool {
        self.identity.is_some()
    }

    /// Requests keys of the role.
    pub(super) async fn keys(
        &self,
        signer: &Signer,
        client: &CredentialClient,
    ) -> Result<Expiring<AwsCredential>> {
        let server = variable("AWS_ENDPOINT_URL_STS")
            .unwrap_or_else(|| format!("https://sts.{}.amazonaws.com", self.region));
        let seconds = self.seconds.to_string();
        let token = self.token()?;
        let mut form = vec![
            ("Version", "2011-06-15"),
            ("RoleArn", &self.role),
            ("RoleSessionName", &self.session),
            ("DurationSeconds", &seconds),
        ];
        match &token {
            Some(token) => {
                form.extend([("Action", "AssumeRoleWithWebIdentity"), ("WebIdentityToken", token)])
            }
            None => form.push(("Action", "AssumeRole")),
        }
        form.extend(self.external_id.as_deref().map(|id| ("ExternalId", id)));
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(&form).finish();
        let request = http::Request::post(format!("{}/", server.trim_end_matches('/')))
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(HttpRequestBody::from(body));
        let mut request =
            request.map_err(|_| unusable(format!("{}: the URL of the server is not valid", self.place)))?;
        if let Signer::Keys(keys) = signer {
            let authorizer = AwsAuthorizer::new(keys, "sts", &self.region);
            authorizer.try_authorize(&mut request, None).map_err(own_error)?;
        }
        let body = client.send(request).await.map_err(|error| with_origin(error, &self.place))?;
        self.parse(&String::from_utf8_lossy(&body))
    }

    fn token(&self) -> Result<Option<String>> {
        let Some(path) = &self.identity else { return Ok(None) };
        let text = fs::read_to_string(path).map_err(|error| {
            unusable(format!("{}: the token file {} cannot be read: {error}", self.place, path.display()))
        })?;
        Ok(Some(text.trim().to_owned()))
    }

    fn parse(&self, response: &str) -> Result<Expiring<AwsCredential>> {
        let field = |name: &str| {
            let value = element(response, name).filter(|value| is_sendable(value)).map(str::to_owned);
            value.ok_or_else(|| unusable(format!("{}: the server's response has no {name}", self.place)))
        };
        let credential = AwsCredential {
            key_id: field("AccessKeyId")?,
            secret_key: field("SecretAccessKey")?,
            token: Some(field("SessionToken")?),
        };
        let end = parse_time(&field("Expiration")?).ok_or_else(|| {
            unusable(format!("{}: the Expiration in the server's response is not a time in UTC", self.place))
        })?;
        Ok(Expiring { credential, end: Some(end) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiration_that_cannot_be_parsed_is_an_error() {
        let role = AssumedRole {
            place: "config".into(),
            region: String::new(),
            role: String::new(),
            session: String::new(),
            external_id: None,
            seconds: 3600,
            identity: None,
        };
        let response = |end: &str| {
            format!(
                "<AccessKeyId>a</AccessKeyId><SecretAccessKey>b</SecretAccessKey>\
                 <SessionToken>c</SessionToken><Expiration>{end}</Expiration>"
            )
        };
        assert!(role.parse(&response("2026-01-01T00:00:00Z")).is_ok_and(|keys| keys.end.is_some()));
        assert!(role.parse(&response("2026-01-01T00:00:00+01:00")).is_err());
    }
}
