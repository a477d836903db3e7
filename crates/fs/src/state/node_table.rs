//! The table of all nodes in memory, by inode.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_types::{Inode, to_usize};
use forebay_vfs::Result;
use forebay_waits::{For, waiting};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::inode_hash::InodeHash;
use super::node::Node;

const SHARDS: usize = 64;

/// An entry of the table: filled once, by the first caller.
type Slot = Arc<OnceCell<Arc<Node>>>;

/// All nodes in memory, by inode.
pub(crate) struct NodeTable {
    shards: Vec<Mutex<Shard>>,
    /// How much a shard may weigh before it is swept.
    shard_limit: usize,
}

#[derive(Default)]
struct Shard {
    slots: HashMap<Inode, Slot, InodeHash>,
    /// The sum of its nodes' weights beyond 1 each. Never too small; exact after a sweep.
    more: usize,
}

impl Shard {
    /// Makes room for one more node, if there are `limit`.
    fn keep_within(&mut self, limit: usize) {
        if self.slots.len() + self.more >= limit {
            self.sweep();
        }
    }

    /// Removes nodes that no task holds, that have nothing unpublished, and that were not used since the last sweep.
    /// Their cached bytes are freed with them.
    fn sweep(&mut self) {
        let mut more = 0;
        self.slots.retain(|_, slot| {
            let Some(node) = slot.get() else { return true };
            let held = Arc::strong_count(slot) > 1 || Arc::strong_count(node) > 1;
            let stays = held || node.used.swap(false, Ordering::Relaxed) || !node.is_forgettable();
            more += if stays { node.weight() - 1 } else { 0 };
            stays
        });
        self.more = more;
    }
}

impl NodeTable {
    /// A table that keeps about `limit` nodes, besides those that must stay.
    pub(crate) fn new(limit: usize) -> NodeTable {
        NodeTable {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            shard_limit: (limit / SHARDS).max(16),
        }
    }

    fn shard(&self, inode: Inode) -> &Mutex<Shard> {
        // Inodes count up, so their low bits spread evenly.
        &self.shards[to_usize(inode.0) % SHARDS]
    }

    /// The node, if it is in memory.
    pub(crate) fn peek(&self, inode: Inode) -> Option<Arc<Node>> {
        let shard = self.shard(inode).lock();
        let node = shard.slots.get(&inode)?.get()?.clone();
        node.used.store(true, Ordering::Relaxed);
        Some(node)
    }

    /// Like [`peek`](NodeTable::peek), but does not count as a use of the node.
    pub(crate) fn glance(&self, inode: Inode) -> Option<Arc<Node>> {
        let shard = self.shard(inode).lock();
        shard.slots.get(&inode)?.get().cloned()
    }

    /// The node; if it is not in memory, `load` makes it. Concurrent callers share one load, so that an older state
    /// can never replace a newer one.
    ///
    /// There is one node for an inode, whatever the result of a load. While a caller waits, its entry of the table
    /// may be removed, because the load of another caller failed, or be replaced by a node that was just made, under
    /// an inode that the caller asked for too early. A node that was loaded into such an entry is not used, and the
    /// caller looks again.
    pub(crate) async fn get<L>(&self, inode: Inode, load: impl Fn() -> L) -> Result<Arc<Node>>
    where
        L: Future<Output = Result<Arc<Node>>>,
    {
        loop {
            if let Some(node) = self.peek(inode) {
                return Ok(node);
            }
            let slot = {
                let mut shard = self.shard(inode).lock();
                if !shard.slots.contains_key(&inode) {
                    shard.keep_within(self.shard_limit);
                }
                shard.slots.entry(inode).or_default().clone()
            };
            // Also the callers that wait for the load of another one.
            let loaded = waiting(For::Bucket, slot.get_or_try_init(&load));
            let loaded = loaded.await.cloned();
            let mut shard = self.shard(inode).lock();
            let in_table = shard
                .slots
                .get(&inode)
                .is_some_and(|found| Arc::ptr_eq(found, &slot));
            match loaded {
                Ok(node) if in_table => {
                    // Once for each who has waited for it, until the next sweep.
                    shard.more += node.weight() - 1;
                    return Ok(node);
                }
                Ok(_) => {}
                Err(error) => {
                    if in_table && !slot.initialized() {
                        shard.slots.remove(&inode);
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Adds a node that was just made and that no other task can know yet.
    pub(crate) fn insert(&self, node: &Arc<Node>) {
        let mut shard = self.shard(node.inode).lock();
        shard.keep_within(self.shard_limit);
        shard.more += node.weight() - 1;
        shard
            .slots
            .insert(node.inode, Arc::new(OnceCell::new_with(Some(node.clone()))));
    }

    /// All nodes in memory.
    pub(crate) fn all(&self) -> Vec<Arc<Node>> {
        let shards = self.shards.iter().map(|shard| shard.lock());
        let nodes = |shard: parking_lot::MutexGuard<'_, Shard>| {
            let slots = shard.slots.values().filter_map(|slot| slot.get().cloned());
            slots.collect::<Vec<_>>()
        };
        shards.flat_map(nodes).collect()
    }

    /// Number of nodes in memory.
    pub(crate) fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().slots.len())
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use forebay_meta::record::Content;

    use super::super::node::NODE_BYTES;
    use super::*;
    use crate::testing::World;

    /// How many of 64 objects of one shard, made one after another, a table for 16 of them keeps.
    fn kept(content: impl Fn() -> Content) -> usize {
        let world = World::new(|_| {});
        let table = NodeTable::new(16 * SHARDS);
        for number in 1..=64 {
            table.insert(&world.object(Inode(number * SHARDS as u64), content()));
        }
        table.len()
    }

    #[test]
    fn a_link_with_a_long_path_counts_as_several_nodes() {
        let short = kept(|| Content::Regular);
        assert!((8..=16).contains(&short), "{short}");
        let long = kept(|| Content::Symlink {
            target: vec![b'a'; 7 * to_usize(NODE_BYTES)].into(),
        });
        assert!((1..=4).contains(&long), "{long}");
    }
}
