//! Reads and checks the variables of the environment that configure the clients of a store.
//!
//! `object_store` and `reqwest` parse some of these values late, within a request, where a bad value causes a
//! panic or is ignored. So this module checks each value when a client is made. A bad value is an error that
//! names its variable. An empty variable counts as not set.

#[cfg(feature = "cloud")]
use crate::Error;
use crate::secret_url::shown;
#[cfg(feature = "cloud")]
use crate::server_url::has_scheme;
use crate::server_url::server_url;
use crate::{ErrorKind, Result};
#[cfg(feature = "cloud")]
use object_store::ClientConfigKey;
use std::env;
use std::ffi::OsString;
#[cfg(feature = "cloud")]
use std::str::FromStr;

/// The variables that name proxies. Their lower-case names are read as well.
const PROXIES: [&str; 3] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
/// The supported schemes of proxies.
const PROXY_SCHEMES: [&str; 6] = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"];

/// The variables of one cloud, with `object_store`'s configuration keys.
#[cfg(feature = "cloud")]
pub(super) struct CloudVariables<K>(Vec<CloudVariable<K>>);

#[cfg(feature = "cloud")]
struct CloudVariable<K> {
    name: String,
    key: K,
    value: String,
}

#[cfg(feature = "cloud")]
impl<K: FromStr> CloudVariables<K> {
    /// Reads the variable `other`, and all variables with the prefix `prefix` (`AWS_`) that `object_store`
    /// knows.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`], which names the variable, for a value that no client can use.
    pub(super) fn read(prefix: &str, other: &str) -> Result<Self> {
        Self::of(env::vars_os(), prefix, other)
    }

    fn of(variables: impl Iterator<Item = (OsString, OsString)>, prefix: &str, other: &str) -> Result<Self> {
        let mut found = Vec::new();
        for (name, value) in variables.filter(|(_, value)| !value.is_empty()) {
            let Ok(name) = name.into_string() else { continue };
            if !name.starts_with(prefix) && name != other {
                continue;
            }
            // Unknown variables are for other programs.
            let Ok(key) = name.to_ascii_lowercase().parse() else { continue };
            let value = text(&name, value)?;
            check(&name, name.strip_prefix(prefix).unwrap_or(&name), &value)?;
            found.push(CloudVariable { name, key, value });
        }
        // If several variables set the same option, the last of them in the sorted list takes precedence:
        // AWS_ENDPOINT_URL over AWS_ENDPOINT, and any name with the prefix over SERVICE_ACCOUNT.
        found.sort_by_cached_key(|variable| (variable.name != "SERVICE_ACCOUNT", variable.name.clone()));
        Ok(CloudVariables(found))
    }

    /// The value of the first set variable in `names`.
    pub(super) fn first(&self, names: &[&str]) -> Option<&str> {
        let value = |name: &&str| self.0.iter().find(|variable| variable.name == **name);
        names.iter().find_map(value).map(|variable| variable.value.as_str())
    }

    /// Whether the variable for this client option is set.
    pub(super) fn has(&self, prefix: &str, option: ClientConfigKey) -> bool {
        let name = format!("{prefix}{}", option.as_ref().to_ascii_uppercase());
        self.first(&[&name]).is_some()
    }

    /// Passes all values to a builder of `object_store`.
    pub(super) fn configure<B>(self, builder: B, with_config: impl Fn(B, K, String) -> B) -> B {
        self.0
            .into_iter()
            .fold(builder, |builder, CloudVariable { key, value, .. }| with_config(builder, key, value))
    }
}

/// The value of a variable that is not among the [`CloudVariables`]; `None` if it is not set or empty.
///
/// # Errors
///
/// [`ErrorKind::Config`], which names the variable, for a value that no client can use.
#[cfg(any(feature = "gcs", feature = "azure"))]
pub(super) fn variable(name: &str) -> Result<Option<String>> {
    let Some(value) = env::var_os(name).filter(|value| !value.is_empty()) else { return Ok(None) };
    let value = text(name, value)?;
    check(name, name, &value).map(|()| Some(value))
}

