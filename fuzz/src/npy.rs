//! Any bytes decode to an npy array or an error, and an array is written as it was read.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use shardstream::codec::Array;

fuzz_target!(|data: &[u8]| {
    if let Ok(array) = Array::from_npy(&Bytes::copy_from_slice(data)) {
        let file = array.to_npy();
        assert_eq!(Array::from_npy(&file).expect("what is written can be read"), array);
    }
});
