//! A small HTTP/1.1 server with one thread per connection. A closure scripts each reply: it can cut a body at
//! any byte, send wrong ranges and lengths, and change the object between requests. The server records the
//! requests.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A request as it was received.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Number of earlier requests to the server.
    pub(crate) number: usize,
    /// The number of the connection, and the number of earlier requests on it.
    pub(crate) connection: usize,
    pub(crate) request_on_connection: usize,
    pub(crate) method: String,
    /// The path and query, byte for byte.
    pub(crate) target: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// The requested range: first and last byte.
    pub(crate) fn range(&self) -> Option<(usize, usize)> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    }

    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    pub(crate) fn query(&self) -> &str {
        self.target.split_once('?').map_or("", |(_, query)| query)
    }
}

/// How a reply marks the end of its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Length,
    Chunked,
    /// By closing the connection.
    Close,
    /// Nothing marks the end. The server adds no status line and no headers: `body` contains them.
    Raw,
}

/// What happens to the connection after a cut body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Closed,
    /// The connection ends with a TCP reset, so that bytes in flight are lost, too.
    Reset,
    /// The connection stays open and silent for this long.
    Silent(Duration),
}

#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) framing: Framing,
    /// The connection ends after this many bytes of the body, whatever length the head announces.
    pub(crate) cut: Option<usize>,
    pub(crate) ending: Ending,
    /// The body is sent in pieces of this many bytes, with a pause after each piece.
    pub(crate) drip: Option<(usize, Duration)>,
    /// Surplus bytes that are sent after the reply, and the pause before them.
    pub(crate) surplus: Option<(Duration, Vec<u8>)>,
}

impl Reply {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Reply {
            status,
            headers: Vec::new(),
            body: body.into(),
            framing: Framing::Length,
            cut: None,
            ending: Ending::Closed,
            drip: None,
            surplus: None,
        }
    }

    /// Sends exactly these bytes.
    pub(crate) fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Reply::new(0, bytes).framed(Framing::Raw)
    }

    /// Closes the connection after the whole body, although no `Connection: close` announced it.
    pub(crate) fn then_closed(self) -> Self {
        self.cut(usize::MAX)
    }

    pub(crate) fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(header, _)| header != name);
        self
    }

    pub(crate) fn framed(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }

    pub(crate) fn cut(mut self, at: usize) -> Self {
        self.cut = Some(at);
        self
    }

    pub(crate) fn ending(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }

    pub(crate) fn dripping(mut self, bytes: usize, pause: Duration) -> Self {
        self.drip = Some((bytes, pause));
        self
    }

    /// Sends surplus bytes after the reply.
    pub(crate) fn followed_by(mut self, pause: Duration, surplus: impl Into<Vec<u8>>) -> Self {
        self.surplus = Some((pause, surplus.into()));
        self
    }

    /// The reply of a well-behaved server to a GET for `content`.
    pub(crate) fn object(request: &Request, content: &[u8], etag: &str) -> Self {
        let wanted = request.header("if-match");
        if wanted.is_some_and(|wanted| wanted != etag) {
            return Reply::new(412, "").with("ETag", etag);
        }
        let reply = match request.range() {
            None => Reply::new(200, content),
            Some((first, _)) if first >= content.len() => {
                Reply::new(416, "").with("Content-Range", format!("bytes */{}", content.len()))
            }
            Some((first, last)) => {
                let last = last.min(content.len() - 1);
                Reply::new(206, &content[first..=last])
                    .with("Content-Range", format!("bytes {first}-{last}/{}", content.len()))
            }
        };
        reply.with("ETag", etag).with("Last-Modified", "Fri, 20 Nov 2020 12:00:00 GMT")
    }
}

/// What a server reports about the version of its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    Strong(&'static str),
    Weak(&'static str),
    /// A modification time in whole seconds, without an ETag. The object was written long ago.
    Old(u64),
    /// A modification time in whole seconds, without an ETag. The object was written within the last minute.
    Young(u64),
    Unversioned,
}

impl Naming {
    /// The reply of a well-behaved server to a GET for `content`.
    pub(crate) fn reply(self, request: &Request, content: &[u8]) -> Reply {
        let etag = match self {
            Naming::Strong(tag) => format!("\"{tag}\""),
            Naming::Weak(tag) => format!("W/\"{tag}\""),
            _ => String::new(),
        };
        let reply = Reply::object(request, content, &etag).with("Date", "Fri, 20 Nov 2020 13:00:00 GMT");
        let reply = if etag.is_empty() { reply.without("ETag") } else { return reply };
        let (time, reply) = match self {
            Naming::Old(second) => (format!("12:00:{second:02}"), reply.without("Last-Modified")),
            Naming::Young(second) => {
                let reply = reply.without("Last-Modified").without("Date");
                (format!("12:00:{second:02}"), reply.with("Date", "Fri, 20 Nov 2020 12:00:40 GMT"))
            }
            _ => return reply.without("Last-Modified"),
        };
        reply.with("Last-Modified", format!("Fri, 20 Nov 2020 {time} GMT"))
    }
}

pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    script: Box<dyn Fn(&Request) -> Reply + Send + Sync>,
    count: AtomicUsize,
    /// The requests; `None` if they are not recorded.
    requests: Option<Mutex<Vec<Request>>>,
    surpluses: AtomicUsize,
    stopping: AtomicBool,
}

/// Wraps a socket in the layer below HTTP, for example in TLS.
type Wrap<S> = dyn Fn(TcpStream) -> S + Send + Sync;

impl Server {
    pub(crate) fn start(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::run(Arc::new(|stream| stream), Box::new(script), Some(Mutex::default()))
    }

    /// Starts a server that does not record its requests, as there may be many.
    pub(crate) fn forgetful(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::run(Arc::new(|stream| stream), Box::new(script), None)
    }

