//! Any bytes decode to an npy array or an error, and an array is written as it was read.

use bytes::Bytes;
use shardstream::codec::Array;

pub fn run(data: &[u8]) {
    if let Ok(array) = Array::from_npy(&Bytes::copy_from_slice(data)) {
        let file = array.to_npy();
        assert_eq!(Array::from_npy(&file).expect("what is written can be read"), array);
    }
}
