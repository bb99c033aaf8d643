//! Servers and proxies that repeat the request in every part of a response that the crate may show.

use super::{SECRET, Seen};
use crate::support::Every;
use crate::support::child::child;
use crate::support::server::{Reply, Request, Server};
use shardstream::store::Store;
use std::fmt::Write as _;

const URL: &str = "SHARDSTREAM_TEST_URL";

/// The text of a request in several encodings.
fn sent(request: &Request) -> String {
    let mut text = format!("{} {}", request.method, request.target);
    for (name, value) in &request.headers {
        write!(text, "\n{name}: {value} ({value:?})").unwrap();
        for word in value.split([' ', ',', '=', ';', '/']) {
            write!(text, " {word}").unwrap();
        }
    }
    write!(text, "\n{}", String::from_utf8_lossy(&request.body)).unwrap();
    for pair in request.query().split('&') {
        let (_, value) = pair.split_once('=').unwrap_or_default();
        let decoded = percent_encoding::percent_decode_str(value).decode_utf8_lossy();
        write!(text, " {value} {decoded}").unwrap();
    }
    text
}

/// A response that contains the text of the request in its body (XML or JSON) or in a header. The crate
/// copies these parts of a response into its messages.
fn echo(request: &Request) -> Reply {
    let text = sent(request);
    let in_xml = text.replace('&', "&amp;").replace('<', "&lt;");
    // The values of secret headers. Each response repeats one of these values, in turn.
    let values: Vec<&str> = request
        .headers
        .iter()
        .filter(|(name, _)| name.contains("auth") || name.contains("token") || name == "cookie")
        .map(|(_, value)| value.rsplit([' ', '=']).find(|word| !word.is_empty()).unwrap_or_default())
        .collect();
    let value = values.get(request.number % values.len().max(1)).copied().unwrap_or("none");
    match request.path().trim_start_matches('/').rsplit('/').next().unwrap_or_default() {
        "json" => Reply::new(400, serde_json::json!({"error": text, "error_description": text}).to_string()),
        "denied" => {
            Reply::new(403, format!("<Error><Code>AccessDenied</Code><Message>{in_xml}</Message></Error>"))
                .with("x-amz-request-id", "1")
        }
        "region" => Reply::new(
            301,
            format!(
                "<Error><Code>PermanentRedirect</Code><Message>x</Message><Region>{value}</Region></Error>"
            ),
        ),
        "region-header" => Reply::new(301, "<Error><Code>PermanentRedirect</Code></Error>")
            .with("x-amz-bucket-region", value),
        "elsewhere" => Reply::new(302, "").with("Location", format!("x{value}://host/")),
        "host" => Reply::new(307, "")
            .with("Location", format!("http://{}.localhost:9/a", value.replace(['+', '_'], "-"))),
        "coded" => Reply::new(200, "x").with("Content-Encoding", format!("gzip, {value}")),
        "conflict" => {
            Reply::new(409, format!("<Error><Code>Conflict</Code><Message>{in_xml}</Message></Error>"))
        }
        "done" => Reply::new(200, format!("<Error><Code>Odd</Code><Message>{in_xml}</Message></Error>")),
        _ => Reply::new(400, format!("<Error><Code>No</Code><Message>{in_xml}</Message></Error>")),
    }
}

const NAMES: [&str; 9] =
    ["json", "denied", "region", "region-header", "elsewhere", "host", "coded", "conflict", "done"];

/// Reads, lists, writes and deletes below a URL, and collects all errors.
fn use_all(base: &str, query: &str, seen: &mut Seen) {
    let store = Store::builder().retries(0).build().unwrap();
    for name in NAMES {
        let url = format!("{base}/{name}{query}");
        // Each response of the server repeats a different header.
        for _ in 0..3 {
            seen.result(&url, store.open(&url).and_then(|body| body.read_all()).map(|bytes| bytes.len()));
        }
        seen.result(&url, store.stat(&url));
        seen.result(&url, store.list(&url));
        seen.result(&url, store.delete(&url));
        let written = store.create(&url).and_then(|mut object| {
            std::io::Write::write_all(&mut object, b"x")?;
            object.finish()
        });
        seen.result(&url, written);
        seen.debug(&url, &(store.requests(), &store));
    }
}

