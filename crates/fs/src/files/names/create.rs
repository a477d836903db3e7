//! CREATE, MKDIR, SYMLINK, MKNOD and LINK.

use std::sync::Arc;

use forebay_meta::record::{Content, InodeRecord, Kind};
use forebay_types::{Inode, MAX_FILE_SIZE};
use forebay_vfs::{
    Attributes, Change, CreateMode, Created, Credentials, Error, NewNode, Result, SetAttributes,
    SetTime, Timestamp, permission,
};
use forebay_view::convert::{self, owned};

use super::{SYMLINK_MAX, check_new_name, count_in, count_link, next_cookie};
use crate::files::Files;
use crate::files::durability::Recorded;
use crate::state::{KnownNames, Locked, NameChange, Node, NodeState, Refusal};

/// How often CREATE looks again when the found object is removed meanwhile.
const LOOKS: usize = 8;

impl Files {
    pub(crate) async fn create(
        &self,
        caller: &Credentials,
        directory: Inode,
        name: &[u8],
        mode: &CreateMode,
    ) -> Result<Recorded<Created>> {
        check_new_name(name)?;
        self.state.admit_names(caller.client).await?;
        let directory = self.directory(directory).await?;
        let mut looks = 0;
        let _names = loop {
            let names = directory.lock_names().await;
            permission::may_search(owned(&directory.lock_directory()?.record), caller)?;
            let Some(entry) = self.entry(&directory, name).await? else {
                break names;
            };
            drop(names);
            looks += 1;
            match self
                .open_existing(caller, &directory, entry.inode, mode)
                .await
            {
                // Removed, or replaced by a rename, since the look: the caller's handle, which is the directory's, is
                // not stale.
                Err(Error::Stale) if looks < LOOKS => {}
                result => return result,
            }
        };
        let (set, verifier) = match mode {
            CreateMode::Unchecked(set) | CreateMode::Guarded(set) => (*set, None),
            CreateMode::Exclusive(verifier) => (SetAttributes::default(), Some(*verifier)),
        };
        let new = New {
            content: Content::Regular,
            set,
            verifier,
        };
        self.enter(caller, &directory, name, new).await
    }

    /// CREATE of a name that exists.
    async fn open_existing(
        &self,
        caller: &Credentials,
        directory: &Arc<Node>,
        inode: Inode,
        mode: &CreateMode,
    ) -> Result<Recorded<Created>> {
        let node = self.state.node(inode).await?;
        let (attributes, verifier) = {
            let state = node.lock_live()?;
            (node.attributes(&state), state.record.create_verifier)
        };
        match mode {
            CreateMode::Guarded(_) => return Err(Error::Exists),
            CreateMode::Exclusive(wanted) if verifier != Some(*wanted) => {
                return Err(Error::Exists);
            }
            CreateMode::Exclusive(_) => {}
            CreateMode::Unchecked(_) if attributes.kind != forebay_vfs::FileKind::Regular => {
                return Err(Error::Exists);
            }
            CreateMode::Unchecked(set) => {
                if let Some(size) = set.size {
                    let only_size = SetAttributes {
                        size: Some(size),
                        ..Default::default()
                    };
                    // Its record is the last of the file, or another one follows.
                    let _ = self.setattr(caller, inode, &only_size, None).await?;
                }
            }
        }
        // The call that made it may still wait for the disk. The attributes are those of the opened file, even if its
        // last name was removed since.
        let (attributes, end) = {
            let state = node.lock();
            (node.attributes(&state), state.last_lsn)
        };
        let state = directory.lock();
        let directory = Change {
            before: Some(directory.wcc(&state)),
            after: Some(directory.attributes(&state)),
        };
        let reply = Created {
            attributes,
            directory,
        };
        Ok(Recorded { end, reply })
    }

    pub(crate) async fn make(
        &self,
        caller: &Credentials,
        directory: Inode,
        name: &[u8],
        node: NewNode<'_>,
        set: &SetAttributes,
    ) -> Result<Recorded<Created>> {
        check_new_name(name)?;
        if let NewNode::Symlink(target) = node {
            match target.len() {
                0 => return Err(Error::Invalid),
                1..=SYMLINK_MAX => {}
                _ => return Err(Error::NameTooLong),
            }
        }
        self.state.admit_names(caller.client).await?;
        let directory = self.directory(directory).await?;
        let _names = directory.lock_names().await;
        permission::may_search(owned(&directory.lock_directory()?.record), caller)?;
        if self.entry(&directory, name).await?.is_some() {
            return Err(Error::Exists);
        }
        let set = SetAttributes { size: None, ..*set };
        let new = New {
            content: convert::content(node, directory.inode),
            set,
            verifier: None,
        };
        self.enter(caller, &directory, name, new).await
    }

