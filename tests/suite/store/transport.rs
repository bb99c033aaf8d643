//! HTTP on real connections: reuse, trust, redirects, proxies and TLS.
//!
//! Tests with environment variables run in a process of their own, as the environment of a running process
//! cannot be changed safely.

use crate::store::conformance::small_ranges;
use crate::support::Every;
use crate::support::child::child;
use crate::support::noise;
use crate::support::server::{Framing, Reply, Request, Server};
use shardstream::ErrorKind;
use shardstream::store::rustls::pki_types::pem::PemObject;
use shardstream::store::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use shardstream::store::rustls::{ServerConfig, ServerConnection, StreamOwned};
use shardstream::store::{Store, StoreBuilder, rustls};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(super) const TAG: &str = "\"v1\"";
const URL: &str = "SHARDSTREAM_TEST_URL";

/// A store that makes one request at a time, so that one connection is enough.
pub(super) fn one_by_one() -> StoreBuilder {
    small_ranges().ranges_in_flight(1)
}

pub(super) fn honest(request: &Request) -> Reply {
    Reply::object(request, &noise(4500), TAG)
}

/// Reads an object of 4500 bytes from a server that follows `script`, without retries. Returns the requests.
pub(super) fn requests_of(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Vec<Request> {
    let server = Server::start(script);
    let store = one_by_one().retries(0).build().unwrap();
    let read = store.open(&server.url("/a.tar")).unwrap().read_all().unwrap();
    assert!(read == noise(4500));
    server.requests()
}

pub(super) fn connections(requests: &[Request]) -> usize {
    requests.iter().map(|request| request.connection).collect::<HashSet<_>>().len()
}

#[test]
fn connections_are_reused() {
    for framing in [Framing::Length, Framing::Chunked] {
        let requests = requests_of(move |request| honest(request).framed(framing));
        // The first request names no version and has a connection of its own. On a busy machine, a request
        // may be made before the previous connection is back in the pool.
        let connections = connections(&requests);
        assert!(requests.len() == 5 && (2..=3).contains(&connections), "{connections}");
    }
    let requests = requests_of(|request| honest(request).framed(Framing::Close));
    assert_eq!(connections(&requests), 5);
}

#[test]
fn a_connection_closed_while_idle_is_no_fault() {
    // The server closes the connection after each response, without a `Connection: close` header.
    let requests = requests_of(|request| honest(request).then_closed());
    assert_eq!((requests.len(), connections(&requests)), (5, 5));
    // The server closes the connection when the next request has arrived.
    let requests = requests_of(|request| match request.request_on_connection {
        0 => honest(request),
        _ => Reply::raw("").then_closed(),
    });
    assert_eq!((requests.len(), connections(&requests)), (8, 5));
}

/// Reads an object from a server that answers each request with exactly these bytes and then closes the
/// connection. Returns the result and the number of requests. There are two retries.
fn read_raw(response: &[u8]) -> (shardstream::Result<Vec<u8>>, usize) {
    let response = response.to_vec();
    let server = Server::start(move |_| Reply::raw(response.clone()).then_closed());
    let store = Store::builder().retries(2).retry_pause(Duration::from_millis(1)).build().unwrap();
    let read = store.open(&server.url("/a.tar")).and_then(|body| body.read_all());
    (read.map(|bytes| bytes.to_vec()), server.requests().len())
}

/// If two HTTP readers could understand a response differently, it is refused without a retry.
#[test]
fn what_could_be_read_in_two_ways_is_not_read() {
    let chunked = "5\r\nhello\r\n0\r\n\r\n";
    for (head, body) in [
        ("Content-Length: 5\r\nContent-Length: 6", "hello"),
        ("Content-Length: 5, 5", "hello"),
        ("Content-Length: +5", "hello"),
        ("Content-Length: 0x5", "hello"),
        ("Content-Length: ", "hello"),
        ("Content-Length: 99999999999999999999", "hello"),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", chunked),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", chunked),
        ("Transfer-Encoding: gzip, chunked", chunked),
        ("Transfer-Encoding: identity", "hello"),
        ("Transfer-Encoding: gzip", "hello"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", chunked),
        ("A: b\r\n folded", "hello"),
        ("A : b", "hello"),
        ("no header", "hello"),
    ] {
        let (read, requests) = read_raw(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}").as_bytes());
        let error = read.expect_err(head);
        assert!(matches!(error.kind(), ErrorKind::Store(_)), "{head}: {error:?}");
        assert_eq!(requests, 1, "{head}: {error:?}");
    }
    for response in [
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 101 Switching\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "This is not HTTP.\r\n\r\n",
    ] {
        let (read, requests) = read_raw(response.as_bytes());
        let error = read.expect_err(response);
        assert!(matches!(error.kind(), ErrorKind::Store(_)), "{response:?}: {error:?}");
        assert_eq!(requests, 1, "{response:?}: {error:?}");
    }
}

/// A server of another protocol, which sends a greeting before any request.
#[test]
fn a_server_that_speaks_first_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/a.tar", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let _ = client.write_all(b"220 mail.example.com\r\n\r\n");
            std::thread::spawn(move || client.read(&mut [0; 4096]));
        }
    });
    let error = failure_of(&url);
    assert!(matches!(error.kind(), ErrorKind::Store(_) | ErrorKind::Io(_)), "{error:?}");
}

