//! Curves and texts for TensorBoard, in its own format.

use super::{Appender, Result};
use crate::protobuf::Message;
use std::time::SystemTime;

/// An event file (`events.out.tfevents…`), which TensorBoard shows while it grows.
#[derive(Debug)]
pub struct Events(Appender);

/// The scalar and string types of `tensorflow.DataType`, `tensorflow.DataClass`.
const STRING: i64 = 7;
const CLASS_TENSOR: i64 = 2;

impl Events {
    /// A new one, each of whose files begins with the bytes that are given to `start`.
    pub(super) fn start(start: impl FnOnce(Vec<u8>) -> Result<Appender>) -> Result<Self> {
        let mut version = event(None);
        version.bytes(3, b"brain.Event:2"); // file_version
        start(record(&version.into_bytes())).map(Self)
    }

    /// A point of the curve `tag`, at this step of the training.
    pub fn scalar(&self, tag: &str, step: u64, value: f64) {
        let mut point = Message::default(); // tensorflow.Summary.Value
        point.bytes(1, tag.as_bytes());
        point.float(2, value as f32); // simple_value
        self.add(step, &point);
    }

    /// A text, in Markdown.
    pub fn text(&self, tag: &str, step: u64, text: &str) {
        let mut plugin = Message::default(); // tensorflow.SummaryMetadata.PluginData
        plugin.bytes(1, b"text"); // plugin_name
        let mut metadata = Message::default(); // tensorflow.SummaryMetadata
        metadata.message(1, &plugin);
        metadata.int(4, CLASS_TENSOR);
        let mut tensor = Message::default(); // tensorflow.TensorProto
        tensor.int(1, STRING);
        tensor.message(2, &Message::default()); // tensor_shape: no dimensions
        tensor.bytes(8, text.as_bytes()); // string_val
        let mut value = Message::default(); // tensorflow.Summary.Value
        value.bytes(1, tag.as_bytes());
        value.message(8, &tensor);
        value.message(9, &metadata);
        self.add(step, &value);
    }

    fn add(&self, step: u64, value: &Message) {
        let mut summary = Message::default(); // tensorflow.Summary
        summary.message(1, value);
        let mut event = event(Some(step));
        event.message(5, &summary);
        self.0.write(record(&event.into_bytes()));
    }

    /// Waits until all is written.
    pub fn finish(self) -> Result<()> {
        self.0.finish()
    }
}

/// `tensorflow.Event`, of this moment.
fn event(step: Option<u64>) -> Message {
    let mut event = Message::default();
    event.double(1, SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64()); // wall_time
    if let Some(step) = step {
        event.int(2, step as i64);
    }
    event
}

/// A record of a TFRecord file.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), data, &masked(data)].concat()
}

/// The checksum, changed so that one of data with checksums in it is a good one too.
fn masked(data: &[u8]) -> [u8; 4] {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// The name of this machine, as far as it can be in the name of a file.
pub(super) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String =
        name.trim().chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).collect();
    if name.is_empty() { "localhost".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test value of the checksum, and what the format makes of it.
    #[test]
    fn records_have_masked_checksums() {
        // CRC-32C of "123456789" is e3069283; turned right by 15 bits, and a282ead8 more.
        let masked = 0xc78a_b0e5_u32;
        let record = record(b"123456789");
        assert_eq!(record[..8], [9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&record[12..21], b"123456789");
        assert_eq!(record[21..], masked.to_le_bytes());
    }

    #[test]
    fn hosts_are_names_of_files() {
        let host = host();
        assert!(!host.is_empty() && !host.contains(['/', '.']), "{host}");
    }
}
