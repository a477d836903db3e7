//! Appends encoded values to a reply.

use forebay_types::bounded_u32;

use super::padding;

/// Appends to a buffer.
#[derive(Debug)]
pub struct Writer<'a> {
    buffer: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    /// Appends to `buffer`.
    pub fn new(buffer: &'a mut Vec<u8>) -> Writer<'a> {
        Writer { buffer }
    }

    /// An unsigned integer, or an enumeration.
    pub fn u32(&mut self, value: u32) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// Unsigned integers. They are appended at once, which costs a fraction of appending each.
    pub fn words<const N: usize>(&mut self, values: [u32; N]) {
        self.buffer
            .extend_from_slice(values.map(u32::to_be_bytes).as_flattened());
    }

    /// An unsigned hyper integer.
    pub fn u64(&mut self, value: u64) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// A boolean.
    pub fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// Opaque data of a fixed length.
    pub fn fixed(&mut self, data: &[u8]) {
        self.buffer.extend_from_slice(data);
        self.pad(data.len());
    }

    /// Opaque data of variable length, or a string.
    pub fn opaque(&mut self, data: &[u8]) {
        // Every message fits a record, whose length has 31 bits.
        self.u32(bounded_u32(data.len()));
        self.fixed(data);
    }

    fn pad(&mut self, length: usize) {
        self.buffer.extend_from_slice(&[0; 4][..padding(length)]);
    }
}
