//! Reads credentials from profiles of AWS: keys, programs, SSO, and roles to assume.
//!
//! `object_store` itself reads keys, a web identity and the addresses of a container's credential server from
//! the environment, and asks the machine's server (IMDSv2). Keys and a web identity in the environment take
//! precedence over a profile; a profile takes precedence over the servers of container and machine.

use super::document::Document;
use super::process;
use super::profiles::{Profile, Profiles};
use super::renewed::{CredentialSource, Expiring, Renewed};
use super::sts::{AssumedRole, Signer};
use super::values::{home, is_sendable, parse_time, unusable, variable, with_origin};
use crate::Result;
use crate::connector::{Connector, CredentialClient, client_options, own_error};
use crate::environment::flag;
use crate::fetch::FetchLimits;
use futures::future::{BoxFuture, FutureExt};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, AwsCredentialProvider};
use object_store::client::HttpRequestBody;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The hint for a server that refuses the credentials of the profile.
const HINT: &str = "check the profile in ~/.aws";
/// Time limit for a program.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum length of a chain of profiles that refer to each other.
const MAX_PROFILES: usize = 8;

/// Gives a bucket the credentials and the region of a profile, if there is a profile and the environment has
/// no keys and no web identity. Sends no request.
///
/// # Errors
///
/// [`ErrorKind::Denied`](crate::ErrorKind::Denied) for a profile that cannot be used; the message names the
/// setting.
pub(crate) fn configure(mut builder: AmazonS3Builder, limits: &FetchLimits) -> Result<AmazonS3Builder> {
    let value = |key: AmazonS3ConfigKey| builder.get_config_value(&key);
    let skips = value(AmazonS3ConfigKey::SkipSignature).is_some_and(|skip| flag(&skip) == Some(true));
    let has_keys = value(AmazonS3ConfigKey::AccessKeyId).is_some()
        || value(AmazonS3ConfigKey::SecretAccessKey).is_some();
    let has_identity = value(AmazonS3ConfigKey::WebIdentityTokenFile).is_some()
        && value(AmazonS3ConfigKey::RoleArn).is_some();
    let named = variable("AWS_PROFILE").or_else(|| variable("AWS_DEFAULT_PROFILE"));
    if skips || has_keys {
        return Ok(builder);
    }
    let files = Profiles::read()?;
    let name = named.clone().unwrap_or_else(|| "default".into());
    let Some(profile) = files.get(&name) else {
        return match named {
            Some(name) => Err(files.missing(&name, "AWS_PROFILE names it")),
            None => Ok(builder),
        };
    };
    let region = value(AmazonS3ConfigKey::Region).or_else(|| value(AmazonS3ConfigKey::DefaultRegion));
    let region = region.or_else(|| profile.get("region"));
    if let Some(region) = &region {
        builder = builder.with_region(region);
    }
    if has_identity {
        return Ok(builder);
    }
    let context = Context {
        files: &files,
        region: region.unwrap_or_else(|| "us-east-1".into()),
        builder: &builder,
        limits,
    };
    let Some(account) = AwsAccount::new(&profile, &context, 0)? else { return Ok(builder) };
    let options = client_options(|key| builder.get_config_value(&AmazonS3ConfigKey::Client(key)));
    let client = Connector::for_credentials(HINT, limits).credential_client(&options)?;
    Ok(builder.with_credentials(Arc::new(Renewed::new(Keys { account, client }))))
}

/// The inputs for reading a profile.
struct Context<'a> {
    files: &'a Profiles,
    region: String,
    builder: &'a AmazonS3Builder,
    limits: &'a FetchLimits,
}

/// The source of credentials that a profile describes.
enum AwsAccount {
    Keys {
        key_id: String,
        secret_key: String,
        token: Option<String>,
    },
    /// A program that prints keys.
    Program {
        command: String,
        place: String,
    },
    Sso(Sso),
    /// The credential servers of the container or the machine.
    Environment(AwsCredentialProvider),
    /// A role. The source account assumes it; if there is no source account, a web identity does.
    Role {
        source: Option<Box<AwsAccount>>,
        role: AssumedRole,
    },
}

impl AwsAccount {
    /// The account of a profile; `None` if the profile has no settings of credentials. `depth` is the number
    /// of profiles before this one in a chain of references.
    fn new(profile: &Profile<'_>, context: &Context<'_>, depth: usize) -> Result<Option<Self>> {
        if profile.get("role_arn").is_some() {
            return Self::from_role(profile, context, depth).map(Some);
        }
        if profile.get("sso_session").is_some() || profile.get("sso_start_url").is_some() {
            return Sso::new(profile).map(|sso| Some(AwsAccount::Sso(sso)));
        }
        if let Some(keys) = Self::from_keys(profile)? {
            return Ok(Some(keys));
        }
        let program = profile.get("credential_process");
        Ok(program.map(|command| AwsAccount::Program {
            command,
            place: format!("{}, the setting `credential_process`", profile.place()),
        }))
    }

