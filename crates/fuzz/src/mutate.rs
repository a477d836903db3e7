//! Makes new inputs from known ones.

/// SplitMix64: the same numbers for the same seed, everywhere.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next_u64() % limit.max(1) as u64) as usize
    }
}

/// Numbers at which code is often wrong.
const EDGES: [u64; 14] = [
    0,
    1,
    2,
    7,
    0x7f,
    0x80,
    0xff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// An input made from one or two inputs of `corpus`, at most `max_bytes` long.
pub fn mutated(corpus: &[Vec<u8>], max_bytes: usize, random: &mut Random) -> Vec<u8> {
    let empty = Vec::new();
    let pick = |random: &mut Random| corpus.get(random.below(corpus.len())).unwrap_or(&empty);
    let mut bytes = pick(random).clone();
    // Usually few changes: many of them hardly ever leave a meaningful input.
    let changes = 1 + random.below(4) * random.below(4);
    for _ in 0..changes {
        change(&mut bytes, pick(random), random);
    }
    bytes.truncate(max_bytes);
    bytes
}

fn change(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    match random.below(10) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.next_u64() as u8;
            }
        }
        2 => {
            if let Some(byte) = bytes.get_mut(at) {
                let step = 1 + random.below(8) as u8;
                *byte = match random.below(2) {
                    0 => byte.wrapping_add(step),
                    _ => byte.wrapping_sub(step),
                };
            }
        }
        3 => overwrite_number(bytes, at, random),
        4 => {
            let count = random.below(9).min(bytes.len() - at);
            bytes.drain(at..at + count);
        }
        5 => bytes.truncate(at),
        6 => {
            let fresh: Vec<u8> = (0..random.below(9))
                .map(|_| random.next_u64() as u8)
                .collect();
            bytes.splice(at..at, fresh);
        }
        7 => {
            let count = random.below(64).min(bytes.len() - at);
            let again = bytes[at..at + count].to_vec();
            bytes.splice(at..at, again);
        }
        8 => {
            // The end of another input.
            let from = random.below(other.len() + 1);
            bytes.truncate(at);
            bytes.extend(&other[from..]);
        }
        _ => {
            // A piece of another input replaces the same number of bytes.
            let from = random.below(other.len() + 1);
            let count = random
                .below(64)
                .min(other.len() - from)
                .min(bytes.len() - at);
            bytes[at..at + count].copy_from_slice(&other[from..from + count]);
        }
    }
}

/// A number at or near an edge, of any width and byte order.
fn overwrite_number(bytes: &mut [u8], at: usize, random: &mut Random) {
    let near = [0, 1, u64::MAX, 8, 4096][random.below(5)];
    let number = EDGES[random.below(EDGES.len())].wrapping_add(near);
    let width = [1, 2, 4, 8][random.below(4)];
    let encoded = match random.below(2) {
        0 => number.to_le_bytes()[..width].to_vec(),
        _ => number.to_be_bytes()[8 - width..].to_vec(),
    };
    if let Some(to) = bytes.get_mut(at..at + width) {
        to.copy_from_slice(&encoded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_inputs_and_none_is_too_long() {
        let corpus = vec![b"forebay".to_vec(), vec![7; 300], Vec::new()];
        let inputs = |seed| {
            let mut random = Random(seed);
            let inputs: Vec<_> = (0..2000)
                .map(|_| mutated(&corpus, 310, &mut random))
                .collect();
            inputs
        };
        assert_eq!(inputs(3), inputs(3));
        assert_ne!(inputs(3), inputs(4));
        assert!(inputs(3).iter().all(|input| input.len() <= 310));
        let different: std::collections::BTreeSet<_> = inputs(3).into_iter().collect();
        assert!(different.len() > 1000, "{}", different.len());
    }
}
