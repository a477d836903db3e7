//! Decodes values from bytes that came from the network.

use super::{Malformed, padding};

/// The rest of a byte string.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from their start.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// The bytes that were not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// An unsigned integer, or an enumeration.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    /// An unsigned hyper integer.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    /// A boolean: 0 or 1.
    pub fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    /// Opaque data of a fixed length that is a multiple of four.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        const { assert!(N.is_multiple_of(4)) };
        let (array, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*array)
    }

    /// Opaque data (or a string) of at most `limit` bytes.
    pub fn opaque(&mut self, limit: usize) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.u32()?).map_err(|_| Malformed)?;
        if length > limit {
            return Err(Malformed);
        }
        let (data, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        let (_, rest) = rest.split_at_checked(padding(length)).ok_or(Malformed)?;
        self.rest = rest;
        Ok(data)
    }

    /// Optional data: a boolean, and the value if it is true.
    pub fn option<T>(
        &mut self,
        value: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        self.bool()?.then(|| value(self)).transpose()
    }

    /// The end: fails if bytes are left.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed)
        }
    }
}
