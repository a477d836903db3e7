//! Procedures and statuses of NFS version 3, and the ERRORS that section 3.3 of RFC 1813 lists for each
//! procedure.
//!
//! These lists are "a guide for the more common errors" and no definitive statement (section 3.3): a server may return
//! other errors if it has a reason. [`Status::JUKEBOX`] is in none of them and may come from any procedure (section
//! 2.6).

use std::fmt;

/// Program number of NFS.
pub const PROGRAM: u32 = 100_003;
/// The version that RFC 1813 describes.
pub const VERSION: u32 = 3;
/// Longest file handle in bytes (NFS3_FHSIZE).
pub const HANDLE_BYTES: usize = 64;

/// `nfsstat3` (section 2.6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(pub u32);

/// A list of statuses by their names.
macro_rules! statuses {
    ($($name:ident),* $(,)?) => { &[$(Status::$name),*] };
}

macro_rules! define {
    ($($name:ident = $number:literal, $meaning:literal;)*) => {
        impl Status {
            $(#[doc = $meaning] pub const $name: Status = Status($number);)*

            /// All statuses.
            pub const ALL: &[Status] = &[$(Status::$name),*];
        }

        impl fmt::Display for Status {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self {
                    Status::OK => write!(f, "NFS3_OK"),
                    $(Status::$name => write!(f, "NFS3ERR_{}", stringify!($name)),)*
                    Status(number) => write!(f, "status {number}"),
                }
            }
        }
    };
}

impl Status {
    /// Success.
    pub const OK: Status = Status(0);
}

define! {
    PERM = 1, "Not owner.";
    NOENT = 2, "No such file or directory.";
    IO = 5, "A hard error.";
    NXIO = 6, "No such device or address.";
    ACCES = 13, "Permission denied.";
    EXIST = 17, "The name is taken.";
    XDEV = 18, "A hard link or rename between file systems.";
    NODEV = 19, "No such device.";
    NOTDIR = 20, "Not a directory.";
    ISDIR = 21, "Is a directory.";
    INVAL = 22, "Invalid argument.";
    FBIG = 27, "The file would be too large.";
    NOSPC = 28, "No space left.";
    ROFS = 30, "A change on a read-only file system.";
    MLINK = 31, "Too many names of one object.";
    NAMETOOLONG = 63, "The name is too long.";
    NOTEMPTY = 66, "The directory is not empty.";
    DQUOT = 69, "The quota is exceeded.";
    STALE = 70, "The object of the handle is gone.";
    REMOTE = 71, "Too many levels of remote in the path.";
    BADHANDLE = 10001, "The handle fails a check of its form.";
    NOT_SYNC = 10002, "The guard of a SETATTR did not match.";
    BAD_COOKIE = 10003, "A stale cookie of a listing.";
    NOTSUPP = 10004, "The operation is not supported.";
    TOOSMALL = 10005, "The buffer or request is too small.";
    SERVERFAULT = 10006, "An error that is none of the others.";
    BADTYPE = 10007, "An object of a type that the server cannot make.";
    JUKEBOX = 10008, "Begun and not done in time: to be asked again later.";
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A procedure of NFS version 3; its number is the discriminant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "they are RFC 1813's")]
pub enum Procedure {
    Null = 0,
    Getattr,
    Setattr,
    Lookup,
    Access,
    Readlink,
    Read,
    Write,
    Create,
    Mkdir,
    Symlink,
    Mknod,
    Remove,
    Rmdir,
    Rename,
    Link,
    Readdir,
    Readdirplus,
    Fsstat,
    Fsinfo,
    Pathconf,
    Commit,
}

use Procedure::*;

impl Procedure {
    /// All but NULL, which has neither arguments nor errors, by number.
    pub const ALL: [Procedure; 21] = [
        Getattr,
        Setattr,
        Lookup,
        Access,
        Readlink,
        Read,
        Write,
        Create,
        Mkdir,
        Symlink,
        Mknod,
        Remove,
        Rmdir,
        Rename,
        Link,
        Readdir,
        Readdirplus,
        Fsstat,
        Fsinfo,
        Pathconf,
        Commit,
    ];

