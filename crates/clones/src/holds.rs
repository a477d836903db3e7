//! Which clones hold snapshots of a volume.
//!
//! | the clone's note | at the clone's place | the snapshot |
//! |---|---|---|
//! | is whole | a descriptor of the clone that names the volume as a source | is held |
//! | is whole | no volume: the clone is being made, or was removed | is held until `forebay clone forget` |
//! | is whole | a descriptor of the clone without that source, or of another volume | is not held: the note is left over |
//! | is whole | cannot be read | is held |
//! | cannot be read | | each is held |

use forebay_meta::VolumeDescriptor;
use forebay_meta::volume::VolumeError;
use forebay_meta::volume::notes::{self, CloneNote, StoredNote};
use forebay_object::Store;
use forebay_types::{SnapshotId, VolumeId};
use futures_util::{StreamExt, stream};
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt};

/// How a clone stands to its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It needs its snapshot.
    Needs,
    /// There is no volume at its place.
    Missing,
    /// It does not need the snapshot any more.
    Detached,
    /// Its place cannot be read.
    Unknown(String),
}

/// A note on a clone, judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The note, or why it cannot be read.
    pub note: Result<CloneNote, String>,
    /// The object.
    pub location: Path,
    /// How the clone stands to the volume.
    pub standing: Standing,
}

impl Hold {
    /// Whether the snapshot must stay for this clone.
    pub fn holds(&self, snapshot: SnapshotId) -> bool {
        let is_of_it = self
            .note
            .as_ref()
            .map_or(true, |note| note.snapshot == snapshot);
        is_of_it && self.standing != Standing::Detached
    }

    /// The clone, for people.
    pub fn clone_name(&self) -> String {
        match &self.note {
            Ok(note) => note.at.clone(),
            Err(_) => format!("a clone with the note {}", self.location),
        }
    }
}

/// Clones whose places are looked at at the same time.
const AT_ONCE: usize = 16;

/// The clones of the volume in `store`. One request, and two for each clone, 16 at a time.
///
/// # Errors
/// When the bucket fails.
pub async fn list(store: &Store, volume: VolumeId) -> Result<Vec<Hold>, Error> {
    let stored = notes::list(&store.store, &store.root).await?;
    Ok(judged(store, volume, stored).await)
}

/// The notes, with what is at the places of the clones.
async fn judged(store: &Store, volume: VolumeId, stored: Vec<StoredNote>) -> Vec<Hold> {
    let holds = stored.into_iter().map(|stored| async move {
        let standing = match &stored.note {
            Ok(note) => standing(store, volume, note).await,
            Err(why) => Standing::Unknown(why.clone()),
        };
        Hold {
            note: stored.note,
            location: stored.location,
            standing,
        }
    });
    stream::iter(holds).buffered(AT_ONCE).collect().await
}

async fn standing(store: &Store, volume: VolumeId, note: &CloneNote) -> Standing {
    let place = match store.beside(&note.at) {
        Ok(place) => place,
        Err(forebay_object::OpenError::FolderMissing { .. }) => return Standing::Missing,
        Err(error) => return Standing::Unknown(error.to_string()),
    };
    match VolumeDescriptor::load(&place.store, &place.root).await {
        Ok(there) if there.volume == note.clone => {
            let mut sources = there.origin.iter().flat_map(|origin| &origin.sources);
            match sources.any(|source| source.volume == volume) {
                true => Standing::Needs,
                false => Standing::Detached,
            }
        }
        // The clone is gone, and another volume was made there.
        Ok(_) => Standing::Detached,
        Err(VolumeError::NotFormatted { .. } | VolumeError::NotAVolume { .. }) => Standing::Missing,
        Err(error) => Standing::Unknown(error.to_string()),
    }
}

/// The clones that hold a snapshot, for people; none if it may be deleted. Notes for this snapshot that are left over are
/// removed. One request, one for each note, and one for each clone of this snapshot.
///
/// # Errors
/// When the bucket fails.
pub async fn holders(
    store: &Store,
    volume: VolumeId,
    snapshot: SnapshotId,
) -> Result<Vec<String>, Error> {
    let mut stored = notes::list(&store.store, &store.root).await?;
    // One that cannot be read may be for this one.
    stored.retain(|stored| {
        let note = stored.note.as_ref();
        note.map_or(true, |note| note.snapshot == snapshot)
    });
    let mut holders = Vec::new();
    for hold in judged(store, volume, stored).await {
        if hold.holds(snapshot) {
            holders.push(hold.clone_name());
        } else if hold.standing == Standing::Detached {
            remove(store, &hold).await?;
        }
    }
    Ok(holders)
}

/// Removes the note on a clone.
///
/// # Errors
/// When the bucket fails.
pub async fn remove(store: &Store, hold: &Hold) -> Result<(), Error> {
    match store.store.delete(&hold.location).await {
        Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
