//! Which blocks share a pack.

/// Splits blocks, in their order, into groups that each fill a pack: a group ends when it has
/// `pack_bytes` or more, so that small files share a pack with their neighbours and no block is
/// ever split over two.
pub(crate) fn group<T>(
    items: impl IntoIterator<Item = T>,
    bytes: impl Fn(&T) -> u64,
    pack_bytes: u64,
) -> Vec<Vec<T>> {
    let mut groups = Vec::new();
    let mut group = Vec::new();
    let mut filled = 0;
    for item in items {
        filled += bytes(&item);
        group.push(item);
        if filled >= pack_bytes {
            groups.push(std::mem::take(&mut group));
            filled = 0;
        }
    }
    if !group.is_empty() {
        groups.push(group);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_ones_share_a_pack_and_large_ones_fill_their_own() {
        let groups = group([1, 2, 3, 10, 4, 4, 4, 1], |bytes| *bytes, 8);
        assert_eq!(groups, [vec![1, 2, 3, 10], vec![4, 4], vec![4, 1]]);
        assert!(group([], |bytes: &u64| *bytes, 8).is_empty());
    }
}
