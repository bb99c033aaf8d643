//! Credentials from files of Google and from profiles of AWS. The tests emulate the token servers.
//!
//! The files contain secrets, which must not appear in any message.

use super::clouds::child_says;
use crate::support::noise;
use crate::support::server::{Reply, Request, Server};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;
use tempfile::TempDir;

/// The beginning of every secret.
const SECRET: &str = "s3cret";

/// A home directory for the child processes.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Home(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    /// Writes a file and returns its path.
    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

fn form(request: &Request) -> HashMap<String, String> {
    url::form_urlencoded::parse(&request.body).into_owned().collect()
}

/// A server with a bucket at `/` and token servers below `/token`. The bucket only accepts requests whose
/// `Authorization` header begins with `authorization`.
fn bucket(authorization: &'static str, tokens: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Server {
    Server::start(move |request| match request.path() {
        path if path.starts_with("/token") => tokens(request),
        _ if !request.header("authorization").unwrap_or_default().starts_with(authorization) => {
            Reply::new(403, "<Error><Code>AccessDenied</Code></Error>")
        }
        path if path.ends_with("tar") => Reply::object(request, &noise(100), "\"v1\""),
        _ => Reply::new(200, "<ListBucketResult></ListBucketResult>"),
    })
}

fn gs_says(server: &Server, home: &Home, file: &str, more: &[(&str, &str)]) -> [String; 2] {
    let url = server.url("");
    let account =
        [("GOOGLE_BASE_URL", url.as_str()), ("GOOGLE_APPLICATION_CREDENTIALS", file), ("HOME", home.path())];
    child_says("gs://bucket", &[&account[..], more].concat())
}

fn s3_says(server: &Server, home: &Home, more: &[(&str, &str)]) -> [String; 2] {
    let url = server.url("");
    let tokens = server.url("/token");
    let account = [
        ("AWS_ENDPOINT_URL", url.as_str()),
        ("AWS_ENDPOINT_URL_STS", &tokens),
        ("AWS_ENDPOINT_URL_SSO", &tokens),
        ("HOME", home.path()),
    ];
    child_says("s3://bucket", &[&account[..], more].concat())
}

const DONE: [&str; 2] = ["reading gave 100", "listing gave 0"];

/// The file of a workload identity federation account, whose token server is at `/token/sts`.
fn external_account(server: &Server, source: &Value) -> Value {
    json!({
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/a/providers/b",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": server.url("/token/sts"),
        "credential_source": source,
    })
}

