//! Damaged frames, and the snapshots and paths that they are reported with.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use forebay_meta::record::{BlockMap, Record};
use forebay_meta::{Key, StoreError};
use forebay_pack::object_name;
use forebay_types::{BLOCK_SIZE, BlockKey, Inode};
use futures_util::{StreamExt, stream};

use super::plan::Wanted;
use crate::bucket::Bucket;
use crate::ended::Ended;
use crate::finding::{Finding, Sink};
use crate::judge::snapshots::Kept;
use crate::paths;
use crate::source::Source;
use crate::walk::Walk;
use crate::walk::past::{LOOKUPS, is_still_there};

/// Most frames for which all snapshots are looked through; the others are reported with the newest one.
const MOST: usize = 10_000;

/// A frame that cannot be read.
struct Fault {
    wanted: Wanted,
    why: String,
    /// The snapshots that refer to it, the newest first.
    snapshots: Vec<Arc<str>>,
    path: Option<String>,
    /// Whether its snapshot was deleted meanwhile, and none that stays is known to have it.
    is_ownerless: bool,
}

/// The frames that cannot be read.
#[derive(Default)]
pub(super) struct Damaged(Vec<Fault>);

impl Damaged {
    /// Adds a frame.
    pub(super) fn add(&mut self, wanted: Wanted, why: String, sink: &mut dyn Sink) {
        let snapshots = wanted.snapshot.iter().map(|kept| kept.name.clone());
        let fault = Fault {
            snapshots: snapshots.collect(),
            wanted,
            why,
            path: None,
            is_ownerless: false,
        };
        match self.0.len() < MOST {
            true => self.0.push(fault),
            false => sink.found(fault.finding()),
        }
    }

    /// Reports the frames, with all snapshots that refer to them, and the paths that files have there.
    pub(super) async fn report(mut self, walk: &mut Walk, bucket: &Bucket) -> Result<(), Ended> {
        let faults = &mut self.0;
        // After a restore of the volume, snapshots between two others do not have what both have.
        faults.sort_by_key(|one| {
            let commit = one.wanted.snapshot.as_ref().map(|kept| kept.commit);
            let is_live = commit.is_none();
            (one.key(), !is_live, std::cmp::Reverse(commit))
        });
        faults.dedup_by_key(|one| one.key());
        if let (false, Some(past)) = (faults.is_empty(), walk.past.clone()) {
            let newest = bucket.newest.newest().await?;
            for kept in walk.snapshots.newest_first() {
                if !is_still_there(&*newest, &kept).await? {
                    for fault in faults.iter_mut().filter(|one| one.is_of(&kept)) {
                        fault.snapshots.clear();
                        fault.is_ownerless = true;
                    }
                    continue;
                }
                if !faults.iter().any(|one| one.may_be_in(&kept)) {
                    continue;
                }
                let moment = match past.state(kept.id).await {
                    Ok(Some(moment)) => moment,
                    Err(error @ StoreError::Transient(_)) => return Err(error.into()),
                    // Reported before.
                    Ok(None) | Err(_) => continue,
                };
                look(faults, &kept, &moment.source).await?;
                moment.close().await;
            }
        }
        for fault in self.0.into_iter().filter(|one| !one.is_ownerless) {
            walk.findings.found(fault.finding());
        }
        Ok(())
    }
}

/// Finds the frames that a snapshot refers to, and the paths of those that no newer state has. Those whose own snapshot
/// was deleted become its own.
async fn look(
    faults: &mut [Fault],
    kept: &Kept,
    state: &Arc<dyn Source>,
) -> Result<(), StoreError> {
    // Each block once, whatever is damaged in it.
    let possible = faults.iter_mut().filter(|one| one.may_be_in(kept));
    let mut by_block: BTreeMap<BlockKey, Vec<&mut Fault>> = BTreeMap::new();
    for fault in possible {
        by_block.entry(fault.wanted.block).or_default().push(fault);
    }
    let look_up = by_block.into_iter().map(|(block, faults)| {
        let state = state.clone();
        async move { (faults, map_of(&state, block).await) }
    });
    let mut maps = stream::iter(look_up).buffer_unordered(LOOKUPS);
    while let Some((faults, map)) = maps.next().await {
        let map = match map {
            Ok(Some(map)) => map,
            Err(error @ StoreError::Transient(_)) => return Err(error),
            // A part of the snapshot that cannot be read was reported before.
            Ok(None) | Err(_) => continue,
        };
        for fault in faults.into_iter().filter(|one| one.is_in(&map)) {
            if fault.is_ownerless {
                fault.wanted.snapshot = Some(Arc::new(kept.clone()));
                fault.snapshots.push(kept.name.clone());
                fault.is_ownerless = false;
            } else if !fault.is_of(kept) {
                fault.snapshots.push(kept.name.clone());
            }
        }
    }
    drop(maps);
    let own = faults.iter_mut().filter(|one| one.is_of(kept));
    let own: Vec<&mut Fault> = own.collect();
    let inodes: BTreeSet<Inode> = own.iter().map(|one| one.wanted.block.inode).collect();
    let found: HashMap<Inode, String> = match paths::find(state, &inodes).await {
        Err(error @ StoreError::Transient(_)) => return Err(error),
        found => found.unwrap_or_default(),
    };
    for fault in own {
        fault.path = found.get(&fault.wanted.block.inode).cloned();
    }
    Ok(())
}

async fn map_of(state: &Arc<dyn Source>, block: BlockKey) -> Result<Option<BlockMap>, StoreError> {
    let key = Key::Block(block).encode();
    let value = state.get(&key).await?;
    let map = value.map(|value| BlockMap::decode(&key, &value));
    Ok(map.transpose()?)
}

impl Fault {
    fn key(&self) -> (forebay_types::PackId, u32, forebay_types::BlockKey) {
        let (pack, offset) = self.wanted.place();
        (pack, offset, self.wanted.block)
    }

    /// Whether this is the newest snapshot that has it.
    fn is_of(&self, kept: &Kept) -> bool {
        let of = self.wanted.snapshot.as_ref();
        of.is_some_and(|of| of.id == kept.id)
    }

    fn may_be_in(&self, kept: &Kept) -> bool {
        let of = self.wanted.snapshot.as_ref();
        of.is_none_or(|of| kept.commit <= of.commit)
    }

    fn is_in(&self, map: &BlockMap) -> bool {
        let mut extents = map.extents().iter();
        extents.any(|extent| (extent.frame.pack, extent.frame.offset) == self.wanted.place())
    }

    fn finding(self) -> Finding {
        let Wanted {
            block, frame, from, ..
        } = &self.wanted;
        let begins = block.block.0.saturating_mul(BLOCK_SIZE);
        let (inode, pack, offset) = (block.inode, frame.pack, frame.offset);
        let from = begins.saturating_add(u64::from(*from));
        let to = begins.saturating_add(u64::from(self.wanted.to));
        let object = object_name(pack);
        let snapshots = self.snapshots.iter().rev();
        let snapshots = snapshots.map(|name| name.to_string()).collect();
        match self.wanted.snapshot {
            None => Finding::DamagedFrame {
                inode,
                from,
                to,
                pack,
                object,
                offset,
                why: self.why,
                snapshots,
            },
            Some(_) => Finding::DamagedFrameOfSnapshot {
                snapshots,
                inode,
                path: self.path,
                from,
                to,
                pack,
                object,
                offset,
                why: self.why,
            },
        }
    }
}
