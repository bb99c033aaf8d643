//! Tests that the memory of a batch returns to its owner.

use crate::common::{client, model};
use bytes::Bytes;
use resnet::data::HostBatch;
use std::sync::mpsc::{Sender, TryRecvError, channel};
use std::time::Duration;

/// Memory that sends a message when it is released.
struct Slab(Vec<u8>, Sender<()>);

impl AsRef<[u8]> for Slab {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        let _ = self.1.send(());
    }
}

#[test]
#[ignore = "needs PJRT's CPU plugin, a download: see CONTRIBUTING.md"]
fn the_memory_of_a_batch_is_released_when_all_devices_have_their_part() {
    let client = client(8);
    let model = &*model(&client, "resnet8-x8");
    let (sender, freed) = channel();
    let images = (0..64 * 32 * 32 * 3).map(|i| (i * 31 + i / 251) as u8).collect();
    let images = Bytes::from_owner(Slab(images, sender));
    let batch = HostBatch { images, labels: vec![3; 64], valid: 64, state: None };
    let uploaded = model.uploader().upload(&batch).unwrap();
    assert_eq!(freed.try_recv(), Err(TryRecvError::Empty), "the batch still has the memory");
    drop(batch);
    freed.recv_timeout(Duration::from_secs(60)).expect("the memory is released");
    assert_eq!(model.evaluate(&uploaded).unwrap().read().unwrap().samples, 64);
}
