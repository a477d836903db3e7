//! Makes the objects of a restored tree.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_meta::record::{Content, InodeRecord, Kind};
use forebay_types::{BlockIndex, Inode};
use forebay_vfs::{CreateMode, DirectoryEntry, FileSystem, NewNode, SetAttributes, SetTime};
use forebay_view::{View, convert};

use super::frames::{borrowed, packs_of};
use super::{Context, ROOT, RestoreError, Restored, Source, of_snapshot};
use crate::files::graft::Graft;

/// How many names of a directory are read at a time.
const NAMES: usize = 1024;
/// How many block maps one change gives to a file.
const MAPS: usize = 256;
/// After how many extents they are published: until then they are in memory.
const MOST_EXTENTS: usize = 1 << 16;

/// A tree that is being restored.
pub(super) struct Staging<'a> {
    context: &'a Context,
    view: &'a View,
    source: Source<'a>,
    /// Files that have further names to come: the restored one, and the number of those names.
    linked: HashMap<Inode, (Inode, u32)>,
    /// Extents since the last publication.
    extents: usize,
    restored: Restored,
    /// The number of restored objects, for others.
    made: &'a AtomicU64,
}

/// A directory that is being filled.
struct Open {
    from: Inode,
    to: Inode,
    /// Set when it has all its names: each new name changes its times, and a directory that nobody may write to is filled
    /// all the same.
    attributes: SetAttributes,
    /// Names that were read and are not made yet; those after `cookie` are not read yet, unless `is_read`.
    names: VecDeque<DirectoryEntry>,
    cookie: u64,
    is_read: bool,
}

