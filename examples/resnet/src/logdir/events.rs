//! Writes curves and texts in TensorBoard's format.

use super::{Appender, LogDirError};
use crate::protobuf::Message;
use std::time::SystemTime;

/// An event file (`events.out.tfevents…`), which TensorBoard shows while it grows.
#[derive(Debug)]
pub struct Events(Appender);

/// `DT_STRING` of `tensorflow.DataType`.
const STRING: i64 = 7;
/// `DATA_CLASS_TENSOR` of `tensorflow.DataClass`.
const CLASS_TENSOR: i64 = 2;

impl Events {
    /// Starts an event file. `start` starts an appender with the given header; each file of a series begins
    /// with this header.
    pub(super) fn start(
        start: impl FnOnce(Vec<u8>) -> Result<Appender, LogDirError>,
    ) -> Result<Self, LogDirError> {
        let mut version = event(None);
        version.bytes(3, b"brain.Event:2"); // file_version
        start(record(&version.into_bytes())).map(Self)
    }

    /// Adds a point to the curve `tag`.
    pub fn scalar(&self, tag: &str, step: u64, value: f64) {
        let mut point = Message::default(); // tensorflow.Summary.Value
        point.bytes(1, tag.as_bytes());
        point.float(2, value as f32); // simple_value
        self.add(step, &point);
    }

    /// Adds a text in Markdown.
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

    /// Waits until all events are written.
    pub fn finish(self) -> Result<(), LogDirError> {
        self.0.finish()
    }
}

/// A `tensorflow.Event` with the current time, and with the step if there is one.
fn event(step: Option<u64>) -> Message {
    let mut event = Message::default();
    event.double(1, SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64()); // wall_time
    if let Some(step) = step {
        event.int(2, step as i64);
    }
    event
}

/// Encodes a record of a TFRecord file.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), data, &masked(data)].concat()
}

/// The masked CRC-32C of the TFRecord format. The format masks the CRC because a CRC is a poor checksum of
/// data that already contains CRCs.
fn masked(data: &[u8]) -> [u8; 4] {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// The name of this machine, reduced to characters that file names may have.
pub(super) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String =
        name.trim().chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).collect();
    if name.is_empty() { "localhost".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_masked_checksums() {
        // CRC-32C of "123456789" is e3069283; rotated right by 15 bits, plus a282ead8.
        let masked = 0xc78a_b0e5_u32;
        let record = record(b"123456789");
        assert_eq!(record[..8], [9, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&record[12..21], b"123456789");
        assert_eq!(record[21..], masked.to_le_bytes());
    }

    #[test]
    fn the_host_s_name_can_be_part_of_a_file_name() {
        let host = host();
        assert!(!host.is_empty() && !host.contains(['/', '.']), "{host}");
    }
}
