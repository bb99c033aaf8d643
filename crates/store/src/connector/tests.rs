//! Tests how a client handles requests for bytes, and the behaviour of `object_store` on which this crate
//! depends.

use super::*;
use crate::runtime;
use object_store::ObjectStore;
use object_store::path::Path;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Mutex;

/// A response to a read shows that the bucket's server can be reached. The client's listings and uploads are
/// then retried for the usual time.
#[test]
fn a_response_to_a_read_counts_as_contact() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("http://{}/a.tar", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let _ = socket.read(&mut [0; 1000]).unwrap();
        socket.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").unwrap();
    });
    let responded = runtime::run(async move {
        let options = ClientOptions::new().with_allow_http(true);
        let client = Connector::for_bucket("", &FetchLimits::default()).client(&options).unwrap();
        let request = http::Request::get(uri).body(Bytes::new().into()).unwrap();
        assert_eq!(client.get(request).await?.status, 404);
        Ok(client.policy.contact.has_responded())
    });
    server.join().unwrap();
    assert!(responded.unwrap());
}

/// A connector whose clients record each request and return an error.
#[derive(Debug, Default, Clone)]
struct Recorder(Arc<Mutex<Vec<RecordedRequest>>>);

#[derive(Debug, PartialEq)]
struct RecordedRequest {
    method: Method,
    is_for_bytes: bool,
}

impl HttpConnector for Recorder {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

impl HttpService for Recorder {
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> BoxFuture<'b, Result<HttpResponse, HttpError>>
    where
        'a: 'b,
        Self: 'b,
    {
        let is_for_bytes = request.extensions().get::<BytesRequest>().is_some();
        self.0.lock().unwrap().push(RecordedRequest { method: request.method().clone(), is_for_bytes });
        let error = ErrorKind::Config("carried".into()).into();
        futures::future::ready(Err(carry(Carried::Error(error)))).boxed()
    }
}

/// Builds the store of a bucket in the same way as `cloud.rs`, from the connectors for credentials and for
/// the bucket.
type Build = fn(Recorder, Recorder, bool) -> Arc<dyn ObjectStore>;

/// The clouds whose credentials are requested from a server.
const CLOUDS: &[Build] = &[
    #[cfg(feature = "gcs")]
    |credentials, bucket, skip| {
        let builder = object_store::gcp::GoogleCloudStorageBuilder::new().with_bucket_name("bucket");
        let builder = builder.with_skip_signature(skip);
        let signing = builder.clone().with_http_connector(credentials).build().unwrap();
        let builder = builder.with_credentials(Arc::clone(signing.credentials()));
        Arc::new(builder.with_http_connector(bucket).build().unwrap())
    },
    #[cfg(feature = "s3")]
    |credentials, bucket, skip| {
        let builder = object_store::aws::AmazonS3Builder::new().with_bucket_name("bucket");
        let builder = builder.with_skip_signature(skip);
        let signing = builder.clone().with_http_connector(credentials).build().unwrap();
        let builder = builder.with_credentials(Arc::clone(signing.credentials()));
        Arc::new(builder.with_http_connector(bucket).build().unwrap())
    },
    #[cfg(feature = "azure")]
    |credentials, bucket, skip| {
        let builder = object_store::azure::MicrosoftAzureBuilder::new().with_account("account");
        let builder = builder.with_container_name("bucket").with_skip_signature(skip);
        let signing = builder.clone().with_http_connector(credentials).build().unwrap();
        let builder = builder.with_credentials(Arc::clone(signing.credentials()));
        Arc::new(builder.with_http_connector(bucket).build().unwrap())
    },
];

/// Requests bytes. Returns the error, and the requests to the credential servers and to the bucket.
fn request_bytes(build: Build, skip_signature: bool) -> (crate::Error, [Vec<RecordedRequest>; 2]) {
    let recorders = [Recorder::default(), Recorder::default()];
    let [credentials, bucket] = recorders.clone();
    let store = build(credentials, bucket, skip_signature);
    let mut options = GetOptions::default();
    mark_bytes_request(&mut options);
    let error = runtime::run(async move {
        Ok(store.get_opts(&Path::from("a.tar"), options).await.map(drop).unwrap_err())
    });
    let error = carried_error(&error.unwrap()).unwrap();
    (error, recorders.map(|recorder| std::mem::take(&mut *recorder.0.lock().unwrap())))
}

/// `object_store` does not document the following, so `Cargo.toml` pins its version.
///
/// - The extensions of `GetOptions` are in the request.
/// - A request that fails with `HttpErrorKind::Unknown` is not retried, and the client's error is a cause of
///   `object_store`'s error.
#[test]
fn object_store_returns_errors_and_options_unchanged() {
    for build in CLOUDS {
        let (error, [credentials, bucket]) = request_bytes(*build, true);
        assert!(matches!(error.kind(), ErrorKind::Config(text) if text == "carried"), "{error:?}");
        assert_eq!(credentials, []);
        assert_eq!(bucket, [RecordedRequest { method: Method::GET, is_for_bytes: true }]);
    }
}

/// A credential provider keeps the client with which it was made. `object_store` does not document this
/// behaviour.
#[test]
fn credentials_are_requested_through_the_connector_for_them() {
    for build in CLOUDS {
        let (error, [credentials, bucket]) = request_bytes(*build, false);
        assert!(matches!(error.kind(), ErrorKind::Config(text) if text == "carried"), "{error:?}");
        assert!(!credentials.is_empty() && credentials.iter().all(|request| !request.is_for_bytes));
        assert_eq!(bucket, []);
    }
}