    /// Makes an object under a free name.
    async fn enter(
        &self,
        caller: &Credentials,
        directory: &Arc<Node>,
        name: &[u8],
        new: New,
    ) -> Result<Recorded<Created>> {
        if new.set.size.is_some_and(|size| size > MAX_FILE_SIZE) {
            return Err(Error::FileTooLarge);
        }
        let mut drawn = None;
        let made = self.state.retry(|| {
            let mut locked = Locked::all(&[directory]);
            let state = changeable(locked.of(directory), caller)?;
            let before = directory.wcc(state);
            let now = self.state.now();
            let record = new.record(caller, &state.record, now)?;
            let kind = record.kind();
            let mut parent = state.record.clone();
            count_in(&mut parent, kind, now)?;
            let cookie = next_cookie(&mut parent)?;

            let charge = state.charge.of_child();
            let reserved = charge.reserve(NodeState::amount_of(0))?;
            let inode = match drawn {
                Some(inode) => inode,
                None => *drawn.insert(self.state.numbers.draw()?),
            };
            let node = Node::new(
                inode,
                record.clone(),
                false,
                self.state.memory.cache.clone(),
                charge,
            );
            if kind == Kind::Directory {
                node.lock().names = Some(Box::new(KnownNames::none_yet(&self.state.names_room)));
            }
            let mut change = NameChange::default();
            change.enter(directory, name, cookie, inode, kind);
            change.set(directory, parent);
            change.create(&node, record.clone(), reserved);
            let end = self.state.record_names(change, &mut locked)?;
            node.seen(directory.inode, cookie);
            let created = Created {
                attributes: convert::attributes(inode, &record, 0),
                directory: Change {
                    before: Some(before),
                    after: Some(directory.attributes(locked.of(directory))),
                },
            };
            Ok(Recorded {
                end,
                reply: created,
            })
        });
        let made = made.await;
        if let (Err(error), unused) = (&made, drawn) {
            if let Some(inode) = unused {
                self.state.numbers.put_back(inode);
            } else if *error == Error::Delay {
                // No number may be assigned before the next publication.
                self.state.signals.press();
            }
        }
        made
    }

    pub(crate) async fn link(
        &self,
        caller: &Credentials,
        inode: Inode,
        directory: Inode,
        name: &[u8],
    ) -> Result<Recorded<(Attributes, Change)>> {
        check_new_name(name)?;
        self.state.admit_names(caller.client).await?;
        let node = self.state.node(inode).await?;
        let directory = self.directory(directory).await?;
        let _names = directory.lock_names().await;
        permission::may_search(owned(&directory.lock_directory()?.record), caller)?;
        if self.entry(&directory, name).await?.is_some() {
            return Err(Error::Exists);
        }
        let (end, result) = self
            .state
            .retry(|| {
                // Two guards of one node would be a deadlock; a directory gets no second name.
                if node.inode == directory.inode {
                    return Err(Refusal::Error(Error::NotOwner));
                }
                let mut locked = Locked::all(&[&directory, &node]);
                let now = self.state.now();
                changeable(locked.of(&directory), caller)?;
                let mut record = {
                    let state = locked.of(&node);
                    if state.has_no_name() {
                        return Err(Refusal::Error(Error::Stale));
                    }
                    state.record.clone()
                };
                let kind = record.kind();
                if kind == Kind::Directory {
                    return Err(Refusal::Error(Error::NotOwner));
                }
                if record.tree != locked.of(&directory).record.tree {
                    // It would count in one tree and be found in another.
                    return Err(Refusal::Error(Error::CrossDevice));
                }
                count_link(&mut record, now)?;

                let state = locked.of(&directory);
                let before = directory.wcc(state);
                let mut parent = state.record.clone();
                count_in(&mut parent, kind, now)?;
                let cookie = next_cookie(&mut parent)?;
                let mut change = NameChange::default();
                change.enter(&directory, name, cookie, inode, kind);
                change.set(&directory, parent);
                change.set(&node, record);
                let end = self.state.record_names(change, &mut locked)?;
                node.seen(directory.inode, cookie);
                let after = directory.attributes(locked.of(&directory));
                let attributes = node.attributes(locked.of(&node));
                let change = Change {
                    before: Some(before),
                    after: Some(after),
                };
                Ok((end, (attributes, change)))
            })
            .await?;
        Ok(Recorded { end, reply: result })
    }
}

/// A directory that still exists and whose names `caller` may change.
pub(in crate::files) fn changeable<'s>(
    state: &'s mut NodeState,
    caller: &Credentials,
) -> std::result::Result<&'s mut NodeState, Refusal> {
    if state.has_no_name() {
        return Err(Refusal::Error(Error::Stale));
    }
    permission::may_change_names(owned(&state.record), caller)?;
    Ok(state)
}

/// The object to make.
struct New {
    content: Content,
    set: SetAttributes,
    verifier: Option<[u8; 8]>,
}

impl New {
    fn record(
        &self,
        caller: &Credentials,
        directory: &InodeRecord,
        now: Timestamp,
    ) -> Result<InodeRecord> {
        let set = &self.set;
        let kind = convert::kind(self.content.kind());
        let new = permission::of_new(owned(directory), kind, caller, set)?;
        let (nlink, size) = match &self.content {
            Content::Directory(_) => (2, 0),
            Content::Symlink { target } => (1, target.len() as u64),
            _ => (1, set.size.unwrap_or(0)),
        };
        let now = convert::record_time(now);
        let time = |set: SetTime| match set {
            SetTime::To(time) => convert::record_time(time),
            SetTime::Keep | SetTime::Now => now,
        };
        Ok(InodeRecord {
            content: self.content.clone(),
            mode: new.mode,
            uid: new.uid,
            gid: new.gid,
            nlink,
            size,
            used: 0,
            atime: time(set.atime),
            mtime: time(set.mtime),
            ctime: now,
            create_verifier: self.verifier,
            tree: directory.tree,
            truncated: Default::default(),
        })
    }
}
