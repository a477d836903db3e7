//! Ranges of bytes with a value each, searchable by overlap with another range.
//!
//! A balanced search tree by first byte (an AVL tree), in which each node stores the last byte of its whole subtree.
//! For any set of locks, added in any order, a search visits one path of at most 1.44 log2(n) nodes and
//! the ranges that it tests.

use crate::Range;

/// See the module's documentation.
pub(crate) struct Intervals<V> {
    root: Tree<V>,
}

type Tree<V> = Option<Box<Node<V>>>;

/// The key of a range: its first byte, and a number that is unique in the tree.
type NodeKey = (u64, u64);

struct Node<V> {
    range: Range,
    id: u64,
    value: V,
    /// Largest last byte of all ranges in this subtree.
    last: u64,
    /// Number of nodes on the longest path down, including this one.
    height: u32,
    lower: Tree<V>,
    higher: Tree<V>,
}

impl<V> Default for Intervals<V> {
    fn default() -> Self {
        Intervals { root: None }
    }
}

impl<V> Intervals<V> {
    /// Adds a range, with a number that is unique in the tree.
    pub(crate) fn insert(&mut self, range: Range, id: u64, value: V) {
        let node = Box::new(Node {
            range,
            id,
            value,
            last: range.last(),
            height: 1,
            lower: None,
            higher: None,
        });
        self.root = Some(insert(self.root.take(), node));
    }

    /// Removes the range that was added with this number.
    pub(crate) fn remove(&mut self, range: Range, id: u64) {
        self.root = remove(self.root.take(), (range.first(), id));
    }

    /// Returns the first of the ranges that overlap `range`, in the order of their first bytes, for whose
    /// value `is_it` is true.
    pub(crate) fn find(
        &self,
        range: Range,
        mut is_it: impl FnMut(&V) -> bool,
    ) -> Option<(Range, &V)> {
        find(&self.root, range, &mut is_it)
    }
}

impl<V> Node<V> {
    fn place(&self) -> NodeKey {
        (self.range.first(), self.id)
    }

    /// Recomputes the data about its subtree.
    fn update(&mut self) {
        let below = [&self.lower, &self.higher];
        self.height = 1 + below.map(height).into_iter().max().unwrap_or(0);
        let last = below.into_iter().flatten().map(|node| node.last).max();
        self.last = self.range.last().max(last.unwrap_or(0));
    }
}

fn height<V>(tree: &Tree<V>) -> u32 {
    tree.as_ref().map_or(0, |node| node.height)
}

fn insert<V>(tree: Tree<V>, new: Box<Node<V>>) -> Box<Node<V>> {
    let Some(mut node) = tree else { return new };
    let side = match new.place() < node.place() {
        true => &mut node.lower,
        false => &mut node.higher,
    };
    *side = Some(insert(side.take(), new));
    balance(node)
}

fn remove<V>(tree: Tree<V>, place: NodeKey) -> Tree<V> {
    let mut node = tree?;
    if place == node.place() {
        return match (node.lower.take(), node.higher.take()) {
            (lower, None) => lower,
            (lower, Some(higher)) => {
                let (mut next, higher) = take_lowest(higher);
                next.lower = lower;
                next.higher = higher;
                Some(balance(next))
            }
        };
    }
    let side = match place < node.place() {
        true => &mut node.lower,
        false => &mut node.higher,
    };
    *side = remove(side.take(), place);
    Some(balance(node))
}

/// Removes the lowest node of a tree, and returns it and the rest.
fn take_lowest<V>(mut node: Box<Node<V>>) -> (Box<Node<V>>, Tree<V>) {
    match node.lower.take() {
        None => {
            let rest = node.higher.take();
            (node, rest)
        }
        Some(lower) => {
            let (lowest, rest) = take_lowest(lower);
            node.lower = rest;
            (lowest, Some(balance(node)))
        }
    }
}

/// Balances a node whose sides differ in height by at most two.
fn balance<V>(mut node: Box<Node<V>>) -> Box<Node<V>> {
    let (lower, higher) = (height(&node.lower), height(&node.higher));
    if lower > higher + 1 {
        node.lower = node.lower.take().map(|below| {
            let bent = height(&below.higher) > height(&below.lower);
            if bent { raise_higher(below) } else { below }
        });
        return raise_lower(node);
    }
    if higher > lower + 1 {
        node.higher = node.higher.take().map(|below| {
            let bent = height(&below.lower) > height(&below.higher);
            if bent { raise_lower(below) } else { below }
        });
        return raise_higher(node);
    }
    node.update();
    node
}

