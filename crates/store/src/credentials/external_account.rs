//! Workload identity federation (AIP-4117): a token of another identity provider, from a file, a server or a
//! program, is exchanged for a token of Google (RFC 8693).

use super::document::Document;
use super::process;
use super::renewed::Expiring;
use super::token_request::{SCOPE, access_token, checked, post_form, send_json};
use super::values::{after_seconds, unusable, variable, with_origin};
use crate::Result;
use crate::connector::CredentialClient;
use http::header::ACCEPT;
use object_store::client::HttpRequestBody;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
/// The variable that must be `1` for a program to be run.
const ALLOW: &str = "GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES";
/// Time limit for a program, unless the file sets another.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct ExternalAccount {
    /// The file, for messages.
    file: String,
    audience: String,
    token_type: String,
    url: String,
    client: Option<(String, String)>,
    /// The project that is billed for the requests of a workforce pool.
    user_project: Option<String>,
    subject: SubjectSource,
}

/// Where the token of the external identity provider comes from.
enum SubjectSource {
    File { path: PathBuf, format: TokenFormat },
    Server { url: String, headers: Vec<(String, String)>, format: TokenFormat },
    Program { command: String, time: Duration, output: Option<PathBuf>, email: Option<String> },
}

/// The format of the token.
enum TokenFormat {
    Text,
    /// The token is in this field of a JSON object.
    Json(String),
}

impl ExternalAccount {
    pub(super) fn new(file: &Document) -> Result<Self> {
        let source = file.object("credential_source")?;
        let source = source.ok_or_else(|| file.wrong("credential_source", "is missing"))?;
        let id = file.optional("client_id")?;
        let client = id.map(|id| Ok::<_, crate::Error>((id, file.text("client_secret")?))).transpose()?;
        Ok(ExternalAccount {
            file: file.origin().to_owned(),
            audience: file.text("audience")?,
            token_type: file.text("subject_token_type")?,
            url: file.url("token_url")?,
            client,
            user_project: file.optional("workforce_pool_user_project")?,
            subject: SubjectSource::new(file, &source)?,
        })
    }

    /// Requests a token of Google.
    pub(super) async fn token(&self, client: &CredentialClient) -> Result<Expiring<String>> {
        let subject = self.subject_token(client).await?;
        let mut form = vec![
            ("grant_type", GRANT),
            ("audience", &self.audience),
            ("scope", SCOPE),
            ("requested_token_type", ACCESS_TOKEN),
            ("subject_token_type", &self.token_type),
            ("subject_token", &subject),
        ];
        let options = self.user_project.as_ref().filter(|_| self.client.is_none());
        let options = options.map(|project| serde_json::json!({ "userProject": project }).to_string());
        form.extend(options.as_deref().map(|options| ("options", options)));
        let place = format!("{}, the field `token_url`", self.file);
        let request = post_form(&self.url, &form, self.client.as_ref())?;
        access_token(&send_json(client, request, &place).await?)
    }

    async fn subject_token(&self, client: &CredentialClient) -> Result<String> {
        match &self.subject {
            SubjectSource::File { path, format } => {
                let place = format!("{}, the field `credential_source.file`: {}", self.file, path.display());
                let text = std::fs::read(path);
                let text = text.map_err(|error| unusable(format!("{place} cannot be read: {error}")))?;
                format.token(&text, place)
            }
            SubjectSource::Server { url, headers, format } => {
                let place = format!("{}, the field `credential_source.url`", self.file);
                let mut request = http::Request::get(url).header(ACCEPT, "*/*");
                for (name, value) in headers {
                    request = request.header(name, value);
                }
                let request = checked(request.body(HttpRequestBody::empty()), &place)?;
                let text = client.send(request).await.map_err(|error| with_origin(error, &place))?;
                format.token(&text, format!("{place}: the server's response"))
            }
            SubjectSource::Program { command, time, output, email } => {
                if let Some(token) = output.as_deref().and_then(saved_token) {
                    return Ok(token);
                }
                let place = format!("{}, the field `credential_source.executable.command`", self.file);
                let output = output.as_ref().map(|path| path.to_string_lossy().into_owned());
                let variables = [
                    ("GOOGLE_EXTERNAL_ACCOUNT_AUDIENCE", Some(self.audience.clone())),
                    ("GOOGLE_EXTERNAL_ACCOUNT_TOKEN_TYPE", Some(self.token_type.clone())),
                    ("GOOGLE_EXTERNAL_ACCOUNT_INTERACTIVE", Some("0".into())),
                    ("GOOGLE_EXTERNAL_ACCOUNT_IMPERSONATED_EMAIL", email.clone()),
                    ("GOOGLE_EXTERNAL_ACCOUNT_OUTPUT_FILE", output),
                ];
                let variables = variables.into_iter().filter_map(|(name, value)| Some((name, value?)));
                let text = process::run(command.clone(), variables.collect(), *time, place.clone()).await?;
                let output = Document::parse(&text, format!("{place}: the output"))?;
                if !output.is_true("success") {
                    return Err(output.wrong("success", "is not true: run the command by hand"));
                }
                program_token(&output)
            }
        }
    }
}

