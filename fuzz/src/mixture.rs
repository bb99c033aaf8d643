//! Reading any text as a mixture in YAML or TOML does not panic, takes memory in proportion to the text, and
//! returns errors that name the line.

use crate::memory::within;
use shardstream::ErrorKind;
use shardstream::mixture::Mixture;

pub fn run(data: &[u8]) {
    let text = &*String::from_utf8_lossy(data);
    let limit = (1 << 20) + 256 * text.len() as u64;
    for read in [Mixture::from_yaml, Mixture::from_toml] {
        within(limit, || match read(text) {
            Ok(mixture) => {
                assert!(mixture.datasets.iter().all(|dataset| !dataset.shards.is_empty()));
            }
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error}"),
        });
    }
    if let Err(error) = Mixture::from_yaml(text) {
        let text = error.to_string();
        assert!(
            text.contains("line ") || text.contains("it is empty") || text.contains("temperature"),
            "{text}"
        );
    }
}
