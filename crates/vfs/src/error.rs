//! What can go wrong, named by what the client is to be told.

/// Answer of a file system operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation was not done. Each is one POSIX error and, but for [`Error::Delay`] and
/// [`Error::BadHandle`], one of RFC 1813's `nfsstat3` (section 2.6); front ends translate in one
/// place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// EPERM: only the owner, or only root, may do this.
    #[error("not owner")]
    NotOwner,
    /// ENOENT.
    #[error("no such file or directory")]
    NotFound,
    /// EIO: the bytes cannot be had or kept; the operator finds why in the log of the program.
    #[error("input/output error")]
    Io,
    /// EACCES.
    #[error("permission denied")]
    Access,
    /// EEXIST.
    #[error("file exists")]
    Exists,
    /// EXDEV.
    #[error("cross-device link")]
    CrossDevice,
    /// ENOTDIR.
    #[error("not a directory")]
    NotDirectory,
    /// EISDIR.
    #[error("is a directory")]
    IsDirectory,
    /// EINVAL.
    #[error("invalid argument")]
    Invalid,
    /// EFBIG.
    #[error("file too large")]
    FileTooLarge,
    /// ENOSPC: the quota or the volume is really full.
    #[error("no space left")]
    NoSpace,
    /// EROFS.
    #[error("read-only file system")]
    ReadOnly,
    /// EMLINK.
    #[error("too many links")]
    TooManyLinks,
    /// ENAMETOOLONG.
    #[error("name too long")]
    NameTooLong,
    /// ENOTEMPTY.
    #[error("directory not empty")]
    NotEmpty,
    /// EDQUOT.
    #[error("quota exceeded")]
    Quota,
    /// ESTALE: the object of this handle is gone.
    #[error("stale file handle")]
    Stale,
    /// The handle was not made by this volume.
    #[error("bad file handle")]
    BadHandle,
    /// The guard of a SETATTR did not match the object's ctime.
    #[error("attributes changed meanwhile")]
    NotSync,
    /// The operation is not supported on this object.
    #[error("operation not supported")]
    NotSupported,
    /// MKNOD of a kind that it cannot make.
    #[error("bad type")]
    BadType,
    /// Not now: ask again later (NFS3ERR_JUKEBOX).
    #[error("try again later")]
    Delay,
}
