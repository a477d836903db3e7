//! A volume in its bucket: what clones and restores read of it.

use std::sync::Arc;
use std::time::Duration;

use forebay_environment::META_PREFIX;
use forebay_meta::record::{SnapshotRecord, VolumeState};
use forebay_meta::volume::keys::{Expected, VolumeKeys};
use forebay_meta::{
    Catalog, Key, KeyRange, Overlay, Record, Sealing, SlateFolder, SlateReader, StoreError,
    VolumeDescriptor,
};
use forebay_object::Store;
use forebay_types::SnapshotId;
use object_store::path::Path;

use crate::{CloneError, layers};

/// How long a request of the metadata waits for the bucket.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// Records that are read at a time.
const PAGE: usize = 4096;

/// A volume, whose keys are known.
pub(crate) struct Volume {
    pub(crate) descriptor: VolumeDescriptor,
    /// With what lies at its sources.
    pub(crate) store: Store,
    pub(crate) sealing: Option<Sealing>,
}

impl Volume {
    pub(crate) async fn open(store: &Store, expected: &Expected) -> Result<Volume, CloneError> {
        let at = |error: forebay_meta::volume::VolumeError| error.at(&store.url);
        let (descriptor, store) = layers::load(store).await.map_err(at)?;
        let keys = VolumeKeys::load(&store.store, &store.root, &descriptor, expected, 0);
        let keys = keys.await.map_err(|error| error.at(&store.url))?;
        Ok(Volume {
            descriptor,
            sealing: keys.sealing(),
            store,
        })
    }

    pub(crate) fn meta(&self) -> Path {
        self.store.path(META_PREFIX)
    }

    /// Its metadata, as objects.
    pub(crate) fn folder(&self) -> SlateFolder {
        self.folder_at(self.meta())
    }

    /// Metadata at another place of its prefix.
    pub(crate) fn folder_at(&self, path: Path) -> SlateFolder {
        SlateFolder::new(
            self.store.store.clone(),
            path,
            TIMEOUT,
            self.sealing.clone(),
        )
    }

    /// Its newest published state.
    pub(crate) async fn newest(&self) -> Result<Moment, CloneError> {
        let (store, sealing) = (self.store.store.clone(), self.sealing.clone());
        let reader = SlateReader::open_with(store, self.meta(), TIMEOUT, sealing).await?;
        Ok(Moment::of(reader))
    }

    /// A kept state.
    pub(crate) async fn kept(&self, name: &str) -> Result<Option<Moment>, CloneError> {
        let (store, sealing) = (self.store.store.clone(), self.sealing.clone());
        let opened = SlateReader::open_kept(store, self.meta(), name, TIMEOUT, sealing).await?;
        Ok(opened.map(Moment::of))
    }
}

/// The records of one state.
pub(crate) struct Moment(Catalog);

impl Moment {
    fn of(reader: SlateReader) -> Moment {
        Moment(Catalog::new(Arc::new(Overlay::new()), Arc::new(reader)))
    }

    pub(crate) async fn state(&self) -> Result<VolumeState, CloneError> {
        let state = self.0.volume_state().await?;
        state.ok_or_else(|| {
            CloneError::Metadata(StoreError::Corrupt(
                "the state of the volume is missing; run `forebay fsck`".into(),
            ))
        })
    }

    /// All records in a range.
    pub(crate) async fn all<R: Record>(
        &self,
        range: KeyRange,
    ) -> Result<Vec<(Key, R)>, CloneError> {
        let (mut rest, mut all) = (range, Vec::new());
        loop {
            let page = self.0.records::<R>(&rest, PAGE).await?;
            let is_last = page.len() < PAGE;
            if let Some((last, _)) = page.last() {
                rest = rest.after(&last.encode());
            }
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// The snapshots, the oldest first.
    pub(crate) async fn snapshots(&self) -> Result<Vec<(SnapshotId, SnapshotRecord)>, CloneError> {
        let all = self.all::<SnapshotRecord>(KeyRange::snapshots()).await?;
        Ok(all
            .into_iter()
            .filter_map(|(key, record)| match key {
                Key::Snapshot(id) => Some((id, record)),
                _ => None,
            })
            .collect())
    }

    /// The snapshot with this name, or with this number if none has the name.
    pub(crate) async fn find(
        &self,
        name: &str,
    ) -> Result<(SnapshotId, SnapshotRecord), CloneError> {
        let all = self.snapshots().await?;
        let number = name.parse().ok().map(SnapshotId);
        let live = || all.iter().filter(|(_, one)| !one.is_being_deleted);
        let found = live().find(|(_, one)| one.name == name);
        let found = found.or_else(|| live().find(|(id, _)| Some(*id) == number));
        if let Some(found) = found {
            return Ok(found.clone());
        }
        let is_going = all
            .iter()
            .any(|(id, one)| one.name == name || Some(*id) == number);
        Err(match is_going {
            true => CloneError::BeingDeleted(name.to_owned()),
            false => CloneError::NoSnapshot(name.to_owned()),
        })
    }
}