#[test]
fn a_body_that_ends_early_returns_its_bytes_and_then_an_error() {
    for response in [
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello0\r\n\r\n",
    ] {
        let (read, requests) = read_raw(response.as_bytes());
        assert!(matches!(read.unwrap_err().kind(), ErrorKind::Io(_)), "{response:?}");
        assert_eq!(requests, 3, "{response:?}");
    }
}

#[test]
fn response_heads_are_limited_in_size() {
    let long = |bytes: usize| {
        let filling = "a".repeat(bytes);
        format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nA: {filling}\r\n\r\nx").into_bytes()
    };
    let many = |lines: usize| {
        format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n{}\r\nx", "A: b\r\n".repeat(lines)).into_bytes()
    };
    for allowed in [long(60_000), many(99)] {
        assert_eq!(read_raw(&allowed).0.unwrap(), b"x");
    }
    for endless in [long(1 << 20), many(100)] {
        let (read, requests) = read_raw(&endless);
        let error = read.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Store(_)) && requests == 1, "{error:?}");
    }
}

#[test]
fn interim_responses_are_ignored() {
    let requests = requests_of(|request| {
        let content = noise(4500);
        let interim = "HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", content.len());
        assert_eq!(request.number, 0);
        Reply::raw([interim.as_bytes(), head.as_bytes(), &content].concat())
    });
    assert_eq!(requests.len(), 1);
}

#[test]
fn redirects_send_credentials_to_the_same_host_only() {
    let target = Server::start(honest);
    let elsewhere = target.url("/b.tar");
    let front = Server::start(move |request| match request.path() {
        "/a.tar" => Reply::new(307, "elsewhere").with("Location", &elsewhere),
        "/same.tar" => Reply::new(301, "").with("Location", "moved.tar"),
        _ => honest(request),
    });
    let store = one_by_one().build().unwrap();
    let url = |path: &str| front.url(path).replace("http://", "http://me:s3cret@");
    for path in ["/a.tar", "/same.tar"] {
        assert!(store.open(&url(path)).unwrap().read_all().unwrap() == noise(4500));
    }
    assert!(front.requests().iter().every(|request| request.header("authorization").is_some()));
    assert!(target.requests().iter().every(|request| request.header("authorization").is_none()));
    assert!(front.requests().iter().any(|request| request.path() == "/moved.tar"));
    assert!(target.requests().iter().every(|request| request.range().is_some()));
    // Each server has one connection that is reused. In addition, each first request and each redirected
    // request has a connection of its own.
    assert_eq!((connections(&front.requests()), connections(&target.requests())), (4, 2));
}

