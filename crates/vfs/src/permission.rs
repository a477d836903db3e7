//! Access control: the rules of POSIX as pure functions of an object and credentials.
//!
//! Every file system behind the trait uses these functions, so that the rules are in one place. Three of them
//! are specific to NFS, because a server does not see `open` (RFC 1813, section 4.4): the owner of a file may READ and
//! WRITE regardless of the mode bits (the client has checked them on open), READ is granted to callers
//! that may execute, and [`access`] reports the mode bits alone.
//!
//! Where POSIX leaves a choice, the rules follow Linux: the set-id bits are cleared by every change
//! of owner or group, by any caller, and setgid stays where the group may not execute (there it grants no
//! right but, historically, requests mandatory locking).

use crate::{Access, Attributes, Credentials, Error, FileKind, Result, SetAttributes, SetTime};

/// The superuser.
const ROOT: u32 = 0;
/// Read permission bit of one class.
const READ: u32 = 0o4;
/// Write permission bit of one class.
const WRITE: u32 = 0o2;
/// Execute (or search) permission bit of one class.
const EXECUTE: u32 = 0o1;
/// Set-user-ID bit.
const SETUID: u32 = 0o4000;
/// Set-group-ID bit.
const SETGID: u32 = 0o2000;
/// Sticky bit: only the owners of the objects may remove their names from the directory.
const STICKY: u32 = 0o1000;
/// All bits of a mode.
const MODE_BITS: u32 = 0o7777;

/// The attributes of an object on which the rules depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Its kind.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky: 0 to 0o7777.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl From<&Attributes> for Owned {
    fn from(attributes: &Attributes) -> Owned {
        Owned {
            kind: attributes.kind,
            mode: attributes.mode,
            uid: attributes.uid,
            gid: attributes.gid,
        }
    }
}

impl Owned {
    fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// The bits of one class (0 to 7) that the mode grants to `caller`. The classes
    /// exclude each other: an owner has only the owner's rights, even if the group has more.
    fn rights(&self, caller: &Credentials) -> u32 {
        if is_root(caller) {
            // Root may execute a file only if at least one class may.
            let executable = self.is_directory() || self.mode & 0o111 != 0;
            return READ | WRITE | if executable { EXECUTE } else { 0 };
        }
        let class = if caller.uid == self.uid {
            self.mode >> 6
        } else if in_group(caller, self.gid) {
            self.mode >> 3
        } else {
            self.mode
        };
        class & (READ | WRITE | EXECUTE)
    }

    /// Whether the mode bits grant `caller` all of `wanted` (bits of one class).
    fn allows(&self, caller: &Credentials, wanted: u32) -> bool {
        self.rights(caller) & wanted == wanted
    }
}

fn is_root(caller: &Credentials) -> bool {
    caller.uid == ROOT
}

fn in_group(caller: &Credentials, gid: u32) -> bool {
    caller.gid == gid || caller.groups.contains(&gid)
}

fn require(allowed: bool) -> Result<()> {
    if allowed { Ok(()) } else { Err(Error::Access) }
}

/// READ of a regular file.
///
/// # Errors
/// [`Error::Access`].
pub fn may_read(file: Owned, caller: &Credentials) -> Result<()> {
    let owner = caller.uid == file.uid;
    require(owner || file.rights(caller) & (READ | EXECUTE) != 0)
}

/// WRITE to a regular file, or a change of its size.
///
/// # Errors
/// [`Error::Access`].
pub fn may_write(file: Owned, caller: &Credentials) -> Result<()> {
    require(caller.uid == file.uid || file.allows(caller, WRITE))
}

/// Seeing a file in the trash: root sees all, everyone else the files that they own.
///
/// # Errors
/// [`Error::Access`].
pub fn may_see_removed(file: Owned, caller: &Credentials) -> Result<()> {
    require(is_root(caller) || caller.uid == file.uid)
}

