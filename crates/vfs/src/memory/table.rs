//! All objects by inode, in shards so that calls for different objects do not contend.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_types::{Inode, to_usize};
use parking_lot::RwLock;

use super::node::Node;
use crate::{Error, Result};

/// Many more than there are processors, but few enough to be cheap.
const SHARDS: usize = 64;

type Shard = RwLock<HashMap<Inode, Arc<Node>>>;

pub(super) struct Table {
    shards: [Shard; SHARDS],
    next_inode: AtomicU64,
    len: AtomicU64,
}

impl Table {
    pub(super) fn new(root: Arc<Node>) -> Table {
        let table = Table {
            shards: std::array::from_fn(|_| Shard::default()),
            next_inode: AtomicU64::new(Inode::ROOT.0 + 1),
            len: AtomicU64::new(0),
        };
        table.insert(root);
        table
    }

    fn shard(&self, inode: Inode) -> &Shard {
        &self.shards[to_usize(inode.0 % SHARDS as u64)]
    }

    /// An inode that was never used before.
    pub(super) fn new_inode(&self) -> Inode {
        Inode(self.next_inode.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn find(&self, inode: Inode) -> Result<Arc<Node>> {
        self.shard(inode)
            .read()
            .get(&inode)
            .cloned()
            .ok_or(Error::Stale)
    }

    pub(super) fn insert(&self, node: Arc<Node>) {
        self.shard(node.inode).write().insert(node.inode, node);
        self.len.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn remove(&self, inode: Inode) {
        if self.shard(inode).write().remove(&inode).is_some() {
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Number of objects.
    pub(super) fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }
}
