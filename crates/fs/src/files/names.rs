//! Names: looking up, listing, making, removing, linking and renaming them.
//!
//! A change of the names of a directory holds its `names` lock from the look at the old names to the change, so that
//! the result of the look stays valid. A rename between two directories holds both locks, that of the lower inode
//! first. The lock of a directory that is removed is not needed: both sides lock its state when they check that it is
//! empty, or that it still exists for a new name.

mod ancestors;
pub(super) mod create;
pub(super) mod list;
mod remove;
pub(crate) mod rename;

use std::sync::Arc;

use bytes::Bytes;
use forebay_meta::record::{InodeRecord, Kind, NameRecord};
use forebay_meta::{Batch, Key};
use forebay_types::Inode;
use forebay_types::balance::{taken, taken_u32};
use forebay_vfs::{
    Attributes, Credentials, Error, LINK_MAX, Result, Timestamp, Trouble, permission,
};
use forebay_view::convert::{self, owned};
use forebay_waits::{For, waiting};

use super::Files;
use crate::state::Node;

/// Longest name, in bytes.
pub(crate) const NAME_MAX: usize = 255;

/// Longest target of a symbolic link, in bytes (PATH_MAX).
pub(crate) const SYMLINK_MAX: usize = 4096;

/// Checks a name for a look-up.
fn check_name(name: &[u8]) -> Result<()> {
    match name {
        [] => Err(Error::Invalid),
        _ if name.len() > NAME_MAX => Err(Error::NameTooLong),
        _ if name.iter().any(|byte| matches!(byte, b'/' | 0)) => Err(Error::Invalid),
        _ => Ok(()),
    }
}

/// Checks a name for a new object.
pub(super) fn check_new_name(name: &[u8]) -> Result<()> {
    if is_dot(name) {
        Err(Error::Exists)
    } else {
        check_name(name)
    }
}

/// Checks a name that will be removed.
fn check_old_name(name: &[u8]) -> Result<()> {
    if is_dot(name) {
        Err(Error::Invalid)
    } else {
        check_name(name)
    }
}

fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// Deletes a name and its cookie.
fn delete_name(batch: &mut Batch, directory: Inode, name: &[u8], cookie: u64) {
    batch.delete(&Key::Name(directory, Bytes::copy_from_slice(name)));
    batch.delete(&Key::Cookie(directory, cookie));
}

/// Counts a name that is added to a directory.
pub(super) fn count_in(directory: &mut InodeRecord, child: Kind, now: Timestamp) -> Result<()> {
    if child == Kind::Directory {
        if directory.nlink >= LINK_MAX {
            return Err(Error::TooManyLinks);
        }
        directory.nlink += 1;
    }
    set_changed(directory, now);
    let own = directory.directory_mut().ok_or(Error::NotDirectory)?;
    own.entries += 1;
    Ok(())
}

/// A cookie greater than all that the directory has assigned.
pub(super) fn next_cookie(directory: &mut InodeRecord) -> Result<u64> {
    let own = directory.directory_mut().ok_or(Error::NotDirectory)?;
    let cookie = own.next_cookie;
    own.next_cookie += 1;
    Ok(cookie)
}

/// Counts one more name of an object that is not a directory.
fn count_link(record: &mut InodeRecord, now: Timestamp) -> Result<()> {
    if record.nlink >= LINK_MAX {
        return Err(Error::TooManyLinks);
    }
    record.nlink += 1;
    record.ctime = convert::record_time(now);
    Ok(())
}

/// Counts a name that is removed from a directory.
fn count_out(directory: &mut InodeRecord, child: Kind, now: Timestamp) -> Result<()> {
    if child == Kind::Directory {
        directory.nlink = taken_u32("links of a directory", directory.nlink, 1);
    }
    set_changed(directory, now);
    let own = directory.directory_mut().ok_or(Error::NotDirectory)?;
    own.entries = taken("entries of a directory", own.entries, 1);
    Ok(())
}

/// Sets the times of an object whose content has changed.
fn set_changed(record: &mut InodeRecord, now: Timestamp) {
    record.mtime = convert::record_time(now);
    record.ctime = record.mtime;
}

