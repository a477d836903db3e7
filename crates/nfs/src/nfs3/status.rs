//! `nfsstat3` (RFC 1813, section 2.6).

use forebay_vfs::Error;

/// Result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u32);

/// The names of all values of `nfsstat3` but NFS3_OK, as metrics have them.
pub fn status_names() -> impl Iterator<Item = &'static str> {
    Status::NAMES.iter().map(|(_, name)| *name)
}

impl Status {
    /// All values with their names (RFC 1813, section 2.6), but for NFS3_OK.
    pub(crate) const NAMES: [(u32, &str); 28] = [
        (1, "NFS3ERR_PERM"),
        (2, "NFS3ERR_NOENT"),
        (5, "NFS3ERR_IO"),
        (6, "NFS3ERR_NXIO"),
        (13, "NFS3ERR_ACCES"),
        (17, "NFS3ERR_EXIST"),
        (18, "NFS3ERR_XDEV"),
        (19, "NFS3ERR_NODEV"),
        (20, "NFS3ERR_NOTDIR"),
        (21, "NFS3ERR_ISDIR"),
        (22, "NFS3ERR_INVAL"),
        (27, "NFS3ERR_FBIG"),
        (28, "NFS3ERR_NOSPC"),
        (30, "NFS3ERR_ROFS"),
        (31, "NFS3ERR_MLINK"),
        (63, "NFS3ERR_NAMETOOLONG"),
        (66, "NFS3ERR_NOTEMPTY"),
        (69, "NFS3ERR_DQUOT"),
        (70, "NFS3ERR_STALE"),
        (71, "NFS3ERR_REMOTE"),
        (10001, "NFS3ERR_BADHANDLE"),
        (10002, "NFS3ERR_NOT_SYNC"),
        (10003, "NFS3ERR_BAD_COOKIE"),
        (10004, "NFS3ERR_NOTSUPP"),
        (10005, "NFS3ERR_TOOSMALL"),
        (10006, "NFS3ERR_SERVERFAULT"),
        (10007, "NFS3ERR_BADTYPE"),
        (10008, "NFS3ERR_JUKEBOX"),
    ];

    pub(crate) const OK: Status = Status(0);
    pub(crate) const ACCES: Status = Status(13);
    pub(crate) const EXIST: Status = Status(17);
    pub(crate) const XDEV: Status = Status(18);
    pub(crate) const INVAL: Status = Status(22);
    pub(crate) const FBIG: Status = Status(27);
    pub(crate) const ROFS: Status = Status(30);
    pub(crate) const NAMETOOLONG: Status = Status(63);
    pub(crate) const STALE: Status = Status(70);
    pub(crate) const BADHANDLE: Status = Status(10001);
    pub(crate) const TOOSMALL: Status = Status(10005);
    pub(crate) const BADTYPE: Status = Status(10007);
    pub(crate) const JUKEBOX: Status = Status(10008);
}

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        match error {
            Error::NotOwner => Status(1),
            Error::NotFound => Status(2),
            Error::Io => Status(5),
            Error::Access => Status::ACCES,
            Error::Exists => Status(17),
            Error::CrossDevice => Status::XDEV,
            Error::NotDirectory => Status(20),
            Error::IsDirectory => Status(21),
            Error::Invalid => Status::INVAL,
            Error::FileTooLarge => Status::FBIG,
            Error::NoSpace => Status(28),
            Error::ReadOnly => Status::ROFS,
            Error::TooManyLinks => Status(31),
            Error::NameTooLong => Status::NAMETOOLONG,
            Error::NotEmpty => Status(66),
            Error::Quota => Status(69),
            Error::Stale => Status::STALE,
            Error::BadHandle => Status::BADHANDLE,
            Error::NotSync => Status(10002),
            Error::NotSupported => Status(10004),
            Error::BadType => Status::BADTYPE,
            // The operation was not executed; the client waits and retries.
            Error::Delay => Status::JUKEBOX,
        }
    }
}
