//! The state of a repair round: what it reads, the batch that it gathers, and the steps that it has done.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use forebay_meta::record::{
    CookieRecord, Directory, Kind, NameRecord, Record, Timestamp, VolumeState,
};
use forebay_meta::{Batch, Entry, InodeRecord, Key, KeyRange, StoreError};
use forebay_types::{BLOCK_SIZE, Inode};

use super::overlaid::Overlaid;
use super::{Observer, Step, Target};
use crate::finding::{Finding, Nobody};
use crate::report::Report;
use crate::source::{Cursor, Source};

/// Changes in a batch, and bytes of them, from which on it is committed. In tests each step is one, to be cut off
/// there.
const BATCH_CHANGES: usize = if cfg!(test) { 1 } else { 1000 };
const BATCH_BYTES: usize = 4 << 20;

/// One round: reads a moment with its own changes over it, and commits these in batches. Changes that belong together
/// are never split over two batches: [`settle`](Work::settle) is called only between complete steps.
pub(super) struct Work<'a> {
    pub(super) source: Arc<dyn Source>,
    overlaid: Arc<Overlaid>,
    target: &'a dyn Target,
    observer: &'a mut dyn Observer,
    batch: Batch,
    /// Steps in the batch, not committed yet.
    pending: Vec<Step>,
    /// The check of this round.
    pub(super) report: &'a Report,
    /// Objects without a name that still have none.
    pub(super) orphans: BTreeSet<Inode>,
    pub(super) accept_loss: bool,
    /// Whether the check of this round has read what snapshots refer to.
    pub(super) reads_past: bool,
    pub(super) now: Timestamp,
    /// Steps of this round.
    pub(super) steps: u64,
}

