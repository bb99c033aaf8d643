//! One spelling for each place.

use percent_encoding::percent_decode_str;
use std::fs;
use std::path::{self, Component, Path, PathBuf};

/// The variables that give a bucket's scheme another server than that of its cloud.
const ENDPOINTS: [(&str, &[&str]); 3] = [
    ("gs", &["STORAGE_EMULATOR_HOST", "GOOGLE_BASE_URL"]),
    ("s3", &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]),
    ("az", &["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"]),
];
/// The parameters of queries that select an earlier version of an object.
const VERSIONS: [&str; 3] = ["generation", "versionid", "snapshot"];

/// The absolute path with `/` between its parts, and with the symbolic links of its directories resolved.
pub(super) fn of_file(path: PathBuf) -> String {
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

/// An object of Azure. Its authority may name the account beside the container.
pub(super) fn of_container(authority: &str, path: &str) -> String {
    let Some((container, host)) = authority.split_once('@') else { return format!("az://{authority}{path}") };
    let host = host.to_ascii_lowercase();
    let account = account_of_host(&host).filter(|_| !is_elsewhere("az")).unwrap_or(&host);
    format!("az://{container}@{account}{path}")
}

fn account_of_host(host: &str) -> Option<&str> {
    host.strip_suffix(".blob.core.windows.net").or_else(|| host.strip_suffix(".dfs.core.windows.net"))
}

/// A URL of a web server as it is requested, without its secrets; an object of a bucket if the server is that
/// of a cloud. `None` for what is no URL.
pub(super) fn of_web(text: &str) -> Option<String> {
    let mut url = url::Url::parse(text).ok()?;
    if let Some(place) = of_bucket_url(&url) {
        return Some(place);
    }
    url.set_username("").and_then(|()| url.set_password(None)).ok()?;
    url.set_query(None);
    url.set_fragment(None);
    Some(url.into())
}

fn of_bucket_url(url: &url::Url) -> Option<String> {
    let host = url.host_str().filter(|_| url.port().is_none())?;
    let path = url.path().strip_prefix('/')?;
    let (scheme, bucket) = bucket_of_host(host)?;
    let (bucket, key) = match bucket {
        Some(bucket) => (bucket, path),
        None => path.split_once('/')?,
    };
    // S3 takes a `+` for a space, and others for itself.
    if bucket.is_empty() || key.is_empty() || key.contains('+') || is_elsewhere(scheme) {
        return None;
    }
    if url.query_pairs().any(|(name, _)| VERSIONS.iter().any(|known| name.eq_ignore_ascii_case(known))) {
        return None;
    }
    let key = percent_decode_str(key).decode_utf8().ok()?;
    let account = account_of_host(host).map(|account| format!("@{account}")).unwrap_or_default();
    Some(format!("{scheme}://{bucket}{account}/{key}"))
}

/// The scheme of the cloud that has this server, and the bucket if it is part of the host.
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
    // `BUCKET.s3.REGION`, where the bucket may have dots, and the region may be left out.
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
    // These regions have buckets of their own, which may have the same names.
    let is_apart = region.starts_with("us-gov-") || region.starts_with("us-iso");
    (!is_apart && !region.contains('.')).then_some(("s3", bucket))
}

/// Whether the buckets of a scheme are not on the servers of its cloud.
fn is_elsewhere(scheme: &str) -> bool {
    endpoint(scheme).is_some()
}

/// The server that the environment names for the buckets of a scheme.
pub(super) fn endpoint(scheme: &str) -> Option<String> {
    let (_, names) = ENDPOINTS.iter().find(|(known, _)| *known == scheme)?;
    let value = names.iter().find_map(std::env::var_os)?;
    Some(value.to_string_lossy().into_owned())
}
