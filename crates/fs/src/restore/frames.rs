//! Pins the packs to which restored files refer, and has those live again that only snapshots hold.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_meta::Key;
use forebay_meta::record::{BlockMap, DeadPack, HeldPack, PackLife, PackRecord};
use forebay_pack_store::FetchError;
use forebay_types::{BlockIndex, BlockKey, CheckpointId, Inode, PackId, bounded_u32};

use super::{Context, RestoreError, Source};
use crate::snapshots::SnapshotError;

/// How long a pack is waited for whose account the batch in flight changes, and how often.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
const LOOKS: usize = 2000;

impl Context {
    /// Pins these packs, which a snapshot refers to, for the open checkpoint, which it returns. Packs without an
    /// account get one again when that checkpoint is published.
    pub(super) async fn pin(
        &self,
        packs: &BTreeSet<PackId>,
        (snapshot, name): Source<'_>,
    ) -> Result<CheckpointId, RestoreError> {
        let checkpoint = self.state.open_checkpoint().id;
        self.sharing.shares_frames();
        for pack in packs {
            let mut looks = 0;
            while !self.pin_one(checkpoint, *pack).await? {
                looks += 1;
                if looks == LOOKS {
                    let why = format!("pack {pack} has no record; `forebay fsck` says more");
                    return Err(RestoreError::Unreadable(why));
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
        // Looked at after the pins: until the deletion of the snapshot begins, nothing deletes a pack that it refers
        // to, and from then on the pins are seen.
        if !self.state.snapshots.has(snapshot) {
            return Err(SnapshotError::NotFound(name.to_owned()).into());
        }
        Ok(checkpoint)
    }

    /// `false` if the batch in flight gives the pack an account, or takes it away.
    async fn pin_one(&self, checkpoint: CheckpointId, pack: PackId) -> Result<bool, RestoreError> {
        let Some(is_safe) = self.sharing.pin(checkpoint, pack) else {
            return Ok(false);
        };
        if is_safe {
            return Ok(true);
        }
        let account = self.state.catalog.pack(pack).await?;
        let is_live = account.is_some_and(|account| account.live_bytes > 0);
        if !is_live && self.sharing.kept(pack).is_none() {
            let Some(record) = self.account_of(pack).await? else {
                return Ok(false);
            };
            self.sharing.keep(pack, record);
        }
        self.sharing.is_alive(checkpoint, pack);
        Ok(true)
    }

    /// The account that a pack had which is dead, or which only snapshots hold; `None` if it is neither.
    async fn account_of(&self, pack: PackId) -> Result<Option<PackRecord>, RestoreError> {
        let Some(life) = self.life_of(pack).await? else {
            return Ok(None);
        };
        let index = self.packs.index(pack, life.bytes).await;
        let (index, _) = index.map_err(|error| match error {
            FetchError::Unavailable(why) => RestoreError::Away(why),
            FetchError::Damaged(why) => RestoreError::Unreadable(format!("pack {pack}: {why}")),
        })?;
        let frames = index.entries.iter();
        Ok(Some(PackRecord {
            bytes: life.bytes,
            raw_bytes: frames.map(|entry| u64::from(entry.frame.raw_len)).sum(),
            live_bytes: 0,
            frames: bounded_u32(index.entries.len()),
            born: life.born,
        }))
    }

    async fn life_of(&self, pack: PackId) -> Result<Option<PackLife>, RestoreError> {
        let catalog = &self.state.catalog;
        let held: Option<HeldPack> = catalog.record(&Key::HeldPack(pack)).await?;
        if let Some(HeldPack { life, .. }) = held {
            return Ok(Some(life));
        }
        let dead: Option<DeadPack> = catalog.record(&Key::DeadPack(pack)).await?;
        Ok(dead.and_then(|dead| dead.life))
    }
}

/// The packs to which maps refer.
pub(super) fn packs_of(maps: &[(BlockIndex, BlockMap)]) -> BTreeSet<PackId> {
    let extents = maps.iter().flat_map(|(_, map)| map.extents());
    extents.map(|extent| extent.frame.pack).collect()
}

/// Maps of another file with the same content as those of `file`: their frames name the places they were written for.
pub(super) fn borrowed(
    file: Inode,
    maps: Vec<(BlockIndex, BlockMap)>,
) -> Result<Vec<(BlockIndex, BlockMap)>, RestoreError> {
    let maps = maps.into_iter().map(|(block, map)| {
        let key = BlockKey { inode: file, block };
        let mut own = BlockMap::new();
        for extent in map.extents() {
            let mut frame = extent.frame;
            frame.origin = Some(frame.origin_in(key));
            own.insert(extent.range, frame)
                .map_err(|error| RestoreError::Unreadable(format!("inode {file}: {error}")))?;
        }
        Ok((block, own))
    });
    maps.collect()
}
