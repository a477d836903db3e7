//! Takes a volume back to a snapshot. No gateway may serve it.
//!
//! ```text
//!   open for writing: fences every gateway
//!   -> a snapshot of the state before; an epoch that no gateway has, so that no log continues this state
//!   -> beside the metadata: a store with the snapshot's tables, and with the records that differ
//!   -> its new tables are copied to those of the volume; nothing names them yet
//!   -> the next manifest has the tables of that store, and keeps all snapshots: by a conditional PUT
//! ```
//!
//! A crash before the last step leaves the volume as it was, with one snapshot more; after it the volume is restored. What is
//! left beside the metadata is removed at the next restore.

use forebay_meta::record::{MAX_SNAPSHOTS, SnapshotRecord, Timestamp, VolumeState, kept_name};
use forebay_meta::volume::holder::StoredHolder;
use forebay_meta::volume::keys::Expected;
use forebay_meta::{Batch, Key, MetaStore};
use forebay_object::Store;
use forebay_types::{CommitNumber, Epoch, SnapshotId};

use crate::CloneError;
use crate::make::accounts;
use crate::patch;
use crate::states::{Slate, States};
use crate::volume::Volume;

/// How to restore a volume.
#[derive(Clone, Debug)]
pub struct Restore {
    /// The snapshot: its name, or its number.
    pub snapshot: String,
    /// The name for the snapshot of the state before.
    pub before: String,
    /// The person who asked.
    pub by: String,
    /// The time.
    pub now: Timestamp,
    /// The highest epoch of the volume that this machine has seen.
    pub seen: Epoch,
    /// Go on although another gateway holds the volume.
    pub take_over: bool,
}

/// A volume that was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The snapshot that it has now.
    pub snapshot: SnapshotRecord,
    /// The snapshot of the state before.
    pub before: String,
}

/// Takes the volume in `store` back to a snapshot.
///
/// # Errors
/// When there is no such snapshot, a gateway holds the volume, or the bucket fails. Then the volume is as it was.
pub async fn restore(
    store: &Store,
    expected: &Expected,
    request: &Restore,
) -> Result<Restored, CloneError> {
    restore_in(&Slate, store, expected, request).await
}

/// Like [`restore`], with metadata that are kept elsewhere.
///
/// # Errors
/// As in [`restore`].
pub async fn restore_in(
    states: &dyn States,
    store: &Store,
    expected: &Expected,
    request: &Restore,
) -> Result<Restored, CloneError> {
    let volume = Volume::open(states, store, expected).await?;
    let moment = volume.newest().await?;
    let (id, target) = moment.find(&request.snapshot).await?;
    let snapshots = moment.snapshots().await?;
    if snapshots.len() >= MAX_SNAPSHOTS {
        return Err(CloneError::Full(snapshots.len()));
    }
    let request = &Restore {
        before: free_name(&request.before, &snapshots),
        ..request.clone()
    };
    if moment.state().await?.epoch < request.seen {
        return Err(CloneError::PutBack);
    }
    let Some(then) = volume.kept(&kept_name(id)).await? else {
        return Err(CloneError::NotKept(target.name));
    };
    if !request.take_over {
        not_held(store).await?;
    }
    // Whatever can be refused is refused before anything is changed: what follows fences the gateway and its log.
    states.check(&volume.place, &kept_name(id)).await?;
    let accounts_then = accounts(&then).await?;
    let before = patch::of_restore(
        (then.state().await?, &accounts_then),
        (moment.state().await?, &accounts(&moment).await?),
    );
    before.map_err(CloneError::Unaccounted)?;

    let taken = keep_before(&volume, request).await?;
    let number = states.number(&volume.place).await?;
    let number = number.ok_or(CloneError::Overtaken)?;
    let now = volume.newest().await?;
    let state_now = now.state().await?;
    if state_now != taken {
        return Err(CloneError::Overtaken);
    }
    let accounts_now = accounts(&now).await?;
    let batches = patch::of_restore(
        (then.state().await?, &accounts_then),
        (state_now, &accounts_now),
    );
    let batches = batches.map_err(CloneError::Unaccounted)?;

    let name = kept_name(id);
    let replaced = states.replace(&volume.place, &name, &batches, number);
    if !replaced.await? {
        return Err(CloneError::Overtaken);
    }
    Ok(Restored {
        snapshot: target,
        before: request.before.clone(),
    })
}

