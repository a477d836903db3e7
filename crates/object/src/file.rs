//! A store in a local folder.

use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    RenameOptions, Result, UpdateVersion,
};
use tokio::sync::RwLock;

use crate::OpenError;
use crate::range;

/// Objects as files of a local folder: `object_store`'s `LocalFileSystem`, with two additions.
///
/// * **Conditional update** (`PutMode::Update`), which SlateDB needs and `LocalFileSystem` lacks. The version of an
///   object is the ETag that `LocalFileSystem` derives from inode, time and length.
/// * **Durability**: a put returns after the file and its folder are on stable storage.
///
/// An object appears under its name atomically: it is written next to it, under a name that no listing shows, and then
/// renamed or linked. A crash may leave such a file behind, and nothing else. A delete is not flushed: after a power
/// failure a deleted object may be back.
///
/// Creates and updates are atomic between processes: the fence between gateways relies on that. An
/// unconditional put, a copy or a delete is ordered with updates only within one process: one
/// gateway writes a volume.
pub struct FileStore {
    files: LocalFileSystem,
    folder: Arc<PathBuf>,
    /// Locked exclusively by an update from its comparison to its rename.
    updates: RwLock<()>,
}

/// Time stamps of files lag behind by up to a tick of the kernel's clock, 1 to 10 ms. An update waits until the version
/// that it replaces is older than two ticks, so that no two versions ever have one ETag, even if the file system reuses
/// the inode.
const TWO_CLOCK_TICKS: Duration = Duration::from_millis(20);

/// The lock file between processes. Listings hide it, because `LocalFileSystem` takes a `#` and
/// digits at the end of a name for an upload in progress.
const LOCK_FILE: &str = "update-lock#0";

impl FileStore {
    /// Opens the store in `folder`, which must be absolute. With `create` a missing folder is
    /// created, for this user alone, and is on stable storage when this returns.
    pub fn open(folder: &FsPath, create: bool) -> std::result::Result<FileStore, OpenError> {
        let unusable = |source| OpenError::Folder {
            path: folder.to_owned(),
            source,
        };
        match fs::metadata(folder) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Err(unusable(io::Error::from(io::ErrorKind::NotADirectory))),
            Err(error) if error.kind() == io::ErrorKind::NotFound && create => {
                create_folder(folder).map_err(unusable)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(OpenError::FolderMissing {
                    path: folder.to_owned(),
                });
            }
            Err(error) => return Err(unusable(error)),
        }
        let files = LocalFileSystem::new_with_prefix(folder)
            .map_err(|error| unusable(io::Error::other(error)))?
            .with_fsync(true);
        Ok(FileStore {
            files,
            folder: Arc::new(folder.to_owned()),
            updates: RwLock::new(()),
        })
    }

    async fn update(
        &self,
        location: &Path,
        payload: PutPayload,
        expected: UpdateVersion,
        options: PutOptions,
    ) -> Result<PutResult> {
        let _ordered = self.updates.write().await;
        let _locked = self.lock().await?;
        let precondition = |why: String| Error::Precondition {
            path: location.to_string(),
            source: why.into(),
        };
        let Some(expected) = expected.e_tag else {
            return Err(Error::Generic {
                store: "FileStore",
                source: "an update must name the ETag of the version that it replaces".into(),
            });
        };
        let present = match self.files.head(location).await {
            Ok(present) => present,
            Err(Error::NotFound { .. }) => {
                return Err(precondition("the object is gone".to_owned()));
            }
            Err(error) => return Err(error),
        };
        if present.e_tag.as_ref() != Some(&expected) {
            let found = present.e_tag.unwrap_or_default();
            return Err(precondition(format!("its ETag is {found}, not {expected}")));
        }
        let age = SystemTime::now()
            .duration_since(present.last_modified.into())
            .unwrap_or_default();
        if let Some(wait) = TWO_CLOCK_TICKS.checked_sub(age) {
            tokio::time::sleep(wait).await;
        }
        let options = PutOptions {
            mode: PutMode::Overwrite,
            ..options
        };
        self.files.put_opts(location, payload, options).await
    }

    /// Waits for the lock between processes, which is held until the returned file is dropped.
    async fn lock(&self) -> Result<File> {
        let path = self.folder.join(LOCK_FILE);
        let locked = tokio::task::spawn_blocking(move || {
            let file = File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .open(path)?;
            file.lock()?;
            Ok(file)
        });
        locked.await?.map_err(|error: io::Error| Error::Generic {
            store: "FileStore",
            source: error.into(),
        })
    }
}

/// Creates a folder and its parents, and flushes every parent that has a new entry.
fn create_folder(folder: &FsPath) -> io::Result<()> {
    let parents: Vec<_> = folder
        .ancestors()
        .skip(1)
        .scan(folder, |child, parent| {
            let is_new = !child.exists();
            *child = parent;
            is_new.then_some(parent)
        })
        .collect();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    parents
        .into_iter()
        .try_for_each(|parent| File::open(parent)?.sync_all())
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileStore({})", self.folder.display())
    }
}

#[async_trait]
impl ObjectStore for FileStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        match std::mem::take(&mut options.mode) {
            PutMode::Update(expected) => self.update(location, payload, expected, options).await,
            mode => {
                options.mode = mode;
                let _ordered = self.updates.read().await;
                self.files.put_opts(location, payload, options).await
            }
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.files.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        range::get(&self.files, location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.files.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.files.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.files.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.files.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let _ordered = self.updates.read().await;
        self.files.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        let _ordered = self.updates.read().await;
        self.files.rename_opts(from, to, options).await
    }
}
