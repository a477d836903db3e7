//! Packs whose records move while they are judged.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_meta::record::{PackLife, Record};
use forebay_meta::{Batch, Catalog, MemoryStore, MetaStore, Overlay};
use forebay_types::{BlockIndex, BlockKey, CommitNumber, Inode, SnapshotId};

use super::*;
use crate::collector::tests::context;
use crate::testing::World;

#[test]
fn there_are_two_looks_and_more_only_while_something_is_too_young() {
    let (now, grace) = (Instant::now(), Duration::from_secs(3600));
    let first = Looks::default();
    assert!(first.is_due(now));
    let second = first.next(false, now, grace);
    assert!(!second.is_due(now) && second.is_due(now + grace));
    let third = second.next(true, now + grace, grace);
    assert_eq!(third, Looks::Again(now + 2 * grace));
    let over = third.next(false, now + 2 * grace, grace);
    assert!(!over.is_due(now + 1000 * grace));
}

const PACK: PackId = PackId(1);

/// The record of the pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Account,
    Dead,
    Held,
}

impl Of {
    fn put(self, batch: &mut Batch) {
        let life = PackLife {
            born: CommitNumber(1),
            died: CommitNumber(5),
            bytes: 1,
        };
        match self {
            Of::Account => batch.put(
                &Key::Pack(PACK),
                &PackRecord {
                    bytes: 1,
                    raw_bytes: 1,
                    live_bytes: 1,
                    frames: 1,
                    born: CommitNumber(1),
                },
            ),
            Of::Dead => batch.put(&Key::DeadPack(PACK), &DeadPack { life: Some(life) }),
            Of::Held => {
                let holder = SnapshotId(1);
                batch.put(&Key::HeldPack(PACK), &HeldPack { holder, life });
            }
        }
    }

    fn key(self) -> Key {
        match self {
            Of::Account => Key::Pack(PACK),
            Of::Dead => Key::DeadPack(PACK),
            Of::Held => Key::HeldPack(PACK),
        }
    }
}

/// Metadata in which the record of the pack moves after a number of look-ups of one of its records.
struct Moving {
    inner: MemoryStore,
    from: Of,
    to: Of,
    left: AtomicUsize,
}

impl Moving {
    async fn new(from: Of, to: Of, looks: usize) -> Moving {
        let inner = MemoryStore::new();
        let mut batch = Batch::new();
        from.put(&mut batch);
        inner.commit(&batch).await.unwrap();
        Moving {
            inner,
            from,
            to,
            left: AtomicUsize::new(looks),
        }
    }

    async fn moves(&self) -> Result<(), StoreError> {
        let mut batch = Batch::new();
        batch.delete(&self.from.key());
        self.to.put(&mut batch);
        self.inner.commit(&batch).await
    }
}

#[async_trait]
impl MetaStore for Moving {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let found = self.inner.get(key).await?;
        let tags = [PackRecord::TAG, DeadPack::TAG, HeldPack::TAG];
        if key.first().is_some_and(|tag| tags.contains(tag))
            && self.left.fetch_sub(1, Ordering::SeqCst) == 1
        {
            self.moves().await?;
        }
        Ok(found)
    }

    async fn scan(
        &self,
        range: &KeyRange,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        self.inner.scan(range, limit).await
    }

    async fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.inner.commit(batch).await
    }

    async fn prove(&self) -> Result<(), StoreError> {
        self.inner.prove().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}

/// Whether a pack in the bucket counts as an orphan with these metadata.
async fn is_orphan(world: &World, store: Arc<dyn MetaStore>) -> bool {
    let collector = Collector::new(crate::collector::Context {
        catalog: Arc::new(Catalog::new(Arc::new(Overlay::new()), store)),
        ..context(world)
    });
    let suspect = Suspect {
        pack: PACK,
        bytes: world.pack_bytes(PACK).await,
    };
    let judged = collector.is_orphan(suspect, &mut Work::default()).await;
    judged.unwrap()
}

#[tokio::test]
async fn a_pack_that_becomes_live_again_or_is_held_while_it_is_judged_is_no_orphan() {
    let world = World::new(|_| {});
    let block = BlockKey {
        inode: Inode(3),
        block: BlockIndex(0),
    };
    world.put_pack(PACK, &[(block, vec![1; 100])]).await;
    assert!(is_orphan(&world, Arc::new(MemoryStore::new())).await);
    // A removal, what comes after it, the deletion of a snapshot, and the restores of a file.
    for (from, to) in [
        (Of::Account, Of::Dead),
        (Of::Dead, Of::Held),
        (Of::Held, Of::Dead),
        (Of::Held, Of::Account),
        (Of::Dead, Of::Account),
    ] {
        for looks in 1..=6 {
            let store = Moving::new(from, to, looks).await;
            let is_orphan = is_orphan(&world, Arc::new(store)).await;
            assert!(!is_orphan, "{from:?} to {to:?} after {looks} looks");
        }
    }
}
