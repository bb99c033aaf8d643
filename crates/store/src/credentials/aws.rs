//! Profiles of AWS: keys, programs, SSO, and roles to assume.
//!
//! `object_store` reads keys, a web identity and the addresses of a container's server from the environment,
//! and asks the machine's server (IMDSv2). A profile comes behind keys and a web identity in the environment,
//! and before the servers of container and machine.

use super::document::Document;
use super::process;
use super::profiles::{Profile, Profiles};
use super::renewed::{CredentialSource, Expiring, Renewed};
use super::sts::{AssumedRole, Signer};
use super::values::{home, in_place, is_sendable, parse_time, unusable, variable};
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

/// What to do where a server refuses what the profile says.
const HINT: &str = "check the profile in ~/.aws";
/// Time for a program.
const PROGRAM_TIME: Duration = Duration::from_secs(60);
/// Maximum number of profiles that refer to one another.
const MAX_PROFILES: usize = 8;

/// Gives a bucket the credentials and the region of a profile, if there is one and the environment has no
/// keys and no web identity. Makes no request.
///
/// # Errors
///
/// [`ErrorKind::Denied`](crate::ErrorKind::Denied) for a profile that cannot be used, with the setting.
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

/// What a profile is read with.
struct Context<'a> {
    files: &'a Profiles,
    region: String,
    builder: &'a AmazonS3Builder,
    limits: &'a FetchLimits,
}

/// The account that a profile describes.
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
    /// The servers of the container or the machine.
    Environment(AwsCredentialProvider),
    /// A role that another account may assume.
    Role {
        source: Option<Box<AwsAccount>>,
        role: AssumedRole,
    },
}

impl AwsAccount {
    /// The account of a profile; `None` if it has settings of other things only. `depth` profiles refer to
    /// it.
    fn new(profile: &Profile<'_>, context: &Context<'_>, depth: usize) -> Result<Option<Self>> {
        if profile.get("role_arn").is_some() {
            return Self::of_role(profile, context, depth).map(Some);
        }
        if profile.get("sso_session").is_some() || profile.get("sso_start_url").is_some() {
            return Sso::new(profile).map(|sso| Some(AwsAccount::Sso(sso)));
        }
        if let Some(keys) = Self::of_keys(profile)? {
            return Ok(Some(keys));
        }
        let program = profile.get("credential_process");
        Ok(program.map(|command| AwsAccount::Program {
            command,
            place: format!("{}, the setting `credential_process`", profile.place()),
        }))
    }

    fn of_keys(profile: &Profile<'_>) -> Result<Option<Self>> {
        if profile.get("aws_access_key_id").is_none() && profile.get("aws_secret_access_key").is_none() {
            return Ok(None);
        }
        let sendable = |setting: &str| match profile.get(setting) {
            Some(value) if !is_sendable(&value) => {
                Err(profile.wrong(setting, "has characters that no key has"))
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

    fn of_role(profile: &Profile<'_>, context: &Context<'_>, depth: usize) -> Result<Self> {
        if profile.get("mfa_serial").is_some() {
            let why = "asks a person for a code: log in with the tool that asks, and use what it gives";
            return Err(profile.wrong("mfa_serial", why));
        }
        let role = AssumedRole::new(profile, &context.region)?;
        if role.has_identity() {
            return Ok(AwsAccount::Role { source: None, role });
        }
        let source = if let Some(name) = profile.get("source_profile") {
            if depth == MAX_PROFILES {
                return Err(profile.wrong("source_profile", "leads in a circle"));
            }
            // A profile may name itself, for its own keys.
            let source = match name == profile.name {
                true => Self::of_keys(profile)?,
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
                    AwsAccount::Environment(of_environment(context).map_err(|error| {
                        profile.wrong("credential_source", &format!("cannot be used: {error:#}"))
                    })?)
                }
                Some("Environment") => {
                    return Err(
                        profile.wrong("credential_source", "names keys in the environment: there are none")
                    );
                }
                Some(_) => {
                    let why = "is neither Environment nor EcsContainer nor Ec2InstanceMetadata";
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
                    let run = process::run(command.clone(), Vec::new(), PROGRAM_TIME, place.clone());
                    of_program(&Document::parse(&run.await?, format!("{place}: the output"))?)
                }
                AwsAccount::Sso(sso) => sso.keys(client).await,
                AwsAccount::Environment(provider) => {
                    let keys = provider.get_credential().await.map_err(own_error)?;
                    // The provider keeps them, and is asked each time.
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

/// The credentials of the container or the machine, by `object_store`.
fn of_environment(context: &Context<'_>) -> Result<AwsCredentialProvider> {
    let connector = Connector::for_credentials(HINT, context.limits);
    let builder = context.builder.clone().with_bucket_name("of-any-name").with_http_connector(connector);
    // The provider of such a bucket would give keys of its sessions.
    let builder = builder.with_s3_express(false);
    let bucket = builder.build().map_err(own_error)?;
    Ok(Arc::clone(bucket.credentials()))
}

/// The keys that a program has printed.
fn of_program(output: &Document) -> Result<Expiring<AwsCredential>> {
    if output.number("Version")? != Some(1) {
        return Err(output.wrong("Version", "is not 1"));
    }
    let token = output.has("SessionToken").then(|| output.token("SessionToken")).transpose()?;
    let end = output.optional("Expiration")?.map(|text| {
        parse_time(&text).ok_or_else(|| output.wrong("Expiration", "is no time of RFC 3339 in UTC"))
    });
    let credential = AwsCredential {
        key_id: output.token("AccessKeyId")?,
        secret_key: output.token("SecretAccessKey")?,
        token,
    };
    Ok(Expiring { credential, end: end.transpose()? })
}

/// A person who has logged in with `aws sso login`.
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
            start_url: profile.of_session("sso_start_url")?,
            region: profile.of_session("sso_region")?,
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
        let request = request.map_err(|_| unusable(format!("{place}: this names no server")))?;
        let body = client.send(request).await.map_err(|error| in_place(error, &place))?;
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

    /// The token that `aws sso login` has left, which ends last of those for this start URL. It is read again
    /// each time, so that a new log-in helps a process that runs.
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
            Some(_) => Err(unusable(format!("{}: the log-in in {shown} has ended: {login}", self.place))),
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
