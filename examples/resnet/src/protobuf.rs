//! Writes protocol buffers.

/// A message under construction.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    /// Adds a varint field: an unsigned number, an enumeration, an `int32` or an `int64`.
    pub(crate) fn int(&mut self, field: u64, value: i64) {
        self.varint(field << 3);
        self.varint(value as u64); // negative numbers take all ten bytes
    }

    pub(crate) fn double(&mut self, field: u64, value: f64) {
        self.varint(field << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, field: u64, value: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    pub(crate) fn message(&mut self, field: u64, value: &Message) {
        self.bytes(field, &value.0);
    }

    pub(crate) fn float(&mut self, field: u64, value: f32) {
        self.varint(field << 3 | 5);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value > 127 {
            self.0.push(value as u8 | 128);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_lengths_and_numbers_take_several_bytes() {
        let mut m = Message::default();
        m.varint(300);
        assert_eq!(m.0, [0xac, 2]);
        let mut m = Message::default();
        m.bytes(1, &[7; 200]);
        assert_eq!(m.0[..4], [0x0a, 200, 1, 7]);
        assert_eq!(m.0.len(), 203);
    }

    #[test]
    fn every_kind_of_field_has_its_wire_type() {
        let mut m = Message::default();
        m.int(1, 150);
        m.int(2, -1);
        assert_eq!(m.0, [8, 0x96, 1, 0x10, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]);
        let mut m = Message::default();
        m.double(1, 1.0);
        m.float(2, -2.0);
        assert_eq!(m.0, [9, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x15, 0, 0, 0, 0xc0]);
        let mut outer = Message::default();
        let mut inner = Message::default();
        inner.int(1, 1);
        outer.message(16, &inner);
        assert_eq!(outer.into_bytes(), [0x82, 1, 2, 8, 1]);
    }
}
