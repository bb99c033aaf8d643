//! Tests with a server and its members in one process.

use super::{Job, Member, Refusal, RendezvousError, Server};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_millis(200);
const LATE: Duration = Duration::from_secs(30);

fn job(world_size: usize) -> Job {
    Job { token: "token".into(), program: "resnet8".into(), world_size }
}

fn server(world_size: usize) -> Server {
    Server::start("127.0.0.1", 0, job(world_size)).unwrap()
}

fn join(server: &Server, rank: usize, timeout: Duration) -> Result<Member, RendezvousError> {
    Member::join(&server.address().to_string(), server.shared_job(), rank, timeout)
}

/// Joins all ranks of a job.
fn all(server: &Server, world_size: usize) -> Vec<Member> {
    thread::scope(|scope| {
        let ranks: Vec<_> =
            (0..world_size).map(|rank| scope.spawn(move || join(server, rank, LATE).unwrap())).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn each_rank_gets_the_values_of_the_others() {
    const RANKS: usize = 5;
    let server = server(RANKS);
    let members = all(&server, RANKS);
    thread::scope(|scope| {
        for (rank, member) in members.iter().enumerate() {
            scope.spawn(move || {
                // Higher ranks start first, and wait for keys of lower ranks that are not stored yet.
                thread::sleep(Duration::from_millis(20 * (RANKS - rank) as u64));
                member.put(format!("k{rank}").as_bytes(), &[0, rank as u8, 255]).unwrap();
                thread::scope(|gets| {
                    for other in 0..RANKS {
                        let get = move || member.get(format!("k{other}").as_bytes(), LATE).unwrap();
                        gets.spawn(move || assert_eq!(get(), [0, other as u8, 255]));
                    }
                });
            });
        }
    });
    let member = &members[1];
    assert_eq!(member.try_get(b"k4").unwrap().unwrap(), [0, 4, 255]);
    assert_eq!(member.try_get(b"no").unwrap(), None);
    member.put(b"\xff\0", b"").unwrap();
    assert!(members[0].get(b"\xff\0", LATE).unwrap().is_empty());
}

#[test]
fn waiting_for_a_key_ends_at_the_time_out_with_an_error_that_names_the_silent_rank() {
    let server = server(3);
    let members = all(&server, 3);
    members[0].put(b"topology/0", b"a").unwrap();
    members[2].put(b"topology/2", b"a").unwrap();
    let start = Instant::now();
    let error = members[2].get(b"topology/1", SOON).unwrap_err();
    assert!(start.elapsed() >= SOON && start.elapsed() < LATE);
    let text = error.to_string();
    assert!(text.contains("rank 2 has waited 0.2 s for the key \"topology/1\""), "{text}");
    assert!(text.contains("rank 1 has put no key yet"), "{text}");
    assert_eq!(error.code().to_string(), "deadline exceeded");
}

#[test]
fn the_error_of_a_job_that_is_not_complete_names_the_absent_ranks() {
    let server = server(4);
    let error = thread::scope(|scope| {
        let other = scope.spawn(|| join(&server, 2, LATE));
        let error = join(&server, 0, SOON).unwrap_err();
        // A rank that stops waiting counts as lost, and the other ranks get an error that names it.
        let other = other.join().unwrap().unwrap_err();
        assert!(matches!(&other, RendezvousError::Lost { lost, .. } if *lost == [0]), "{other}");
        error
    });
    assert!(error.to_string().contains("and ranks 1 and 3 have not joined"), "{error}");
    assert_eq!(server.absent(), [1, 3]);
}

#[test]
fn an_address_without_a_server_is_an_error_after_the_time_out() {
    let address = server(1).address().to_string();
    let start = Instant::now();
    let error = Member::join(&address, job(1), 3, Duration::from_millis(500)).unwrap_err();
    assert!(matches!(error, RendezvousError::Unreachable { rank: 3, .. }), "{error}");
    assert!(error.to_string().contains(&address) && start.elapsed() < LATE);
}

#[test]
fn processes_of_other_jobs_and_duplicate_ranks_are_refused() {
    let server = server(2);
    let address = server.address().to_string();
    let refused = |change: fn(&mut Job), rank| {
        let mut other = job(2);
        change(&mut other);
        match Member::join(&address, other, rank, SOON).unwrap_err() {
            RendezvousError::Refused { refusal, .. } => refusal,
            error => panic!("{error}"),
        }
    };
    assert_eq!(refused(|job| job.token.push('2'), 0), Refusal::Token);
    assert!(matches!(refused(|job| job.program.push('0'), 0), Refusal::Program { .. }));
    assert!(matches!(refused(|job| job.world_size = 3, 0), Refusal::WorldSize { theirs: 2, ours: 3 }));
    assert_eq!(refused(|_| {}, 2), Refusal::Rank);
    let members = all(&server, 2);
    assert!(matches!(refused(|_| {}, 1), Refusal::Taken(_)));
    drop(members);
    assert_eq!(refused(|_| {}, 1), Refusal::Left);
}

#[test]
fn clients_that_are_not_members_are_disconnected() {
    let server = server(1);
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"shardkv\0\x01\0\0\0\xff\xff\xff\xff", &[0; 64]] {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(bytes).unwrap();
        let mut rest = Vec::new();
        // The server may also reset the connection.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{rest:?}");
    }
    let mut other = TcpStream::connect(server.address()).unwrap();
    other.write_all(b"shardkv\0\x02\0\0\0").unwrap();
    let response: super::protocol::Response = super::protocol::read(&mut other).unwrap();
    let text = format!("{response:?}");
    assert!(text.contains("Version { theirs: 1, ours: 2 }"), "{text}");
    assert_eq!(all(&server, 1).len(), 1);
}

#[test]
fn a_value_is_not_changed_and_sizes_are_limited() {
    let server = server(1);
    let member = &all(&server, 1)[0];
    member.put(b"k", b"v").unwrap();
    member.put(b"k", b"v").unwrap();
    let refusal = |result: Result<(), RendezvousError>| match result.unwrap_err() {
        RendezvousError::Refused { refusal, .. } => refusal,
        error => panic!("{error}"),
    };
    assert_eq!(refusal(member.put(b"k", b"w")), Refusal::Exists);
    assert!(matches!(refusal(member.put(&[b'k'; 5000], b"")), Refusal::Full(4096)));
    assert!(matches!(refusal(member.put(b"l", &vec![0; (4 << 20) + 1])), Refusal::Full(_)));
    member.put(b"l", &vec![7; 4 << 20]).unwrap();
    assert_eq!(member.get(b"l", LATE).unwrap().len(), 4 << 20);
    // All keys and values together may have at most 64 MiB.
    let full =
        (0..64).map(|n| member.put(format!("m{n}").as_bytes(), &vec![7; 4 << 20])).find(Result::is_err);
    assert!(matches!(refusal(full.unwrap()), Refusal::Full(_)));
}

#[test]
fn a_rank_that_ends_without_leaving_ends_the_wait_of_the_others() {
    let server = server(3);
    let mut members = all(&server, 3);
    let lost = members.pop().unwrap();
    let leaving = members.pop().unwrap();
    let member = &members[0];
    // A rank that leaves does not end the wait.
    drop(leaving);
    assert!(matches!(member.get(b"k", SOON), Err(RendezvousError::TimedOut { .. })));
    thread::scope(|scope| {
        let start = Instant::now();
        let get = scope.spawn(|| member.get(b"k", LATE));
        lost.vanish();
        let error = get.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("rank 0 waited for the key \"k\", rank 2 has ended"), "{error}");
        assert!(start.elapsed() < LATE / 2);
    });
}

#[test]
fn requests_fail_at_once_after_the_server_has_ended() {
    let server = server(1);
    let member = all(&server, 1).pop().unwrap();
    drop(server);
    let start = Instant::now();
    assert!(member.get(b"k", LATE).is_err());
    drop(member);
    assert!(start.elapsed() < LATE / 2);
}

#[test]
fn a_restarted_rank_waits_for_the_server_of_its_run() {
    let before = server(2);
    let port = before.address().port();
    drop(all(&before, 2));
    let address = before.address().to_string();
    thread::scope(|scope| {
        let ranks = [0, 1].map(|rank| {
            let address = &address;
            scope.spawn(move || Member::join(address, job(2), rank, LATE).unwrap())
        });
        thread::sleep(SOON * 2);
        drop(before);
        let start = Instant::now();
        let _after = loop {
            match Server::start("127.0.0.1", port, job(2)) {
                Ok(server) => break server,
                Err(error) => assert!(start.elapsed() < LATE, "{error}"),
            }
            thread::sleep(Duration::from_millis(10));
        };
        for rank in ranks {
            drop(rank.join().unwrap());
        }
    });
}

#[test]
fn ranks_that_start_at_another_step_are_refused() {
    let server = server(3);
    let members = all(&server, 3);
    thread::scope(|scope| {
        let agree = |rank: usize, run: &'static str| {
            let member = &members[rank];
            scope.spawn(move || member.agree(run, LATE))
        };
        let [same, other] = [agree(1, "step 100"), agree(2, "step 120")];
        members[0].agree("step 100", LATE).unwrap();
        same.join().unwrap().unwrap();
        let error = other.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("rank 0 trains step 100, and this process step 120"), "{error}");
    });
}