#[test]
fn a_busy_server_says_how_long_to_wait() {
    let wait = |status, value: &'static str| {
        let server = Server::start(move |_| Reply::new(status, "later").with("Retry-After", value));
        let store = Store::builder().retries(0).build().unwrap();
        match store.open(&server.url("/a.tar")).unwrap().read_all().unwrap_err().kind() {
            ErrorKind::Busy { retry_after, .. } => *retry_after,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(wait(429, "7"), Some(Duration::from_secs(7)));
    assert_eq!(wait(503, "Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
    assert!(wait(503, "Fri, 31 Dec 2999 23:59:59 GMT").unwrap() > Duration::from_secs(1 << 32));
    assert_eq!(wait(503, "when it is done"), None);
}

/// Runs in a child process: reads the URL in the environment variable.
#[test]
#[ignore = "run by other tests, with environment variables that they set"]
fn reads_in_child() {
    let url = std::env::var(URL).unwrap();
    let store = one_by_one().retries(0).build().unwrap();
    match store.open(&url).and_then(|body| body.read_all()) {
        Ok(bytes) => println!("read it {}", if bytes == noise(4500) { "right" } else { "wrong" }),
        Err(error) => println!("failed: {error:#}"),
    }
}

/// The output of the child that reads `url` in this environment.
fn child_says(url: &str, environment: &[(&str, &str)]) -> String {
    let mut command = child(module_path!(), "reads_in_child");
    for proxy in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
        command.env_remove(proxy).env_remove(proxy.to_ascii_lowercase());
    }
    let output = command.env(URL, url).envs(environment.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    text
}

#[test]
fn proxies_of_the_environment_are_used() {
    let proxy = Server::start(honest);
    let text = child_says("http://shards.invalid/a.tar?b=c", &[("http_proxy", &proxy.url(""))]);
    assert!(text.contains("read it right"), "{text}");
    assert_eq!(proxy.requests()[0].target, "http://shards.invalid/a.tar?b=c");
}

/// The proxy also receives the redirected request, which must not contain any secret.
#[test]
fn a_redirect_through_a_proxy_reveals_no_secret() {
    let proxy = Server::start(|request| match request.target.as_str() {
        "http://shards.invalid/a.tar?sig=s3cret" => {
            Reply::new(307, "").with("Location", "http://me:s3cret@other.invalid/b.tar")
        }
        "http://other.invalid/b.tar" => honest(request),
        _ => Reply::new(404, ""),
    });
    let text = child_says(
        "http://you:s3cret@shards.invalid/a.tar?sig=s3cret",
        &[("http_proxy", &proxy.url("")), ("https_proxy", &proxy.url(""))],
    );
    assert!(text.contains("read it right"), "{text}");
    let requests = proxy.requests();
    assert!(requests.iter().any(|request| request.header("authorization").is_some()));
    for request in requests.iter().filter(|request| request.target.contains("other.invalid")) {
        assert!(!format!("{request:?}").contains("s3cret"), "{request:?}");
        assert_eq!((request.header("referer"), request.header("authorization")), (None, None));
        assert!(request.range().is_some());
    }
}

#[test]
#[cfg(feature = "gcs")]
fn expired_credentials_are_refreshed_once() {
    // The server refuses the first `expired` tokens that it issues.
    for (expired, expected) in [(1, "read it right"), (9, "access denied")] {
        let tokens = AtomicUsize::new(0);
        let server = Server::start(move |request| {
            if request.path().ends_with("/token") {
                let token = tokens.fetch_add(1, Ordering::SeqCst);
                return Reply::new(200, format!("{{\"access_token\": \"t{token}\", \"expires_in\": 3600}}"));
            }
            let token = request.header("authorization").and_then(|text| text.strip_prefix("Bearer t"));
            match token.unwrap().parse::<usize>().unwrap() {
                token if token < expired => {
                    Reply::new(401, "<Error><Code>AuthenticationRequired</Code></Error>")
                }
                _ => honest(request),
            }
        });
        let host = server.url("").replace("http://", "");
        let text = child_says(
            "gs://bucket/a.tar",
            &[("GOOGLE_BASE_URL", &server.url("")), ("GCE_METADATA_HOST", &host), ("HOME", "/nowhere")],
        );
        assert!(text.contains(expected), "{text}");
        let asked = server.requests().iter().filter(|request| request.path().starts_with("/bucket/")).count();
        assert_eq!(asked, if expired == 1 { 6 } else { 2 }, "{text}");
    }
}

fn openssl(directory: &std::path::Path, arguments: &str) {
    let output = Command::new("openssl").args(arguments.split(' ')).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A certificate for this machine, the directory with its files, and the path of a file that lists it as
/// trusted.
fn certified() -> (Arc<ServerConfig>, tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
        .unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for arguments in [
        &*format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=ours"),
        &*format!("req {key} -keyout key.pem -out request.pem -subj /CN=localhost"),
        "x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out \
         cert.pem",
    ] {
        openssl(directory.path(), arguments);
    }
    let certificate = CertificateDer::from_pem_file(path("cert.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(path("key.pem")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    let trusted = path("ca.pem").to_str().unwrap().to_owned();
    (Arc::new(config), directory, trusted)
}

/// A server that speaks TLS.
fn secure(config: Arc<ServerConfig>, script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Server {
    let wrap = move |socket| StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), socket);
    Server::over(Arc::new(wrap), script)
}

/// Starts a proxy that leads every tunnel to this port of the local machine. Returns the proxy's URL.
fn tunnel_to(port: u16) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            std::thread::spawn(move || {
                let (mut client, server) = (client?, TcpStream::connect(("127.0.0.1", port))?);
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    client.read_exact(&mut byte)?;
                    head.extend(byte);
                }
                assert!(head.starts_with(b"CONNECT "));
                client.write_all(b"HTTP/1.1 200 Tunnel\r\n\r\n")?;
                let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                let (mut from, mut to) = (server, client);
                std::io::copy(&mut from, &mut to).map(drop)?;
                to.shutdown(std::net::Shutdown::Both)
            });
        }
    });
    format!("http://{address}")
}

