//! Makes a clone.
//!
//! ```text
//!   the place is empty, or has what an attempt left that was interrupted
//!   -> a note at each source: from now on the snapshot is held         (removed again if it is being deleted)
//!   -> the snapshot is there, and not being deleted
//!   -> key ring, manifest of the snapshot, records that differ
//!   -> the descriptor: now it is a volume
//! ```
//!
//! A crash before the last step leaves no volume, and notes that hold the snapshot: the same command goes on, or
//! `forebay clone forget` removes them. The gateway of the source marks a snapshot as being deleted before it looks for
//! notes a last time, and here the note comes before the look at that mark: one of the two sees the other.

use forebay_environment::{META_PREFIX, Randomness, draw};
use forebay_meta::record::{DeadPack, HeldPack, Holding, PackRecord, SnapshotRecord, kept_name};
use forebay_meta::volume::VolumeError;
use forebay_meta::volume::keys::{self, Expected, VolumeKeys};
use forebay_meta::volume::notes::CloneNote;
use forebay_meta::volume::origin::{MAX_SOURCES, Origin, SourceVolume};
use forebay_meta::{Key, KeyRange, VolumeDescriptor};
use forebay_object::Store;
use forebay_types::{PackId, SnapshotId, VolumeId};
use futures_util::TryStreamExt;
use object_store::ObjectStoreExt;
use object_store::path::Path;

use crate::patch::{self, Accounts};
use crate::states::{Place, Slate, States};
use crate::volume::{Moment, Volume};
use crate::{CloneError, holds};

/// A clone that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Its identity.
    pub volume: VolumeId,
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// The snapshot's name.
    pub name: String,
}

/// Makes the place of `to` a clone of the volume in `source` as of a snapshot: by its name, or by its number if none has the
/// name. `made` is in seconds since 1970.
///
/// # Errors
/// When there is no such snapshot, the place is taken, or the bucket fails. Then there is no clone.
pub async fn make(
    source: &Store,
    to: &Store,
    snapshot: &str,
    expected: &Expected,
    made: u64,
    random: &dyn Randomness,
) -> Result<Made, CloneError> {
    make_in(&Slate, (source, to), snapshot, expected, made, random).await
}

/// Like [`make`], from one place to another, with metadata that are kept elsewhere.
///
/// # Errors
/// As in [`make`].
pub async fn make_in(
    states: &dyn States,
    (source, to): (&Store, &Store),
    snapshot: &str,
    expected: &Expected,
    made: u64,
    random: &dyn Randomness,
) -> Result<Made, CloneError> {
    if !source.is_beside(to) {
        return Err(CloneError::NotBeside {
            from: source.url.clone(),
            to: to.url.clone(),
        });
    }
    let volume = Volume::open(states, source, expected).await?;
    let (id, record) = volume.newest().await?.find(snapshot).await?;
    let Some(then) = volume.kept(&kept_name(id)).await? else {
        return Err(CloneError::NotKept(record.name));
    };
    let state = then.state().await?;
    let clone = prepare(source, &volume, to, random).await?;

    // The line of sources, and the notes.
    let origin = volume.descriptor.origin.clone();
    let mut line = origin.map_or_else(Vec::new, |origin| origin.sources);
    if line.len() >= MAX_SOURCES {
        return Err(CloneError::TooManySources);
    }
    line.push(SourceVolume {
        at: source.place(),
        volume: volume.descriptor.volume,
        snapshot: id,
        last_epoch: state.epoch,
    });
    let note = |snapshot| CloneNote {
        clone,
        at: to.place(),
        snapshot,
        name: record.name.clone(),
        made,
    };
    for one in &line {
        let place = source.beside(&one.at)?;
        note(one.snapshot).put(&place.store, &place.root).await?;
    }
    if let Err(error) = still_there(source, &volume, expected, id).await {
        for one in &line {
            let place = source.beside(&one.at)?;
            note(one.snapshot).remove(&place.store, &place.root).await?;
        }
        return Err(error);
    }

    let descriptor = VolumeDescriptor {
        volume: clone,
        created: made,
        origin: Some(Origin {
            content: volume.descriptor.content(),
            sources: line,
        }),
        ..volume.descriptor.clone()
    };
    if let Expected::Sealed(unlock) = expected {
        let (store, root) = (&source.store, &source.root);
        let ring = keys::make_for_clone(store, root, volume.descriptor.volume, clone, unlock);
        keys::create(&to.store, &to.root, ring.await?).await?;
    }
    let keys = VolumeKeys::load(&to.store, &to.root, &descriptor, expected, 0);
    let keys = keys.await.map_err(|error| error.at(&to.url))?;
    let place = Place {
        store: to.clone(),
        sealing: keys.sealing(),
    };
    let batches = patch::of_clone(state, &accounts(&then).await?);
    let from = (&volume.place, &*kept_name(id));
    if !states.begin(from, &place, &batches).await? {
        return Err(CloneError::Overtaken);
    }
    let published = VolumeDescriptor::publish(&to.store, &to.root, &descriptor).await;
    published.map_err(|error| error.at(&to.url))?;
    Ok(Made {
        volume: clone,
        snapshot: id,
        name: record.name,
    })
}

