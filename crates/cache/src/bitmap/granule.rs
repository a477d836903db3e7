//! A granule that is neither empty nor full.

use super::words;

/// Bytes in a granule.
pub(super) const GRANULE: usize = 4096;

const WORDS: usize = GRANULE / u64::BITS as usize;

/// The set bytes of one granule. Its owner keeps it only while it is neither empty nor full.
///
/// Nearly every partly set granule is the ragged end of a file or of an append, which is one run: that costs nothing
/// beyond this value. Only a granule with holes has a bit per byte.
#[derive(Clone, Debug)]
pub(super) enum Granule {
    /// One run of bytes.
    Run { start: u16, end: u16 },
    /// Any set of bytes, one bit each.
    Bits(Box<[u64; WORDS]>),
}

/// Number of a granule in its block, or of a byte in its granule: both are far below 65536.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a block has 1024 granules, a granule 4096 bytes"
)]
#[inline]
pub(super) fn short(number: usize) -> u16 {
    debug_assert!(number <= GRANULE);
    number as u16
}

impl Granule {
    /// Heap memory of a granule with a bit per byte.
    pub(super) const BITS_BYTES: usize = size_of::<[u64; WORDS]>();

    /// The bytes `start..end`, no others.
    pub(super) fn run(start: usize, end: usize) -> Granule {
        Granule::Run {
            start: short(start),
            end: short(end),
        }
    }

    pub(super) fn is_dense(&self) -> bool {
        matches!(self, Granule::Bits(_))
    }

    /// Number of set bytes.
    pub(super) fn count(&self) -> usize {
        match self {
            Granule::Run { start, end } => usize::from(end - start),
            Granule::Bits(bits) => words::count(&bits[..]),
        }
    }

    pub(super) fn set(&mut self, from: usize, to: usize) {
        if let Granule::Run { start, end } = *self {
            let (start, end) = (usize::from(start), usize::from(end));
            if from <= end && start <= to {
                *self = Granule::run(start.min(from), end.max(to));
                return;
            }
        }
        words::set(self.bits(), from, to);
    }

    pub(super) fn clear(&mut self, from: usize, to: usize) {
        if let Granule::Run { start, end } = *self {
            let (start, end) = (usize::from(start), usize::from(end));
            if from <= start {
                *self = Granule::run(start.max(to.min(end)), end);
                return;
            }
            if end <= to {
                *self = Granule::run(start, end.min(from));
                return;
            }
        }
        words::clear(self.bits(), from, to);
    }

    pub(super) fn contains(&self, from: usize, to: usize) -> bool {
        match self {
            Granule::Run { start, end } => usize::from(*start) <= from && to <= usize::from(*end),
            Granule::Bits(bits) => words::all_set(&bits[..], from, to),
        }
    }

    /// The first set byte at or after `from`.
    pub(super) fn next_set(&self, from: usize) -> Option<usize> {
        match self {
            Granule::Run { start, end } => {
                let at = from.max(usize::from(*start));
                (at < usize::from(*end)).then_some(at)
            }
            Granule::Bits(bits) => words::next_one(&bits[..], from),
        }
    }

    /// The first unset byte at or after `from`.
    pub(super) fn next_unset(&self, from: usize) -> Option<usize> {
        match self {
            Granule::Run { start, end } => {
                let inside = (usize::from(*start)..usize::from(*end)).contains(&from);
                let at = if inside { usize::from(*end) } else { from };
                (at < GRANULE).then_some(at)
            }
            Granule::Bits(bits) => words::next_zero(&bits[..], from),
        }
    }

    /// The bits, after converting a run to them.
    fn bits(&mut self) -> &mut [u64; WORDS] {
        if let Granule::Run { start, end } = *self {
            let mut bits = Box::new([0; WORDS]);
            words::set(&mut bits[..], start.into(), end.into());
            *self = Granule::Bits(bits);
        }
        match self {
            Granule::Bits(bits) => bits,
            Granule::Run { .. } => unreachable!("a run was turned into bits above"),
        }
    }
}