/// Rotates the node's lower child into its place.
fn raise_lower<V>(mut node: Box<Node<V>>) -> Box<Node<V>> {
    let Some(mut top) = node.lower.take() else {
        return node;
    };
    node.lower = top.higher.take();
    node.update();
    top.higher = Some(node);
    top.update();
    top
}

/// Rotates the node's higher child into its place.
fn raise_higher<V>(mut node: Box<Node<V>>) -> Box<Node<V>> {
    let Some(mut top) = node.higher.take() else {
        return node;
    };
    node.higher = top.lower.take();
    node.update();
    top.lower = Some(node);
    top.update();
    top
}

fn find<'a, V>(
    tree: &'a Tree<V>,
    range: Range,
    is_it: &mut impl FnMut(&V) -> bool,
) -> Option<(Range, &'a V)> {
    let node = tree.as_deref()?;
    #[cfg(test)]
    tests::VISITED.with(|visited| visited.set(visited.get() + 1));
    if node.last < range.first() {
        return None;
    }
    if let Some(found) = find(&node.lower, range, is_it) {
        return Some(found);
    }
    if node.range.first() > range.last() {
        return None;
    }
    if node.range.overlaps(range) && is_it(&node.value) {
        return Some((node.range, &node.value));
    }
    find(&node.higher, range, is_it)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    thread_local! {
        /// Number of nodes that searches of this thread have visited.
        pub(crate) static VISITED: Cell<usize> = const { Cell::new(0) };
    }

    /// Checks order, balance, and the data of each node about its subtree; returns the height.
    fn check(tree: &Tree<u64>) -> u32 {
        let Some(node) = tree else { return 0 };
        let (lower, higher) = (check(&node.lower), check(&node.higher));
        assert!(lower.abs_diff(higher) <= 1, "out of balance");
        assert_eq!(node.height, 1 + lower.max(higher));
        let below = [&node.lower, &node.higher];
        for (at, below) in below.into_iter().enumerate() {
            if let Some(below) = below {
                assert_eq!(below.place() < node.place(), at == 0);
            }
        }
        let last = below.into_iter().flatten().map(|node| node.last);
        assert_eq!(node.last, last.chain([node.range.last()]).max().unwrap());
        node.height
    }

    fn bytes(first: u64, len: u64) -> Range {
        Range::new(first, len).unwrap()
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_a_look_at_all_finds(
            steps in prop::collection::vec((any::<bool>(), 0u64..60, 0u64..9), 1..120),
            asked in prop::collection::vec((0u64..60, 0u64..9), 20),
        ) {
            let (mut tree, mut all) = (Intervals::default(), Vec::new());
            for (id, (adds, first, len)) in steps.into_iter().enumerate() {
                let id = id as u64;
                if adds || all.is_empty() {
                    all.push((bytes(first, len), id));
                    tree.insert(bytes(first, len), id, id);
                } else {
                    let (range, id) = all.swap_remove(first as usize % all.len());
                    tree.remove(range, id);
                }
                check(&tree.root);
            }
            all.sort_by_key(|(range, id)| (range.first(), *id));
            for (first, len) in asked {
                let range = bytes(first, len);
                let mut found = Vec::new();
                tree.find(range, |id| {
                    found.push(*id);
                    false
                });
                let expected = all.iter().filter(|(own, _)| own.overlaps(range));
                prop_assert_eq!(&found, &expected.map(|(_, id)| *id).collect::<Vec<_>>());
                let last = found.last().copied();
                let of_last = tree.find(range, |id| Some(*id) == last).map(|(_, id)| *id);
                prop_assert_eq!(of_last, last);
            }
        }
    }

    #[test]
    fn a_search_goes_down_one_path() {
        let mut tree = Intervals::default();
        // In ascending order, the worst case for an unbalanced tree.
        for id in 0..16_384 {
            tree.insert(bytes(id * 10, 5), id, id);
        }
        assert!(check(&tree.root) <= 20);
        for at in [0, 7, 81_920, 163_839, 1 << 40] {
            VISITED.with(|visited| visited.set(0));
            tree.find(bytes(at, 1), |_| true);
            let visited = VISITED.with(Cell::get);
            assert!(visited <= 60, "{visited} nodes for byte {at}");
        }
        for id in 0..16_384 {
            tree.remove(bytes(id * 10, 5), id);
        }
        assert!(tree.root.is_none());
    }
}
