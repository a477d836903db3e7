//! A volume in its bucket: what clones and restores read of it.

use std::sync::Arc;

use forebay_meta::record::{SnapshotRecord, VolumeState};
use forebay_meta::volume::keys::{Expected, VolumeKeys};
use forebay_meta::{
    Catalog, Key, KeyRange, MetaStore, Overlay, Record, StoreError, VolumeDescriptor,
};
use forebay_object::Store;
use forebay_types::SnapshotId;

use crate::states::{Place, States};
use crate::{CloneError, layers};

/// Records that are read at a time.
const PAGE: usize = 4096;

/// A volume, whose keys are known.
pub(crate) struct Volume<'a> {
    pub(crate) descriptor: VolumeDescriptor,
    /// Its metadata, in a bucket with what lies at its sources.
    pub(crate) place: Place,
    pub(crate) states: &'a dyn States,
}

impl Volume<'_> {
    pub(crate) async fn open<'a>(
        states: &'a dyn States,
        store: &Store,
        expected: &Expected,
    ) -> Result<Volume<'a>, CloneError> {
        let at = |error: forebay_meta::volume::VolumeError| error.at(&store.url);
        let (descriptor, store) = layers::load(store).await.map_err(at)?;
        let keys = VolumeKeys::load(&store.store, &store.root, &descriptor, expected, 0);
        let keys = keys.await.map_err(|error| error.at(&store.url))?;
        Ok(Volume {
            descriptor,
            place: Place {
                sealing: keys.sealing(),
                store,
            },
            states,
        })
    }

    /// Its newest published state.
    pub(crate) async fn newest(&self) -> Result<Moment, CloneError> {
        Ok(Moment::of(self.states.newest(&self.place).await?))
    }

    /// A kept state.
    pub(crate) async fn kept(&self, name: &str) -> Result<Option<Moment>, CloneError> {
        let opened = self.states.kept(&self.place, name).await?;
        Ok(opened.map(Moment::of))
    }
}

/// The records of one state.
pub(crate) struct Moment(Catalog);

impl Moment {
    fn of(reader: Arc<dyn MetaStore>) -> Moment {
        Moment(Catalog::new(Arc::new(Overlay::new()), reader))
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
