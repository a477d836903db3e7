//! Compression of file data on the way to the bucket.
//!
//! | decides | about |
//! |---|---|
//! | the export through which a file was written last | whether at all, and the [`Levels`] that may be used: [`FileCompression`] |
//! | `Planner` | which of these levels the next pack has: higher ones where the link is what uploads wait for |
//! | [`BlockJudge`] | which frames of a file that is of a compressed format are not even tried |
//! | a sample of the frame's own bytes, in `forebay-pack` | whether compressing the frame pays |
//!
//! The first is kept in memory with the file. Bytes that were written before a restart and are uploaded after it are
//! compressed as the volume's settings say.

mod judge;
mod planner;
mod under_way;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub use judge::BlockJudge;
pub use under_way::CompressionStatus;
pub use under_way::{Packs, Sending};

/// Whether file data is compressed, and how hard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Never.
    Off,
    /// With zstd, where a sample shows that it pays, at one of these levels.
    Auto(Levels),
}

impl Default for Compression {
    /// At level 1.
    fn default() -> Self {
        Compression::Auto(Levels::ONE)
    }
}

/// The levels of zstd that may be used: the lowest, and higher ones while uploads wait for the link and not for the
/// processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    lowest: u8,
    highest: u8,
}

impl Levels {
    /// Only the fastest level.
    pub const ONE: Levels = Levels {
        lowest: 1,
        highest: 1,
    };

    /// The highest level. The memory of higher ones is not allowed for.
    pub const HIGHEST: u8 = 19;

    /// The levels from `lowest` to `highest`; `None` unless 1 <= `lowest` <= `highest` <= [`Levels::HIGHEST`].
    pub fn new(lowest: u8, highest: u8) -> Option<Levels> {
        let is_range = 1 <= lowest && lowest <= highest && highest <= Levels::HIGHEST;
        is_range.then_some(Levels { lowest, highest })
    }

    /// The fastest level.
    pub fn lowest(self) -> u8 {
        self.lowest
    }

    /// The level that compresses best.
    pub fn highest(self) -> u8 {
        self.highest
    }

    /// The nearest of these levels to `level`.
    fn nearest(self, level: u8) -> u8 {
        level.clamp(self.lowest, self.highest)
    }

    /// The levels of both, and all in between.
    fn and(self, other: Levels) -> Levels {
        Levels {
            lowest: self.lowest.min(other.lowest),
            highest: self.highest.max(other.highest),
        }
    }
}

impl fmt::Display for Levels {
    /// The form in the configuration: `3`, or `1-9`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Levels { lowest, highest } = self;
        match lowest == highest {
            true => write!(f, "{lowest}"),
            false => write!(f, "{lowest}-{highest}"),
        }
    }
}

const CODE_OFF: u32 = 1 << 16;

impl Compression {
    /// The code of this setting: never 0, below 2^17.
    pub fn code(self) -> u32 {
        match self {
            Compression::Off => CODE_OFF,
            Compression::Auto(Levels { lowest, highest }) => {
                u32::from(lowest) | u32::from(highest) << 8
            }
        }
    }

    /// At the lowest level: for packs that do not compete with those that wait for the link.
    pub fn lowest(self) -> forebay_pack::Compression {
        match self {
            Compression::Off => forebay_pack::Compression::Off,
            Compression::Auto(levels) => forebay_pack::Compression::Auto {
                level: levels.lowest.into(),
            },
        }
    }

    /// The setting with this [`code`](Self::code); `None` if there is none.
    pub fn from_code(code: u32) -> Option<Compression> {
        match code {
            CODE_OFF => Some(Compression::Off),
            _ => {
                let [lowest, highest, rest @ ..] = code.to_le_bytes();
                let levels = Levels::new(lowest, highest).filter(|_| rest == [0, 0])?;
                Some(Compression::Auto(levels))
            }
        }
    }
}

/// The compression of one file, while it is in memory.
#[derive(Debug, Default)]
pub struct FileCompression {
    /// The code of the setting of the export through which it was written last; 0 if it was not written.
    written_through: AtomicU32,
    /// Its beginning looks like that of a compressed format.
    is_compressed: AtomicBool,
}

impl FileCompression {
    /// Notes that bytes were written through an export with this setting.
    pub fn written_through(&self, compression: Compression) {
        // No other memory depends on it, so relaxed ordering suffices.
        self.written_through
            .store(compression.code(), Ordering::Relaxed);
    }

    /// The current setting of the file; `otherwise` is the volume's.
    pub fn now(&self, otherwise: Compression) -> Compression {
        let code = self.written_through.load(Ordering::Relaxed);
        Compression::from_code(code).unwrap_or(otherwise)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_compression_has_a_code_of_its_own() {
        let mut seen = std::collections::HashSet::new();
        let levels = || 0..=Levels::HIGHEST + 1;
        let ranges =
            levels().flat_map(|low| levels().filter_map(move |high| Levels::new(low, high)));
        let all = ranges.map(Compression::Auto).chain([Compression::Off]);
        for compression in all {
            let code = compression.code();
            assert!(code != 0 && code < 1 << 17 && seen.insert(code));
            assert_eq!(Compression::from_code(code), Some(compression));
        }
        assert_eq!(seen.len(), 19 * 20 / 2 + 1);
        for code in [0, 1, 2 | 1 << 8, 1 | 20 << 8, CODE_OFF | 1, u32::MAX] {
            assert_eq!(Compression::from_code(code), None, "{code}");
        }
    }

    #[test]
    fn the_last_export_that_a_file_was_written_through_decides() {
        let file = FileCompression::default();
        assert_eq!(file.now(Compression::Off), Compression::Off);
        assert_eq!(file.now(Compression::default()), Compression::default());
        let nine = Compression::Auto(Levels::new(9, 9).unwrap());
        file.written_through(nine);
        assert_eq!(file.now(Compression::Off), nine);
        file.written_through(Compression::Off);
        assert_eq!(file.now(nine), Compression::Off);
    }
}
