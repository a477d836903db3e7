//! REMOVE and RMDIR.

use std::sync::Arc;

use forebay_meta::record::{InodeRecord, Kind};
use forebay_types::Inode;
use forebay_vfs::{Change, Credentials, Error, Result, Timestamp, permission};
use forebay_view::convert::{self, owned};

use super::create::changeable;
use super::{check_old_name, count_out, delete_name};
use crate::files::Files;
use crate::files::durability::Recorded;
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
                drop_link(&mut change, &child, record, now);
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

/// Removes one name of the object, which may be its last.
pub(super) fn drop_link<'a>(
    change: &mut NameChange<'a>,
    node: &'a Arc<Node>,
    mut record: InodeRecord,
    now: Timestamp,
) {
    if record.kind() == Kind::Directory || record.nlink <= 1 {
        change.remove(node);
        return;
    }
    record.nlink -= 1;
    record.ctime = convert::record_time(now);
    change.set(node, record);
}
