//! Bytes as hexadecimal digits, for the text of the key ring.

/// Encodes each byte as two lower-case digits.
pub(crate) fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]));
    digits.map(char::from).collect()
}

/// Decodes the output of [`encode`]; `None` for anything else, upper-case digits included, so that
/// no bytes have two texts.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let bytes = pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    bytes.collect()
}

/// The same for an expected number of bytes.
pub(crate) fn decode_array<const N: usize>(text: &str) -> Option<[u8; N]> {
    decode(text)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_one_text() {
        assert_eq!(encode(&[0x00, 0xa5, 0xff]), "00a5ff");
        assert_eq!(decode("00a5ff"), Some(vec![0x00, 0xa5, 0xff]));
        assert_eq!(decode_array::<3>("00a5ff"), Some([0x00, 0xa5, 0xff]));
        assert_eq!(decode_array::<2>("00a5ff"), None);
        for text in ["0", "00A5", "0g", "+1", " 1", "é"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
