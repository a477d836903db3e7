//! A checksum for the objects that SlateDB stores without one.
//!
//! SlateDB's tables have a CRC32 for each block. Its manifests, its notes on merges and its marks of the collector have
//! none: a wrong byte would stop the store at best, and at worst be taken for valid data. So this store ends each
//! object that is not a table in a trailer, which is checked and removed on reads:
//!
//! ```text
//! 0  [u8; 4]  magic   "FBc2"
//! 4  u32      crc32   of the last part of the object's name, and of its bytes without the trailer; little-endian
//! ```
//!
//! An object that does not match may have been damaged in transit and is fetched again, as blocks of tables are.
//!
//! A table's checksums do not name the table that they belong to: it is stored under a [pad] that does.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod pad;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_types::to_usize;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use slatedb_common::retry::NonRetryable;

use super::{READ_AGAIN, READS};
use pad::{Pad, PaddedUpload};

const MAGIC: [u8; 4] = *b"FBc2";
/// The magic of a store whose tables have no pad.
const EARLIER_MAGIC: [u8; 4] = *b"FBck";
const TRAILER_BYTES: usize = 8;

/// An object that arrived damaged at each attempt.
#[derive(Debug, thiserror::Error)]
#[error("{location} {flaw}")]
pub(super) struct Damaged {
    location: Path,
    flaw: Flaw,
}

/// The defect of an object.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum Flaw {
    #[error("does not match its checksum")]
    Wrong,
    #[error("has no checksum: it was cut off, or an older program has written it")]
    Missing,
    #[error("has only {0} bytes: it was cut off")]
    CutOff(u64),
    #[error(
        "is of a volume that was made before version 2 of its metadata's format, which this program does not read: \
         serve it with the program that made it, and copy its files into a new volume"
    )]
    Earlier,
}

impl Damaged {
    /// Whether the object is not damaged, but of a format that is no longer read.
    pub(super) fn is_earlier(&self) -> bool {
        matches!(self.flaw, Flaw::Earlier)
    }
}

/// A store that gives tables a pad, and all other objects a trailer. Sizes in its listings include the trailer.
#[derive(Debug)]
pub(super) struct ChecksummedStore {
    inner: Arc<dyn ObjectStore>,
}

impl ChecksummedStore {
    pub(super) fn new(inner: Arc<dyn ObjectStore>) -> ChecksummedStore {
        ChecksummedStore { inner }
    }

    /// The error of a GET that failed because its range lies behind the end of a table. Stores report that differently,
    /// and some in the same way as unavailability.
    async fn cut_off(&self, location: &Path, asked: &GetOptions) -> Option<Error> {
        let Some(GetRange::Bounded(range)) = &asked.range else {
            return None;
        };
        let head = GetOptions {
            head: true,
            ..GetOptions::default()
        };
        let len = self.inner.get_opts(location, head).await.ok()?.meta.size;
        (len < range.end).then(|| damaged(location, Flaw::CutOff(len)))
    }

    /// Reads a table and removes its pad.
    async fn get_table(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let mut answer = self.inner.get_opts(location, options.clone()).await;
        if matches!(&answer, Ok(found) if is_short(found, &options)) {
            tracing::warn!("{location} arrived truncated; it is read again");
            answer = self.inner.get_opts(location, options.clone()).await;
        }
        let found = match answer {
            Err(error @ Error::Generic { .. }) => {
                return Err(self.cut_off(location, &options).await.unwrap_or(error));
            }
            // SlateDB takes a short answer for the whole range.
            Ok(found) if is_short(&found, &options) => {
                return Err(damaged(location, Flaw::CutOff(found.meta.size)));
            }
            answer => answer?,
        };
        if options.head {
            return Ok(found);
        }
        let (meta, attributes) = (found.meta.clone(), found.attributes.clone());
        let (range, extensions) = (found.range.clone(), found.extensions.clone());
        let mut bytes = Vec::from(found.bytes().await?);
        Pad::of(location).turn(range.start, &mut bytes);
        let bytes = Bytes::from(bytes);
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream::once(async { Ok(bytes) }).boxed()),
            meta,
            range,
            attributes,
            extensions,
        })
    }

    /// Reads an object with a trailer, checks the trailer and removes it.
    async fn get_checked(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        // The check needs the whole object; these objects are small.
        let whole = GetOptions {
            range: None,
            ..options.clone()
        };
        let mut attempt = 1;
        loop {
            let found = self.inner.get_opts(location, whole.clone()).await?;
            let (mut meta, attributes) = (found.meta.clone(), found.attributes.clone());
            let extensions = found.extensions.clone();
            let bytes = match opened(location, &found.bytes().await?) {
                Ok(bytes) => bytes,
                Err(flaw) if attempt == READS || matches!(flaw, Flaw::Earlier) => {
                    return Err(damaged(location, flaw));
                }
                Err(flaw) => {
                    tracing::warn!("{location} {flaw}; it is read again");
                    tokio::time::sleep(READ_AGAIN * attempt).await;
                    attempt += 1;
                    continue;
                }
            };
            meta.size = bytes.len() as u64;
            let range = match &options.range {
                None => 0..meta.size,
                Some(range) => range.as_range(meta.size).map_err(|error| Error::Generic {
                    store: "checksummed",
                    source: Box::new(error),
                })?,
            };
            let piece = bytes.slice(to_usize(range.start)..to_usize(range.end));
            return Ok(GetResult {
                payload: GetResultPayload::Stream(stream::once(async { Ok(piece) }).boxed()),
                meta,
                range,
                attributes,
                extensions,
            });
        }
    }
}

