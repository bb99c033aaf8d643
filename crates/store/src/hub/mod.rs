//! Datasets of the Hugging Face Hub: `hf://datasets/OWNER/NAME[@REVISION]/path`.
//!
//! **One commit.** A [`HubSource`] reads one repository at one revision. It requests the commit of the
//! revision once, and then lists and reads that commit. If the branch changes later, this store still reads
//! the same commit. The version of a file is the hash of its content (`X-Linked-ETag`), so it is the same in
//! all commits that have the same file.
//!
//! **Two servers.** The Hub redirects the request for a large file to a signed link on another server, which
//! is valid for about an hour. A [`Link`] is kept for that time, and all further ranges of the file are
//! requested there. The token is only sent to the Hub. If the other server refuses a link (403), a new link
//! is requested from the Hub, once. Small files are sent by the Hub itself.
//!
//! Example: to read `hf://datasets/o/n/a.tar` in three ranges, five requests are sent.
//! 1. Hub: `/api/datasets/o/n/revision/main`, whose response has the commit `c`;
//! 2. Hub: `/datasets/o/n/resolve/c/a.tar`, which redirects to a link;
//! 3. to 5. the link's server: the ranges.
//!
//! Data flows one way: `endpoint` sends requests to the Hub with the token, `tree` parses listings, `link`
//! finds how long links are valid, and `refused` explains refusals of the Hub. This file uses all four
//! modules.

mod endpoint;
mod link;
mod refused;
mod token;
mod tree;

use super::http::{range_and_version, version, web_client};
use super::object_url::Repository;
use super::response;
use super::source::{GetOptions, GetResponse, ObjectInfo, Refusal, Source};
use super::transport::{BodyClient, GetResult};
use crate::telemetry::log;
use crate::{Error, ErrorKind, ObjectVersion, Result};
pub(super) use endpoint::Endpoint;
use endpoint::encoded;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use http::header::HeaderMap;
use link::{FileHost, Link, Links, content_hash};
use refused::refused;
use serde::Deserialize;
use std::sync::Arc;
use tokio::sync::Mutex;
use tree::TreeEntry;

/// The response header that names the commit of the file.
const COMMIT_HEADER: &str = "x-repo-commit";

/// A dataset of the Hub.
#[derive(Debug, Clone)]
pub(super) struct HubSource(Arc<HubDataset>);

#[derive(Debug)]
struct HubDataset {
    /// The URL of the repository, as the caller wrote it.
    base: String,
    repository: Repository,
    endpoint: Endpoint,
    /// Sends the requests to signed links.
    client: BodyClient,
    /// The commit, once it is known.
    commit: Mutex<Option<Arc<str>>>,
    links: Links,
}

/// A commit in a response of the Hub.
#[derive(Deserialize)]
struct Revision {
    sha: String,
}

impl HubSource {
    /// `base` is the URL of the repository, as the caller wrote it.
    pub(super) fn new(base: &str, repository: Repository, endpoint: Endpoint) -> Result<Self> {
        let commit = repository.named_commit().map(Arc::from);
        Ok(HubSource(Arc::new(HubDataset {
            base: base.to_owned(),
            endpoint,
            client: web_client()?,
            commit: Mutex::new(commit),
            links: Links::default(),
            repository,
        })))
    }
}

