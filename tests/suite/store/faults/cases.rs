//! The test cases. In each case, a server responds to the requests for one object in a faulty or unusual way.

use crate::support::server::{Ending, Framing, Reply, Request};
use crate::support::{archive, noise};
use shardstream::{ErrorKind, Sample};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Bytes per request, so that a shard takes several ranges.
pub(super) const RANGE: usize = 2000;
/// The longest silence within a response. It is short, so a busy machine may exceed it too; the client then
/// retries.
pub(super) const STALL: Duration = Duration::from_millis(500);

/// The original shard (version 0) or the changed shard (version 1). The two shards differ in every sample.
pub(super) fn shard(version: usize) -> Vec<u8> {
    let sample = |n: usize| {
        let sample = Sample::new(format!("{n:03}")).with("bin", noise(300 + 200 * n + version));
        if n == 2 { sample } else { sample.with("cls", (10 * n + version) as i64) }
    };
    let mut shard = archive(&[sample(0), sample(1), sample(2)]);
    // Leaves out the padding after the end marker.
    let end = shard.iter().rposition(|byte| *byte != 0).unwrap_or_default();
    shard.truncate((end + 1).next_multiple_of(512) + 1024);
    shard
}

pub(super) type Kinds = fn(&ErrorKind) -> bool;

/// Kinds of transient faults.
const PASSING: Kinds =
    |kind| matches!(kind, ErrorKind::Io(_) | ErrorKind::Length { .. } | ErrorKind::Busy { .. });
const REFUSED: Kinds = |kind| matches!(kind, ErrorKind::Store(_));
const CHANGED: Kinds = |kind| matches!(kind, ErrorKind::Changed { .. });
const TRUNCATED: Kinds = |kind| matches!(kind, ErrorKind::Truncated { .. });

/// The expected result of reading a case.
#[derive(Clone, Copy)]
pub(super) enum Expected {
    Samples,
    Error(Kinds),
    /// The samples of either version, or an error of one of these kinds.
    Either(Kinds),
}

use Expected::{Either, Samples};

/// Makes the reply to a request, given the number of earlier requests for the same object.
type Answer = Box<dyn Fn(&Request, usize) -> Reply + Send + Sync>;

pub(super) struct Case {
    pub(super) name: String,
    pub(super) answer: Answer,
    pub(super) expected: Expected,
}

fn case(
    name: impl Into<String>,
    expected: Expected,
    answer: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static,
) -> Case {
    Case { name: format!("{}.tar", name.into()), answer: Box::new(answer), expected }
}

fn tag(version: usize) -> String {
    format!("\"v{version}\"")
}

fn honest(request: &Request, content: &[u8]) -> Reply {
    Reply::object(request, content, &tag(0))
}

/// A reply without anything that identifies a version.
fn unversioned(request: &Request, content: &[u8]) -> Reply {
    honest(request, content).without("ETag").without("Last-Modified")
}

/// Cuts a reply just before byte `at` of the object, if the reply contains that byte.
fn cut(reply: Reply, request: &Request, at: usize) -> Option<Reply> {
    let start = if reply.status == 206 { request.range()?.0 } else { 0 };
    (start..start + reply.body.len()).contains(&at).then(|| reply.cut(at - start))
}

/// Cuts the first response that contains byte `at`, just before that byte. A third of the cuts are TCP
/// resets.
fn cut_once(
    name: String,
    expected: Expected,
    content: Vec<u8>,
    at: usize,
    good: fn(&Request, &[u8]) -> Reply,
) -> Case {
    let done = AtomicBool::new(false);
    let ending = if at.is_multiple_of(3) { Ending::Reset } else { Ending::Closed };
    case(name, expected, move |request, _| {
        let reply = good(request, &content);
        match cut(reply.clone(), request, at) {
            Some(reply) if !done.swap(true, Ordering::SeqCst) => reply.ending(ending),
            _ => reply,
        }
    })
}

/// The offsets at which responses are cut. If `SHARDSTREAM_CASES` is set, all offsets; otherwise one offset
/// in seven, and the offsets just before and after the boundaries of blocks and requests.
fn places(length: usize) -> impl Iterator<Item = usize> {
    let all = std::env::var_os("SHARDSTREAM_CASES").is_some();
    let border = |at: usize, of: usize| (at + 1) % of < 3;
    (0..length).filter(move |at| all || at % 7 == 0 || border(*at, 512) || border(*at, RANGE))
}

fn cuts() -> Vec<Case> {
    let content = shard(0);
    let cut = |at| cut_once(format!("at-{at}"), Samples, content.clone(), at, honest);
    places(content.len()).map(cut).collect()
}

/// Cut responses for an object without a version: nothing shows whether the rest of the bytes, in a second
/// response, is from the same object.
fn cuts_without_version() -> Vec<Case> {
    let content = shard(0);
    let expected = Either(|kind| PASSING(kind) || REFUSED(kind));
    let cut = |at| cut_once(format!("at-{at}"), expected, content.clone(), at, unversioned);
    places(content.len()).map(cut).collect()
}

