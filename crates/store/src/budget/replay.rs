//! Replays a recording of requests through the schedule and the tuner, in virtual time and without a network.
//!
//! The recording becomes a model of the network. Each simulated request waits for its first byte as long as
//! the next recorded request did, or fails as that request did. Its bytes then arrive at the rate of one
//! connection, or at an equal share of the link's rate if that is less. The rate of a connection is the 90th
//! percentile of the recorded responses. The rate of the link is the highest rate in the recording over a
//! quarter of a second. So a replay can estimate the throughput for any number of requests, but no throughput
//! above the highest rate in the recording. Readers take bytes as soon as they arrive.

use super::schedule::ObjectId;
use super::tuner::ConcurrencyTuner;
use super::{BYTES, BudgetState, CONNECTIONS};
use crate::recording::{RecordedRequest, RequestOutcome, parse};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

/// The requests of the first stage of `shardstream bench --record -j 4`, recorded over a link of 200 Mbit/s
/// with a round trip of 40 ms. The server limits each connection to 4 MB/s.
const RECORDING: &str = include_str!("../../tests/data/requests.jsonl");

/// Number of readers. Each reader has its own queue.
const READERS: u64 = 4;
/// Size of each object in bytes.
const OBJECT: u64 = 100 << 20;
/// Number of objects that are requested ahead of each reader.
const AHEAD: u64 = 16;
/// Interval over which the rate of the link is measured, in seconds.
const INTERVAL: f64 = 0.25;
/// Simulated time in seconds.
const SECONDS: f64 = 30.0;
/// Pause before a failed request is sent again.
const PAUSE: f64 = 0.1;

/// The network that a recording describes. Times are in seconds, rates in bytes per second.
struct Link {
    waits: Vec<Wait>,
    connection: f64,
    capacity: f64,
}

/// The time until a response begins, and whether it is a refusal.
#[derive(Clone, Copy)]
struct Wait {
    time: f64,
    is_busy: bool,
}

impl Link {
    fn of(requests: &[RecordedRequest]) -> Link {
        let mut requests: Vec<&RecordedRequest> = requests.iter().collect();
        requests.sort_by_key(|request| request.start);
        let wait = |request: &&RecordedRequest| match (request.outcome, request.first_byte) {
            (RequestOutcome::Busy, _) => Some(Wait { time: request.duration.as_secs_f64(), is_busy: true }),
            (_, Some(time)) => Some(Wait { time: time.as_secs_f64(), is_busy: false }),
            _ => None,
        };
        let waits = requests.iter().filter_map(wait).collect();
        let (mut rates, mut intervals) = (Vec::new(), Vec::new());
        for request in requests {
            let (Some(first_byte), 1..) = (request.first_byte, request.bytes) else { continue };
            let (begin, end) = (request.start + first_byte, request.start + request.duration);
            let (begin, end) = (begin.as_secs_f64(), end.as_secs_f64().max(begin.as_secs_f64() + 1e-6));
            let rate = request.bytes as f64 / (end - begin);
            rates.push(rate);
            let last = (end / INTERVAL) as usize;
            intervals.resize(intervals.len().max(last + 1), 0.0);
            for (number, bytes) in intervals.iter_mut().enumerate() {
                let at = number as f64 * INTERVAL;
                *bytes += rate * (end.min(at + INTERVAL) - begin.max(at)).max(0.0);
            }
        }
        rates.sort_by(f64::total_cmp);
        let capacity = intervals.into_iter().fold(0.0, f64::max) / INTERVAL;
        Link { waits, connection: rates[rates.len() * 9 / 10], capacity }
    }
}

/// A range in flight.
struct Flight {
    id: ObjectId,
    range: Range<u64>,
    response_at: f64,
    wait: Wait,
    /// Number of bytes that have not arrived.
    left: f64,
}

/// A reader. `unread` has the ranges that were granted and not read, in order. The last value of an entry
/// says whether the range has been received.
#[derive(Default)]
struct Reader {
    unread: VecDeque<(ObjectId, Range<u64>, bool)>,
    /// Number of the object that the reader reads now.
    object: u64,
    /// Whether the reader has reported that it waits for the next range.
    is_waiting: bool,
}

struct Replay<'a> {
    link: &'a Link,
    state: BudgetState,
    readers: Vec<Reader>,
    flights: Vec<Flight>,
    start: Instant,
    now: f64,
    received: f64,
    /// Number of requests so far.
    sent: usize,
}