    fn from_keys(profile: &Profile<'_>) -> Result<Option<Self>> {
        if profile.get("aws_access_key_id").is_none() && profile.get("aws_secret_access_key").is_none() {
            return Ok(None);
        }
        let sendable = |setting: &str| match profile.get(setting) {
            Some(value) if !is_sendable(&value) => {
                Err(profile.wrong(setting, "has characters that are not allowed in a key"))
            }
            value => Ok(value),
        };
        let required = |setting: &str| sendable(setting)?.map_or_else(|| profile.text(setting), Ok);
        Ok(Some(AwsAccount::Keys {
            key_id: required("aws_access_key_id")?,
            secret_key: required("aws_secret_access_key")?,
            token: sendable("aws_session_token")?,
        }))
    }

    fn from_role(profile: &Profile<'_>, context: &Context<'_>, depth: usize) -> Result<Self> {
        if profile.get("mfa_serial").is_some() {
            let why = "needs a code from a person: log in with the AWS CLI, and use the temporary keys that \
                       it gives";
            return Err(profile.wrong("mfa_serial", why));
        }
        let role = AssumedRole::new(profile, &context.region)?;
        if role.has_identity() {
            return Ok(AwsAccount::Role { source: None, role });
        }
        let source = if let Some(name) = profile.get("source_profile") {
            if depth == MAX_PROFILES {
                return Err(profile.wrong("source_profile", "leads to itself through other profiles"));
            }
            // A profile may be its own `source_profile`: then its own keys are used.
            let source = match name == profile.name {
                true => Self::from_keys(profile)?,
                false => {
                    let why = "a `source_profile` names it";
                    let source = context.files.get(&name).ok_or_else(|| context.files.missing(&name, why))?;
                    Self::new(&source, context, depth + 1)?
                }
            };
            source.ok_or_else(|| profile.wrong("source_profile", "names a profile without credentials"))?
        } else {
            match profile.get("credential_source").as_deref() {
                Some("EcsContainer" | "Ec2InstanceMetadata") => {
                    AwsAccount::Environment(environment_provider(context).map_err(|error| {
                        profile.wrong("credential_source", &format!("cannot be used: {error:#}"))
                    })?)
                }
                Some("Environment") => {
                    return Err(profile.wrong(
                        "credential_source",
                        "names the keys in the environment, and there are none",
                    ));
                }
                Some(_) => {
                    let why = "must be Environment, EcsContainer or Ec2InstanceMetadata";
                    return Err(profile.wrong("credential_source", why));
                }
                None => {
                    let why = "needs `source_profile`, `credential_source` or `web_identity_token_file`";
                    return Err(profile.wrong("role_arn", why));
                }
            }
        };
        Ok(AwsAccount::Role { source: Some(Box::new(source)), role })
    }

    fn keys<'a>(&'a self, client: &'a CredentialClient) -> BoxFuture<'a, Result<Expiring<AwsCredential>>> {
        async move {
            match self {
                AwsAccount::Keys { key_id, secret_key, token } => {
                    let (key_id, secret_key, token) = (key_id.clone(), secret_key.clone(), token.clone());
                    Ok(Expiring { credential: AwsCredential { key_id, secret_key, token }, end: None })
                }
                AwsAccount::Program { command, place } => {
                    let run = process::run(command.clone(), Vec::new(), PROGRAM_TIMEOUT, place.clone());
                    parse_program_output(&Document::parse(&run.await?, format!("{place}: the output"))?)
                }
                AwsAccount::Sso(sso) => sso.keys(client).await,
                AwsAccount::Environment(provider) => {
                    let keys = provider.get_credential().await.map_err(own_error)?;
                    // `end` is `None`: the provider caches and renews the keys itself, and is asked for them
                    // each time.
                    let (key_id, secret_key, token) =
                        (keys.key_id.clone(), keys.secret_key.clone(), keys.token.clone());
                    Ok(Expiring { credential: AwsCredential { key_id, secret_key, token }, end: None })
                }
                AwsAccount::Role { source, role } => {
                    let signer = match source {
                        Some(source) => Signer::Keys(source.keys(client).await?.credential),
                        None => Signer::Identity,
                    };
                    role.keys(&signer, client).await
                }
            }
        }
        .boxed()
    }
}

/// `object_store`'s provider of the credentials of the container or the machine.
fn environment_provider(context: &Context<'_>) -> Result<AwsCredentialProvider> {
    let connector = Connector::for_credentials(HINT, context.limits);
    let builder = context.builder.clone().with_bucket_name("of-any-name").with_http_connector(connector);
    // With S3 Express, the provider would return session keys of the bucket instead.
    let builder = builder.with_s3_express(false);
    let bucket = builder.build().map_err(own_error)?;
    Ok(Arc::clone(bucket.credentials()))
}

