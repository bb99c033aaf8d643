//! An imitation of the Hugging Face Hub: revisions, listings in pages, signed download links that lead to
//! another server, private and gated datasets.
//!
//! The paths, parameters, headers and errors are the ones that the client `huggingface_hub` expects.
//! `tests/suite/store/hub` reads this Hub with that client, too.

use super::server::{Reply, Request, Server};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

type Files = BTreeMap<String, Vec<u8>>;

/// The content and settings of the Hub. Tests change them while it is running.
pub struct HubState {
    /// The commit of each branch and tag.
    pub refs: BTreeMap<String, String>,
    pub commits: BTreeMap<String, Files>,
    /// If set, requests without this token are refused.
    pub token: Option<String>,
    /// Whether only accepted accounts may read the files.
    pub is_gated: bool,
    /// Whether files with `.tar` in their names are served through links.
    pub has_links: bool,
    /// The query parameters that tell when a link expires.
    pub link_end: String,
    /// The links that have not expired.
    links: HashSet<String>,
    next_link: usize,
    /// Number of entries per page.
    pub page: usize,
    /// Whether the links to further pages name another server, as on some mirrors.
    pub is_mirror: bool,
    content: BTreeMap<String, Vec<u8>>,
}

/// A Hub with the single dataset `o/n`.
pub struct Hub {
    server: Server,
    cdn: Server,
    state: Arc<Mutex<HubState>>,
}

const API: &str = "/api/datasets/o/n";

impl Hub {
    pub fn start() -> Self {
        Self::with(|_| None)
    }

    /// Starts a Hub, and the server that the Hub's download links lead to. If `fault` returns a reply for a
    /// request to either server, that reply is sent.
    pub fn with(fault: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) -> Self {
        let state = Arc::new(Mutex::new(HubState {
            refs: BTreeMap::new(),
            commits: BTreeMap::new(),
            token: None,
            is_gated: false,
            has_links: true,
            link_end: "X-Amz-Date=20260101T000000Z&X-Amz-Expires=3600".into(),
            links: HashSet::new(),
            next_link: 0,
            page: 1000,
            is_mirror: false,
            content: BTreeMap::new(),
        }));
        let fault = Arc::new(fault);
        let cdn = Server::start({
            let (state, fault) = (Arc::clone(&state), Arc::clone(&fault));
            move |request| fault(request).unwrap_or_else(|| state.lock().unwrap().linked(request))
        });
        let cdn_url = cdn.url("");
        let server = Server::start({
            let state = Arc::clone(&state);
            move |request| fault(request).unwrap_or_else(|| state.lock().unwrap().answer(request, &cdn_url))
        });
        let hub = Hub { server, cdn, state };
        hub.commit("main", &[]);
        hub
    }

    pub fn endpoint(&self) -> String {
        self.server.url("")
    }

    pub fn state(&self) -> MutexGuard<'_, HubState> {
        self.state.lock().unwrap()
    }

    /// Makes a commit that contains only these files, and moves `branch` to it. Returns the commit's hash.
    pub fn commit(&self, branch: &str, files: &[(&str, &[u8])]) -> String {
        let files: Files =
            files.iter().map(|(path, content)| ((*path).to_owned(), content.to_vec())).collect();
        let mut state = self.state();
        let commit = hash(format!("commit {}", state.commits.len()).as_bytes(), 40);
        for content in files.values() {
            state.content.insert(hash(content, 64), content.clone());
        }
        state.commits.insert(commit.clone(), files);
        state.refs.insert(branch.to_owned(), commit.clone());
        commit
    }

    /// Adds a file to the commit of `main`, without a new commit.
    pub fn put(&self, path: &str, content: &[u8]) {
        let mut state = self.state();
        let commit = state.refs["main"].clone();
        state.content.insert(hash(content, 64), content.to_vec());
        state.commits.get_mut(&commit).unwrap().insert(path.to_owned(), content.to_vec());
    }

    /// Makes all download links expire.
    pub fn end_links(&self) {
        self.state().links.clear();
    }

    /// The requests to the Hub, and the requests to the server that the Hub's download links lead to.
    pub fn requests(&self) -> [Vec<Request>; 2] {
        [self.server.requests(), self.cdn.requests()]
    }
}

