//! Finds the content of a pack by its index or, where the index is damaged, by the headers of its frames.

use bytes::{Bytes, BytesMut};
use forebay_pack::index::{INDEX_FOOTER_LEN, PACK_HEADER_LEN};
use forebay_pack::{IndexEntry, PackError, find_frames, open_any_frame, open_index};
use forebay_types::{PackId, to_usize};
use futures_util::{StreamExt, stream};

use crate::bucket::{Bucket, Unread};

/// Bytes that one GET fetches where a whole pack is read.
pub(crate) const CHUNK: u64 = 8 << 20;
/// GETs in flight while a pack is read.
const AHEAD: usize = 3;

/// The frames of a pack.
pub(crate) struct Explained {
    /// Length of the object in bytes.
    pub(crate) len: u64,
    pub(crate) frames: Vec<IndexEntry>,
}

/// The content of a pack; `None` if the pack is missing.
///
/// # Errors
/// When the bucket does not answer well.
pub(crate) async fn explain(bucket: &Bucket, pack: PackId) -> Result<Option<Explained>, String> {
    let Some(len) = bucket.len(pack).await? else {
        return Ok(None);
    };
    if let Some(frames) = index(bucket, pack, len).await? {
        return Ok(Some(Explained { len, frames }));
    }
    let mut frames = Vec::new();
    walk(bucket, pack, len, |found| {
        if let Found::Frame(entry, _) = found {
            frames.push(entry);
        }
        Ok(())
    })
    .await?;
    Ok(Some(Explained { len, frames }))
}

/// The index of a pack of `len` bytes; `None` if it is damaged.
pub(crate) async fn index(
    bucket: &Bucket,
    pack: PackId,
    len: u64,
) -> Result<Option<Vec<IndexEntry>>, String> {
    let mut wanted = INDEX_FOOTER_LEN as u64;
    loop {
        if wanted > len {
            return Ok(None);
        }
        let tail = match bucket.bytes(pack, len - wanted, len).await {
            Ok(tail) => tail,
            Err(Unread::Bucket(why)) => return Err(why),
            Err(Unread::Missing | Unread::CutOff { .. }) => return Ok(None),
        };
        match open_index(&tail, &bucket.keys) {
            Ok(index) if index.pack == pack && u64::from(index.pack_len) == len => {
                let is_own = index.volume == bucket.keys.volume();
                return Ok(is_own.then_some(index.entries));
            }
            Err(PackError::TailTooShort { needed }) if needed as u64 > wanted => {
                wanted = needed as u64;
            }
            _ => return Ok(None),
        }
    }
}

/// Something that a walk finds in a pack.
pub enum Found {
    /// A verified frame: its entry and its bytes.
    Frame(IndexEntry, Bytes),
    /// A frame whose checksum is right but which is not one of this pack, and why.
    Refused {
        /// Its offset in the pack.
        offset: u32,
        /// The error.
        why: String,
    },
}

/// Reads a pack of `len` bytes from its first frame to its end, without relying on its header and index. Calls `visit`
/// for each thing found, in order of offset. Takes some 40 MiB of memory.
///
/// # Errors
/// When the bucket does not answer well, and the errors of `visit`.
pub(crate) async fn walk(
    bucket: &Bucket,
    pack: PackId,
    len: u64,
    mut visit: impl FnMut(Found) -> Result<(), String>,
) -> Result<(), String> {
    let first = (PACK_HEADER_LEN as u64).min(len);
    let starts = (first..len).step_by(to_usize(CHUNK));
    let chunks = starts.map(|from| bucket.bytes(pack, from, (from + CHUNK).min(len)));
    let mut chunks = stream::iter(chunks).buffered(AHEAD);
    let (mut rest, mut at) = (BytesMut::new(), first);
    while let Some(chunk) = chunks.next().await {
        match chunk {
            Ok(chunk) => rest.extend_from_slice(&chunk),
            Err(Unread::Bucket(why)) => return Err(why),
            // The pack was deleted or replaced while it was read.
            Err(Unread::Missing | Unread::CutOff { .. }) => return Ok(()),
        }
        let is_end = at + rest.len() as u64 == len;
        let found = find_frames(&rest, is_end);
        let searched = rest.split_to(found.searched).freeze();
        for range in found.frames {
            let offset = u32::try_from(at + range.start as u64);
            let offset = offset.map_err(|_| format!("pack {pack} is longer than a pack can be"))?;
            let stored = searched.slice(range);
            visit(match open_any_frame(stored, pack, offset, &bucket.keys) {
                Ok((entry, frame)) => Found::Frame(entry, frame.data),
                Err(error) => Found::Refused {
                    offset,
                    why: error.fault.to_string(),
                },
            })?;
        }
        at += found.searched as u64;
    }
    Ok(())
}
