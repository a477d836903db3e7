//! The published moments of a volume, out of the bucket alone: its snapshots, and the newest state.

use std::sync::Arc;

use forebay_clones::layers;
use forebay_environment::META_PREFIX;
use forebay_meta::held::{self, Holds};
use forebay_meta::record::{SnapshotRecord, VolumeState, kept_name};
use forebay_meta::volume::keys::{Expected, VolumeKeys};
use forebay_meta::{Catalog, Key, KeyRange, Overlay, Sealing, SlateReader, StoreError};
use forebay_object::Store;
use forebay_seal::DataKeys;
use forebay_types::{SnapshotId, VolumeId};

use crate::moment::{PAGE, TIMEOUT, View, ViewError, packs};

/// Why a snapshot cannot be read from the bucket. Each message says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotAway {
    /// The bucket knows none with this name or number.
    #[error(
        "the bucket has no snapshot {0:?}; `forebay snapshot list --bucket` lists all that it has, and one that was \
         just made is there once it is published"
    )]
    NotFound(String),
    /// Its deletion has begun.
    #[error("snapshot {0:?} is being deleted, and cannot be read any more")]
    BeingDeleted(String),
    /// Its record is in the bucket, and its state is not kept yet.
    #[error(
        "snapshot {0:?} is not published yet: its gateway is about to, or stopped before; try again, or start the \
         gateway"
    )]
    NotPublished(String),
    /// Its state is gone from the bucket.
    #[error(
        "the state of snapshot {0:?} is gone from the bucket: the snapshot was deleted meanwhile, or something else \
         has deleted it"
    )]
    Gone(String),
}

/// A volume in its bucket, with or without a gateway that writes it. Nothing here writes an object.
pub struct Published {
    store: Store,
    volume: VolumeId,
    sealing: Option<Sealing>,
    data_keys: Option<Arc<DataKeys>>,
    packs: Arc<forebay_pack_store::PackStore>,
    newest: Arc<SlateReader>,
    state: Option<VolumeState>,
    snapshots: Vec<(SnapshotId, SnapshotRecord)>,
}

impl Published {
    /// Reads the newest state of the volume in `store`, and its list of snapshots.
    ///
    /// # Errors
    /// When there is no volume, it is not what is expected, or its metadata cannot be read.
    pub async fn open(store: &Store, expected: &Expected) -> Result<Published, ViewError> {
        let loaded = layers::load(store).await;
        let (descriptor, whole) = loaded.map_err(|error| error.at(&store.url))?;
        let store = &whole;
        let keys = VolumeKeys::load(&store.store, &store.root, &descriptor, expected, 0)
            .await
            .map_err(|error| error.at(&store.url))?;
        let path = store.path(META_PREFIX);
        let sealing = keys.sealing();
        let newest =
            SlateReader::open_with(store.store.clone(), path, TIMEOUT, sealing.clone()).await?;
        let newest = Arc::new(newest);
        let catalog = catalog(&newest);
        let state = catalog.volume_state().await?;
        let is_counted = state.is_some_and(|state| state.history.is_counted());
        let snapshots = match is_counted {
            true => list(&catalog).await?,
            false => Vec::new(),
        };
        Ok(Published {
            store: store.clone(),
            volume: descriptor.volume,
            data_keys: sealing.as_ref().map(|sealing| sealing.keys.clone()),
            packs: packs(store, descriptor.content(), &keys),
            sealing,
            newest,
            state,
            snapshots,
        })
    }

    /// The snapshots, the oldest first; also those that are being deleted.
    pub fn snapshots(&self) -> &[(SnapshotId, SnapshotRecord)] {
        &self.snapshots
    }

