//! XDR, the External Data Representation (RFC 4506): big-endian units of four bytes.
//!
//! [`Reader`] decodes values from untrusted bytes: every length is checked
//! against a limit and against the available bytes before it is used, nothing is allocated, and truncated
//! input is [`Malformed`], never a panic. [`Writer`] appends values to a buffer.

mod reader;
mod writer;

pub use reader::Reader;
pub use writer::Writer;

/// The bytes violate the protocol: too short, a length beyond its limit, a value outside
/// its enumeration, or bytes left over. RPC answers it with GARBAGE_ARGS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed XDR")]
pub struct Malformed;

/// Number of zero bytes after `length` bytes of opaque data, to fill the last unit.
pub const fn padding(length: usize) -> usize {
    length.wrapping_neg() & 3
}

/// Bytes of encoded opaque data of variable length: its length word, the data, and the padding.
pub const fn opaque_bytes(length: usize) -> usize {
    4 + length + padding(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn padding_fills_the_last_unit() {
        assert_eq!([0, 1, 2, 3, 4, 5].map(padding), [0, 3, 2, 1, 0, 3]);
        assert_eq!(opaque_bytes(5), 12);
    }

    #[test]
    fn opaque_data_longer_than_its_limit_or_its_input_is_malformed() {
        let mut wire = Vec::new();
        Writer::new(&mut wire).opaque(b"12345");
        assert_eq!(Reader::new(&wire).opaque(5), Ok(&b"12345"[..]));
        assert_eq!(Reader::new(&wire).opaque(4), Err(Malformed));
        assert_eq!(Reader::new(&wire[..11]).opaque(5), Err(Malformed));
        let huge = u32::MAX.to_be_bytes();
        assert_eq!(Reader::new(&huge).opaque(usize::MAX), Err(Malformed));
    }

    #[test]
    fn a_bool_is_zero_or_one() {
        assert_eq!(Reader::new(&[0, 0, 0, 1]).bool(), Ok(true));
        assert_eq!(Reader::new(&[0, 0, 0, 2]).bool(), Err(Malformed));
    }

    #[test]
    fn bytes_left_over_are_malformed() {
        let mut reader = Reader::new(&[0, 0, 0, 1, 9]);
        reader.u32().unwrap();
        assert_eq!(reader.end(), Err(Malformed));
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_back(a: u32, b: u64, data: Vec<u8>, c: bool) {
            let mut wire = Vec::new();
            let mut writer = Writer::new(&mut wire);
            writer.u32(a);
            writer.opaque(&data);
            writer.u64(b);
            writer.bool(c);
            prop_assert_eq!(wire.len() % 4, 0);
            let mut reader = Reader::new(&wire);
            prop_assert_eq!(reader.u32(), Ok(a));
            prop_assert_eq!(reader.opaque(data.len()), Ok(&data[..]));
            prop_assert_eq!(reader.u64(), Ok(b));
            prop_assert_eq!(reader.bool(), Ok(c));
            prop_assert_eq!(reader.end(), Ok(()));
        }
    }
}
