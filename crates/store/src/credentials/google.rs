//! Reads files of Google credentials, and requests tokens with them.
//!
//! `object_store` reads files of the types `service_account` and `authorized_user`. This module reads the
//! other types that Google documents: those of AIP-4117, and the type that `gcloud` writes for impersonation.

use super::document::Document;
use super::external_account::ExternalAccount;
use super::renewed::{CredentialSource, Expiring, Renewed};
use super::token_request::{SCOPE, access_token, checked, post_form, send_json};
use super::values::{after_seconds, home, parse_time, variable};
use crate::Result;
use crate::connector::{Connector, CredentialClient, client_options};
use crate::environment::flag;
use crate::fetch::FetchLimits;
use futures::future::{BoxFuture, FutureExt};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use object_store::client::HttpRequestBody;
use object_store::gcp::{GcpCredential, GcpCredentialProvider, GoogleCloudStorageBuilder, GoogleConfigKey};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Google's server that exchanges refresh tokens, unless the file names another.
const TOKEN_URL: &str = "https://oauth2.googleapis.com/token";
/// The hint for a server that refuses the credentials of the file.
const HINT: &str = "check the file of credentials, or log in again with `gcloud`, which rewrites it";
const KNOWN: &str = "is not a known type of credentials: service_account, authorized_user, external_account, \
                     external_account_authorized_user and impersonated_service_account are known";

/// Gives a bucket the credentials of the file that the environment names or that `gcloud` wrote, if
/// `object_store` does not read the file itself. Sends no request.
///
/// # Errors
///
/// [`ErrorKind::Denied`](crate::ErrorKind::Denied) for a file that cannot be used; the message names the
/// field.
pub(crate) fn configure(
    builder: GoogleCloudStorageBuilder,
    limits: &FetchLimits,
) -> Result<GoogleCloudStorageBuilder> {
    let value = |key: GoogleConfigKey| builder.get_config_value(&key);
    let skips = value(GoogleConfigKey::SkipSignature).is_some_and(|skip| flag(&skip) == Some(true));
    let others =
        [GoogleConfigKey::ServiceAccount, GoogleConfigKey::ServiceAccountKey, GoogleConfigKey::BearerToken];
    if others.into_iter().any(|key| value(key).is_some()) {
        return Ok(builder);
    }
    let named = value(GoogleConfigKey::ApplicationCredentials).map(PathBuf::from);
    let Some(path) = named.or_else(gcloud_file) else { return Ok(builder) };
    // If requests are not signed, the file is not needed. `object_store` reads it all the same, unless there
    // is a bearer token.
    let without_file = |builder: GoogleCloudStorageBuilder| Ok(builder.with_bearer_token("none"));
    let (kind, file) = match Document::read(&path).and_then(|file| Ok((file.text("type")?, file))) {
        Err(_) if skips => return without_file(builder),
        read => read?,
    };
    match kind.as_str() {
        "service_account" | "authorized_user" => {
            Ok(builder.with_application_credentials(path.to_string_lossy()))
        }
        _ if skips => without_file(builder),
        _ => {
            let options = client_options(|key| builder.get_config_value(&GoogleConfigKey::Client(key)));
            let client = Connector::for_credentials(HINT, limits).credential_client(&options)?;
            let account = GoogleAccount::new(&file, limits)?;
            Ok(builder.with_credentials(Arc::new(Renewed::new(TokenSource { account, client }))))
        }
    }
}

/// The file in which `gcloud auth application-default login` saves credentials, if it exists.
fn gcloud_file() -> Option<PathBuf> {
    let directory = match variable("CLOUDSDK_CONFIG") {
        Some(directory) => PathBuf::from(directory),
        None if cfg!(windows) => PathBuf::from(variable("APPDATA")?).join("gcloud"),
        None => home()?.join(".config/gcloud"),
    };
    Some(directory.join("application_default_credentials.json")).filter(|path| path.exists())
}

/// The source of tokens that a file of credentials describes.
enum GoogleAccount {
    /// A token of another identity provider, which is exchanged for a token of Google.
    External(Box<ExternalAccount>),
    /// A person who has logged in.
    User(RefreshToken),
    /// `object_store`'s provider, which signs tokens with the key of a service account.
    Key(GcpCredentialProvider),
    /// A service account that the source account impersonates.
    Impersonated { source: Box<GoogleAccount>, target: Impersonation },
}

struct RefreshToken {
    /// The file, for messages.
    place: String,
    url: String,
    client: (String, String),
    /// Whether the client's id and secret are sent in a header instead of the form.
    in_header: bool,
    /// The refresh token, which each response may replace.
    token: Mutex<String>,
}

/// How to impersonate a service account, as the field `service_account_impersonation_url` says.
struct Impersonation {
    place: String,
    url: String,
    delegates: Vec<String>,
    /// In seconds.
    lifetime: u64,
}

