//! The scrub over a bucket and metadata in memory, without a volume.

use bytes::Bytes;
use forebay_pack::object_name;
use forebay_types::{BlockIndex, BlockKey};
use object_store::ObjectStoreExt;
use object_store::path::Path;

use super::*;
use crate::testing::World;

fn block(inode: u64) -> BlockKey {
    BlockKey {
        inode: Inode(inode),
        block: BlockIndex(0),
    }
}

fn scrub(world: &World) -> Arc<Scrub> {
    Arc::new(Scrub::new(Context {
        interval: Duration::ZERO,
        rate: 1 << 30,
        environment: world.environment.clone(),
        catalog: world.catalog.clone(),
        packs: world.packs.clone(),
        memory: world.memory.clone(),
        damages: world.damages.clone(),
        progress: world.progress.clone(),
    }))
}

/// A pack of two frames of different files, both in use.
async fn pack(world: &World, pack: PackId) {
    let blocks = [
        (block(2 * pack.0), vec![1; 5000]),
        (block(2 * pack.0 + 1), vec![2; 5000]),
    ];
    let frames = world.put_pack(pack, &blocks).await;
    let frames: Vec<_> = blocks.iter().map(|(key, _)| *key).zip(frames).collect();
    world.publish_pack(pack, &frames, |_| true).await;
}

/// Changes one byte of a pack's object.
async fn damage(world: &World, pack: PackId, at: usize) {
    let store = &world.store.store;
    let path = Path::from(object_name(pack));
    let mut bytes = store
        .get(&path)
        .await
        .unwrap()
        .bytes()
        .await
        .unwrap()
        .to_vec();
    bytes[at] ^= 1;
    store.put(&path, Bytes::from(bytes).into()).await.unwrap();
}

async fn round(scrub: &Arc<Scrub>) -> ScrubEnd {
    scrub.start(Duration::ZERO).unwrap();
    loop {
        if let Some(end) = scrub.status().await.unwrap().last {
            return end;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_round_finds_the_damaged_frame_and_has_every_check_committed() {
    let world = World::new(|_| {});
    pack(&world, PackId(1)).await;
    pack(&world, PackId(2)).await;
    damage(&world, PackId(2), 300).await;
    let scrub = scrub(&world);
    let task = tokio::spawn(scrub.clone().run_forever());
    let end = round(&scrub).await;
    assert_eq!((end.packs, end.damaged, end.cut_short), (2, 1, None));
    let (damaged, _) = world.damages.list();
    assert_eq!(damaged.len(), 1);
    assert_eq!(damaged[0].inode, Inode(4));
    assert!(
        scrub.has_records_due(),
        "the end of a round is written down"
    );
    let mut batch = Batch::new();
    scrub.before_commit(&mut batch, &BTreeSet::new());
    assert_eq!(batch.len(), 2);
    scrub.committed(&[], &BTreeSet::new());
    let mut again = Batch::new();
    scrub.before_commit(&mut again, &BTreeSet::new());
    assert!(again.is_empty(), "each is committed once");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn the_frames_of_a_missing_pack_are_damaged() {
    let world = World::new(|_| {});
    pack(&world, PackId(1)).await;
    world.packs.delete(PackId(1)).await.unwrap();
    let scrub = scrub(&world);
    let task = tokio::spawn(scrub.clone().run_forever());
    scrub.pack_missing(PackId(1));
    while world.damages.list().0.len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let end = round(&scrub).await;
    assert_eq!(end.damaged, 1);
    let status = scrub.status().await.unwrap();
    assert!(status.damaged_packs[0].missing);
    assert_eq!(
        status.damaged_packs[0].damaged_frames, 0,
        "it is missing as a whole"
    );
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_round_that_is_stopped_says_so() {
    let world = World::new(|_| {});
    pack(&world, PackId(1)).await;
    let scrub = scrub(&world);
    assert!(!scrub.stop(), "there is none");
    scrub.start(Duration::ZERO).unwrap();
    assert_eq!(scrub.start(Duration::ZERO), Err(ScrubRefusal::Running));
    assert!(scrub.stop());
    let status = scrub.status().await.unwrap();
    assert_eq!(status.last.unwrap().cut_short.as_deref(), Some(STOPPED));
}
