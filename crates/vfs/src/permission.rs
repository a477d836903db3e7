//! Who may do what: the rules of POSIX as pure functions of an object and credentials.
//!
//! Every file system behind the trait asks here, so that there is one place for the rules. Three of them
//! are NFS's own, because a server does not see `open` (RFC 1813, section 4.4): the owner of a file may READ and
//! WRITE whatever the mode bits say (the client checked when it opened), READ is granted to who
//! may execute, and [`access`] answers by the bits alone.
//!
//! Where POSIX leaves a choice, it is made as Linux makes it: the set-id bits go with every change
//! of owner or group, whoever makes it, and setgid stays where the group may not execute (there it is no
//! right but, historically, mandatory locking).

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
/// Sticky bit: names in the directory belong to their owners.
const STICKY: u32 = 0o1000;
/// All bits that a mode has.
const MODE_BITS: u32 = 0o7777;

/// What the rules look at in an object.
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

    /// The bits of one class (0 to 7) that the mode gives `who`. The classes
    /// exclude each other: an owner has the owner's rights, and no more if the group has more.
    fn rights(&self, who: &Credentials) -> u32 {
        if is_root(who) {
            // Root may not execute what nobody may execute.
            let executable = self.is_directory() || self.mode & 0o111 != 0;
            return READ | WRITE | if executable { EXECUTE } else { 0 };
        }
        let class = if who.uid == self.uid {
            self.mode >> 6
        } else if in_group(who, self.gid) {
            self.mode >> 3
        } else {
            self.mode
        };
        class & (READ | WRITE | EXECUTE)
    }

    /// Whether the mode bits give `who` all of `wanted` (bits of one class).
    fn allows(&self, who: &Credentials, wanted: u32) -> bool {
        self.rights(who) & wanted == wanted
    }
}

fn is_root(who: &Credentials) -> bool {
    who.uid == ROOT
}

fn in_group(who: &Credentials, gid: u32) -> bool {
    who.gid == gid || who.groups.contains(&gid)
}

fn require(allowed: bool) -> Result<()> {
    if allowed { Ok(()) } else { Err(Error::Access) }
}

/// READ of a regular file.
///
/// # Errors
/// [`Error::Access`].
pub fn may_read(file: Owned, who: &Credentials) -> Result<()> {
    let owner = who.uid == file.uid;
    require(owner || file.rights(who) & (READ | EXECUTE) != 0)
}

/// WRITE to a regular file, or a change of its size.
///
/// # Errors
/// [`Error::Access`].
pub fn may_write(file: Owned, who: &Credentials) -> Result<()> {
    require(who.uid == file.uid || file.allows(who, WRITE))
}

/// Looking up a name in a directory.
///
/// # Errors
/// [`Error::Access`].
pub fn may_search(directory: Owned, who: &Credentials) -> Result<()> {
    require(directory.allows(who, EXECUTE))
}

/// Listing the names in a directory. What they name is for who [may search](may_search) it.
///
/// # Errors
/// [`Error::Access`].
pub fn may_list(directory: Owned, who: &Credentials) -> Result<()> {
    require(directory.allows(who, READ))
}

/// Adding a name to a directory, or taking one away.
///
/// # Errors
/// [`Error::Access`].
pub fn may_change_names(directory: Owned, who: &Credentials) -> Result<()> {
    require(directory.allows(who, WRITE | EXECUTE))
}

/// Taking the name of `child` out of a directory (REMOVE, RMDIR, both ends of RENAME): where it
/// is sticky, that is for the owner of either.
///
/// # Errors
/// [`Error::Access`] if `who` may not change the directory's names, [`Error::NotOwner`] if it is
/// sticky and all is another's.
pub fn may_unlink(directory: Owned, child: Owned, who: &Credentials) -> Result<()> {
    may_change_names(directory, who)?;
    let owner = is_root(who) || who.uid == child.uid || who.uid == directory.uid;
    if directory.mode & STICKY != 0 && !owner {
        return Err(Error::NotOwner);
    }
    Ok(())
}

/// Moving a directory to another parent changes what `..` in it means.
///
/// # Errors
/// [`Error::Access`].
pub fn may_rewrite_parent(directory: Owned, who: &Credentials) -> Result<()> {
    require(directory.allows(who, WRITE))
}

