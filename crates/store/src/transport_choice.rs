//! The choice of the HTTP client that fetches the bodies of objects.

use crate::{Error, ErrorKind};
use std::fmt;
use std::str::FromStr;

/// The HTTP client that fetches the bodies of objects: for `http://`, `https://`, and all clouds.
///
/// Everything else that a store sends (uploads, listings, deletions, tokens) goes through `reqwest` in any
/// case. Retries, redirects, stall time-outs, the checks of ranges, lengths, versions and checksums and the
/// [budget](super::Budget) are the same with both clients. From a server that keeps to HTTP, both read the
/// same bytes.
///
/// `Native` takes less CPU time: 1.4 times that of `curl` for the same bytes, where the version over
/// `reqwest` took 2.3 times (`docs/benchmarks/2026-11-network.md`, HTTP without TLS on one machine). Choose
/// `Reqwest` for HTTP/2, to compare, or where an audit allows one HTTP client in a process. [The
/// guide][guide] lists the differences.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
/// use shardstream::store::{Store, Transport};
///
/// let store = Store::builder().transport(Transport::Reqwest).build()?;
/// assert_eq!("native".parse::<Transport>()?, Transport::default());
/// # let _ = store;
/// # Ok::<_, shardstream::Error>(())
/// ```
///
/// [guide]: https://docs.rs/shardstream/latest/shardstream/guide/network/index.html#which-http-client
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// The crate's own HTTP/1.1 client.
    ///
    /// `reqwest` takes its place where the environment names a proxy (`HTTP_PROXY`, `HTTPS_PROXY`,
    /// `ALL_PROXY`), and for a cloud with options that need it: `PROXY_URL`, `HTTP2_ONLY`,
    /// `ALLOW_INVALID_CERTIFICATES`, `NO_SYSTEM_CERTIFICATES`, each with the prefix of the cloud.
    #[default]
    Native,
    /// The crate `reqwest`. It speaks HTTP/1.1, and HTTP/2 to a cloud whose options allow that
    /// (`AWS_HTTP1_ONLY=false`).
    Reqwest,
}

impl Transport {
    /// The name of the choice, as it is parsed and displayed.
    fn name(self) -> &'static str {
        match self {
            Transport::Native => "native",
            Transport::Reqwest => "reqwest",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Parses `native` and `reqwest`.
impl FromStr for Transport {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = [Transport::Native, Transport::Reqwest];
        known.into_iter().find(|transport| transport.name() == text).ok_or_else(|| {
            let names = known.map(Transport::name).join(", ");
            ErrorKind::Config(format!("unknown transport {text:?}; known are {names}")).into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_as_they_are_displayed() {
        for transport in [Transport::Native, Transport::Reqwest] {
            assert_eq!(transport.to_string().parse::<Transport>().unwrap(), transport);
        }
        let error = "Native".parse::<Transport>().unwrap_err();
        assert!(error.to_string().contains("known are native, reqwest"), "{error}");
    }
}
