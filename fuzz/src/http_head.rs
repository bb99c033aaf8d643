//! Any bytes that a web server answers are a body or an error, in bounded time.

use shardstream::store::Store;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::Duration;

static ANSWER: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// The URL of an object at a server that answers each request with [`ANSWER`] and closes the connection.
static URL: LazyLock<String> = LazyLock::new(|| {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(mut socket) = socket else { continue };
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                match socket.read(&mut byte) {
                    Ok(1) => head.extend(byte),
                    _ => break,
                }
            }
            let _ = socket.write_all(&ANSWER.lock().expect("nothing panics with the lock"));
            let _ = socket.shutdown(Shutdown::Write);
        }
    });
    format!("http://{address}/a.tar")
});

static STORE: LazyLock<Store> = LazyLock::new(|| {
    // A server that asks to wait (`Retry-After`) is left alone by the requests after it, for as long as they
    // may retry.
    let store = Store::builder().retries(0).retry_timeout(Duration::from_millis(20));
    let store = store.stall_timeout(Duration::from_secs(5));
    store.build().expect("the options are sound")
});

/// With an even first byte the rest is the whole answer, else it is what follows the status line.
pub fn run(data: &[u8]) {
    let [how, rest @ ..] = data else { return };
    let status: &[u8] = if how % 2 == 0 { b"" } else { b"HTTP/1.1 206 Partial Content\r\n" };
    *ANSWER.lock().expect("nothing panics with the lock") = [status, rest].concat();
    for item in STORE.open(&URL).expect("the URL is sound") {
        match item {
            Ok(chunk) => assert!(!chunk.is_empty(), "chunks have bytes"),
            Err(error) => {
                assert_ne!(error.kind().name(), "source_panicked", "{error:?}");
                break;
            }
        }
    }
}
