//! Messages between a [`Member`](super::Member) and the [`Server`](super::Server), as frames over TCP.

use super::Refusal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// What each connection of a member begins with; other clients are refused by it.
const MAGIC: [u8; 8] = *b"shardkv\0";

/// Of the messages. Processes of one job are of one build, so there is no second one to support.
pub(super) const VERSION: u32 = 1;

/// Longest key in bytes.
pub(super) const MOST_KEY: usize = 4 << 10;

/// Longest value in bytes. A topology of a host has some kilobytes, an id of NCCL 128 bytes.
pub(super) const MOST_VALUE: usize = 4 << 20;

/// Bytes of all keys and values.
pub(super) const MOST_STORED: usize = 64 << 20;

/// Largest frame: a value with its key and what surrounds them.
const MOST_FRAME: usize = MOST_VALUE + MOST_KEY + 64;

/// Largest first frame, which is read before anything is known of the other side.
const MOST_HELLO: usize = 4 << 10;

/// The longest time that a connection may take for its first frame, and for the rest of a frame that has
/// begun.
pub(super) const FRAME_TIME: Duration = Duration::from_secs(10);

/// How a connection begins.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) token: String,
    pub(super) program: String,
    pub(super) world_size: u32,
    pub(super) rank: u32,
    /// Of the process, drawn at random: a process may have several connections, a rank only one process.
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
    /// Waits until the key is there.
    Get {
        key: Vec<u8>,
        timeout_ms: u64,
    },
    TryGet {
        key: Vec<u8>,
    },
    /// The process leaves in good order.
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
        /// Ranks that have joined and put no key so far.
        silent: Vec<u32>,
    },
    /// These ranks ended while something was waited for.
    Lost(Vec<u32>),
    Refused(Refusal),
}

/// Begins a connection.
pub(super) fn begin(stream: &mut TcpStream, hello: &Hello) -> io::Result<()> {
    stream.write_all(&[MAGIC.as_slice(), &VERSION.to_le_bytes()].concat())?;
    write(stream, hello)
}

/// The other side's version and greeting; no greeting if the version is another one.
pub(super) fn greeted(stream: &mut TcpStream) -> io::Result<(u32, Option<Hello>)> {
    let (mut magic, mut version) = ([0; 8], [0; 4]);
    stream.read_exact(&mut magic)?;
    if magic != MAGIC {
        return Err(invalid("no member of a job"));
    }
    stream.read_exact(&mut version)?;
    let version = u32::from_le_bytes(version);
    let hello = if version == VERSION { Some(read_at_most(stream, MOST_HELLO)?) } else { None };
    Ok((version, hello))
}

/// Writes a message.
pub(super) fn write<T: Serialize>(stream: &mut TcpStream, message: &T) -> io::Result<()> {
    let body = postcard::to_stdvec(message).map_err(io::Error::other)?;
    if body.len() > MOST_FRAME {
        return Err(invalid("a message is too long"));
    }
    // In one piece, so that it is not delayed for the rest.
    stream.write_all(&[&(body.len() as u32).to_le_bytes(), body.as_slice()].concat())
}

/// Reads a message.
pub(super) fn read<T: DeserializeOwned>(stream: &mut TcpStream) -> io::Result<T> {
    read_at_most(stream, MOST_FRAME)
}

fn read_at_most<T: DeserializeOwned>(stream: &mut TcpStream, most: usize) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > most {
        return Err(invalid("a message is too long"));
    }
    // Grows with what arrives, not with what is announced.
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