impl GoogleAccount {
    fn new(file: &Document, limits: &FetchLimits) -> Result<Self> {
        let account = match file.text("type")?.as_str() {
            "external_account" => GoogleAccount::External(Box::new(ExternalAccount::new(file)?)),
            "external_account_authorized_user" => {
                GoogleAccount::User(RefreshToken::new(file, file.url("token_url")?, true)?)
            }
            "authorized_user" => {
                let named = file.has("token_uri").then(|| file.url("token_uri")).transpose()?;
                GoogleAccount::User(RefreshToken::new(
                    file,
                    named.unwrap_or_else(|| TOKEN_URL.into()),
                    false,
                )?)
            }
            "service_account" => GoogleAccount::Key(key_provider(file, limits)?),
            "impersonated_service_account" => {
                let source = file.object("source_credentials")?;
                let source = source.ok_or_else(|| file.wrong("source_credentials", "is missing"))?;
                let source = Box::new(GoogleAccount::new(&source, limits)?);
                return Ok(GoogleAccount::Impersonated { source, target: Impersonation::new(file)? });
            }
            _ => return Err(file.wrong("type", KNOWN)),
        };
        match file.has("service_account_impersonation_url") {
            true => Ok(GoogleAccount::Impersonated {
                source: Box::new(account),
                target: Impersonation::new(file)?,
            }),
            false => Ok(account),
        }
    }

    fn token<'a>(&'a self, client: &'a CredentialClient) -> BoxFuture<'a, Result<Expiring<String>>> {
        async move {
            match self {
                GoogleAccount::External(account) => account.token(client).await,
                GoogleAccount::User(user) => user.token(client).await,
                GoogleAccount::Key(key) => {
                    let token = key.get_credential().await.map_err(crate::connector::own_error)?;
                    Ok(Expiring { credential: token.bearer.clone(), end: Some(after_seconds(3600)) })
                }
                GoogleAccount::Impersonated { source, target } => {
                    let Expiring { credential, .. } = source.token(client).await?;
                    target.token(&credential, client).await
                }
            }
        }
        .boxed()
    }
}

/// `object_store`'s provider of tokens for a service account's key. The provider signs the tokens itself,
/// without a request.
fn key_provider(file: &Document, limits: &FetchLimits) -> Result<GcpCredentialProvider> {
    for field in ["private_key", "private_key_id", "client_email"] {
        file.text(field)?;
    }
    let signer = GoogleCloudStorageBuilder::new()
        .with_bucket_name("of-any-name")
        .with_service_account_key(file.to_json())
        .with_http_connector(Connector::for_credentials(HINT, limits))
        .build();
    let signer = signer.map_err(|_| file.wrong("private_key", "is not a usable private key"))?;
    Ok(Arc::clone(signer.credentials()))
}

impl RefreshToken {
    fn new(file: &Document, url: String, in_header: bool) -> Result<Self> {
        Ok(RefreshToken {
            place: file.origin().to_owned(),
            url,
            client: (file.text("client_id")?, file.text("client_secret")?),
            in_header,
            token: Mutex::new(file.text("refresh_token")?),
        })
    }

    async fn token(&self, client: &CredentialClient) -> Result<Expiring<String>> {
        let current = self.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (id, secret) = &self.client;
        let mut form = vec![("grant_type", "refresh_token"), ("refresh_token", &current)];
        if !self.in_header {
            form.extend([("client_id", id.as_str()), ("client_secret", secret)]);
        }
        let request = post_form(&self.url, &form, self.in_header.then_some(&self.client))?;
        let place = format!("{}, the refresh token", self.place);
        let response = send_json(client, request, &place).await?;
        if response.has("refresh_token") {
            *self.token.lock().unwrap_or_else(PoisonError::into_inner) = response.text("refresh_token")?;
        }
        access_token(&response)
    }
}

impl Impersonation {
    fn new(file: &Document) -> Result<Self> {
        let options = file.object("service_account_impersonation")?;
        let lifetime = options.map(|options| options.number("token_lifetime_seconds")).transpose()?;
        Ok(Impersonation {
            place: format!("{}, the field `service_account_impersonation_url`", file.origin()),
            url: file.url("service_account_impersonation_url")?,
            delegates: file.texts("delegates")?,
            lifetime: lifetime.flatten().unwrap_or(3600),
        })
    }

    async fn token(&self, source: &str, client: &CredentialClient) -> Result<Expiring<String>> {
        let body = serde_json::json!({
            "scope": [SCOPE],
            "delegates": self.delegates,
            "lifetime": format!("{}s", self.lifetime),
        });
        let request = http::Request::post(&self.url)
            .header(CONTENT_TYPE, "application/json")
            .header(AUTHORIZATION, format!("Bearer {source}"))
            .body(HttpRequestBody::from(body.to_string()));
        let response = send_json(client, checked(request, &self.place)?, &self.place).await?;
        let end = parse_time(&response.text("expireTime")?);
        let end = end.ok_or_else(|| response.wrong("expireTime", "is not a time"))?;
        Ok(Expiring { credential: response.token("accessToken")?, end: Some(end) })
    }
}

/// Requests tokens for an account.
struct TokenSource {
    account: GoogleAccount,
    client: CredentialClient,
}

impl CredentialSource for TokenSource {
    type Credential = GcpCredential;

    fn request(&self) -> BoxFuture<'_, Result<Expiring<GcpCredential>>> {
        async move {
            let Expiring { credential: bearer, end } = self.account.token(&self.client).await?;
            Ok(Expiring { credential: GcpCredential { bearer }, end })
        }
        .boxed()
    }
}
