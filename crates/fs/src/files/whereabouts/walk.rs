//! The objects at and below a path, one after the other.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use forebay_meta::record::{CookieRecord, InodeRecord, Kind};
use forebay_meta::{Entry, Key, KeyRange, Record};
use forebay_types::{CheckpointId, Inode, Lsn, PackId};

use super::file::local;
use super::lookup::Found;
use super::reading::Reading;
use super::{PathError, Unknown, Whereabouts};
use crate::display_path::DisplayPath;
use crate::files::Files;
use crate::publisher::Since;
use crate::state::Node;

/// How many names of a directory are read at a time. The directories among them are kept while the walk is below, for each
/// level.
const NAMES: usize = 256;

/// The deepest directory that is walked, as for other paths.
const DEPTH: usize = 4096;

/// The largest gap between inodes that are read with one scan.
const GAP: u64 = 32;

/// What a walk is for.
#[derive(Clone, Copy)]
pub(super) enum Aim {
    /// All that is known.
    Everything,
    /// The newest checkpoint with a change; the walk ends when it has found this one.
    Unpublished { enough: Option<CheckpointId> },
}

/// A directory on the way down.
struct Level {
    directory: Inode,
    /// The names up to this cookie were read.
    cookie: u64,
    /// Whether there are more.
    is_read: bool,
    /// Directories among the names that were read last, to be walked.
    below: Vec<Inode>,
}

impl Level {
    fn new(directory: Inode) -> Level {
        Level {
            directory,
            cookie: 0,
            is_read: false,
            below: Vec::new(),
        }
    }
}

