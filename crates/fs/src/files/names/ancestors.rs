//! Moves of directories, and the check that they make no cycle.
//!
//! A directory must not be moved to itself or below itself, so a move must know all ancestors of its new place, up to
//! the root. That is a walk over all levels, each of which may need a look-up in the metadata; so the walk holds no
//! lock, and is valid while none of the directories that it found has moved since.
//!
//! ```text
//!   walk up from the new place    count the moves, then read the parent of each directory
//!   make the move                 with the moves locked: was one of these directories moved since? Then walk again
//! ```
//!
//! Moves elsewhere in the volume invalidate no walk. The lock is held only while a record is appended.

use std::sync::Arc;

use forebay_types::Inode;
use forebay_vfs::{Error, Result};

use crate::files::Files;
use crate::state::{Ancestors, Node};

/// The most directories above the new place of a directory. A path of PATH_MAX (4096) bytes has half as many.
const MAX_DEPTH: usize = 4096;

/// After this many levels a walk yields to other tasks.
const LEVELS_AT_ONCE: usize = 64;

impl Files {
    /// Walks from a directory up to the root. [`Error::NameTooLong`] if that is more than [`MAX_DEPTH`] levels up.
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
