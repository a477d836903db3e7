//! Compares the objects of the bucket with the packs that the metadata name.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_clones::layers::Sources;
use forebay_meta::record::PackRecord;
use forebay_meta::{Key, StoreError};
use forebay_pack::index::{PACK_HEADER_LEN, is_header_of};
use forebay_pack::{PACK_PREFIX, PackError, PackKeys, object_name, open_index, parse_object_name};
use forebay_types::PackId;
use futures_util::{StreamExt, stream};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt};

use crate::ended::Ended;
use crate::explain;
use crate::finding::{Finding, Sink};
use crate::judge::packs::{Packs, Sound, index_len};
use crate::progress::Stage;
use crate::source::{Newest, Source};
use crate::walk::Walk;

/// Packs whose headers and indexes are read concurrently.
const AT_ONCE: usize = 8;
/// Attempts for each request that the bucket does not answer well.
const ATTEMPTS: u32 = 4;
/// Pause before the next attempt, times the number of attempts. The store below waits as well.
const PAUSE: Duration = Duration::from_millis(500);

/// A header that is not that of the pack.
const OTHER_HEADER: &str = "its header is damaged, or of another pack";

/// Why bytes of a pack could not be read.
#[derive(Debug)]
pub(crate) enum Unread {
    /// The pack is missing.
    Missing,
    /// The pack is shorter than the requested range.
    CutOff {
        /// Length of the pack.
        len: u64,
    },
    /// The bucket does not answer well.
    Bucket(String),
}

/// The volume's objects.
#[derive(Clone)]
pub(crate) struct Bucket {
    store: Arc<dyn ObjectStore>,
    root: Path,
    pub(crate) keys: Arc<PackKeys>,
    pub(crate) newest: Arc<dyn Newest>,
    sources: Sources,
}

impl Bucket {
    pub(crate) fn new(
        store: Arc<dyn ObjectStore>,
        root: &Path,
        keys: Arc<PackKeys>,
        newest: Arc<dyn Newest>,
    ) -> Bucket {
        Bucket {
            store,
            root: root.clone(),
            keys,
            newest,
            sources: Sources::default(),
        }
    }

    /// The same for a clone with these sources.
    pub(crate) fn with_sources(self, sources: Sources) -> Bucket {
        Bucket { sources, ..self }
    }

    fn path(&self, name: &str) -> Path {
        self.root.parts().chain(Path::from(name).parts()).collect()
    }

    /// Lists the packs and compares them with their accounts.
    pub(crate) async fn compare(&self, walk: &mut Walk, packs: &mut Packs) -> Result<(), Ended> {
        let mut attempt = 1;
        loop {
            match self.list(walk, packs).await {
                Ok(()) => break,
                Err(error) if attempt < ATTEMPTS => {
                    tracing::warn!("listing the bucket: {error}; trying again");
                    tokio::time::sleep(PAUSE * attempt).await;
                }
                Err(error) => return Err(Ended::Bucket(error.to_string())),
            }
            attempt += 1;
        }
        let suspects = packs.suspects(&walk.snapshots);
        if suspects.is_empty() {
            return Ok(());
        }
        let newest = self.newest.newest().await?;
        for finding in suspects {
            let gone = match &finding {
                Finding::MissingPack { pack, .. } => is_gone(&*newest, *pack).await?,
                _ => false,
            };
            if !gone {
                walk.findings.found(finding);
            }
        }
        Ok(())
    }

    async fn list(&self, walk: &mut Walk, packs: &mut Packs) -> Result<(), Error> {
        walk.progress.begin(Stage::Bucket, 0);
        let mut census = walk.census;
        census.foreign_objects = Default::default();
        let mut objects = self.store.list(Some(&self.path(PACK_PREFIX)));
        while let Some(object) = objects.next().await {
            let object = object?;
            walk.progress.add(1);
            let parts = object.location.prefix_match(&self.root);
            let name: Option<Path> = parts.map(Iterator::collect);
            match name.and_then(|name| parse_object_name(name.as_ref())) {
                Some(pack) => packs.listed(pack, object.size, walk.state.as_ref(), &mut census),
                None => census.foreign_objects.add(object.size),
            }
        }
        for (pack, bytes) in self.sources.packs().await? {
            packs.listed_at_source(pack, bytes);
        }
        walk.census = census;
        Ok(())
    }

    /// The length of a pack; `None` if it is missing.
    ///
    /// # Errors
    /// When the bucket does not answer well.
    pub(crate) async fn len(&self, pack: PackId) -> Result<Option<u64>, String> {
        let path = self.path(&object_name(pack));
        let mut attempt = 1;
        loop {
            match self.store.head(&path).await {
                Ok(object) => return Ok(Some(object.size)),
                Err(Error::NotFound { .. }) => return Ok(None),
                Err(error) if attempt == ATTEMPTS => return Err(format!("{path}: {error}")),
                Err(_) => tokio::time::sleep(PAUSE * attempt).await,
            }
            attempt += 1;
        }
    }

    /// Lists all packs in the bucket: their numbers and lengths.
    ///
    /// # Errors
    /// When the bucket does not answer well.
    pub(crate) async fn packs(&self) -> Result<Vec<(PackId, u64)>, String> {
        let mut attempt = 1;
        loop {
            let mut packs = Vec::new();
            let mut objects = self.store.list(Some(&self.path(PACK_PREFIX)));
            let why = loop {
                match objects.next().await {
                    None => {
                        packs.sort_unstable();
                        return Ok(packs);
                    }
                    Some(Ok(object)) => {
                        let parts = object.location.prefix_match(&self.root);
                        let name: Option<Path> = parts.map(Iterator::collect);
                        let pack = name.and_then(|name| parse_object_name(name.as_ref()));
                        packs.extend(pack.map(|pack| (pack, object.size)));
                    }
                    Some(Err(error)) => break error,
                }
            };
            if attempt == ATTEMPTS {
                return Err(why.to_string());
            }
            tokio::time::sleep(PAUSE * attempt).await;
            attempt += 1;
        }
    }

