//! A process of a job.

use super::protocol::{self, FRAME_TIME, Hello, MOST_KEY, MOST_VALUE, Request, Response};
use super::{Error, Job, Refusal, Result};
use crate::pjrt::{KeyValueError, KeyValues};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What the network may take beyond the time that the server waits.
const GRACE: Duration = Duration::from_secs(30);

/// How long to try again where another process has the place of this one: when a job is restarted, the server
/// of the run before may still be there.
const RESTART: Duration = Duration::from_secs(60);

/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(200);

/// A process that has joined its job. It leaves when this is dropped.
#[derive(Debug)]
pub struct Member {
    address: String,
    job: Job,
    rank: usize,
    process: u64,
    /// Connections that nobody uses. There is always one, by which the server knows that the process is
    /// alive, in `first` or here.
    idle: Mutex<Vec<TcpStream>>,
    first: TcpStream,
    /// Whether all ranks have joined. Without that, the end of this process is no leaving: the others wait
    /// for it in vain.
    joined: bool,
}

impl Member {
    /// Joins the job whose server is at `address`, and waits until all ranks have joined.
    pub fn join(address: &str, job: Job, rank: usize, timeout: Duration) -> Result<Self> {
        let begun = Instant::now();
        // Random keys: nothing is hashed.
        let process = RandomState::new().hash_one(0);
        let hello = greeting(&job, rank, process);
        let unreachable =
            |cause| Error::Unreachable { rank, address: address.into(), waited: begun.elapsed(), cause };
        let first = loop {
            let left = timeout.saturating_sub(begun.elapsed());
            match open(address, &hello, left) {
                Ok(Ok(stream)) => break stream,
                Ok(Err(refusal)) => {
                    let passes = matches!(refusal, Refusal::Token | Refusal::Taken(_) | Refusal::Left);
                    if !passes || begun.elapsed() >= RESTART.min(timeout) {
                        return Err(Error::Refused { rank, address: address.into(), refusal });
                    }
                    thread::sleep(PAUSE);
                }
                Err(cause) if left <= PAUSE => return Err(unreachable(cause)),
                // Ranks start in any order, and names are known when their hosts are up.
                Err(_) => thread::sleep(PAUSE),
            }
        };
        let idle = Mutex::default();
        let mut member = Self { address: address.into(), job, rank, process, idle, first, joined: false };
        let left = timeout.saturating_sub(begun.elapsed());
        let what = "the other ranks";
        match member.request(&Request::Join { timeout_ms: millis(left) }, left, what)? {
            Response::TimedOut { absent, .. } => Err(Error::Absent {
                rank,
                world_size: member.job.world_size,
                address: member.address.clone(),
                waited: begun.elapsed(),
                absent,
            }),
            Response::Done => {
                member.joined = true;
                Ok(member)
            }
            other => Err(member.unexpected(other, what)),
        }
    }

