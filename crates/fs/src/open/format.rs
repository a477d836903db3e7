//! Making a volume.

use std::sync::Arc;

use forebay_environment::{Environment, draw};
use forebay_meta::record::{Content, Directory, InodeRecord, VolumeState};
use forebay_meta::volume::keys::{self, Expected, VolumeKeys};
use forebay_meta::volume::{Protection, VolumeError};
use forebay_meta::{Batch, Key, MetaStore, VolumeDescriptor};
use forebay_object::Store;
use forebay_types::{BLOCK_SIZE, Epoch, Inode, Lsn, VolumeId};

use super::OpenError;
use forebay_view::convert;

/// Makes the prefix of `store` a volume with an empty root directory; sealed if `expected` says so.
pub(crate) async fn format(
    store: &Store,
    environment: &Environment,
    expected: &Expected,
) -> Result<VolumeId, OpenError> {
    let (volume, meta) = make(store, environment, expected, 0).await?;
    meta.close().await?;
    Ok(volume)
}

/// The same; also returns its metadata, which are open for writing, with a cache of `cache_bytes` for reads.
pub(crate) async fn make(
    store: &Store,
    environment: &Environment,
    expected: &Expected,
    cache_bytes: u64,
) -> Result<(VolumeId, Arc<dyn MetaStore>), OpenError> {
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
    VolumeDescriptor::create(&store.store, &store.root, &descriptor)
        .await
        .map_err(at)?;
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
    let mut batch = Batch::new();
    batch.put(&Key::Inode(Inode::ROOT), &root);
    batch.put(&Key::Volume, &state);
    meta.commit(&batch).await?;
    Ok((descriptor.volume, meta))
}