    /// The snapshots that are not being deleted, the oldest first, with what each holds. Reads the records of all held packs.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub async fn holds(&self) -> Result<Vec<(SnapshotId, &SnapshotRecord, Holds)>, ViewError> {
        let all = self.snapshots.iter();
        let live: Vec<_> = all.filter(|(_, one)| !one.is_being_deleted).collect();
        let commits = live.iter().map(|(_, one)| one.commit).collect();
        let holds = held::holds(&catalog(&self.newest), commits).await?;
        let listed = live.into_iter().zip(holds);
        Ok(listed
            .map(|((id, record), holds)| (*id, record, holds))
            .collect())
    }

    /// The newest state.
    pub fn newest(&self) -> &Arc<SlateReader> {
        &self.newest
    }

    /// The snapshot with this name, or with this number if none has the name.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(
        &self,
        name_or_number: &str,
    ) -> Result<(SnapshotId, &SnapshotRecord), SnapshotAway> {
        let named = |wanted: &&(SnapshotId, SnapshotRecord)| wanted.1.name == name_or_number;
        let number = name_or_number.parse().ok().map(SnapshotId);
        let mut all = self.snapshots.iter();
        // A name is free again while the snapshot that had it is being deleted.
        let live = all.clone().filter(|(_, one)| !one.is_being_deleted);
        let found = live.clone().find(named);
        let found = found.or_else(|| all.clone().find(named));
        let found = found.or_else(|| all.find(|(id, _)| Some(*id) == number));
        let found = found.ok_or_else(|| SnapshotAway::NotFound(name_or_number.to_owned()));
        found.map(|(id, record)| (*id, record))
    }

    /// Opens the state of a snapshot.
    ///
    /// # Errors
    /// [`SnapshotAway`] if the bucket does not have it, and when the metadata cannot be read.
    pub async fn open_snapshot(
        &self,
        id: SnapshotId,
        record: &SnapshotRecord,
    ) -> Result<Arc<SlateReader>, ViewError> {
        if record.is_being_deleted {
            return Err(SnapshotAway::BeingDeleted(record.name.clone()).into());
        }
        let (store, path) = (self.store.store.clone(), self.store.path(META_PREFIX));
        let sealing = self.sealing.clone();
        let opened = SlateReader::open_kept(store, path, &kept_name(id), TIMEOUT, sealing).await?;
        if let Some(reader) = opened {
            return Ok(Arc::new(reader));
        }
        // The record comes with a commit, and the state is kept before the next one.
        let is_last = self
            .state
            .is_some_and(|state| state.history.commit == record.commit);
        Err(match is_last {
            true => SnapshotAway::NotPublished(record.name.clone()),
            false => SnapshotAway::Gone(record.name.clone()),
        }
        .into())
    }

    /// A file system over a state of this volume.
    pub fn view(&self, state: Arc<SlateReader>) -> View {
        View::of(
            self.volume,
            self.data_keys.clone(),
            state,
            self.packs.clone(),
        )
    }
}

impl View {
    /// Opens the snapshot of the volume in `store` with this name, or with this number if none has the name. It writes nothing, and needs
    /// no gateway; one may run. The view stays readable until the snapshot is deleted.
    ///
    /// # Errors
    /// [`ViewError::Snapshot`] with the reason if the bucket does not have the snapshot; else those of [`View::open`].
    pub async fn open_snapshot(
        store: &Store,
        expected: &Expected,
        name_or_number: &str,
    ) -> Result<View, ViewError> {
        let published = Published::open(store, expected).await?;
        let (id, record) = published.find(name_or_number)?;
        let state = published.open_snapshot(id, record).await?;
        Ok(published.view(state))
    }
}

fn catalog(state: &Arc<SlateReader>) -> Catalog {
    Catalog::new(Arc::new(Overlay::new()), state.clone())
}

async fn list(catalog: &Catalog) -> Result<Vec<(SnapshotId, SnapshotRecord)>, StoreError> {
    let (mut rest, mut records) = (KeyRange::snapshots(), Vec::new());
    loop {
        let page = catalog.records::<SnapshotRecord>(&rest, PAGE).await?;
        if let Some((last, _)) = page.last() {
            rest = rest.after(&last.encode());
        }
        let is_last = page.len() < PAGE;
        records.extend(page.into_iter().filter_map(|(key, record)| match key {
            Key::Snapshot(id) => Some((id, record)),
            _ => None,
        }));
        if is_last {
            return Ok(records);
        }
    }
}
