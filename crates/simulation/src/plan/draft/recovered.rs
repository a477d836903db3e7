//! Restores from snapshots and from the trash.

use forebay_fs::{RestoreRequest, Wanted};
use forebay_types::Inode;

use super::{Draft, name};
use crate::model::{ROOT, State};
use crate::operation::Operation;

/// Most objects that one restore puts back.
const MOST: usize = 8;

impl Draft {
    /// Puts something of one of the snapshots back: to its path, or to another one.
    pub(super) fn restore(&self, state: &State, directory: u64) -> Operation {
        let [first, second, third, fourth, fifth] = self.picks;
        let snapshots = state.snapshots();
        let last = snapshots.len().saturating_sub(1);
        let pick = match fifth % 4 {
            0 => first as usize % snapshots.len().max(1),
            // The deletion of older ones is more likely to have been ordered.
            _ => last.saturating_sub(first as usize % 2),
        };
        let (snapshot, path) = match snapshots.iter().nth(pick) {
            Some((name, then)) => (name.clone(), something(then, second)),
            None => ("none".to_owned(), b"/a".to_vec()),
        };
        let to = (path == b"/" || third.is_multiple_of(2)).then(|| {
            let mut to = state.path_of(directory).unwrap_or_default();
            to.push(b'/');
            to.extend(name(fourth));
            to
        });
        Operation::Restore(RestoreRequest {
            snapshot,
            path,
            to,
            replace: !fourth.is_multiple_of(3),
        })
    }

    /// Brings something back from the trash: to its path, or to another one.
    pub(super) fn undelete(&self, state: &State, directory: u64) -> Operation {
        let [first, second, third, fourth, _] = self.picks;
        let entries: Vec<u64> = state.trash().map(|(inode, _)| inode).collect();
        let pick = entries.get(first as usize % entries.len().max(1));
        let inode = pick.copied().unwrap_or(u64::from(first % 64));
        let to = third.is_multiple_of(3).then(|| {
            let mut to = state.path_of(directory).unwrap_or_default();
            to.push(b'/');
            to.extend(name(fourth));
            to
        });
        let path = state.path_in_trash(inode);
        let wanted = match path.filter(|_| second.is_multiple_of(2)) {
            Some(path) => Wanted::Path(path),
            None => Wanted::Id(Inode(inode)),
        };
        Operation::Undelete { wanted, to }
    }
}

/// The path of something in a snapshot with few objects below it; sometimes one that is not there.
fn something(then: &State, pick: u32) -> Vec<u8> {
    let mut found = vec![(b"/".to_vec(), ROOT)];
    let mut at = 0;
    while let Some((path, inode)) = found.get(at).cloned() {
        for (name, inode) in then.names_in(inode) {
            let path = match &path[..] {
                b"/" => [b"/", name].concat(),
                path => [path, b"/", name].concat(),
            };
            found.push((path, inode));
        }
        at += 1;
    }
    found.retain(|(_, inode)| then.names_below(*inode).len() < MOST);
    match found.get(pick as usize / 16 % found.len().max(1)) {
        Some((path, _)) if !pick.is_multiple_of(16) => path.clone(),
        _ => [b"/", &name(pick / 16)[..]].concat(),
    }
}
