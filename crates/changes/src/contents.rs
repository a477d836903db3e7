//! Whether files of the same size have the same content, by their block maps.

use std::collections::BTreeSet;

use forebay_meta::record::TruncatedBlocks;
use forebay_meta::{Key, KeyRange, StoreError};
use forebay_types::{BlockIndex, BlockKey, Inode};
use futures_util::{StreamExt, TryStreamExt, stream};

use crate::pair::{Difference, Pair};

/// Files with numbers that are at most so far from each other are looked at together.
const GAP: u64 = 8;
/// Most files that are looked at together.
const GROUP: usize = 1024;
/// Groups that are looked at at the same time.
const PARALLEL: usize = 16;

/// A file whose block maps have to be compared.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) inode: Inode,
    /// Blocks whose maps do not count in the old moment.
    pub(crate) old_truncated: TruncatedBlocks,
    /// The same in the new one: all of those, or none.
    pub(crate) new_truncated: TruncatedBlocks,
}

impl Look {
    fn is_other(&self, block: BlockIndex, difference: &Difference) -> bool {
        let old = difference.old.as_ref();
        let new = difference.new.as_ref();
        let old = old.filter(|_| !self.old_truncated.contains(block));
        let new = new.filter(|_| !self.new_truncated.contains(block));
        old != new
    }
}

/// The files of `looks`, ascending, that have different block maps.
pub(crate) async fn look_into(
    pair: &Pair,
    looks: Vec<Look>,
) -> Result<BTreeSet<Inode>, StoreError> {
    let groups = looks.chunk_by(|one, next| next.inode.0 - one.inode.0 <= GAP);
    let groups = groups.flat_map(|group| group.chunks(GROUP));
    // Collected: a future that is sent to another thread must not hold the closures.
    let compared: Vec<_> = groups.map(|group| differing(pair, group)).collect();
    let compared = stream::iter(compared).buffer_unordered(PARALLEL);
    let all: Vec<Vec<Inode>> = compared.try_collect().await?;
    Ok(all.into_iter().flatten().collect())
}

async fn differing(pair: &Pair, group: &[Look]) -> Result<Vec<Inode>, StoreError> {
    let (Some(first), Some(last)) = (group.first(), group.last()) else {
        return Ok(Vec::new());
    };
    let mut found: Vec<Inode> = Vec::new();
    let range = KeyRange::blocks_between(first.inode, last.inode);
    let mut walk = pair.short_walk(&range, group.len());
    while let Some(differences) = walk.next().await? {
        for difference in differences {
            let Key::Block(BlockKey { inode, block }) = Key::decode(&difference.key)? else {
                continue;
            };
            if found.last() == Some(&inode) {
                continue;
            }
            let look = group.binary_search_by_key(&inode, |look| look.inode);
            let look = look.ok().and_then(|at| group.get(at));
            if look.is_some_and(|look| look.is_other(block, &difference)) {
                found.push(inode);
            }
        }
        if group.len() == 1 && !found.is_empty() {
            break;
        }
    }
    Ok(found)
}
