//! Random numbers that a seed repeats.

/// SplitMix64: small, fast, and good enough to choose with.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Numbers that follow from `seed`.
    pub(crate) fn new(seed: u64) -> Random {
        Random(mix(seed ^ 0x5851_f42d_4c95_7f2d))
    }

    /// Separate numbers for the part `label` of a run with this `seed`.
    pub(crate) fn of(seed: u64, label: u64) -> Random {
        Random(mix(mix(seed) ^ label.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// A random 64-bit number.
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `limit`; 0 if `limit` is 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit.max(1)
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`; `None` only if there is none.
    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        choices.get(self.below(choices.len() as u64) as usize)
    }

    /// Fills `bytes`.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let number = self.number().to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
    }
}

fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_label_others() {
        let numbers = |seed, label| {
            let mut random = Random::of(seed, label);
            [(); 4].map(|()| random.number())
        };
        assert_eq!(numbers(1, 2), numbers(1, 2));
        assert_ne!(numbers(1, 2), numbers(1, 3));
        assert_ne!(numbers(1, 2), numbers(2, 2));
    }
}
