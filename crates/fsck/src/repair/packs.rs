//! Repairs accounts of packs, from the references to them and from their own indexes and frames.

use std::collections::BTreeSet;

use forebay_meta::record::{
    BlockMap, DeadPack, HeldPack, PackLife, PackRecord, Referrer, VolumeState,
};
use forebay_meta::{Key, KeyRange, StoreError};
use forebay_types::{CommitNumber, Inode, PackId};

use super::snapshots;
use super::work::Work;
use crate::bucket::Bucket;
use crate::ended::Ended;
use crate::explain;
use crate::finding::{Finding, Nobody};
use crate::judge::packs::impossible;

/// The account that a pack in the bucket should have, with `live_bytes` live bytes as far as known; `None` if the pack
/// is missing, or cannot be read well enough.
async fn account(
    work: &Work<'_>,
    bucket: &Bucket,
    pack: PackId,
    live_bytes: u64,
) -> Result<Option<PackRecord>, Ended> {
    let Some(found) = explain::explain(bucket, pack)
        .await
        .map_err(Ended::Bucket)?
    else {
        return Ok(None);
    };
    let raw_bytes = found
        .frames
        .iter()
        .map(|entry| u64::from(entry.frame.raw_len))
        .sum();
    // Too many rather than too few.
    let live_bytes = live_bytes.saturating_add(work.unknown_bytes());
    let record = PackRecord {
        bytes: found.len,
        raw_bytes,
        live_bytes,
        frames: u32::try_from(found.frames.len()).unwrap_or(u32::MAX),
        // As if before all snapshots, so that none loses it.
        born: CommitNumber::default(),
    };
    Ok(Some(record).filter(|record| impossible(record).is_none()))
}

/// Block maps refer to a pack that has no account.
pub(super) async fn without_account(
    work: &mut Work<'_>,
    finding: &Finding,
    bucket: &Bucket,
    (pack, live): (PackId, u64),
) -> Result<(), Ended> {
    let key = Key::Pack(pack);
    if work.has(&key).await? {
        return Ok(());
    }
    if let Some(record) = account(work, bucket, pack, live).await? {
        work.put(&key, &record);
        let live = record.live_bytes;
        work.did(
            finding,
            format!("created the account of pack {pack} again, with {live} live bytes"),
        );
    }
    Ok(())
}

/// A pack that is to be deleted, although files need it.
pub(super) async fn dead_in_use(
    work: &mut Work<'_>,
    finding: &Finding,
    bucket: &Bucket,
    (pack, live): (PackId, u64),
) -> Result<(), Ended> {
    let key = Key::Pack(pack);
    let dead = Key::DeadPack(pack);
    let has_account = work.has(&key).await?;
    // A held pack that files need is a finding of its own.
    if !has_account
        && !work.has(&Key::HeldPack(pack)).await?
        && let Some(record) = account(work, bucket, pack, live).await?
    {
        let life = work
            .get::<DeadPack>(&dead)
            .await?
            .and_then(|dead| dead.life);
        let born = life.map_or(record.born, |life| life.born);
        work.put(&key, &PackRecord { born, ..record });
    }
    work.delete(&dead);
    work.did(
        finding,
        format!("pack {pack} is no longer noted for deletion"),
    );
    Ok(())
}

/// A pack that is held as a dead one, although files need it.
pub(super) async fn held_in_use(
    work: &mut Work<'_>,
    finding: &Finding,
    bucket: &Bucket,
    (pack, live): (PackId, u64),
) -> Result<(), Ended> {
    let (key, held) = (Key::Pack(pack), Key::HeldPack(pack));
    let record = work.get::<HeldPack>(&held).await?;
    let born = record.map_or_else(CommitNumber::default, |held| held.life.born);
    let before = work.get::<PackRecord>(&key).await?;
    let account = match before {
        Some(account) => Some(PackRecord {
            born: born.min(account.born),
            ..account
        }),
        None if work.has(&key).await? => None,
        None => account(work, bucket, pack, live)
            .await?
            .map(|account| PackRecord { born, ..account }),
    };
    if let Some(account) = account {
        work.put(&key, &account);
    }
    work.delete(&held);
    if let Some(HeldPack { holder, .. }) = record {
        snapshots::unmark(work, (holder, pack)).await?;
    }
    work.did(
        finding,
        format!("pack {pack} is no longer noted as dead and held for a snapshot"),
    );
    Ok(())
}