/// A walk, and its sums.
pub(super) struct Walk<'a> {
    pub(super) files: &'a Files,
    aim: Aim,
    seen: &'a AtomicU64,
    pub(super) report: Whereabouts,
    /// 8 bytes for each pack of the volume, at most, and what the set takes beside them.
    pub(super) packs: BTreeSet<PackId>,
    pub(super) reading: Reading<'a>,
    unpublished: Option<CheckpointId>,
    unknown: Unknown,
    since: Option<Since>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(files: &'a Files, aim: Aim, seen: &'a AtomicU64, kind: Kind) -> Walk<'a> {
        Walk {
            files,
            aim,
            seen,
            report: Whereabouts {
                kind,
                objects: 0,
                files: 0,
                directories: 0,
                size_bytes: 0,
                is_in_bucket: None,
                unpublished_objects: 0,
                unflushed_bytes: 0,
                log_bytes: 0,
                uploaded_bytes: 0,
                since: None,
                published_bytes: 0,
                stored_bytes: 0,
                shared_bytes: 0,
                packs: 0,
                memory_bytes: 0,
                disk_cache_bytes: 0,
                unknown: None,
            },
            packs: BTreeSet::new(),
            reading: Reading::new(&files.state),
            unpublished: None,
            unknown: Unknown::default(),
            since: None,
        }
    }

    /// The newest checkpoint that has a change of what was seen.
    pub(super) fn unpublished(&self) -> Option<CheckpointId> {
        self.unpublished
    }

    /// Whether all directories were listed.
    pub(super) fn is_complete(&self) -> bool {
        self.unknown.directories == 0
    }

    /// The sums.
    pub(super) fn report(self) -> Whereabouts {
        let mut report = self.report;
        report.packs = self.packs.len() as u64;
        let is_known = self.unknown.directories == 0;
        report.is_in_bucket = match report.unpublished_objects {
            0 if is_known => Some(true),
            0 => None,
            _ => Some(false),
        };
        report.since = self.since.filter(|_| report.is_in_bucket == Some(true));
        let lacks = self.unknown.objects > 0 || self.unknown.directories > 0;
        report.unknown = lacks.then(|| Unknown {
            why: self.reading.why(),
            ..self.unknown
        });
        report
    }

    /// Walks the object at `path`, and everything below it.
    pub(super) async fn object_at(&mut self, path: &[u8], found: &Found) -> Result<(), PathError> {
        let records = self.records(&[found.inode]).await;
        let is_there = self.object(found.inode, found.kind, &records).await;
        if !is_there {
            return Err(PathError::NotFound(DisplayPath(path.to_vec())));
        }
        if found.kind == Kind::Directory {
            self.tree(found.inode).await;
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        match self.aim {
            Aim::Everything => false,
            Aim::Unpublished { enough } => self.unpublished.is_some() && self.unpublished >= enough,
        }
    }

    async fn tree(&mut self, top: Inode) {
        let mut levels = vec![Level::new(top)];
        while let Some(level) = levels.last_mut() {
            if self.is_done() {
                return;
            }
            if let Some(directory) = level.below.pop() {
                if levels.len() < DEPTH {
                    levels.push(Level::new(directory));
                } else {
                    self.unknown.directories += 1;
                }
            } else if level.is_read {
                levels.pop();
            } else {
                self.next_names(level).await;
                tokio::task::yield_now().await;
            }
        }
    }

    /// The objects under the next names of a directory.
    async fn next_names(&mut self, level: &mut Level) {
        let catalog = &self.files.state.catalog;
        let scan = catalog.cookies_after(level.directory, level.cookie, NAMES);
        let names = match self.reading.read(scan).await {
            Some(names) => names,
            None => {
                self.unknown.directories += 1;
                level.is_read = true;
                self.unpublished_names(level)
            }
        };
        if names.len() < NAMES {
            level.is_read = true;
        }
        level.cookie = names.last().map_or(level.cookie, |(cookie, _)| *cookie);
        let inodes: Vec<Inode> = names.iter().map(|(_, entry)| entry.inode).collect();
        let records = self.records(&inodes).await;
        for (_, entry) in names {
            if self.is_done() {
                return;
            }
            let is_there = self.object(entry.inode, entry.kind, &records).await;
            if is_there && entry.kind == Kind::Directory {
                level.below.push(entry.inode);
            }
        }
        // The first one is taken first.
        level.below.reverse();
    }

    /// The names of a directory that are in memory because they are not published, as many as are read at a time.
    fn unpublished_names(&self, level: &Level) -> Vec<(u64, CookieRecord)> {
        let range = KeyRange::cookies_after(level.directory, level.cookie);
        let overlay = self.files.state.catalog.overlay();
        let decoded = |(key, entry): (Bytes, Entry)| {
            let (Ok(Key::Cookie(_, cookie)), Entry::Value(value)) = (Key::decode(&key), entry)
            else {
                return None;
            };
            Some((cookie, CookieRecord::decode(&key, &value).ok()?))
        };
        let names = overlay.range(&range, NAMES - 1).into_iter();
        names.filter_map(decoded).collect()
    }

    /// The published records of those objects that are not in memory. One that is missing could not be read, or is gone.
    async fn records(&mut self, inodes: &[Inode]) -> HashMap<Inode, InodeRecord> {
        let mut found = HashMap::new();
        if !matches!(self.aim, Aim::Everything) {
            return found;
        }
        let nodes = &self.files.state.nodes;
        let is_cold = |inode: &Inode| nodes.glance(*inode).is_none();
        let mut cold: Vec<Inode> = inodes.iter().copied().filter(is_cold).collect();
        cold.sort_unstable();
        for stretch in cold.chunk_by(|one, next| next.0 - one.0 <= GAP) {
            if let [first, ..] = stretch
                && let [.., last] = stretch
            {
                let scan = self.files.state.catalog.inodes_between(*first, *last);
                if let Some(records) = self.reading.read(scan).await {
                    found.extend(records);
                }
            }
        }
        found
    }

    /// Adds one object. Returns whether it is there.
    async fn object(
        &mut self,
        inode: Inode,
        kind: Kind,
        records: &HashMap<Inode, InodeRecord>,
    ) -> bool {
        self.seen.fetch_add(1, Ordering::Relaxed);
        let node = self.files.state.nodes.glance(inode);
        let is_there = match (&node, self.aim) {
            (Some(node), Aim::Unpublished { .. }) => {
                self.unpublished = self.unpublished.max(node.lock().unpublished_in());
                true
            }
            (None, Aim::Unpublished { .. }) => true,
            (Some(node), Aim::Everything) => self.add_node(inode, node).await,
            (None, Aim::Everything) => match records.get(&inode) {
                Some(record) => {
                    self.add_record(inode, record).await;
                    true
                }
                None => self.add_unread(inode).await,
            },
        };
        if is_there {
            self.report.objects += 1;
            match kind {
                Kind::Regular => self.report.files += 1,
                Kind::Directory => self.report.directories += 1,
                _ => {}
            }
        }
        is_there
    }

    /// An object whose record was not read with those near it.
    async fn add_unread(&mut self, inode: Inode) -> bool {
        let reading = self.files.state.catalog.inode(inode);
        match self.reading.read(reading).await {
            Some(Some(record)) => self.add_record(inode, &record).await,
            // It was removed since its name was read, or it was made since, and is in memory.
            Some(None) => {
                let node = self.files.state.nodes.glance(inode);
                return match node {
                    Some(node) => self.add_node(inode, &node).await,
                    None => false,
                };
            }
            None => self.unknown.objects += 1,
        }
        true
    }

    /// An object that is not in memory: nothing of it is unpublished.
    async fn add_record(&mut self, inode: Inode, record: &InodeRecord) {
        self.has_been(None, record);
        if record.kind() != Kind::Regular {
            return;
        }
        self.report.size_bytes += record.size;
        if record.used > 0 && !self.add_published(inode, None, record).await {
            self.unknown.objects += 1;
        }
    }

    /// An object in memory.
    async fn add_node(&mut self, inode: Inode, node: &Arc<Node>) -> bool {
        let (record, unpublished, last, may_be_published) = {
            let state = node.lock();
            if state.has_no_name() {
                return false;
            }
            let unpublished = state.unpublished_in();
            let maps = state.published && state.published_end() > 0;
            (state.record.clone(), unpublished, state.last_lsn, maps)
        };
        match unpublished {
            Some(_) => self.report.unpublished_objects += 1,
            None => self.has_been(Some(last), &record),
        }
        if record.kind() != Kind::Regular {
            return true;
        }
        self.report.size_bytes += record.size;
        let local = local(node).await;
        self.report.memory_bytes += local.covered;
        self.report.uploaded_bytes += local.uploaded;
        let bytes = local.dirty + local.uploaded;
        let log = self.files.state.log();
        match log.is_some_and(|log| log.durable_lsn() >= last) {
            true => self.report.log_bytes += bytes,
            false => self.report.unflushed_bytes += bytes,
        }
        let has_maps = may_be_published && record.used > 0;
        if has_maps && !self.add_published(inode, Some(node), &record).await {
            self.unknown.objects += 1;
        }
        true
    }

    /// The bucket has the object as it is now.
    fn has_been(&mut self, last: Option<Lsn>, record: &InodeRecord) {
        let changed = forebay_vfs::Timestamp {
            seconds: record.ctime.seconds,
            nanos: record.ctime.nanos,
        };
        let publications = self.files.publisher.progress().publications();
        let since = publications.since(last, changed);
        let newer = match self.since {
            None => since,
            Some(known) if known.seconds == since.seconds => Since {
                is_exact: known.is_exact || since.is_exact,
                ..known
            },
            Some(known) if known.seconds > since.seconds => known,
            Some(_) => since,
        };
        self.since = Some(newer);
    }
}
