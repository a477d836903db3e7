//! The overlay in front of the store, read as one.
//!
//! # Readers beside a publisher
//!
//! A checkpoint moves entries from the overlay to the store in three steps: `close`, the store's
//! `commit`, `discard_oldest`. A reader cannot look at both places at one moment. Two rules make
//! its result right all the same:
//!
//! * **The overlay first, the store second.** An entry is in the store before it leaves the
//!   overlay. A reader that misses it in the overlay finds it in the store, at least as new. (In
//!   the other order an entry could move past a reader and vanish.) So a key never vanishes and an
//!   old value never comes back.
//! * **A scan that a `close` overtook is repeated.** Until a further generation is closed, the
//!   store can only receive what the reader's view of the overlay holds as well, so the merge of
//!   both is exactly the state at the moment of the view. After that, the store may hold newer
//!   entries beside older ones of the view, and a file that was renamed meanwhile could appear
//!   under both names. Closes are seconds apart, scans take milliseconds; when several scans in a
//!   row are overtaken, because the bucket is slow, the result of the last one is returned: each
//!   key in it is right by itself. (The same holds between the pieces of a scan that reads the
//!   store more than once, because deletions hid some of its entries.)

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;
use forebay_types::{BlockIndex, BlockKey, Inode, PackId, to_usize};

use crate::batch::{Batch, Entry};
use crate::error::{Corrupt, StoreError};
use crate::key::{Key, KeyRange};
use crate::overlay::{Overlay, View};
use crate::record::{
    BlockMap, CookieRecord, InodeRecord, NameRecord, PackRecord, Record, VolumeState,
};
use crate::store::MetaStore;

/// How many times an overtaken scan is repeated.
const SCAN_REPEATS: usize = 4;

/// Overlay and store as one ordered map.
#[derive(Clone)]
pub struct Catalog {
    overlay: Arc<Overlay>,
    store: Arc<dyn MetaStore>,
}

impl Catalog {
    /// Looks in `overlay` first and then in `store`.
    pub fn new(overlay: Arc<Overlay>, store: Arc<dyn MetaStore>) -> Catalog {
        Catalog { overlay, store }
    }

    /// The changes that are not published yet.
    pub fn overlay(&self) -> &Arc<Overlay> {
        &self.overlay
    }

    /// The published metadata.
    pub fn store(&self) -> &Arc<dyn MetaStore> {
        &self.store
    }

    /// Adds logged changes.
    pub fn apply(&self, batch: &Batch) {
        self.overlay.apply(batch);
    }

