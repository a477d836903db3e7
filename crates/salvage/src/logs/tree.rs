//! The names in a log: which objects it changed, and their paths.
//!
//! The log has changes only, so a file that existed before and was only written to has no name in it. Its path stays
//! `inode-<n>` unless the bucket knows more.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use forebay_environment::archived_log::Published;
use forebay_meta::record::{InodeRecord, Kind};
use forebay_types::Inode;
use forebay_wal::KeptLog;

use super::event::{EventReader, NameEvent, What, lossy};

/// Deeper than the paths of clients; a limit against cycles in damaged logs.
const DEPTH: usize = 512;

/// The changes of one object in the unpublished part.
#[derive(Clone, Debug, Default)]
pub(super) struct Touched {
    /// Bytes that were written to it.
    pub(super) written: u64,
}

/// Names and objects at the end of a log.
#[derive(Default)]
pub(super) struct Tree {
    /// The names that were made and not removed later.
    names: HashMap<(Inode, Vec<u8>), Inode>,
    /// The last name that each object was given.
    last: HashMap<Inode, (Inode, Vec<u8>)>,
    /// The newest attributes.
    records: HashMap<Inode, InodeRecord>,
    removed: BTreeSet<Inode>,
    /// Files whose content is unpublished.
    touched: BTreeMap<Inode, Touched>,
    /// The first number of objects that were made in the unpublished part; known only if the published LSN is.
    first_new: Option<Inode>,
}

impl Tree {
    /// Reads a whole log; its published part shows names as well.
    pub(super) fn of(log: &KeptLog, published: Option<Published>) -> Tree {
        let mut tree = Tree {
            first_new: published.map(|published| published.next_inode),
            ..Tree::default()
        };
        let mut events = EventReader::new(log.read_from(forebay_types::Lsn::ZERO));
        while let Some(event) = events.next() {
            let unpublished = published.is_none_or(|published| event.lsn >= published.lsn);
            tree.add(&event.what, unpublished);
        }
        tree
    }

    fn add(&mut self, what: &What<'_>, unpublished: bool) {
        match what {
            What::Write { inode, data, .. } if unpublished => {
                self.touched.entry(*inode).or_default().written += data.len() as u64;
            }
            What::Truncate { inode, record } => {
                self.records.insert(*inode, record.clone());
                if unpublished {
                    self.touched.entry(*inode).or_default();
                }
            }
            What::Names(changes) => {
                for change in changes {
                    self.add_name(change, unpublished);
                }
            }
            _ => {}
        }
    }

    fn add_name(&mut self, change: &NameEvent, unpublished: bool) {
        match change {
            NameEvent::Object { inode, record } => {
                let is_new = self.first_new.is_some_and(|first| *inode >= first);
                if unpublished && is_new && record.kind() == Kind::Regular {
                    self.touched.entry(*inode).or_default();
                }
                self.records.insert(*inode, record.clone());
            }
            NameEvent::Gone { inode } => {
                self.removed.insert(*inode);
            }
            NameEvent::Named {
                directory,
                name,
                inode,
            } => {
                let place = (*directory, name.clone());
                self.names.insert(place.clone(), *inode);
                self.last.insert(*inode, place);
            }
            NameEvent::Unnamed { directory, name } => {
                self.names.remove(&(*directory, name.clone()));
            }
            NameEvent::Trash { .. } | NameEvent::Quota { .. } | NameEvent::Unknown(_) => {}
        }
    }

    /// Files whose content changed in the unpublished part, by inode.
    pub(super) fn touched(&self) -> impl Iterator<Item = (Inode, &Touched)> {
        self.touched
            .iter()
            .map(|(inode, touched)| (*inode, touched))
    }

    pub(super) fn record(&self, inode: Inode) -> Option<&InodeRecord> {
        self.records.get(&inode)
    }

    pub(super) fn is_removed(&self, inode: Inode) -> bool {
        self.removed.contains(&inode)
    }

    /// Whether it was made in the unpublished part, so that the bucket does not know it; `None` if that cannot be
    /// determined.
    pub(super) fn is_new(&self, inode: Inode) -> Option<bool> {
        self.first_new.map(|first| inode >= first)
    }

    /// The directory and name of an object, as far as the log shows them. A name that it still has takes precedence
    /// over one that it had.
    pub(super) fn place(&self, inode: Inode) -> Option<(Inode, &[u8])> {
        let (directory, name) = self.last.get(&inode)?;
        let place = (*directory, name.clone());
        if self.names.get(&place) == Some(&inode) {
            return Some((*directory, name));
        }
        let current = self
            .names
            .iter()
            .find(|(_, stands_for)| **stands_for == inode);
        match current {
            Some(((directory, name), _)) => Some((*directory, name)),
            None => Some((*directory, name)),
        }
    }

    /// The path from the root, or from a directory that the log does not name, down to an object: the inode where it
    /// begins, and the names.
    pub(super) fn path(&self, inode: Inode) -> (Inode, Vec<Vec<u8>>) {
        let (mut at, mut names) = (inode, Vec::new());
        while at != Inode::ROOT
            && names.len() < DEPTH
            && let Some((directory, name)) = self.place(at)
        {
            names.push(name.to_vec());
            at = directory;
        }
        names.reverse();
        (at, names)
    }

    /// The path as text: `/a/b`, or `inode-7/b` if the log does not name a directory.
    pub(super) fn describe(&self, inode: Inode) -> String {
        let (begins, names) = self.path(inode);
        let mut text = if begins == Inode::ROOT && !names.is_empty() {
            String::new()
        } else {
            format!("inode-{begins}")
        };
        for name in names {
            text.push('/');
            text.push_str(&lossy(&name));
        }
        text
    }
}
