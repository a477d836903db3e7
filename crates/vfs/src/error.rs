//! Errors, named by the status that the client receives.

/// Result of a file system operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation was not executed. Each is one POSIX error and, except for [`Error::Delay`] and
/// [`Error::BadHandle`], one of RFC 1813's `nfsstat3` (section 2.6); front ends translate them in one
/// place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// EPERM: only the owner, or only root, may do this.
    #[error("not owner")]
    NotOwner,
    /// ENOENT.
    #[error("no such file or directory")]
    NotFound,
    /// EIO: the bytes cannot be read or stored; the program's log has the cause, for the operator.
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
    /// ENOSPC: the quota or the volume is full.
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
    /// ESTALE: the object of this handle does not exist any more.
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
    /// MKNOD of a kind that cannot be made.
    #[error("bad type")]
    BadType,
    /// The operation cannot proceed now; the client retries later (NFS3ERR_JUKEBOX).
    #[error("try again later")]
    Delay,
}