impl<'a> Replay<'a> {
    fn new(link: &'a Link) -> Self {
        let mut state = BudgetState::new(ConcurrencyTuner::new(CONNECTIONS));
        for queue in 0..READERS {
            (0..=AHEAD).for_each(|number| add(&mut state, ObjectId { queue, number }));
        }
        let readers = (0..READERS).map(|_| Reader::default()).collect();
        let (flights, start) = (Vec::new(), Instant::now());
        Replay { link, state, readers, flights, start, now: 0.0, received: 0.0, sent: 0 }
    }

    /// Returns the throughput in bytes per second over `seconds`. If `fixed` is not `None`, it is the limit
    /// on requests in flight for the whole time.
    fn throughput(mut self, seconds: f64, fixed: Option<usize>) -> f64 {
        while self.now < seconds {
            if let Some(limit) = fixed {
                // The last measurement may have changed the limit.
                self.state.tuner = ConcurrencyTuner::fixed(limit);
            }
            self.grant();
            self.advance();
            let now = self.start + Duration::from_secs_f64(self.now);
            let _ = self.state.observe(now, self.received as u64, true);
        }
        self.received / self.now
    }

    fn wait(&mut self) -> Wait {
        let wait = self.link.waits[self.sent % self.link.waits.len()];
        self.sent += 1;
        wait
    }

    /// Sends all requests that may be sent.
    fn grant(&mut self) {
        for (queue, reader) in self.readers.iter_mut().enumerate() {
            let has_next = reader.unread.iter().any(|(id, ..)| id.number == reader.object);
            if !has_next && !reader.is_waiting {
                let id = ObjectId { queue: queue as u64, number: reader.object };
                self.state.schedule.await_next(id);
                reader.is_waiting = true;
            }
        }
        while let Some((id, range)) = self.state.schedule.next(self.state.limits(BYTES, CONNECTIONS)) {
            let reader = &mut self.readers[id.queue as usize];
            reader.unread.push_back((id, range.clone(), false));
            reader.is_waiting &= id.number != reader.object;
            let wait = self.wait();
            let left = (range.end - range.start) as f64;
            self.flights.push(Flight { id, range, response_at: self.now + wait.time, wait, left });
        }
    }

    /// Moves to the next time at which a response begins or ends.
    fn advance(&mut self) {
        let arriving = self.flights.iter().filter(|flight| flight.response_at <= self.now).count();
        let rate = self.link.connection.min(self.link.capacity / arriving.max(1) as f64);
        let until = |flight: &Flight| match flight.response_at > self.now {
            true => flight.response_at - self.now,
            false => flight.left / rate,
        };
        let step = self.flights.iter().map(until).fold(f64::INFINITY, f64::min);
        assert!(step.is_finite(), "no request is in flight");
        // At least a nanosecond, so that a rounding error cannot stop the clock.
        let (before, next) = (self.now, self.now + step.max(1e-9));
        self.now = next;
        for number in (0..self.flights.len()).rev() {
            let flight = &mut self.flights[number];
            if flight.response_at <= before {
                let arrived = flight.left.min(rate * (next - before));
                flight.left -= arrived;
                self.received += arrived;
                if flight.left < 1.0 {
                    let flight = self.flights.swap_remove(number);
                    self.end_response(&flight);
                }
            } else if flight.response_at <= next {
                self.begin_response(number);
            }
        }
    }

    fn begin_response(&mut self, number: usize) {
        let flight = &self.flights[number];
        let (id, wait, range) = (flight.id, flight.wait, flight.range.clone());
        if wait.is_busy {
            self.state.tuner.throttled();
            let wait = self.wait();
            let flight = &mut self.flights[number];
            (flight.wait, flight.response_at) = (wait, self.now + PAUSE + wait.time);
            return;
        }
        self.state.record_first_byte(Duration::from_secs_f64(wait.time));
        if range.start == 0 {
            // The first response has the size of the object.
            self.state.schedule.extend(id, range.end..OBJECT, usize::MAX);
        }
    }

