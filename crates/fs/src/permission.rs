//! Who may do what: POSIX permission checks as pure functions of a record and credentials.
//!
//! Two rules differ from a local kernel, because an NFS server does not see `open`: the owner of
//! a file may READ and WRITE whatever the mode bits say (the client checked when it opened), and
//! READ is granted to who may execute.

use forebay_meta::record::{InodeRecord, Kind};
use forebay_vfs::{Access, Credentials, Error, Result};

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
pub(crate) const SETGID: u32 = 0o2000;
/// Sticky bit: names in the directory belong to their owners.
const STICKY: u32 = 0o1000;

/// Whether `who` is the superuser.
pub(crate) fn is_root(who: &Credentials) -> bool {
    who.uid == ROOT
}

/// Whether `who` belongs to group `gid`.
pub(crate) fn in_group(who: &Credentials, gid: u32) -> bool {
    who.gid == gid || who.groups.contains(&gid)
}

/// Whether the mode bits give `who` all of `wanted` (bits of one class, 0 to 7).
fn mode_allows(record: &InodeRecord, who: &Credentials, wanted: u32) -> bool {
    if is_root(who) {
        // Root may not execute what nobody may execute.
        let executable = record.kind() == Kind::Directory || record.mode & 0o111 != 0;
        return wanted & EXECUTE == 0 || executable;
    }
    let class = if who.uid == record.uid {
        record.mode >> 6
    } else if in_group(who, record.gid) {
        record.mode >> 3
    } else {
        record.mode
    };
    class & wanted == wanted
}

fn require(allowed: bool) -> Result<()> {
    if allowed { Ok(()) } else { Err(Error::Access) }
}

/// READ of a regular file.
pub(crate) fn may_read(record: &InodeRecord, who: &Credentials) -> Result<()> {
    require(
        who.uid == record.uid
            || mode_allows(record, who, READ)
            || mode_allows(record, who, EXECUTE),
    )
}

/// WRITE to a regular file, or a change of its size.
pub(crate) fn may_write(record: &InodeRecord, who: &Credentials) -> Result<()> {
    require(who.uid == record.uid || mode_allows(record, who, WRITE))
}

/// Looking up a name in a directory.
pub(crate) fn may_search(directory: &InodeRecord, who: &Credentials) -> Result<()> {
    require(mode_allows(directory, who, EXECUTE))
}

/// Listing a directory.
pub(crate) fn may_list(directory: &InodeRecord, who: &Credentials) -> Result<()> {
    require(mode_allows(directory, who, READ))
}

/// Adding or removing a name in a directory.
pub(crate) fn may_change_names(directory: &InodeRecord, who: &Credentials) -> Result<()> {
    require(mode_allows(directory, who, WRITE | EXECUTE))
}

/// Removing or renaming the name of `child` in a sticky directory is for the owner of either.
pub(crate) fn may_unlink(
    directory: &InodeRecord,
    child: &InodeRecord,
    who: &Credentials,
) -> Result<()> {
    let owned = is_root(who) || who.uid == child.uid || who.uid == directory.uid;
    if directory.mode & STICKY != 0 && !owned {
        return Err(Error::NotOwner);
    }
    Ok(())
}

/// Moving a directory to another parent changes what `..` in it means.
pub(crate) fn may_rewrite_parent(directory: &InodeRecord, who: &Credentials) -> Result<()> {
    require(mode_allows(directory, who, WRITE))
}

/// Which of the rights `wanted` an ACCESS call is told it has.
pub(crate) fn access(record: &InodeRecord, who: &Credentials, wanted: Access) -> Access {
    let directory = record.kind() == Kind::Directory;
    let mut granted = 0;
    let mut grant = |right: Access, allowed: bool| {
        if wanted.contains(right) && allowed {
            granted |= right.0;
        }
    };
    grant(Access::READ, mode_allows(record, who, READ));
    let write = mode_allows(record, who, WRITE);
    grant(Access::MODIFY, write);
    grant(Access::EXTEND, write);
    let execute = mode_allows(record, who, EXECUTE);
    if directory {
        grant(Access::LOOKUP, execute);
        grant(Access::DELETE, write);
    } else {
        grant(Access::EXECUTE, execute);
    }
    Access(granted)
}

/// The mode that a file has after `who` wrote to it: setuid, and setgid where the group may
/// execute, do not survive a write by another than root.
pub(crate) fn mode_after_write(mode: u32, who: &Credentials) -> u32 {
    if is_root(who) {
        mode
    } else {
        without_set_id(mode)
    }
}

/// The mode without setuid, and without setgid where the group may execute (without that bit it
/// is no right but, historically, mandatory locking).
pub(crate) fn without_set_id(mode: u32) -> u32 {
    let mode = mode & !SETUID;
    if mode & 0o010 != 0 {
        mode & !SETGID
    } else {
        mode
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(mode: u32) -> InodeRecord {
        InodeRecord {
            content: forebay_meta::record::Content::Regular,
            mode,
            uid: 1000,
            gid: 100,
            nlink: 1,
            size: 0,
            used: 0,
            atime: Default::default(),
            mtime: Default::default(),
            ctime: Default::default(),
            create_verifier: None,
            tree: None,
        }
    }

    fn user(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
        Credentials {
            uid,
            gid,
            groups: groups.to_vec(),
        }
    }

    #[test]
    fn classes_are_exclusive_owner_then_group_then_others() {
        let record = file(0o007);
        assert!(mode_allows(&record, &user(1, 1, &[]), 7));
        assert!(!mode_allows(&record, &user(1, 100, &[]), 4));
        assert!(!mode_allows(&record, &user(1, 1, &[5, 100]), 4));
        assert!(!mode_allows(&record, &user(1000, 1, &[]), 4));
    }

    #[test]
    fn owner_reads_and_writes_whatever_the_mode_says() {
        let record = file(0o000);
        let owner = user(1000, 1, &[]);
        assert_eq!(may_read(&record, &owner), Ok(()));
        assert_eq!(may_write(&record, &owner), Ok(()));
        assert_eq!(access(&record, &owner, Access(0x3f)), Access(0));
        assert_eq!(may_write(&record, &user(2, 2, &[])), Err(Error::Access));
    }

    #[test]
    fn root_executes_only_what_somebody_may() {
        let root = user(0, 0, &[]);
        assert!(!mode_allows(&file(0o644), &root, EXECUTE));
        assert!(mode_allows(&file(0o645), &root, EXECUTE | READ | WRITE));
    }

    #[test]
    fn a_write_clears_set_id_bits_except_for_root() {
        assert_eq!(mode_after_write(0o6755, &user(5, 5, &[])), 0o755);
        assert_eq!(mode_after_write(0o6745, &user(5, 5, &[])), 0o2745);
        assert_eq!(mode_after_write(0o6755, &user(0, 0, &[])), 0o6755);
    }
}
