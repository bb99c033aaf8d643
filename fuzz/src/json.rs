//! Any bytes decode as JSON or give an error, compressed or not, and never take more memory than the limit:
//! run with `-rss_limit_mb=256`.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use shardstream::codec::Decoder;
use shardstream::{Index, Sample, State, Value};

fuzz_target!(|data: &[u8]| {
    let bytes = Bytes::copy_from_slice(data);
    let decoder = Decoder::new().max_size(16 << 20);
    for field in ["json", "json.gz"] {
        let decoded = decoder.decode_field(field, &bytes);
        assert!(decoded.is_err() || matches!(decoded, Ok(Some(Value::Json(_)))));
    }
    let sample = Sample::new("k").with("json", data);
    let _ = sample.json::<Vec<String>>("json");
    let _ = Index::from_json(data, "");
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = text.parse::<State>();
    }
});
