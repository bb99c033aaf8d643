//! The one place that builds clients of `reqwest`, for what the crate's own transport does not do: proxies,
//! uploads, listings, tokens.
//!
//! None of them follows redirects by itself: [`Target`](super::transport::Target) decides for every request,
//! however it is sent, where it may be sent next and with which headers.

use super::location::Failure;
use super::transport::{AGENT, addresses, is_final};
use crate::{Error, ErrorKind, Result};
#[cfg(feature = "cloud")]
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder};
use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;
use std::{io, iter};
use tokio_rustls::rustls;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);

fn builder() -> ClientBuilder {
    Client::builder()
        .redirect(Policy::none())
        // A URL may be signed, and a `Referer` would show it to the next server.
        .referer(false)
        // Where another crate turns decompression on, it would make bytes of a range that are not in the
        // object.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .user_agent(AGENT)
}

fn built(builder: ClientBuilder) -> Result<Client> {
    builder.build().map_err(|error| ErrorKind::Store(Failure::boxed(&error.without_url())).into())
}

/// A client for web servers behind the proxies that the environment names.
#[cfg(feature = "http")]
pub(super) fn web() -> Result<Client> {
    // Many connections carry more than many streams of one.
    built(builder().connect_timeout(CONNECT).http1_only().dns_resolver(Arc::new(InTurn)))
}

/// How long nothing may come of a request, as the environment says it to `object_store`. The client does not
/// watch it: `reqwest` would count the time in which a request is sent, which a slow line takes for the part
/// of an upload.
#[cfg(feature = "cloud")]
pub(super) fn read_timeout(options: &ClientOptions) -> Result<Option<Duration>> {
    parsed(options, ClientConfigKey::ReadTimeout, |text| humantime::parse_duration(text).ok())
}

/// A client for a cloud, with the options that the environment gave to `object_store`, but for the time in
/// which [nothing may come](read_timeout).
#[cfg(feature = "cloud")]
pub(super) fn cloud(options: &ClientOptions) -> Result<Client> {
    use ClientConfigKey as Key;

    let config = |error: reqwest::Error| Error::from(ErrorKind::Config(Failure::new(&error).to_string()));
    let value = |key: Key| options.get_config_value(&key);
    let time = |key: Key| parsed(options, key, |text| humantime::parse_duration(text).ok());
    let mut builder = builder()
        .connect_timeout(time(Key::ConnectTimeout)?.unwrap_or(CONNECT))
        .https_only(!is_set(options, Key::AllowHttp))
        .http2_keep_alive_interval(time(Key::Http2KeepAliveInterval)?)
        .http2_keep_alive_while_idle(is_set(options, Key::Http2KeepAliveWhileIdle))
        .http2_max_frame_size(parsed(options, Key::Http2MaxFrameSize, |text| text.parse::<u32>().ok())?);
    if let Some(agent) = value(Key::UserAgent) {
        builder = builder.user_agent(agent);
    }
    if let Some(time) = time(Key::Timeout)? {
        builder = builder.timeout(time);
    }
    if let Some(time) = time(Key::PoolIdleTimeout)? {
        builder = builder.pool_idle_timeout(time);
    }
    if let Some(time) = time(Key::Http2KeepAliveTimeout)? {
        builder = builder.http2_keep_alive_timeout(time);
    }
    if let Some(most) = parsed(options, Key::PoolMaxIdlePerHost, |text| text.parse().ok())? {
        builder = builder.pool_max_idle_per_host(most);
    }
    if let Some(url) = value(Key::ProxyUrl) {
        let mut proxy = reqwest::Proxy::all(url).map_err(|error| config(error.without_url()))?;
        if let Some(hosts) = value(Key::ProxyExcludes) {
            proxy = proxy.no_proxy(reqwest::NoProxy::from_string(&hosts));
        }
        if let Some(certificate) = value(Key::ProxyCaCertificate) {
            let certificate = reqwest::Certificate::from_pem(certificate.as_bytes()).map_err(config)?;
            builder = builder.tls_certs_merge([certificate]);
        }
        builder = builder.proxy(proxy);
    }
    if is_set(options, Key::NoSystemCertificates) {
        builder = builder.tls_certs_only([]);
    }
    if is_set(options, Key::AllowInvalidCertificates) {
        builder = builder.tls_danger_accept_invalid_certs(true);
    }
    if is_set(options, Key::RandomizeAddresses) {
        builder = builder.dns_resolver(Arc::new(InTurn));
    }
    if is_set(options, Key::Http1Only) {
        builder = builder.http1_only();
    }
    if is_set(options, Key::Http2Only) {
        builder = builder.http2_prior_knowledge();
    }
    built(builder)
}

/// Whether an option that is true or false is true, as `object_store` reads it.
#[cfg(feature = "cloud")]
pub(super) fn is_set(options: &ClientOptions, key: ClientConfigKey) -> bool {
    let yes = |value: String| matches!(&*value.to_ascii_lowercase(), "1" | "true" | "on" | "yes" | "y");
    options.get_config_value(&key).is_some_and(yes)
}

#[cfg(feature = "cloud")]
fn parsed<T>(
    options: &ClientOptions,
    key: ClientConfigKey,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>> {
    let Some(text) = options.get_config_value(&key) else { return Ok(None) };
    let bad = || ErrorKind::Config(format!("bad value of the client option {}: {text:?}", key.as_ref()));
    parse(&text).map(Some).ok_or_else(|| bad().into())
}

/// The connections of a client begin with different addresses of their host.
struct InTurn;

impl Resolve for InTurn {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            // Port 0 means that of the URL.
            let found: Addrs = Box::new(addresses(name.as_str(), 0).await?.into_iter());
            Ok(found)
        })
    }
}

/// What a failed request means: a fault of the network, which may pass, or a request that cannot be made.
pub(super) fn fault(error: reqwest::Error) -> Error {
    let (impossible, late) = (error.is_builder() || error.is_redirect(), error.is_timeout());
    let error = error.without_url();
    match impossible {
        true => ErrorKind::Store(Failure::boxed(&error)).into(),
        false => network_fault(&error, late.then_some(io::ErrorKind::TimedOut)),
    }
}

/// A fault of the network, of this kind or of that which the system gave to its cause. It may pass, unless
/// TLS says that the next connection will fail in the same way.
pub(super) fn network_fault(error: &(dyn StdError + 'static), kind: Option<io::ErrorKind>) -> Error {
    let causes = || iter::successors(Some(error), |error| (**error).source());
    let of_system = || causes().filter_map(|error| error.downcast_ref::<io::Error>());
    // What is no TLS at all is as final as a refusal.
    let is_final =
        |error: &rustls::Error| is_final(error) || matches!(error, rustls::Error::InvalidMessage(_));
    let final_of_tls = |error: Option<&rustls::Error>| error.is_some_and(is_final);
    if causes().any(|error| final_of_tls(error.downcast_ref()))
        || of_system().filter_map(io::Error::get_ref).any(|inner| final_of_tls(inner.downcast_ref()))
    {
        return ErrorKind::Store(Failure::boxed(error)).into();
    }
    let kind = kind.or_else(|| of_system().last().map(io::Error::kind)).unwrap_or(io::ErrorKind::Other);
    io::Error::new(kind, Failure::new(error)).into()
}
