//! Encodes and decodes XDR values (RFC 4506) in sequence.

const EARLY: &str = "it ends too early";

/// A reply that violates RFC 1813, RFC 4506 or RFC 5531, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a malformed reply: {0}")]
pub struct Malformed(pub &'static str);

/// Appends encoded values.
#[derive(Clone, Debug, Default)]
pub struct Encoder(pub Vec<u8>);

impl Encoder {
    /// Unsigned integers, enumerations and booleans.
    pub fn u32s(mut self, values: &[u32]) -> Encoder {
        for value in values {
            self.0.extend_from_slice(&value.to_be_bytes());
        }
        self
    }

    /// An unsigned hyper integer.
    pub fn u64(mut self, value: u64) -> Encoder {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Bytes of a length that both sides know (fixed-length opaque data).
    pub fn fixed(mut self, bytes: &[u8]) -> Encoder {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Length and bytes. Data too long for XDR would also be too long for any record.
    pub fn opaque(self, bytes: &[u8]) -> Encoder {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.u32s(&[length]).fixed(bytes)
    }
}

/// Decodes values in sequence. Each function fails if the bytes end before the value does.
#[derive(Clone, Debug)]
pub struct Decoder {
    bytes: Vec<u8>,
    at: usize,
}

impl Decoder {
    /// Starts at the first byte.
    pub fn new(bytes: Vec<u8>) -> Decoder {
        Decoder { bytes, at: 0 }
    }

    /// Bytes of a length that both sides know, and the padding to a multiple of four, which has to be zero (RFC
    /// 4506, section 3).
    pub fn fixed(&mut self, length: usize) -> Result<&[u8], Malformed> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let padded = length.next_multiple_of(4);
        let padding = rest.get(length..padded).ok_or(Malformed(EARLY))?;
        if padding.iter().any(|byte| *byte != 0) {
            return Err(Malformed("its padding is not zero"));
        }
        self.at += padded;
        rest.get(..length).ok_or(Malformed(EARLY))
    }

    /// The end: fails if bytes are left.
    pub fn end(&self) -> Result<(), Malformed> {
        match self.bytes.len() == self.at {
            true => Ok(()),
            false => Err(Malformed("it has bytes after its end")),
        }
    }

    /// Bytes of a fixed length.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.fixed(N)?.try_into().map_err(|_| Malformed(EARLY))
    }

    /// An unsigned integer, or an enumeration.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    /// An unsigned hyper integer.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    /// A boolean.
    pub fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a truth value is neither 0 nor 1")),
        }
    }

    /// Bytes preceded by their length.
    pub fn opaque(&mut self) -> Result<Vec<u8>, Malformed> {
        let length = self.u32()? as usize;
        self.fixed(length).map(<[u8]>::to_vec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_is_decoded() {
        let bytes = Encoder::default()
            .u32s(&[1, 7])
            .opaque(b"hello")
            .u64(u64::MAX - 1)
            .fixed(b"12345678")
            .0;
        assert_eq!(bytes.len(), 8 + 4 + 8 + 8 + 8);
        let mut decoder = Decoder::new(bytes);
        assert!(decoder.bool().unwrap());
        assert_eq!(decoder.u32().unwrap(), 7);
        assert_eq!(decoder.opaque().unwrap(), b"hello");
        assert_eq!(decoder.u64().unwrap(), u64::MAX - 1);
        assert_eq!(&decoder.array::<8>().unwrap(), b"12345678");
        assert!(decoder.u32().is_err());
    }

    #[test]
    fn lengths_beyond_the_end_are_refused() {
        let mut decoder = Decoder::new(Encoder::default().u32s(&[u32::MAX, 1]).0);
        assert!(decoder.opaque().is_err());
        let mut decoder = Decoder::new(vec![0, 0]);
        assert!(decoder.u32().is_err());
        let mut decoder = Decoder::new(Encoder::default().u32s(&[2]).0);
        assert!(decoder.bool().is_err());
        let mut decoder = Decoder::new(vec![0, 0, 0, 1, b'x']);
        assert!(decoder.opaque().is_err(), "the padding is missing");
        let mut decoder = Decoder::new(vec![0, 0, 0, 1, b'x', 0, 0, 1]);
        assert!(decoder.opaque().is_err(), "the padding is not zero");
        assert!(Decoder::new(vec![0; 4]).end().is_err());
        assert!(Decoder::new(Vec::new()).end().is_ok());
    }
}
