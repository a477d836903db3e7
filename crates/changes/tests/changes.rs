//! Changes between random trees: applied to the old tree they give the new one, and none of them is idle.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers here are small"
)]

mod model;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use forebay_changes::{Change, CompareError, Pair, What, compare, is_compared};
use forebay_meta::{MemoryStore, MetaStore};
use forebay_types::Inode;
use proptest::prelude::*;

use model::{Step, Tree};

/// How a comparison finds the entries that may differ.
#[derive(Clone, Copy, Debug)]
enum Way {
    ReadsAll,
    /// It knows all that differ, and some others.
    KnowsKeys,
}

fn pair(old: &Tree, new: &Tree, way: Way) -> Pair {
    let (old, new) = (old.entries(), new.entries());
    let keys: BTreeSet<Bytes> = old.keys().chain(new.keys()).cloned().collect();
    let keys = keys.into_iter().enumerate().filter(|(number, key)| {
        is_compared(key) && (old.get(key) != new.get(key) || number % 5 == 0)
    });
    let keys = keys.map(|(_, key)| key).collect();
    let store = |entries| Arc::new(MemoryStore::of(entries)) as Arc<dyn MetaStore>;
    let may_differ = match way {
        Way::ReadsAll => None,
        Way::KnowsKeys => Some(keys),
    };
    Pair::new(store(old), store(new), may_differ)
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(work)
}

fn changes(old: &Tree, new: &Tree, way: Way) -> Vec<Change> {
    let mut all = Vec::new();
    let pair = pair(old, new, way);
    let compared = block_on(compare(&pair, |change| {
        all.push(change);
        Ok(())
    }));
    compared.unwrap();
    all.sort();
    all
}

/// Applies changes to the old tree; takes objects, contents and attributes from the new one.
fn applied(old: &Tree, new: &Tree, changes: &[Change]) -> Tree {
    let mut tree = old.clone();
    let mut lost = BTreeSet::new();
    for change in changes {
        let path = match &change.what {
            What::Removed | What::LinkRemoved => &change.path,
            What::Renamed { from } => from,
            _ => continue,
        };
        let (place, inode) = old.at(path).unwrap();
        assert_eq!(inode, change.inode.0);
        assert!(lost.insert(place.clone()), "{change:?} loses a name twice");
        tree.names.remove(&place);
    }
    let mut got: Vec<_> = changes
        .iter()
        .filter(|change| {
            matches!(
                change.what,
                What::Made | What::Renamed { .. } | What::LinkAdded
            )
        })
        .collect();
    got.sort_by_key(|change| change.path.split(|byte| *byte == b'/').count());
    for change in got {
        let at = change.path.iter().rposition(|byte| *byte == b'/').unwrap();
        let (directory, name) = (&change.path[..at], &change.path[at + 1..]);
        let (_, directory) = tree.at(directory).unwrap();
        let before = tree
            .names
            .insert((directory, name.to_vec()), change.inode.0);
        assert_eq!(before, None, "{change:?}");
    }
    for change in changes {
        let inode = change.inode.0;
        match change.what {
            What::Made => {
                assert!(!old.nodes.contains_key(&inode));
                tree.nodes.insert(inode, new.nodes[&inode].clone());
            }
            What::Removed => {
                assert!(!new.nodes.contains_key(&inode));
                tree.nodes.remove(&inode).unwrap();
            }
            What::Content | What::Attributes => {
                assert_eq!(new.at(&change.path).unwrap().1, inode);
                let (from, to) = (&new.nodes[&inode], tree.nodes.get_mut(&inode).unwrap());
                if change.what == What::Content {
                    let is_other = (from.size, from.content) != (to.size, to.content);
                    assert!(
                        is_other || new.rewritten.contains(&inode) || from.content == 0,
                        "{change:?}"
                    );
                    (to.size, to.content) = (from.size, from.content);
                } else {
                    assert!(from.mode != to.mode || from.mtime != to.mtime, "{change:?}");
                    to.mode = from.mode;
                }
                to.mtime = from.mtime;
            }
            _ => {}
        }
    }
    tree
}

fn check(old: &Tree, new: &Tree) -> Result<(), TestCaseError> {
    let found = changes(old, new, Way::ReadsAll);
    let others = changes(old, new, Way::KnowsKeys);
    prop_assert_eq!(facts(&found), facts(&others));
    check_found(old, new, &found)?;
    check_found(old, new, &others)
}