    /// Starts a server that speaks HTTP over each connection that `wrap` returns.
    pub(crate) fn over<S: Read + Write + Send + 'static>(
        wrap: Arc<Wrap<S>>,
        script: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::run(wrap, Box::new(script), Some(Mutex::default()))
    }

    fn run<S: Read + Write + Send + 'static>(
        wrap: Arc<Wrap<S>>,
        script: Box<dyn Fn(&Request) -> Reply + Send + Sync>,
        requests: Option<Mutex<Vec<Request>>>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script,
            count: AtomicUsize::new(0),
            requests,
            surpluses: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
        });
        let server = Server { address, shared: Arc::clone(&shared) };
        std::thread::spawn(move || {
            for (number, connection) in listener.incoming().enumerate() {
                if shared.stopping.load(Ordering::SeqCst) {
                    break;
                }
                let (shared, wrap) = (Arc::clone(&shared), Arc::clone(&wrap));
                // A client that disconnects is not an error of the server.
                std::thread::spawn(move || {
                    let socket = connection?;
                    socket.set_nodelay(true)?;
                    let ending = socket.try_clone()?;
                    shared.serve(wrap(socket), number, &ending)
                });
            }
        });
        server
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// How many replies so far were followed by surplus bytes.
    pub(crate) fn surpluses(&self) -> usize {
        self.shared.surpluses.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.requests.as_ref().map(|requests| requests.lock().unwrap().clone()).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    /// Answers the requests on `stream`, whose underlying socket is `socket`.
    fn serve(&self, stream: impl Read + Write, connection: usize, socket: &TcpStream) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        let mut request_on_connection = 0;
        while let Some(mut request) = read_request(&mut stream)? {
            (request.connection, request.request_on_connection) = (connection, request_on_connection);
            request_on_connection += 1;
            match &self.requests {
                None => request.number = self.count.fetch_add(1, Ordering::SeqCst),
                Some(requests) => {
                    let mut requests = requests.lock().unwrap();
                    request.number = requests.len();
                    requests.push(request.clone());
                }
            }
            let reply = (self.script)(&request);
            let output = stream.get_mut();
            let more = write_reply(output, &request, &reply)?;
            output.flush()?;
            if let Some((pause, surplus)) = &reply.surplus {
                std::thread::sleep(*pause);
                output.write_all(surplus)?;
                output.flush()?;
                self.surpluses.fetch_add(1, Ordering::SeqCst);
            }
            if !more {
                return end(socket, reply.ending);
            }
        }
        socket.shutdown(Shutdown::Both)
    }
}

fn end(mut connection: &TcpStream, ending: Ending) -> io::Result<()> {
    match ending {
        Ending::Closed => {}
        Ending::Reset => {
            socket2::SockRef::from(connection).set_linger(Some(Duration::ZERO))?;
            return Ok(());
        }
        Ending::Silent(time) => {
            // Waits until the client closes the connection, or `time` is over.
            connection.set_read_timeout(Some(time))?;
            let _ = connection.read(&mut [0]);
        }
    }
    connection.shutdown(Shutdown::Both)
}

fn read_request(input: &mut BufReader<impl Read + Write>) -> io::Result<Option<Request>> {
    let mut line = || -> io::Result<String> {
        let mut line = String::new();
        input.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    };
    let first = line()?;
    let mut words = first.split(' ');
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return Ok(None) };
    let mut headers = Vec::new();
    loop {
        let header = line()?;
        let Some((name, value)) = header.split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut request = Request {
        number: 0,
        connection: 0,
        request_on_connection: 0,
        method: method.to_owned(),
        target: target.to_owned(),
        headers,
        body: Vec::new(),
    };
    if request.header("expect").is_some() {
        input.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let length = request.header("content-length").map_or(0, |length| length.parse().unwrap());
    request.body.resize(length, 0);
    input.read_exact(&mut request.body)?;
    Ok(Some(request))
}

/// Writes a reply. Returns whether the connection stays open.
fn write_reply(output: &mut impl Write, request: &Request, reply: &Reply) -> io::Result<bool> {
    let sent = &reply.body[..reply.cut.unwrap_or(usize::MAX).min(reply.body.len())];
    if reply.framing == Framing::Raw {
        output.write_all(sent)?;
        return Ok(reply.cut.is_none());
    }
    let mut head = format!("HTTP/1.1 {} Scripted\r\n", reply.status);
    for (name, value) in &reply.headers {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    match reply.framing {
        _ if reply.status == 204 => {}
        // The script has set a length, which may be wrong.
        Framing::Length if reply.headers.iter().any(|(name, _)| name == "Content-Length") => {}
        Framing::Length => write!(head, "Content-Length: {}\r\n", reply.body.len()).unwrap(),
        Framing::Chunked => head.push_str("Transfer-Encoding: chunked\r\n"),
        Framing::Close | Framing::Raw => head.push_str("Connection: close\r\n"),
    }
    output.write_all(head.as_bytes())?;
    output.write_all(b"\r\n")?;
    if request.method == "HEAD" {
        return Ok(true);
    }
    if reply.framing == Framing::Chunked {
        for chunk in sent.chunks(1000) {
            write!(output, "{:x}\r\n", chunk.len())?;
            output.write_all(chunk)?;
            output.write_all(b"\r\n")?;
        }
        if reply.cut.is_none() {
            output.write_all(b"0\r\n\r\n")?;
        }
    } else if let Some((bytes, pause)) = reply.drip {
        for drop in sent.chunks(bytes) {
            output.write_all(drop)?;
            std::thread::sleep(pause);
        }
    } else {
        output.write_all(sent)?;
    }
    Ok(reply.cut.is_none() && reply.framing != Framing::Close)
}