/// `digits` hexadecimal digits that depend on the content.
fn hash(content: &[u8], digits: usize) -> String {
    let part = |seed: u64| {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ seed;
        for byte in content {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        format!("{hash:016x}")
    };
    (0..4).map(part).collect::<String>()[..digits].to_owned()
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8().unwrap().into_owned()
}

fn refusal(status: u16, code: &str, message: &str) -> Reply {
    Reply::new(status, json!({"error": message}).to_string())
        .with("X-Error-Code", code)
        .with("X-Error-Message", message)
}

impl HubState {
    fn answer(&mut self, request: &Request, cdn: &str) -> Reply {
        let sent = request.header("authorization");
        let expected = self.token.as_ref().map(|token| format!("Bearer {token}"));
        match (&expected, sent) {
            (Some(expected), Some(sent)) if sent != expected => {
                return refusal(401, "", "Invalid credentials in Authorization header");
            }
            (Some(_), None) => return refusal(401, "RepoNotFound", "Invalid username or password."),
            _ => {}
        }
        let path = request.path();
        if let Some(rest) = path.strip_prefix(API) {
            return match rest.split('/').collect::<Vec<_>>()[..] {
                [""] => self.revision("main"),
                ["", "revision", revision] => self.revision(&decoded(revision)),
                ["", "tree", revision] => self.tree(request, &decoded(revision), ""),
                ["", "tree", revision, below] => self.tree(request, &decoded(revision), &decoded(below)),
                _ => Reply::new(404, ""),
            };
        }
        match path.strip_prefix("/datasets/o/n/resolve/").and_then(|rest| rest.split_once('/')) {
            Some((revision, file)) => self.resolve(request, &decoded(revision), &decoded(file), cdn),
            None => refusal(404, "RepoNotFound", "Repository not found"),
        }
    }

    fn commit_of(&self, revision: &str) -> Option<String> {
        let commit = self.refs.get(revision).cloned();
        commit.or_else(|| self.commits.contains_key(revision).then(|| revision.to_owned()))
    }

    fn revision(&self, revision: &str) -> Reply {
        match self.commit_of(revision) {
            Some(commit) => Reply::new(200, json!({"_id": "1", "id": "o/n", "sha": commit}).to_string()),
            None => refusal(404, "RevisionNotFound", &format!("Invalid rev id: {revision}")),
        }
    }

    fn tree(&self, request: &Request, revision: &str, below: &str) -> Reply {
        let Some(commit) = self.commit_of(revision) else {
            return refusal(404, "RevisionNotFound", &format!("Invalid rev id: {revision}"));
        };
        let parameters: BTreeMap<String, String> =
            url::form_urlencoded::parse(request.query().as_bytes()).into_owned().collect();
        let is_recursive =
            parameters.get("recursive").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let prefix = if below.is_empty() { String::new() } else { format!("{below}/") };
        let mut entries: BTreeMap<String, Value> = BTreeMap::new();
        let mut directories = BTreeSet::new();
        for (path, content) in self.commits[&commit].iter().filter(|(path, _)| path.starts_with(&prefix)) {
            let rest = &path[prefix.len()..];
            directories.extend(rest.match_indices('/').map(|(at, _)| format!("{prefix}{}", &rest[..at])));
            if is_recursive || !rest.contains('/') {
                entries.insert(path.clone(), self.entry(path, content));
            }
        }
        for directory in
            directories.into_iter().filter(|path| is_recursive || !path[prefix.len()..].contains('/'))
        {
            let oid = hash(directory.as_bytes(), 40);
            let entry = json!({"type": "directory", "oid": oid, "size": 0, "path": directory});
            entries.insert(directory, entry);
        }
        if entries.is_empty() && !below.is_empty() {
            return refusal(404, "EntryNotFound", &format!("{below} does not exist on \"{revision}\""));
        }
        let after = parameters.get("cursor").map_or("", String::as_str);
        let left: Vec<_> = entries.into_iter().filter(|(path, _)| path.as_str() > after).collect();
        let page: Vec<_> = left.iter().take(self.page).map(|(_, entry)| entry.clone()).collect();
        let reply = Reply::new(200, Value::from(page).to_string());
        if left.len() <= self.page {
            return reply;
        }
        let next = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(parameters.iter().filter(|(name, _)| *name != "cursor"))
            .append_pair("cursor", &left[self.page - 1].0)
            .finish();
        let host = if self.is_mirror { "huggingface.example" } else { request.header("host").unwrap() };
        reply.with("Link", format!("<http://{host}{}?{next}>; rel=\"next\"", request.path()))
    }

    fn is_large(&self, path: &str) -> bool {
        self.has_links && path.contains(".tar")
    }

    fn entry(&self, path: &str, content: &[u8]) -> Value {
        let mut entry =
            json!({"type": "file", "oid": hash(content, 40), "size": content.len(), "path": path});
        if self.is_large(path) {
            entry["lfs"] = json!({"oid": hash(content, 64), "size": content.len(), "pointerSize": 134});
        }
        entry
    }

    fn resolve(&mut self, request: &Request, revision: &str, path: &str, cdn: &str) -> Reply {
        let Some(commit) = self.commit_of(revision) else {
            return refusal(404, "RevisionNotFound", &format!("Invalid rev id: {revision}"));
        };
        let Some(content) = self.commits[&commit].get(path).cloned() else {
            return refusal(404, "EntryNotFound", "Entry not found").with("X-Repo-Commit", commit);
        };
        if self.is_gated {
            return refusal(
                403,
                "GatedRepo",
                "Access to dataset o/n is restricted. Visit its page to ask for it.",
            );
        }
        if !self.is_large(path) {
            let tag = format!("\"{}\"", hash(&content, 40));
            return Reply::object(request, &content, &tag).with("X-Repo-Commit", commit);
        }
        let hash = hash(&content, 64);
        self.next_link += 1;
        let link = format!("/{hash}?{}&X-Amz-Signature=s1gned-{}", self.link_end, self.next_link);
        self.links.insert(link.clone());
        Reply::new(302, format!("Found. Redirecting to {cdn}{link}"))
            .with("Location", format!("{cdn}{link}"))
            .with("Date", "Thu, 01 Jan 2026 00:00:00 GMT")
            .with("X-Repo-Commit", commit)
            .with("X-Linked-Size", content.len())
            .with("X-Linked-ETag", format!("\"{hash}\""))
            .with("Vary", "Origin, Accept")
    }

    /// The response of the server that the Hub's download links lead to.
    fn linked(&self, request: &Request) -> Reply {
        if !self.links.contains(&request.target) {
            let text = "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>";
            return Reply::new(403, text);
        }
        let hash = request.path().trim_start_matches('/');
        // This server has other ETags than the Hub.
        Reply::object(request, &self.content[hash], &format!("\"{}\"", &hash[..32]))
    }
}
