//! Repairs snapshots, the packs that they hold, and the history of the volume.

use std::collections::BTreeSet;

use forebay_meta::record::{
    DeadPack, HeldPack, History, Holding, MAX_SNAPSHOT_NAME, PackLife, PackRecord, SnapshotRecord,
    VolumeState, holder,
};
use forebay_meta::{Key, KeyRange, StoreError};
use forebay_types::{CommitNumber, PackId, SnapshotId};

use super::packs;
use super::records::LOST_INODES;
use super::work::Work;
use crate::bucket::Bucket;
use crate::ended::Ended;
use crate::finding::{Finding, HistoryCount, Nobody};

/// Numbers of snapshots that are skipped when the last one is not known: it may have been deleted, and no number is used
/// again.
const LOST_SNAPSHOTS: u64 = 1 << 20;

/// All snapshots; `None` for a record that cannot be read.
async fn all(work: &Work<'_>) -> Result<Vec<(SnapshotId, Option<SnapshotRecord>)>, StoreError> {
    let mut found = Vec::new();
    let mut snapshots = work.cursor(KeyRange::snapshots());
    while let Some((key, record)) = snapshots.record::<SnapshotRecord>(&mut Nobody).await? {
        if let Key::Snapshot(id) = key {
            found.push((id, record));
        }
    }
    Ok(found)
}

/// Raises a number in the volume's history.
pub(super) fn raise(state: &mut VolumeState, count: HistoryCount, highest: u64) {
    write_history(state);
    match count {
        HistoryCount::Commit => state.history.commit = CommitNumber(highest),
        HistoryCount::Snapshot => state.history.last_snapshot = highest,
    }
}

/// Adds to a state of an earlier version what it needs before it can have a history.
pub(super) fn write_history(state: &mut VolumeState) {
    state.charged_bytes.get_or_insert(0);
    state.inode_lease.get_or_insert(LOST_INODES);
}

/// The history of a volume whose state is lost, from the records that name commits and snapshots.
pub(super) async fn history(work: &Work<'_>) -> Result<History, StoreError> {
    let mut history = History::default();
    let mut saw = |commit: CommitNumber| history.commit = history.commit.max(commit);
    let mut last = None;
    for (id, record) in all(work).await? {
        last = last.max(Some(id));
        saw(record.map_or_else(CommitNumber::default, |record| record.commit));
    }
    let mut accounts = work.cursor(KeyRange::packs());
    while let Some((_, record)) = accounts.record::<PackRecord>(&mut Nobody).await? {
        saw(record.map_or_else(CommitNumber::default, |record| record.born));
    }
    let mut dead = work.cursor(KeyRange::dead_packs());
    while let Some((_, record)) = dead.record::<DeadPack>(&mut Nobody).await? {
        if let Some(PackLife { born, died, .. }) = record.and_then(|record| record.life) {
            saw(born.max(died));
        }
    }
    let mut held_bytes = 0_u64;
    let mut held = work.cursor(KeyRange::held_packs());
    while let Some((_, record)) = held.record::<HeldPack>(&mut Nobody).await? {
        let Some(HeldPack { holder, life }) = record else {
            continue;
        };
        last = last.max(Some(holder));
        saw(life.born.max(life.died));
        held_bytes = held_bytes.saturating_add(life.bytes);
    }
    history.held_bytes = held_bytes;
    if let Some(SnapshotId(last)) = last {
        history.last_snapshot = last.saturating_add(LOST_SNAPSHOTS);
    }
    Ok(history)
}

/// The record of a snapshot cannot be read.
pub(super) fn unreadable(work: &mut Work<'_>, finding: &Finding, id: SnapshotId) {
    if !work.accept_loss {
        return;
    }
    work.delete(&Key::Snapshot(id));
    let what = format!(
        "snapshot {id} is lost: its record cannot be read. The packs that it holds are passed on"
    );
    work.did(finding, what);
}

/// Another snapshot should hold a pack, or none.
pub(super) async fn holder_of(
    work: &mut Work<'_>,
    finding: &Finding,
    (pack, is): (PackId, Option<SnapshotId>),
) -> Result<(), StoreError> {
    let key = Key::HeldPack(pack);
    let Some(HeldPack { holder, life }) = work.get::<HeldPack>(&key).await? else {
        return Ok(());
    };
    unmark(work, (holder, pack)).await?;
    hold(work, finding, pack, (is, life));
    Ok(())
}

