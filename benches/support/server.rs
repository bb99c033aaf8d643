//! An HTTP server that imitates reads of Google Cloud Storage, with objects in memory.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// An object, and the headers that identify it.
struct Object {
    content: Arc<Vec<u8>>,
    headers: String,
}

/// Serves objects by name, in any bucket, as long as the process lives.
pub(crate) fn start(objects: impl IntoIterator<Item = (String, Arc<Vec<u8>>)>) -> io::Result<SocketAddr> {
    let mut sums = HashMap::new();
    let mut object = |content: Arc<Vec<u8>>| {
        let sum = *sums.entry(Arc::as_ptr(&content)).or_insert_with(|| crc32c::crc32c(&content));
        let headers = format!(
            "ETag: \"{sum:08x}\"\r\nx-goog-generation: 1\r\nx-goog-hash: crc32c={}\r\n\
             Last-Modified: Fri, 20 Nov 2026 12:00:00 GMT\r\nAccept-Ranges: bytes\r\n",
            base64(sum)
        );
        Object { content, headers }
    };
    let objects: HashMap<_, _> = objects.into_iter().map(|(name, content)| (name, object(content))).collect();
    let objects = Arc::new(objects);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let objects = Arc::clone(&objects);
            // A client may disconnect at any time, which is not an error.
            thread::spawn(move || serve(connection, &objects));
        }
    });
    Ok(address)
}

/// The four bytes of a checksum in base64, as in GCS's headers.
fn base64(sum: u32) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |index: u32| char::from(DIGITS[(u64::from(sum) << 4 >> (30 - 6 * index)) as usize & 63]);
    (0..6).map(digit).chain("==".chars()).collect()
}

fn serve(connection: TcpStream, objects: &HashMap<String, Object>) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let (mut input, mut output) = (BufReader::new(connection.try_clone()?), connection);
    loop {
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut range = None;
        loop {
            line.clear();
            input.read_line(&mut line)?;
            let Some((name, value)) = line.split_once(':') else { break };
            if name.eq_ignore_ascii_case("range") {
                range = parse_range(value);
            }
        }
        let path = percent_encoding::percent_decode_str(&path).decode_utf8_lossy();
        match objects.get(path.rsplit('/').next().unwrap_or_default()) {
            Some(object) => respond(&mut output, object, range)?,
            None => output.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?,
        }
    }
}

/// The first and the last byte of a Range header.
fn parse_range(value: &str) -> Option<(usize, usize)> {
    let (first, last) = value.trim().strip_prefix("bytes=")?.split_once('-')?;
    Some((first.parse().ok()?, last.parse().unwrap_or(usize::MAX)))
}

fn respond(output: &mut TcpStream, object: &Object, range: Option<(usize, usize)>) -> io::Result<()> {
    let size = object.content.len();
    let (status, first, end) = match range {
        None => ("200 OK", 0, size),
        Some((first, _)) if first >= size => ("416 Range Not Satisfiable", 0, 0),
        Some((first, last)) => ("206 Partial Content", first, last.saturating_add(1).min(size)),
    };
    let content_range = match status {
        "200 OK" => String::new(),
        _ if end == 0 => format!("Content-Range: bytes */{size}\r\n"),
        _ => format!("Content-Range: bytes {first}-{}/{size}\r\n", end - 1),
    };
    let length = end - first;
    write!(output, "HTTP/1.1 {status}\r\n{}{content_range}Content-Length: {length}\r\n\r\n", object.headers)?;
    output.write_all(&object.content[first..end])
}
