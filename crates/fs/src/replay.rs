//! Replay: repeats in memory the changes that the log has and the bucket has not.
//!
//! A record is applied to exactly the state to which it was applied before, because records come in order from the
//! published LSN on. Bytes for which memory has no room are in the log alone, as after a burst, and checkpoints close on the way.
//! Where that does not make room (names do not leave memory, and small logs keep all bytes in it) checkpoints are published on
//! the way, and the start waits for the bucket.

use std::sync::Arc;

use forebay_meta::log_record::{DataHeader, decode_snapshot, decode_truncate};
use forebay_meta::record::InodeRecord;
use forebay_meta::{Batch, Entry, Key, Record as _};
use forebay_types::{Inode, Lsn};
use forebay_vfs::Error;
use forebay_wal::{Record, RecordKind, Recovery};

use crate::LogConfig;
use crate::open::error::OpenError;
use crate::opening::Opening;
use crate::rooms::Rooms;
use crate::state::{Node, State, Stopped};

/// After how many bytes of the log the progress of the replay is noted.
const SHOWN_EVERY: u64 = 1 << 20;

/// Replays the log and gives the number of records.
pub(crate) async fn replay(
    rooms: &Rooms,
    recovery: &mut Recovery,
    opening: &Opening,
) -> Result<u64, OpenError> {
    let mut records = 0;
    let state = &*rooms.state;
    state.begin_replay(recovery);
    let (from, until) = (state.position(), recovery.end());
    let mut shown = from;
    while let Some(record) = recovery.next()? {
        let room = state
            .memory
            .make_room(record.payload.len() as u64 + (128 << 10));
        if !room || state.overlay_is_full() || state.has_too_many_waiting() {
            let published = rooms.publisher.publish_open().await;
            published.map_err(|_| stopped(state))?;
        }
        if record.lsn.0 >= shown.0 + SHOWN_EVERY {
            shown = record.lsn;
            let mib = |lsn: Lsn| lsn.0.saturating_sub(from.0) >> 20;
            let (done, all) = (mib(record.lsn), mib(until));
            opening.goes_on(format!("replaying the log, {done} of {all} MiB"));
        }
        let failed = |why: String| OpenError::Replay {
            lsn: record.lsn,
            why,
            published: rooms.publisher.progress().published(),
        };
        apply(state, &record).await.map_err(failed)?;
        state.replayed(record.end);
        state.close_grown(record.end);
        records += 1;
    }
    if records > 0 {
        tracing::info!(
            "replayed {records} records of the log, up to LSN {}",
            recovery.end()
        );
    }
    Ok(records)
}

pub(crate) fn stopped(state: &State) -> OpenError {
    let why = state.signals.is_stopped();
    why.unwrap_or_else(|| Stopped::Failed("the bucket cannot be written".into()))
        .into()
}

async fn apply(volume: &State, record: &Record<'_>) -> Result<(), String> {
    match record.kind {
        RecordKind::Data => {
            let (header, data) = DataHeader::decode(record.payload)
                .ok_or("it is cut off, or writes beyond the maximum file size")?;
            let node = known(volume, header.inode).await?;
            let mut state = node.lock();
            let open = volume.checkpoint_lock.read();
            open.begin_change(&node, &mut state);
            // Without a log of its own, this gateway does not keep what it replays.
            let kept = volume.config.log != LogConfig::None;
            let logged = kept.then_some(record.lsn);
            state.apply_write(&header, data, 0, open.id, logged);
            state.last_lsn = record.end;
            state.settle(None);
            Ok(())
        }
        RecordKind::Truncate => {
            let (inode, new) =
                decode_truncate(record.payload).ok_or("it is not a truncate record")?;
            let node = known(volume, inode).await?;
            let mut state = node.lock();
            let open = volume.checkpoint_lock.read();
            open.begin_change(&node, &mut state);
            if new.size < state.record.size {
                state.cut(new.size, open.id);
            }
            state.record = new.with_maps_of(&state.record);
            state.last_lsn = record.end;
            state.settle(None);
            Ok(())
        }
        RecordKind::Metadata => {
            let batch = Batch::decode(record.payload).map_err(|error| error.to_string())?;
            apply_batch(volume, &batch, record.end).await
        }
        RecordKind::Snapshot => {
            let (id, snapshot) =
                decode_snapshot(record.payload).ok_or("it is not a snapshot's record")?;
            volume.replayed(record.end);
            volume.snapshot_replayed(id, snapshot);
            Ok(())
        }
        // These records say how far a checkpoint came; the bucket knows it better.
        RecordKind::Checkpoint => Ok(()),
    }
}

async fn apply_batch(volume: &State, batch: &Batch, end: Lsn) -> Result<(), String> {
    let mut names = Batch::new();
    for (key, entry) in batch.changes() {
        let decoded = Key::decode(key).map_err(|error| error.to_string())?;
        match (decoded, entry) {
            (Key::Inode(inode), Entry::Value(value)) => {
                let record = InodeRecord::decode(key, value).map_err(|error| error.to_string())?;
                set_record(volume, inode, record, end).await?;
            }
            (Key::Inode(inode), Entry::Deleted) => {
                let node = known(volume, inode).await?;
                let mut state = node.lock();
                let open = volume.checkpoint_lock.read();
                open.begin_change(&node, &mut state);
                volume.delete_content(&mut state, open.id, end);
            }
            (_, Entry::Value(value)) => names.put_encoded(key.clone(), value.clone()),
            (_, Entry::Deleted) => names.delete_encoded(key.clone()),
        }
    }
    volume.catalog.apply(&names);
    Ok(())
}

async fn set_record(
    volume: &State,
    inode: Inode,
    record: InodeRecord,
    end: Lsn,
) -> Result<(), String> {
    volume.numbers.seen(inode);
    match volume.node(inode).await {
        Ok(node) => {
            let mut state = node.lock();
            let open = volume.checkpoint_lock.read();
            open.begin_change(&node, &mut state);
            volume.accounts.place(&mut state.charge, &record);
            // The bucket, not the log, knows which block maps are valid and how many bytes they hold.
            state.record = record.with_maps_of(&state.record);
            state.last_lsn = end;
            Ok(())
        }
        Err(Error::Stale) => {
            let charge = volume.accounts.new_charge(&record);
            let node = Node::new(inode, record, false, volume.memory.cache.clone(), charge);
            volume.enter_created(&node, &volume.checkpoint_lock.read(), end, None);
            Ok(())
        }
        Err(error) => Err(format!("inode {inode}: {error}")),
    }
}

async fn known(volume: &State, inode: Inode) -> Result<Arc<Node>, String> {
    volume
        .node(inode)
        .await
        .map_err(|error| format!("inode {inode}: {error}"))
}