#[test]
#[ignore = "needs openssl: see CONTRIBUTING.md"]
fn redirects_from_https_to_http_are_refused() {
    let (config, _directory, trusted) = certified();
    let plain = Server::start(honest);
    let location = plain.url("/b.tar");
    let server = secure(config, move |request| match request.path() {
        "/a.tar" => Reply::new(302, "").with("Location", &location),
        _ => honest(request),
    });
    let proxy = tunnel_to(server.port());
    let trust = ("SSL_CERT_FILE", trusted.as_str());
    for environment in [&[trust][..], &[trust, ("https_proxy", &proxy)]] {
        let url = |path: &str| format!("https://localhost:{}{path}", server.port());
        let text = child_says(&url("/direct.tar"), environment);
        assert!(text.contains("read it right"), "{environment:?}: {text}");
        let text = child_says(&url("/a.tar"), environment);
        assert!(text.contains("from https to http is not followed"), "{environment:?}: {text}");
    }
    assert_eq!(plain.requests().len(), 0);
}

#[test]
#[ignore = "needs openssl: see CONTRIBUTING.md"]
fn tls_trusts_only_the_certificates_of_the_environment() {
    let (config, _directory, trusted) = certified();
    let server = secure(config, honest);
    let environment = [("SSL_CERT_FILE", trusted.as_str())];
    for (number, host) in ["localhost", "127.0.0.1"].into_iter().enumerate() {
        let url = format!("https://{host}:{}/a.tar", server.port());
        let text = child_says(&url, &environment);
        assert!(text.contains("read it right"), "{text}");
        let requests = server.requests();
        assert_eq!((requests.len(), connections(&requests)), (5 * (number + 1), 2 * (number + 1)));
        assert!(
            requests
                .iter()
                .every(|request| request.header("host").unwrap().ends_with(&server.port().to_string()))
        );
        // Without `SSL_CERT_FILE`, the server's certificate is not trusted.
        let text = child_says(&url, &[]);
        assert!(text.contains("failed") && text.contains("certificate"), "{text}");
        // If `SSL_CERT_FILE` names a file that does not exist or has no certificates, the server's
        // certificate is not trusted either.
        let key = trusted.replace("ca.pem", "names");
        for (file, why) in [("/nowhere.pem", "which cannot be read"), (&*key, "which has no certificate")] {
            let text = child_says(&url, &[("SSL_CERT_FILE", file)]);
            assert!(text.contains(&format!("SSL_CERT_FILE={file}, {why}")), "{text}");
        }
    }
    let text = child_says(&format!("https://127.0.0.2:{}/a.tar", server.port()), &environment);
    assert!(text.contains("failed"), "{text}");
    assert_eq!(server.requests().len(), 10);
}

/// Starts a server that ends each handshake with this TLS alert. Returns its port and its number of
/// connections.
fn alerting(alert: u8) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, count) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let connections = Arc::clone(&count);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            connections.fetch_add(1, Ordering::SeqCst);
            let _ = client.read(&mut [0; 4096]);
            // A fatal alert in TLS 1.2 and 1.3, before keys are exchanged.
            let _ = client.write_all(&[21, 3, 3, 0, 2, 2, alert]);
            let _ = client.read(&mut [0; 4096]);
        }
    });
    (port, count)
}

