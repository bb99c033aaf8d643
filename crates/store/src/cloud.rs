//! Clients for buckets, configured by the environment variables of each cloud's tools.

#[cfg(feature = "cloud")]
use super::connector::Connector;
#[cfg(any(feature = "gcs", feature = "s3"))]
use super::credentials;
#[cfg(any(feature = "gcs", feature = "azure"))]
use super::environment::variable;
#[cfg(feature = "cloud")]
use super::environment::{CloudVariables, check_proxies};
use super::fetch::FetchLimits;
#[cfg(feature = "cloud")]
use super::fetch::retry::MAX_PAUSE;
#[cfg(feature = "cloud")]
use super::location::Failure;
#[cfg(not(all(feature = "gcs", feature = "s3", feature = "azure")))]
use super::location::missing;
use super::object_url::ObjectUrl;
#[cfg(feature = "gcs")]
use super::server_url::server_url;
#[cfg(feature = "cloud")]
use crate::ErrorKind;
use crate::Result;
use object_store::ObjectStore;
#[cfg(feature = "cloud")]
use object_store::{BackoffConfig, ClientConfigKey, RetryConfig};
#[cfg(feature = "cloud")]
use std::str::FromStr;
use std::sync::Arc;

/// Makes a client for the bucket that `base` names (`gs://bucket`); `None` if its scheme does not belong to a
/// cloud.
///
/// Makes no request.
pub(super) fn client(base: &str, limits: &FetchLimits) -> Result<Option<Arc<dyn ObjectStore>>> {
    match ObjectUrl::parse(base).scheme() {
        Some("gs") => gcs(base, limits).map(Some),
        Some("s3") => s3(base, limits).map(Some),
        Some("az") => azure(base, limits).map(Some),
        _ => Ok(None),
    }
}

#[cfg(feature = "gcs")]
fn gcs(base: &str, limits: &FetchLimits) -> Result<Arc<dyn ObjectStore>> {
    use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};

    check_proxies()?;
    // `object_store` reads these variables itself.
    for name in ["GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP"] {
        variable(name)?;
    }
    let variables = CloudVariables::read("GOOGLE_", "SERVICE_ACCOUNT")?;
    let options = client_options("GOOGLE_", variables.first(&["GOOGLE_BASE_URL"]), &variables);
    let connector = Connector::for_bucket(GOOGLE, limits)
        .with_header("x-goog-user-project", variable("GOOGLE_USER_PROJECT")?)?;
    let emulator = variable("STORAGE_EMULATOR_HOST")?;
    let mut builder =
        variables.configure(GoogleCloudStorageBuilder::new(), GoogleCloudStorageBuilder::with_config);
    if emulator.is_none() {
        let configured = credentials::google::configure(builder, limits);
        builder = configured.map_err(|error| unusable(&error, GOOGLE))?;
    }
    let mut builder = builder.with_url(base).with_retry(retry(limits));
    for (key, value) in options {
        builder = builder.with_config(GoogleConfigKey::Client(key), value);
    }
    if let Some(emulator) = emulator {
        builder = builder
            .with_base_url(server_url(&emulator).trim_end_matches('/'))
            .with_skip_signature(true)
            // `object_store` sends a token with writes even if requests are not signed. Without this token,
            // it would request a token from the machine's metadata server.
            .with_bearer_token("emulator")
            .with_config(GoogleConfigKey::Client(ClientConfigKey::AllowHttp), "true");
    }
    let credential_connector = Connector::for_credentials(GOOGLE, limits);
    let signing = checked_store(builder.clone().with_http_connector(credential_connector).build(), GOOGLE)?;
    let builder = builder.with_credentials(Arc::clone(signing.credentials()));
    Ok(checked_store(builder.with_http_connector(connector).build(), GOOGLE)?)
}

#[cfg(feature = "s3")]
fn s3(base: &str, limits: &FetchLimits) -> Result<Arc<dyn ObjectStore>> {
    use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};

    check_proxies()?;
    let variables = CloudVariables::read("AWS_", "")?;
    let endpoint = variables.first(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]);
    let options = client_options("AWS_", endpoint, &variables);
    let builder = variables.configure(AmazonS3Builder::new(), AmazonS3Builder::with_config);
    let mut builder = credentials::aws::configure(builder, limits)
        .map_err(|error| unusable(&error, AMAZON))?
        .with_url(base)
        .with_retry(retry(limits));
    for (key, value) in options {
        builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
    }
    let credential_connector = Connector::for_credentials(AMAZON, limits);
    let signing = checked_store(builder.clone().with_http_connector(credential_connector).build(), AMAZON)?;
    let builder = builder.with_credentials(Arc::clone(signing.credentials()));
    Ok(checked_store(builder.with_http_connector(Connector::for_bucket(AMAZON, limits)).build(), AMAZON)?)
}

