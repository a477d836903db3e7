//! The scrub over a bucket and metadata in memory, without a volume.

use bytes::Bytes;
use forebay_meta::record::{HeldPack, PackLife, SnapshotRecord};
use forebay_pack::object_name;
use forebay_types::{BlockIndex, BlockKey, CommitNumber, SnapshotId};
use object_store::ObjectStoreExt;
use object_store::path::Path;

use super::*;
use crate::damages::DamageState;
use crate::state::SnapshotList;
use crate::testing::{Idle, World};

fn block(inode: u64) -> BlockKey {
    BlockKey {
        inode: Inode(inode),
        block: BlockIndex(0),
    }
}

fn scrub(world: &World) -> Arc<Scrub> {
    scrub_with(world, snapshot())
}

fn scrub_with(world: &World, snapshot: (SnapshotId, SnapshotRecord)) -> Arc<Scrub> {
    Arc::new(Scrub::new(Context {
        interval: Duration::ZERO,
        rate: 1 << 30,
        environment: world.environment.clone(),
        catalog: world.catalog.clone(),
        packs: world.packs.clone(),
        memory: world.memory.clone(),
        foreground: Arc::new(Idle),
        sources: Default::default(),
        snapshots: Arc::new(SnapshotList::new(1, Default::default(), [snapshot])),
        damages: world.damages.clone(),
        late: Default::default(),
        progress: world.progress.clone(),
    }))
}

/// A published snapshot of commit 3.
fn snapshot() -> (SnapshotId, SnapshotRecord) {
    let record = SnapshotRecord {
        is_being_deleted: false,
        commit: CommitNumber(3),
        lsn: Default::default(),
        used_bytes: 0,
        used_inodes: 0,
        made: Default::default(),
        name: "monday".to_owned(),
        made_by: String::new(),
    };
    (SnapshotId(1), record)
}