/// The URL of a server in a variable, without a slash at its end; `None` if the variable is not set or empty.
///
/// # Errors
///
/// [`ErrorKind::Config`], which names the variable, for anything but the URL of a web server.
#[cfg(feature = "http")]
pub(super) fn endpoint_variable(name: &str) -> Result<Option<String>> {
    let Some(value) = env::var_os(name).filter(|value| !value.is_empty()) else { return Ok(None) };
    let value = text(name, value)?;
    let is_server = |url: &url::Url| {
        let is_plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
        is_plain && url.password().is_none() && matches!(url.scheme(), "http" | "https")
    };
    match url::Url::parse(&value).is_ok_and(|url| is_server(&url)) {
        true => Ok(Some(value.trim_end_matches('/').to_owned())),
        false => Err(bad(name, Some(&value), "must be the URL of a server, as in https://host")),
    }
}

/// Checks the variables that name proxies. Returns whether any of them is set.
pub(super) fn check_proxies() -> Result<bool> {
    let names = proxies();
    for name in &names {
        check_proxy(name, &text(name, env::var_os(name).unwrap_or_default())?)?;
    }
    Ok(!names.is_empty())
}

/// The names of the proxy variables that are set.
fn proxies() -> Vec<String> {
    let names = PROXIES.into_iter().flat_map(|name| [name.to_owned(), name.to_ascii_lowercase()]);
    names.filter(|name| env::var_os(name).is_some_and(|value| !value.is_empty())).collect()
}

/// The values of the proxy variables that are set.
pub(super) fn proxy_urls() -> impl Iterator<Item = String> {
    proxies().into_iter().filter_map(env::var_os).map(|value| value.to_string_lossy().into_owned())
}

/// A hint for the end of a message about a failed connection: the proxy variables that are set. Empty if
/// there are none.
pub(super) fn proxy_hint() -> String {
    match proxies() {
        names if names.is_empty() => String::new(),
        names => format!(" (the proxy in {} may have caused this)", names.join(", ")),
    }
}

/// A hint for the end of a message about an untrusted certificate: the variables that name the trusted
/// certificates. Empty if there are none.
pub(super) fn certificate_hint() -> String {
    let names = ["SSL_CERT_FILE", "SSL_CERT_DIR"];
    let values = names.map(|name| (name, env::var_os(name).filter(|value| !value.is_empty())));
    let found = values.into_iter().filter_map(|(name, value)| {
        let path = std::path::PathBuf::from(value?);
        let certificates = || std::fs::read_to_string(&path).map(|text| text.contains("BEGIN CERTIFICATE"));
        let fault = match (path.is_dir(), name) {
            (true, "SSL_CERT_DIR") => String::new(),
            (false, "SSL_CERT_DIR") => ", which is not a directory".into(),
            _ => match certificates() {
                Ok(true) => String::new(),
                Ok(false) => ", which has no certificate in PEM".into(),
                Err(error) => format!(", which cannot be read: {error}"),
            },
        };
        Some(format!("{name}={}{fault}", path.display()))
    });
    let found: Vec<String> = found.collect();
    match found.is_empty() {
        true => String::new(),
        false => format!(" (trusted are only the certificates in {})", found.join(" and ")),
    }
}

/// Whether the environment sets the project that is billed for requests of `gs://` URLs.
pub(super) fn has_user_project() -> bool {
    env::var_os("GOOGLE_USER_PROJECT").is_some_and(|project| !project.is_empty())
}

fn text(name: &str, value: OsString) -> Result<String> {
    value.into_string().map_err(|_| bad(name, None, "must be UTF-8"))
}

/// The error for a variable. `value` is shown unless it may contain a secret.
fn bad(name: &str, value: Option<&str>, needs: &str) -> crate::Error {
    // A value with an `@` may have a password. `shown` finds passwords only in URLs with a scheme, and the
    // URL of a proxy may lack a scheme.
    let value = value.filter(|value| !value.contains('@')).map(|value| format!(" is {:?} and", shown(value)));
    ErrorKind::Config(format!("the environment variable {name}{} {needs}", value.unwrap_or_default())).into()
}