/// Makes sure that the place is free, removes what an interrupted attempt left there, and returns the identity of the clone.
async fn prepare(
    source: &Store,
    volume: &Volume<'_>,
    to: &Store,
    random: &dyn Randomness,
) -> Result<VolumeId, CloneError> {
    let fresh = || VolumeId(draw(random));
    let Some(example) = VolumeDescriptor::any_object(&to.store, &to.root).await? else {
        return Ok(fresh());
    };
    if VolumeDescriptor::exists(&to.store, &to.root).await? {
        let root = to.url.clone();
        return Err(VolumeError::AlreadyFormatted { root }.into());
    }
    let place = to.place();
    let notes = holds::list(source, volume.descriptor.volume).await?;
    let left = notes.into_iter().filter_map(|hold| hold.note.ok());
    let Some(note) = left.into_iter().find(|note| note.at == place) else {
        let root = to.url.clone();
        return Err(VolumeError::NotAVolume { root, example }.into());
    };
    let ours = [to.path(META_PREFIX), to.path("forebay.keys")];
    let listed: Vec<_> = to.store.list(Some(&to.root)).try_collect().await?;
    let is_ours = |place: &Path| ours.iter().any(|one| place.prefix_matches(one));
    // An interrupted attempt has left nothing else. A clone that was served and is half deleted has: its identity and
    // its numbers must not be used again.
    if let Some(other) = listed.iter().find(|object| !is_ours(&object.location)) {
        let (root, example) = (to.url.clone(), other.location.to_string());
        return Err(VolumeError::NotAVolume { root, example }.into());
    }
    tracing::info!(
        "an interrupted attempt left objects at {}: they are removed",
        to.url
    );
    for object in listed {
        match to.store.delete(&object.location).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(note.clone)
}

/// Checks, after the notes were put, that the snapshot and the line of sources are as they were before.
async fn still_there(
    source: &Store,
    volume: &Volume<'_>,
    expected: &Expected,
    id: SnapshotId,
) -> Result<(), CloneError> {
    let again = Volume::open(volume.states, source, expected).await?;
    // A detachment meanwhile may have let a snapshot of an earlier source go.
    if again.descriptor != volume.descriptor {
        return Err(CloneError::Overtaken);
    }
    let snapshots = again.newest().await?.snapshots().await?;
    let is_there =
        |(one, record): &(SnapshotId, SnapshotRecord)| *one == id && !record.is_being_deleted;
    match snapshots.iter().any(is_there) {
        true => Ok(()),
        false => Err(CloneError::BeingDeleted(id.0.to_string())),
    }
}

/// What a state says of snapshots and packs.
pub(crate) async fn accounts(moment: &Moment) -> Result<Accounts, CloneError> {
    let mut accounts = Accounts {
        snapshots: moment.snapshots().await?.into_iter().collect(),
        ..Accounts::default()
    };
    for (key, record) in moment.all::<PackRecord>(KeyRange::packs()).await? {
        if let Key::Pack(pack) = key {
            accounts.packs.insert(pack, record);
        }
    }
    for (key, record) in moment.all::<DeadPack>(KeyRange::dead_packs()).await? {
        if let Key::DeadPack(pack) = key {
            accounts.dead.insert(pack, record);
        }
    }
    for (key, record) in moment
        .all::<HeldPack>(KeyRange::held_packs_from(PackId(0)))
        .await?
    {
        if let Key::HeldPack(pack) = key {
            accounts.held.insert(pack, record);
        }
    }
    for (key, _) in moment
        .all::<Holding>(KeyRange::holdings_from(SnapshotId(0)))
        .await?
    {
        if let Key::Holding(id, pack) = key {
            accounts.marks.insert((id, pack));
        }
    }
    Ok(accounts)
}
