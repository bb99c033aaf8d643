//! Emulators of S3 and Azure that run as separate servers: moto and azurite.
//!
//! The tests that need an emulator are ignored by default.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A shared access signature for azurite's well-known account, whose key is public. It allows access to blobs
/// until the end of the century.
const AZURE_SIGNATURE: &str = "sv=2019-12-12&ss=b&srt=sco&sp=rwdlac&se=2099-01-01T00%3A00%3A00Z\
                               &spr=https%2Chttp&sig=0inStVod1SiNNw%2FCJ4fRrpJIdRZAadbisT7bZCD4KQs%3D";

/// An emulator with an empty bucket, in a process of its own. The process ends with the test.
#[derive(Debug)]
pub struct Emulator {
    process: Child,
    port: u16,
    bucket: &'static str,
    environment: Vec<(&'static str, String)>,
    /// The path of the bucket, and the query and headers of each request.
    path: &'static str,
    query: &'static str,
    headers: &'static str,
    _files: Option<TempDir>,
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Emulator {
    /// Starts the emulator of S3: `moto_server`, or the program in `SHARDSTREAM_TEST_MOTO`.
    pub fn s3() -> Self {
        let arguments = |port: &str| ["-H", "127.0.0.1", "-p", port].map(String::from).to_vec();
        let (process, port) = start("SHARDSTREAM_TEST_MOTO", "moto_server", &arguments);
        let keys =
            [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test"), ("AWS_REGION", "us-east-1")];
        let mut environment: Vec<_> =
            keys.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
        environment.push(("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")));
        let emulator = Emulator {
            process,
            port,
            bucket: "s3://bucket",
            environment,
            path: "/bucket",
            query: "",
            headers: "Authorization: AWS test:test\r\n",
            _files: None,
        };
        emulator.request("PUT", "", "", "", b"");
        emulator
    }

    /// Starts the emulator of Azure: `azurite-blob`, or the program in `SHARDSTREAM_TEST_AZURITE`.
    pub fn azure() -> Self {
        let files = tempfile::tempdir().unwrap();
        let location = files.path().to_str().unwrap().to_owned();
        let arguments = |port: &str| {
            let options = ["--blobHost", "127.0.0.1", "--blobPort", port, "--location", &location];
            let flags = ["--loose", "--skipApiVersionCheck", "--disableTelemetry", "--silent"];
            options.into_iter().chain(flags).map(String::from).collect()
        };
        let (process, port) = start("SHARDSTREAM_TEST_AZURITE", "azurite-blob", &arguments);
        let environment = vec![
            ("AZURE_STORAGE_USE_EMULATOR", "true".to_owned()),
            ("AZURITE_BLOB_STORAGE_URL", format!("http://127.0.0.1:{port}")),
        ];
        let emulator = Emulator {
            process,
            port,
            bucket: "az://container",
            environment,
            path: "/devstoreaccount1/container",
            query: AZURE_SIGNATURE,
            headers: "x-ms-version: 2019-12-12\r\n",
            _files: Some(files),
        };
        emulator.request("PUT", "", "restype=container&", "", b"");
        emulator
    }

    /// The URL of the bucket, without a trailing slash.
    pub fn bucket(&self) -> &'static str {
        self.bucket
    }

    /// A signed URL of an object. A request to this URL needs no other credentials.
    pub fn signed(&self, key: &str) -> String {
        format!("http://127.0.0.1:{}{}/{key}?{}", self.port, self.path, self.query)
    }

    /// Environment variables that make a client use this server.
    pub fn environment(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.environment.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// Puts an object into the bucket. The key must need no escapes.
    pub fn put(&self, key: &str, content: &[u8]) {
        self.request("PUT", &format!("/{key}"), "", "x-ms-blob-type: BlockBlob\r\n", content);
    }

    /// Sends a raw HTTP request. Panics unless it succeeds.
    fn request(&self, method: &str, key: &str, parameters: &str, headers: &str, content: &[u8]) {
        let target = format!("{}{key}?{parameters}{}", self.path, self.query);
        let host = format!("127.0.0.1:{}", self.port);
        let length = content.len();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\
             Connection: close\r\n{}{headers}\r\n",
            self.headers
        );
        let mut stream = TcpStream::connect(&host).unwrap();
        stream.write_all(&[head.as_bytes(), content].concat()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 20"), "{method} {}{key}: {answer}", self.path);
    }
}

/// Starts `program`, or the program that the environment variable `variable` names, on a free port, and waits
/// until it answers.
fn start(variable: &str, program: &str, arguments: &dyn Fn(&str) -> Vec<String>) -> (Child, u16) {
    let program = std::env::var(variable).unwrap_or_else(|_| program.to_owned());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let spawned = Command::new(&program)
        .args(arguments(&port.to_string()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut process = match spawned {
        Ok(process) => process,
        Err(error) => panic!("{program} is not installed ({error}); set {variable} to its path"),
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if let Some(status) = process.try_wait().unwrap() {
            panic!("{program} ended: {status}");
        }
        if Instant::now() > deadline {
            let _ = process.kill();
            panic!("{program} does not answer");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    (process, port)
}
