//! Any bytes decode to sound within the limit or an error, and take little memory.

use crate::memory::within;
use shardstream::audio::Audio;

const LIMIT: usize = 1 << 20;
/// Of all memory: the sound twice, and the tables of the decoders.
const HELD: u64 = 24 << 20;

pub fn run(data: &[u8]) {
    within(HELD, || {
        if let Ok(sound) = Audio::decode_within(data, LIMIT) {
            assert!(sound.size() <= LIMIT && sound.channels() > 0 && sound.sample_rate() > 0);
            assert_eq!(sound.frames() * sound.channels(), sound.samples().len());
        }
    });
}