/// The changes as facts on objects and on names: of several names that an object has got when it was made, or has lost when
/// it was removed, any may come first.
fn facts(changes: &[Change]) -> BTreeSet<(Inode, String, Vec<u8>)> {
    let mut facts = BTreeSet::new();
    for change in changes {
        let name = match change.what {
            What::Made | What::LinkAdded => Some("got"),
            What::Removed | What::LinkRemoved => Some("lost"),
            _ => None,
        };
        if let Some(name) = name {
            facts.insert((change.inode, name.to_owned(), change.path.clone()));
        }
        let path = match change.what {
            What::Renamed { .. } => change.path.clone(),
            _ => Vec::new(),
        };
        if !matches!(change.what, What::LinkAdded | What::LinkRemoved) {
            facts.insert((change.inode, format!("{:?}", change.what), path));
        }
    }
    facts
}

/// Without the names of changed objects, each of which may have several.
fn unnamed(changes: &[Change]) -> BTreeSet<(Inode, &What, &[u8])> {
    let unnamed = changes.iter().map(|change| match change.what {
        What::Content | What::Attributes => (change.inode, &change.what, &b""[..]),
        _ => (change.inode, &change.what, &change.path[..]),
    });
    unnamed.collect()
}

fn check_found(old: &Tree, new: &Tree, found: &[Change]) -> Result<(), TestCaseError> {
    prop_assert_eq!(unnamed(found).len(), found.len(), "an entry comes twice");
    let tree = applied(old, new, found);
    prop_assert_eq!(&tree.names, &new.names);
    let seen = |tree: &Tree| -> Vec<_> {
        let nodes = tree.nodes.iter();
        // Times of directories do not count.
        let seen = nodes.map(|(inode, node)| {
            let mtime = (!node.is_directory).then_some(node.mtime);
            (
                *inode,
                node.is_directory,
                node.mode,
                node.size,
                node.content,
                mtime,
            )
        });
        seen.collect()
    };
    prop_assert_eq!(seen(&tree), seen(new));
    for change in found {
        prop_assert_eq!(
            change.is_directory,
            [old, new].iter().any(|tree| {
                tree.nodes
                    .get(&change.inode.0)
                    .is_some_and(|node| node.is_directory)
            })
        );
    }
    Ok(())
}

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = (0..17u8, any::<u16>(), any::<u16>(), any::<u8>());
    let step = step.prop_map(|(way, one, other, name)| Step {
        way,
        one,
        other,
        name,
    });
    proptest::collection::vec(step, 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn applied_to_the_old_tree_they_give_the_new_one(before in steps(60), after in steps(60)) {
        let mut old = Tree::new();
        before.into_iter().for_each(|step| old.step(step));
        let mut new = old.clone();
        new.rewritten.clear();
        after.into_iter().for_each(|step| new.step(step));
        check(&old, &new)?;
        // The other direction is as good: a volume that was restored.
        let same = changes(&old, &old, Way::ReadsAll);
        prop_assert_eq!(same, Vec::new());
    }
}

fn make(tree: &mut Tree, way: u8, other: u16, name: u8) {
    tree.step(Step {
        way,
        one: 0,
        other,
        name,
    });
}

fn said(changes: &[Change]) -> Vec<String> {
    let path = |path: &[u8]| path.escape_ascii().to_string();
    changes
        .iter()
        .map(|change| match &change.what {
            What::Renamed { from } => format!("{} -> {}", path(from), path(&change.path)),
            what => format!("{what:?} {}", path(&change.path)),
        })
        .collect()
}

#[test]
fn a_renamed_directory_is_one_change_and_what_is_below_has_its_new_path() {
    let mut old = Tree::new();
    make(&mut old, 0, 0, 0);
    for name in 0..4 {
        make(&mut old, 2, 1, name);
    }
    let mut new = old.clone();
    // The first name is that of the directory; the next ones are below.
    new.step(Step {
        way: 5,
        one: 0,
        other: 0,
        name: 3,
    });
    new.step(Step {
        way: 10,
        one: 0,
        other: 1,
        name: 0,
    });
    new.step(Step {
        way: 4,
        one: 2,
        other: 0,
        name: 0,
    });
    let expected = [r"Content /\xff\n/a", r"/a -> /\xff\n", "Removed /a/b"];
    let mut found = said(&changes(&old, &new, Way::ReadsAll));
    found.sort();
    let mut expected = expected.map(str::to_owned).to_vec();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn a_reader_that_goes_away_ends_it() {
    let old = Tree::new();
    let mut new = Tree::new();
    make(&mut new, 0, 0, 0);
    let pair = pair(&old, &new, Way::ReadsAll);
    let gone = || Err(io::Error::from(io::ErrorKind::BrokenPipe));
    let ended = block_on(compare(&pair, |_| gone()));
    assert!(
        matches!(ended, Err(CompareError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe)
    );
}