/// Checks the value of a variable. `option` is its name without the prefix of the cloud.
#[cfg(feature = "cloud")]
fn check(name: &str, option: &str, value: &str) -> Result<()> {
    let shown = Some(value);
    let duration = |text: &str| humantime::parse_duration(text).is_ok();
    let is_label =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    match option {
        // Paths and documents are not checked here. A bucket's name is not used: the URL names the bucket.
        "WEB_IDENTITY_TOKEN_FILE"
        | "CONTAINER_AUTHORIZATION_TOKEN_FILE"
        | "FEDERATED_TOKEN_FILE"
        | "APPLICATION_CREDENTIALS"
        | "SERVICE_ACCOUNT"
        | "SERVICE_ACCOUNT_PATH"
        | "SERVICE_ACCOUNT_KEY"
        | "PROXY_CA_CERTIFICATE"
        | "PROXY_EXCLUDES"
        | "BUCKET"
        | "BUCKET_NAME"
        | "CONTAINER_NAME" => Ok(()),
        "ENDPOINT"
        | "ENDPOINT_URL"
        | "ENDPOINT_URL_S3"
        | "ENDPOINT_URL_STS"
        | "METADATA_ENDPOINT"
        | "CONTAINER_CREDENTIALS_FULL_URI"
        | "BASE_URL"
        | "STORAGE_ENDPOINT"
        | "MSI_ENDPOINT"
        | "IDENTITY_ENDPOINT"
        | "AUTHORITY_HOST"
        | "STORAGE_AUTHORITY_HOST"
        | "FABRIC_TOKEN_SERVICE_URL"
        | "AZURITE_BLOB_STORAGE_URL" => check_endpoint(name, value),
        "STORAGE_EMULATOR_HOST" if has_scheme(value) => check_endpoint(name, value),
        "STORAGE_EMULATOR_HOST" | "GCE_METADATA_HOST" | "GCE_METADATA_ROOT" | "GCE_METADATA_IP" => {
            match url_fault(&format!("http://{value}")) {
                None if !value.contains(['/', '?', '#']) => Ok(()),
                _ => Err(bad(name, shown, "must be a host, or a host and a port such as localhost:4443")),
            }
        }
        "CONTAINER_CREDENTIALS_RELATIVE_URI" => match url_fault(&format!("http://host{value}")) {
            None if value.starts_with('/') => Ok(()),
            _ => Err(bad(name, shown, "must be the path of a URL")),
        },
        "PROXY_URL" => check_proxy(name, value),
        "REGION" | "DEFAULT_REGION" if !is_label(value) => {
            Err(bad(name, shown, "must be the name of a region such as us-east-1"))
        }
        "STORAGE_ACCOUNT_NAME" | "ACCOUNT_NAME" if !is_label(value) => {
            Err(bad(name, shown, "must be the name of a storage account, without https:// and its domain"))
        }
        "VIRTUAL_HOSTED_STYLE_REQUEST"
        | "S3_EXPRESS"
        | "IMDSV1_FALLBACK"
        | "UNSIGNED_PAYLOAD"
        | "SKIP_SIGNATURE"
        | "DISABLE_TAGGING"
        | "DISABLE_BULK_DELETE"
        | "SSE_BUCKET_KEY_ENABLED"
        | "ALLOW_HTTP"
        | "ALLOW_INVALID_CERTIFICATES"
        | "DISABLE_SYSTEM_CERTIFICATES"
        | "HTTP1_ONLY"
        | "HTTP2_ONLY"
        | "HTTP2_KEEP_ALIVE_WHILE_IDLE"
        | "RANDOMIZE_ADDRESSES"
        | "STORAGE_USE_EMULATOR"
        | "USE_EMULATOR"
        | "USE_FABRIC_ENDPOINT"
        | "USE_AZURE_CLI"
            if flag(value).is_none() =>
        {
            Err(bad(name, shown, "must be true or false"))
        }
        "TIMEOUT"
        | "CONNECT_TIMEOUT"
        | "READ_TIMEOUT"
        | "POOL_IDLE_TIMEOUT"
        | "HTTP2_KEEP_ALIVE_INTERVAL"
        | "HTTP2_KEEP_ALIVE_TIMEOUT"
            if !duration(value) =>
        {
            Err(bad(name, shown, "must be a time with its unit, such as 30s"))
        }
        "HTTP2_MAX_FRAME_SIZE" | "POOL_MAX_IDLE_PER_HOST" if value.parse::<u32>().is_err() => {
            Err(bad(name, shown, "must be a number"))
        }
        // All other values are sent in headers or URLs. They may be secrets, and are not shown.
        _ if value.trim() != value => {
            Err(bad(name, None, "begins or ends with a space or a line break: remove it"))
        }
        _ if !value.bytes().all(|byte| matches!(byte, b' '..=b'~')) => {
            Err(bad(name, None, "contains a character that cannot be sent to a server"))
        }
        _ => Ok(()),
    }
}

