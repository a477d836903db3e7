//! Packs of a volume, read without its metadata: for a salvage.

use std::sync::Arc;

use forebay_meta::volume::VolumeError;
use forebay_meta::volume::keys::Expected;
use forebay_pack::IndexEntry;
use forebay_types::PackId;
use object_store::ObjectStore;
use object_store::path::Path;

use crate::bucket::Bucket;
use crate::check::unlock;
use crate::explain;

pub use crate::explain::Found as PackContent;

/// Reads the packs of one volume.
pub struct PackReader {
    bucket: Bucket,
}

impl PackReader {
    /// The packs of the volume in `store` below `root`. Needs its descriptor, and its key ring if it is sealed.
    ///
    /// # Errors
    /// When there is no descriptor, or the volume is not what is expected.
    pub async fn open(
        store: Arc<dyn ObjectStore>,
        root: &Path,
        expected: &Expected,
    ) -> Result<PackReader, VolumeError> {
        let (keys, metadata) = unlock(&store, root, expected).await?;
        let bucket = Bucket::new(store, root, keys, Arc::new(metadata));
        Ok(PackReader { bucket })
    }

    /// All packs, by number, and their lengths in bytes.
    ///
    /// # Errors
    /// When the bucket does not answer well.
    pub async fn list(&self) -> Result<Vec<(PackId, u64)>, String> {
        self.bucket.packs().await
    }

    /// Reads a pack of `len` bytes from its first frame to its end, whatever its header and index say. Calls `found` for each
    /// frame, in the order in which they lie there. Takes some 40 MiB of memory.
    ///
    /// # Errors
    /// When the bucket does not answer well, and the error of `found`.
    pub async fn walk(
        &self,
        pack: PackId,
        len: u64,
        found: impl FnMut(PackContent) -> Result<(), String>,
    ) -> Result<(), String> {
        explain::walk(&self.bucket, pack, len, found).await
    }

    /// The index of a pack of `len` bytes; none if it is damaged.
    ///
    /// # Errors
    /// When the bucket does not answer well.
    pub async fn index(&self, pack: PackId, len: u64) -> Result<Option<Vec<IndexEntry>>, String> {
        explain::index(&self.bucket, pack, len).await
    }
}
