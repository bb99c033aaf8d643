//! Finds the source that serves a URL: one of the caller's, or a client that the store makes.

use super::custom_source::CustomSource;
use super::fetch::FetchLimits;
#[cfg(feature = "http")]
use super::http_headers::{HeaderRules, WebOptions};
use super::object::ObjectSource;
use super::object_url::ObjectUrl;
use super::source::Source;
use super::{cloud, location};
#[cfg(feature = "http")]
use super::{http, hub};
use crate::Result;
use crate::secret_url::SecretUrl;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::{cmp, fmt};

/// The sources of a store.
pub(super) struct SourceRegistry {
    /// The caller's sources with the prefixes of the URLs that they serve, longest first.
    registered: Vec<(SecretUrl, Arc<dyn Source>)>,
    /// Clients configured from the environment. The map's key is the URL of the bucket or repository, or
    /// `http` for the client of all web servers.
    clients: Mutex<HashMap<SecretUrl, Arc<dyn Source>>>,
    limits: FetchLimits,
    /// The headers that the caller has set for web servers.
    #[cfg(feature = "http")]
    headers: Arc<HeaderRules>,
    #[cfg(feature = "http")]
    hub_endpoint: Option<SecretUrl>,
}

impl SourceRegistry {
    /// `registered` are the caller's sources with the prefixes of the URLs that they serve.
    pub(super) fn new(
        registered: Vec<(SecretUrl, Arc<dyn Source>)>,
        limits: FetchLimits,
        #[cfg(feature = "http")] web: WebOptions,
    ) -> Self {
        let custom = |(base, source)| (base, Arc::new(CustomSource(source)) as Arc<dyn Source>);
        let mut registered: Vec<_> = registered.into_iter().map(custom).collect();
        registered.sort_by_key(|(base, _)| cmp::Reverse(base.expose_secret().len()));
        SourceRegistry {
            registered,
            clients: Mutex::default(),
            limits,
            #[cfg(feature = "http")]
            headers: Arc::new(HeaderRules::new(&web.headers).unwrap_or_default()),
            #[cfg(feature = "http")]
            hub_endpoint: web.hub_endpoint,
        }
    }

    /// The source that the caller registered for `url`, and the URL prefix that this source serves.
    pub(super) fn registered(&self, url: &str) -> Option<&(SecretUrl, Arc<dyn Source>)> {
        let serves = |base: &str| {
            let rest = url.strip_prefix(base);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.registered.iter().find(|(base, _)| serves(base.expose_secret()))
    }

    pub(super) fn location(&self, url: &str) -> Result<ObjectLocation> {
        if let Some((_, source)) = self.registered(url) {
            return Ok(ObjectLocation::Source(Arc::clone(source)));
        }
        if url.starts_with("pipe:") {
            let hint = "commands are not run; use the URL of the object itself, or register a source for it \
                        with \
                        the builder";
            return Err(location::unsupported("pipe", hint));
        }
        let parsed = ObjectUrl::parse(url);
        if parsed.is_path() {
            location::check_slashes(url)?;
        }
        match parsed.local_path()? {
            Some(path) => Ok(ObjectLocation::Local(path)),
            None => self.client(url, parsed).map(ObjectLocation::Source),
        }
    }

    /// The built-in client for `url`, which is made when it is first needed.
    fn client(&self, url: &str, parsed: ObjectUrl<'_>) -> Result<Arc<dyn Source>> {
        let base = if parsed.is_web() { "http" } else { parsed.base() };
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let key = SecretUrl::from(base);
        if let Some(client) = clients.get(&key) {
            return Ok(Arc::clone(client));
        }
        let client: Arc<dyn Source> = match cloud::client(base, &self.limits)? {
            Some(store) => Arc::new(ObjectSource::renewable(base.into(), store, cloud::client, &self.limits)),
            None if parsed.is_web() || parsed.scheme() == Some("hf") => self.web(parsed)?,
            None => {
                let known = "the schemes are file, gs, s3, az, hf, http and https; \
                             the builder can register sources for others";
                let hint = location::suggestion(url)
                    .map(|suggestion| format!("did you mean `{suggestion}`? {known}"));
                return Err(location::unsupported(
                    parsed.scheme().unwrap_or_default(),
                    hint.unwrap_or_else(|| known.into()),
                ));
            }
        };
        clients.insert(key, Arc::clone(&client));
        Ok(client)
    }

    /// The client of web servers, or the client of a repository of the Hugging Face Hub.
    #[cfg(feature = "http")]
    fn web(&self, parsed: ObjectUrl<'_>) -> Result<Arc<dyn Source>> {
        let Some(repository) = parsed.repository()? else {
            return Ok(Arc::new(http::HttpSource::new(Arc::clone(&self.headers))?));
        };
        let named = self.hub_endpoint.as_ref().map(SecretUrl::expose_secret);
        let endpoint = hub::Endpoint::new(named, &self.headers, &self.limits)?;
        Ok(Arc::new(hub::HubSource::new(parsed.base(), repository, endpoint)?))
    }

    #[cfg(not(feature = "http"))]
    fn web(&self, parsed: ObjectUrl<'_>) -> Result<Arc<dyn Source>> {
        Err(location::missing(parsed.scheme().unwrap_or("http"), "http"))
    }
}

impl fmt::Debug for SourceRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registered: Vec<_> = self.registered.iter().map(|(base, _)| base).collect();
        f.debug_struct("SourceRegistry").field("registered", &registered).finish_non_exhaustive()
    }
}

/// The location of an object: a local file, or a URL of a source.
pub(super) enum ObjectLocation {
    Local(PathBuf),
    Source(Arc<dyn Source>),
}
