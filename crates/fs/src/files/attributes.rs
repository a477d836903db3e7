//! GETATTR, SETATTR, ACCESS and READLINK.

use bytes::Bytes;
use forebay_meta::log_record::encode_truncate;
use forebay_meta::record::{Content, InodeRecord, Kind};
use forebay_types::{Inode, MAX_FILE_SIZE};
use forebay_vfs::{
    Access, Attributes, Change, Credentials, Error, Result, SetAttributes, SetTime, Timestamp,
    permission,
};
use forebay_view::convert::{self, owned};
use forebay_wal::RecordKind;

use super::Files;
use crate::files::durability::Recorded;
use crate::state::{Locked, NameChange, Position, Refusal};

impl Files {
    pub(crate) async fn getattr(&self, inode: Inode) -> Result<Attributes> {
        let node = self.state.node(inode).await?;
        let state = node.lock_live()?;
        Ok(node.attributes(&state))
    }

    pub(crate) async fn setattr(
        &self,
        caller: &Credentials,
        inode: Inode,
        set: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> Result<Recorded<Change>> {
        self.state.admit_names(caller.client).await?;
        let node = self.state.node(inode).await?;
        let (end, change) = self
            .state
            .retry(|| {
                let mut locked = Locked::all(&[&node]);
                let state = locked.of(&node);
                if state.has_no_name() {
                    return Err(Refusal::Error(Error::Stale));
                }
                let before = node.wcc(state);
                if guard.is_some_and(|guard| guard != before.ctime) {
                    return Err(Refusal::Error(Error::NotSync));
                }
                let record = changed_record(&state.record, caller, set, self.state.now())?;
                let resized = set.size.filter(|_| record.kind() == Kind::Regular);
                let end = match resized {
                    Some(size) => {
                        let payload = encode_truncate(inode, &record);
                        self.state.record(
                            RecordKind::Truncate,
                            &[&payload],
                            |open, Position { end, .. }| {
                                let first = open.begin_change(&node, state);
                                if size < state.record.size {
                                    state.cut(size, open.id);
                                }
                                state.record = record;
                                state.last_lsn = end;
                                state.settle(None);
                                first
                            },
                        )?
                    }
                    None => {
                        let mut change = NameChange::default();
                        change.set(&node, record);
                        self.state.record_names(change, &mut locked)?
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
            self.state.signals.memory_freed();
        }
        Ok(Recorded { end, reply: change })
    }

    pub(crate) async fn access(
        &self,
        caller: &Credentials,
        inode: Inode,
        wanted: Access,
    ) -> Result<(Access, Attributes)> {
        let node = self.state.node(inode).await?;
        let state = node.lock_live()?;
        Ok((
            permission::access(owned(&state.record), caller, wanted),
            node.attributes(&state),
        ))
    }

    pub(crate) async fn readlink(&self, inode: Inode) -> Result<(Bytes, Attributes)> {
        let node = self.state.node(inode).await?;
        let state = node.lock_live()?;
        match &state.record.content {
            Content::Symlink { target } => Ok((target.clone(), node.attributes(&state))),
            _ => Err(Error::Invalid),
        }
    }
}

/// The record after a SETATTR by `caller`, or the reason why it is not allowed.
fn changed_record(
    old: &InodeRecord,
    caller: &Credentials,
    set: &SetAttributes,
    now: Timestamp,
) -> Result<InodeRecord> {
    let owned = permission::after_setattr(owned(old), caller, set)?;
    let now = convert::record_time(now);
    let mut record = InodeRecord {
        mode: owned.mode,
        uid: owned.uid,
        gid: owned.gid,
        ctime: now,
        ..old.clone()
    };
    if let Some(size) = set.size {
        if size > MAX_FILE_SIZE {
            return Err(Error::FileTooLarge);
        }
        record.size = size;
        record.mtime = now;
    }
    for (time, set) in [
        (&mut record.atime, set.atime),
        (&mut record.mtime, set.mtime),
    ] {
        match set {
            SetTime::Keep => {}
            SetTime::Now => *time = now,
            SetTime::To(moment) => *time = convert::record_time(moment),
        }
    }
    Ok(record)
}