/// Writes that a snapshot holds a dead pack or, if none does, that the pack is to be deleted.
fn hold(
    work: &mut Work<'_>,
    finding: &Finding,
    pack: PackId,
    (holder, life): (Option<SnapshotId>, PackLife),
) {
    let key = Key::HeldPack(pack);
    let what = match holder {
        Some(holder) => {
            work.put(&key, &HeldPack { holder, life });
            work.put(&Key::Holding(holder, pack), &Holding);
            format!("pack {pack} is held by snapshot {holder}")
        }
        None => {
            work.delete(&key);
            work.put(&Key::DeadPack(pack), &DeadPack { life: Some(life) });
            format!("noted pack {pack} for deletion: no snapshot refers to it")
        }
    };
    work.did(finding, what);
}

/// Deletes the mark of a held pack, if there is one.
pub(super) async fn unmark(
    work: &mut Work<'_>,
    (holder, pack): (SnapshotId, PackId),
) -> Result<(), StoreError> {
    let key = Key::Holding(holder, pack);
    if work.has(&key).await? {
        work.delete(&key);
    }
    Ok(())
}

/// The record of a held pack is lost: it lived since before all snapshots, as far as is known. Does nothing while
/// snapshots or the volume's history are unknown.
pub(super) async fn hold_again(
    work: &mut Work<'_>,
    finding: &Finding,
    bucket: &Bucket,
    pack: PackId,
) -> Result<(), Ended> {
    if !work.has_state().await? {
        return Ok(());
    }
    let Some(kept) = kept(work).await? else {
        return Ok(());
    };
    if let Some(life) = packs::life(work, bucket, pack, CommitNumber::default()).await? {
        hold(work, finding, pack, (holder(&life, kept), life));
        return Ok(());
    }
    // It is missing, or there was never a snapshot.
    let is_missing = bucket.len(pack).await.map_err(Ended::Bucket)?.is_none();
    if is_missing && !work.accept_loss {
        return Ok(());
    }
    work.delete(&Key::HeldPack(pack));
    work.put(&Key::DeadPack(pack), &DeadPack::default());
    work.did(
        finding,
        match is_missing {
            true => format!("gave up pack {pack}, which is not in the bucket, for all snapshots"),
            false => format!("noted pack {pack} for deletion: there was no snapshot"),
        },
    );
    Ok(())
}

/// All snapshots that are not being deleted; `None` if the record of one cannot be read: it is not known then which of them
/// refer to a pack.
async fn kept(work: &Work<'_>) -> Result<Option<Vec<(SnapshotId, CommitNumber)>>, StoreError> {
    let mut kept = Vec::new();
    for (id, record) in all(work).await? {
        let Some(record) = record else {
            return Ok(None);
        };
        if !record.is_being_deleted {
            kept.push((id, record.commit));
        }
    }
    Ok(Some(kept))
}

/// A snapshot refers to a pack that is not kept for it, as the pack's record says: the pack lived then, too. Block maps of
/// snapshots do not change and numbers of packs are not used twice, so they know better. Does nothing for a pack that is not
/// in the bucket and whose life is unknown or over.
pub(super) async fn keep_for(
    work: &mut Work<'_>,
    finding: &Finding,
    bucket: &Bucket,
    (id, pack): (SnapshotId, PackId),
) -> Result<(), Ended> {
    let Some(snapshot) = work.get::<SnapshotRecord>(&Key::Snapshot(id)).await? else {
        return Ok(());
    };
    let commit = snapshot.commit;
    let key = Key::Pack(pack);
    if let Some(account) = work.get::<PackRecord>(&key).await? {
        if account.born > commit {
            let born = commit;
            work.put(&key, &PackRecord { born, ..account });
            let what = format!("noted that pack {pack} was there when snapshot {id} was made");
            work.did(finding, what);
        }
        return Ok(());
    }
    let Some(kept) = kept(work).await? else {
        return Ok(());
    };
    let held = work.get::<HeldPack>(&Key::HeldPack(pack)).await?;
    let dead = work.get::<DeadPack>(&Key::DeadPack(pack)).await?;
    // A gateway may have deleted it.
    if held.is_none() && bucket.len(pack).await.map_err(Ended::Bucket)?.is_none() {
        return Ok(());
    }
    let known = held.map(|held| held.life);
    let life = match known.or(dead.and_then(|dead| dead.life)) {
        Some(life) => PackLife {
            born: life.born.min(commit),
            died: life.died.max(commit.next()),
            ..life
        },
        // It lived since before all snapshots, as far as is known.
        None => match packs::life(work, bucket, pack, CommitNumber::default()).await? {
            Some(life) => life,
            None => return Ok(()),
        },
    };
    if let Some(HeldPack { holder, .. }) = held {
        unmark(work, (holder, pack)).await?;
    }
    if dead.is_some() {
        work.delete(&Key::DeadPack(pack));
    }
    hold(work, finding, pack, (holder(&life, kept), life));
    Ok(())
}

