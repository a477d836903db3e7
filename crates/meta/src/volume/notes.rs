//! Notes on clones: objects of a source that say which of its snapshots a clone needs.
//!
//! A clone has one at each of its sources, below `clones/`, named after the clone's identity. It is there before
//! anything of the clone is, so that a snapshot is not deleted under a clone that is being made.
//!
//! ```text
//! {"forebay":"clone","format":1,"clone":"<32 hex digits>","at":"<prefix>","snapshot":<number>,"name":"<snapshot>",
//!  "made":<seconds since 1970>}\n                                    (one line)
//! crc32 <8 hex digits>\n                                 of the first line with its line break
//! ```
//!
//! A note that cannot be read holds all snapshots.

use std::future::ready;
use std::sync::Arc;

use forebay_types::{SnapshotId, VolumeId};
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt};
use serde::{Deserialize, Serialize};

use super::checksum_line;

/// Folder of the notes under the prefix of the source.
pub const NOTES_FOLDER: &str = "clones";

/// The format that this program reads and writes.
const FORMAT: u32 = 1;

/// Longest note that is read, in bytes.
const MAX_NOTE_BYTES: u64 = 16 << 10;

/// That a clone needs a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneNote {
    /// The clone.
    pub clone: VolumeId,
    /// Its prefix in the same bucket, or its folder.
    pub at: String,
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// The name of the snapshot, for people.
    pub name: String,
    /// When the clone was made, in seconds since 1970.
    pub made: u64,
}

/// A note as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredNote {
    /// The object.
    pub location: Path,
    /// Its content, or the reason why it cannot be read.
    pub note: Result<CloneNote, String>,
}

/// The first line as it is written.
#[derive(Serialize, Deserialize)]
struct Text {
    forebay: String,
    format: u32,
    clone: String,
    at: String,
    snapshot: u64,
    name: String,
    made: u64,
}

impl CloneNote {
    /// Stores the note at the source under `root`.
    ///
    /// # Errors
    /// When the bucket fails.
    pub async fn put(&self, store: &Arc<dyn ObjectStore>, root: &Path) -> Result<(), Error> {
        store
            .put(&self.location(root), self.encode().into())
            .await?;
        Ok(())
    }

    /// Removes it; one that is not there is removed.
    ///
    /// # Errors
    /// When the bucket fails.
    pub async fn remove(&self, store: &Arc<dyn ObjectStore>, root: &Path) -> Result<(), Error> {
        match store.delete(&self.location(root)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn location(&self, root: &Path) -> Path {
        let folder = root.clone().join(NOTES_FOLDER);
        folder.join(self.clone.to_string())
    }

    fn encode(&self) -> Vec<u8> {
        let text = Text {
            forebay: "clone".into(),
            format: FORMAT,
            clone: self.clone.to_string(),
            at: self.at.clone(),
            snapshot: self.snapshot.0,
            name: self.name.clone(),
            made: self.made,
        };
        // Strings and numbers only: writing them as JSON cannot fail.
        let mut out = serde_json::to_vec(&text).unwrap_or_default();
        out.push(b'\n');
        let crc = crc32fast::hash(&out);
        out.extend(checksum_line(crc).into_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<CloneNote, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not text")?;
        let (line, crc) = text.split_once('\n').ok_or("its second line is missing")?;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(line.as_bytes());
        hasher.update(b"\n");
        if crc != checksum_line(hasher.finalize()) {
            return Err("its checksum does not match".into());
        }
        // The message may quote the text, and anybody may have written that.
        let text: Text = serde_json::from_str(line)
            .map_err(|error| error.to_string().escape_debug().to_string())?;
        if text.forebay != "clone" || text.format != FORMAT {
            return Err("it is of a newer program".into());
        }
        let clone = text.clone.parse();
        Ok(CloneNote {
            clone: clone.map_err(|()| "its volume id is not 32 hexadecimal digits")?,
            at: text.at,
            snapshot: SnapshotId(text.snapshot),
            name: text.name,
            made: text.made,
        })
    }
}

/// Notes that are read at the same time.
const AT_ONCE: usize = 16;

/// The notes at the source under `root`, in the order of their names. One request, and one for each note, 16 at a time.
///
/// # Errors
/// When the bucket fails. A note that cannot be read is no error.
pub async fn list(store: &Arc<dyn ObjectStore>, root: &Path) -> Result<Vec<StoredNote>, Error> {
    let folder = root.clone().join(NOTES_FOLDER);
    let mut objects: Vec<_> = store.list(Some(&folder)).try_collect().await?;
    objects.sort_unstable_by(|one, other| one.location.cmp(&other.location));
    let notes = objects
        .into_iter()
        .map(|object| read(store, object.location));
    let notes = stream::iter(notes).buffered(AT_ONCE);
    notes
        .try_filter_map(|note| ready(Ok(note)))
        .try_collect()
        .await
}

/// A note; `None` if it was removed meanwhile.
async fn read(store: &Arc<dyn ObjectStore>, location: Path) -> Result<Option<StoredNote>, Error> {
    let note = match store.get(&location).await {
        Ok(found) if found.meta.size > MAX_NOTE_BYTES => Err("it is far too long".into()),
        Ok(found) => CloneNote::decode(&found.bytes().await?),
        Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(StoredNote { location, note }))
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    fn note() -> CloneNote {
        CloneNote {
            clone: VolumeId([7; 16]),
            at: "vol/clone".into(),
            snapshot: SnapshotId(3),
            name: "before \"upgrade\"".into(),
            made: 1_700_000_000,
        }
    }

    #[tokio::test]
    async fn a_note_is_found_until_it_is_removed_and_a_damaged_one_is_found_too() {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let root = Path::from("vol");
        assert_eq!(list(&store, &root).await.unwrap(), []);
        note().put(&store, &root).await.unwrap();
        let found = list(&store, &root).await.unwrap();
        assert_eq!(found[0].note, Ok(note()));
        store.put(&found[0].location, "{}".into()).await.unwrap();
        let found = list(&store, &root).await.unwrap();
        assert_eq!(found[0].note, Err("its second line is missing".into()));
        note().remove(&store, &root).await.unwrap();
        note().remove(&store, &root).await.unwrap();
        assert_eq!(list(&store, &root).await.unwrap(), []);
    }

    #[test]
    fn every_cut_and_every_flipped_byte_is_noticed() {
        let whole = note().encode();
        for at in 0..whole.len() {
            assert!(CloneNote::decode(&whole[..at]).is_err());
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            assert!(CloneNote::decode(&bytes).is_err(), "{at}");
        }
    }
}
