//! Which requests are tried for how long.

use super::*;
use crate::store::runtime;
use std::io::{Read, Write};
use std::net::TcpListener;

fn client(settings: ClientSettings) -> CloudClient {
    let options = ClientOptions::new().with_allow_http(true);
    Connector::new("", &settings).client(&options).unwrap()
}

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
        let client = client(ClientSettings::default());
        let request = http::Request::get(uri).body(Bytes::new().into()).unwrap();
        let slot = ResponseSlot::default();
        assert!(client.get(request, &slot).await.is_err() && slot.take().unwrap().is_ok());
        Ok(client.contact.has_answered())
    });
    server.join().unwrap();
    assert!(answered.unwrap());
}

/// The reader of bytes gives up a response that does not come, and would not see the fault.
#[test]
fn credentials_are_tried_for_less_time_on_the_way_to_bytes() {
    let client = client(ClientSettings::default());
    let FetchLimits { stall, retry_timeout, .. } = client.limits;
    assert_eq!(client.retry_limit(), retry_timeout);
    runtime::run(async move {
        assert!(reading(async { client.retry_limit() }).await < stall / 2);
        Ok(())
    })
    .unwrap();
}

/// S3 sends spaces while it joins the parts of an upload.
#[test]
fn only_answers_to_reads_must_come_fast() {
    let options = ClientOptions::new().with_allow_http(true);
    let options = options.with_config(ClientConfigKey::ReadTimeout, "1s");
    let client = Connector::new("", &ClientSettings::default()).client(&options).unwrap();
    let slow = || {
        let spaces = futures::stream::iter(0..40).then(|_| async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Ok(Bytes::from_static(b" "))
        });
        spaces.boxed()
    };
    runtime::run(async move {
        assert_eq!(client.whole(&Method::POST, slow()).await.unwrap().len(), 40);
        assert!(client.whole(&Method::GET, slow()).await.is_err());
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_slow_line_has_time_to_send_a_part() {
    let client = client(ClientSettings::default());
    assert_eq!(client.response_timeout(0), READ_TIMEOUT);
    assert_eq!(client.response_timeout(16 << 20), READ_TIMEOUT + Duration::from_secs(256));
}
