//! The trash: what was removed or replaced stays for a while, and can be brought back.
//!
//! ```text
//!   REMOVE, RMDIR, RENAME                      one record: the name goes, the object keeps its record without links,
//!      |                                       and an entry says where the name was           names/remove.rs
//!      v
//!   in the trash ---- undelete --------------> one record: a name, links, and no entry        restore.rs
//!      |       |
//!      |       +----- clients: `.trash` --------> reads, brings back, deletes for good           shown.rs
//!      |
//!      +---- its time is over, or room is needed --> one record: no object, and no entry       empty.rs
//!                                                   which room is needed                       room.rs
//! ```
//!
//! Directories go there as well, so that files which were in them find their path again ([`list`]). Objects in the
//! trash count in an account of its own, and in no quota.

mod empty;
mod entries;
mod list;
mod newest;
mod restore;
mod room;
mod shown;

pub use list::{TrashEntry, TrashPage};
pub(crate) use restore::Restored;
pub use restore::Wanted;

use forebay_types::Inode;
use forebay_vfs::Error;

use crate::display_path::DisplayPath;
pub(crate) use room::ENTRY_BYTES;

/// Why something cannot be brought back from the trash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrashError {
    /// Nothing with this path is there.
    #[error("nothing in the trash was at {0} or below it; `forebay undelete` lists all")]
    NotFound(DisplayPath),
    /// No object with this number is there.
    #[error("object {0} is not in the trash; `forebay undelete` lists all")]
    NoSuchId(Inode),
    /// Something else has its path.
    #[error("{0} exists: give another path with --to")]
    Exists(DisplayPath),
    /// Its directory is gone, and not in the trash either.
    #[error("the directory of {0} is gone: give a path with --to")]
    NoPath(DisplayPath),
    /// A directory of the path to which it should go does not exist.
    #[error(
        "there is no directory for {0} in the volume; paths begin at the volume's root, not at a mount point"
    )]
    NoDirectory(DisplayPath),
    /// A path is given for more than one file.
    #[error("that is a directory with files below it: --to takes one file")]
    ToManyFiles,
    /// Some are back, and the rest is not.
    #[error("{back} of the objects came back; the others stay in the trash: {why}")]
    Partly {
        /// Number of objects that are back.
        back: u64,
        /// Why the others are not.
        why: String,
    },
    /// The volume could not do it.
    #[error("the volume cannot do it now: {0}; see `forebay status` and the gateway's messages")]
    Volume(#[from] Error),
}
