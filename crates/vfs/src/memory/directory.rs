//! Entries of a directory, by name and by cookie.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use forebay_types::Inode;

use super::node::Node;
use crate::{Error, Result};

/// Longest name, in bytes.
const NAME_MAX: usize = 255;

/// Cookie of `.`.
pub(super) const DOT: u64 = 1;
/// Cookie of `..`.
pub(super) const DOT_DOT: u64 = 2;
/// Cookie of the first new name.
const FIRST: u64 = 3;

pub(super) struct Directory {
    /// The directory above; the root's is the root.
    pub(super) parent: Inode,
    names: HashMap<Bytes, Entry>,
    /// Names in the order of their creation. A free cookie is not assigned again.
    order: BTreeMap<u64, Bytes>,
    next_cookie: u64,
}

struct Entry {
    cookie: u64,
    node: Arc<Node>,
}

impl Directory {
    pub(super) fn new(parent: Inode) -> Directory {
        Directory {
            parent,
            names: HashMap::new(),
            order: BTreeMap::new(),
            next_cookie: FIRST,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub(super) fn find(&self, name: &[u8]) -> Option<&Arc<Node>> {
        self.names.get(name).map(|entry| &entry.node)
    }

    /// Inserts a name. It replaces an entry of this name and takes over its cookie; otherwise it gets `cookie`,
    /// if that is given and free, or a new one.
    pub(super) fn insert(&mut self, name: &[u8], node: Arc<Node>, cookie: Option<u64>) {
        let name = Bytes::copy_from_slice(name);
        let replaced = self.names.get(&name).map(|old| old.cookie);
        let cookie = replaced.or(cookie).unwrap_or_else(|| {
            self.next_cookie += 1;
            self.next_cookie - 1
        });
        self.order.insert(cookie, name.clone());
        self.names.insert(name, Entry { cookie, node });
    }

    /// Removes a name and returns its cookie.
    pub(super) fn remove(&mut self, name: &[u8]) -> Option<u64> {
        let entry = self.names.remove(name)?;
        self.order.remove(&entry.cookie);
        Some(entry.cookie)
    }

    /// Entries after `cookie`, in the order of their cookies.
    pub(super) fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &Bytes, &Arc<Node>)> {
        let later = self.order.range(cookie.saturating_add(1)..);
        later.filter_map(|(cookie, name)| Some((*cookie, name, &self.names.get(name)?.node)))
    }
}

/// Checks a name for a lookup.
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(Error::Invalid);
    }
    Ok(())
}

/// Checks a name for creation.
pub(super) fn check_new_name(name: &[u8]) -> Result<()> {
    if is_dot(name) {
        Err(Error::Exists)
    } else {
        check_name(name)
    }
}

/// Checks a name for removal or renaming.
pub(super) fn check_old_name(name: &[u8]) -> Result<()> {
    if is_dot(name) {
        Err(Error::Invalid)
    } else {
        check_name(name)
    }
}

fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}
