//! The server of a URL.

use crate::{ErrorKind, Result};
use http::Uri;
use std::fmt;

/// The URI of a request for `url`, without user and password, which are only sent as a header, if at all.
pub(crate) fn request_uri(mut url: url::Url) -> Result<Uri> {
    // These calls fail for URLs without a host, which are refused later.
    let _ = (url.set_username(""), url.set_password(None));
    url.as_str().parse().map_err(|error| ErrorKind::Config(format!("bad URL: {error}")).into())
}

/// Whether secrets may be sent to a URL: if it uses TLS, or names this machine.
#[cfg(any(feature = "gcs", feature = "s3", feature = "http"))]
pub(crate) fn may_get_secrets(url: &url::Url) -> bool {
    let is_local = match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => return false,
    };
    url.scheme() == "https" || url.scheme() == "http" && is_local
}

/// The scheme, host and port of a connection. Displayed as in the header `Host`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct HttpOrigin {
    pub(super) tls: bool,
    /// The host, without the brackets of an IPv6 address.
    pub(super) host: String,
    pub(super) port: u16,
}

impl HttpOrigin {
    pub(super) fn of(uri: &Uri) -> Result<Self> {
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(ErrorKind::Config("bad URL: it is neither http nor https".into()).into()),
        };
        let host = uri.host().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(ErrorKind::Config("bad URL: it has no host".into()).into());
        }
        let port = uri.port_u16().unwrap_or(Self::default_port(tls));
        Ok(HttpOrigin { tls, host: host.to_ascii_lowercase(), port })
    }

    fn default_port(tls: bool) -> u16 {
        if tls { 443 } else { 80 }
    }
}

impl fmt::Display for HttpOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]", self.host)?,
            false => f.write_str(&self.host)?,
        }
        if self.port != Self::default_port(self.tls) {
            write!(f, ":{}", self.port)?;
        }
        Ok(())
    }
}