    /// The value under an encoded key.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        match self.overlay.get(key) {
            Some(entry) => Ok(entry.value()),
            None => self.store.get(key).await,
        }
    }

    /// Keys and values in `range`, in order, at most `limit`. Less than `limit` means that the
    /// range has no more.
    pub async fn scan(
        &self,
        range: &KeyRange,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let mut repeats = 0;
        loop {
            let closings = self.overlay.closings();
            let found = self.scan_once(range, limit).await?;
            if closings == self.overlay.closings() || repeats == SCAN_REPEATS {
                return Ok(found);
            }
            repeats += 1;
        }
    }

    async fn scan_once(
        &self,
        range: &KeyRange,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let mut found = Vec::new();
        let mut rest = range.clone();
        while found.len() < limit && !rest.is_empty() {
            let wanted = limit - found.len();
            let view = self.overlay.view(&rest, wanted);
            // Both are known up to the same key: behind it, one of them is unknown.
            let seen = match view.entries.last() {
                Some((last, _)) if view.cut_off => rest.up_to(last),
                _ => rest.clone(),
            };
            let stored = self.store.scan(&seen, wanted).await?;
            let seen = match stored.last() {
                Some((last, _)) if stored.len() >= wanted => seen.up_to(last),
                _ => seen,
            };
            merge(view, stored, &seen, &mut found);
            rest.start = if seen.end == rest.end {
                break;
            } else {
                seen.end
            };
        }
        found.truncate(limit);
        Ok(found)
    }

    /// The record under `key`.
    pub async fn record<R: Record>(&self, key: &Key) -> Result<Option<R>, StoreError> {
        let key = key.encode();
        let value = self.get(&key).await?;
        let record = value.map(|value| R::decode(&key, &value)).transpose()?;
        Ok(record)
    }

    /// The records in `range` and their keys, in order, at most `limit`.
    pub async fn records<R: Record>(
        &self,
        range: &KeyRange,
        limit: usize,
    ) -> Result<Vec<(Key, R)>, StoreError> {
        let found = self.scan(range, limit).await?;
        let records = found
            .iter()
            .map(|(key, value)| Ok((Key::decode(key)?, R::decode(key, value)?)));
        records
            .collect::<Result<_, Corrupt>>()
            .map_err(StoreError::from)
    }

    /// State of the volume; `None` before its first checkpoint.
    pub async fn volume_state(&self) -> Result<Option<VolumeState>, StoreError> {
        self.record(&Key::Volume).await
    }

    /// An object.
    pub async fn inode(&self, inode: Inode) -> Result<Option<InodeRecord>, StoreError> {
        self.record(&Key::Inode(inode)).await
    }

    /// The objects from `first` to `last`, both included, in order.
    pub async fn inodes_between(
        &self,
        first: Inode,
        last: Inode,
    ) -> Result<Vec<(Inode, InodeRecord)>, StoreError> {
        if first == last {
            // A point lookup uses the tables' filters to skip tables; a scan reads all of them.
            let record = self.inode(first).await?;
            return Ok(record.map(|record| (first, record)).into_iter().collect());
        }
        let range = KeyRange::inodes_between(first, last);
        // No more than can exist in the range: the limit of a scan decides how much it reads ahead.
        let limit = last.0.saturating_sub(first.0).saturating_add(1);
        let found = self.records(&range, to_usize(limit)).await?;
        let inodes = found.into_iter().filter_map(|(key, record)| match key {
            Key::Inode(inode) => Some((inode, record)),
            _ => None,
        });
        Ok(inodes.collect())
    }

    /// The object that `name` refers to in `directory`.
    pub async fn name(
        &self,
        directory: Inode,
        name: &[u8],
    ) -> Result<Option<NameRecord>, StoreError> {
        self.record(&Key::Name(directory, Bytes::copy_from_slice(name)))
            .await
    }

    /// Like [`name`](Catalog::name), for a directory that may be newer than the bucket: `is_published` returns whether
    /// the bucket can have names of it. It is called only if the overlay has no entry for the name, and after the look
    /// there. So no name is missed, provided that names leave the overlay only after `is_published` has begun to return
    /// true.
    pub async fn name_if_published(
        &self,
        directory: Inode,
        name: &[u8],
        is_published: impl FnOnce() -> bool,
    ) -> Result<Option<NameRecord>, StoreError> {
        let key = Key::Name(directory, Bytes::copy_from_slice(name)).encode();
        let value = match self.overlay.get(&key) {
            Some(entry) => entry.value(),
            None if is_published() => self.store.get(&key).await?,
            None => None,
        };
        let record = value.map(|value| NameRecord::decode(&key, &value));
        Ok(record.transpose()?)
    }

    /// The next names of `directory` behind `cookie` (0: from the first one on) with their
    /// cookies, at most `limit`; less than that means that there are no more.
    pub async fn cookies_after(
        &self,
        directory: Inode,
        cookie: u64,
        limit: usize,
    ) -> Result<Vec<(u64, CookieRecord)>, StoreError> {
        self.cookies_between(directory, cookie, u64::MAX, limit)
            .await
    }

    /// Like [`cookies_after`](Catalog::cookies_after), up to and including the cookie `last`.
    pub async fn cookies_between(
        &self,
        directory: Inode,
        cookie: u64,
        last: u64,
        limit: usize,
    ) -> Result<Vec<(u64, CookieRecord)>, StoreError> {
        let range = KeyRange::cookies_between(directory, cookie, last);
        let found = self.records(&range, limit).await?;
        let cookies = found.into_iter().filter_map(|(key, record)| match key {
            Key::Cookie(_, cookie) => Some((cookie, record)),
            _ => None,
        });
        Ok(cookies.collect())
    }

    /// Where the bytes of a block lie; `None` when it is one hole.
    pub async fn block_map(
        &self,
        inode: Inode,
        block: BlockIndex,
    ) -> Result<Option<BlockMap>, StoreError> {
        self.record(&Key::Block(BlockKey { inode, block })).await
    }

    /// The block maps of a file from block `from` on, in order, at most `limit`.
    pub async fn block_maps(
        &self,
        inode: Inode,
        from: BlockIndex,
        limit: usize,
    ) -> Result<Vec<(BlockIndex, BlockMap)>, StoreError> {
        let found = self.records(&KeyRange::blocks(inode, from), limit).await?;
        let blocks = found.into_iter().filter_map(|(key, map)| match key {
            Key::Block(key) => Some((key.block, map)),
            _ => None,
        });
        Ok(blocks.collect())
    }

    /// Account of a pack.
    pub async fn pack(&self, pack: PackId) -> Result<Option<PackRecord>, StoreError> {
        self.record(&Key::Pack(pack)).await
    }
}

/// Appends to `found` the entries of the overlay and the store in `seen`; the overlay wins.
fn merge(
    view: View,
    stored: Vec<(Bytes, Bytes)>,
    seen: &KeyRange,
    found: &mut Vec<(Bytes, Bytes)>,
) {
    let mut newer = view
        .entries
        .into_iter()
        .filter(|(key, _)| seen.contains(key))
        .peekable();
    let mut older = stored.into_iter().peekable();
    loop {
        let order = match (newer.peek(), older.peek()) {
            (Some((new, _)), Some((old, _))) => new.cmp(old),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return,
        };
        if order == Ordering::Greater {
            found.extend(older.next());
            continue;
        }
        if order == Ordering::Equal {
            older.next();
        }
        if let Some((key, Entry::Value(value))) = newer.next() {
            found.push((key, value));
        }
    }
}

#[cfg(test)]
mod tests;