    /// Reads the headers and indexes of packs, and compares them with their accounts.
    pub(crate) async fn read_indexes(&self, walk: &mut Walk, packs: &Packs) -> Result<(), Ended> {
        walk.progress
            .begin(Stage::Packs, packs.sound().count() as u64);
        let sound: Vec<_> = packs.sound().collect();
        let checks = sound.into_iter().map(|one| async move {
            let read = match &one.account {
                Some(record) => self.read_index(one.pack, record).await,
                None => self.read_held(one.pack, one.bytes).await,
            };
            (one, read)
        });
        let mut checks = stream::iter(checks).buffer_unordered(AT_ONCE);
        let mut suspects = Vec::new();
        while let Some((one, outcome)) = checks.next().await {
            walk.progress.add(1);
            let why = match outcome {
                Ok(None) => continue,
                Ok(Some(why)) => why,
                Err(Unread::Bucket(why)) => return Err(Ended::Bucket(why)),
                Err(Unread::Missing) => "it is not in the bucket any more".to_owned(),
                Err(Unread::CutOff { len }) => format!("it has only {len} bytes"),
            };
            suspects.push((one, why));
        }
        for (
            Sound {
                pack, born, died, ..
            },
            why,
        ) in suspects
        {
            if !self.has_gone(pack).await? {
                let (object, snapshots) = (object_name(pack), walk.snapshots.referring(born, died));
                walk.findings.found(Finding::DamagedPack {
                    pack,
                    object,
                    why,
                    snapshots,
                });
            }
        }
        Ok(())
    }

    /// Reads the header and the index of a held pack of `len` bytes, which has no account. Returns its fault, if any.
    async fn read_held(&self, pack: PackId, len: u64) -> Result<Option<String>, Unread> {
        let header = self.bytes(pack, 0, PACK_HEADER_LEN as u64).await?;
        if !is_header_of(&header, self.keys.volume(), pack) {
            return Ok(Some(OTHER_HEADER.to_owned()));
        }
        let index = explain::index(self, pack, len).await;
        let index = index.map_err(Unread::Bucket)?;
        Ok(index
            .is_none()
            .then(|| "its index is damaged, or of another pack".to_owned()))
    }

    /// Reads the header and the index of a pack, and returns the first fault found, if any.
    async fn read_index(
        &self,
        pack: PackId,
        record: &PackRecord,
    ) -> Result<Option<String>, Unread> {
        let volume = self.keys.volume();
        let header = self.bytes(pack, 0, PACK_HEADER_LEN as u64).await?;
        if !is_header_of(&header, volume, pack) {
            return Ok(Some(OTHER_HEADER.to_owned()));
        }
        let from = record.bytes.saturating_sub(index_len(record));
        let tail = self.bytes(pack, from, record.bytes).await?;
        let index = match open_index(&tail, &self.keys) {
            Ok(index) => index,
            Err(PackError::TailTooShort { .. }) => {
                return Ok(Some(
                    "its index has more frames than its account".to_owned(),
                ));
            }
            Err(error) => return Ok(Some(error.to_string())),
        };
        let entries = index.entries.iter();
        let raw_bytes: u64 = entries.map(|entry| u64::from(entry.frame.raw_len)).sum();
        let why = if index.volume != volume || index.pack != pack {
            "its index is of another pack"
        } else if u64::from(index.pack_len) != record.bytes {
            "its index and its account have different lengths"
        } else if index.entries.len() as u64 != u64::from(record.frames) {
            "its index and its account have different numbers of frames"
        } else if raw_bytes != record.raw_bytes {
            "its index and its account have different numbers of bytes"
        } else {
            return Ok(None);
        };
        Ok(Some(why.to_owned()))
    }

    /// Reads a range of bytes of a pack.
    pub(crate) async fn bytes(&self, pack: PackId, from: u64, to: u64) -> Result<Bytes, Unread> {
        let path = self.path(&object_name(pack));
        let mut attempt = 1;
        loop {
            let why = match self.store.get_range(&path, from..to).await {
                Ok(bytes) if bytes.len() as u64 == to - from => return Ok(bytes),
                Ok(bytes) => format!(
                    "the read returned {} bytes instead of {}",
                    bytes.len(),
                    to - from
                ),
                Err(Error::NotFound { .. }) => return Err(Unread::Missing),
                Err(error) => error.to_string(),
            };
            match self.store.head(&path).await {
                Ok(object) if object.size < to => return Err(Unread::CutOff { len: object.size }),
                Err(Error::NotFound { .. }) => return Err(Unread::Missing),
                _ if attempt == ATTEMPTS => {
                    return Err(Unread::Bucket(format!("{path}: {why}")));
                }
                _ => tokio::time::sleep(PAUSE * attempt).await,
            }
            attempt += 1;
        }
    }

    /// Whether the newest metadata no longer need the pack, so that a gateway may have deleted it.
    pub(crate) async fn has_gone(&self, pack: PackId) -> Result<bool, StoreError> {
        let newest = self.newest.newest().await?;
        is_gone(&*newest, pack).await
    }
}

async fn is_gone(newest: &dyn Source, pack: PackId) -> Result<bool, StoreError> {
    for key in [Key::Pack(pack), Key::HeldPack(pack)] {
        if newest.get(&key.encode()).await?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}
