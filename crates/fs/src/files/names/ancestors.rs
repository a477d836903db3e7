//! Moves of directories, and the check that they make no ring.
//!
//! A directory must not be moved to itself or below itself, so a move has to know all ancestors of its new place, up
//! to the root. That is a walk over all levels, and each of them may need a look-up in the metadata; so it is
//! made without any lock, and is valid as long as none of the directories that it found has moved since.
//!
//! ```text
//!   walk up from the new place    count the moves, then read the parent of each directory
//!   make the move                 with the moves locked: was one of these directories moved since? Then walk again
//! ```
//!
//! Moves elsewhere in the volume invalidate no walk. The lock is held for as long as a record takes to be appended.

use std::sync::Arc;

use forebay_types::Inode;
use forebay_vfs::{Error, Result};

use crate::files::Files;
use crate::state::{Ancestors, Node};

/// Directories that may lie above the place that a directory is moved to. A path of PATH_MAX (4096) bytes has half as many.
const MAX_DEPTH: usize = 4096;

/// After how many levels a walk lets others go on.
const LEVELS_AT_ONCE: usize = 64;

impl Files {
    /// Walks from a directory up to the root. [`Error::NameTooLong`] where that is more than [`MAX_DEPTH`] levels away.
    pub(crate) async fn ancestors(&self, directory: &Arc<Node>) -> Result<Ancestors> {
        let moves = self.state.moves.lock().count;
        let mut inodes = vec![directory.inode];
        let mut node = directory.clone();
        while node.inode != Inode::ROOT {
            if inodes.len() > MAX_DEPTH {
                return Err(Error::NameTooLong);
            }
            if inodes.len() % LEVELS_AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
            let parent = node
                .lock_directory()?
                .record
                .directory()
                .map(|own| own.parent)
                .ok_or(Error::NotDirectory)?;
            inodes.push(parent);
            node = self.state.node(parent).await?;
        }
        inodes.sort_unstable();
        Ok(Ancestors { inodes, moves })
    }
}
