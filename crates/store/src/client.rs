//! Builds all HTTP clients, with the crate `reqwest`.
//!
//! None of these clients follows redirects: [`RequestTarget`](super::transport::RequestTarget) decides for
//! every request where it is sent next and with which headers.

use super::environment::check_proxies;
#[cfg(feature = "cloud")]
use super::environment::flag;
use super::location::Failure;
use super::transport::{HttpClients, USER_AGENT, addresses};
use crate::{Error, ErrorKind, Result};
#[cfg(feature = "cloud")]
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder};
use std::sync::Arc;
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// # Errors
///
/// [`ErrorKind::Config`] if an environment variable that names a proxy (such as `HTTPS_PROXY`) does not
/// contain a valid URL.
fn builder() -> Result<ClientBuilder> {
    check_proxies()?;
    Ok(Client::builder()
        .redirect(Policy::none())
        // A `Referer` would show a signed URL to the next server.
        .referer(false)
        // Another crate may enable reqwest's features for decompression. A decompressed range would not have
        // the bytes of the object.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .user_agent(USER_AGENT))
}

/// Builds two clients with the same settings: one that reuses connections, and one that does not.
fn built(settings: impl Fn() -> Result<ClientBuilder>) -> Result<HttpClients> {
    let build = |builder: ClientBuilder| {
        builder.build().map_err(|error| Error::from(ErrorKind::Store(Failure::boxed(&error.without_url()))))
    };
    Ok(HttpClients { pooled: build(settings()?)?, single_use: build(settings()?.pool_max_idle_per_host(0))? })
}

/// Builds clients for web servers. These clients use the proxies that the environment names.
#[cfg(feature = "http")]
pub(super) fn web() -> Result<HttpClients> {
    // Many connections have a higher throughput than many HTTP/2 streams of one connection.
    built(|| {
        let builder = builder()?.connect_timeout(CONNECT_TIMEOUT).http1_only();
        Ok(builder.dns_resolver(Arc::new(RotatingResolver)))
    })
}

/// The option `READ_TIMEOUT` of a cloud: the maximum time without a response, or without a byte of its body.
/// It is not set on the `reqwest` client, which would also count the time in which a request is sent: a part
/// of an upload takes long over a slow line.
#[cfg(feature = "cloud")]
pub(super) fn read_timeout(options: &ClientOptions) -> Result<Option<Duration>> {
    parsed(options, ClientConfigKey::ReadTimeout, |text| humantime::parse_duration(text).ok())
}

/// Builds clients for a cloud, with the options that `object_store` read from the environment, except the
/// [`READ_TIMEOUT`](read_timeout).
#[cfg(feature = "cloud")]
pub(super) fn cloud(options: &ClientOptions) -> Result<HttpClients> {
    built(|| cloud_settings(options))
}

#[cfg(feature = "cloud")]
fn cloud_settings(options: &ClientOptions) -> Result<ClientBuilder> {
    use ClientConfigKey as Key;

    let config = |error: reqwest::Error| Error::from(ErrorKind::Config(Failure::new(&error).to_string()));
    let value = |key: Key| options.get_config_value(&key);
    let time = |key: Key| parsed(options, key, |text| humantime::parse_duration(text).ok());
    let mut builder = builder()?
        .connect_timeout(time(Key::ConnectTimeout)?.unwrap_or(CONNECT_TIMEOUT))
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
    if let Some(max) = parsed(options, Key::PoolMaxIdlePerHost, |text| text.parse().ok())? {
        builder = builder.pool_max_idle_per_host(max);
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
        builder = builder.dns_resolver(Arc::new(RotatingResolver));
    }
    if is_set(options, Key::Http1Only) {
        builder = builder.http1_only();
    }
    if is_set(options, Key::Http2Only) {
        builder = builder.http2_prior_knowledge();
    }
    Ok(builder)
}

/// Whether a boolean option is true.
#[cfg(feature = "cloud")]
pub(super) fn is_set(options: &ClientOptions, key: ClientConfigKey) -> bool {
    options.get_config_value(&key).and_then(|value| flag(&value)).unwrap_or_default()
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

/// Resolves names such that successive connections to a host begin with different addresses of the host.
struct RotatingResolver;

impl Resolve for RotatingResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            // Port 0 means the port of the URL.
            let found: Addrs = Box::new(addresses(name.as_str(), 0).await?.into_iter());
            Ok(found)
        })
    }
}
