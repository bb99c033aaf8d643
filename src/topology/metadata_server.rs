//! A client of Google's metadata server: one GET for each attribute of this machine, over plain HTTP, with
//! strict limits.

use super::bad;
use crate::error::Result;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// The address of the metadata server on every Google Cloud machine. We use no host name, because a DNS
/// look-up would have no time limit.
const ADDRESS: &str = "169.254.169.254";
/// Time limit of one request.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of requests for one attribute. A request may fail because the server is busy or starting.
const MAX_ATTEMPTS: usize = 3;
/// Pause between two requests.
const PAUSE: Duration = Duration::from_millis(300);
/// Size limit of a response in bytes: enough for the addresses of some 10,000 hosts.
const MAX_RESPONSE: usize = 512 << 10;
const MAX_HEADERS: usize = 64;

/// The metadata server.
pub(super) struct MetadataServer {
    host: String,
}

/// The reason why an attribute could not be read.
enum MetadataError {
    /// Another attempt may succeed.
    Transient(io::Error),
    /// The response is not from Google's metadata server.
    Unexpected(String),
}

impl From<io::Error> for MetadataError {
    fn from(error: io::Error) -> Self {
        MetadataError::Transient(error)
    }
}

impl MetadataServer {
    /// A client of the server `host` (the value of `GCE_METADATA_HOST`: `host` or `host:port`), or of this
    /// machine's own server.
    pub(super) fn new(host: Option<String>) -> Result<Self> {
        let host = host.unwrap_or_else(|| ADDRESS.to_owned());
        if host.is_empty() || host.bytes().any(|byte| byte <= b' ' || byte == 0x7f || byte == b'/') {
            return Err(bad(format!("GCE_METADATA_HOST={host:?} is not a host: set it to one, or unset it")));
        }
        Ok(MetadataServer { host })
    }

    /// The value of an attribute of this machine; `None` if the machine has no such attribute.
    pub(super) fn attribute(&self, name: &str) -> Result<Option<String>> {
        let path = format!("/computeMetadata/v1/instance/attributes/{name}");
        let url = format!("http://{}{path}", self.host);
        let advice = "set SHARDSTREAM_RANK and SHARDSTREAM_WORLD_SIZE";
        let mut attempt = 0;
        loop {
            attempt += 1;
            match self.get(&path) {
                Ok(value) => return Ok(value),
                Err(MetadataError::Transient(_)) if attempt < MAX_ATTEMPTS => std::thread::sleep(PAUSE),
                Err(MetadataError::Transient(error)) => {
                    return Err(bad(format!(
                        "no response of the metadata server for {name}: {url}, {MAX_ATTEMPTS} attempts: \
                         {error}; on a TPU VM try again, elsewhere {advice}"
                    )));
                }
                Err(MetadataError::Unexpected(what)) => return Err(bad(format!("{url}: {what}: {advice}"))),
            }
        }
    }

    fn get(&self, path: &str) -> Result<Option<String>, MetadataError> {
        let end = Instant::now() + TIMEOUT;
        let mut stream = self.connect()?;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nMetadata-Flavor: Google\r\nAccept: */*\r\n\
             Connection: close\r\n\r\n",
            self.host
        );
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.write_all(request.as_bytes())?;
        let mut received = Vec::new();
        loop {
            if let Some(value) = parse(&received, false)? {
                return Ok(value);
            }
            // The time limit is for the whole response, not for each read.
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no response in time").into());
            }
            stream.set_read_timeout(Some(left))?;
            let mut bytes = [0; 4096];
            let read = stream.read(&mut bytes);
            // A read with a time-out returns `WouldBlock` when the time is over.
            if read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                continue;
            }
            match read? {
                0 => {
                    let cut = || io::Error::new(io::ErrorKind::UnexpectedEof, "the response ends early");
                    return Ok(parse(&received, true)?.ok_or_else(cut)?);
                }
                count => received.extend_from_slice(&bytes[..count]),
            }
            if received.len() > MAX_RESPONSE {
                return Err(MetadataError::Unexpected(format!(
                    "the response has more than {MAX_RESPONSE} bytes"
                )));
            }
        }
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let has_port = self.host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let host = if has_port { self.host.clone() } else { format!("{}:80", self.host) };
        let none = || io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        let address = host.to_socket_addrs()?.next().ok_or_else(none)?;
        TcpStream::connect_timeout(&address, TIMEOUT)
    }
}

/// The value in a response: `None` while the response is incomplete, `Some(None)` if the response says that
/// there is no such attribute.
fn parse(received: &[u8], ended: bool) -> Result<Option<Option<String>>, MetadataError> {
    let wrong = |what: &str| {
        MetadataError::Unexpected(format!("this is no response of Google's metadata server: {what}"))
    };
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let start = match response.parse(received) {
        Ok(httparse::Status::Complete(start)) => start,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(wrong(&error.to_string())),
    };
    let header = |name: &str| {
        let header = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        Some(String::from_utf8_lossy(header.value).trim().to_owned())
    };
    let status = response.code.unwrap_or_default();
    if status == 429 || status >= 500 {
        return Err(io::Error::other(format!("status {status}")).into());
    }
    if header("metadata-flavor").as_deref() != Some("Google") {
        return Err(wrong("no header Metadata-Flavor: Google"));
    }
    match status {
        200 => {}
        404 => return Ok(Some(None)),
        _ => return Err(MetadataError::Unexpected(format!("status {status}"))),
    }
    let body = &received[start..];
    let body = if header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
        dechunk(body).map_err(|()| wrong("its chunks are malformed"))?
    } else if let Some(length) = header("content-length") {
        let length: usize = length.parse().map_err(|_| wrong("its length is no number"))?;
        body.get(..length).map(<[u8]>::to_vec)
    } else {
        ended.then(|| body.to_vec())
    };
    let text =
        body.map(|body| String::from_utf8(body).map_err(|_| wrong("its body is not text"))).transpose()?;
    Ok(text.map(Some))
}

/// The content of a chunked body; `None` while it is incomplete.
fn dechunk(mut body: &[u8]) -> Result<Option<Vec<u8>>, ()> {
    let mut content = Vec::new();
    loop {
        let httparse::Status::Complete((start, size)) = httparse::parse_chunk_size(body).map_err(drop)?
        else {
            return Ok(None);
        };
        let size = usize::try_from(size).ok().filter(|size| *size <= MAX_RESPONSE).ok_or(())?;
        if size == 0 {
            return Ok(Some(content));
        }
        let Some(chunk) = body.get(start..start + size + 2) else { return Ok(None) };
        content.extend_from_slice(chunk.strip_suffix(b"\r\n").ok_or(())?);
        body = &body[start + size + 2..];
    }
}