/// Bodies without a length, so that a truncated body may look complete.
fn cuts_without_length() -> Vec<Case> {
    let expected = Either(|kind| PASSING(kind) || REFUSED(kind) || TRUNCATED(kind));
    let framings = [Framing::Chunked, Framing::Close].into_iter();
    let cases = framings.flat_map(|framing| (0..shard(0).len()).step_by(97).map(move |at| (framing, at)));
    let cut = |(framing, at)| {
        case(format!("{framing:?}-at-{at}").to_lowercase(), expected, move |_, number| {
            let reply = Reply::new(200, shard(0)).framed(framing);
            if number < 2 { reply.cut(at) } else { reply }
        })
    };
    cases.map(cut).collect()
}

/// Responses with a range that was not requested. The client may then request the whole object instead.
fn lies() -> Vec<Case> {
    let mut cases = Vec::new();
    for from in 0..3 {
        let mut lie = |name: &str, expected, lie: fn(&Request, Reply) -> Reply| {
            cases.push(case(format!("{name}-{from}"), expected, move |request, number| {
                let reply = honest(request, &shard(0));
                if number < from || reply.status != 206 { reply } else { lie(request, reply) }
            }));
        };
        lie("shifted", Either(REFUSED), |request, reply| {
            let (first, _) = request.range().unwrap();
            let (first, last) = (first + 1, first + reply.body.len());
            let size = shard(0).len();
            reply.without("Content-Range").with("Content-Range", format!("bytes {first}-{last}/{size}"))
        });
        lie("nameless", Either(REFUSED), |_, reply| reply.without("Content-Range"));
        lie("long", Either(REFUSED), |_, mut reply| {
            reply.body.push(0);
            reply
        });
        lie("grown", Either(CHANGED), |request, reply| {
            let (first, _) = request.range().unwrap();
            let (last, size) = (first + reply.body.len() - 1, shard(0).len() + 1 + first);
            reply.without("Content-Range").with("Content-Range", format!("bytes {first}-{last}/{size}"))
        });
    }
    cases
}

/// Another version replaces the object between two requests, or between a broken body and the request for
/// the missing bytes.
fn changes() -> Vec<Case> {
    let mut cases = Vec::new();
    let versioned: fn(&Request, usize) -> Reply =
        |request, version| Reply::object(request, &shard(version), &tag(version));
    let careless: fn(&Request, usize) -> Reply = |request, version| {
        let mut request = request.clone();
        request.headers.retain(|(name, _)| name != "if-match");
        Reply::object(&request, &shard(version), &tag(version))
    };
    let nameless: fn(&Request, usize) -> Reply = |request, version| unversioned(request, &shard(version));
    for (name, answer) in [("412", versioned), ("careless", careless), ("nameless", nameless)] {
        let expected = Either(|kind| CHANGED(kind) || PASSING(kind) || REFUSED(kind));
        for from in 0..4 {
            cases.push(case(format!("{name}-from-{from}"), expected, move |request, number| {
                answer(request, usize::from(number >= from))
            }));
        }
        for at in (0..shard(0).len()).step_by(211) {
            let done = AtomicBool::new(false);
            cases.push(case(format!("{name}-at-{at}"), expected, move |request, _| {
                if done.load(Ordering::SeqCst) {
                    return answer(request, 1);
                }
                let reply = answer(request, 0);
                let cut = cut(reply.clone(), request, at);
                done.store(cut.is_some(), Ordering::SeqCst);
                cut.unwrap_or(reply)
            }));
        }
    }
    cases
}

/// Servers that fail or refuse requests, for a while or always.
fn storms() -> Vec<Case> {
    let mut cases = Vec::new();
    for status in [429, 500, 502, 503, 504] {
        for wait in [None, Some("0")] {
            let busy = move || match wait {
                None => Reply::new(status, "busy"),
                Some(seconds) => Reply::new(status, "busy").with("Retry-After", seconds),
            };
            let asked = wait.is_some();
            cases.push(case(format!("{status}-{asked}-at-first"), Samples, move |request, number| {
                if number < 2 { busy() } else { honest(request, &shard(0)) }
            }));
            cases.push(case(format!("{status}-{asked}-every-third"), Samples, move |request, number| {
                if number % 3 == 1 { busy() } else { honest(request, &shard(0)) }
            }));
        }
    }
    cases
}

fn endless() -> Vec<Case> {
    let failed = Expected::Error(|kind| PASSING(kind) || REFUSED(kind));
    let mut cases = vec![
        case("503", failed, |_, _| Reply::new(503, "down")),
        case("503-after-one", failed, |request, number| match number {
            0 => honest(request, &shard(0)),
            _ => Reply::new(503, "down"),
        }),
        case("redirected", failed, |request, _| Reply::new(302, "").with("Location", &request.target)),
    ];
    for at in [0, 1, 511, 1999, 2000, 4321] {
        cases.push(case(format!("cut-at-{at}"), Expected::Error(PASSING), move |request, _| {
            let reply = honest(request, &shard(0));
            cut(reply.clone(), request, at).unwrap_or(reply)
        }));
    }
    cases
}