impl Files {
    /// The node of a directory that still has a name.
    pub(super) async fn directory(&self, inode: Inode) -> Result<Arc<Node>> {
        let node = self.state.node(inode).await?;
        drop(node.lock_directory()?);
        Ok(node)
    }

    /// The entry of a name.
    pub(super) async fn entry(&self, directory: &Node, name: &[u8]) -> Result<Option<NameRecord>> {
        // A directory is published before its names leave the overlay, and it knows a name before the overlay has it.
        let may_be_published = || {
            let state = directory.lock();
            state.published
                && state
                    .names
                    .as_ref()
                    .is_none_or(|names| names.may_have(name))
        };
        let reading = self
            .state
            .catalog
            .name_if_published(directory.inode, name, may_be_published);
        let reading = self.state.troubles.during(Trouble::Bucket, reading);
        let entry = waiting(For::Bucket, reading).await;
        entry.map_err(|error| self.state.store_failed(error))
    }

    pub(crate) async fn lookup(
        self: &Arc<Self>,
        caller: &Credentials,
        directory: Inode,
        name: &[u8],
    ) -> Result<Attributes> {
        check_name(name)?;
        let directory = self.state.node(directory).await?;
        let special = {
            let state = directory.lock_directory()?;
            permission::may_search(owned(&state.record), caller)?;
            match name {
                b"." => Some(directory.inode),
                b".." => state.record.directory().map(|own| own.parent),
                _ => None,
            }
        };
        if let Some(inode) = special {
            let node = self.state.node(inode).await?;
            let state = node.lock_live()?;
            return Ok(node.attributes(&state));
        }
        // A name may be removed between the two looks: look again, it may be another object's by now.
        for _ in 0..8 {
            let entry = self.entry(&directory, name).await?.ok_or(Error::NotFound)?;
            let node = match self.state.nodes.peek(entry.inode) {
                Some(node) => Ok(node),
                None => {
                    self.look_up_first_block(&entry);
                    self.state.node(entry.inode).await
                }
            };
            match node {
                Ok(node) => {
                    if let Ok(state) = node.lock_live() {
                        node.seen(directory.inode, entry.cookie);
                        return Ok(node.attributes(&state));
                    }
                }
                Err(Error::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::NotFound)
    }
}

#[cfg(test)]
mod tests {
    use forebay_meta::record::Content;
    use forebay_vfs::NewNode;

    use super::*;

    #[test]
    fn names_are_any_bytes_but_slash_and_nul_up_to_255() {
        assert_eq!(check_name(&[0xff; 255]), Ok(()));
        assert_eq!(check_name(&[0xff; 256]), Err(Error::NameTooLong));
        assert_eq!(check_name(b""), Err(Error::Invalid));
        assert_eq!(check_name(b"a/b"), Err(Error::Invalid));
        assert_eq!(check_name(b"a\0b"), Err(Error::Invalid));
        assert_eq!(check_new_name(b".."), Err(Error::Exists));
        assert_eq!(check_old_name(b"."), Err(Error::Invalid));
    }

    #[test]
    fn an_object_gets_as_many_names_as_pathconf_says_and_no_more() {
        let content = convert::content(NewNode::Directory, Inode::ROOT);
        let mut directory = InodeRecord {
            content,
            mode: 0o755,
            uid: 0,
            gid: 0,
            nlink: LINK_MAX - 1,
            size: 0,
            used: 0,
            atime: Default::default(),
            mtime: Default::default(),
            ctime: Default::default(),
            create_verifier: None,
            tree: None,
            truncated: Default::default(),
        };
        let mut file = InodeRecord {
            content: Content::Regular,
            ..directory.clone()
        };
        let now = Timestamp {
            seconds: 5,
            nanos: 6,
        };
        assert_eq!(count_link(&mut file, now), Ok(()));
        assert_eq!((file.nlink, file.ctime.seconds), (LINK_MAX, 5));
        assert_eq!(count_link(&mut file, now), Err(Error::TooManyLinks));
        assert!(count_in(&mut directory, Kind::Directory, now).is_ok());
        let full = count_in(&mut directory, Kind::Directory, now);
        assert_eq!(full, Err(Error::TooManyLinks));
        // Files do not count there.
        assert!(count_in(&mut directory, Kind::Regular, now).is_ok());
        assert_eq!(directory.nlink, LINK_MAX);
    }
}
