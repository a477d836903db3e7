//! The trash of a volume.

use forebay_types::Inode;
use forebay_vfs::{
    Access, Attributes, Change, Credentials, DirectoryEntry, ReadReply, Result, Timestamp,
};
use tokio::sync::mpsc;

use super::Volume;
use crate::files::read::Place;
use crate::files::trash::{Restored, TrashEntry, TrashError, TrashPage, Wanted};

/// What an undelete has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undeleted {
    /// Objects that are back.
    pub objects: u64,
    /// Objects that stay in the trash because something else has their path.
    pub left: u64,
}

impl Volume {
    /// The next objects in the trash, those that end first, behind the one that ends at a time and has a number;
    /// `limit` at most, and fewer where paths are long.
    ///
    /// # Errors
    ///
    /// If the metadata cannot be read.
    pub async fn trash_after(
        &self,
        after: Option<(u64, Inode)>,
        limit: usize,
    ) -> Result<TrashPage> {
        self.files.trash_after(after, limit).await
    }

    /// Brings objects back from the trash: to their places, or one file to the path `to`. Replaces nothing. Sends each with the path
    /// that it has now, and waits while `back` is full. Stable when it returns.
    ///
    /// # Errors
    ///
    /// See [`TrashError`]. Of a directory some objects may be back then.
    pub async fn undelete(
        &self,
        wanted: &Wanted,
        to: Option<&[u8]>,
        back: &mpsc::Sender<TrashEntry>,
    ) -> std::result::Result<Undeleted, TrashError> {
        let restored = self.files.undelete(wanted, to, back).await?;
        self.files.stable(restored.end, self.commit).await?;
        let Restored { objects, left, .. } = restored;
        say(wanted, to, objects, left);
        match restored.stopped_by {
            None => Ok(Undeleted { objects, left }),
            Some(why) => Err(TrashError::Partly { back: objects, why }),
        }
    }

    /// Deletes everything in the trash that has to leave now. Returns the number of objects. A task does this as well.
    ///
    /// # Errors
    ///
    /// If the metadata cannot be read, or the volume takes no change now.
    pub async fn empty_trash(&self) -> Result<u64> {
        self.files.empty_trash().await
    }
}

/// Logs what is back.
fn say(wanted: &Wanted, to: Option<&[u8]>, objects: u64, left: u64) {
    let what = match wanted {
        Wanted::Id(inode) => format!("fileid {inode}"),
        Wanted::Path(path) => path.escape_ascii().to_string(),
    };
    let to = to.map_or(String::new(), |to| format!(" as {}", to.escape_ascii()));
    let left = match left {
        0 => String::new(),
        left => format!("; {left} stay there, since something else has their path"),
    };
    tracing::info!("{what} is back from the trash{to}: {objects} files and directories{left}");
}

impl forebay_vfs::Trash for Volume {
    fn trash_changed(&self) -> Timestamp {
        self.rooms.state.trash.changed()
    }

    async fn getattr_removed(&self, inode: Inode) -> Result<Attributes> {
        self.files.getattr_removed(inode).await
    }

    async fn lookup_removed(
        &self,
        caller: &Credentials,
        below: Inode,
        name: &[u8],
    ) -> Result<Attributes> {
        self.files.lookup_removed(caller, below, name).await
    }

    async fn access_removed(
        &self,
        caller: &Credentials,
        inode: Inode,
        wanted: Access,
    ) -> Result<(Access, Attributes)> {
        self.files.access_removed(caller, inode, wanted).await
    }

    async fn read_removed(
        &self,
        caller: &Credentials,
        inode: Inode,
        offset: u64,
        count: u32,
    ) -> Result<ReadReply> {
        let wanted = (offset, count);
        let read = self.files.read(caller, inode, wanted, Place::Trash).await?;
        let attributes = Attributes {
            nlink: 1,
            ..read.attributes
        };
        Ok(ReadReply { attributes, ..read })
    }

    async fn list_removed(
        &self,
        caller: &Credentials,
        below: Inode,
        after: Inode,
        max: usize,
    ) -> Result<(Vec<DirectoryEntry>, bool)> {
        self.files.list_removed(caller, below, after, max).await
    }

    async fn delete_removed(&self, caller: &Credentials, below: Inode, name: &[u8]) -> Result<()> {
        let deleted = self.files.delete_removed(caller, below, name).await?;
        self.settle_once(deleted).await
    }

    async fn bring_back(
        &self,
        caller: &Credentials,
        from: (Inode, &[u8]),
        to: (Inode, &[u8]),
    ) -> Result<Change> {
        let back = self.files.bring_back(caller, from, to).await?;
        self.settle_once(back).await
    }
}
