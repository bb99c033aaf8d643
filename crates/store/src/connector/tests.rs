//! What a client learns from requests for bytes.

use super::*;
use crate::runtime;
use std::io::{Read, Write};
use std::net::TcpListener;

/// Listings and uploads of such a bucket are tried as long as those of any that has answered.
#[test]
fn a_bucket_that_is_read_has_answered() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("http://{}/a.tar", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let _ = socket.read(&mut [0; 1000]).unwrap();
        socket.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").unwrap();
    });
    let answered = runtime::run(async move {
        let options = ClientOptions::new().with_allow_http(true);
        let client = Connector::new("", &FetchLimits::default()).client(&options).unwrap();
        let request = http::Request::get(uri).body(Bytes::new().into()).unwrap();
        let slot = ResponseSlot::default();
        assert!(client.get(request, &slot).await.is_err() && slot.take().unwrap().is_ok());
        Ok(client.policy.contact.has_answered())
    });
    server.join().unwrap();
    assert!(answered.unwrap());
}
