//! The overlay in front of the store, read as one.
//!
//! # Readers beside a publisher
//!
//! A checkpoint moves entries from the overlay to the store in three steps: `close`, the store's
//! `commit`, `discard_closed`. A reader that looks at both places cannot do so at one moment. Two
//! rules make what it sees right all the same:
//!
//! * **The overlay first, the store second.** An entry is in the store before it leaves the
//!   overlay. Whoever misses it in the overlay finds it in the store, at least as new.
//!   (In the other order an entry could move past a reader and vanish.) So a key never vanishes
//!   and an old value never comes back.
//! * **A scan that a `close` overtook is done again.** Until a further generation is closed the
//!   store can only take up what the reader's view of the overlay holds as well, so the merge of
//!   both is exactly the state at the moment of the view. After it, the store may hold
//!   newer entries beside older ones of the view, and a file that was renamed meanwhile could be
//!   seen under both names. Closes are seconds apart, scans take milliseconds; when several in
//!   a row are overtaken, because the bucket is slow, the last one is taken as it is: each key in
//!   it is right by itself. (The same holds between the pieces of a scan that goes back to the
//!   store for more, because deletions hid what the store gave.)

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;
use forebay_types::{BlockIndex, BlockKey, Inode, PackId};

use crate::batch::{Batch, Entry};
use crate::error::{Corrupt, StoreError};
use crate::key::{Key, KeyRange};
use crate::overlay::{Overlay, View};
use crate::record::{
    BlockMap, CookieRecord, InodeRecord, NameRecord, PackRecord, Record, VolumeState,
};
use crate::store::MetaStore;

/// How often a scan that was overtaken is done again.
const SCAN_REPEATS: usize = 4;

/// Overlay and store as one ordered map.
#[derive(Clone)]
pub struct Catalog {
    overlay: Arc<Overlay>,
    store: Arc<dyn MetaStore>,
}

impl Catalog {
    /// Looks into `overlay` first and then into `store`.
    pub fn new(overlay: Arc<Overlay>, store: Arc<dyn MetaStore>) -> Catalog {
        Catalog { overlay, store }
    }

    /// What is not published yet.
    pub fn overlay(&self) -> &Arc<Overlay> {
        &self.overlay
    }

    /// What is published.
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
            // Both see the range up to the same key: behind it, one of them is blind.
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
            // Filters say which tables do not have it; a scan looks into all.
            let record = self.inode(first).await?;
            return Ok(record.map(|record| (first, record)).into_iter().collect());
        }
        let range = KeyRange::inodes_between(first, last);
        // As many as can lie there: a scan fetches ahead for what it is asked for.
        let limit = last.0.saturating_sub(first.0).saturating_add(1);
        let found = self.records(&range, limit as usize).await?;
        let inodes = found.into_iter().filter_map(|(key, record)| match key {
            Key::Inode(inode) => Some((inode, record)),
            _ => None,
        });
        Ok(inodes.collect())
    }

    /// What `name` stands for in `directory`.
    pub async fn name(
        &self,
        directory: Inode,
        name: &[u8],
    ) -> Result<Option<NameRecord>, StoreError> {
        self.record(&Key::Name(directory, Bytes::copy_from_slice(name)))
            .await
    }

    /// The same, of a directory that may be newer than the bucket: `is_published` says whether the bucket can know
    /// names of it. It is asked after a look at what is unpublished, and only if that has nothing; so if names
    /// leave the overlay only after it has begun to say yes, none is missed.
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

    /// The same up to the cookie `last`, included.
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

/// Appends to `found` what the overlay and the store show in `seen`; the overlay wins.
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