/// Which of the rights `wanted` an ACCESS call is told it has (RFC 1813, section 3.3.4). LOOKUP and DELETE are
/// rights of directories, EXECUTE is one of everything else.
pub fn access(object: Owned, who: &Credentials, wanted: Access) -> Access {
    let directory = object.is_directory();
    let has = object.rights(who);
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

/// The mode that a file has after `who` wrote to it or changed its size: the set-id bits do not
/// survive that, except when root does it.
pub fn mode_after_write(mode: u32, who: &Credentials) -> u32 {
    if is_root(who) {
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

/// Owner, group and mode that a SETATTR by `who` leaves, or why it may not be: all of what it wants
/// is allowed, or nothing of it is done.
///
/// * A size is for who may write, and clears the set-id bits as a write does.
/// * The owner is changed by root alone, the group also by the owner of the object, to a group of
///   his own. Either clears the set-id bits of anything but a directory, and a mode that comes
///   with it is set after that.
/// * The mode is changed by the owner. Setgid is not given to an object of a group that he is not
///   in, unless it is a directory.
/// * A time is set to a moment by the owner, and to the server's clock by who may write as well.
///
/// # Errors
/// [`Error::NotOwner`] and [`Error::Access`]; for a size also [`Error::IsDirectory`], and
/// [`Error::Invalid`] on what is neither file nor directory.
pub fn after_setattr(old: Owned, who: &Credentials, set: &SetAttributes) -> Result<Owned> {
    let owner = is_root(who) || who.uid == old.uid;
    let mut new = old;
    if set.size.is_some() {
        match old.kind {
            FileKind::Regular => may_write(old, who)?,
            FileKind::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::Invalid),
        }
        new.mode = mode_after_write(new.mode, who);
    }
    if set.uid.is_some() || set.gid.is_some() {
        new.uid = set.uid.unwrap_or(old.uid);
        new.gid = set.gid.unwrap_or(old.gid);
        let own_group = new.gid == old.gid || in_group(who, new.gid);
        if !(is_root(who) || owner && new.uid == old.uid && own_group) {
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
        new.mode = with_own_setgid(mode, new, who);
    }
    for time in [set.atime, set.mtime] {
        match time {
            SetTime::To(_) if !owner => return Err(Error::NotOwner),
            SetTime::Now if !owner => may_write(old, who)?,
            SetTime::Keep | SetTime::Now | SetTime::To(_) => {}
        }
    }
    Ok(new)
}

/// `mode` as `who` may give it to an object of this kind and group.
fn with_own_setgid(mode: u32, object: Owned, who: &Credentials) -> u32 {
    let foreign = !is_root(who) && !in_group(who, object.gid);
    if foreign && !object.is_directory() {
        mode & MODE_BITS & !SETGID
    } else {
        mode & MODE_BITS
    }
}

/// Owner, group and mode of an object that `who` makes in `parent`: his own and that of his
/// group, unless the directory has setgid: then it gives its group, and to directories setgid as well.
/// Nobody makes a file that would run with the rights of a group that he is not in.
///
/// # Errors
/// [`Error::NotOwner`] if it is to belong to another, or to a group that `who` is not in, or is a device, which
/// would be one on every client; only root may want that.
pub fn of_new(
    parent: Owned,
    kind: FileKind,
    who: &Credentials,
    set: &SetAttributes,
) -> Result<Owned> {
    let root = is_root(who);
    if !root && matches!(kind, FileKind::BlockDevice | FileKind::CharDevice) {
        return Err(Error::NotOwner);
    }
    let uid = match set.uid {
        Some(uid) if uid != who.uid && !root => return Err(Error::NotOwner),
        uid => uid.unwrap_or(who.uid),
    };
    let inherits = parent.mode & SETGID != 0;
    let gid = match set.gid {
        Some(gid) if root || in_group(who, gid) => gid,
        Some(_) => return Err(Error::NotOwner),
        None if inherits => parent.gid,
        None => who.gid,
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
    new.mode = with_own_setgid(set.mode.unwrap_or(default_mode), new, who);
    if inherits && kind == FileKind::Directory {
        new.mode |= SETGID;
    }
    Ok(new)
}

#[cfg(test)]
mod tests;
