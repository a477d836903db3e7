//! Sizes in bytes.

use std::fmt;

use bytesize::ByteSize;

use super::{Value, Written};

/// A number of bytes, written with a unit. `KiB`, `MiB`, `GiB` (or `Ki`, `Mi`, `Gi`) and so on count in 1024, `kB`,
/// `MB`, `GB` (or `k`, `M`, `G`) in 1000; upper and lower case are the same. A number without a unit is in bytes, and
/// must be at least 64KiB: a smaller one, for example `4`, is refused, because the unit was probably forgotten. Such
/// small sizes are written with their unit (`4B`); 0 needs none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

impl Size {
    /// A size of this many bytes.
    pub const fn from_bytes(bytes: u64) -> Size {
        Size(bytes)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

/// No size is intentionally smaller, and a larger number without a unit is hardly one of MiB or GiB.
const LEAST_ALONE: u64 = 64 << 10;

/// The units, largest first: if two texts have the same length, the earlier unit is used.
const UNITS: [(u64, &str); 12] = [
    (bytesize::EIB, "EiB"),
    (bytesize::PIB, "PiB"),
    (bytesize::TIB, "TiB"),
    (bytesize::GIB, "GiB"),
    (bytesize::MIB, "MiB"),
    (bytesize::KIB, "KiB"),
    (bytesize::EB, "EB"),
    (bytesize::PB, "PB"),
    (bytesize::TB, "TB"),
    (bytesize::GB, "GB"),
    (bytesize::MB, "MB"),
    (bytesize::KB, "kB"),
];

impl fmt::Display for Size {
    /// Exactly, in the unit with the shortest text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shortest = UNITS
            .iter()
            .filter(|(factor, _)| self.0 > 0 && self.0.is_multiple_of(*factor))
            .map(|(factor, unit)| format!("{}{unit}", self.0 / factor))
            .min_by_key(String::len)
            .unwrap_or_else(|| format!("{}B", self.0));
        f.write_str(&shortest)
    }
}

impl Value for Size {
    const KIND: &'static str = "size";
    const EXAMPLE: &'static str = "a size such as 64MiB (1024s) or 64MB (1000s)";

    fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let size: ByteSize = text.parse().map_err(|_| "not a size".to_owned())?;
        let is_alone = text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.');
        if is_alone && (1..LEAST_ALONE).contains(&size.as_u64()) {
            return Err(format!(
                "a number without a unit is bytes: did you mean {text}MiB or {text}GiB? If not, write {text}B"
            ));
        }
        // `bytesize` returns the largest 64-bit number for sizes that do not fit.
        if size.as_u64() == u64::MAX {
            return Err("too large".to_owned());
        }
        Ok(Size(size.as_u64()))
    }

    fn write(&self) -> Written {
        Written::Text(self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_mean_what_the_documentation_says() {
        for (text, bytes) in [
            ("64MiB", 64 << 20),
            ("64Mi", 64 << 20),
            ("64mib", 64 << 20),
            ("64 MiB", 64 << 20),
            ("64MB", 64_000_000),
            ("64M", 64_000_000),
            ("64m", 64_000_000),
            ("1.5GiB", 3 << 29),
            ("65536", 65536),
            ("4096B", 4096),
            ("0", 0),
            ("1EiB", 1 << 60),
            (" 1kB ", 1000),
        ] {
            assert_eq!(Size::read(text), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "MiB",
            "-1",
            "-1MiB",
            "64MiBs",
            "64 M iB",
            "1,5GiB",
            "0x10",
            "1..5GiB",
            "1e9",
            "ten",
            "99999EiB",
            "16EiB",
            "18446744073709551615",
            "18446744073709551616",
            "NaN",
            "inf",
        ] {
            assert!(Size::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_number_whose_unit_was_forgotten_is_refused_with_those_that_may_be_meant() {
        for text in ["1", "4", " 12 ", "512", "65535"] {
            let refusal = Size::read(text).unwrap_err();
            let text = text.trim();
            assert!(
                refusal.contains(&format!("{text}MiB or {text}GiB")),
                "{refusal}"
            );
        }
        for (text, bytes) in [
            ("0", 0),
            ("4B", 4),
            ("65536", 65536),
            ("1073741824", 1 << 30),
        ] {
            assert_eq!(Size::read(text), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn sizes_are_written_short_and_read_back_exactly() {
        for (bytes, text) in [
            (0, "0B"),
            (1, "1B"),
            (1000, "1kB"),
            (1024, "1KiB"),
            (1536, "1536B"),
            (64 << 20, "64MiB"),
            (64_000_000, "64MB"),
            (3 << 29, "1536MiB"),
            (1 << 60, "1EiB"),
            ((1 << 53) + 1, "9007199254740993B"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
            assert_eq!(Size::read(text), Ok(Size(bytes)));
        }
    }
}
