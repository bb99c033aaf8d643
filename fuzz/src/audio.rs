//! Decoding any bytes as sound returns sound within the limit or an error, and takes little memory.

use crate::memory::within;
use shardstream::audio::Audio;

const LIMIT: usize = 1 << 20;
/// Limit on all allocated memory: two copies of the sound, and the decoders' tables.
const MAX_MEMORY: u64 = 24 << 20;

pub fn run(data: &[u8]) {
    within(MAX_MEMORY, || {
        if let Ok(sound) = Audio::decode_within(data, LIMIT) {
            assert!(sound.size() <= LIMIT && sound.channels() > 0 && sound.sample_rate() > 0);
            assert_eq!(sound.frames() * sound.channels(), sound.samples().len());
        }
    });
}