    fn end_response(&mut self, flight: &Flight) {
        let time = Duration::from_secs_f64(self.now - flight.response_at);
        self.state.completed(flight.range.end - flight.range.start, time);
        self.state.schedule.received();
        let reader = &mut self.readers[flight.id.queue as usize];
        let (_, _, is_done) = reader
            .unread
            .iter_mut()
            .find(|(id, range, _)| *id == flight.id && range.start == flight.range.start)
            .expect("it was granted");
        *is_done = true;
        // Ranges of later objects may have been granted before ranges of earlier objects.
        while let Some(at) = reader.unread.iter().position(|(id, _, _)| id.number == reader.object)
            && reader.unread[at].2
            && let Some((id, range, _)) = reader.unread.remove(at)
        {
            self.state.schedule.read(id, range.end - range.start);
            if range.end == OBJECT {
                self.state.schedule.remove(id);
                reader.object += 1;
                add(&mut self.state, ObjectId { number: id.number + 1 + AHEAD, ..id });
            }
        }
    }
}

fn add(state: &mut BudgetState, id: ObjectId) {
    state.schedule.add(id, 0..u64::MAX, None, 1);
    state.schedule.set_remaining(id.queue, u64::MAX);
}

/// Prints the throughput with the tuner and with fixed numbers of requests. Returns the tuner's throughput
/// divided by the highest throughput with a fixed number.
fn fraction_of_best(name: &str, text: &str) -> f64 {
    let link = Link::of(&parse(text).unwrap());
    let megabytes = |fixed| Replay::new(&link).throughput(SECONDS, fixed) / 1e6;
    let Link { connection, capacity, .. } = &link;
    println!("{name}: a connection {:.1} MB/s, the link {:.1} MB/s", connection / 1e6, capacity / 1e6);
    let mut best: f64 = 0.0;
    for limit in [1, 2, 4, 8, 16, 32, CONNECTIONS] {
        let fixed = megabytes(Some(limit));
        println!("{limit:>6} requests {fixed:>8.1} MB/s");
        best = best.max(fixed);
    }
    let tuned = megabytes(None);
    println!(" tuned          {tuned:>8.1} MB/s, {:.2} of the best", tuned / best);
    tuned / best
}

#[test]
fn the_tuner_is_nearly_as_fast_as_the_best_fixed_number_of_requests() {
    let share = fraction_of_best("recording", RECORDING);
    assert!(share >= 0.9, "{share}");
    // To replay another recording: see docs/network.md.
    if let Ok(path) = std::env::var("SHARDSTREAM_RECORDING") {
        fraction_of_best(&path, &std::fs::read_to_string(&path).unwrap());
    }
}

/// A synthetic recording with 16 requests in flight. Each response begins `first_byte` after its request, and
/// its 8 MiB take the time `body` to arrive.
fn synthetic_recording(
    first_byte: Duration,
    body: Duration,
    outcome: impl Fn(u32) -> RequestOutcome,
) -> String {
    let head = r#"{"format":"shardstream requests","version":1,"left_out":0}"#;
    let line = |number: u32| {
        let duration = first_byte + body;
        let (start, first_byte) = ((duration * (number / 16)).as_micros(), first_byte.as_micros());
        let outcome = serde_json::to_string(&outcome(number)).unwrap();
        let size = 8 << 20;
        format!(
            "{{\"start_us\":{start},\"offset\":0,\"size\":{size},\"attempt\":1,\
             \"first_byte_us\":{first_byte},\
             \"duration_us\":{},\"bytes\":{size},\"outcome\":{outcome}}}",
            duration.as_micros()
        )
    };
    let lines: Vec<String> = (0..160).map(line).collect();
    format!("{head}\n{}\n", lines.join("\n"))
}

#[test]
fn near_far_and_throttling_stores_are_replayed() {
    let [near, far, body] = [1, 60, 400].map(Duration::from_millis);
    for (name, first_byte) in [("near", near), ("far", far)] {
        let share = fraction_of_best(name, &synthetic_recording(first_byte, body, |_| RequestOutcome::Done));
        assert!(share >= 0.9, "{name}: {share}");
    }
    let busy = |number: u32| if number % 50 == 7 { RequestOutcome::Busy } else { RequestOutcome::Done };
    let share = fraction_of_best("throttling", &synthetic_recording(far, body, busy));
    // The replay refuses a fixed fraction of requests, however few are in flight. The tuner therefore keeps
    // the number of requests in flight low.
    assert!((0.2..0.9).contains(&share), "{share}");
}
