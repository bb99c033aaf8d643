//! The server of the key-value store, with one thread per connection.

use super::protocol::{
    self, FRAME_TIME, Hello, MAX_KEY_BYTES, MAX_STORED_BYTES, MAX_VALUE_BYTES, Request, Response, VERSION,
};
use super::{Job, Refusal, RendezvousError};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of connections per rank. A plugin sends requests from a few threads.
const MAX_CONNECTIONS: usize = 64;

/// Maximum time-out of a request.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// The key-value store of a job. Dropping the server stops it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<SharedStore>,
}

#[derive(Debug)]
struct SharedStore {
    job: Job,
    state: Mutex<StoreState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct StoreState {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Total size of all keys and values, in bytes.
    stored: usize,
    ranks: Vec<Rank>,
    /// Whether all ranks have been in the job at the same time.
    complete: bool,
    connections: usize,
    stopped: bool,
}

#[derive(Debug, Clone, Default)]
struct Rank {
    presence: Presence,
    has_put: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Presence {
    #[default]
    Absent,
    Here {
        process: u64,
        connections: usize,
        from: SocketAddr,
    },
    Left,
    /// The rank's process ended without leaving the job.
    Lost,
}

impl Server {
    /// Listens at `port` (0: any free port). If `host` is the loopback device, the server listens only on
    /// that device. Otherwise it listens on all network devices, since the host's name may belong to another
    /// device than the device that other hosts reach.
    pub fn start(host: &str, port: u16, job: Job) -> Result<Self, RendezvousError> {
        let is_loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let listen = || match is_loopback {
            true => TcpListener::bind((host, port)),
            // On most systems an IPv6 socket also accepts IPv4. Some systems have no IPv6.
            false => TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
                .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))),
        };
        let failed = |cause| RendezvousError::Listen { address: format!("{host}:{port}"), cause };
        let listener = listen().map_err(failed)?;
        let mut address = listener.local_addr().map_err(failed)?;
        if address.ip().is_unspecified() {
            address.set_ip(own_address(address.is_ipv6()));
        }
        let ranks = vec![Rank::default(); job.world_size];
        let state = Mutex::new(StoreState { ranks, ..StoreState::default() });
        let shared = Arc::new(SharedStore { job, state, changed: Condvar::new() });
        let server = Self { address, shared: Arc::clone(&shared) };
        thread::Builder::new()
            .name("rendezvous".into())
            .spawn(move || accept(&listener, &shared))
            .map_err(failed)?;
        Ok(server)
    }

    /// The address at which processes of this host reach the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    #[cfg(test)]
    pub(super) fn shared_job(&self) -> Job {
        self.shared.job.clone()
    }

    /// The ranks that have not joined yet.
    pub fn absent(&self) -> Vec<u32> {
        self.shared.state().ranks_where(|rank| rank.presence == Presence::Absent)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.state().stopped = true;
        self.shared.changed.notify_all();
        // Wakes the accepting thread, which sees `stopped`.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

/// The address at which a host can connect to its own socket that listens on all network interfaces. Some
/// hosts let sockets listen on IPv6 but have no IPv6 address; for them, this is an IPv4 address.
fn own_address(listens_for_ipv6: bool) -> IpAddr {
    let has_ipv6 = || TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    if listens_for_ipv6 && has_ipv6() { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() }
}

fn accept(listener: &TcpListener, shared: &Arc<SharedStore>) {
    for stream in listener.incoming() {
        let mut state = shared.state();
        if state.stopped {
            return;
        }
        let Ok(stream) = stream else {
            // Accepting fails, for example, while too many files are open; it succeeds again when other
            // connections have ended.
            drop(state);
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        if state.connections >= MAX_CONNECTIONS.saturating_mul(shared.job.world_size) {
            continue;
        }
        state.connections += 1;
        drop(state);
        let for_thread = Arc::clone(shared);
        let serve = move || {
            // If `serve` fails, the connection is closed. If it was the rank's last one, the rank is lost.
            let _ = serve(stream, &for_thread);
            for_thread.state().connections -= 1;
        };
        if thread::Builder::new().name("rendezvous".into()).spawn(serve).is_err() {
            shared.state().connections -= 1;
        }
    }
}

/// Keepalive settings that detect a dead host after a minute; with the default settings, detection takes 12
/// minutes.
fn keepalive() -> socket2::TcpKeepalive {
    let alive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(30));
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    let alive = alive.with_interval(Duration::from_secs(10)).with_retries(3);
    alive
}

fn serve(mut stream: TcpStream, shared: &SharedStore) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(FRAME_TIME))?;
    stream.set_read_timeout(Some(FRAME_TIME))?;
    // Keepalive detects a host that has lost power or network.
    socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive())?;
    let from = stream.peer_addr()?;
    let hello = match protocol::read_greeting(&mut stream)? {
        (_, Some(hello)) => hello,
        (ours, None) => {
            let refusal = Refusal::Version { theirs: VERSION, ours };
            return protocol::write(&mut stream, &Response::Refused(refusal));
        }
    };
    if let Err(refusal) = shared.admit(&hello, from) {
        return protocol::write(&mut stream, &Response::Refused(refusal));
    }
    let rank = hello.rank as usize;
    let error = serve_requests(&mut stream, shared, rank);
    shared.close(rank);
    error
}

