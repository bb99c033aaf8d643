//! Computes a canonical text for the URL of an object: all URLs of one object have the same text.

use crate::server_url::server_url;
use percent_encoding::percent_decode_str;
use std::path::{self, Component, Path, PathBuf};
use std::{env, fs};
use url::Url;

/// The environment variables that name another server for the buckets of a scheme.
const ENDPOINT_VARIABLES: [(&str, &[&str]); 3] = [
    ("gs", &["STORAGE_EMULATOR_HOST", "GOOGLE_BASE_URL"]),
    ("s3", &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]),
    ("az", &["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"]),
];
/// The environment variable that names the account if the URL of a container has none.
const ACCOUNT_VARIABLE: &str = "AZURE_STORAGE_ACCOUNT_NAME";
/// The query parameters that select an earlier version of an object.
const VERSION_PARAMETERS: [&str; 3] = ["generation", "versionid", "snapshot"];

/// The absolute path with `/` between its parts, and with the symbolic links of its directories resolved.
pub(super) fn file_place(path: PathBuf) -> String {
    let mut plain = PathBuf::new();
    for part in path::absolute(&path).unwrap_or(path).components() {
        match part {
            // The parent of a symbolic link is the parent of its target.
            Component::ParentDir => {
                plain = fs::canonicalize(&plain).unwrap_or(plain);
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    let directory = plain.parent().unwrap_or(Path::new("/"));
    let resolved = directory.ancestors().find_map(|above| {
        let rest = directory.strip_prefix(above).ok()?;
        Some(fs::canonicalize(above).ok()?.join(rest))
    });
    let whole = resolved.as_deref().unwrap_or(directory).join(plain.file_name().unwrap_or_default());
    whole.to_string_lossy().replace(path::MAIN_SEPARATOR, "/")
}

/// Whether two results of [`file_place`] have the same file name and are in the same directory, which may be
/// mounted under two paths.
#[cfg(unix)]
pub(super) fn is_same_mounted(one: &str, other: &str) -> bool {
    use std::os::unix::fs::MetadataExt;

    // The nearest existing directory, and the path below it.
    let identity = |text| {
        let path = Path::new(text);
        let found = |above: &Path| {
            let metadata = fs::metadata(above).ok()?;
            Some((metadata.dev(), metadata.ino(), path.strip_prefix(above).ok()?.to_owned()))
        };
        path.ancestors().skip(1).find_map(found)
    };
    let name = |text| Path::new(text).file_name();
    name(one) == name(other) && identity(one).zip(identity(other)).is_some_and(|(one, other)| one == other)
}

#[cfg(not(unix))]
pub(super) fn is_same_mounted(_: &str, _: &str) -> bool {
    false
}

/// Returns the same text for all URLs of an Azure object. The account may be in the authority, after the
/// container, or in an environment variable.
pub(super) fn container_place(authority: &str, path: &str) -> String {
    let Some((container, host)) = authority.split_once('@') else {
        return match variable(ACCOUNT_VARIABLE).filter(|_| endpoint("az").is_none()) {
            Some(account) => format!("az://{authority}@{}{path}", account.to_ascii_lowercase()),
            None => format!("az://{authority}{path}"),
        };
    };
    let host = host.to_ascii_lowercase();
    let account = account_of_host(&host).filter(|_| endpoint("az").is_none()).unwrap_or(&host);
    format!("az://{container}@{account}{path}")
}

fn account_of_host(host: &str) -> Option<&str> {
    host.strip_suffix(".blob.core.windows.net").or_else(|| host.strip_suffix(".dfs.core.windows.net"))
}

/// Returns a web URL without its user name, password, query and fragment. If the URL leads to an object in a
/// bucket of a known cloud, returns the bucket URL instead, such as `gs://bucket/key`. `None` if `text` is
/// not a URL.
pub(super) fn web_place(text: &str) -> Option<String> {
    let mut url = Url::parse(text).ok()?;
    if let Some(place) = bucket_place(&url) {
        return Some(place);
    }
    url.set_username("").and_then(|()| url.set_password(None)).ok()?;
    url.set_query(None);
    url.set_fragment(None);
    Some(url.into())
}

fn bucket_place(url: &Url) -> Option<String> {
    let schemes = ENDPOINT_VARIABLES.iter().map(|(scheme, _)| *scheme);
    let parsed = |scheme| Url::parse(&server_url(&endpoint(scheme)?)).ok();
    let named = schemes.filter_map(|scheme| Some((scheme, parsed(scheme)?)));
    let mut named = named.filter_map(|(scheme, endpoint)| Some((scheme, at_endpoint(url, &endpoint)?)));
    let (scheme, (bucket, path), account) = match named.next() {
        Some((scheme, parts)) => (scheme, parts, None),
        None => {
            let host = url.host_str().filter(|_| url.port().is_none())?;
            let (scheme, bucket) = bucket_of_host(host)?;
            if endpoint(scheme).is_some() {
                return None;
            }
            (scheme, (bucket, url.path().strip_prefix('/')?), account_of_host(host))
        }
    };
    let (bucket, key) = match bucket {
        Some(bucket) => (bucket, path),
        None => path.split_once('/')?,
    };
    // S3 decodes a `+` to a space, and other clouds do not.
    if bucket.is_empty() || key.is_empty() || key.contains('+') {
        return None;
    }
    if url
        .query_pairs()
        .any(|(name, _)| VERSION_PARAMETERS.iter().any(|known| name.eq_ignore_ascii_case(known)))
    {
        return None;
    }
    let key = percent_decode_str(key).decode_utf8().ok()?;
    let account = account.map(|account| format!("@{account}")).unwrap_or_default();
    Some(format!("{scheme}://{bucket}{account}/{key}"))
}

/// If `url` names an object at this endpoint, returns the bucket (`None` if it is not part of the host) and
/// the path after the endpoint's own path.
fn at_endpoint<'a>(url: &'a Url, endpoint: &Url) -> Option<(Option<&'a str>, &'a str)> {
    if url.port_or_known_default() != endpoint.port_or_known_default() {
        return None;
    }
    let (host, server) = (url.host_str()?, endpoint.host_str()?);
    let bucket = match host == server {
        true => None,
        false => Some(host.strip_suffix(server)?.strip_suffix('.')?),
    };
    let path = url.path().strip_prefix(endpoint.path().trim_end_matches('/'))?;
    Some((bucket, path.strip_prefix('/')?))
}

/// The scheme of the cloud that this server belongs to, and the bucket if it is part of the host.
fn bucket_of_host(host: &str) -> Option<(&'static str, Option<&str>)> {
    if host == "storage.googleapis.com" {
        return Some(("gs", None));
    }
    if let Some(bucket) = host.strip_suffix(".storage.googleapis.com") {
        return Some(("gs", Some(bucket)));
    }
    if account_of_host(host).is_some() {
        return Some(("az", None));
    }
    // `BUCKET.s3.REGION`: the bucket may have dots, and the region may be missing.
    let name = host.strip_suffix(".amazonaws.com")?;
    let (bucket, region) = match name.rsplit_once(".s3.") {
        Some((bucket, region)) => (Some(bucket), region),
        None => match (name.strip_prefix("s3."), name.strip_suffix(".s3")) {
            (Some(region), _) => (None, region),
            (None, Some(bucket)) => (Some(bucket), ""),
            (None, None) => (None, (name == "s3").then_some("")?),
        },
    };
    let region = region.strip_prefix("dualstack.").unwrap_or(region);
    // Buckets in these regions may have the same names as buckets in other regions.
    let is_separate = region.starts_with("us-gov-") || region.starts_with("us-iso");
    (!is_separate && !region.contains('.')).then_some(("s3", bucket))
}

/// The server that the environment names for the buckets of a scheme.
pub(super) fn endpoint(scheme: &str) -> Option<String> {
    let (_, names) = ENDPOINT_VARIABLES.iter().find(|(known, _)| *known == scheme)?;
    let named = names.iter().find_map(|name| variable(name));
    let emulator = || {
        let is_enabled =
            |value: &String| !matches!(&*value.to_ascii_lowercase(), "false" | "0" | "no" | "off");
        variable("AZURE_STORAGE_USE_EMULATOR").filter(|value| scheme == "az" && is_enabled(value))?;
        let server = variable("AZURITE_BLOB_STORAGE_URL").unwrap_or_else(|| "127.0.0.1:10000".into());
        let account = variable(ACCOUNT_VARIABLE).unwrap_or_else(|| "devstoreaccount1".into());
        Some(format!("{}/{account}", server.trim_end_matches('/')))
    };
    named.or_else(emulator)
}

/// The value of an environment variable that is not empty.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_at_an_endpoint_name_objects_of_its_buckets() {
        let parts = |url: &str, endpoint: &str| {
            let (url, endpoint) = (Url::parse(url).unwrap(), Url::parse(endpoint).unwrap());
            at_endpoint(&url, &endpoint).map(|(bucket, path)| (bucket.map(str::to_owned), path.to_owned()))
        };
        let found = |bucket: Option<&str>, path: &str| Some((bucket.map(str::to_owned), path.to_owned()));
        let minio = "http://minio:9000";
        assert_eq!(parts("http://minio:9000/b/k.tar?X-Amz-Signature=1", minio), found(None, "b/k.tar"));
        assert_eq!(parts("http://b.minio:9000/k.tar", minio), found(Some("b"), "k.tar"));
        assert_eq!(parts("http://minio:9001/b/k.tar", minio), None);
        assert_eq!(parts("http://other:9000/b/k.tar", minio), None);
        assert_eq!(parts("http://xminio:9000/b/k.tar", minio), None);
        assert_eq!(parts("https://s3.host/b/k.tar", "https://s3.host:443/"), found(None, "b/k.tar"));
        let azurite = "http://127.0.0.1:10000/devstoreaccount1";
        let url = "http://127.0.0.1:10000/devstoreaccount1/c/k.tar";
        assert_eq!(parts(url, azurite), found(None, "c/k.tar"));
        assert_eq!(parts("http://127.0.0.1:10000/another/c/k.tar", azurite), None);
    }
}