/// Parses a boolean, in the words that `object_store` accepts.
#[cfg(feature = "cloud")]
pub(super) fn flag(value: &str) -> Option<bool> {
    match &*value.to_ascii_lowercase() {
        "1" | "true" | "on" | "yes" | "y" => Some(true),
        "0" | "false" | "off" | "no" | "n" => Some(false),
        _ => None,
    }
}

#[cfg(feature = "cloud")]
fn check_endpoint(name: &str, value: &str) -> Result<(), Error> {
    let needs = "must be the URL of a server, which begins with http:// or https://";
    if let Some(fault) = url_fault(value) {
        let meant = format!("http://{value}");
        let hint = match has_scheme(value) || url_fault(&meant).is_some() {
            true => format!(" ({fault})"),
            false => format!(", such as {meant}"),
        };
        return Err(bad(name, Some(value), &format!("{needs}{hint}")));
    }
    if value.contains(['?', '#']) {
        return Err(bad(name, Some(value), &format!("{needs} (there is a ? or a # in it)")));
    }
    let is_web = url::Url::parse(value).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
    is_web.then_some(()).ok_or_else(|| bad(name, Some(value), needs))
}

fn check_proxy(name: &str, value: &str) -> Result<()> {
    let with_scheme = server_url(value);
    let needs = |why: &str| {
        let schemes = PROXY_SCHEMES.map(|scheme| format!("{scheme}://")).join(", ");
        bad(name, Some(value), &format!("must be the URL of a proxy, with one of {schemes} ({why})"))
    };
    if let Some(fault) = url_fault(&with_scheme) {
        return Err(needs(&fault));
    }
    match url::Url::parse(&with_scheme) {
        Ok(url) if PROXY_SCHEMES.contains(&url.scheme()) => Ok(()),
        _ => Err(needs("another scheme is not supported")),
    }
}

/// What is wrong with the URL of a server; `None` if it is valid. Two parsers will read the URL, and both
/// must accept it: `url` ignores spaces around a URL, and `http` ignores an invalid port.
fn url_fault(value: &str) -> Option<String> {
    if value.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Some("there is a space or a line break in it".into());
    }
    match url::Url::parse(value) {
        Err(error) => Some(error.to_string()),
        Ok(url) if url.host_str().is_none_or(str::is_empty) => Some("it has no host".into()),
        Ok(_) => value.parse::<http::Uri>().err().map(|error| error.to_string()),
    }
}

#[cfg(all(test, feature = "cloud"))]
mod tests {
    use super::*;
    use object_store::ClientConfigKey;

    fn fault(name: &str, option: &str, value: &str) -> Option<String> {
        check(name, option, value).err().map(|error| error.to_string())
    }

    #[test]
    fn an_unusable_value_is_an_error_that_names_its_variable() {
        for (option, value, expected) in [
            ("ENDPOINT_URL", "minio:9000", "begins with http:// or https://, such as http://minio:9000"),
            ("ENDPOINT_URL", "minio", "such as http://minio"),
            ("ENDPOINT_URL", "http://", "empty host"),
            ("ENDPOINT_URL", "http:///bucket", "begins with http"),
            ("ENDPOINT_URL", " http://minio:9000", "a space or a line break"),
            ("ENDPOINT_URL", "http://minio:9000\n", "a space or a line break"),
            ("ENDPOINT_URL", "http://mi nio", "a space or a line break"),
            ("ENDPOINT_URL", "http://minio:99999", "invalid port"),
            ("ENDPOINT_URL", "s3://bucket", "begins with http"),
            ("ENDPOINT_URL", "file:///tmp", "no host"),
            ("ENDPOINT_URL", "http://minio/?x", "a ? or a #"),
            ("BASE_URL", "127.0.0.1:4443", "such as http://127.0.0.1:4443"),
            ("STORAGE_ENDPOINT", "account.blob.core.windows.net", "such as http://account"),
            ("GCE_METADATA_HOST", "http://metadata", "a host and a port"),
            ("GCE_METADATA_IP", "1.2.3.4:99999", "a host and a port"),
            ("STORAGE_EMULATOR_HOST", "local host", "a host and a port"),
            ("CONTAINER_CREDENTIALS_RELATIVE_URI", "v2/credentials", "path"),
            ("REGION", "us east", "us-east-1"),
            ("REGION", "us-east-1/", "us-east-1"),
            ("STORAGE_ACCOUNT_NAME", "https://account", "without https://"),
            ("SKIP_SIGNATURE", "ture", "true or false"),
            ("ALLOW_HTTP", "si", "true or false"),
            ("READ_TIMEOUT", "30", "such as 30s"),
            ("POOL_MAX_IDLE_PER_HOST", "-1", "number"),
            ("PROXY_URL", "ftp://proxy", "socks5h://"),
            ("SECRET_ACCESS_KEY", "s3cret\n", "a space or a line break"),
            ("SESSION_TOKEN", "s3crét", "cannot be sent"),
            ("USER_AGENT", "a\u{7}b", "cannot be sent"),
        ] {
            let text = fault("THE_VARIABLE", option, value).unwrap_or_else(|| panic!("{option}={value:?}"));
            assert!(text.contains("THE_VARIABLE") && text.contains(expected), "{option}={value:?}: {text}");
            assert!(!text.contains("s3cr"), "{text}");
        }
    }

