//! What a client learns from requests for bytes, and what this crate relies on inside `object_store`.

use super::*;
use crate::runtime;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::AtomicUsize;

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
        assert_eq!(client.get(request).await?.status, 404);
        Ok(client.policy.contact.has_answered())
    });
    server.join().unwrap();
    assert!(answered.unwrap());
}

/// A connector that numbers its clients. They note each request and return an error.
#[derive(Debug, Default)]
struct Recorder {
    clients: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

#[derive(Debug, PartialEq)]
struct RecordedRequest {
    client: usize,
    method: Method,
    is_for_bytes: bool,
}

#[derive(Debug)]
struct RecordingClient {
    number: usize,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl HttpConnector for Recorder {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let number = self.clients.fetch_add(1, Ordering::SeqCst);
        Ok(HttpClient::new(RecordingClient { number, requests: Arc::clone(&self.requests) }))
    }
}

impl HttpService for RecordingClient {
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> BoxFuture<'b, Result<HttpResponse, HttpError>>
    where
        'a: 'b,
        Self: 'b,
    {
        let is_for_bytes = request.extensions().get::<BytesRequest>().is_some();
        let method = request.method().clone();
        self.requests.lock().unwrap().push(RecordedRequest { client: self.number, method, is_for_bytes });
        let error = ErrorKind::Config("on its way".into()).into();
        futures::future::ready(Err(carry(Carried::Error(error)))).boxed()
    }
}

/// `object_store` promises none of this: `Cargo.toml` pins its version.
///
/// - It asks for the client of the bucket last, behind those of servers of credentials.
/// - The extensions of `GetOptions` are in the request.
/// - A request that fails with `HttpErrorKind::Unknown` is not retried, and the error is a cause of its own.
#[test]
fn object_store_passes_on_what_it_is_given() {
    use object_store::{ObjectStore, path::Path};
    type Build = fn(Recorder) -> Arc<dyn ObjectStore>;

    let clouds: &[Build] = &[
        #[cfg(feature = "gcs")]
        |recorder| {
            let builder = object_store::gcp::GoogleCloudStorageBuilder::new().with_bucket_name("bucket");
            Arc::new(builder.with_skip_signature(true).with_http_connector(recorder).build().unwrap())
        },
        #[cfg(feature = "s3")]
        |recorder| {
            let builder = object_store::aws::AmazonS3Builder::new().with_bucket_name("bucket");
            Arc::new(builder.with_skip_signature(true).with_http_connector(recorder).build().unwrap())
        },
        #[cfg(feature = "azure")]
        |recorder| {
            let builder = object_store::azure::MicrosoftAzureBuilder::new().with_account("account");
            let builder = builder.with_container_name("bucket").with_skip_signature(true);
            Arc::new(builder.with_http_connector(recorder).build().unwrap())
        },
    ];
    for build in clouds {
        let recorder = Recorder::default();
        let (clients, requests) = (Arc::clone(&recorder.clients), Arc::clone(&recorder.requests));
        let store = build(recorder);
        let mut options = GetOptions::default();
        mark_bytes_request(&mut options);
        let error = runtime::run(async move {
            Ok(store.get_opts(&Path::from("a.tar"), options).await.map(drop).unwrap_err())
        });
        let error = carried_error(&error.unwrap()).unwrap();
        assert!(matches!(error.kind(), ErrorKind::Config(text) if text == "on its way"), "{error:?}");
        let client = clients.load(Ordering::SeqCst) - 1;
        assert!(client > 0, "there is a client for credentials too");
        let sent = RecordedRequest { client, method: Method::GET, is_for_bytes: true };
        assert_eq!(*requests.lock().unwrap(), [sent]);
    }
}
