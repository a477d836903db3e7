//! Operations on files: NFS procedures, quotas, and paths, over the state, packs and the publisher.
//!
//! ```text
//!   names       LOOKUP, CREATE, MKDIR, SYMLINK, LINK, REMOVE, RENAME, READDIR
//!   attributes  GETATTR, SETATTR, ACCESS, READLINK
//!   data        WRITE, COMMIT
//!   read        READ; prefetch reads ahead
//!   durability  how safe a change is before it is answered
//!   quota       FSSTAT, and what operators set
//!   healing     what the healer needs of files
//! ```

mod attributes;
mod data;
pub(crate) mod durability;
mod healing;
pub(crate) mod names;
mod paths;
mod prefetch;
pub(crate) mod quota;
mod read;
mod read_bytes;

use std::sync::Arc;

use forebay_pack_store::PackStore;

use crate::damages::Damages;
use crate::publisher::Publisher;
use crate::state::State;

use read_bytes::ReadBytes;

/// The files of one volume.
pub(crate) struct Files {
    pub(crate) state: Arc<State>,
    packs: Arc<PackStore>,
    publisher: Arc<Publisher>,
    damages: Arc<Damages>,
    pub(crate) read_bytes: ReadBytes,
}

impl Files {
    pub(crate) fn new(
        state: Arc<State>,
        packs: Arc<PackStore>,
        publisher: Arc<Publisher>,
        damages: Arc<Damages>,
    ) -> Files {
        Files {
            state,
            packs,
            publisher,
            damages,
            read_bytes: ReadBytes::default(),
        }
    }
}
