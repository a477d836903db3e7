//! Making a volume.

use std::sync::Arc;

use forebay_environment::{Environment, draw};
use forebay_meta::record::{Content, Directory, InodeRecord, VolumeState};
use forebay_meta::volume::keys::{self, Expected, VolumeKeys};
use forebay_meta::volume::{Protection, VolumeError};
use forebay_meta::{Batch, Key, MetaStore, StoreError, VolumeDescriptor};
use forebay_object::Store;
use forebay_types::{BLOCK_SIZE, Epoch, Inode, Lsn, VolumeId};
use futures_util::future::join;

use super::OpenError;
use forebay_view::convert;

/// A volume that was made, whose first state is not in the bucket yet.
pub(crate) struct Made {
    pub(super) descriptor: VolumeDescriptor,
    pub(super) keys: VolumeKeys,
    pub(crate) first: FirstState,
}

/// The first state of a volume. The opening commits it together with its epoch.
#[derive(Clone)]
pub(crate) struct FirstState {
    /// Open for writing.
    pub(super) meta: Arc<dyn MetaStore>,
    pub(super) state: VolumeState,
    /// All entries, `state` among them.
    pub(super) entries: Batch,
}

impl FirstState {
    async fn commit(&self) -> Result<(), StoreError> {
        self.meta.commit(&self.entries).await
    }

    /// Commits the state if the opening failed before it did, so that the next start finds a volume. Best effort: without the
    /// state the next start says how to make the volume once more.
    pub(crate) async fn commit_if_missing(&self) {
        let found = self.meta.get(&Key::Volume.encode()).await;
        let committed = match found {
            Ok(None) => self.commit().await,
            found => found.map(drop),
        };
        if let Err(error) = committed {
            tracing::warn!(
                "the volume was made, but its first state is not in the bucket: {error}"
            );
        }
    }
}

/// Makes the prefix of `store` a volume with an empty root directory; sealed if `expected` says so.
pub(crate) async fn format(
    store: &Store,
    environment: &Environment,
    expected: &Expected,
) -> Result<VolumeId, OpenError> {
    let made = make(store, environment, expected, 0).await?;
    made.first.commit().await?;
    made.first.meta.close().await?;
    Ok(made.descriptor.volume)
}

/// The same without the commit of the first state, which the caller has to make. The metadata have a cache of `cache_bytes` for
/// reads.
pub(crate) async fn make(
    store: &Store,
    environment: &Environment,
    expected: &Expected,
    cache_bytes: u64,
) -> Result<Made, OpenError> {
    let now = environment.clock.now();
    let descriptor = VolumeDescriptor {
        volume: VolumeId(draw(&*environment.random)),
        created: now.seconds.unsigned_abs(),
        block_size: BLOCK_SIZE,
        protection: match expected {
            Expected::NotSealed => Protection::None {
                hash_key: draw(&*environment.random),
            },
            Expected::Sealed(_) => Protection::Aes256Gcm,
        },
        origin: None,
    };
    let at = |error: VolumeError| error.at(&store.url);
    let VolumeDescriptor {
        volume, created, ..
    } = descriptor;
    // Before anything is in the bucket, because a key service may refuse.
    let ring = match expected {
        Expected::Sealed(unlock) => Some(keys::make(volume, created, unlock).await.map_err(at)?),
        Expected::NotSealed => None,
    };
    let create = VolumeDescriptor::create(&store.store, &store.root, &descriptor);
    let (created, ()) = join(create, environment.metadata.look_ahead(store)).await;
    created.map_err(at)?;
    if let Some(ring) = ring {
        // Before anything sealed is stored: everything in the bucket can always be opened.
        keys::create(&store.store, &store.root, ring)
            .await
            .map_err(at)?;
    }
    let keys = VolumeKeys::load(&store.store, &store.root, &descriptor, expected, 0)
        .await
        .map_err(at)?;
    let meta = environment
        .metadata
        .open(store, cache_bytes, keys.sealing())
        .await?;
    let now = convert::record_time(now);
    let root = InodeRecord {
        content: Content::Directory(Directory {
            parent: Inode::ROOT,
            next_cookie: convert::FIRST_COOKIE,
            entries: 0,
        }),
        mode: 0o755,
        uid: 0,
        gid: 0,
        nlink: 2,
        size: 0,
        used: 0,
        atime: now,
        mtime: now,
        ctime: now,
        create_verifier: None,
        tree: None,
        truncated: Default::default(),
    };
    let state = VolumeState {
        published: Lsn::ZERO,
        epoch: Epoch(0),
        gateway: [0; 16],
        next_inode: Inode::ROOT.0 + 1,
        inode_lease: Some(0),
        next_pack: 1,
        used_bytes: 0,
        used_inodes: 1,
        charged_bytes: Some(0),
        history: Default::default(),
        trash: Default::default(),
    };
    let mut entries = Batch::new();
    entries.put(&Key::Inode(Inode::ROOT), &root);
    entries.put(&Key::Volume, &state);
    Ok(Made {
        descriptor,
        keys,
        first: FirstState {
            meta,
            state,
            entries,
        },
    })
}