/// Responds as Google's token servers do: exchanges the subject token `s3cret-subject`, impersonates
/// accounts, and refreshes tokens.
fn google(request: &Request) -> Reply {
    let form = form(request);
    let is = |name: &str, value: &str| form.get(name).is_some_and(|found| found == value);
    let token = |name: &str| Reply::new(200, json!({"access_token": name, "expires_in": 3600}).to_string());
    match request.path() {
        "/token/sts"
            if is("subject_token", "s3cret-subject")
                && is("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange")
                && is("subject_token_type", "urn:ietf:params:oauth:token-type:jwt")
                && is("scope", "https://www.googleapis.com/auth/cloud-platform")
                && form["audience"].ends_with("/providers/b") =>
        {
            token("s3cret-federated")
        }
        "/token/subject" if request.header("x-flavor") == Some("s3cret-header") => {
            Reply::new(200, r#"{"deep": "s3cret-subject"}"#)
        }
        "/token/refresh" if is("refresh_token", "s3cret-refresh") && is("client_secret", "s3cret-client") => {
            token("s3cret-of-user")
        }
        // `me:s3cret-client`.
        "/token/refresh-by-header"
            if is("refresh_token", "s3cret-refresh")
                && request.header("authorization") == Some("Basic bWU6czNjcmV0LWNsaWVudA==") =>
        {
            token("s3cret-of-workforce")
        }
        "/token/act:generateAccessToken"
            if ["Bearer s3cret-federated", "Bearer s3cret-of-user"]
                .contains(&request.header("authorization").unwrap()) =>
        {
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            assert_eq!(body["scope"], json!(["https://www.googleapis.com/auth/cloud-platform"]));
            let lifetime = body["lifetime"].as_str().unwrap();
            assert!(["3600s", "1200s"].contains(&lifetime), "{body}");
            let end = "2999-01-01T00:00:00Z";
            Reply::new(200, json!({"accessToken": "s3cret-impersonated", "expireTime": end}).to_string())
        }
        _ => Reply::new(400, r#"{"error": "invalid_grant", "error_description": "not this"}"#),
    }
}

#[test]
fn federated_tokens_are_exchanged_from_files_servers_and_programs() {
    let home = Home::new();
    let server = bucket("Bearer s3cret-federated", google);
    let text = home.write("subject", "s3cret-subject\n");
    let object = home.write("subject.json", r#"{"id_token": "s3cret-subject"}"#);
    let headers = json!({"x-flavor": "s3cret-header"});
    for source in [
        json!({"file": text}),
        json!({"file": text, "format": {"type": "text"}}),
        json!({"file": object, "format": {"type": "json", "subject_token_field_name": "id_token"}}),
        json!({"url": server.url("/token/subject"), "headers": headers,
               "format": {"type": "json", "subject_token_field_name": "deep"}}),
    ] {
        let file = home.write("account.json", external_account(&server, &source).to_string());
        assert_eq!(gs_says(&server, &home, &file, &[]), DONE, "{source}");
    }
    // Each process exchanges one token, for all of its requests.
    let exchanges = server.requests().iter().filter(|request| request.path() == "/token/sts").count();
    assert_eq!(exchanges, 4);
    // The file is where `gcloud` writes it.
    let source = json!({"file": text});
    home.write(
        ".config/gcloud/application_default_credentials.json",
        external_account(&server, &source).to_string(),
    );
    let url = server.url("");
    assert_eq!(child_says("gs://bucket", &[("GOOGLE_BASE_URL", &url), ("HOME", home.path())]), DONE);
    #[cfg(unix)]
    {
        let output = json!({"version": 1, "success": true,
                            "token_type": "urn:ietf:params:oauth:token-type:jwt",
                            "id_token": "s3cret-subject"});
        let output = home.write("output.json", output.to_string());
        let source = json!({"executable": {"command": format!("cat '{output}'")}});
        let file = home.write("account.json", external_account(&server, &source).to_string());
        let allowed = [("GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES", "1")];
        assert_eq!(gs_says(&server, &home, &file, &allowed), DONE);
        for refused in gs_says(&server, &home, &file, &[]) {
            assert!(refused.contains("failed as Denied"), "{refused}");
            assert!(refused.contains("GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES=1"), "{refused}");
        }
    }
}

#[test]
fn service_accounts_are_impersonated_and_users_of_a_pool_log_in() {
    let home = Home::new();
    let subject = home.write("subject", "s3cret-subject");
    let impersonating = bucket("Bearer s3cret-impersonated", google);
    let act = impersonating.url("/token/act:generateAccessToken");
    let user = json!({"type": "authorized_user", "client_id": "me", "client_secret": "s3cret-client",
                      "refresh_token": "s3cret-refresh", "token_uri": impersonating.url("/token/refresh")});
    let mut federated = external_account(&impersonating, &json!({"file": subject}));
    federated["service_account_impersonation_url"] = json!(act);
    federated["service_account_impersonation"] = json!({"token_lifetime_seconds": 1200});
    let of_user = json!({"type": "impersonated_service_account", "delegates": [], "source_credentials": user,
                         "service_account_impersonation_url": act});
    for account in [federated, of_user] {
        let file = home.write("account.json", account.to_string());
        assert_eq!(gs_says(&impersonating, &home, &file, &[]), DONE, "{account}");
    }
    let of_pool = bucket("Bearer s3cret-of-workforce", google);
    let account = json!({
        "type": "external_account_authorized_user", "client_id": "me", "client_secret": "s3cret-client",
        "refresh_token": "s3cret-refresh", "token_url": of_pool.url("/token/refresh-by-header"),
    });
    let file = home.write("account.json", account.to_string());
    assert_eq!(gs_says(&of_pool, &home, &file, &[]), DONE);
}

/// The bucket refuses the first token as if the token had expired.
#[test]
fn a_refused_token_is_requested_again() {
    let home = Home::new();
    let subject = home.write("subject", "s3cret-subject");
    let server = Server::start(|request| match request.path() {
        "/token/sts" => Reply::new(
            200,
            format!(r#"{{"access_token": "s3cret-{}", "expires_in": "3600"}}"#, request.number),
        ),
        _ if request.header("authorization") == Some("Bearer s3cret-0") => Reply::new(401, ""),
        path if path.ends_with("tar") => Reply::object(request, &noise(100), "\"v1\""),
        _ => Reply::new(200, "<ListBucketResult></ListBucketResult>"),
    });
    let file = home.write("account.json", external_account(&server, &json!({"file": subject})).to_string());
    assert_eq!(gs_says(&server, &home, &file, &[]), DONE);
    let exchanges = server.requests().iter().filter(|request| request.path() == "/token/sts").count();
    assert_eq!(exchanges, 2);
}

#[test]
fn a_public_bucket_needs_no_google_credentials_file() {
    let home = Home::new();
    let file = home.write("credentials.json", r#"{"type": "of_the_future"}"#);
    let server = Server::start(|request| match request.header("authorization") {
        Some(_) => Reply::new(403, ""),
        None if request.path().ends_with("tar") => Reply::object(request, &noise(100), "\"v1\""),
        None => Reply::new(200, "<ListBucketResult></ListBucketResult>"),
    });
    for (file, skip) in [(file.as_str(), "true"), ("/nowhere/credentials.json", "yes")] {
        for text in gs_says(&server, &home, file, &[("GOOGLE_SKIP_SIGNATURE", skip)]) {
            assert!(!text.contains("failed"), "{file}: {text}");
        }
    }
}

#[test]
fn errors_of_google_files_name_file_and_field_and_no_secret() {
    let home = Home::new();
    let subject = home.write("subject", "s3cret-subject");
    let empty = home.write("empty", "\n");
    // The token server repeats the whole request in its error.
    let server = bucket("Bearer none", |request| {
        let form: Vec<String> = form(request).into_values().collect();
        let said =
            format!("{} {:?} {}", form.join(" "), request.headers, String::from_utf8_lossy(&request.body));
        Reply::new(400, json!({"error": "invalid_request", "error_description": said}).to_string())
    });
    let good = external_account(&server, &json!({"file": subject}));
    let with = |field: &str, value: Value| {
        let mut account = good.clone();
        account[field] = value;
        account
    };
    let user = json!({"type": "external_account_authorized_user", "client_id": "me",
                      "client_secret": "s3cret-client", "refresh_token": "s3cret-refresh",
                      "token_url": server.url("/token/refresh")});
    for (account, words) in [
        (good.clone(), vec!["`token_url`", "400", "invalid_request"]),
        (with("client_id", json!("me")), vec!["`client_secret` is missing"]),
        (user, vec!["the refresh token", "400"]),
        (with("audience", Value::Null), vec!["`audience` is missing"]),
        (with("audience", json!({"a": "s3cret"})), vec!["`audience` is not a string"]),
        (with("token_url", json!("http://example.com/s3cret")), vec!["`token_url`", "https"]),
        (with("token_url", json!("s3cret")), vec!["`token_url` is not a URL"]),
        (with("type", json!("s3cret")), vec!["`type` is not a known type", "impersonated_service_account"]),
        (with("type", Value::Null), vec!["`type` is missing"]),
        (with("type", json!("impersonated_service_account")), vec!["`source_credentials` is missing"]),
        (with("credential_source", Value::Null), vec!["`credential_source` is missing"]),
        (with("credential_source", json!({})), vec!["`credential_source` has neither"]),
        (
            with("credential_source", json!({"environment_id": "aws1"})),
            vec!["`credential_source.environment_id`"],
        ),
        (with("credential_source", json!({"certificate": {}})), vec!["`credential_source.certificate`"]),
        (
            with("credential_source", json!({"file": "/nowhere/at/all"})),
            vec!["`credential_source.file`", "/nowhere/at/all"],
        ),
        (with("credential_source", json!({"file": empty})), vec!["/empty is empty"]),
        (
            with(
                "credential_source",
                json!({"file": subject, "format": {"type": "json", "subject_token_field_name": "a"}}),
            ),
            vec!["/subject: this is not a JSON object"],
        ),
        (
            with("credential_source", json!({"file": subject, "format": {"type": "s3cret"}})),
            vec!["`credential_source.format.type` must be"],
        ),
        (
            with(
                "credential_source",
                json!({"url": server.url("/token/x"), "headers": {"x-key": "s3cret-header"}}),
            ),
            vec!["`credential_source.url`", "400"],
        ),
        (json!("s3cret"), vec!["not a JSON object"]),
    ] {
        let file = home.write("account.json", account.to_string());
        let says = gs_says(&server, &home, &file, &[]);
        for text in says {
            assert!(text.contains("failed as Denied"), "{account}: {text}");
            for word in words.iter().chain(&["/account.json"]) {
                assert!(text.contains(word), "no {word} for {account}: {text}");
            }
            assert!(!text.contains(SECRET), "{account}: {text}");
        }
    }
}

/// Responds as the token servers of AWS, which issue keys for a role if the request has valid credentials.
fn amazon(request: &Request) -> Reply {
    let form = form(request);
    let is = |name: &str, value: &str| form.get(name).is_some_and(|found| found == value);
    let authorization = request.header("authorization").unwrap_or_default();
    let of_role = |name: &str| {
        Reply::new(
            200,
            format!(
                "<R><Credentials><AccessKeyId>ROLE</AccessKeyId><SecretAccessKey>s3cret</SecretAccessKey>\
                 <SessionToken>s3cret-{name}</SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration>\
                 </Credentials></R>"
            ),
        )
    };
    match request.path() {
        "/token/"
            if is("Action", "AssumeRole")
                && is("RoleArn", "arn:aws:iam::1:role/a")
                && is("ExternalId", "x")
                && is("DurationSeconds", "900")
                && authorization.contains("Credential=BASE/")
                && authorization.contains("/eu-west-1/sts/") =>
        {
            of_role("of-role")
        }
        "/token/"
            if is("Action", "AssumeRoleWithWebIdentity")
                && is("WebIdentityToken", "s3cret-identity")
                && authorization.is_empty() =>
        {
            of_role("of-identity")
        }
        "/token/federation/credentials"
            if request.header("x-amz-sso_bearer_token") == Some("s3cret-sso")
                && request.query() == "role_name=reader&account_id=123" =>
        {
            let keys = json!({"accessKeyId": "SSO", "secretAccessKey": "s3cret",
                              "sessionToken": "s3cret-of-sso",
                              "expiration": 32_472_144_000_000_u64});
            Reply::new(200, json!({ "roleCredentials": keys }).to_string())
        }
        path => {
            let said = format!("{path} {:?} {}", request.headers, String::from_utf8_lossy(&request.body));
            Reply::new(403, format!("<Error><Code>AccessDenied</Code><Message>{said}</Message></Error>"))
        }
    }
}

const CONFIG: &str = "
[default]
region = eu-west-1
aws_access_key_id = DEFAULT
aws_secret_access_key = s3cret-default

[profile base]
aws_access_key_id = WRONG
aws_secret_access_key = s3cret-wrong

[profile role]
region = eu-west-1
role_arn = arn:aws:iam::1:role/a
source_profile = base
external_id = x
duration_seconds = 900

[profile identity]
role_arn = arn:aws:iam::1:role/a
web_identity_token_file = IDENTITY

[profile sso]
sso_session = s
sso_account_id = 123
sso_role_name = reader
[sso-session s]
sso_start_url = https://my.start/
sso_region = eu-west-1

[profile old-sso]
sso_start_url = https://old.start/
sso_region = eu-west-1
sso_account_id = 123
sso_role_name = reader

[profile program]
credential_process = cat 'PROGRAM'

[profile mfa]
role_arn = arn:aws:iam::1:role/a
source_profile = base
mfa_serial = s3cret
[profile circle]
role_arn = arn:aws:iam::1:role/a
source_profile = circle-2
[profile circle-2]
role_arn = arn:aws:iam::1:role/a
source_profile = circle
[profile half]
aws_access_key_id = s3cret-key
[profile lost]
role_arn = arn:aws:iam::1:role/a
source_profile = nowhere
[profile alone]
role_arn = arn:aws:iam::1:role/a
[profile no-program]
credential_process = /nowhere/s3cret-program
[profile bad-output]
credential_process = echo s3cret
[profile no-session]
sso_session = nowhere
[profile refused]
role_arn = arn:aws:iam::1:role/b
source_profile = base
";

const CREDENTIALS: &str = "
[base]
aws_access_key_id = BASE
aws_secret_access_key = s3cret-base
aws_session_token = s3cret-base-token
";

fn profiles(home: &Home) {
    let identity = home.write("identity", "s3cret-identity\n");
    let keys = json!({"Version": 1, "AccessKeyId": "PROGRAM", "SecretAccessKey": "s3cret",
                      "SessionToken": "s3cret-of-program", "Expiration": "2999-01-01T00:00:00+00:00"});
    let program = home.write("keys of program.json", keys.to_string());
    home.write(".aws/config", CONFIG.replace("IDENTITY", &identity).replace("PROGRAM", &program));
    home.write(".aws/credentials", CREDENTIALS);
    for (name, start, end) in [
        ("a", "https://my.start", "2999-01-01T00:00:00Z"),
        ("b", "https://old.start", "2020-01-01T00:00:00Z"),
    ] {
        let token =
            json!({"startUrl": start, "region": "eu-west-1", "accessToken": "s3cret-sso", "expiresAt": end});
        home.write(&format!(".aws/sso/cache/{name}.json"), token.to_string());
    }
}

#[test]
#[cfg(unix)]
fn credentials_come_from_keys_roles_sso_and_programs_of_profiles() {
    let home = Home::new();
    profiles(&home);
    for (profile, key, token) in [
        (None, "DEFAULT/", None),
        (Some("base"), "BASE/", Some("s3cret-base-token")),
        (Some("role"), "ROLE/", Some("s3cret-of-role")),
        (Some("identity"), "ROLE/", Some("s3cret-of-identity")),
        (Some("sso"), "SSO/", Some("s3cret-of-sso")),
        (Some("program"), "PROGRAM/", Some("s3cret-of-program")),
    ] {
        let server = bucket("AWS4-HMAC-SHA256", amazon);
        let chosen = profile.map(|profile| ("AWS_PROFILE", profile));
        assert_eq!(s3_says(&server, &home, chosen.as_slice()), DONE, "{profile:?}");
        let requests = server.requests();
        let of_bucket: Vec<_> =
            requests.iter().filter(|request| !request.path().starts_with("/token")).collect();
        for request in &of_bucket {
            let authorization = request.header("authorization").unwrap();
            assert!(authorization.contains(&format!("Credential={key}")), "{profile:?}: {authorization}");
            assert_eq!(request.header("x-amz-security-token"), token, "{profile:?}");
            let region =
                if matches!(profile, None | Some("role")) { "/eu-west-1/s3/" } else { "/us-east-1/s3/" };
            assert!(authorization.contains(region), "{profile:?}: {authorization}");
        }
        assert!(of_bucket.len() >= 2 && requests.len() <= of_bucket.len() + 1, "one request for keys");
    }
    // Keys in the environment take precedence over a profile.
    let server = bucket("AWS4-HMAC-SHA256 Credential=OWN/", amazon);
    let own = [("AWS_ACCESS_KEY_ID", "OWN"), ("AWS_SECRET_ACCESS_KEY", "s3cret"), ("AWS_PROFILE", "base")];
    assert_eq!(s3_says(&server, &home, &own), DONE);
    let public = bucket("", amazon);
    assert_eq!(s3_says(&public, &home, &[("AWS_SKIP_SIGNATURE", "true"), ("AWS_PROFILE", "mfa")]), DONE);
}

#[test]
#[cfg(unix)]
fn errors_of_profiles_name_the_setting_and_no_secret() {
    let home = Home::new();
    profiles(&home);
    let server = bucket("AWS4-HMAC-SHA256", amazon);
    for (profile, words) in [
        ("unknown", &["no profile `unknown`", "AWS_PROFILE"][..]),
        ("mfa", &["`mfa_serial`"]),
        ("circle", &["`source_profile` leads to itself through other profiles"]),
        ("half", &["`aws_secret_access_key` is missing"]),
        ("lost", &["no profile `nowhere`", "source_profile"]),
        ("alone", &["`role_arn` needs `source_profile`"]),
        ("no-program", &["`credential_process`", "cannot be started"]),
        ("bad-output", &["`credential_process`", "not a JSON object"]),
        ("no-session", &["`sso_session` names a section that does not exist"]),
        ("old-sso", &["has expired", "aws sso login --profile old-sso"]),
        ("refused", &["`role_arn`", "403", "AccessDenied"]),
    ] {
        for text in s3_says(&server, &home, &[("AWS_PROFILE", profile)]) {
            assert!(text.contains("failed as Denied"), "{profile}: {text}");
            for word in words.iter().chain(&["/.aws/config", "/.aws/credentials"]) {
                assert!(text.contains(word), "{profile} without {word}: {text}");
            }
            assert!(!text.contains(SECRET), "{profile}: {text}");
        }
    }
    // The bad variable has nothing to do with profiles.
    for text in s3_says(&server, &home, &[("HTTPS_PROXY", "ftp://proxy")]) {
        assert!(text.contains("failed as Config") && text.contains("HTTPS_PROXY"), "{text}");
    }
    // A file that exists but cannot be read.
    home.write("directory/config", "");
    let directory = Path::new(home.path()).join("directory");
    for text in s3_says(&server, &home, &[("AWS_CONFIG_FILE", directory.to_str().unwrap())]) {
        assert!(text.contains("failed as Denied") && text.contains("cannot be read"), "{text}");
    }
}
