//! REMOVE and RMDIR.

use std::sync::Arc;

use bytes::Bytes;
use forebay_meta::record::{InodeRecord, Kind, TrashRecord};
use forebay_types::Inode;
use forebay_vfs::{Change, Credentials, Error, Result, Timestamp, permission};
use forebay_view::convert::{self, owned};

use super::create::changeable;
use super::{check_old_name, count_out, delete_name};
use crate::files::Files;
use crate::files::durability::Recorded;
use crate::files::trash::ENTRY_BYTES;
use crate::state::{Locked, NameChange, Node, Refusal};

impl Files {
    /// Removes the name of a directory (`of_directory`) or of any other object.
    pub(crate) async fn remove(
        &self,
        caller: &Credentials,
        directory: Inode,
        name: &[u8],
        of_directory: bool,
    ) -> Result<Recorded<Change>> {
        if of_directory && name == b".." {
            // It contains at least the directory itself (RFC 1813, section 3.3.13).
            return Err(Error::Exists);
        }
        check_old_name(name)?;
        self.state.admit_names(caller.client).await?;
        let directory = self.directory(directory).await?;
        let names = directory.lock_names().await;
        permission::may_search(owned(&directory.lock_directory()?.record), caller)?;
        let entry = self.entry(&directory, name).await?.ok_or(Error::NotFound)?;
        let is_directory = entry.kind == Kind::Directory;
        let child = self.state.node(entry.inode).await?;
        let (end, change) = self
            .state
            .retry(|| {
                let mut locked = Locked::all(&[&directory, &child]);
                let now = self.state.now();
                let record = locked.of(&child).record.clone();
                let state = changeable(locked.of(&directory), caller)?;
                permission::may_unlink(owned(&state.record), owned(&record), caller)?;
                // A caller that may not remove the object must not find out what it is.
                match (is_directory, of_directory) {
                    (true, false) => return Err(Refusal::Error(Error::IsDirectory)),
                    (false, true) => return Err(Refusal::Error(Error::NotDirectory)),
                    _ => {}
                }
                if record.directory().is_some_and(|own| own.entries > 0) {
                    return Err(Refusal::Error(Error::NotEmpty));
                }
                let before = directory.wcc(state);
                let mut parent = state.record.clone();
                count_out(&mut parent, entry.kind, now)?;

                let mut change = NameChange::default();
                delete_name(&mut change.names, directory.inode, name, entry.cookie);
                change.leave(&directory, entry.cookie);
                change.set(&directory, parent);
                let last = LastName {
                    directory: directory.inode,
                    name,
                    caller,
                    bytes: locked.of(&child).space(),
                    room: self.state.config.trash_limit,
                };
                drop_link(&mut change, &child, record, (&last, now));
                let end = self.state.record_names(change, &mut locked)?;
                let after = directory.attributes(locked.of(&directory));
                Ok((
                    end,
                    Change {
                        before: Some(before),
                        after: Some(after),
                    },
                ))
            })
            .await?;
        drop(names);
        Ok(Recorded { end, reply: change })
    }
}

/// A name that is removed, and the user that removes it.
pub(super) struct LastName<'a> {
    pub(super) directory: Inode,
    pub(super) name: &'a [u8],
    pub(super) caller: &'a Credentials,
    /// Bytes of its object.
    pub(super) bytes: u64,
    /// The most that the trash may take, in bytes.
    pub(super) room: u64,
}

impl LastName<'_> {
    /// The entry in the trash of an object that loses this name, its last one; `None` if it is deleted at once.
    fn trash(&self, inode: Inode, record: &InodeRecord, now: Timestamp) -> Option<TrashRecord> {
        let for_seconds = u64::from(self.caller.trash);
        if for_seconds == 0 || self.name.starts_with(SILLY) {
            return None;
        }
        // One for which there is no room must not displace all others before it leaves itself.
        if self.bytes.saturating_add(ENTRY_BYTES) > self.room {
            return None;
        }
        match record.kind() {
            Kind::Regular => {}
            // What was in it finds its place again. A tree with a quota ends with its root.
            Kind::Directory if record.tree != Some(inode) => {}
            _ => return None,
        }
        let removed = convert::record_time(now);
        let since = u64::try_from(removed.seconds).unwrap_or(0);
        Some(TrashRecord {
            directory: self.directory,
            removed,
            until: since.saturating_add(for_seconds),
            by: self.caller.uid,
            name: Bytes::copy_from_slice(self.name),
        })
    }
}

/// How the names begin that NFS clients give to open files that are removed, until they are closed.
const SILLY: &[u8] = b".nfs";

/// Removes one name of the object, which may be its last: then the object is deleted, or goes to the trash.
pub(super) fn drop_link<'a>(
    change: &mut NameChange<'a>,
    node: &'a Arc<Node>,
    mut record: InodeRecord,
    (last, now): (&LastName<'_>, Timestamp),
) {
    if record.kind() == Kind::Directory || record.nlink <= 1 {
        match last.trash(node.inode, &record, now) {
            Some(entry) => change.keep(node, record, entry),
            None => change.remove(node),
        }
        return;
    }
    record.nlink -= 1;
    record.ctime = convert::record_time(now);
    change.set(node, record);
}