/// An account that cannot be read.
pub(super) async fn unreadable_account(
    work: &mut Work<'_>,
    finding: &Finding,
    bucket: &Bucket,
    pack: PackId,
) -> Result<(), Ended> {
    let key = Key::Pack(pack);
    // Without an account, and if no file needs it, the pack would be an orphan that snapshots may need.
    if died(work).await?.is_some()
        && let Some(record) = account(work, bucket, pack, 1).await?
    {
        let live_bytes = record.raw_bytes;
        work.put(
            &key,
            &PackRecord {
                live_bytes,
                ..record
            },
        );
        let what =
            format!("created the account of pack {pack} again; its live bytes are counted again");
        work.did(finding, what);
        return Ok(());
    }
    work.delete(&key);
    let what = format!("removed the account of pack {pack}; its live bytes are counted again");
    work.did(finding, what);
    Ok(())
}

/// A note on a dead pack that cannot be read.
pub(super) async fn unreadable_dead(
    work: &mut Work<'_>,
    finding: &Finding,
    bucket: &Bucket,
    pack: PackId,
) -> Result<(), Ended> {
    let record = DeadPack {
        life: life(work, bucket, pack, CommitNumber::default()).await?,
    };
    if record.life.is_none() && !work.has_state().await? {
        return Ok(());
    }
    work.put(&Key::DeadPack(pack), &record);
    work.did(finding, format!("noted pack {pack} again for deletion"));
    Ok(())
}

/// The number of the next commit, with which packs die now; `None` if the volume does not count its commits, or its
/// state cannot be read.
async fn died(work: &Work<'_>) -> Result<Option<CommitNumber>, StoreError> {
    let state = work.get::<VolumeState>(&Key::Volume).await?;
    let last = work.report.last_commit;
    let history = state.map(|state| state.history);
    let counted = history.filter(|history| history.is_counted() || last > CommitNumber::default());
    Ok(counted.map(|history| CommitNumber(history.commit.max(last).0.saturating_add(1))))
}

/// The life of a pack that is dead from now on; `None` if the volume does not count its commits, or the pack is missing.
pub(super) async fn life(
    work: &Work<'_>,
    bucket: &Bucket,
    pack: PackId,
    born: CommitNumber,
) -> Result<Option<PackLife>, Ended> {
    let Some(died) = died(work).await? else {
        return Ok(None);
    };
    let bytes = bucket.len(pack).await.map_err(Ended::Bucket)?;
    Ok(bytes.map(|bytes| PackLife { born, died, bytes }))
}

/// Repairs the live bytes of a pack.
pub(super) async fn live_bytes(
    work: &mut Work<'_>,
    finding: &Finding,
    bucket: &Bucket,
    (pack, is): (PackId, u64),
) -> Result<(), Ended> {
    let key = Key::Pack(pack);
    let Some(record) = work.get::<PackRecord>(&key).await? else {
        return Ok(());
    };
    if is == 0 {
        return dead(work, finding, bucket, (pack, record.born)).await;
    }
    let live_bytes = is;
    work.put(
        &key,
        &PackRecord {
            live_bytes,
            ..record
        },
    );
    work.did(
        finding,
        format!("set the live bytes of pack {pack} to {is}"),
    );
    Ok(())
}

/// Notes that no file refers to a pack any more.
async fn dead(
    work: &mut Work<'_>,
    finding: &Finding,
    bucket: &Bucket,
    (pack, born): (PackId, CommitNumber),
) -> Result<(), Ended> {
    let life = life(work, bucket, pack, born).await?;
    if life.is_none() && !work.has_state().await? {
        return Ok(());
    }
    work.delete(&Key::Pack(pack));
    work.put(&Key::DeadPack(pack), &DeadPack { life });
    work.did(
        finding,
        format!("noted pack {pack} for deletion: no file refers to it"),
    );
    Ok(())
}

