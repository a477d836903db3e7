//! The written data: bytes that do not compress, and that identify their place.

use fastrand::Rng;

/// The bytes of one piece of a file at a time, and their comparison with those that were read.
#[derive(Debug)]
pub(super) struct Pattern {
    /// Identifies the bytes: the file, and the number of times that it was overwritten.
    file: u64,
    expected: Vec<u8>,
}

impl Pattern {
    /// The pattern of file number `file`, in pieces of at most `bytes`.
    pub(super) fn new(file: u64, bytes: usize) -> Pattern {
        Pattern {
            file,
            expected: vec![0; bytes],
        }
    }

    /// The `bytes` bytes that belong at `offset`.
    pub(super) fn at(&mut self, offset: u64, bytes: usize) -> &[u8] {
        let piece = &mut self.expected[..bytes];
        // An odd factor: no two pieces of a file have the same seed, and in practice no pieces of two files.
        let seed = offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (self.file << 48);
        Rng::with_seed(seed).fill(piece);
        piece
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_same_again_and_differ_from_those_of_other_places_and_files() {
        let mut pattern = Pattern::new(1, 4096);
        let first = pattern.at(0, 4096).to_vec();
        assert_eq!(pattern.at(0, 4096), first);
        assert_ne!(pattern.at(4096, 4096), first);
        assert_ne!(Pattern::new(2, 4096).at(0, 4096), first);
        assert_eq!(pattern.at(0, 100), &first[..100]);
    }
}
