//! The parts of a URL that are secret.

use std::ops::Range;

fn is_scheme_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')
}

/// The start of the scheme whose `:` is at byte `colon`.
pub(super) fn scheme_start(text: &str, colon: usize) -> usize {
    text[..colon].trim_end_matches(is_scheme_char).len()
}

/// The scheme of a URL in lower case, and the position after the slashes that follow the scheme. A known
/// scheme is recognised even without slashes, so that the secrets of a misspelt URL are hidden too.
fn scheme(url: &str) -> Option<(String, usize)> {
    let colon = url.find(':').filter(|colon| *colon > 1 && scheme_start(url, *colon) == 0)?;
    let scheme = url[..colon].to_ascii_lowercase();
    let rest = &url[colon + 1..];
    let slashes = rest.len() - rest.trim_start_matches(['/', '\\']).len();
    let is_known =
        matches!(&*scheme, "http" | "https" | "gs" | "gcs" | "s3" | "s3a" | "az" | "abfs" | "abfss");
    let skipped = match &*scheme {
        "http" | "https" => slashes,
        // A path without a host.
        "file" if slashes < 2 => return None,
        _ if slashes == 0 && !is_known => return None,
        _ => slashes.min(2),
    };
    url.starts_with(|c: char| c.is_ascii_alphabetic()).then_some((scheme, colon + 1 + skipped))
}

/// The secrets of a URL, or of a pattern of URLs: byte ranges in order.
pub(super) fn secrets(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start = 0;
    for (at, colons) in text.match_indices("::") {
        let next = at + colons.len();
        // Before a scheme or a command, `::` separates two URLs of a pattern. Elsewhere, `::` is part of an
        // address or a name.
        if at >= start && (scheme(&text[next..]).is_some() || is_command(&text[next..])) {
            found
                .extend(secrets_of_one(&text[start..at]).map(|range| range.start + start..range.end + start));
            start = next;
        }
    }
    found.extend(secrets_of_one(&text[start..]).map(|range| range.start + start..range.end + start));
    found
}

/// The secrets of one URL, or of a pattern without `::`: the secret before the path, and the secret after the
/// path.
fn secrets_of_one(url: &str) -> impl Iterator<Item = Range<usize>> {
    let [user, query] = if is_command(url) {
        [None, Some(PIPE.len()..url.len())]
    } else if let Some((scheme, start)) = scheme(url) {
        secrets_after(url, &scheme, start)
    } else {
        secrets_without_scheme(url)
    };
    user.into_iter().chain(query)
}

/// The prefix of a command.
const PIPE: &str = "pipe:";

fn is_command(url: &str) -> bool {
    url.get(..PIPE.len()).is_some_and(|start| start.eq_ignore_ascii_case(PIPE))
}

/// The secrets of a URL with this scheme. The authority of the URL begins at byte `start`.
fn secrets_after(url: &str, scheme: &str, start: usize) -> [Option<Range<usize>>; 2] {
    let all = Some(start..url.len());
    let rest = &url[start..];
    let names = matches!(scheme, "file" | "gs" | "s3" | "s3a" | "hf");
    let ends: &[char] = if names { &['/'] } else { &['/', '\\', '?', '#'] };
    let (authority, path) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
    let (user, host) =
        authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let port = odd_port(host, names);
    // The password contains a slash, or the braces of a pattern contain several authorities.
    if path.contains('@') && (port.is_some() || authority.contains(['{', '}', '$', '\\'])) {
        return [None, all];
    }
    // In these schemes, the user information is the name of a container, which is not secret.
    let container = matches!(scheme, "az" | "azure" | "adl" | "abfs" | "abfss");
    let user = user.filter(|user| !container || user.contains(':')).map(|user| start..start + user.len());
    // An invalid port may be a password: then the authority has no host, and is `user:password`.
    let host_at = start + authority.len() - host.len();
    let port = port.map(|at| host_at + at..start + authority.len());
    let query = path.find(['?', '#']).filter(|_| !names);
    let path_at = start + authority.len();
    let shown_path = &path[..query.unwrap_or(path.len())];
    // The path contains another URL, with user information.
    let inner =
        shown_path.find("://").filter(|at| !names && path[*at..].contains('@')).map(|at| at + "://".len());
    let behind = inner.or(query.map(|at| at + 1)).map(|at| path_at + at..url.len());
    match (user, port, behind) {
        (None, port, behind) => [port, behind],
        (user, None, behind) => [user, behind],
        (Some(user), Some(_), _) => [None, Some(user.start..url.len())],
    }
}

/// The start of the port in `host`, if it is not a valid port and may therefore be a password. A bucket has
/// no port, so any text after a `:` may be a password.
fn odd_port(host: &str, is_bucket: bool) -> Option<usize> {
    let address = host.rfind(']').map_or(0, |end| end + 1);
    let port = address + host[address..].find(':')? + 1;
    (is_bucket || !host[port..].bytes().all(|byte| byte.is_ascii_digit())).then_some(port)
}

/// The secrets of a text that does not begin with a scheme: a path, or a pattern whose scheme is in a
/// variable or in braces.
fn secrets_without_scheme(text: &str) -> [Option<Range<usize>>; 2] {
    let inner = text.find("://").map(|at| at + "://".len());
    let first = text.split('/').next().unwrap_or_default();
    if inner.is_none() && !first.contains("${") {
        return [None, (first.contains('{') && text.contains(PIPE)).then_some(0..text.len())];
    }
    if text.contains(PIPE) {
        return [None, Some(0..text.len())];
    }
    let query = text.find(['?', '#']);
    let start = inner.filter(|at| query.is_none_or(|query| *at < query)).unwrap_or(0);
    let start = if text[..start].contains('@') { 0 } else { start };
    let (before, behind) = text.split_at(query.unwrap_or(text.len()));
    if behind.contains('@') {
        return [None, Some(start..text.len())];
    }
    let user = before.rfind('@').map(|at| start..at).filter(|user| !user.is_empty());
    [user, query.map(|query| query + 1..text.len())]
}
