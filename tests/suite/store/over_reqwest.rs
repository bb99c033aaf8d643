//! Behaviour shared by both HTTP clients: suites that run over the native client run once more,
//! over `reqwest`.
//!
//! These differ, and are tested elsewhere or here: which connections are reused and what happens to bytes
//! behind a response (`transport`), which malformed responses are read, and the texts of some errors.

use crate::store::{TRANSPORT, builder};
use crate::support::server::{Reply, Server};
use shardstream::ErrorKind;
use shardstream::store::Transport;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs the tests of a module over `reqwest`, in a child process, except those named in `native_only`.
fn over_reqwest(module: &str, native_only: &[&str]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(TRANSPORT, Transport::Reqwest.to_string()).arg(format!("store::{module}::"));
    for name in native_only {
        command.args(["--skip", name]);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && !text.contains(" 0 passed"), "{text}");
}

#[test]
fn web_servers_over_reqwest() {
    // The text of its error is that of the native client.
    over_reqwest("http", &["refused_connections_end_in_an_error_with_the_number_of_tries"]);
}

#[test]
fn faults_over_reqwest() {
    over_reqwest("faults", &[]);
}

#[test]
#[cfg(all(feature = "gcs", feature = "s3"))]
fn clouds_over_reqwest() {
    over_reqwest("clouds", &[]);
}

#[test]
#[cfg(any(feature = "gcs", feature = "s3", feature = "azure"))]
fn emulators_over_reqwest() {
    over_reqwest("emulators", &[]);
}

/// An ambiguous response, which another reader might end elsewhere, shows that the choice reaches the client.
#[test]
fn only_reqwest_reads_an_ambiguous_response() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n";
    let server = Server::start(move |_| Reply::raw(format!("{head}5\r\nhello\r\n0\r\n\r\n")));
    let read = |transport| {
        let store = builder().transport(transport).retries(0).build().unwrap();
        store.open(&server.url("/a.tar")).unwrap().read_all()
    };
    assert_eq!(read(Transport::Reqwest).unwrap(), "hello");
    let error = read(Transport::Native).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Store(_)), "{error:?}");
}

#[test]
fn a_response_that_cannot_be_parsed_is_final_with_both_clients() {
    for transport in [Transport::Native, Transport::Reqwest] {
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        let server = Server::start(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            Reply::raw("This is not HTTP.\r\n\r\n")
        });
        let store = builder().transport(transport).retries(3).build().unwrap();
        let error = store.open(&server.url("/a.tar")).and_then(|body| body.read_all()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Store(_)), "{transport}: {error:?}");
        assert_eq!(requests.load(Ordering::SeqCst), 1, "{transport}: {error:?}");
    }
}