/// An account that no pack can have.
pub(super) async fn bad_account(
    work: &mut Work<'_>,
    finding: &Finding,
    bucket: &Bucket,
    pack: PackId,
) -> Result<(), Ended> {
    let key = Key::Pack(pack);
    let Some(record) = work.get::<PackRecord>(&key).await? else {
        return Ok(());
    };
    if record.live_bytes == 0 {
        if work.maps_are_unknown() {
            return Ok(());
        }
        return dead(work, finding, bucket, (pack, record.born)).await;
    }
    let is = account(work, bucket, pack, record.live_bytes).await?;
    let born = record.born;
    if let Some(is) = is.filter(|is| PackRecord { born, ..*is } != record) {
        work.put(&key, &is);
        let PackRecord {
            bytes,
            raw_bytes,
            frames,
            ..
        } = is;
        work.did(finding, format!("set the account of pack {pack} to {bytes} bytes, and {raw_bytes} before compression in {frames} frames"));
    }
    Ok(())
}

/// Whether the pack's account matches its length in the bucket, so that a frame behind the counted end is impossible.
pub(super) async fn is_as_counted(
    work: &Work<'_>,
    bucket: &Bucket,
    pack: PackId,
) -> Result<bool, Ended> {
    let Some(record) = work.get::<PackRecord>(&Key::Pack(pack)).await? else {
        return Ok(false);
    };
    let len = bucket.len(pack).await.map_err(Ended::Bucket)?;
    Ok(len == Some(record.bytes))
}

/// Deletes the notes on the content of a pack's frames: content that is not noted is uploaded again when it is written.
pub(super) async fn forget_frames(
    work: &mut Work<'_>,
    finding: &Finding,
    pack: PackId,
) -> Result<(), StoreError> {
    // Report the step before its first batch is committed.
    work.did(
        finding,
        format!("removed the notes on the frames of pack {pack}"),
    );
    let mut notes = work.cursor(KeyRange::pack_frames(pack));
    while let Some((key, _)) = notes.next().await? {
        work.delete_encoded(key);
        work.settle().await?;
    }
    Ok(())
}

/// Deletes the notes on blocks that share frames of a missing pack.
pub(super) async fn forget_sharers(work: &mut Work<'_>, pack: PackId) -> Result<(), StoreError> {
    let mut notes = work.cursor(KeyRange::referrers(pack));
    while let Some((key, _)) = notes.next().await? {
        work.delete_encoded(key);
        work.settle().await?;
    }
    Ok(())
}

/// Notes the blocks that share frames, for all packs at once that have fewer notes than sharing blocks: finding them
/// takes a walk through all block maps.
pub(super) async fn note_sharers(work: &mut Work<'_>) -> Result<(), StoreError> {
    // The first finding of this kind did it for the others.
    if work.steps > 0 {
        return Ok(());
    }
    let report = work.report;
    let mut packs = BTreeSet::new();
    for finding in report.findings.kinds().flat_map(|(_, _, kept)| kept) {
        if let Finding::MissingSharers { pack, is, .. } = finding {
            packs.insert(*pack);
            // Report the step before its first batch is committed.
            let what = format!("noted all {is} blocks that share frames of pack {pack}");
            work.did(finding, what);
        }
    }
    let mut blocks = work.cursor(KeyRange::blocks_from(Inode(0)));
    while let Some((key, map)) = blocks.record::<BlockMap>(&mut Nobody).await? {
        let (Key::Block(block), Some(map)) = (key, map) else {
            continue;
        };
        let frames = map.extents().iter().map(|extent| &extent.frame);
        let shared = frames.filter(|frame| frame.origin.is_some());
        let of: BTreeSet<_> = shared.map(|frame| frame.pack).collect();
        for pack in of.intersection(&packs) {
            let note = Key::Referrer(*pack, block);
            if !work.has(&note).await? {
                work.put(&note, &Referrer);
            }
        }
        work.settle().await?;
    }
    Ok(())
}
