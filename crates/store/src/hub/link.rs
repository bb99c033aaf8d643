//! Signed links to files, and how long they are valid.

use crate::ErrorKind;
use crate::http::version;
use crate::http_time::{parse_date, parse_iso_time};
use crate::object_version::WEAK;
use crate::source::{GetResponse, Refusal};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::Uri;
use http::header::{self, HeaderMap};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Headers of a redirect to a link: the hash of the file's content, and the file's size.
const LINKED_ETAG: &str = "x-linked-etag";
const LINKED_SIZE: &str = "x-linked-size";
/// A link is no longer used when it expires in less than this time, because requests take time to arrive. If
/// its lifetime is shorter than twice this time, the link is used for half of its lifetime.
const MARGIN: Duration = Duration::from_secs(5 * 60);
/// The assumed lifetime of a link whose expiry time is unknown.
const UNKNOWN_LIFE: Duration = Duration::from_secs(5 * 60);
/// A link with a longer lifetime is used as if it had this lifetime.
const MAX_LIFE: Duration = Duration::from_secs(24 * 3600);
/// Expired links are removed only if [`Links`] has entries for at least this many files.
const MAX_LINKS: usize = 4096;

/// The location of a file on another server than the Hub.
pub(super) struct Link {
    /// The URI of the file. It contains a signature, which is a secret.
    pub(super) uri: Uri,
    /// The hash of the content.
    pub(super) version: Option<String>,
    pub(super) size: Option<u64>,
    /// The time until which the link is used.
    end: Instant,
    /// The version that the link's server names, once it is known.
    served_version: Mutex<Option<String>>,
}

/// Omits the URL, which contains a signature.
impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("version", &self.version)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl Link {
    /// `headers` are the headers of the redirect to `uri`.
    pub(super) fn new(uri: Uri, headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name)?.to_str().ok();
        // The time by the clock of the server that signed the link.
        let now = text(header::DATE.as_str()).and_then(parse_date).unwrap_or_else(SystemTime::now);
        let life = life(uri.query().unwrap_or_default(), now).unwrap_or(UNKNOWN_LIFE).min(MAX_LIFE);
        Link {
            end: Instant::now() + life.saturating_sub(MARGIN).max(life / 2),
            version: headers.contains_key(LINKED_ETAG).then(|| content_hash(headers)).flatten(),
            size: text(LINKED_SIZE).and_then(|size| size.parse().ok()),
            served_version: Mutex::default(),
            uri,
        }
    }

    pub(super) fn is_valid(&self) -> bool {
        Instant::now() < self.end
    }

    pub(super) fn served_version(&self) -> Option<String> {
        self.served_version.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_served_version(&self, response: &GetResponse) {
        let served = response.object().strong().map(str::to_owned);
        *self.served_version.lock().unwrap_or_else(PoisonError::into_inner) = served;
    }

    /// Whether the reason for a refusal may be that the link is no longer valid, or that it leads to another
    /// copy of the file now.
    pub(super) fn may_have_ended(&self, refusal: &Refusal) -> bool {
        match refusal {
            Refusal::Unauthenticated(_) => true,
            Refusal::Other(error) => match error.kind() {
                ErrorKind::Denied(_) => true,
                ErrorKind::Changed { .. } => self.served_version().is_some(),
                _ => false,
            },
            Refusal::Beyond => false,
        }
    }
}

/// The hash of a file's content, or else the version that the server names.
pub(super) fn content_hash(headers: &HeaderMap) -> Option<String> {
    let linked = headers.get(LINKED_ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    let tag = linked.or_else(|| version(headers))?;
    // Servers mark a tag as weak if the file may be compressed during transfer. The requests here do not
    // allow compression, so the mark is dropped if the tag is a hash of the content (SHA-256 or Git's SHA-1).
    let hash = tag.strip_prefix(WEAK).unwrap_or(&tag).trim_matches('"');
    let is_hash = matches!(hash.len(), 40 | 64) && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    Some(if is_hash { format!("\"{hash}\"") } else { tag })
}

/// The time until a signed link expires. If the query has several expiry times, the earliest one is used.
fn life(query: &str, now: SystemTime) -> Option<Duration> {
    let find = |name: &str| {
        let mut pairs = url::form_urlencoded::parse(query.as_bytes());
        pairs.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.into_owned())
    };
    let epoch = |seconds: u64| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
    let signed = |date: &str, expires: &str| {
        let life = Duration::from_secs(find(expires)?.parse().ok()?);
        find(date).and_then(|date| parse_iso_time(&date)).unwrap_or(now).checked_add(life)
    };
    let ends = [
        // Signatures of S3 and Google Cloud Storage.
        signed("x-amz-date", "x-amz-expires"),
        signed("x-goog-date", "x-goog-expires"),
        // Signatures of CloudFront, and the older signatures of S3 and Google.
        find("expires").and_then(|end| epoch(end.parse().ok()?)),
        find("policy").and_then(|policy| epoch(policy_end(&policy)?)),
        // Signatures of Azure.
        find("se").and_then(|end| parse_iso_time(&end)),
    ];
    let first = ends.into_iter().flatten().min()?;
    Some(first.duration_since(now).unwrap_or_default())
}

