//! `nfsstat3` (RFC 1813, section 2.6).

use forebay_vfs::Error;

/// Result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u32);

impl Status {
    pub(crate) const OK: Status = Status(0);
    pub(crate) const ACCES: Status = Status(13);
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