/// The secrets are a password of four characters, tokens without a user, and keys of one character.
#[test]
fn secrets_that_a_web_server_repeats_are_hidden() {
    let server = Server::start(echo);
    let host = server.url("").replace("http://", "");
    for (user, query, secrets) in [
        ("me:a4:z@", "", &["a4:z", "YTQ6e", "bWU6YTQ6e", "a4%3az"][..]),
        ("me:zq9x@", "?sig=Q", &["zq9x", "bWU6enE5eA", "sig=Q", " Q "]),
        (
            "zq9x@",
            "?X-Amz-Security-Token=ab%2Bcd%3D%3D&X-Amz-Signature=0aF9",
            &["zq9x", "ab+cd", "ab%2Bcd", "0aF9"],
        ),
        ("m%26e:z%22q%26x@", "?zq9y", &["z\"q&x", "z\\\"q&x", "z%22q%26x", "q&amp;x", "zq9y"]),
    ] {
        let mut seen = Seen::default();
        use_all(&format!("http://{user}{host}"), query, &mut seen);
        assert!(seen.0.len() > 150);
        assert!(seen.0.iter().any(|(_, text)| text.contains("[redacted]")));
        for (url, text) in &seen.0 {
            let lower = text.to_ascii_lowercase();
            let secret = secrets.iter().find(|secret| lower.contains(&secret.to_ascii_lowercase()));
            assert!(secret.is_none(), "{url} shows {secret:?}: {text}");
        }
    }
}

/// Runs in a child process: uses the URL in the environment variable, and prints all error messages and
/// `Debug` outputs.
#[test]
#[ignore = "run by other tests, with environment variables that they set"]
fn uses_in_child() {
    let mut seen = Seen::default();
    use_all(&std::env::var(URL).unwrap(), "", &mut seen);
    for (what, text) in &seen.0 {
        println!("{what}: {text}");
    }
}

/// The output of the child for a URL, in this environment.
fn child_says(url: &str, environment: &[(&str, &str)]) -> String {
    let mut command = child(module_path!(), "uses_in_child");
    for (name, _) in std::env::vars() {
        let of_cloud = ["AWS_", "GOOGLE_"].iter().any(|prefix| name.starts_with(prefix));
        if of_cloud || name.to_ascii_lowercase().ends_with("_proxy") {
            command.env_remove(name);
        }
    }
    let output = command.env(URL, url).env("HOME", "/nowhere").envs(environment.iter().copied()).output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    assert!(text.contains("[redacted]") && text.len() > 10_000, "{text}");
    text
}

#[test]
fn secrets_that_a_bucket_repeats_are_hidden() {
    let server = Server::start(echo);
    let url = server.url("");
    let text = child_says(
        "s3://bucket/a",
        &[
            ("AWS_ENDPOINT_URL", &url),
            ("AWS_ACCESS_KEY_ID", "AKIAS3CRET"),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
            ("AWS_SESSION_TOKEN", "IQoS3CRET/with+odd=="),
        ],
    );
    let requests = server.requests();
    assert!(requests.iter().any(|request| request.header("x-amz-security-token").is_some()));
    assert!(!text.to_ascii_lowercase().contains("s3cret"), "{text}");
    for signature in
        requests.iter().filter_map(|request| request.header("authorization")?.split_once("Signature="))
    {
        assert!(!text.contains(signature.1), "{} in {text}", signature.1);
    }
    // The crate's own hints are shown.
    assert!(text.contains("set AWS_REQUEST_PAYER=requester") && text.contains("set AWS_REGION="), "{text}");
}

#[test]
fn secrets_that_a_proxy_repeats_are_hidden() {
    let server = Server::start(echo);
    let host = server.url("").replace("http://", "");
    for proxy in [format!("http://me:zq9x@{host}"), format!("me:zq9x@{host}")] {
        let text = child_says("http://nowhere.invalid", &[("http_proxy", &proxy)]);
        let requests = server.requests();
        let sent = requests.last().unwrap().header("proxy-authorization");
        assert_eq!(sent, Some("Basic bWU6enE5eA=="));
        for secret in ["zq9x", "bWU6enE5eA", "YnE5eA"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}

/// The token of a machine's metadata server is not sent to another port.
#[test]
fn a_metadata_token_follows_no_redirect_to_another_port() {
    let other = Server::start(|_| Reply::new(404, ""));
    let elsewhere = other.url("");
    let metadata = Server::start(move |request| match &*request.method {
        "PUT" => Reply::new(200, "S3CRET-session"),
        _ => Reply::new(307, "").with("Location", format!("{elsewhere}{}", request.target)),
    });
    let (url, endpoint) = (metadata.url(""), other.url(""));
    let mut command = child(module_path!(), "uses_in_child");
    command.env(URL, "s3://bucket/a").env("HOME", "/nowhere");
    command.env("AWS_METADATA_ENDPOINT", url).env("AWS_ENDPOINT_URL", endpoint);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(text.contains("1 passed") && !text.contains("S3CRET"), "{text}");
    let token = |request: &Request| request.header("x-aws-ec2-metadata-token").map(str::to_owned);
    assert!(metadata.requests().iter().any(|request| token(request).as_deref() == Some("S3CRET-session")));
    assert!(
        !other.requests().is_empty() && other.requests().iter().every(|request| token(request).is_none())
    );
}