/// The expiry time in a policy of CloudFront. The policy is JSON in base64, with three characters replaced.
fn policy_end(policy: &str) -> Option<u64> {
    let base64 = policy.replace('-', "+").replace('_', "=").replace('~', "/");
    let policy = String::from_utf8(BASE64.decode(base64).ok()?).ok()?;
    let (_, rest) = policy.split_once("DateLessThan")?;
    let (_, rest) = rest.split_once("AWS:EpochTime")?;
    let digits = rest.trim_start_matches(['"', ':', ' ']);
    digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// What is known about the location of a file.
#[derive(Debug, Default)]
pub(super) enum FileHost {
    #[default]
    Unknown,
    /// The Hub itself sends the file.
    Hub,
    Link(Arc<Link>),
}

/// The host of one file, shared by all its readers. It is locked during a request to the Hub, so that only
/// one reader sends that request.
type SharedHost = Arc<tokio::sync::Mutex<FileHost>>;

/// The known hosts of files.
#[derive(Debug, Default)]
pub(super) struct Links(Mutex<Hosts>);

#[derive(Debug, Default)]
struct Hosts {
    by_path: HashMap<String, SharedHost>,
    /// Number of entries at which unused entries without a valid link are removed.
    sweep_at: usize,
}

impl Links {
    pub(super) fn host(&self, path: &str) -> SharedHost {
        let mut hosts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(host) = hosts.by_path.get(path) {
            return Arc::clone(host);
        }
        if hosts.by_path.len() >= hosts.sweep_at.max(MAX_LINKS) {
            let is_worth_keeping = |host: &FileHost| matches!(host, FileHost::Link(link) if link.is_valid());
            hosts.by_path.retain(|_, host| {
                let is_in_use = Arc::strong_count(host) > 1;
                is_in_use || host.try_lock().is_ok_and(|host| is_worth_keeping(&host))
            });
            hosts.sweep_at = 2 * hosts.by_path.len();
        }
        Arc::clone(hosts.by_path.entry(path.to_owned()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_end_of_a_signature_counts() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600); // 2026-01-01T00:00:00Z
        let policy =
            BASE64.encode(r#"{"Statement":[{"Condition":{"DateLessThan":{"AWS:EpochTime":1767225700}}}]}"#);
        let policy = policy.replace('+', "-").replace('=', "_").replace('/', "~");
        for (query, expected) in [
            ("", None),
            ("a=b", None),
            ("X-Amz-Date=20260101T000000Z&X-Amz-Expires=3600", Some(3600)),
            ("X-Amz-Date=20251231T235900Z&X-Amz-Expires=3600", Some(3540)),
            ("X-Amz-Expires=3600", Some(3600)),
            ("X-Goog-Date=20260101T000000Z&X-Goog-Expires=60", Some(60)),
            ("Expires=1767225601&Signature=x", Some(1)),
            ("Expires=1767225601&X-Amz-Date=20260101T000000Z&X-Amz-Expires=3600", Some(1)),
            ("expires=1767220000", Some(0)),
            ("se=2026-01-01T00%3A10%3A00Z&sig=x", Some(600)),
            (&format!("Policy={policy}"), Some(100)),
            ("Policy=x&Expires=soon&se=tomorrow&X-Amz-Expires=-1", None),
            ("X-Amz-Expires=18446744073709551615", None),
        ] {
            assert_eq!(life(query, now), expected.map(Duration::from_secs), "{query}");
        }
    }

    #[test]
    fn a_link_is_used_for_part_of_its_life_and_is_not_shown() {
        let link = |query: &str| {
            let uri = format!("https://cdn/a?{query}").parse().unwrap();
            let tag = ("x-linked-etag".parse().unwrap(), "\"v\"".parse().unwrap());
            let date = (header::DATE, "Thu, 01 Jan 2026 00:00:00 GMT".parse().unwrap());
            Link::new(uri, &HeaderMap::from_iter([tag, date]))
        };
        assert!(link("X-Amz-Date=20260101T000000Z&X-Amz-Expires=3600").is_valid(), "by the server's clock");
        assert!(!link("X-Amz-Date=20251231T000000Z&X-Amz-Expires=3600").is_valid());
        assert!(link("signature=s3cret").is_valid());
        assert!(!format!("{:?}", link("signature=s3cret")).contains("s3cret"));
    }

    #[test]
    fn ended_links_are_removed() {
        let links = Links::default();
        for number in 0..MAX_LINKS {
            let ended = Link::new("https://cdn/a?Expires=1".parse().unwrap(), &HeaderMap::new());
            *links.host(&number.to_string()).try_lock().unwrap() = FileHost::Link(Arc::new(ended));
        }
        let kept = links.host("7");
        links.host("new");
        assert!(Arc::ptr_eq(&kept, &links.host("7")), "this entry is in use");
        assert_eq!(links.0.lock().unwrap().by_path.len(), 2);
    }
}