/// Parses the keys that a program has printed.
fn parse_program_output(output: &Document) -> Result<Expiring<AwsCredential>> {
    if output.number("Version")? != Some(1) {
        return Err(output.wrong("Version", "is not 1"));
    }
    let token = output.has("SessionToken").then(|| output.token("SessionToken")).transpose()?;
    let end = output.optional("Expiration")?.map(|text| {
        parse_time(&text).ok_or_else(|| output.wrong("Expiration", "is not an RFC 3339 time in UTC"))
    });
    let credential = AwsCredential {
        key_id: output.token("AccessKeyId")?,
        secret_key: output.token("SecretAccessKey")?,
        token,
    };
    Ok(Expiring { credential, end: end.transpose()? })
}

/// The SSO account of a person who has logged in with `aws sso login`.
struct Sso {
    profile: String,
    place: String,
    start_url: String,
    region: String,
    account: String,
    role: String,
}

impl Sso {
    fn new(profile: &Profile<'_>) -> Result<Self> {
        Ok(Sso {
            profile: profile.name.clone(),
            place: profile.place(),
            start_url: profile.sso_setting("sso_start_url")?,
            region: profile.sso_setting("sso_region")?,
            account: profile.text("sso_account_id")?,
            role: profile.text("sso_role_name")?,
        })
    }

    async fn keys(&self, client: &CredentialClient) -> Result<Expiring<AwsCredential>> {
        let token = self.cached_token()?;
        let server = variable("AWS_ENDPOINT_URL_SSO")
            .unwrap_or_else(|| format!("https://portal.sso.{}.amazonaws.com", self.region));
        let query = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("role_name", &self.role)
            .append_pair("account_id", &self.account)
            .finish();
        let request =
            http::Request::get(format!("{}/federation/credentials?{query}", server.trim_end_matches('/')))
                .header("x-amz-sso_bearer_token", token)
                .body(HttpRequestBody::empty());
        let place = format!("{}, `sso_role_name`", self.place);
        let request =
            request.map_err(|_| unusable(format!("{place}: the URL of the server is not valid")))?;
        let body = client.send(request).await.map_err(|error| with_origin(error, &place))?;
        let response = Document::parse(&body, format!("{place}: the server's response"))?;
        let keys = response.object("roleCredentials")?;
        let keys = keys.ok_or_else(|| response.wrong("roleCredentials", "is missing"))?;
        let end = keys.number("expiration")?.map(Duration::from_millis);
        let credential = AwsCredential {
            key_id: keys.token("accessKeyId")?,
            secret_key: keys.token("secretAccessKey")?,
            token: Some(keys.token("sessionToken")?),
        };
        Ok(Expiring { credential, end: end.and_then(|end| SystemTime::UNIX_EPOCH.checked_add(end)) })
    }

    /// The token that `aws sso login` has saved for this start URL. If there are several, the token that
    /// expires last. It is read anew each time, so that a running process uses a new log-in.
    fn cached_token(&self) -> Result<String> {
        let directory = home().map(|home| home.join(".aws/sso/cache"));
        let login = format!("log in with `aws sso login --profile {}`", self.profile);
        let files = directory.iter().flat_map(fs::read_dir).flatten().flatten().map(|entry| entry.path());
        let files = files.filter(|path: &PathBuf| path.extension().is_some_and(|end| end == "json"));
        let tokens = files.filter_map(|path| {
            let token = Document::read(&path).ok()?;
            let start = token.optional("startUrl").ok()??;
            let is_same = start.trim_end_matches('/') == self.start_url.trim_end_matches('/');
            let end = parse_time(&token.text("expiresAt").ok()?)?;
            is_same.then(|| token.token("accessToken").ok()).flatten().map(|token| (end, token))
        });
        let newest = tokens.max_by_key(|(end, _)| *end);
        let shown = directory.as_ref().map_or("~/.aws/sso/cache".into(), |path| path.display().to_string());
        match newest {
            Some((end, token)) if SystemTime::now() < end => Ok(token),
            Some(_) => Err(unusable(format!("{}: the log-in in {shown} has expired: {login}", self.place))),
            None => Err(unusable(format!(
                "{}: there is no log-in for its start URL in {shown}: {login}",
                self.place
            ))),
        }
    }
}

/// Requests keys for an account.
struct Keys {
    account: AwsAccount,
    client: CredentialClient,
}

impl CredentialSource for Keys {
    type Credential = AwsCredential;

    fn request(&self) -> BoxFuture<'_, Result<Expiring<AwsCredential>>> {
        self.account.keys(&self.client)
    }
}
