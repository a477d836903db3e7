//! The metadata of a sealed volume, sealed at rest.
//!
//! This store lies below SlateDB: each object that SlateDB writes is stored sealed under a key of its own, which is
//! derived from the volume, from the object's name below the metadata's folder, and from a salt that is drawn at each
//! write of the object. So an object that was put under another name, or copied from another volume, does not open.
//!
//! ```text
//! object   chunk | chunk | ... | last chunk
//!
//! chunk
//!  0  [u8; 4]   magic     "FBmd"
//!  4  u16       version   1
//!  6  u8        seal      1 AES-256-GCM
//!  7  u8        reserved  0
//!  8  u32       key_id    which data key of the volume
//! 12  [u8; 16]  salt      the same in all chunks of the object
//! 28  [u8; 16]  tag       authenticates bytes 0 to 28 and what is sealed;
//!                         with the last chunk also the length of all plain bytes, as u64
//! 44            sealed: 4096 bytes, in the last chunk what is left
//! ```
//!
//! Chunks are the numbered parts of the object, the last one its closing part: none can be left out, swapped or cut off
//! unnoticed. Numbers are little-endian. The salt stands in each chunk, as it stands in each frame of a pack, so that
//! any range of an object is one request, as without sealing, and no state is kept between requests. The plain length
//! of an object follows from its stored length. That is only trusted in a listing and a HEAD; bytes that are read have
//! to authenticate at their place.
//!
//! Bytes that do not authenticate may have been damaged in transit and are fetched again.

mod chunks;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod layout;
mod upload;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use forebay_seal::{Sealing, UnknownDataKey};
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use slatedb_common::retry::{NonRetryable, should_retry};

use super::{READ_AGAIN, READS};
use chunks::{Arrived, Flaw, ObjectSealer};
use upload::SealedUpload;

/// An object that differed from the one sealed under its name at each read.
#[derive(Debug, thiserror::Error)]
#[error("{location} {flaw}")]
pub(super) struct Refused {
    location: Path,
    flaw: Flaw,
}

impl Refused {
    /// The missing data key, if that is the flaw.
    pub(super) fn unknown_key(&self) -> Option<UnknownDataKey> {
        match self.flaw {
            Flaw::UnknownKey(unknown) => Some(unknown),
            _ => None,
        }
    }

    fn error(location: &Path, flaw: Flaw) -> Error {
        let location = location.clone();
        Error::Generic {
            store: "sealed",
            // It was repeated often enough.
            source: Box::new(NonRetryable(Box::new(Refused { location, flaw }))),
        }
    }
}

/// A store in which all objects below a folder are sealed. Lengths are those of the plain bytes.
#[derive(Debug)]
pub(super) struct SealedStore {
    inner: Arc<dyn ObjectStore>,
    folder: Path,
    sealing: Sealing,
}

impl SealedStore {
    pub(super) fn new(inner: Arc<dyn ObjectStore>, folder: Path, sealing: Sealing) -> SealedStore {
        SealedStore {
            inner,
            folder,
            sealing,
        }
    }