impl HubDataset {
    /// The path of a file or directory in the repository.
    fn path<'a>(&self, url: &'a str) -> Result<&'a str> {
        let path = url.strip_prefix(&*self.base).unwrap_or(url);
        let path = path.strip_prefix('/').unwrap_or(path);
        match path.split('/').any(|part| matches!(part, "" | "." | "..")) && !path.is_empty() {
            true => Err(ErrorKind::Config(
                "a path in a repository must have no part that is empty, . or ..".into(),
            )
            .into()),
            false => Ok(path),
        }
    }

    /// The commit of the revision. The commit is requested only once.
    async fn commit(&self) -> Result<Arc<str>> {
        let mut commit = self.commit.lock().await;
        if let Some(commit) = &*commit {
            return Ok(Arc::clone(commit));
        }
        let Repository { name, revision } = &self.repository;
        let path = format!("/api/datasets/{name}/revision/{}?expand=sha", encoded(revision));
        let (found, _) = self.json::<Revision>(&path, "").await?;
        if found.sha.is_empty() || !found.sha.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(ErrorKind::Store("the response has no commit: is HF_ENDPOINT a Hub?".into()).into());
        }
        let found: Arc<str> = found.sha.into();
        log!(INFO, "the commit of a dataset is pinned", url = self.base, commit = found);
        *commit = Some(Arc::clone(&found));
        Ok(found)
    }

    /// Requests a JSON document from the Hub, without retries. `path` is the path in the repository, for
    /// messages.
    async fn json<T: for<'a> Deserialize<'a>>(&self, request: &str, path: &str) -> Result<(T, HeaderMap)> {
        let result = self.endpoint.get(&self.endpoint.uri(request)?, HeaderMap::new()).await?;
        let response = match result.result {
            GetResult::Response(response) if response.status.is_success() => response,
            GetResult::Response(response) => {
                return Err(refused(response, &self.repository, path, &result.token).await.into());
            }
            GetResult::Redirect { .. } => {
                let why = "the Hub redirects an API request to another server: is HF_ENDPOINT a Hub?";
                return Err(ErrorKind::Store(why.into()).into());
            }
        };
        let (headers, text) = (response.headers, self.endpoint.whole(response.body).await?);
        // The parser's error is dropped: its message could quote the response.
        let document = serde_json::from_slice(&text).map_err(|_| {
            ErrorKind::Store("the response is not one of a Hub: is HF_ENDPOINT a Hub?".into())
        })?;
        Ok((document, headers))
    }

    async fn get(&self, url: &str, options: &GetOptions) -> Result<GetResponse, Refusal> {
        let path = self.path(url).map_err(Refusal::Other)?;
        if path.is_empty() {
            let what = "it names a dataset, but no file: write hf://datasets/OWNER/NAME[@REVISION]/path";
            return Err(Refusal::Other(ErrorKind::Config(what.into()).into()));
        }
        let host = self.links.host(path);
        let mut renewed = false;
        loop {
            let mut current = host.lock().await;
            let link = match &*current {
                FileHost::Link(link) if link.is_valid() => Arc::clone(link),
                FileHost::Hub => {
                    drop(current);
                    return match self.resolve(url, path, options).await? {
                        Resolved::File(response) => Ok(response),
                        Resolved::Link(link) => self.follow(&link, url, options).await,
                    };
                }
                _ => match self.resolve(url, path, options).await? {
                    Resolved::File(response) => {
                        *current = FileHost::Hub;
                        return Ok(response);
                    }
                    Resolved::Link(link) => {
                        let link = Arc::new(link);
                        *current = FileHost::Link(Arc::clone(&link));
                        link
                    }
                },
            };
            drop(current);
            match self.follow(&link, url, options).await {
                Err(refusal) if !renewed && link.may_have_ended(&refusal) => {
                    renewed = true;
                    let mut current = host.lock().await;
                    if matches!(&*current, FileHost::Link(current) if Arc::ptr_eq(current, &link)) {
                        *current = FileHost::Unknown;
                    }
                }
                result => return result,
            }
        }
    }

    /// Requests a file from the Hub. The Hub sends a small file itself, and redirects to a link for a large
    /// one.
    async fn resolve(&self, url: &str, path: &str, options: &GetOptions) -> Result<Resolved, Refusal> {
        let commit = self.commit().await.map_err(Refusal::Other)?;
        let encoded_path: Vec<_> = path.split('/').map(encoded).collect();
        let request =
            format!("/datasets/{}/resolve/{commit}/{}", self.repository.name, encoded_path.join("/"));
        let request_future = async {
            let uri = self.endpoint.uri(&request)?;
            self.endpoint.get(&uri, range_and_version(options)?).await
        };
        let hub_response = request_future.await.map_err(Refusal::Other)?;
        let same_commit =
            |headers: &HeaderMap| match headers.get(COMMIT_HEADER).and_then(|found| found.to_str().ok()) {
                Some(found) if *found != *commit => {
                    let (before, after) = (format!("commit {commit}"), format!("commit {found}"));
                    Err(Refusal::Other(ErrorKind::Changed { before, after }.into()))
                }
                _ => Ok(()),
            };
        match hub_response.result {
            GetResult::Redirect { headers, uri } => {
                same_commit(&headers)?;
                Ok(Resolved::Link(Link::new(uri, &headers)))
            }
            GetResult::Response(response)
                if response.status.is_success() || matches!(response.status.as_u16(), 412 | 416) =>
            {
                same_commit(&response.headers)?;
                Ok(Resolved::File(response::read(response, url, options, content_hash).await?))
            }
            GetResult::Response(response) => {
                Err(refused(response, &self.repository, path, &hub_response.token).await)
            }
        }
    }

    /// Reads from a link.
    async fn follow(&self, link: &Link, url: &str, options: &GetOptions) -> Result<GetResponse, Refusal> {
        let named = |version: &Option<String>| ObjectVersion::new(None, version.as_deref());
        if options.if_version.is_some()
            && named(&options.if_version).compare(&named(&link.version)).is_different()
        {
            return Err(Refusal::changed(options, link.version.clone()));
        }
        // The link's server has its own versions of files. Its first response names the version.
        let if_version = options.if_version.as_ref().and_then(|_| link.served_version());
        let other_options = GetOptions { range: options.range.clone(), if_version };
        let request_future =
            async { self.client.get(link.uri.clone(), range_and_version(&other_options)?).await };
        let response = request_future.await.map_err(Refusal::Other)?;
        let mut found = response::read(response, url, &other_options, version).await?;
        if let (Some(size), Some(expected)) = (found.size, link.size)
            && size != expected
        {
            let why = format!("the Hub's link leads to {size} bytes, and the file has {expected}");
            return Err(Refusal::Other(ErrorKind::Store(why.into()).into()));
        }
        link.set_served_version(&found);
        found.size = found.size.or(link.size);
        found.version = link.version.clone().or(found.version);
        Ok(found)
    }

    /// Lists the files below a directory, page by page. Each page is retried.
    fn list(self: Arc<Self>, directory: String) -> BoxStream<'static, Result<ObjectInfo>> {
        struct Pages {
            dataset: Arc<HubDataset>,
            directory: String,
            next: Option<String>,
        }

        let first = Pages { dataset: self, directory, next: Some(String::new()) };
        let pages = stream::try_unfold(first, |mut pages| async move {
            let Some(query) = pages.next.take() else { return Ok(None) };
            let dataset = &pages.dataset;
            let directory = &*pages.directory;
            let (entries, next) = dataset
                .endpoint
                .retried(|| async {
                    let commit = dataset.commit().await?;
                    let request = tree::request(&dataset.repository.name, &commit, directory, &query);
                    let (entries, headers) = dataset.json::<Vec<TreeEntry>>(&request, directory).await?;
                    Ok((entries, tree::next_page(&headers)))
                })
                .await?;
            let base = dataset.base.clone();
            let files: Vec<_> = entries.into_iter().filter_map(|entry| entry.file(&base)).map(Ok).collect();
            pages.next = next;
            Ok::<_, Error>(Some((stream::iter(files), pages)))
        });
        pages.try_flatten().boxed()
    }
}

/// The Hub's response to a request for a file.
enum Resolved {
    File(GetResponse),
    Link(Link),
}

impl Source for HubSource {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let (dataset, url, mut options) = (Arc::clone(&self.0), url.to_owned(), options);
        async move {
            match dataset.get(&url, &options).await {
                Err(Refusal::Beyond) => {
                    options.range = None;
                    dataset.get(&url, &options).await.map_err(Error::from)
                }
                result => result.map_err(Error::from),
            }
        }
        .boxed()
    }

    fn place(&self) -> String {
        self.0.endpoint.url().to_owned()
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<ObjectInfo>> {
        match self.0.path(prefix.strip_suffix('/').unwrap_or(prefix)) {
            Ok(directory) => Arc::clone(&self.0).list(directory.to_owned()),
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
    }
}
