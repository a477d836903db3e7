//! Reads the packs: accounts, dead packs and held packs, in ranges that fit the memory.

use forebay_meta::record::{
    BlockMap, DeadPack, HeldPack, Holding, PackFrames, PackRecord, Referrer,
};
use forebay_meta::{Key, KeyRange, StoreError};
use forebay_types::{Inode, PackId, SnapshotId};

use super::{Walk, up_to};
use crate::finding::Nobody;
use crate::judge::maps;
use crate::judge::packs::Packs;
use crate::progress::Stage;
use crate::source::Cursor;

/// Accounts, dead packs and held packs, read once and split into ranges.
pub(crate) struct Accounts {
    records: Cursor,
    account: Option<(Key, Option<PackRecord>)>,
    removed: Cursor,
    dead: Option<(Key, Option<DeadPack>)>,
    kept: Cursor,
    held: Option<(Key, Option<HeldPack>)>,
}

impl Accounts {
    /// The next pack that has a record.
    fn next(&self) -> Option<PackId> {
        let first = [pack(&self.account), pack(&self.dead), pack(&self.held)];
        first.into_iter().flatten().min()
    }
}

fn pack<R>(entry: &Option<(Key, R)>) -> Option<PackId> {
    match entry.as_ref()?.0 {
        Key::Pack(pack) | Key::DeadPack(pack) | Key::HeldPack(pack) => Some(pack),
        _ => None,
    }
}

impl Walk {
    /// The accounts of packs, to be read in ranges.
    pub(crate) async fn accounts(&mut self) -> Result<Accounts, StoreError> {
        let mut records = Cursor::new(&self.source, KeyRange::packs_from(PackId(0)));
        let mut removed = Cursor::new(&self.source, KeyRange::dead_packs_from(PackId(0)));
        let mut kept = Cursor::new(&self.source, KeyRange::held_packs_from(PackId(0)));
        Ok(Accounts {
            account: records.record(&mut self.findings).await?,
            records,
            dead: removed.record(&mut self.findings).await?,
            removed,
            held: kept.record(&mut self.findings).await?,
            kept,
        })
    }

    /// Reads as many packs from `first` on as fit, and returns where the next range begins.
    pub(crate) async fn range_of_packs(
        &mut self,
        first: PackId,
        accounts: &mut Accounts,
    ) -> Result<(Packs, Option<PackId>), StoreError> {
        let mut packs = Packs::new(first, self.memory / 2);
        let sink = &mut self.findings;
        loop {
            let Some(next) = accounts.next() else {
                return Ok((packs, None));
            };
            if packs.is_full() && packs.highest().is_some_and(|highest| highest != next) {
                packs.end_before(Some(next));
                return Ok((packs, Some(next)));
            }
            self.highest_pack = Some(next);
            if pack(&accounts.account) == Some(next) {
                let record = accounts.account.take().and_then(|(_, record)| record);
                self.snapshots.account(record.as_ref());
                packs.account(next, record, sink);
                accounts.account = accounts.records.record(sink).await?;
            } else if pack(&accounts.dead) == Some(next) {
                let record = accounts.dead.take().and_then(|(_, record)| record);
                self.snapshots.dead(record.as_ref());
                packs.dead(next, record.as_ref(), sink);
                accounts.dead = accounts.removed.record(sink).await?;
            } else {
                let record = accounts.held.take().and_then(|(_, record)| record);
                self.snapshots.held(next, record.as_ref(), sink);
                packs.held(next, record.as_ref(), sink);
                accounts.held = accounts.kept.record(sink).await?;
            }
        }
    }

    /// Reads the notes on frames of a range of packs, and on the blocks that share them.
    pub(crate) async fn notes(&mut self, packs: &mut Packs) -> Result<(), StoreError> {
        let (from, end) = packs.bounds();
        let sink = &mut self.findings;
        let range = KeyRange::pack_frames_from(from);
        let range = up_to(range, end.map(KeyRange::pack_frames_from));
        let mut notes = Cursor::new(&self.source, range);
        while let Some((key, note)) = notes.record::<PackFrames>(sink).await? {
            if let Key::PackFrames(pack, _) = key {
                packs.frames_note(pack, note.as_ref(), sink);
            }
        }
        let range = KeyRange::referrers_from(from);
        let range = up_to(range, end.map(KeyRange::referrers_from));
        let mut notes = Cursor::new(&self.source, range);
        while let Some((key, _)) = notes.record::<Referrer>(sink).await? {
            if let Key::Referrer(pack, _) = key {
                packs.sharer_note(pack, sink);
            }
        }
        Ok(())
    }

    /// Reads the marks of held packs. Each range of packs receives all of them.
    pub(crate) async fn marks(&mut self, packs: &mut Packs) -> Result<(), StoreError> {
        let is_first = packs.bounds().0 == PackId(0);
        let mut marks = Cursor::new(&self.source, KeyRange::holdings_from(SnapshotId(0)));
        loop {
            let entry = match is_first {
                true => marks.record::<Holding>(&mut self.findings).await?,
                false => marks.record::<Holding>(&mut Nobody).await?,
            };
            let Some((key, _)) = entry else {
                return Ok(());
            };
            if let Key::Holding(holder, pack) = key {
                packs.mark(holder, pack, &mut self.findings);
            }
        }
    }

    /// Passes the references of all block maps to another range of packs.
    pub(crate) async fn references(&mut self, packs: &mut Packs) -> Result<(), StoreError> {
        self.census.passes += 1;
        self.progress.begin(Stage::Blocks, self.totals.block_maps);
        let range = KeyRange::blocks_from(Inode(0));
        let mut blocks = Cursor::new(&self.source, range).counting(&self.progress);
        while let Some((key, map)) = blocks.record::<BlockMap>(&mut Nobody).await? {
            if let (Key::Block(key), Some(map)) = (key, map) {
                maps::refer(key, &map, packs, false, &mut self.findings);
            }
        }
        Ok(())
    }
}