/// A mark that contradicts the records of packs.
pub(super) async fn mark(
    work: &mut Work<'_>,
    finding: &Finding,
    bucket: &Bucket,
    (snapshot, pack): (SnapshotId, PackId),
) -> Result<(), Ended> {
    let held = work.get::<HeldPack>(&Key::HeldPack(pack)).await?;
    if held.is_some_and(|held| held.holder == snapshot) {
        work.put(&Key::Holding(snapshot, pack), &Holding);
        let what = format!("marked pack {pack} again as held by snapshot {snapshot}");
        work.did(finding, what);
        return Ok(());
    }
    let records = [Key::Pack(pack), Key::DeadPack(pack), Key::HeldPack(pack)];
    let mut has_record = false;
    for key in records {
        has_record |= work.has(&key).await?;
    }
    // The mark is the only trace of a held pack.
    if !has_record && bucket.len(pack).await.map_err(Ended::Bucket)?.is_some() {
        return hold_again(work, finding, bucket, pack).await;
    }
    work.delete(&Key::Holding(snapshot, pack));
    let what = format!("removed the mark that snapshot {snapshot} holds pack {pack}");
    work.did(finding, what);
    Ok(())
}

/// A mark that cannot be read.
pub(super) async fn unreadable_mark(
    work: &mut Work<'_>,
    finding: &Finding,
    (holder, pack): (SnapshotId, PackId),
) -> Result<(), StoreError> {
    let key = Key::Holding(holder, pack);
    let held = work.get::<HeldPack>(&Key::HeldPack(pack)).await?;
    if held.is_some_and(|held| held.holder != holder) {
        work.delete(&key);
        let what = format!("removed the mark that snapshot {holder} holds pack {pack}");
        work.did(finding, what);
        return Ok(());
    }
    work.put(&key, &Holding);
    let what = format!("marked pack {pack} again as held by snapshot {holder}");
    work.did(finding, what);
    Ok(())
}

/// Gives a snapshot whose name an earlier one has a name of its own.
pub(super) async fn other_name(
    work: &mut Work<'_>,
    finding: &Finding,
    id: SnapshotId,
) -> Result<(), StoreError> {
    let key = Key::Snapshot(id);
    let Some(record) = work.get::<SnapshotRecord>(&key).await? else {
        return Ok(());
    };
    let all = all(work).await?;
    let taken: BTreeSet<&str> = all
        .iter()
        .flat_map(|(_, record)| record)
        .map(|record| record.name.as_str())
        .collect();
    let mut end = format!("-{id}");
    // Each end is longer than the one before, so that one is free.
    let name = loop {
        let name = ended(&record.name, &end);
        if !taken.contains(name.as_str()) {
            break name;
        }
        end = format!("{end}-{id}");
    };
    let what = format!("renamed snapshot {id} from {:?} to {name:?}", record.name);
    work.put(&key, &SnapshotRecord { name, ..record });
    work.did(finding, what);
    Ok(())
}

/// The name with another end, cut before it so that both are no longer than a name may be.
fn ended(name: &str, end: &str) -> String {
    let room = MAX_SNAPSHOT_NAME.saturating_sub(end.len());
    let mut cut = room.min(name.len());
    while !name.is_char_boundary(cut) {
        cut -= 1;
    }
    let kept = name.get(..cut).unwrap_or_default();
    format!("{kept}{end}")
}
