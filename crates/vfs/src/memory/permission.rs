//! Who may do what, as pure functions of attributes and credentials.
//!
//! An NFS server does not see `open`, so the owner of a file may READ and WRITE whatever the mode
//! says, and READ is granted to who may execute.

use crate::{Access, Attributes, Credentials, Error, FileKind, Result};

const READ: u32 = 0o4;
const WRITE: u32 = 0o2;
const EXECUTE: u32 = 0o1;
const SETUID: u32 = 0o4000;
pub(super) const SETGID: u32 = 0o2000;
const STICKY: u32 = 0o1000;

pub(super) fn is_root(who: &Credentials) -> bool {
    who.uid == 0
}

pub(super) fn in_group(who: &Credentials, gid: u32) -> bool {
    who.gid == gid || who.groups.contains(&gid)
}

/// Whether the mode gives `who` all of `wanted` (bits of one class).
fn allows(object: &Attributes, who: &Credentials, wanted: u32) -> bool {
    if is_root(who) {
        // Root executes only what somebody may.
        let executable = object.kind == FileKind::Directory || object.mode & 0o111 != 0;
        return executable || wanted & EXECUTE == 0;
    }
    let shift = match () {
        () if who.uid == object.uid => 6,
        () if in_group(who, object.gid) => 3,
        () => 0,
    };
    object.mode >> shift & wanted == wanted
}

fn require(allowed: bool) -> Result<()> {
    if allowed { Ok(()) } else { Err(Error::Access) }
}

pub(super) fn may_read(file: &Attributes, who: &Credentials) -> Result<()> {
    let owner = who.uid == file.uid;
    require(owner || allows(file, who, READ) || allows(file, who, EXECUTE))
}

pub(super) fn may_write(file: &Attributes, who: &Credentials) -> Result<()> {
    require(who.uid == file.uid || allows(file, who, WRITE))
}

pub(super) fn may_search(directory: &Attributes, who: &Credentials) -> Result<()> {
    require(allows(directory, who, EXECUTE))
}

pub(super) fn may_list(directory: &Attributes, who: &Credentials) -> Result<()> {
    require(allows(directory, who, READ))
}

pub(super) fn may_change_names(directory: &Attributes, who: &Credentials) -> Result<()> {
    require(allows(directory, who, WRITE | EXECUTE))
}

/// In a sticky directory the name of `child` is for the owner of either to take away.
pub(super) fn may_unlink(
    directory: &Attributes,
    child: &Attributes,
    who: &Credentials,
) -> Result<()> {
    let owner = is_root(who) || who.uid == directory.uid || who.uid == child.uid;
    if owner || directory.mode & STICKY == 0 {
        Ok(())
    } else {
        Err(Error::NotOwner)
    }
}

/// Which of the rights `wanted` `who` has.
pub(super) fn access(object: &Attributes, who: &Credentials, wanted: Access) -> Access {
    let directory = object.kind == FileKind::Directory;
    let read = allows(object, who, READ);
    let write = allows(object, who, WRITE);
    let execute = allows(object, who, EXECUTE);
    let rights = [
        (Access::READ, read),
        (Access::LOOKUP, directory && execute),
        (Access::MODIFY, write),
        (Access::EXTEND, write),
        (Access::DELETE, directory && write),
        (Access::EXECUTE, !directory && execute),
    ];
    let granted = rights
        .into_iter()
        .filter(|(_, has)| *has)
        .map(|(right, _)| right.0);
    Access(wanted.0 & granted.fold(0, |bits, right| bits | right))
}

/// The mode without setuid, and without setgid where the group may execute: what is left when
/// another than root writes to a file or gives it away.
pub(super) fn without_set_id(mode: u32) -> u32 {
    let mode = mode & !SETUID;
    if mode & 0o010 == 0 {
        mode
    } else {
        mode & !SETGID
    }
}