impl<'a> Work<'a> {
    pub(super) fn new(
        overlaid: Arc<Overlaid>,
        target: &'a dyn Target,
        observer: &'a mut dyn Observer,
        report: &'a Report,
        (accept_loss, reads_past, now): (bool, bool, Timestamp),
    ) -> Work<'a> {
        let of_kind = |finding: &Finding| match finding {
            Finding::Orphan { inode, .. } => Some(*inode),
            _ => None,
        };
        let found = report.findings.kinds().flat_map(|(_, _, kept)| kept);
        Work {
            source: overlaid.clone(),
            overlaid,
            target,
            observer,
            batch: Batch::new(),
            pending: Vec::new(),
            orphans: found.filter_map(of_kind).collect(),
            report,
            accept_loss,
            reads_past,
            now,
            steps: 0,
        }
    }

    /// Records a step that repairs a finding.
    pub(super) fn did(&mut self, finding: &Finding, what: String) {
        let inode = finding.inode();
        let path = inode.and_then(|inode| self.report.paths.get(&inode));
        self.pending.push(Step {
            finding: finding.name(),
            inode,
            path: path.cloned(),
            what,
        });
        self.steps += 1;
    }

    /// Whether some block maps cannot be read: bytes that seem to be dead may be referred to by them.
    pub(super) fn maps_are_unknown(&self) -> bool {
        self.report.unreadable_maps > 0
    }

    /// Most bytes that the unreadable block maps can refer to.
    pub(super) fn unknown_bytes(&self) -> u64 {
        self.report.unreadable_maps.saturating_mul(BLOCK_SIZE)
    }

    /// Commits the batch if it has grown large. Called between complete steps.
    pub(super) async fn settle(&mut self) -> Result<(), StoreError> {
        match self.batch.len() >= BATCH_CHANGES || self.batch.bytes() >= BATCH_BYTES {
            true => self.commit().await,
            false => Ok(()),
        }
    }

    /// Commits the batch, and reports its steps.
    pub(super) async fn commit(&mut self) -> Result<(), StoreError> {
        if !self.batch.is_empty() {
            self.target.commit(&self.batch).await?;
            self.batch = Batch::new();
        }
        for step in self.pending.drain(..) {
            self.observer.done(&step);
        }
        Ok(())
    }

    pub(super) fn cursor(&self, range: KeyRange) -> Cursor {
        Cursor::new(&self.source, range)
    }

    pub(super) async fn has(&self, key: &Key) -> Result<bool, StoreError> {
        Ok(self.source.get(&key.encode()).await?.is_some())
    }

    /// Whether the volume has a state that can be read.
    pub(super) async fn has_state(&self) -> Result<bool, StoreError> {
        let state = self.get::<VolumeState>(&Key::Volume).await?;
        Ok(state.is_some())
    }

    /// The record under a key; `None` if there is none or it cannot be read.
    pub(super) async fn get<R: Record>(&self, key: &Key) -> Result<Option<R>, StoreError> {
        let key = key.encode();
        let value = self.source.get(&key).await?;
        Ok(value.and_then(|value| R::decode(&key, &value).ok()))
    }

    pub(super) async fn inode(&self, inode: Inode) -> Result<Option<InodeRecord>, StoreError> {
        self.get(&Key::Inode(inode)).await
    }

    pub(super) fn put<R: Record>(&mut self, key: &Key, record: &R) {
        let (key, value) = (key.encode(), record.encode());
        self.overlaid.set(key.clone(), Entry::Value(value.clone()));
        self.batch.put_encoded(key, value);
    }

    pub(super) fn delete(&mut self, key: &Key) {
        self.delete_encoded(key.encode());
    }

    pub(super) fn delete_encoded(&mut self, key: Bytes) {
        self.overlaid.set(key.clone(), Entry::Deleted);
        self.batch.delete_encoded(key);
    }

    /// Changes an object. Returns whether its record could be read.
    pub(super) async fn edit(
        &mut self,
        inode: Inode,
        change: impl FnOnce(&mut InodeRecord),
    ) -> Result<bool, StoreError> {
        let Some(mut record) = self.inode(inode).await? else {
            return Ok(false);
        };
        change(&mut record);
        self.put(&Key::Inode(inode), &record);
        Ok(true)
    }

    /// Changes the attributes that only directories have. Returns whether it is a directory whose record could be read.
    pub(super) async fn edit_directory(
        &mut self,
        inode: Inode,
        change: impl FnOnce(&mut Directory),
    ) -> Result<bool, StoreError> {
        let Some(mut record) = self.inode(inode).await? else {
            return Ok(false);
        };
        let Some(own) = record.directory_mut() else {
            return Ok(false);
        };
        change(own);
        self.put(&Key::Inode(inode), &record);
        Ok(true)
    }

    /// Marks an inode number as used.
    pub(super) async fn take_number(&mut self, inode: Inode) -> Result<(), StoreError> {
        if let Some(state) = self.get::<VolumeState>(&Key::Volume).await?
            && state.next_inode <= inode.0
        {
            let next_inode = inode.0.saturating_add(1);
            self.put(
                &Key::Volume,
                &VolumeState {
                    next_inode,
                    ..state
                },
            );
        }
        Ok(())
    }

    /// Gives an object a name, with a cookie, and counts it in the directory. Returns whether the directory exists.
    pub(super) async fn add_name(
        &mut self,
        directory: Inode,
        name: &Bytes,
        inode: Inode,
        kind: Kind,
    ) -> Result<bool, StoreError> {
        let Some(mut holder) = self.inode(directory).await? else {
            return Ok(false);
        };
        holder.nlink = holder
            .nlink
            .saturating_add(u32::from(kind == Kind::Directory));
        let Some(own) = holder.directory_mut() else {
            return Ok(false);
        };
        let cookie = own.next_cookie;
        own.next_cookie = own.next_cookie.saturating_add(1);
        own.entries = own.entries.saturating_add(1);
        self.put(&Key::Inode(directory), &holder);
        self.put_name(directory, name, (inode, kind, cookie));
        Ok(true)
    }

    /// Writes both records of a name.
    pub(super) fn put_name(
        &mut self,
        directory: Inode,
        name: &Bytes,
        (inode, kind, cookie): (Inode, Kind, u64),
    ) {
        let record = NameRecord {
            inode,
            cookie,
            kind,
        };
        self.put(&Key::Name(directory, name.clone()), &record);
        let name = name.clone();
        let record = CookieRecord { inode, kind, name };
        self.put(&Key::Cookie(directory, cookie), &record);
    }

    /// Removes a readable name, with its cookie if that is its own, and counts it out of the directory.
    pub(super) async fn remove_name(
        &mut self,
        directory: Inode,
        name: &Bytes,
    ) -> Result<(), StoreError> {
        let key = Key::Name(directory, name.clone());
        let Some(record) = self.get::<NameRecord>(&key).await? else {
            return Ok(());
        };
        self.delete(&key);
        let key = Key::Cookie(directory, record.cookie);
        let cookie = self.get::<CookieRecord>(&key).await?;
        if cookie.is_some_and(|cookie| cookie.name == name) {
            self.delete(&key);
        }
        let is_directory = record.kind == Kind::Directory;
        let change = |record: &mut InodeRecord| {
            record.nlink = record.nlink.saturating_sub(u32::from(is_directory));
            if let Some(own) = record.directory_mut() {
                own.entries = own.entries.saturating_sub(1);
            }
        };
        self.edit(directory, change).await.map(drop)
    }

    /// All names of an object: the directory and the name of each.
    pub(super) async fn names_of(
        &self,
        inode: Inode,
    ) -> Result<Vec<(Inode, Bytes, Kind)>, StoreError> {
        let mut found = Vec::new();
        let mut names = self.cursor(KeyRange::all_names());
        while let Some((key, record)) = names.record::<NameRecord>(&mut Nobody).await? {
            if let (Key::Name(directory, name), Some(record)) = (key, record)
                && record.inode == inode
            {
                found.push((directory, name, record.kind));
            }
        }
        Ok(found)
    }
}
