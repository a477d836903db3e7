//! Deletions over a bucket and metadata in memory, step by step.

use std::time::Duration;

use forebay_meta::record::{HeldPack, Holding, PackLife};
use forebay_meta::volume::notes::CloneNote;
use forebay_meta::{Batch, Key};
use forebay_types::{PackId, VolumeId};
use tokio::time::Instant;

use super::*;
use crate::publisher::{BetweenCheckpoints, Committer};
use crate::testing::World;

const SNAPSHOT: SnapshotId = SnapshotId(1);

fn record() -> SnapshotRecord {
    SnapshotRecord {
        is_being_deleted: false,
        commit: CommitNumber(3),
        lsn: Lsn(0),
        used_bytes: 0,
        used_inodes: 0,
        made: Timestamp::default(),
        name: "monday".to_owned(),
        made_by: String::new(),
    }
}

/// The life of a pack that the snapshot refers to.
fn life() -> PackLife {
    PackLife {
        born: CommitNumber(1),
        died: CommitNumber(5),
        bytes: 10,
    }
}

fn snapshots(world: &World) -> Snapshots {
    Snapshots::new(Context {
        store: world.store.clone(),
        volume: VolumeId([1; 16]),
        packs: world.packs.clone(),
        catalog: world.catalog.clone(),
        list: Arc::new(SnapshotList::new(
            1,
            Default::default(),
            [(SNAPSHOT, record())],
        )),
        progress: world.progress.clone(),
        signals: world.signals.clone(),
    })
}

/// A snapshot that holds a pack.
async fn publish(world: &World) {
    let (store, mut batch) = (world.catalog.store(), Batch::new());
    batch.put(&Key::Snapshot(SNAPSHOT), &record());
    let held = HeldPack {
        holder: SNAPSHOT,
        life: life(),
    };
    batch.put(&Key::HeldPack(PackId(7)), &held);
    batch.put(&Key::Holding(SNAPSHOT, PackId(7)), &Holding);
    store.commit(&batch).await.unwrap();
    store.keep(&kept_name(SNAPSHOT)).await.unwrap();
}

/// A note on a clone that is being made, or is gone.
fn note() -> CloneNote {
    CloneNote {
        clone: VolumeId([2; 16]),
        at: "clone".to_owned(),
        snapshot: SNAPSHOT,
        name: "monday".to_owned(),
        made: 0,
    }
}

async fn is_kept(world: &World) -> bool {
    let kept = world.catalog.store().kept().await.unwrap();
    kept.contains(&kept_name(SNAPSHOT))
}

/// Steps until there is nothing to do.
async fn steps(snapshots: &Snapshots, committer: &Committer) {
    while snapshots.has_work() {
        snapshots.step(committer).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_beside_a_clone_goes_on_soon_after_the_clone_is_gone() {
    let world = World::new(|_| {});
    publish(&world).await;
    let (snapshots, committer) = (snapshots(&world), world.committer(Vec::new()));
    snapshots.ordered.lock().insert(SNAPSHOT);
    snapshots.step(&committer).await.unwrap();
    assert!(!snapshots.context.list.has(SNAPSHOT), "it has begun");
    let (store, root) = (&world.store.store, &world.store.root);
    note().put(store, root).await.unwrap();
    for pause in [1, 2, 4] {
        steps(&snapshots, &committer).await;
        let due = Instant::now() + Duration::from_secs(pause);
        assert_eq!(snapshots.next_at(), Some(due));
        assert!(is_kept(&world).await);
        let holder = snapshots.context.list.holder(&life());
        assert_eq!(holder, Some(SNAPSHOT), "what dies now is held");
        tokio::time::advance(Duration::from_secs(pause)).await;
        assert!(snapshots.has_work());
    }
    note().remove(store, root).await.unwrap();
    steps(&snapshots, &committer).await;
    assert_eq!(snapshots.next_at(), None);
    assert_eq!(snapshots.context.list.len(), 0);
    assert!(!is_kept(&world).await);
    let key = Key::DeadPack(PackId(7));
    let dead = world.catalog.record::<forebay_meta::record::DeadPack>(&key);
    assert!(dead.await.unwrap().is_some(), "nothing holds its pack");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_whose_snapshot_no_clone_needs_waits_for_nothing() {
    let world = World::new(|_| {});
    publish(&world).await;
    let (snapshots, committer) = (snapshots(&world), world.committer(Vec::new()));
    snapshots.ordered.lock().insert(SNAPSHOT);
    snapshots.step(&committer).await.unwrap();
    let holder = || snapshots.context.list.holder(&life());
    assert_eq!(holder(), Some(SNAPSHOT), "a clone may have come first");
    snapshots.step(&committer).await.unwrap();
    assert_eq!((holder(), snapshots.next_at()), (None, None));
    steps(&snapshots, &committer).await;
    assert_eq!(snapshots.context.list.len(), 0);
}

#[tokio::test]
async fn a_deletion_reads_sixteen_notes_at_a_time_and_looks_at_no_clone_of_another_snapshot() {
    let world = World::new(|_| {});
    let (store, root) = (&world.store.store, &world.store.root);
    for number in 0..40 {
        let note = CloneNote {
            clone: VolumeId([number; 16]),
            at: format!("clone-{number}"),
            snapshot: SnapshotId(1 + u64::from(number % 10)),
            ..note()
        };
        note.put(store, root).await.unwrap();
    }
    let gate = &world.faults.everything;
    let before = gate.arrived();
    gate.close();
    let store = world.store.clone();
    let asked = tokio::spawn(async move {
        let volume = VolumeId([1; 16]);
        holds::holders(&store, volume, SNAPSHOT).await.unwrap()
    });
    while gate.held() < 16 {
        tokio::task::yield_now().await;
    }
    gate.open();
    let holders = asked.await.unwrap();
    assert_eq!(holders, ["clone-0", "clone-10", "clone-20", "clone-30"]);
    assert_eq!(gate.most_held(), 16);
    assert_eq!(
        gate.arrived() - before,
        40 + 4,
        "each note, and four clones"
    );
}
