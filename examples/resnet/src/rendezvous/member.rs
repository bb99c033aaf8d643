//! The client of the key-value store.

use super::protocol::{self, FRAME_TIME, Hello, MAX_KEY_BYTES, MAX_VALUE_BYTES, Request, Response};
use super::{Job, Refusal, RendezvousError};
use shardstream_pjrt::{KeyValueError, KeyValues};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a member waits for a response, in addition to the time for which the server waits for the key.
const GRACE: Duration = Duration::from_secs(30);

/// How long a refused process keeps trying to join: after a restart, the server of the previous run may still
/// be running, and a process of that run may still have this rank.
const RESTART: Duration = Duration::from_secs(60);

/// Pause between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(200);

/// A process that has joined its job. Dropping it leaves the job.
#[derive(Debug)]
pub struct Member {
    address: String,
    job: Job,
    rank: usize,
    process: u64,
    /// Idle connections for requests.
    idle: Mutex<Vec<TcpStream>>,
    /// The first connection. It stays open, and shows the server that the process is alive.
    first: TcpStream,
    /// Whether all ranks have joined. If this process ends before that, the server reports this process as
    /// lost, since the other ranks wait for this process.
    joined: bool,
}

impl Member {
    /// Joins the job whose server is at `address`, and waits until all ranks have joined.
    pub fn join(address: &str, job: Job, rank: usize, timeout: Duration) -> Result<Self, RendezvousError> {
        let start = Instant::now();
        // A random number: the keys of `RandomState` are random.
        let process = RandomState::new().hash_one(0);
        let hello = greeting(&job, rank, process);
        let unreachable = |cause| RendezvousError::Unreachable {
            rank,
            address: address.into(),
            waited: start.elapsed(),
            cause,
        };
        let first = loop {
            let left = timeout.saturating_sub(start.elapsed());
            match open(address, &hello, left) {
                Ok(Ok(stream)) => break stream,
                Ok(Err(refusal)) => {
                    let is_temporary = matches!(refusal, Refusal::Token | Refusal::Taken(_) | Refusal::Left);
                    if !is_temporary || start.elapsed() >= RESTART.min(timeout) {
                        return Err(RendezvousError::Refused { rank, address: address.into(), refusal });
                    }
                    thread::sleep(PAUSE);
                }
                Err(cause) if left <= PAUSE => return Err(unreachable(cause)),
                // Rank 0 may start later than this rank, and its host's name may resolve only once the host
                // is up.
                Err(_) => thread::sleep(PAUSE),
            }
        };
        let idle = Mutex::default();
        let mut member = Self { address: address.into(), job, rank, process, idle, first, joined: false };
        let left = timeout.saturating_sub(start.elapsed());
        let what = "the other ranks";
        match member.request(&Request::Join { timeout_ms: millis(left) }, left, what)? {
            Response::TimedOut { absent, .. } => Err(RendezvousError::Absent {
                rank,
                world_size: member.job.world_size,
                address: member.address.clone(),
                waited: start.elapsed(),
                absent,
            }),
            Response::Done => {
                member.joined = true;
                Ok(member)
            }
            other => Err(member.unexpected(other, what)),
        }
    }

    /// Checks that `run` is the same text in this process and in rank 0.
    pub fn agree(&self, run: &str, timeout: Duration) -> Result<(), RendezvousError> {
        const KEY: &[u8] = b"shardstream/run";
        if self.rank == 0 {
            return self.put(KEY, run.as_bytes());
        }
        let theirs = self.get(KEY, timeout)?;
        match theirs == run.as_bytes() {
            true => Ok(()),
            false => Err(self.refused(Refusal::Program { theirs: text(&theirs), ours: run.into() })),
        }
    }

