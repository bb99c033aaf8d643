//! Messages between a [`Member`](super::Member) and the [`Server`](super::Server), as frames over TCP.

use super::Refusal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The first bytes of a member's connection. A connection with other bytes is closed.
const MAGIC: [u8; 8] = *b"shardkv\0";

/// Version of the messages. All processes of a job run the same program, so only one version is supported.
pub(super) const VERSION: u32 = 1;

pub(super) const MAX_KEY_BYTES: usize = 4 << 10;

/// Maximum length of a value in bytes. The topology of a host has a few kilobytes, an NCCL id 128 bytes.
pub(super) const MAX_VALUE_BYTES: usize = 4 << 20;

/// Maximum total size of all stored keys and values, in bytes.
pub(super) const MAX_STORED_BYTES: usize = 64 << 20;

/// Maximum size of a frame: a key, a value and their encoding.
const MAX_FRAME_BYTES: usize = MAX_VALUE_BYTES + MAX_KEY_BYTES + 64;

/// Maximum size of the first frame, which is read before the client has been checked.
const MAX_HELLO_BYTES: usize = 4 << 10;

/// Time limit for the first frame of a connection, and for the rest of a frame after its first byte.
pub(super) const FRAME_TIME: Duration = Duration::from_secs(10);

/// The first message of a connection.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) token: String,
    pub(super) program: String,
    pub(super) world_size: u32,
    pub(super) rank: u32,
    /// A random number that identifies the process. A process may have several connections, but a rank must
    /// have only one process.
    pub(super) process: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Waits until all ranks have joined.
    Join {
        timeout_ms: u64,
    },
    Put {
        key: Vec<u8>,
        value: Vec<u8>,
    },
    /// Waits until the key has a value.
    Get {
        key: Vec<u8>,
        timeout_ms: u64,
    },
    TryGet {
        key: Vec<u8>,
    },
    /// The process leaves the job.
    Leave,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Response {
    Done,
    Value(#[serde(with = "serde_bytes")] Vec<u8>),
    NotFound,
    TimedOut {
        /// Ranks that have not joined.
        absent: Vec<u32>,
        /// Ranks that have joined, but have not stored any key.
        silent: Vec<u32>,
    },
    /// These ranks ended during the wait.
    Lost(Vec<u32>),
    Refused(Refusal),
}

/// Writes the first bytes of a connection: magic, version and greeting.
pub(super) fn write_greeting(stream: &mut TcpStream, hello: &Hello) -> io::Result<()> {
    stream.write_all(&[MAGIC.as_slice(), &VERSION.to_le_bytes()].concat())?;
    write(stream, hello)
}

/// Reads the client's version, and its greeting if the version is the same.
pub(super) fn read_greeting(stream: &mut TcpStream) -> io::Result<(u32, Option<Hello>)> {
    let mut magic = [0; 8];
    stream.read_exact(&mut magic)?;
    if magic != MAGIC {
        return Err(invalid("the client is not a member of a job"));
    }
    let mut version = [0; 4];
    stream.read_exact(&mut version)?;
    let version = u32::from_le_bytes(version);
    let hello = if version == VERSION { Some(read_at_most(stream, MAX_HELLO_BYTES)?) } else { None };
    Ok((version, hello))
}

/// Writes a message.
pub(super) fn write<T: Serialize>(stream: &mut TcpStream, message: &T) -> io::Result<()> {
    let body = postcard::to_stdvec(message).map_err(io::Error::other)?;
    if body.len() > MAX_FRAME_BYTES {
        return Err(invalid("a message is too long"));
    }
    // Length and body are written in one call, since the system could delay a second write.
    stream.write_all(&[&(body.len() as u32).to_le_bytes(), body.as_slice()].concat())
}

/// Reads a message.
pub(super) fn read<T: DeserializeOwned>(stream: &mut TcpStream) -> io::Result<T> {
    read_at_most(stream, MAX_FRAME_BYTES)
}

fn read_at_most<T: DeserializeOwned>(stream: &mut TcpStream, max: usize) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > max {
        return Err(invalid("a message is too long"));
    }
    // The buffer grows with the received bytes, so that a client cannot reserve memory by announcing a large
    // length.
    let mut frame = Vec::new();
    Read::by_ref(stream).take(length as u64).read_to_end(&mut frame)?;
    if frame.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    postcard::from_bytes(&frame).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}