    #[test]
    fn usable_values_are_accepted() {
        for (option, value) in [
            ("ENDPOINT_URL", "http://minio:9000"),
            ("ENDPOINT_URL", "https://minio.example/prefix/"),
            ("ENDPOINT_URL", "http://[::1]:9000"),
            ("STORAGE_EMULATOR_HOST", "localhost:4443"),
            ("STORAGE_EMULATOR_HOST", "http://localhost:4443/"),
            ("GCE_METADATA_HOST", "metadata.google.internal"),
            ("CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials?id=1"),
            ("REGION", "eu-west-1"),
            ("REGION", "auto"),
            ("SKIP_SIGNATURE", "Yes"),
            ("READ_TIMEOUT", "1m 30s"),
            ("PROXY_URL", "proxy:3128"),
            ("PROXY_URL", "socks5h://me:secret@proxy:1080"),
            ("USER_AGENT", "training 1.0 (team)"),
            ("WEB_IDENTITY_TOKEN_FILE", "/home/zoë/token"),
            ("SERVICE_ACCOUNT_KEY", "{\n}"),
        ] {
            assert_eq!(fault("X", option, value), None, "{option}={value:?}");
        }
    }

    #[test]
    fn the_value_of_a_proxy_is_not_shown_with_its_password() {
        for value in ["me:s3cret@proxy:99999", "ftp://me:s3cret@proxy", "http://me:s3cret@ proxy"] {
            let text = check_proxy("HTTP_PROXY", value).unwrap_err().to_string();
            assert!(text.contains("HTTP_PROXY") && !text.contains("s3cret"), "{text}");
        }
    }

    /// A simulated configuration key. It accepts all names except those that end in `profile`.
    #[derive(Debug)]
    struct Key(String);

    impl FromStr for Key {
        type Err = ();

        fn from_str(name: &str) -> Result<Self, ()> {
            let known = !name.ends_with("profile");
            known.then(|| Key(name.to_owned())).ok_or(())
        }
    }

    #[test]
    fn empty_variables_are_not_set_and_later_names_win() {
        let of = |variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
            CloudVariables::<Key>::of(variables.collect::<Vec<_>>().into_iter(), "AWS_", "SERVICE_ACCOUNT")
        };
        let variables = of(&[
            ("AWS_ENDPOINT_URL", "http://two"),
            ("AWS_ENDPOINT", "http://one"),
            ("SERVICE_ACCOUNT", "file"),
            ("AWS_ENDPOINT_URL_S3", ""),
            ("AWS_PROFILE", "\n"),
            ("GOOGLE_BASE_URL", "nonsense"),
            ("AWS_READ_TIMEOUT", "5s"),
        ])
        .unwrap();
        assert_eq!(variables.first(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]), Some("http://two"));
        assert!(variables.has("AWS_", ClientConfigKey::ReadTimeout));
        assert!(!variables.has("AWS_", ClientConfigKey::Timeout));
        let configured = variables.configure(Vec::new(), |mut configured, key, value| {
            configured.push((key.0, value));
            configured
        });
        let names = configured.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
        assert_eq!(names, ["service_account", "aws_endpoint", "aws_endpoint_url", "aws_read_timeout"]);
        let error = of(&[("AWS_ENDPOINT", "x y")]).err().unwrap().to_string();
        assert!(error.contains("AWS_ENDPOINT"), "{error}");
    }
}
