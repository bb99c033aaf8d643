//! Decoding any bytes as npy returns an array or an error. If a decoded array is written and read again, the
//! result is equal to it.

use bytes::Bytes;
use shardstream::codec::Array;

pub fn run(data: &[u8]) {
    if let Ok(array) = Array::from_npy(&Bytes::copy_from_slice(data)) {
        let file = array.to_npy();
        assert_eq!(Array::from_npy(&file).expect("what is written can be read"), array);
    }
}
