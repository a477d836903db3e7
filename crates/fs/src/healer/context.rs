//! The parts of other rooms that the healer needs.

use std::collections::BTreeMap;

use async_trait::async_trait;
use forebay_types::Inode;
use forebay_vfs::Result;

use crate::damages::{BlockFrame, DamageState};

/// The files whose frames are healed.
#[async_trait]
pub(crate) trait Context: Send + Sync {
    /// Marks the available bytes of a damaged frame as dirty, so that they are uploaded with the next checkpoint.
    ///
    /// # Errors
    /// [`Error::Delay`](forebay_vfs::Error::Delay) if it should be tried again later; others if the metadata cannot
    /// be read.
    async fn heal(&self, place: &BlockFrame) -> Result<DamageState>;

    /// A path from the volume's root for each of the objects that has one.
    ///
    /// # Errors
    /// When the names cannot be read.
    async fn paths_of(&self, inodes: &[Inode]) -> Result<BTreeMap<Inode, Vec<u8>>>;
}

#[cfg(test)]
pub(super) mod fake {
    use parking_lot::Mutex;

    use super::*;

    /// Files that answer from a list, and count the calls.
    #[derive(Default)]
    pub(in crate::healer) struct FakeFiles {
        /// The answers to `heal`, the last one first; [`DamageState::Lost`] when there is none.
        pub(in crate::healer) answers: Mutex<Vec<Result<DamageState>>>,
        pub(in crate::healer) healed: Mutex<Vec<BlockFrame>>,
        pub(in crate::healer) searches: Mutex<u32>,
    }

    #[async_trait]
    impl Context for FakeFiles {
        async fn heal(&self, place: &BlockFrame) -> Result<DamageState> {
            self.healed.lock().push(*place);
            self.answers.lock().pop().unwrap_or(Ok(DamageState::Lost))
        }

        async fn paths_of(&self, inodes: &[Inode]) -> Result<BTreeMap<Inode, Vec<u8>>> {
            *self.searches.lock() += 1;
            let named = inodes.iter().map(|inode| (*inode, b"/file".to_vec()));
            Ok(named.collect())
        }
    }
}