#[cfg(feature = "azure")]
fn azure(base: &str, limits: &FetchLimits) -> Result<Arc<dyn ObjectStore>> {
    use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};

    check_proxies()?;
    // `object_store` reads these variables itself.
    for name in ["AZURITE_BLOB_STORAGE_URL", "IDENTITY_HEADER"] {
        variable(name)?;
    }
    let variables = CloudVariables::read("AZURE_", "IDENTITY_ENDPOINT")?;
    let endpoint = variables.first(&["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"]);
    let options = client_options("AZURE_", endpoint, &variables);
    let mut builder = variables
        .configure(MicrosoftAzureBuilder::new(), MicrosoftAzureBuilder::with_config)
        .with_url(base)
        .with_retry(retry(limits));
    for (key, value) in options {
        builder = builder.with_config(AzureConfigKey::Client(key), value);
    }
    let credential_connector = Connector::for_credentials(MICROSOFT, limits);
    let signing =
        checked_store(builder.clone().with_http_connector(credential_connector).build(), MICROSOFT)?;
    let builder = builder.with_credentials(Arc::clone(signing.credentials()));
    Ok(checked_store(
        builder.with_http_connector(Connector::for_bucket(MICROSOFT, limits)).build(),
        MICROSOFT,
    )?)
}

#[cfg(feature = "cloud")]
fn checked_store<T: ObjectStore>(store: object_store::Result<T>, hint: &str) -> Result<Arc<T>> {
    match store {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) => {
            let failure = Failure::new(&error);
            let text = failure.to_string();
            // `object_store` has no error kind for missing credentials.
            match ["redential", "AccessKey", "service account", "Account must be specified"]
                .iter()
                .any(|word| text.contains(word))
            {
                true => Err(ErrorKind::Denied(format!("{text}; {hint}").into()).into()),
                false => Err(ErrorKind::Store(Box::new(failure)).into()),
            }
        }
    }
}

/// The error for credentials that exist and cannot be used.
#[cfg(any(feature = "gcs", feature = "s3"))]
fn unusable(error: &crate::Error, hint: &str) -> crate::Error {
    ErrorKind::Denied(format!("{error:#}; {hint}").into()).into()
}

/// How `object_store` retries the only failure that its clients cannot see: an S3 response with a success
/// status and an error in its body. The clients of the [`Connector`] have retried all other failures.
#[cfg(feature = "cloud")]
fn retry(limits: &FetchLimits) -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig { init_backoff: limits.pause, max_backoff: MAX_PAUSE, base: 4.0 },
        max_retries: usize::try_from(limits.retries).unwrap_or(usize::MAX),
        retry_timeout: limits.retry_timeout,
    }
}

/// For messages: what to set if there are no credentials for the bucket that `base` names.
#[cfg(feature = "cloud")]
pub(super) fn hint(base: &str) -> &'static str {
    match ObjectUrl::parse(base).scheme() {
        Some("gs") => GOOGLE,
        Some("s3") => AMAZON,
        _ => MICROSOFT,
    }
}

#[cfg(feature = "cloud")]
const GOOGLE: &str = "set GOOGLE_APPLICATION_CREDENTIALS to a file of credentials or log in with `gcloud \
                      auth application-default login`; for a public bucket, set GOOGLE_SKIP_SIGNATURE=true";
#[cfg(feature = "cloud")]
const AMAZON: &str = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_SESSION_TOKEN if they are \
                      temporary, or AWS_PROFILE to a profile of ~/.aws; for a public bucket, set \
                      AWS_SKIP_SIGNATURE=true";
#[cfg(feature = "cloud")]
const MICROSOFT: &str = "set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or \
                         AZURE_STORAGE_SAS_KEY; for a public container, set AZURE_SKIP_SIGNATURE=true";

/// The options that differ from the defaults of `object_store`, except those that the environment sets:
/// - A long timeout for a whole body, since a slow network takes long to transfer it.
/// - A short timeout for the beginning of a response, and for each chunk of its body.
/// - HTTP without TLS, if the endpoint's URL does not begin with `https:`.
#[cfg(feature = "cloud")]
fn client_options<K: FromStr>(
    prefix: &str,
    endpoint: Option<&str>,
    variables: &CloudVariables<K>,
) -> Vec<(ClientConfigKey, &'static str)> {
    let insecure = endpoint.is_some_and(|url| !url.to_ascii_lowercase().starts_with("https:"));
    let defaults = [
        (ClientConfigKey::Timeout, "3600 seconds", true),
        (ClientConfigKey::ReadTimeout, "30 seconds", true),
        (ClientConfigKey::AllowHttp, "true", insecure),
    ];
    let is_unset = |key: &ClientConfigKey| !variables.has(prefix, *key);
    let wanted = defaults.into_iter().filter(|(key, _, wanted)| *wanted && is_unset(key));
    wanted.map(|(key, value, _)| (key, value)).collect()
}

#[cfg(not(feature = "gcs"))]
fn gcs(_: &str, _: &FetchLimits) -> Result<Arc<dyn ObjectStore>> {
    Err(missing("gs", "gcs"))
}

#[cfg(not(feature = "s3"))]
fn s3(_: &str, _: &FetchLimits) -> Result<Arc<dyn ObjectStore>> {
    Err(missing("s3", "s3"))
}

#[cfg(not(feature = "azure"))]
fn azure(_: &str, _: &FetchLimits) -> Result<Arc<dyn ObjectStore>> {
    Err(missing("az", "azure"))
}
