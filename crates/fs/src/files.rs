//! Operations on files: NFS procedures, quotas, and paths, over the state, packs and the publisher.
//!
//! ```text
//!   names       LOOKUP, CREATE, MKDIR, SYMLINK, LINK, REMOVE, RENAME, READDIR
//!   attributes  GETATTR, SETATTR, ACCESS, READLINK
//!   data        WRITE, COMMIT
//!   read        READ; prefetch reads ahead
//!   durability  how safe a change is before it is answered
//!   quota       FSSTAT, and what operators set
//!   snapshots   making them
//!   graft       content that is in the bucket already, for a restore
//!   trash       what was removed and can be brought back
//!   healing     what the healer needs of files
//!   whereabouts where a file or tree is, for operators
//! ```

mod attributes;
mod data;
pub(crate) mod durability;
pub(crate) mod graft;
mod healing;
pub(crate) mod names;
mod paths;
mod prefetch;
pub(crate) mod quota;
pub(crate) mod read;
mod read_bytes;
pub(crate) mod snapshots;
mod spilled;
pub(crate) mod trash;
mod wanted_frames;
pub(crate) mod whereabouts;

use std::sync::Arc;

use forebay_pack_store::PackStore;
use tokio::sync::Semaphore;

use crate::damages::Damages;
use crate::fragments::Fragments;
use crate::publisher::Publisher;
use crate::state::State;

use read_bytes::ReadBytes;
/// How many trees are walked for operators at a time.
const WALKS: usize = 2;

/// The files of one volume.
pub(crate) struct Files {
    pub(crate) state: Arc<State>,
    packs: Arc<PackStore>,
    publisher: Arc<Publisher>,
    damages: Arc<Damages>,
    fragments: Arc<Fragments>,
    pub(crate) read_bytes: ReadBytes,
    /// Walks for operators: more wait.
    walks: Semaphore,
    /// Held from the look at the names of snapshots until a new one is recorded.
    making_snapshot: tokio::sync::Mutex<()>,
}

impl Files {
    pub(crate) fn new(
        state: Arc<State>,
        packs: Arc<PackStore>,
        publisher: Arc<Publisher>,
        damages: Arc<Damages>,
        fragments: Arc<Fragments>,
    ) -> Files {
        Files {
            state,
            packs,
            publisher,
            damages,
            fragments,
            read_bytes: ReadBytes::default(),
            walks: Semaphore::new(WALKS),
            making_snapshot: tokio::sync::Mutex::default(),
        }
    }
}