/// Serves the requests of an admitted member until its connection ends. Returns the error that ended the
/// connection.
fn serve_requests(stream: &mut TcpStream, shared: &SharedStore, rank: usize) -> io::Result<()> {
    protocol::write(stream, &Response::Done)?;
    // A member may send no request for days.
    stream.set_read_timeout(None)?;
    loop {
        let request = protocol::read(stream)?;
        protocol::write(stream, &shared.respond(rank, request))?;
    }
}

impl SharedStore {
    fn state(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self, hello: &Hello, from: SocketAddr) -> Result<(), Refusal> {
        let job = &self.job;
        let world_size = u32::try_from(job.world_size).unwrap_or(u32::MAX);
        if hello.token != job.token {
            return Err(Refusal::Token);
        }
        if hello.program != job.program {
            return Err(Refusal::Program { theirs: job.program.clone(), ours: hello.program.clone() });
        }
        if hello.world_size != world_size {
            return Err(Refusal::WorldSize { theirs: world_size, ours: hello.world_size });
        }
        let mut state = self.state();
        let rank = state.ranks.get_mut(hello.rank as usize).ok_or(Refusal::Rank)?;
        match &mut rank.presence {
            Presence::Here { process, connections, .. } if *process == hello.process => *connections += 1,
            Presence::Here { from, .. } => return Err(Refusal::Taken(from.to_string())),
            Presence::Left | Presence::Lost => return Err(Refusal::Left),
            presence @ Presence::Absent => {
                *presence = Presence::Here { process: hello.process, connections: 1, from };
                // `complete` stays true, since a rank may leave before another rank sends its request to
                // join.
                let is_here = |rank: &Rank| matches!(rank.presence, Presence::Here { .. });
                state.complete |= state.ranks.iter().all(is_here);
                drop(state);
                self.changed.notify_all();
            }
        }
        Ok(())
    }

    fn close(&self, rank: usize) {
        let mut state = self.state();
        if let Some(Rank { presence, .. }) = state.ranks.get_mut(rank)
            && let Presence::Here { connections, .. } = presence
        {
            *connections -= 1;
            if *connections == 0 {
                *presence = Presence::Lost;
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    fn respond(&self, rank: usize, request: Request) -> Response {
        match request {
            Request::Join { timeout_ms } => {
                self.wait(timeout_ms, |state| if state.complete { Some(Response::Done) } else { None })
            }
            Request::Get { key, timeout_ms } => self.wait(timeout_ms, |state| state.value(&key)),
            Request::TryGet { key } => self.state().value(&key).unwrap_or(Response::NotFound),
            Request::Put { key, value } => {
                let put = self.state().put(rank, key, value);
                self.changed.notify_all();
                put.map_or_else(Response::Refused, |()| Response::Done)
            }
            Request::Leave => {
                if let Some(rank) = self.state().ranks.get_mut(rank) {
                    rank.presence = Presence::Left;
                }
                Response::Done
            }
        }
    }

    /// Waits until `response` returns a response, a rank is lost, or the time-out is over.
    fn wait(&self, timeout_ms: u64, response: impl Fn(&StoreState) -> Option<Response>) -> Response {
        let until = Instant::now() + Duration::from_millis(timeout_ms).min(LONGEST_WAIT);
        let mut state = self.state();
        loop {
            if let Some(response) = response(&state) {
                return response;
            }
            let lost = state.ranks_where(|rank| rank.presence == Presence::Lost);
            if !lost.is_empty() {
                return Response::Lost(lost);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || state.stopped {
                return Response::TimedOut {
                    absent: state.ranks_where(|rank| rank.presence == Presence::Absent),
                    silent: state.ranks_where(|rank| rank.presence != Presence::Absent && !rank.has_put),
                };
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl StoreState {
    fn ranks_where(&self, matches: impl Fn(&Rank) -> bool) -> Vec<u32> {
        (0..).zip(&self.ranks).filter(|(_, rank)| matches(rank)).map(|(number, _)| number).collect()
    }

    fn value(&self, key: &[u8]) -> Option<Response> {
        self.values.get(key).map(|value| Response::Value(value.clone()))
    }

    fn put(&mut self, rank: usize, key: Vec<u8>, value: Vec<u8>) -> Result<(), Refusal> {
        for (length, max) in [(key.len(), MAX_KEY_BYTES), (value.len(), MAX_VALUE_BYTES)] {
            if length > max {
                return Err(Refusal::Full(max as u64));
            }
        }
        match self.values.get(&key) {
            Some(stored) if *stored != value => return Err(Refusal::Exists),
            Some(_) => {}
            None => {
                let stored = self.stored + key.len() + value.len();
                if stored > MAX_STORED_BYTES {
                    return Err(Refusal::Full(MAX_STORED_BYTES as u64));
                }
                self.stored = stored;
                self.values.insert(key, value);
            }
        }
        if let Some(rank) = self.ranks.get_mut(rank) {
            rank.has_put = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_reaches_its_own_server() {
        let shared = Job { token: "t".into(), program: "p".into(), world_size: 1 };
        // "some-host" does not name the loopback device, so the server listens on all network devices.
        let server = Server::start("some-host", 0, shared).unwrap();
        TcpStream::connect(server.address()).unwrap();
        assert!(own_address(false).is_ipv4());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_dead_host_is_detected_within_a_minute() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = socket2::SockRef::from(&stream);
        socket.set_tcp_keepalive(&keepalive()).unwrap();
        let (time, interval) =
            (socket.tcp_keepalive_time().unwrap(), socket.tcp_keepalive_interval().unwrap());
        assert!(time + interval * socket.tcp_keepalive_retries().unwrap() <= Duration::from_secs(60));
    }
}