/// Unusual or slow responses that are valid.
fn oddities() -> Vec<Case> {
    let short = |request: &Request, number: usize| {
        let mut reply = honest(request, &shard(0));
        if number.is_multiple_of(2) {
            reply.body.truncate(reply.body.len().div_ceil(2));
        }
        reply
    };
    let redirected = |request: &Request, _: usize| match request.query() {
        "again" => honest(request, &shard(0)),
        _ => Reply::new(302, "").with("Location", format!("{}?again", request.path())),
    };
    vec![
        case("short", Samples, short),
        case("redirected", Either(REFUSED), redirected),
        case("dripping", Samples, |request, _| {
            honest(request, &shard(0)).dripping(100, Duration::from_millis(1))
        }),
        case("whole", Samples, |request, _| {
            let mut request = request.clone();
            request.headers.retain(|(name, _)| name != "range");
            honest(&request, &shard(0))
        }),
    ]
}

/// Objects that were truncated before they were stored. The server is correct.
fn truncated() -> Vec<Case> {
    let size = shard(0).len();
    let plain = (0..size).step_by(64).chain([size - 1]).map(|at| {
        let content = shard(0)[..at].to_vec();
        let expected = if at < size - 1024 { Expected::Error(TRUNCATED) } else { Either(TRUNCATED) };
        case(format!("plain-{at}"), expected, move |request, _| honest(request, &content))
    });
    plain.collect()
}

#[cfg(feature = "gzip")]
fn compressed() -> Vec<Case> {
    use std::io::Write as _;

    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&shard(0)).unwrap();
    let compressed = encoder.finish().unwrap();
    let mut cases = Vec::new();
    for at in (0..compressed.len()).step_by(37).chain([compressed.len() - 1]) {
        let truncated = compressed[..at].to_vec();
        let failed = Expected::Error(|kind| matches!(kind, ErrorKind::Decompress { .. }) || TRUNCATED(kind));
        cases.push(case(format!("truncated-{at}"), failed, move |request, _| honest(request, &truncated)));
        cases.push(cut_once(format!("cut-{at}"), Samples, compressed.clone(), at, honest));
    }
    for case in &mut cases {
        case.name.push_str(".gz");
    }
    cases
}

/// Right and wrong checksums of whole objects, in headers of Google Cloud Storage and in standard headers.
fn checksums() -> Vec<Case> {
    let damaged = Expected::Error(|kind| matches!(kind, ErrorKind::Damaged { .. }));
    let mut cases = Vec::new();
    for (name, header, before) in
        [("google", "x-goog-hash", "crc32c="), ("digest", "Repr-Digest", "crc32c=:")]
    {
        for (right, expected) in [(true, Samples), (false, damaged)] {
            cases.push(case(format!("{name}-{right}"), expected, move |request, _| {
                let (content, after) = (shard(0), if before.ends_with(':') { ":" } else { "" });
                let sum = crc32c::crc32c(&content) ^ u32::from(!right);
                honest(request, &content).with(header, format!("{before}{}{after}", base64(sum)))
            }));
        }
    }
    cases
}

fn base64(sum: u32) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |shift: u32| char::from(DIGITS[(u64::from(sum) << 4 >> shift) as usize & 63]);
    [30, 24, 18, 12, 6, 0].into_iter().map(digit).chain("==".chars()).collect()
}

/// Responses that do not begin, or that stop midway. The connection stays open.
fn stalls() -> Vec<Case> {
    const LONG: Duration = Duration::from_secs(60);
    let stall = |at: usize| {
        let done = AtomicBool::new(false);
        case(format!("at-{at}"), Samples, move |request, _| {
            let reply = honest(request, &shard(0));
            match cut(reply.clone(), request, at) {
                Some(reply) if !done.swap(true, Ordering::SeqCst) => reply.ending(Ending::Silent(LONG)),
                _ => reply,
            }
        })
    };
    let mut cases: Vec<_> = [0, 1, 700, 1999, 2000, 2500, 5000].into_iter().map(stall).collect();
    for number in 0..3 {
        cases.push(case(format!("silent-{number}"), Samples, move |request, before| {
            if before == number {
                thread::sleep(3 * STALL);
            }
            honest(request, &shard(0))
        }));
    }
    let failed = Expected::Error(PASSING);
    cases.push(case("for-ever", failed, |request, _| {
        honest(request, &shard(0)).cut(300).ending(Ending::Silent(LONG))
    }));
    cases.push(case("as-good-as", Either(PASSING), |request, _| {
        honest(request, &shard(0)).dripping(1, Duration::from_millis(50))
    }));
    cases
}

pub(super) fn cases(group: &str) -> Vec<Case> {
    match group {
        "cuts" => cuts(),
        "cuts_without_version" => cuts_without_version(),
        "cuts_without_length" => cuts_without_length(),
        "lies" => lies(),
        "changes" => changes(),
        "storms" => storms(),
        "endless" => endless(),
        "oddities" => oddities(),
        "truncated" => truncated(),
        #[cfg(feature = "gzip")]
        "compressed" => compressed(),
        "stalls" => stalls(),
        "checksums" => checksums(),
        other => panic!("no cases {other}"),
    }
}
