//! Runs of bits in slices of words, for both levels of the bitmap.

const BITS: usize = u64::BITS as usize;

/// The words that the bits `start..end` touch, each with the mask of those bits.
fn masks(start: usize, end: usize) -> impl Iterator<Item = (usize, u64)> {
    let mut at = start;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let word = at / BITS;
        let stop = end.min((word + 1) * BITS);
        let mask = (u64::MAX >> (BITS - (stop - at))) << (at % BITS);
        at = stop;
        Some((word, mask))
    })
}

/// Sets the bits `start..end`; returns the number of bits that were not set before.
pub(super) fn set(words: &mut [u64], start: usize, end: usize) -> usize {
    let mut changed = 0;
    for (word, mask) in masks(start, end) {
        changed += (mask & !words[word]).count_ones() as usize;
        words[word] |= mask;
    }
    changed
}

/// Clears the bits `start..end`; returns the number of bits that were set before.
pub(super) fn clear(words: &mut [u64], start: usize, end: usize) -> usize {
    let mut changed = 0;
    for (word, mask) in masks(start, end) {
        changed += (mask & words[word]).count_ones() as usize;
        words[word] &= !mask;
    }
    changed
}

/// Whether this bit is set.
pub(super) fn is_set(words: &[u64], bit: usize) -> bool {
    words[bit / BITS] >> (bit % BITS) & 1 == 1
}

/// Whether all bits `start..end` are set.
pub(super) fn all_set(words: &[u64], start: usize, end: usize) -> bool {
    masks(start, end).all(|(word, mask)| words[word] & mask == mask)
}

/// Number of set bits.
pub(super) fn count(words: &[u64]) -> usize {
    words.iter().map(|word| word.count_ones() as usize).sum()
}

/// The first set bit at or after `from`.
pub(super) fn next_one(words: &[u64], from: usize) -> Option<usize> {
    find(words, from, |word| word)
}

/// The first unset bit at or after `from`.
pub(super) fn next_zero(words: &[u64], from: usize) -> Option<usize> {
    find(words, from, |word| !word)
}

fn find(words: &[u64], from: usize, wanted: impl Fn(u64) -> u64) -> Option<usize> {
    let mut index = from / BITS;
    let mut rest = wanted(*words.get(index)?) & (u64::MAX << (from % BITS));
    while rest == 0 {
        index += 1;
        rest = wanted(*words.get(index)?);
    }
    Some(index * BITS + rest.trailing_zeros() as usize)
}