impl SubjectSource {
    fn new(file: &Document, source: &Document) -> Result<Self> {
        if let Some(program) = source.object("executable")? {
            if variable(ALLOW).as_deref() != Some("1") {
                let why = format!("is a program, which is run only if {ALLOW}=1 is set");
                return Err(program.wrong("command", &why));
            }
            let time = program.number("timeout_millis")?.map_or(PROGRAM_TIMEOUT, Duration::from_millis);
            let email = file.optional("service_account_impersonation_url")?;
            let email = email.as_deref().and_then(|url| url.rsplit('/').next()?.split(':').next());
            return Ok(SubjectSource::Program {
                command: program.text("command")?,
                time,
                output: program.optional("output_file")?.map(PathBuf::from),
                email: email.map(str::to_owned),
            });
        }
        if source.has("environment_id") {
            let why = "asks for the credentials of an AWS machine, which is not supported: use a file, a \
                       URL or a program as the source, or a service account's key";
            return Err(source.wrong("environment_id", why));
        }
        if source.has("certificate") {
            let why = "asks for a client certificate, which is not supported: use a file, a URL or a program";
            return Err(source.wrong("certificate", why));
        }
        let format = match source.object("format")? {
            None => TokenFormat::Text,
            Some(format) => match format.optional("type")?.as_deref() {
                None | Some("text") => TokenFormat::Text,
                Some("json") => TokenFormat::Json(format.text("subject_token_field_name")?),
                Some(_) => return Err(format.wrong("type", "must be `text` or `json`")),
            },
        };
        if source.has("file") {
            return Ok(SubjectSource::File { path: source.text("file")?.into(), format });
        }
        if !source.has("url") {
            return Err(file.wrong("credential_source", "has neither a `file` nor a `url`"));
        }
        // http is allowed: a machine's own token server has no TLS.
        let url = source.text("url")?;
        let is_web = url::Url::parse(&url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
        if !is_web {
            return Err(source.wrong("url", "is not the URL of a web server"));
        }
        let headers = source.object("headers")?.map(|headers| headers.pairs()).transpose()?;
        Ok(SubjectSource::Server { url, headers: headers.unwrap_or_default(), format })
    }
}

impl TokenFormat {
    /// Reads the token from a text that comes from `origin`.
    fn token(&self, text: &[u8], origin: String) -> Result<String> {
        let token = match self {
            TokenFormat::Json(field) => Document::parse(text, origin.clone())?.text(field)?,
            TokenFormat::Text => String::from_utf8_lossy(text).trim().to_owned(),
        };
        match token.is_empty() {
            true => Err(unusable(format!("{origin} is empty"))),
            false => Ok(token),
        }
    }
}

fn program_token(output: &Document) -> Result<String> {
    match output.text("token_type")?.ends_with(":saml2") {
        true => output.text("saml_response"),
        false => output.text("id_token"),
    }
}

/// The token that an earlier run of the program has saved, if it is still valid.
fn saved_token(path: &Path) -> Option<String> {
    let saved = Document::read(path).ok().filter(|saved| saved.is_true("success"))?;
    let end =
        SystemTime::UNIX_EPOCH + Duration::from_secs(saved.number("expiration_time").ok()??.min(1 << 40));
    (end > after_seconds(60)).then(|| program_token(&saved).ok()).flatten()
}