/// Whether the object gets a trailer, because SlateDB gives it no checksum.
fn has_trailer(location: &Path) -> bool {
    location.extension() != Some("sst")
}

/// Whether a GET returns less than was asked for.
fn is_short(found: &GetResult, asked: &GetOptions) -> bool {
    match &asked.range {
        Some(GetRange::Bounded(range)) if !asked.head => found.range.end < range.end,
        _ => false,
    }
}

fn checksum<'a>(location: &Path, bytes: impl IntoIterator<Item = &'a Bytes>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(location.filename().unwrap_or_default().as_bytes());
    bytes.into_iter().for_each(|piece| hasher.update(piece));
    hasher.finalize()
}

fn with_trailer(location: &Path, payload: &PutPayload) -> PutPayload {
    let crc = checksum(location, payload.iter());
    let trailer = [MAGIC, crc.to_le_bytes()].concat();
    let pieces = payload.iter().cloned();
    pieces.chain([Bytes::from(trailer)]).collect()
}

/// The bytes before the trailer, if the trailer is right.
fn opened(location: &Path, stored: &Bytes) -> std::result::Result<Bytes, Flaw> {
    let len = stored.len().checked_sub(TRAILER_BYTES);
    let bytes = stored.slice(..len.ok_or(Flaw::Missing)?);
    let trailer = stored.slice(bytes.len()..);
    let crc = checksum(location, [&bytes]).to_le_bytes();
    if trailer[..] == [EARLIER_MAGIC, crc].concat() {
        return Err(Flaw::Earlier);
    }
    if trailer.strip_prefix(&MAGIC).ok_or(Flaw::Missing)? != crc {
        return Err(Flaw::Wrong);
    }
    Ok(bytes)
}

fn damaged(location: &Path, flaw: Flaw) -> Error {
    let location = location.clone();
    Error::Generic {
        store: "checksummed",
        // It was repeated often enough.
        source: Box::new(NonRetryable(Box::new(Damaged { location, flaw }))),
    }
}

impl fmt::Display for ChecksummedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChecksummedStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for ChecksummedStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let payload = if has_trailer(location) {
            with_trailer(location, &payload)
        } else {
            Pad::of(location).turned(0, payload.iter()).into()
        };
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        if has_trailer(location) {
            // Only tables are large enough.
            return Err(Error::NotImplemented {
                operation: format!("an upload of {location} in parts"),
                implementer: self.to_string(),
            });
        }
        let upload = self.inner.put_multipart_opts(location, options).await?;
        Ok(Box::new(PaddedUpload::new(upload, Pad::of(location))))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if !has_trailer(location) {
            return self.get_table(location, options).await;
        }
        if options.head {
            let mut found = self.inner.get_opts(location, options).await?;
            found.meta.size = found.meta.size.saturating_sub(TRAILER_BYTES as u64);
            return Ok(found);
        }
        self.get_checked(location, options).await
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
        // The checksum covers the name.
        if from.filename() != to.filename() {
            return Err(Error::NotImplemented {
                operation: format!("a copy of {from} to {to}"),
                implementer: self.to_string(),
            });
        }
        self.inner.copy_opts(from, to, options).await
    }
}
