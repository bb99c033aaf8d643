//! Tests that the memory of an upload is released, also if the upload is refused or the array is dropped
//! early.

use crate::common::client;
use bytes::Bytes;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Memory that sends its number when it is released.
struct Slab {
    memory: Vec<u8>,
    number: usize,
    freed: Sender<usize>,
}

impl AsRef<[u8]> for Slab {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // If the plugin reads the memory after its release, the test sees these bytes.
        self.memory.fill(0xee);
        let _ = self.freed.send(self.number);
    }
}

/// Size of a slab in bytes, large enough that the plugin copies in the background.
const SIZE: usize = 1 << 18;

fn contents(number: usize) -> Vec<u8> {
    (0..SIZE).map(|i| (i * 31 + i / 251 + number * 7) as u8).collect()
}

fn slab(number: usize, freed: &Sender<usize>) -> Bytes {
    Bytes::from_owner(Slab { memory: contents(number), number, freed: freed.clone() })
}

/// Waits until `count` slabs are released, and returns their numbers.
fn freed(slabs: &Receiver<usize>, count: usize) -> Vec<usize> {
    let next = |_| slabs.recv_timeout(Duration::from_secs(60)).expect("the memory is released");
    let mut numbers: Vec<_> = (0..count).map(next).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn the_memory_is_released_while_the_array_lives() {
    let client = client(2);
    let (sender, slabs) = channel();
    let array = client.upload_bytes(slab(3, &sender), &[512, 512], 1).unwrap();
    assert_eq!(freed(&slabs, 1), [3]);
    assert_eq!(array.device(), 1);
    assert!(array.to_host::<u8>().unwrap() == contents(3));
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn many_uploads_in_flight_keep_their_contents() {
    const MANY: usize = 48;
    let client = client(4);
    let (sender, slabs) = channel();
    let upload = |i| client.upload_bytes(slab(i, &sender), &[SIZE as i64], i % 4).unwrap();
    let arrays: Vec<_> = (0..MANY).map(upload).collect();
    for (i, array) in arrays.iter().enumerate() {
        assert!(array.to_host::<u8>().unwrap() == contents(i), "{i}");
    }
    assert_eq!(freed(&slabs, MANY), (0..MANY).collect::<Vec<_>>());
    // No slab is released twice.
    drop(sender);
    assert!(slabs.recv().is_err());
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn the_memory_is_released_when_arrays_and_client_are_dropped_at_once() {
    const MANY: usize = 16;
    let client = client(2);
    let (sender, slabs) = channel();
    for i in 0..MANY {
        drop(client.upload_bytes(slab(i, &sender), &[SIZE as i64], i % 2).unwrap());
    }
    drop(client);
    assert_eq!(freed(&slabs, MANY), (0..MANY).collect::<Vec<_>>());
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn the_memory_is_released_by_a_refused_upload() {
    let client = client(1);
    let (sender, slabs) = channel();
    assert!(client.upload_bytes(slab(0, &sender), &[7], 0).is_err());
    assert!(client.upload_bytes(slab(1, &sender), &[SIZE as i64], 1).is_err());
    assert_eq!(slabs.try_iter().collect::<Vec<_>>(), [0, 1]);
    let empty = client.upload_bytes(Bytes::new(), &[0, 3], 0).unwrap();
    assert!(empty.to_host::<u8>().unwrap().is_empty());
}
