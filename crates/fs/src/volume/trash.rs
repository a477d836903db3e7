//! The trash of a volume.

use forebay_types::Inode;
use forebay_vfs::Result;

use super::Volume;
use crate::files::trash::{TrashEntry, TrashError, Wanted};

impl Volume {
    /// The next objects in the trash, those that end first, behind the one that ends at a time and has a number;
    /// `limit` at most. Less than that means that there are no more.
    ///
    /// # Errors
    ///
    /// If the metadata cannot be read.
    pub async fn trash_after(
        &self,
        after: Option<(u64, Inode)>,
        limit: usize,
    ) -> Result<Vec<TrashEntry>> {
        self.files.trash_after(after, limit).await
    }

    /// Brings objects back from the trash: to their places, or one file to the path `to`. Replaces nothing. Returns
    /// them, and the number of objects that stay in the trash because something else has their path. Stable when it
    /// returns.
    ///
    /// # Errors
    ///
    /// See [`TrashError`]. Of a directory some objects may be back then.
    pub async fn undelete(
        &self,
        wanted: &Wanted,
        to: Option<&[u8]>,
    ) -> std::result::Result<(Vec<TrashEntry>, u64), TrashError> {
        let restored = self.files.undelete(wanted, to).await?;
        self.files.stable(restored.end, self.commit).await?;
        match restored.stopped_by {
            None => Ok((restored.entries, restored.left)),
            Some(why) => Err(TrashError::Partly {
                back: restored.entries.len() as u64,
                why,
            }),
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
