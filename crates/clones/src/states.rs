//! The states of a volume's metadata as clones and restores use them: as a whole. [`Slate`] keeps them in the bucket.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_environment::META_PREFIX;
use forebay_meta::{
    Batch, MetaStore, Sealing, SlateFolder, SlateReader, SlateSettings, SlateStore, StoreError,
};
use forebay_object::Store;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt};

/// How long a request of the metadata waits for the bucket.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Where the state after a restore is prepared, under the volume's prefix.
const BESIDE: &str = "meta-restore";

/// The metadata of one volume.
#[derive(Clone, Debug)]
pub struct Place {
    /// The volume's bucket, with everything that lies at its sources.
    pub store: Store,
    /// What seals them, if the volume is sealed.
    pub sealing: Option<Sealing>,
}

impl Place {
    fn meta(&self) -> Path {
        self.store.path(META_PREFIX)
    }

    fn folder(&self, path: Path) -> SlateFolder {
        let (store, sealing) = (self.store.store.clone(), self.sealing.clone());
        SlateFolder::new(store, path, TIMEOUT, sealing)
    }
}

/// States of metadata. Each change is durable when its method returns. After an error, or a crash, a change was made
/// as a whole or not at all, except for what the method says.
#[async_trait]
pub trait States: Send + Sync {
    /// The newest state, for reading.
    async fn newest(&self, at: &Place) -> Result<Arc<dyn MetaStore>, StoreError>;

    /// The state that is kept under a name, for reading; `None` if there is none.
    async fn kept(&self, at: &Place, name: &str) -> Result<Option<Arc<dyn MetaStore>>, StoreError>;

    /// Opens the newest state for writing, which fences everything that has it open.
    async fn open(&self, at: &Place) -> Result<Arc<dyn MetaStore>, StoreError>;

    /// Fails if the state that is kept under a name is one that [`begin`](States::begin) and
    /// [`replace`](States::replace) do not know. Changes nothing.
    async fn check(&self, at: &Place, name: &str) -> Result<(), StoreError>;

    /// Makes the state that one place keeps under a name, changed by `batches`, the first one of `to`, which has none; returns whether
    /// it did. A crash may leave a part of it.
    async fn begin(
        &self,
        from: (&Place, &str),
        to: &Place,
        batches: &[Batch],
    ) -> Result<bool, StoreError>;

    /// The number of the newest state: each change of it has a higher one.
    async fn number(&self, at: &Place) -> Result<Option<u64>, StoreError>;

    /// Makes the state that is kept under a name, changed by `batches`, the newest one, if `number` is the number of the one
    /// before; returns whether it did. All states that are kept stay so. Nothing may have the metadata open.
    async fn replace(
        &self,
        at: &Place,
        name: &str,
        batches: &[Batch],
        number: u64,
    ) -> Result<bool, StoreError>;

    /// The names, below the folder of the metadata, of all objects that the newest state and the kept ones need.
    async fn tables(&self, at: &Place) -> Result<BTreeSet<String>, StoreError>;
}

/// The states in the bucket.
#[derive(Clone, Copy, Debug)]
pub struct Slate;

fn failed(error: Error) -> StoreError {
    StoreError::Transient(error.to_string())
}

#[async_trait]
impl States for Slate {
    async fn newest(&self, at: &Place) -> Result<Arc<dyn MetaStore>, StoreError> {
        let (store, sealing) = (at.store.store.clone(), at.sealing.clone());
        let opened = SlateReader::open_with(store, at.meta(), TIMEOUT, sealing).await?;
        Ok(Arc::new(opened))
    }

    async fn kept(&self, at: &Place, name: &str) -> Result<Option<Arc<dyn MetaStore>>, StoreError> {
        let (store, sealing) = (at.store.store.clone(), at.sealing.clone());
        let opened = SlateReader::open_kept(store, at.meta(), name, TIMEOUT, sealing).await?;
        Ok(opened.map(|opened| Arc::new(opened) as Arc<dyn MetaStore>))
    }