impl<'a> Staging<'a> {
    pub(super) fn new(
        context: &'a Context,
        view: &'a View,
        source: Source<'a>,
        made: &'a AtomicU64,
    ) -> Staging<'a> {
        Staging {
            context,
            view,
            source,
            linked: HashMap::new(),
            extents: 0,
            restored: Restored::default(),
            made,
        }
    }

    /// The counts of the restored objects.
    pub(super) fn restored(self) -> Restored {
        self.restored
    }

    /// Makes `from` of the snapshot and everything below it, under a new name. Only root can enter a staged directory
    /// before all of it is there. Memory: one page of names for each level of directories, and a word for each file with
    /// names that are still to come.
    pub(super) async fn tree(
        &mut self,
        from: Inode,
        directory: Inode,
        name: &[u8],
    ) -> Result<(), RestoreError> {
        let top = self.object(from, directory, name).await?;
        let mut open = Vec::from_iter(top);
        while let Some(deepest) = open.last_mut() {
            if let Some(entry) = deepest.names.pop_front() {
                let to = deepest.to;
                open.extend(self.object(entry.inode, to, &entry.name).await?);
            } else if deepest.is_read {
                self.set(deepest.to, &deepest.attributes).await?;
                open.pop();
            } else {
                self.read_names(deepest).await?;
            }
        }
        Ok(())
    }

    /// Reads the next names of a directory.
    async fn read_names(&self, directory: &mut Open) -> Result<(), RestoreError> {
        let (from, cookie) = (directory.from, directory.cookie);
        let read = || async {
            let page = self.view.readdir(ROOT, from, cookie, NAMES, false).await;
            page.map_err(of_snapshot)
        };
        let page = self.context.patiently(read).await?;
        if let Some(last) = page.entries.last() {
            directory.cookie = last.cookie;
        }
        directory.is_read = page.end;
        let names = page.entries.into_iter();
        directory.names = names
            .filter(|entry| !matches!(entry.name.as_ref(), b"." | b".."))
            .collect();
        Ok(())
    }

    async fn record(&self, inode: Inode) -> Result<InodeRecord, RestoreError> {
        let read = || async { Ok(self.view.record(inode).await?) };
        let record = self.context.patiently(read).await?;
        record.ok_or_else(|| RestoreError::Unreadable(format!("inode {inode} has no record")))
    }

    async fn set(&self, inode: Inode, set: &SetAttributes) -> Result<(), RestoreError> {
        let files = &self.context.files;
        let set = || async {
            // All of it is published before the tree gets its name.
            let _ = files.setattr(ROOT, inode, set, None).await?.end;
            Ok(())
        };
        self.context.patiently(set).await
    }

    /// Makes one object, with its content. Returns it if it is a directory, which is still empty.
    async fn object(
        &mut self,
        from: Inode,
        directory: Inode,
        name: &[u8],
    ) -> Result<Option<Open>, RestoreError> {
        let (context, files) = (self.context, &self.context.files);
        if let Some((own, further)) = self.linked.get_mut(&from) {
            let own = *own;
            *further -= 1;
            if *further == 0 {
                self.linked.remove(&from);
            }
            let link = || async { Ok(files.link(ROOT, own, directory, name).await?.reply) };
            context.patiently(link).await?;
            return Ok(None);
        }
        let record = &self.record(from).await?;
        let only_root = SetAttributes {
            mode: Some(if record.kind() == Kind::Directory {
                0o700
            } else {
                0o600
            }),
            ..SetAttributes::default()
        };
        let make = || async {
            let made = match new_node(&record.content) {
                Some(node) => files.make(ROOT, directory, name, node, &only_root).await?,
                None => {
                    let mode = CreateMode::Guarded(only_root);
                    files.create(ROOT, directory, name, &mode).await?
                }
            };
            Ok(made.reply)
        };
        let inode = context.patiently(make).await?.attributes.inode;
        self.restored.objects += 1;
        self.made.store(self.restored.objects, Ordering::Relaxed);
        match record.kind() {
            Kind::Directory => {
                return Ok(Some(Open {
                    from,
                    to: inode,
                    attributes: attributes(record),
                    names: VecDeque::new(),
                    cookie: 0,
                    is_read: false,
                }));
            }
            Kind::Regular => self.content(from, record, inode).await?,
            _ => {}
        }
        if record.nlink > 1 {
            self.linked.insert(from, (inode, record.nlink - 1));
        }
        self.set(inode, &attributes(record)).await?;
        Ok(None)
    }

    /// Gives a new file the content of `from`.
    async fn content(
        &mut self,
        from: Inode,
        record: &InodeRecord,
        to: Inode,
    ) -> Result<(), RestoreError> {
        let context = self.context;
        let load = || async { Ok(context.state.node(to).await?) };
        let node = context.patiently(load).await?;
        let mut next = Some(BlockIndex(0));
        while let Some(first) = next {
            let read = || async { Ok(self.view.block_maps(from, record, first, MAPS).await?) };
            let read = context.patiently(read).await?;
            let maps = borrowed(from, read.0)?;
            next = read.1;
            let packs = packs_of(&maps);
            let pin = || context.pin(&packs, self.source);
            let mut part = Graft {
                size: record.size,
                from: first,
                maps,
                pinned: context.patiently(pin).await?,
            };
            loop {
                let graft = || async { Ok(context.files.graft(&node, &part).await?) };
                if context.patiently(graft).await? {
                    break;
                }
                part.pinned = context.patiently(pin).await?;
            }
            for (_, map) in &part.maps {
                self.extents += map.extents().len();
                self.restored.bytes += map.mapped_bytes();
            }
            if self.extents >= MOST_EXTENTS {
                context.publish().await?;
                self.extents = 0;
            }
        }
        Ok(())
    }
}

/// The attributes of an object of a snapshot.
fn attributes(record: &InodeRecord) -> SetAttributes {
    SetAttributes {
        mode: Some(record.mode),
        uid: Some(record.uid),
        gid: Some(record.gid),
        size: None,
        atime: SetTime::To(convert::timestamp(record.atime)),
        mtime: SetTime::To(convert::timestamp(record.mtime)),
    }
}

/// How an object with this content is made; `None` for a file.
fn new_node(content: &Content) -> Option<NewNode<'_>> {
    Some(match content {
        Content::Regular => return None,
        Content::Directory(_) => NewNode::Directory,
        Content::Symlink { target } => NewNode::Symlink(target),
        Content::Fifo => NewNode::Fifo,
        Content::Socket => NewNode::Socket,
        Content::BlockDevice(device) => NewNode::BlockDevice(convert::device(*device)),
        Content::CharDevice(device) => NewNode::CharDevice(convert::device(*device)),
    })
}
