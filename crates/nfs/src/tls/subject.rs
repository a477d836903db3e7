//! The subject of a certificate, for the log.
//!
//! The certificate was accepted already; still, malformed bytes only cause a missing
//! name. The structure, from RFC 5280, section 4.1, as nested elements of DER:
//!
//! ```text
//!  SEQUENCE Certificate
//!    SEQUENCE TBSCertificate
//!      [0] version (may be left out), INTEGER serial, SEQUENCE signature, SEQUENCE issuer,
//!      SEQUENCE validity,
//!      SEQUENCE subject
//!        SET of SEQUENCE: OBJECT IDENTIFIER type, some string
//! ```

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const OBJECT_IDENTIFIER: u8 = 0x06;
const VERSION: u8 = 0xa0;

/// Names of common attributes (X.520: all identifiers begin with 2.5.4).
const ATTRIBUTES: [(&[u8], &str); 6] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
];

/// Longest name that is returned, in characters: text from a client must not fill the log.
const MAX_CHARACTERS: usize = 256;

/// Returns the subject of a certificate, such as `O=Example, CN=client.example`, with unprintable characters
/// escaped. `None` if it cannot be read.
pub(crate) fn subject(certificate: &[u8]) -> Option<String> {
    let mut certificate = Der(certificate);
    let mut body = Der(certificate.take(SEQUENCE)?);
    let mut fields = Der(body.take(SEQUENCE)?);
    if fields.0.first() == Some(&VERSION) {
        fields.take(VERSION)?;
    }
    fields.take(INTEGER)?;
    for _ in 0..3 {
        fields.take(SEQUENCE)?;
    }
    let mut names = Der(fields.take(SEQUENCE)?);
    let mut text = String::new();
    while !names.0.is_empty() {
        let mut set = Der(names.take(SET)?);
        while !set.0.is_empty() {
            let mut pair = Der(set.take(SEQUENCE)?);
            let what = pair.take(OBJECT_IDENTIFIER)?;
            let (_, value) = pair.any()?;
            let known = ATTRIBUTES.iter().find(|(number, _)| *number == what);
            if let Some((_, name)) = known {
                let gap = if text.is_empty() { "" } else { ", " };
                let value = String::from_utf8_lossy(value);
                text.push_str(&format!("{gap}{name}={}", value.escape_debug()));
            }
        }
    }
    Some(text.chars().take(MAX_CHARACTERS).collect())
}

/// A sequence of DER elements.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// Returns the contents of the next element, if it is of this kind.
    fn take(&mut self, kind: u8) -> Option<&'a [u8]> {
        let (found, contents) = self.any()?;
        (found == kind).then_some(contents)
    }

    /// Returns the kind and contents of the next element.
    fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let (kind, rest) = self.0.split_first()?;
        let (first, rest) = rest.split_first()?;
        // Up to 127 this byte is the length itself; otherwise it gives the number of length bytes.
        let (length, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let add = |length: u64, byte: &u8| (length << 8) | u64::from(*byte);
                (usize::try_from(bytes.iter().fold(0, add)).ok()?, rest)
            }
            _ => return None,
        };
        let (contents, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*kind, contents))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn element(kind: u8, contents: &[u8]) -> Vec<u8> {
        let mut wire = vec![kind];
        match contents.len() {
            short @ 0..=0x7f => wire.push(short as u8),
            long => {
                wire.push(0x82);
                wire.extend_from_slice(&(long as u16).to_be_bytes());
            }
        }
        wire.extend_from_slice(contents);
        wire
    }

    /// A certificate up to its subject.
    fn certificate(with_version: bool, names: &[(&[u8], &[u8])]) -> Vec<u8> {
        let name = |(what, value): &(&[u8], &[u8])| {
            let pair = [element(OBJECT_IDENTIFIER, what), element(0x0c, value)].concat();
            element(SET, &element(SEQUENCE, &pair))
        };
        let names: Vec<u8> = names.iter().flat_map(name).collect();
        let version = match with_version {
            true => element(VERSION, &element(INTEGER, &[2])),
            false => Vec::new(),
        };
        let fields = [
            version,
            element(INTEGER, &[1]),
            element(SEQUENCE, &[]),
            element(SEQUENCE, &element(SET, &[])),
            element(SEQUENCE, &[]),
            element(SEQUENCE, &names),
        ];
        element(SEQUENCE, &element(SEQUENCE, &fields.concat()))
    }

    #[test]
    fn the_subject_is_read_with_and_without_a_version() {
        let names: [(&[u8], &[u8]); 3] = [
            (&[0x55, 4, 10], b"Example"),
            (&[0x55, 4, 5], b"a serial number"),
            (&[0x55, 4, 3], b"client.example"),
        ];
        for with_version in [true, false] {
            let read = subject(&certificate(with_version, &names));
            assert_eq!(read.as_deref(), Some("O=Example, CN=client.example"));
        }
        assert_eq!(subject(&certificate(true, &[])).as_deref(), Some(""));
    }

    #[test]
    fn a_name_cannot_make_lines_of_the_log() {
        let read = subject(&certificate(true, &[(&[0x55, 4, 3], b"a\nERROR b\x1b[0m")]));
        assert_eq!(read.as_deref(), Some("CN=a\\nERROR b\\u{1b}[0m"));
        let long = vec![b'x'; 5000];
        let read = subject(&certificate(true, &[(&[0x55, 4, 3], &long)]));
        assert_eq!(read.map(|name| name.len()), Some(MAX_CHARACTERS));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let _ = subject(&bytes);
        }

        #[test]
        fn a_damaged_certificate_never_panics(offset in 0usize..60, byte: u8, end in 0usize..60) {
            let mut wire = certificate(true, &[(&[0x55, 4, 3], b"client.example")]);
            if let Some(at) = wire.get_mut(offset) {
                *at = byte;
            }
            let _ = subject(&wire);
            let _ = subject(wire.get(..end).unwrap_or(&wire));
        }
    }
}