    /// Makes sure that `run` is the same in this process and in rank 0.
    pub fn agree(&self, run: &str, timeout: Duration) -> Result<()> {
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

    /// Puts a value, which may be put again but not changed.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        for (bytes, most) in [(key, MOST_KEY), (value, MOST_VALUE)] {
            if bytes.len() > most {
                return Err(self.refused(Refusal::Full(most as u64)));
            }
        }
        let what = format!("putting the key {:?}", text(key));
        let request = Request::Put { key: key.into(), value: value.into() };
        match self.request(&request, Duration::ZERO, &what)? {
            Response::Done => Ok(()),
            other => Err(self.unexpected(other, &what)),
        }
    }

    /// Waits for a value.
    pub fn get(&self, key: &[u8], timeout: Duration) -> Result<Vec<u8>> {
        let what = format!("the key {:?}", text(key));
        let begun = Instant::now();
        match self.request(&Request::Get { key: key.into(), timeout_ms: millis(timeout) }, timeout, &what)? {
            Response::Value(value) => Ok(value),
            Response::TimedOut { absent, silent } => {
                let (rank, key) = (self.rank, text(key));
                Err(Error::TimedOut { rank, key, waited: begun.elapsed(), absent, silent })
            }
            other => Err(self.unexpected(other, &what)),
        }
    }

    /// The value, if it is there.
    pub fn try_get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let what = format!("the key {:?}", text(key));
        match self.request(&Request::TryGet { key: key.into() }, Duration::ZERO, &what)? {
            Response::Value(value) => Ok(Some(value)),
            Response::NotFound => Ok(None),
            other => Err(self.unexpected(other, &what)),
        }
    }

    /// Ends as a process does that is killed.
    #[cfg(test)]
    pub(super) fn vanish(self) {
        let _ = self.first.shutdown(std::net::Shutdown::Both);
        self.idle.lock().unwrap().clear();
    }

    fn request(&self, request: &Request, timeout: Duration, what: &str) -> Result<Response> {
        let gone =
            |cause| Error::Gone { rank: self.rank, address: self.address.clone(), what: what.into(), cause };
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // Out of the lock while it is used: others wait for other keys meanwhile.
        let free = idle().pop();
        let mut stream = match free {
            Some(stream) => stream,
            None => {
                let hello = greeting(&self.job, self.rank, self.process);
                open(&self.address, &hello, GRACE).map_err(gone)?.map_err(|refusal| self.refused(refusal))?
            }
        };
        let ask = |stream: &mut TcpStream| {
            stream.set_read_timeout(Some(timeout + GRACE))?;
            protocol::write(stream, request)?;
            protocol::read(stream)
        };
        let response = ask(&mut stream).map_err(gone)?;
        idle().push(stream);
        Ok(response)
    }

    fn refused(&self, refusal: Refusal) -> Error {
        Error::Refused { rank: self.rank, address: self.address.clone(), refusal }
    }

    fn unexpected(&self, response: Response, what: &str) -> Error {
        match response {
            Response::Refused(refusal) => self.refused(refusal),
            Response::Lost(lost) => Error::Lost { rank: self.rank, what: what.into(), lost },
            _ => {
                let cause = io::Error::new(io::ErrorKind::InvalidData, "a response to another request");
                Error::Gone { rank: self.rank, address: self.address.clone(), what: what.into(), cause }
            }
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if !self.joined {
            return;
        }
        // Where the server is gone already, nobody is left to be told.
        let _ = self.first.set_read_timeout(Some(Duration::from_secs(1)));
        if protocol::write(&mut self.first, &Request::Leave).is_ok() {
            let _ = protocol::read::<Response>(&mut self.first);
        }
    }
}

impl KeyValues for Member {
    fn put(&self, key: &[u8], value: &[u8]) -> std::result::Result<(), KeyValueError> {
        Ok(Member::put(self, key, value)?)
    }

    fn get(&self, key: &[u8], timeout: Duration) -> std::result::Result<Vec<u8>, KeyValueError> {
        Ok(Member::get(self, key, timeout)?)
    }

    fn try_get(&self, key: &[u8]) -> std::result::Result<Option<Vec<u8>>, KeyValueError> {
        Ok(Member::try_get(self, key)?)
    }
}

impl From<Error> for KeyValueError {
    fn from(error: Error) -> Self {
        Self { code: error.code(), source: Box::new(error) }
    }
}

fn greeting(job: &Job, rank: usize, process: u64) -> Hello {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let (token, program) = (job.token.clone(), job.program.clone());
    Hello { token, program, world_size: number(job.world_size), rank: number(rank), process }
}

/// A connection that the server has admitted.
fn open(
    address: &str,
    hello: &Hello,
    timeout: Duration,
) -> io::Result<std::result::Result<TcpStream, Refusal>> {
    let mut stream = connect(address, timeout)?;
    protocol::begin(&mut stream, hello)?;
    match protocol::read(&mut stream)? {
        Response::Done => Ok(Ok(stream)),
        Response::Refused(refusal) => Ok(Err(refusal)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "no server of a job")),
    }
}

/// Connects to the first address of the name that answers.
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