    async fn open(&self, at: &Place) -> Result<Arc<dyn MetaStore>, StoreError> {
        let settings = SlateSettings {
            timeout: TIMEOUT,
            ..SlateSettings::default()
        };
        let (store, sealing) = (at.store.store.clone(), at.sealing.clone());
        let opened = SlateStore::open_with(store, at.meta(), settings, sealing, |store| store);
        Ok(Arc::new(opened.await?))
    }

    async fn check(&self, at: &Place, name: &str) -> Result<(), StoreError> {
        match at.folder(at.meta()).kept(name).await? {
            Some(manifest) => manifest.alone().map(drop),
            None => Err(StoreError::Gone(format!("{name} is not kept"))),
        }
    }

    async fn begin(
        &self,
        from: (&Place, &str),
        to: &Place,
        batches: &[Batch],
    ) -> Result<bool, StoreError> {
        begin_at(from, &to.folder(to.meta()), batches).await
    }

    async fn number(&self, at: &Place) -> Result<Option<u64>, StoreError> {
        let newest = at.folder(at.meta()).newest().await?;
        Ok(newest.map(|newest| newest.number))
    }

    async fn replace(
        &self,
        at: &Place,
        name: &str,
        batches: &[Batch],
        number: u64,
    ) -> Result<bool, StoreError> {
        let folder = at.folder(at.meta());
        clear(at).await.map_err(failed)?;
        let beside = at.folder(at.store.path(BESIDE));
        if !begin_at((at, name), &beside, batches).await? {
            return Ok(false);
        }
        copy_tables(at).await.map_err(failed)?;
        forget_merges(at).await.map_err(failed)?;
        let (Some(prepared), Some(newest)) = (beside.newest().await?, folder.newest().await?)
        else {
            return Ok(false);
        };
        let is_next = newest.number == number;
        if !is_next || !folder.put(number + 1, prepared.after(&newest)?).await? {
            return Ok(false);
        }
        if let Err(error) = clear(at).await {
            tracing::warn!(
                "cannot remove what is left below {BESIDE}: {error}; the next restore does"
            );
        }
        Ok(true)
    }

    async fn tables(&self, at: &Place) -> Result<BTreeSet<String>, StoreError> {
        at.folder(at.meta()).tables().await
    }
}

/// Makes the state that `from` keeps under a name, changed by `batches`, the first one of a folder.
async fn begin_at(
    (from, name): (&Place, &str),
    to: &SlateFolder,
    batches: &[Batch],
) -> Result<bool, StoreError> {
    let Some(manifest) = from.folder(from.meta()).kept(name).await? else {
        return Ok(false);
    };
    if !to.put(1, manifest.alone()?).await? {
        return Ok(false);
    }
    to.add(batches).await?;
    Ok(true)
}

/// Forgets the merges of tables that the metadata store noted and did not end: they continue with outputs that were made
/// from the state before. The store makes a new list when it finds none.
async fn forget_merges(at: &Place) -> Result<(), Error> {
    let noted = at.store.path(&format!("{META_PREFIX}/compactions"));
    remove_below(at, &noted).await
}

/// Copies the tables that the prepared store has of its own.
async fn copy_tables(at: &Place) -> Result<(), Error> {
    let store = &at.store;
    let from = store.path(&format!("{BESIDE}/compacted"));
    let tables: Vec<_> = store.store.list(Some(&from)).try_collect().await?;
    for table in tables {
        let Some(name) = table.location.filename() else {
            continue;
        };
        let to = store.path(&format!("{META_PREFIX}/compacted/{name}"));
        // As it is: what seals it, and its pad, depend on its name alone.
        let bytes = store.store.get(&table.location).await?.bytes().await?;
        store.store.put(&to, bytes.into()).await?;
    }
    Ok(())
}

/// Removes what is left of an earlier restore.
async fn clear(at: &Place) -> Result<(), Error> {
    remove_below(at, &at.store.path(BESIDE)).await
}

async fn remove_below(at: &Place, prefix: &Path) -> Result<(), Error> {
    let store = &at.store.store;
    let left: Vec<_> = store.list(Some(prefix)).try_collect().await?;
    for object in left {
        match store.delete(&object.location).await {
            Ok(()) | Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
