//! GETATTR, SETATTR, ACCESS and READLINK.

use bytes::Bytes;
use forebay_meta::record::{Content, InodeRecord, Kind};
use forebay_types::Inode;
use forebay_vfs::{
    Access, Attributes, Change, Credentials, Error, Result, SetAttributes, SetTime, Timestamp,
};
use forebay_wal::RecordKind;

use crate::change::{NameChange, Refusal, encode_truncate};
use crate::convert;
use crate::core::Core;
use crate::data::MAX_FILE_SIZE;
use crate::durability::Recorded;
use crate::node::Locked;
use crate::permission;

impl Core {
    pub(crate) async fn getattr(&self, inode: Inode) -> Result<Attributes> {
        let node = self.node(inode).await?;
        let state = node.lock_live()?;
        Ok(node.attributes(&state))
    }

    pub(crate) async fn setattr(
        &self,
        who: &Credentials,
        inode: Inode,
        set: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> Result<Recorded<Change>> {
        self.admit_names().await?;
        let node = self.node(inode).await?;
        let (end, change) = self
            .retry(|| {
                let mut locked = Locked::all(&[&node]);
                let state = locked.of(&node);
                if state.removed {
                    return Err(Refusal::Error(Error::Stale));
                }
                let before = node.wcc(state);
                if guard.is_some_and(|guard| guard != before.ctime) {
                    return Err(Refusal::Error(Error::NotSync));
                }
                let record = changed_record(&state.record, who, set, self.now())?;
                let resized = set.size.filter(|_| record.kind() == Kind::Regular);
                let end = match resized {
                    Some(size) => {
                        let payload = encode_truncate(inode, &record);
                        self.record(RecordKind::Truncate, &[&payload], |open, end| {
                            let first = open.touch(&node, state);
                            if size < state.record.size {
                                state.cut(size, open.id);
                            }
                            state.record = record;
                            state.last_lsn = end;
                            state.settle(None);
                            first
                        })?
                    }
                    None => {
                        let mut change = NameChange::default();
                        change.set(&node, record);
                        self.record_names(change, &mut locked)?
                    }
                };
                let after = node.attributes(locked.of(&node));
                Ok((
                    end,
                    Change {
                        before: Some(before),
                        after: Some(after),
                    },
                ))
            })
            .await?;
        if set.size.is_some() {
            self.memory_freed();
        }
        Ok(Recorded { end, reply: change })
    }

    pub(crate) async fn access(
        &self,
        who: &Credentials,
        inode: Inode,
        wanted: Access,
    ) -> Result<(Access, Attributes)> {
        let node = self.node(inode).await?;
        let state = node.lock_live()?;
        Ok((
            permission::access(&state.record, who, wanted),
            node.attributes(&state),
        ))
    }

    pub(crate) async fn readlink(&self, inode: Inode) -> Result<(Bytes, Attributes)> {
        let node = self.node(inode).await?;
        let state = node.lock_live()?;
        match &state.record.content {
            Content::Symlink { target } => Ok((target.clone(), node.attributes(&state))),
            _ => Err(Error::Invalid),
        }
    }
}

/// The record that a SETATTR by `who` leaves, or why it may not be.
fn changed_record(
    old: &InodeRecord,
    who: &Credentials,
    set: &SetAttributes,
    now: Timestamp,
) -> Result<InodeRecord> {
    let root = permission::is_root(who);
    let owner = root || who.uid == old.uid;
    let mut record = old.clone();
    let now = convert::record_time(now);

    if let Some(size) = set.size {
        match old.kind() {
            Kind::Regular => {}
            Kind::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::Invalid),
        }
        permission::may_write(old, who)?;
        if size > MAX_FILE_SIZE {
            return Err(Error::FileTooLarge);
        }
        if size != old.size {
            record.mode = permission::mode_after_write(record.mode, who);
        }
        record.size = size;
        record.mtime = now;
    }
    if set.uid.is_some() || set.gid.is_some() {
        let uid = set.uid.unwrap_or(old.uid);
        let gid = set.gid.unwrap_or(old.gid);
        let gives_away = uid != old.uid;
        let foreign_group = gid != old.gid && !permission::in_group(who, gid);
        if !root && (!owner || gives_away || foreign_group) {
            return Err(Error::NotOwner);
        }
        (record.uid, record.gid) = (uid, gid);
        if !root && old.kind() != Kind::Directory {
            record.mode = permission::without_set_id(record.mode);
        }
    }
    if let Some(mode) = set.mode {
        if !owner {
            return Err(Error::NotOwner);
        }
        record.mode = mode & 0o7777;
        let foreign_group = !root && !permission::in_group(who, record.gid);
        if foreign_group && old.kind() != Kind::Directory {
            record.mode &= !permission::SETGID;
        }
    }
    for time in [set.atime, set.mtime] {
        match time {
            SetTime::Keep => {}
            SetTime::To(_) if !owner => return Err(Error::NotOwner),
            SetTime::Now if !owner => permission::may_write(old, who)?,
            SetTime::Now | SetTime::To(_) => {}
        }
    }
    let time = |set: SetTime, old| match set {
        SetTime::Keep => old,
        SetTime::Now => now,
        SetTime::To(time) => convert::record_time(time),
    };
    record.atime = time(set.atime, record.atime);
    record.mtime = time(set.mtime, record.mtime);
    record.ctime = now;
    Ok(record)
}