/// The name, or the name and the first number with which no snapshot has it.
fn free_name(name: &str, snapshots: &[(SnapshotId, SnapshotRecord)]) -> String {
    let is_free = |name: &String| snapshots.iter().all(|(_, one)| one.name != *name);
    let numbered = (2_u64..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    names.find(is_free).unwrap_or_default()
}

/// Refuses a volume that a gateway holds, or that one left with changes in its log.
async fn not_held(store: &Store) -> Result<(), CloneError> {
    let Some(StoredHolder { holder, .. }) = StoredHolder::load(&store.store, &store.root).await?
    else {
        return Ok(());
    };
    let holder = holder
        .map_err(|why| CloneError::Held(format!("a gateway whose note cannot be read ({why})")))?;
    let who = || {
        format!(
            "the gateway at {} with the folder {}",
            holder.host, holder.data_dir
        )
    };
    match holder.stopped {
        Some(stopped) if stopped.unpublished_bytes == 0 => Ok(()),
        Some(_) => Err(CloneError::Held(format!(
            "{}, which stopped with changes in its log that the bucket does not have: start it and stop it, and it",
            who()
        ))),
        None => Err(CloneError::Held(who())),
    }
}

/// Fences every gateway, and keeps the newest state as a snapshot. Returns the volume's state after that.
async fn keep_before(volume: &Volume<'_>, request: &Restore) -> Result<VolumeState, CloneError> {
    let store = volume.states.open(&volume.place).await?;
    let kept = keep_in(&*store, volume, request).await;
    store.close().await?;
    kept
}

async fn keep_in(
    store: &dyn MetaStore,
    volume: &Volume<'_>,
    request: &Restore,
) -> Result<VolumeState, CloneError> {
    // Nothing else writes from here on.
    let state = volume.newest().await?.state().await?;
    keep_last(store, volume, &state).await?;
    let commit = CommitNumber(state.history.commit.0.saturating_add(1));
    let id = SnapshotId(state.history.last_snapshot.saturating_add(1));
    let record = SnapshotRecord {
        is_being_deleted: false,
        commit,
        lsn: state.published,
        used_bytes: state.used_bytes,
        used_inodes: state.used_inodes,
        made: request.now,
        name: request.before.clone(),
        made_by: request.by.clone(),
    };
    let mut taken = VolumeState {
        epoch: Epoch(state.epoch.0.saturating_add(1)),
        gateway: [0; 16],
        ..state
    };
    taken.history.commit = commit;
    taken.history.last_snapshot = id.0;
    let mut batch = Batch::new();
    batch.put(&Key::Snapshot(id), &record);
    batch.put(&Key::Volume, &taken);
    store.commit(&batch).await?;
    store.keep(&kept_name(id)).await?;
    Ok(taken)
}

/// Keeps the newest state, if the last commit made a snapshot of it and a crash came before it was kept: the next commit
/// takes that state away.
async fn keep_last(
    store: &dyn MetaStore,
    volume: &Volume<'_>,
    state: &VolumeState,
) -> Result<(), CloneError> {
    let last = SnapshotId(state.history.last_snapshot);
    let snapshots = volume.newest().await?.snapshots().await?;
    let name = kept_name(last);
    let is_of_the_last_commit = snapshots
        .iter()
        .any(|(id, record)| *id == last && record.commit == state.history.commit);
    if is_of_the_last_commit && !store.kept().await?.contains(&name) {
        store.keep(&name).await?;
    }
    Ok(())
}