/// A pack that the snapshot holds.
async fn held(world: &World, pack: PackId) {
    let blocks = [
        (block(2 * pack.0), vec![1; 5000]),
        (block(2 * pack.0 + 1), vec![2; 5000]),
    ];
    world.put_pack(pack, &blocks).await;
    let life = PackLife {
        born: CommitNumber(1),
        died: CommitNumber(5),
        bytes: world.pack_bytes(pack).await,
    };
    let mut batch = Batch::new();
    let holder = SnapshotId(1);
    batch.put(&Key::HeldPack(pack), &HeldPack { holder, life });
    world.catalog.store().commit(&batch).await.unwrap();
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

#[tokio::test(start_paused = true)]
async fn packs_that_only_snapshots_hold_are_read_back_and_their_damage_names_these() {
    let world = World::new(|_| {});
    pack(&world, PackId(1)).await;
    held(&world, PackId(2)).await;
    held(&world, PackId(3)).await;
    held(&world, PackId(4)).await;
    damage(&world, PackId(3), 300).await;
    world.packs.delete(PackId(4)).await.unwrap();
    let scrub = scrub(&world);
    let task = tokio::spawn(scrub.clone().run_forever());
    let end = round(&scrub).await;
    assert_eq!((end.packs, end.damaged, end.cut_short), (4, 2, None));
    let status = scrub.status().await.unwrap();
    assert_eq!((status.packs, status.held_packs, status.never), (4, 3, 0));
    let packs: Vec<_> = status
        .damaged_packs
        .iter()
        .map(|one| (one.pack.0, one.missing, one.is_held, one.snapshots.len()))
        .collect();
    assert_eq!(packs, [(3, false, true, 1), (4, true, true, 1)]);
    let [frame] = &status.damaged_frames[..] else {
        panic!("{:?}", status.damaged_frames);
    };
    assert_eq!((frame.state, frame.inode), (DamageState::Lost, Inode(6)));
    assert_eq!(frame.snapshots, ["monday"]);
    assert_eq!(world.damages.lost(), 2, "with the missing pack");
    let mut batch = Batch::new();
    scrub.before_commit(&mut batch, &[PackId(2)].into());
    assert_eq!(batch.len(), 3, "the snapshot of pack 2 is gone");
    scrub.committed(&[], &[PackId(3), PackId(4)].into());
    assert_eq!(world.damages.lost(), 0, "as those of the others");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_held_pack_that_goes_while_it_is_read_is_no_damage() {
    let world = World::new(|_| {});
    held(&world, PackId(2)).await;
    let scrub = scrub(&world);
    let life = scrub.known(PackId(2)).await.unwrap().unwrap();
    let due = Due {
        checked: None,
        pack: PackId(2),
        bytes: life.life.bytes,
        frames: life.frames,
    };
    let mut rate = RateLimit::new(1 << 30);
    // It goes between the look at its record and the first byte.
    world.packs.delete(PackId(2)).await.unwrap();
    let store = world.catalog.store();
    let verdict = scrub.verify(&due, &mut rate).await.unwrap();
    assert!(verdict.is_some(), "its record says that it should be there");
    let mut batch = Batch::new();
    batch.delete(&Key::HeldPack(PackId(2)));
    store.commit(&batch).await.unwrap();
    assert!(scrub.verify(&due, &mut rate).await.unwrap().is_none());
    let address = crate::publisher::address(&forebay_pack::FrameRef {
        pack: PackId(2),
        offset: 40,
        stored_len: 5128,
        start: 0,
        raw_len: 5000,
        crc32: 0,
    });
    let alone = scrub.check_alone(block(4), &address).await.unwrap();
    assert_eq!(alone, None);
    // It became live again, and is read as any other.
    pack(&world, PackId(2)).await;
    let verdict = scrub.verify(&due, &mut rate).await.unwrap().unwrap();
    assert!(verdict.blind.is_none() && verdict.damaged_frames == 0);
}

#[tokio::test(start_paused = true)]
async fn a_held_pack_with_many_frames_is_read_by_its_index() {
    let world = World::new(|_| {});
    let blocks: Vec<_> = (0..1000).map(|n| (block(n), vec![7; 50])).collect();
    world.put_pack(PackId(2), &blocks).await;
    let life = PackLife {
        born: CommitNumber(1),
        died: CommitNumber(5),
        bytes: world.pack_bytes(PackId(2)).await,
    };
    let mut batch = Batch::new();
    let holder = SnapshotId(1);
    batch.put(&Key::HeldPack(PackId(2)), &HeldPack { holder, life });
    world.catalog.store().commit(&batch).await.unwrap();
    damage(&world, PackId(2), 40 + 999 * 178 + 130).await;
    let scrub = scrub(&world);
    let task = tokio::spawn(scrub.clone().run_forever());
    assert_eq!(round(&scrub).await.damaged, 1);
    assert_eq!(world.damages.list().0[0].inode, Inode(999));
    task.abort();
}

/// A clone may need what a snapshot has that is being deleted.
#[tokio::test(start_paused = true)]
async fn packs_that_snapshots_hold_are_mended_while_these_are_being_deleted() {
    let world = World::new(|_| {});
    held(&world, PackId(2)).await;
    let path = Path::from(object_name(PackId(2)));
    let bytes = async || {
        let found = world.store.store.get(&path).await.unwrap();
        found.bytes().await.unwrap()
    };
    let good = bytes().await;
    damage(&world, PackId(2), 20).await;
    assert!(bytes().await != good);
    let (id, record) = snapshot();
    let record = SnapshotRecord {
        is_being_deleted: true,
        ..record
    };
    let scrub = scrub_with(&world, (id, record));
    let task = tokio::spawn(scrub.clone().run_forever());
    assert_eq!(round(&scrub).await.damaged, 0);
    assert!(bytes().await == good);
    assert!(scrub.status().await.unwrap().damaged_packs.is_empty());
    task.abort();
}
