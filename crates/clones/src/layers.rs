//! The bucket of a clone: its own prefix, and behind it what lies at its sources.
//!
//! ```text
//!  packs/   of an epoch up to that of a source     GET, HEAD: at the source, else here: a detached clone has copies
//!           of a later epoch                       here
//!  meta/    tables                                 GET, HEAD: here, else at the sources, the newest first
//!  all else, lists, PUTs and deletions             here
//! ```
//!
//! So nothing at a source is ever written or deleted through this store. Where a table was found is remembered: tables
//! never change, and after a detachment it is looked for here again.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use forebay_environment::META_PREFIX;
use forebay_meta::VolumeDescriptor;
use forebay_meta::volume::VolumeError;
use forebay_object::Store;
use forebay_pack::{PACK_PREFIX, parse_object_name};
use forebay_types::{Epoch, PackId};
use futures_util::TryStreamExt;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

/// Most tables whose place is remembered.
const MAX_KNOWN: usize = 100_000;

/// A source, open.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) root: Path,
    /// The packs of this source are of this epoch or earlier ones.
    last_epoch: Epoch,
}

/// The sources of a clone; none for any other volume.
#[derive(Clone, Debug, Default)]
pub struct Sources(Arc<[Layer]>);

fn epoch_of(pack: PackId) -> Epoch {
    Epoch(pack.0 >> 40)
}

impl Sources {
    /// Those of the volume in `store`.
    ///
    /// # Errors
    /// When the folder of a source cannot be used.
    pub fn of(
        store: &Store,
        descriptor: &VolumeDescriptor,
    ) -> std::result::Result<Sources, VolumeError> {
        let sources = descriptor.origin.iter().flat_map(|origin| &origin.sources);
        let layers = sources.map(|source| {
            let opened = store
                .beside(&source.at)
                .map_err(|error| VolumeError::Source {
                    at: source.at.clone(),
                    why: error.to_string(),
                })?;
            Ok(Layer {
                store: opened.store,
                root: opened.root,
                last_epoch: source.last_epoch,
            })
        });
        Ok(Sources(
            layers.collect::<std::result::Result<_, VolumeError>>()?,
        ))
    }

    /// Whether the volume has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a pack lies at a source, and not at the clone.
    pub fn have(&self, pack: PackId) -> bool {
        self.of_pack(pack).is_some()
    }

    /// The source where a pack lies; `None` if it lies at the clone.
    pub(crate) fn of_pack(&self, pack: PackId) -> Option<&Layer> {
        self.0
            .iter()
            .find(|layer| epoch_of(pack) <= layer.last_epoch)
    }

    /// The packs at the sources that the clone may refer to, and their lengths.
    ///
    /// # Errors
    /// When the bucket fails.
    pub async fn packs(&self) -> Result<Vec<(PackId, u64)>> {
        let mut packs = Vec::new();
        let mut first = Epoch(0);
        for layer in &*self.0 {
            let mut listed = layer.store.list(Some(&layer.path(PACK_PREFIX)));
            while let Some(object) = listed.try_next().await? {
                let pack = name_below(&layer.root, &object.location)
                    .and_then(|name| parse_object_name(&name));
                let is_of_clone =
                    |pack: &PackId| (first..=layer.last_epoch).contains(&epoch_of(*pack));
                packs.extend(pack.filter(is_of_clone).map(|pack| (pack, object.size)));
            }
            first = Epoch(layer.last_epoch.0.saturating_add(1));
        }
        Ok(packs)
    }

    /// The sources, the newest first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &Layer> {
        self.0.iter().rev()
    }
}

impl Layer {
    /// The full location of an object with this name.
    pub(crate) fn path(&self, name: &str) -> Path {
        self.root.parts().chain(Path::from(name).parts()).collect()
    }
}

fn name_below(root: &Path, location: &Path) -> Option<String> {
    let name: Path = location.prefix_match(root)?.collect();
    Some(name.to_string())
}

/// Reads the descriptor of the volume in `store`, and returns the store with everything that the volume has.
///
/// # Errors
/// When there is no volume, or a source of it cannot be opened.
pub async fn load(store: &Store) -> std::result::Result<(VolumeDescriptor, Store), VolumeError> {
    let descriptor = VolumeDescriptor::load(&store.store, &store.root).await?;
    let whole = over(store, &descriptor)?;
    Ok((descriptor, whole))
}

/// The store with everything that the volume of this descriptor has.
///
/// # Errors
/// When the folder of a source cannot be used.
pub fn over(
    store: &Store,
    descriptor: &VolumeDescriptor,
) -> std::result::Result<Store, VolumeError> {
    let sources = Sources::of(store, descriptor)?;
    if sources.is_empty() {
        return Ok(store.clone());
    }
    Ok(Store {
        store: Arc::new(LayeredStore {
            inner: store.store.clone(),
            root: store.root.clone(),
            sources,
            known: Mutex::default(),
        }),
        ..store.clone()
    })
}

/// The bucket of a clone.
#[derive(Debug)]
struct LayeredStore {
    inner: Arc<dyn ObjectStore>,
    root: Path,
    sources: Sources,
    /// The tables that were found at a source.
    known: Mutex<HashMap<String, Layer>>,
}

impl LayeredStore {
    async fn get_pack(
        &self,
        layer: &Layer,
        name: &str,
        location: &Path,
        options: GetOptions,
    ) -> Result<GetResult> {
        match layer
            .store
            .get_opts(&layer.path(name), options.clone())
            .await
        {
            Err(Error::NotFound { .. }) => self.inner.get_opts(location, options).await,
            answer => answer,
        }
    }

    async fn get_table(
        &self,
        name: String,
        location: &Path,
        options: GetOptions,
    ) -> Result<GetResult> {
        let known = self.known.lock().get(&name).cloned();
        if let Some(layer) = known {
            match layer
                .store
                .get_opts(&layer.path(&name), options.clone())
                .await
            {
                Err(Error::NotFound { .. }) => _ = self.known.lock().remove(&name),
                answer => return answer,
            }
        }
        let mut answer = self.inner.get_opts(location, options.clone()).await;
        for layer in self.sources.newest_first() {
            if !matches!(answer, Err(Error::NotFound { .. })) {
                return answer;
            }
            let there = layer
                .store
                .get_opts(&layer.path(&name), options.clone())
                .await;
            if there.is_ok() {
                let mut known = self.known.lock();
                if known.len() < MAX_KNOWN {
                    known.insert(name.clone(), layer.clone());
                }
            }
            // The clone's own name is the one to report.
            if !matches!(there, Err(Error::NotFound { .. })) {
                answer = there;
            }
        }
        answer
    }
}

/// Whether this is a table of the metadata.
fn is_table(name: &str) -> bool {
    let below = name.strip_prefix(META_PREFIX);
    below.is_some_and(|below| below.starts_with("/compacted/") && below.ends_with(".sst"))
}

impl fmt::Display for LayeredStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LayeredStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for LayeredStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let Some(name) = name_below(&self.root, location) else {
            return self.inner.get_opts(location, options).await;
        };
        if is_table(&name) {
            return self.get_table(name, location, options).await;
        }
        let layer = parse_object_name(&name).and_then(|pack| self.sources.of_pack(pack));
        match layer {
            Some(layer) => self.get_pack(layer, &name, location, options).await,
            None => self.inner.get_opts(location, options).await,
        }
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
