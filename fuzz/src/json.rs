//! Decoding any bytes as JSON, compressed or not, returns a value or an error, and never holds more memory
//! than twice the limit.

use crate::memory::within;
use bytes::Bytes;
use shardstream::codec::Decoder;
use shardstream::{Index, Sample, State, Value};

const LIMIT: usize = 1 << 20;

pub fn run(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    let decoder = Decoder::new().max_size(LIMIT);
    for field in ["json", "json.gz"] {
        within(2 * LIMIT as u64, || {
            let decoded = decoder.decode_field(field, &bytes);
            assert!(decoded.is_err() || matches!(decoded, Ok(Some(Value::Json(_)))));
        });
    }
    let sample = Sample::new("k").with("json", data);
    let _ = sample.json::<Vec<String>>("json");
    let _ = Index::from_json(data, "");
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = text.parse::<State>();
    }
}
