//! The server: one thread for each connection, one map for all.

use super::protocol::{
    self, FRAME_TIME, Hello, MOST_KEY, MOST_STORED, MOST_VALUE, Request, Response, VERSION,
};
use super::{Error, Job, Refusal, Result};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Connections of each rank at once. A plugin asks from a few threads.
const MOST_CONNECTIONS: usize = 64;

/// No time-out is longer.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// The key-value store of a job. It is served until this is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    job: Job,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    stored: usize,
    ranks: Vec<Rank>,
    /// All ranks were here at the same time.
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
    /// Ended without leaving.
    Lost,
}

impl Server {
    /// Listens at a port, of which 0 is any free one: on the loopback device alone if `host` is that, else on
    /// all, as the name of a host need not be that of the device by which others reach it.
    pub fn start(host: &str, port: u16, job: Job) -> Result<Self> {
        let loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let listen = || match loopback {
            true => TcpListener::bind((host, port)),
            // Most systems take IPv4 there too; some have no IPv6.
            false => TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
                .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))),
        };
        let failed = |cause| Error::Listen { address: format!("{host}:{port}"), cause };
        let listener = listen().map_err(failed)?;
        let mut address = listener.local_addr().map_err(failed)?;
        if address.ip().is_unspecified() {
            address.set_ip(own_address(address.is_ipv6()));
        }
        let ranks = vec![Rank::default(); job.world_size];
        let state = Mutex::new(State { ranks, ..State::default() });
        let shared = Arc::new(Shared { job, state, changed: Condvar::new() });
        let for_all = Arc::clone(&shared);
        thread::Builder::new()
            .name("rendezvous".into())
            .spawn(move || accept(&listener, &for_all))
            .map_err(failed)?;
        Ok(Self { address, shared })
    }

    /// Where processes of this host reach it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    #[cfg(test)]
    pub(super) fn shared_job(&self) -> Job {
        self.shared.job.clone()
    }

    /// The ranks that have not joined so far.
    pub fn absent(&self) -> Vec<u32> {
        self.shared.state().which(|rank| rank.presence == Presence::Absent)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.state().stopped = true;
        self.shared.changed.notify_all();
        // Wakes the thread that accepts, which sees that it is over.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

/// The address by which a host reaches what listens on all of its devices. A host may let a socket listen for
/// IPv6 and have no address of it, not even its own: then only IPv4 gets there.
fn own_address(listens_for_ipv6: bool) -> IpAddr {
    let has_ipv6 = || TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    if listens_for_ipv6 && has_ipv6() { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        let mut state = shared.state();
        if state.stopped {
            return;
        }
        let Ok(stream) = stream else {
            // Out of files, for example: others may end meanwhile.
            drop(state);
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        if state.connections >= MOST_CONNECTIONS.saturating_mul(shared.job.world_size) {
            continue;
        }
        state.connections += 1;
        drop(state);
        let own = Arc::clone(shared);
        let serve = move || {
            // A connection that breaks is seen as a rank that is lost.
            let _ = serve(stream, &own);
            own.state().connections -= 1;
        };
        if thread::Builder::new().name("rendezvous".into()).spawn(serve).is_err() {
            shared.state().connections -= 1;
        }
    }
}

/// A host that does not answer any more is noticed after a minute, where the defaults take 12.
fn alive() -> socket2::TcpKeepalive {
    let alive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(30));
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    let alive = alive.with_interval(Duration::from_secs(10)).with_retries(3);
    alive
}

fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(FRAME_TIME))?;
    stream.set_read_timeout(Some(FRAME_TIME))?;
    // So that a host that has lost its power is noticed.
    socket2::SockRef::from(&stream).set_tcp_keepalive(&alive())?;
    let from = stream.peer_addr()?;
    let hello = match protocol::greeted(&mut stream)? {
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
    let mut ended = protocol::write(&mut stream, &Response::Done);
    // A member may be silent for days.
    ended = ended.and_then(|()| stream.set_read_timeout(None));
    while ended.is_ok() {
        ended = protocol::read(&mut stream)
            .and_then(|request| protocol::write(&mut stream, &shared.answer(rank, request)));
    }
    shared.close(rank);
    ended
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self, hello: &Hello, from: SocketAddr) -> std::result::Result<(), Refusal> {
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
                // One that has joined may be done and gone before another one asks.
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

    fn answer(&self, rank: usize, request: Request) -> Response {
        match request {
            Request::Join { timeout_ms } => {
                self.wait(timeout_ms, |state| state.complete.then_some(Response::Done))
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

    /// Waits until there is a response, a rank is lost, or the time is over.
    fn wait(&self, timeout_ms: u64, response: impl Fn(&State) -> Option<Response>) -> Response {
        let until = Instant::now() + Duration::from_millis(timeout_ms).min(LONGEST_WAIT);
        let mut state = self.state();
        loop {
            if let Some(response) = response(&state) {
                return response;
            }
            let lost = state.which(|rank| rank.presence == Presence::Lost);
            if !lost.is_empty() {
                return Response::Lost(lost);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || state.stopped {
                return Response::TimedOut {
                    absent: state.which(|rank| rank.presence == Presence::Absent),
                    silent: state.which(|rank| rank.presence != Presence::Absent && !rank.has_put),
                };
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    fn which(&self, is: impl Fn(&Rank) -> bool) -> Vec<u32> {
        (0..).zip(&self.ranks).filter(|(_, rank)| is(rank)).map(|(number, _)| number).collect()
    }

    fn value(&self, key: &[u8]) -> Option<Response> {
        self.values.get(key).map(|value| Response::Value(value.clone()))
    }

    fn put(&mut self, rank: usize, key: Vec<u8>, value: Vec<u8>) -> std::result::Result<(), Refusal> {
        for (length, most) in [(key.len(), MOST_KEY), (value.len(), MOST_VALUE)] {
            if length > most {
                return Err(Refusal::Full(most as u64));
            }
        }
        match self.values.get(&key) {
            Some(there) if *there != value => return Err(Refusal::Exists),
            Some(_) => {}
            None => {
                let stored = self.stored + key.len() + value.len();
                if stored > MOST_STORED {
                    return Err(Refusal::Full(MOST_STORED as u64));
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
        // A name that is not that of the loopback device.
        let server = Server::start("some-host", 0, shared).unwrap();
        TcpStream::connect(server.address()).unwrap();
        assert!(own_address(false).is_ipv4());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_silent_host_is_noticed_within_a_minute_or_so() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = socket2::SockRef::from(&stream);
        socket.set_tcp_keepalive(&alive()).unwrap();
        let (time, interval) =
            (socket.tcp_keepalive_time().unwrap(), socket.tcp_keepalive_interval().unwrap());
        assert!(time + interval * socket.tcp_keepalive_retries().unwrap() <= Duration::from_secs(60));
    }
}
