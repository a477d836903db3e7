//! Reading and writing the fixed-width numbers of keys and values.
//!
//! Numbers in values are little-endian, numbers in keys big-endian, so that keys sort by bytes as
//! they sort by number. The reader never reads past its input and never panics.

use bytes::Bytes;
use forebay_types::bounded_u32;

use crate::error::Corrupt;

/// Takes fields from the front of a byte slice; each method fails if the bytes end too soon.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    /// The key that the bytes belong to, for the error message.
    of: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes`, the value (or the key itself) of the key `of`.
    pub(crate) fn new(of: &'a [u8], bytes: &'a [u8]) -> Self {
        Reader { rest: bytes, of }
    }

    /// The error that names the key.
    pub(crate) fn corrupt(&self, why: &'static str) -> Corrupt {
        Corrupt::new(self.of, why)
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Corrupt> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else {
            return Err(self.corrupt("ends too soon"));
        };
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Corrupt> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.corrupt("ends too soon"));
        };
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Corrupt> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Corrupt> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Corrupt> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Corrupt> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// A number that [`put_varint`] wrote.
    pub(crate) fn varint(&mut self) -> Result<u64, Corrupt> {
        let mut rest = self.rest;
        let number = take_varint(&mut rest).ok_or_else(|| self.corrupt("has no number there"))?;
        self.rest = rest;
        Ok(number)
    }

    /// The same, at most 32 bits.
    pub(crate) fn varint_u32(&mut self) -> Result<u32, Corrupt> {
        let number = self.varint()?;
        u32::try_from(number).map_err(|_| self.corrupt("has too large a number"))
    }

    /// A number in a key.
    pub(crate) fn u64_be(&mut self) -> Result<u64, Corrupt> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// A length of four bytes, then that number of bytes.
    pub(crate) fn bytes(&mut self) -> Result<Bytes, Corrupt> {
        let len = self.u32()?;
        let len = usize::try_from(len).map_err(|_| self.corrupt("a length is out of range"))?;
        Ok(Bytes::copy_from_slice(self.take(len)?))
    }

    /// The version byte, which must be `known`.
    pub(crate) fn version(&mut self, known: u8) -> Result<(), Corrupt> {
        self.version_of(&[known]).map(drop)
    }

    /// The version byte, which must be one of `known`.
    pub(crate) fn version_of(&mut self, known: &[u8]) -> Result<u8, Corrupt> {
        let version = self.u8()?;
        if known.contains(&version) {
            Ok(version)
        } else {
            Err(self.corrupt("was written by a version of Forebay that this one does not know"))
        }
    }

    /// Fails if any bytes are left.
    pub(crate) fn end(self) -> Result<(), Corrupt> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.corrupt("has bytes left over"))
        }
    }
}

/// Appends a length of four bytes and the bytes. Callers bound the length far below 4 GiB (names, link targets).
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(bounded_u32(bytes.len()).to_le_bytes());
    out.extend(bytes);
}

/// Appends a number, seven bits a byte, lowest first; the high bit says that more follow.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(lowest_byte(number) | 0x80);
        number >>= 7;
    }
    out.push(lowest_byte(number));
}

fn lowest_byte(number: u64) -> u8 {
    number.to_le_bytes()[0]
}

/// Takes a number that [`put_varint`] wrote; `None` if the bytes end too soon, the number does not fit, or
/// [`put_varint`] would have written it with fewer bytes.
pub(crate) fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        let bits = u64::from(byte & 0x7f);
        if (bits << shift) >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return (byte != 0 || shift == 0).then_some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_come_back_and_overlong_ones_are_refused() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, number);
            let mut rest = out.as_slice();
            assert_eq!(take_varint(&mut rest), Some(number));
            assert!(rest.is_empty());
        }
        assert_eq!(take_varint(&mut [0xff; 10].as_slice()), None);
        assert_eq!(take_varint(&mut [0x80].as_slice()), None);
        assert_eq!(take_varint(&mut [0x80, 0].as_slice()), None);
    }
}
