//! The control socket in its folder, and the lock on that folder.

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

const SOCKET: &str = "control.sock";
const LOCK: &str = "control.lock";

/// Maximum length of a path in a socket address on Linux, without the terminating zero.
const ADDRESS_LIMIT: usize = 107;

/// Why a gateway cannot use a folder.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another gateway uses it.
    #[error(
        "another gateway uses {}; stop it, or give this one a folder of its own with --data-dir",
        .0.display()
    )]
    InUse(PathBuf),
    /// Its name is taken by something that is not a socket.
    #[error("{} is not a socket; move it away", .0.display())]
    NotASocket(PathBuf),
    /// The system refuses.
    #[error("cannot use {path}: {error}", path = path.display())]
    Io {
        /// The folder or a file in it.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
}

/// A gateway's lock on its folder: while this lives, no other gateway gets one.
#[derive(Debug)]
pub(super) struct FolderLock {
    socket: PathBuf,
    /// Locked until it is closed, for example by the end of the process.
    _lock: File,
}

impl FolderLock {
    /// Takes the folder, creating it if it does not exist, and listens there.
    pub(super) fn take(data_dir: &Path) -> Result<(FolderLock, UnixListener), FolderError> {
        let in_folder = failed(data_dir);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(data_dir)
            .map_err(in_folder)?;

        let path = data_dir.join(LOCK);
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(failed(&path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(FolderError::InUse(data_dir.to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed(&path)(error)),
        }

        // With the lock held, an existing socket belongs to no process.
        let socket = data_dir.join(SOCKET);
        match fs::symlink_metadata(&socket) {
            Ok(there) if there.file_type().is_socket() => {
                fs::remove_file(&socket).map_err(failed(&socket))?;
            }
            Ok(_) => return Err(FolderError::NotASocket(socket)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(&socket)(error)),
        }
        let address = Address::of(data_dir).map_err(failed(&socket))?;
        let listener = UnixListener::bind(&address.path).map_err(failed(&socket))?;
        let folder_lock = FolderLock {
            socket,
            _lock: lock,
        };
        // A client that connects before this is refused by the check of the peer's user.
        fs::set_permissions(&folder_lock.socket, Permissions::from_mode(0o600))
            .map_err(failed(&folder_lock.socket))?;
        Ok((folder_lock, listener))
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // If it stays, the next gateway removes it.
        let _ = fs::remove_file(&self.socket);
    }
}

/// Connects to the gateway that uses the folder.
pub(super) async fn connect(data_dir: &Path) -> io::Result<UnixStream> {
    let address = Address::of(data_dir)?;
    UnixStream::connect(&address.path).await
}

/// The socket's path, short enough for a socket address.
struct Address {
    path: PathBuf,
    /// Kept open while the path leads through it.
    _folder: Option<File>,
}

impl Address {
    fn of(data_dir: &Path) -> io::Result<Address> {
        let path = data_dir.join(SOCKET);
        if path.as_os_str().len() <= ADDRESS_LIMIT {
            return Ok(Address {
                path,
                _folder: None,
            });
        }
        let folder = File::open(data_dir)?;
        let path = format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()).into();
        Ok(Address {
            path,
            _folder: Some(folder),
        })
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    move |error| FolderError::Io {
        path: path.to_owned(),
        error,
    }
}