/// Looking up a name in a directory.
///
/// # Errors
/// [`Error::Access`].
pub fn may_search(directory: Owned, caller: &Credentials) -> Result<()> {
    require(directory.allows(caller, EXECUTE))
}

/// Listing the names in a directory. Access to the named objects requires the right to [search](may_search) it.
///
/// # Errors
/// [`Error::Access`].
pub fn may_list(directory: Owned, caller: &Credentials) -> Result<()> {
    require(directory.allows(caller, READ))
}

/// Adding a name to a directory, or removing one.
///
/// # Errors
/// [`Error::Access`].
pub fn may_change_names(directory: Owned, caller: &Credentials) -> Result<()> {
    require(directory.allows(caller, WRITE | EXECUTE))
}

/// Removing the name of `child` from a directory (REMOVE, RMDIR, both ends of RENAME). In a
/// sticky directory, only the owner of the directory or of the child may do so.
///
/// # Errors
/// [`Error::Access`] if `caller` may not change the directory's names, [`Error::NotOwner`] if it is
/// sticky and `caller` owns neither.
pub fn may_unlink(directory: Owned, child: Owned, caller: &Credentials) -> Result<()> {
    may_change_names(directory, caller)?;
    let owner = is_root(caller) || caller.uid == child.uid || caller.uid == directory.uid;
    if directory.mode & STICKY != 0 && !owner {
        return Err(Error::NotOwner);
    }
    Ok(())
}

/// Moving a directory to another parent, which changes its `..`.
///
/// # Errors
/// [`Error::Access`].
pub fn may_rewrite_parent(directory: Owned, caller: &Credentials) -> Result<()> {
    require(directory.allows(caller, WRITE))
}

/// Returns those of the rights `wanted` that an ACCESS call reports (RFC 1813, section 3.3.4). LOOKUP and DELETE are
/// rights of directories, EXECUTE is one of all other objects.
pub fn access(object: Owned, caller: &Credentials, wanted: Access) -> Access {
    let directory = object.is_directory();
    let has = object.rights(caller);
    let mut granted = 0;
    if has & READ != 0 {
        granted |= Access::READ.0;
    }
    if has & WRITE != 0 {
        granted |= Access::MODIFY.0 | Access::EXTEND.0;
    }
    if has & WRITE != 0 && directory {
        granted |= Access::DELETE.0;
    }
    if has & EXECUTE != 0 {
        granted |= if directory {
            Access::LOOKUP.0
        } else {
            Access::EXECUTE.0
        };
    }
    Access(wanted.0 & granted)
}

/// The same for a file in the trash: nobody has a right to change it, and callers that may not [see](may_see_removed) it have none.
pub fn access_removed(file: Owned, caller: &Credentials, wanted: Access) -> Access {
    let changing = Access::MODIFY.0 | Access::EXTEND.0 | Access::DELETE.0;
    match may_see_removed(file, caller) {
        Ok(()) => access(file, caller, Access(wanted.0 & !changing)),
        Err(_) => Access(0),
    }
}

/// The mode of a file after `caller` wrote to it or changed its size: this clears the set-id bits,
/// unless root does it.
pub fn mode_after_write(mode: u32, caller: &Credentials) -> u32 {
    if is_root(caller) {
        mode
    } else {
        without_set_id(mode)
    }
}

/// The mode without setuid, and without setgid where the group may execute.
fn without_set_id(mode: u32) -> u32 {
    let mode = mode & !SETUID;
    if mode & 0o010 == 0 {
        mode
    } else {
        mode & !SETGID
    }
}