    /// Stores a value. The same value may be stored again, but a value cannot be changed.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), RendezvousError> {
        for (bytes, max) in [(key, MAX_KEY_BYTES), (value, MAX_VALUE_BYTES)] {
            if bytes.len() > max {
                return Err(self.refused(Refusal::Full(max as u64)));
            }
        }
        let what = format!("putting the key {:?}", text(key));
        let request = Request::Put { key: key.into(), value: value.into() };
        match self.request(&request, Duration::ZERO, &what)? {
            Response::Done => Ok(()),
            other => Err(self.unexpected(other, &what)),
        }
    }

    /// Waits until the key has a value, and returns it.
    pub fn get(&self, key: &[u8], timeout: Duration) -> Result<Vec<u8>, RendezvousError> {
        let what = format!("the key {:?}", text(key));
        let start = Instant::now();
        match self.request(&Request::Get { key: key.into(), timeout_ms: millis(timeout) }, timeout, &what)? {
            Response::Value(value) => Ok(value),
            Response::TimedOut { absent, silent } => {
                let (rank, key) = (self.rank, text(key));
                Err(RendezvousError::TimedOut { rank, key, waited: start.elapsed(), absent, silent })
            }
            other => Err(self.unexpected(other, &what)),
        }
    }

    /// The value of the key, if it has one now.
    pub fn try_get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, RendezvousError> {
        let what = format!("the key {:?}", text(key));
        match self.request(&Request::TryGet { key: key.into() }, Duration::ZERO, &what)? {
            Response::Value(value) => Ok(Some(value)),
            Response::NotFound => Ok(None),
            other => Err(self.unexpected(other, &what)),
        }
    }

    /// Closes all connections without leaving the job, as when the process is killed.
    #[cfg(test)]
    pub(super) fn vanish(self) {
        let _ = self.first.shutdown(std::net::Shutdown::Both);
        self.idle.lock().unwrap().clear();
    }

    fn request(&self, request: &Request, timeout: Duration, what: &str) -> Result<Response, RendezvousError> {
        let gone = |cause| RendezvousError::Gone {
            rank: self.rank,
            address: self.address.clone(),
            what: what.into(),
            cause,
        };
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // The lock is not held during the request, so that other threads can wait for other keys.
        let idle_stream = idle().pop();
        let mut stream = match idle_stream {
            Some(stream) => stream,
            None => {
                let hello = greeting(&self.job, self.rank, self.process);
                open(&self.address, &hello, GRACE).map_err(gone)?.map_err(|refusal| self.refused(refusal))?
            }
        };
        let exchange = |stream: &mut TcpStream| {
            stream.set_read_timeout(Some(timeout + GRACE))?;
            protocol::write(stream, request)?;
            protocol::read(stream)
        };
        let response = exchange(&mut stream).map_err(gone)?;
        idle().push(stream);
        Ok(response)
    }

    fn refused(&self, refusal: Refusal) -> RendezvousError {
        RendezvousError::Refused { rank: self.rank, address: self.address.clone(), refusal }
    }

    fn unexpected(&self, response: Response, what: &str) -> RendezvousError {
        match response {
            Response::Refused(refusal) => self.refused(refusal),
            Response::Lost(lost) => RendezvousError::Lost { rank: self.rank, what: what.into(), lost },
            _ => {
                let cause = io::Error::new(io::ErrorKind::InvalidData, "a response to another request");
                RendezvousError::Gone {
                    rank: self.rank,
                    address: self.address.clone(),
                    what: what.into(),
                    cause,
                }
            }
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if !self.joined {
            return;
        }
        // An error means that the server has ended, so nobody needs the message.
        let _ = self.first.set_read_timeout(Some(Duration::from_secs(1)));
        if protocol::write(&mut self.first, &Request::Leave).is_ok() {
            let _ = protocol::read::<Response>(&mut self.first);
        }
    }
}

impl KeyValues for Member {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), KeyValueError> {
        Ok(Member::put(self, key, value)?)
    }

    fn get(&self, key: &[u8], timeout: Duration) -> Result<Vec<u8>, KeyValueError> {
        Ok(Member::get(self, key, timeout)?)
    }

    fn try_get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KeyValueError> {
        Ok(Member::try_get(self, key)?)
    }
}

impl From<RendezvousError> for KeyValueError {
    fn from(error: RendezvousError) -> Self {
        Self { code: error.code(), source: Box::new(error) }
    }
}

fn greeting(job: &Job, rank: usize, process: u64) -> Hello {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Hello {
        token: job.token.clone(),
        program: job.program.clone(),
        world_size: number(job.world_size),
        rank: number(rank),
        process,
    }
}

/// Opens a connection, and waits until the server admits it.
fn open(address: &str, hello: &Hello, timeout: Duration) -> io::Result<Result<TcpStream, Refusal>> {
    let mut stream = connect(address, timeout)?;
    protocol::write_greeting(&mut stream, hello)?;
    match protocol::read(&mut stream)? {
        Response::Done => Ok(Ok(stream)),
        Response::Refused(refusal) => Ok(Err(refusal)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it is not the server of a job")),
    }
}

/// Resolves a name, and connects to the first of its addresses that accepts a connection.
fn connect(address: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for candidate in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, timeout.clamp(Duration::from_millis(1), FRAME_TIME)) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(FRAME_TIME))?;
                stream.set_write_timeout(Some(FRAME_TIME))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}