    /// Procedures that change the file system.
    pub const CHANGES: [Procedure; 10] = [
        Setattr, Write, Create, Mkdir, Symlink, Mknod, Remove, Rmdir, Rename, Link,
    ];

    /// The errors that section 3.3 lists for this procedure.
    pub fn errors(self) -> &'static [Status] {
        match self {
            Null => &[],
            Getattr | Access | Fsstat | Commit => {
                statuses!(IO, STALE, BADHANDLE, SERVERFAULT)
            }
            Setattr => statuses!(
                PERM,
                IO,
                ACCES,
                INVAL,
                NOSPC,
                ROFS,
                DQUOT,
                NOT_SYNC,
                STALE,
                BADHANDLE,
                NOTSUPP,
                SERVERFAULT
            ),
            Lookup => statuses!(
                IO,
                NOENT,
                ACCES,
                NOTDIR,
                NAMETOOLONG,
                STALE,
                BADHANDLE,
                SERVERFAULT
            ),
            Readlink => statuses!(IO, INVAL, ACCES, STALE, BADHANDLE, NOTSUPP, SERVERFAULT),
            Read => statuses!(IO, NXIO, ACCES, INVAL, STALE, BADHANDLE, SERVERFAULT),
            Write => statuses!(
                IO,
                ACCES,
                FBIG,
                DQUOT,
                NOSPC,
                ROFS,
                INVAL,
                STALE,
                BADHANDLE,
                SERVERFAULT
            ),
            Create | Mkdir | Symlink => statuses!(
                IO,
                ACCES,
                EXIST,
                NOTDIR,
                NOSPC,
                ROFS,
                NAMETOOLONG,
                DQUOT,
                STALE,
                BADHANDLE,
                NOTSUPP,
                SERVERFAULT
            ),
            Mknod => statuses!(
                IO,
                ACCES,
                EXIST,
                NOTDIR,
                NOSPC,
                ROFS,
                NAMETOOLONG,
                DQUOT,
                STALE,
                BADHANDLE,
                NOTSUPP,
                SERVERFAULT,
                BADTYPE
            ),
            Remove => statuses!(
                NOENT,
                IO,
                ACCES,
                NOTDIR,
                NAMETOOLONG,
                ROFS,
                STALE,
                BADHANDLE,
                SERVERFAULT
            ),
            Rmdir => statuses!(
                NOENT,
                IO,
                ACCES,
                INVAL,
                EXIST,
                NOTDIR,
                NAMETOOLONG,
                ROFS,
                NOTEMPTY,
                STALE,
                BADHANDLE,
                NOTSUPP,
                SERVERFAULT
            ),
            Rename => statuses!(
                NOENT,
                IO,
                ACCES,
                EXIST,
                XDEV,
                NOTDIR,
                ISDIR,
                INVAL,
                NOSPC,
                ROFS,
                MLINK,
                NAMETOOLONG,
                NOTEMPTY,
                DQUOT,
                STALE,
                BADHANDLE,
                NOTSUPP,
                SERVERFAULT
            ),
            Link => statuses!(
                IO,
                ACCES,
                EXIST,
                XDEV,
                NOTDIR,
                INVAL,
                NOSPC,
                ROFS,
                MLINK,
                NAMETOOLONG,
                DQUOT,
                STALE,
                BADHANDLE,
                NOTSUPP,
                SERVERFAULT
            ),
            Readdir => statuses!(
                IO,
                ACCES,
                NOTDIR,
                BAD_COOKIE,
                TOOSMALL,
                STALE,
                BADHANDLE,
                SERVERFAULT
            ),
            Readdirplus => statuses!(
                IO,
                ACCES,
                NOTDIR,
                BAD_COOKIE,
                TOOSMALL,
                STALE,
                BADHANDLE,
                NOTSUPP,
                SERVERFAULT
            ),
            Fsinfo | Pathconf => statuses!(STALE, BADHANDLE, SERVERFAULT),
        }
    }
}