    /// The name for sealing, below the folder: a volume that is copied elsewhere as a whole still opens.
    fn name<'a>(&self, location: &'a Path) -> Result<&'a str> {
        let (folder, location) = (self.folder.as_ref(), location.as_ref());
        let below = location.strip_prefix(folder).and_then(|name| {
            if folder.is_empty() {
                Some(name)
            } else {
                name.strip_prefix('/')
            }
        });
        below.ok_or_else(|| Error::NotSupported {
            source: format!("{location} is not below {folder}").into(),
        })
    }

    async fn get_opened(
        &self,
        location: &Path,
        name: &str,
        options: GetOptions,
    ) -> Result<GetResult> {
        let range = options.range.as_ref();
        if let Some(Err(error)) = range.map(|range| range.is_valid()) {
            return Err(Error::Generic {
                store: "sealed",
                source: Box::new(NonRetryable(Box::new(error))),
            });
        }
        let stored_range = match range.map(layout::stored_range) {
            None => None,
            Some(Some(stored)) => Some(stored),
            Some(None) => return Err(Refused::error(location, Flaw::Short)),
        };
        let first = stored_range.as_ref().map_or(0, first_byte);
        let mut attempt = 1;
        loop {
            let stored = GetOptions {
                range: stored_range.clone(),
                ..options.clone()
            };
            let found = match self.inner.get_opts(location, stored).await {
                Ok(found) => found,
                Err(error) if stored_range.is_some() && should_retry(&error) => {
                    return Err(self.unless_short(location, first, error).await);
                }
                Err(error) => return Err(error),
            };
            let (mut meta, attributes) = (found.meta.clone(), found.attributes.clone());
            let (start, extensions) = (found.range.start, found.extensions.clone());
            let arrived = Arrived {
                stored: meta.size,
                start,
                bytes: found.bytes().await?,
            };
            let (range, extent, bytes) = match arrived.open(&self.sealing, name, range) {
                Ok(opened) => opened,
                Err(flaw) if attempt >= flaw.reads() => {
                    return Err(Refused::error(location, flaw));
                }
                Err(flaw) => {
                    tracing::warn!("{location} {flaw}; it is read again");
                    tokio::time::sleep(READ_AGAIN * attempt).await;
                    attempt += 1;
                    continue;
                }
            };
            meta.size = extent.plain;
            return Ok(GetResult {
                payload: GetResultPayload::Stream(stream::once(async { Ok(bytes) }).boxed()),
                meta,
                range,
                attributes,
                extensions,
            });
        }
    }

    /// The error of a request for bytes from `start` on, unless the object does not have that byte: then the request
    /// would be repeated without end.
    async fn unless_short(&self, location: &Path, start: u64, error: Error) -> Error {
        let options = GetOptions {
            head: true,
            ..GetOptions::default()
        };
        match self.inner.get_opts(location, options).await {
            Ok(found) if found.meta.size <= start => Refused::error(location, Flaw::Short),
            _ => error,
        }
    }
}

/// The first byte of a range, which an object has if it has any byte of the range.
fn first_byte(range: &GetRange) -> u64 {
    match range {
        GetRange::Bounded(range) => range.start,
        GetRange::Offset(start) => *start,
        GetRange::Suffix(_) => 0,
    }
}

fn with_plain_len(meta: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        size: layout::plain_len(meta.size),
        ..meta
    }
}

impl fmt::Display for SealedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for SealedStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let mut sealer = ObjectSealer::new(&self.sealing, self.name(location)?);
        sealer.add(&payload);
        let sealed = sealer.finish();
        self.inner.put_opts(location, sealed.into(), options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let sealer = ObjectSealer::new(&self.sealing, self.name(location)?);
        let upload = self.inner.put_multipart_opts(location, options).await?;
        Ok(Box::new(SealedUpload::new(upload, sealer)))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let name = self.name(location)?;
        if !options.head {
            return self.get_opened(location, name, options).await;
        }
        let options = GetOptions {
            range: None,
            ..options
        };
        let mut found = self.inner.get_opts(location, options).await?;
        found.meta = with_plain_len(found.meta);
        found.range = 0..found.meta.size;
        // Some stores send the whole body along.
        found.payload = GetResultPayload::Stream(stream::empty().boxed());
        Ok(found)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix).map_ok(with_plain_len).boxed()
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let found = self.inner.list_with_offset(prefix, offset);
        found.map_ok(with_plain_len).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut found = self.inner.list_with_delimiter(prefix).await?;
        for meta in &mut found.objects {
            meta.size = layout::plain_len(meta.size);
        }
        Ok(found)
    }

    /// Refused: a copy would have another name than it was sealed under. SlateDB copies only from one volume to
    /// another.
    async fn copy_opts(&self, from: &Path, to: &Path, _: CopyOptions) -> Result<()> {
        Err(Error::NotImplemented {
            operation: format!("a copy of {from} to {to}"),
            implementer: self.to_string(),
        })
    }
}