#[test]
fn a_failed_tls_handshake_is_not_retried() {
    const HANDSHAKE_FAILURE: u8 = 40;
    const INTERNAL_ERROR: u8 = 80;
    for (alert, tries) in [(HANDSHAKE_FAILURE, 1), (INTERNAL_ERROR, 3)] {
        let (port, count) = alerting(alert);
        let error = failure_of(&format!("https://127.0.0.1:{port}/a.tar"));
        assert_eq!(matches!(error.kind(), ErrorKind::Store(_)), tries == 1, "{error:?}");
        assert_eq!(count.load(Ordering::SeqCst), tries, "{error:?}");
    }
}

/// The error of reading `url`, with two retries.
fn failure_of(url: &str) -> shardstream::Error {
    let store = Store::builder().retries(2).retry_pause(Duration::from_millis(1));
    store.build().unwrap().open(url).unwrap().read_all().unwrap_err()
}

#[test]
#[ignore = "needs openssl: see CONTRIBUTING.md"]
fn an_unknown_issuer_is_tried_once() {
    let (config, _directory, _) = certified();
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&connections);
    let wrap = move |socket| {
        counter.fetch_add(1, Ordering::SeqCst);
        StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), socket)
    };
    let server = Server::over(Arc::new(wrap), honest);
    let error = failure_of(&format!("https://127.0.0.1:{}/a.tar", server.port()));
    assert!(matches!(error.kind(), ErrorKind::Store(_)), "{error:?}");
    assert!(format!("{error:#}").contains("certificate"), "{error:#}");
    assert_eq!((connections.load(Ordering::SeqCst), error.attempts()), (1, None));
}

/// Starts a SOCKS5 proxy that connects every client to this port of the local machine. Returns the proxy's
/// address.
fn socks_to(port: u16) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            std::thread::spawn(move || {
                let (mut client, server) = (client?, TcpStream::connect(("127.0.0.1", port))?);
                // Reads the version, the number of methods and the methods; then the request, whose address
                // is an IPv4 address or a name.
                let mut request = [0; 256];
                client.read_exact(&mut request[..2])?;
                let methods = usize::from(request[1]);
                client.read_exact(&mut request[..methods])?;
                client.write_all(&[5, 0])?;
                client.read_exact(&mut request[..5])?;
                let rest = if request[3] == 1 { 5 } else { usize::from(request[4]) + 2 };
                client.read_exact(&mut request[..rest])?;
                client.write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 0])?;
                let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                let (mut from, mut to) = (server, client);
                std::io::copy(&mut from, &mut to).map(drop)?;
                to.shutdown(std::net::Shutdown::Both)
            });
        }
    });
    address.to_string()
}

#[test]
fn a_socks_proxy_of_the_environment_is_used() {
    let server = Server::start(honest);
    let proxy = socks_to(server.port());
    // With `socks5h`, the proxy resolves the host's name.
    for (scheme, url) in [("socks5", "http://127.0.0.1:9/a.tar"), ("socks5h", "http://shards.invalid/a.tar")]
    {
        let text = child_says(url, &[("ALL_PROXY", &*format!("{scheme}://{proxy}"))]);
        assert!(text.contains("read it right"), "{scheme}: {text}");
    }
}

#[test]
fn an_invalid_proxy_is_an_error_that_names_its_variable() {
    for (name, value) in [
        ("ALL_PROXY", "ftp://proxy"),
        ("http_proxy", "http://"),
        ("HTTPS_PROXY", "proxy:99999"),
        ("HTTP_PROXY", "http://me:s3cret@pro xy"),
    ] {
        let text = child_says("http://shards.invalid/a.tar", &[(name, value)]);
        assert!(text.contains("failed: ") && text.contains(name), "{text}");
        assert!(text.contains("socks5h://") && !text.contains("s3cret"), "{text}");
    }
}

/// No server listens at the proxy's address.
#[test]
fn an_unreachable_proxy_is_a_connection_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let text = child_says("http://shards.invalid/a.tar", &[("http_proxy", &url)]);
    assert!(text.contains("failed: ") && text.contains("onnection refused"), "{text}");
    assert!(text.contains("http_proxy"), "{text}");
    let server = Server::start(honest);
    let text = child_says(&server.url("/a.tar"), &[("http_proxy", &url), ("NO_PROXY", "127.0.0.1")]);
    assert!(text.contains("read it right"), "{text}");
}