/// Returns owner, group and mode after a SETATTR by `caller`, or the reason for a refusal: either all of the changes
/// are allowed, or none is made.
///
/// * The size may be changed by callers that may write; that clears the set-id bits like a write.
/// * The owner may be changed by root only, the group also by the owner of the object, to one of the caller's own
///   groups. Either clears the set-id bits of anything except a directory; a mode in the same call
///   is set after that.
/// * The mode may be changed by the owner. Setgid is not set on an object whose group the caller is not a
///   member of, unless it is a directory.
/// * A time may be set to any value by the owner, and to the server's clock also by callers that may write.
///
/// # Errors
/// [`Error::NotOwner`] and [`Error::Access`]; for a size also [`Error::IsDirectory`], and
/// [`Error::Invalid`] on objects that are neither file nor directory.
pub fn after_setattr(old: Owned, caller: &Credentials, set: &SetAttributes) -> Result<Owned> {
    let owner = is_root(caller) || caller.uid == old.uid;
    let mut new = old;
    if set.size.is_some() {
        match old.kind {
            FileKind::Regular => may_write(old, caller)?,
            FileKind::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::Invalid),
        }
        new.mode = mode_after_write(new.mode, caller);
    }
    if set.uid.is_some() || set.gid.is_some() {
        new.uid = set.uid.unwrap_or(old.uid);
        new.gid = set.gid.unwrap_or(old.gid);
        let own_group = new.gid == old.gid || in_group(caller, new.gid);
        if !(is_root(caller) || owner && new.uid == old.uid && own_group) {
            return Err(Error::NotOwner);
        }
        if !old.is_directory() {
            new.mode = without_set_id(new.mode);
        }
    }
    if let Some(mode) = set.mode {
        if !owner {
            return Err(Error::NotOwner);
        }
        new.mode = with_own_setgid(mode, new, caller);
    }
    for time in [set.atime, set.mtime] {
        match time {
            SetTime::To(_) if !owner => return Err(Error::NotOwner),
            SetTime::Now if !owner => may_write(old, caller)?,
            SetTime::Keep | SetTime::Now | SetTime::To(_) => {}
        }
    }
    Ok(new)
}

/// Reduces `mode` to the bits that `caller` may set on an object of this kind and group.
fn with_own_setgid(mode: u32, object: Owned, caller: &Credentials) -> u32 {
    let foreign = !is_root(caller) && !in_group(caller, object.gid);
    if foreign && !object.is_directory() {
        mode & MODE_BITS & !SETGID
    } else {
        mode & MODE_BITS
    }
}

/// Returns owner, group and mode of an object that `caller` creates in `parent`: its owner is the caller and its group the
/// caller's, unless the directory has setgid: then the group is the directory's, and new directories inherit setgid.
/// A caller cannot create a file that would run with the rights of a group of which it is not a member.
///
/// # Errors
/// [`Error::NotOwner`] if the object is to belong to another user, or to a group that `caller` is not in, or if it is a
/// device, which would be a device on every client. Only root may do these.
pub fn of_new(
    parent: Owned,
    kind: FileKind,
    caller: &Credentials,
    set: &SetAttributes,
) -> Result<Owned> {
    let root = is_root(caller);
    if !root && matches!(kind, FileKind::BlockDevice | FileKind::CharDevice) {
        return Err(Error::NotOwner);
    }
    let uid = match set.uid {
        Some(uid) if uid != caller.uid && !root => return Err(Error::NotOwner),
        uid => uid.unwrap_or(caller.uid),
    };
    let inherits = parent.mode & SETGID != 0;
    let gid = match set.gid {
        Some(gid) if root || in_group(caller, gid) => gid,
        Some(_) => return Err(Error::NotOwner),
        None if inherits => parent.gid,
        None => caller.gid,
    };
    let default_mode = match kind {
        FileKind::Directory => 0o755,
        FileKind::Symlink => 0o777,
        _ => 0o644,
    };
    let mut new = Owned {
        kind,
        mode: default_mode,
        uid,
        gid,
    };
    new.mode = with_own_setgid(set.mode.unwrap_or(default_mode), new, caller);
    if inherits && kind == FileKind::Directory {
        new.mode |= SETGID;
    }
    Ok(new)
}

#[cfg(test)]
mod tests;
