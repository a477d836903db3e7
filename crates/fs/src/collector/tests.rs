//! The collector over a bucket and metadata in memory, without a volume.

use forebay_meta::record::BlockMap;
use forebay_types::{BlockIndex, BlockKey, Inode};

use super::*;
use crate::fragments::Fragments;
use crate::state::SnapshotList;
use crate::testing::{Idle, World};

const OLD: PackId = PackId(1);
const FRAME: usize = 256 << 10;

fn block(inode: u64) -> BlockKey {
    BlockKey {
        inode: Inode(inode),
        block: BlockIndex(0),
    }
}

pub(super) fn context(world: &World) -> Context {
    Context {
        config: world.config.clone(),
        environment: world.environment.clone(),
        catalog: world.catalog.clone(),
        packs: world.packs.clone(),
        sharing: world.sharing.clone(),
        memory: world.memory.clone(),
        signals: world.signals.clone(),
        foreground: Arc::new(Idle),
        fragments: Arc::new(Fragments::new(None)),
        sources: Default::default(),
        snapshots: Arc::new(SnapshotList::new(0, Default::default(), [])),
        trouble: world.trouble.clone(),
        progress: world.progress.clone(),
    }
}

/// A pack of 16 frames, of which the one of `block(0)` is in use.
async fn sparse_pack(world: &World) -> AccountChange {
    let blocks: Vec<_> = (0..16).map(|n| (block(n), vec![n as u8; FRAME])).collect();
    let frames = world.put_pack(OLD, &blocks).await;
    let frames: Vec<_> = blocks.iter().map(|(key, _)| *key).zip(frames).collect();
    let record = world
        .publish_pack(OLD, &frames, |key| key == block(0))
        .await;
    AccountChange {
        pack: OLD,
        before: None,
        after: Some(record),
    }
}

async fn map(world: &World) -> BlockMap {
    let map = world.catalog.block_map(Inode(0), BlockIndex(0)).await;
    map.unwrap().unwrap()
}

/// Has the collector do its steps between checkpoints, as the publisher does, until its map refers to another pack.
async fn steps(world: &World, collector: &Collector, committer: &Committer) {
    while map(world).await.extents()[0].frame.pack == OLD {
        if collector.has_work() {
            collector.step(committer).await.unwrap();
        }
        collector.over();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn what_lives_of_a_sparse_pack_moves_to_a_new_one() {
    let world = World::new(|config| config.orphan_grace = Duration::from_secs(3600));
    // Reclaiming is the publisher's work, and there is no publisher here.
    world.progress.nothing_to_reclaim();
    let collector = Arc::new(Collector::new(context(&world)));
    let committer = world.committer(vec![collector.clone()]);
    let change = sparse_pack(&world).await;
    let task = tokio::spawn(collector.clone().run_forever());
    assert!(!collector.has_work(), "nothing before the first commit");
    collector.committed(&[change], &BTreeSet::new());
    steps(&world, &collector, &committer).await;
    let moved = map(&world).await;
    let new = moved.extents()[0].frame.pack;
    assert_eq!(moved.mapped_bytes(), FRAME as u64);
    let account = world.catalog.pack(new).await.unwrap().unwrap();
    assert_eq!(account.live_bytes, FRAME as u64);
    assert_eq!(world.catalog.pack(OLD).await.unwrap(), None, "it is dead");
    let status = collector.current_status();
    assert_eq!((status.rewritten, status.to_rewrite), (1, 0));
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn an_order_ends_an_outage_in_which_nobody_else_asks_for_anything() {
    let world = World::new(|config| config.orphan_grace = Duration::from_secs(3600));
    world.progress.nothing_to_reclaim();
    let collector = Arc::new(Collector::new(context(&world)));
    let committer = world.committer(vec![collector.clone()]);
    collector.committed(&[sparse_pack(&world).await], &BTreeSet::new());
    collector.step(&committer).await.unwrap();
    world.faults.set_down(true);
    while world.trouble.current().is_none() {
        assert!(world.packs.has(OLD).await.is_err());
    }
    assert!(!context(&world).may_collect(), "no probe is due");
    collector.collect_now().unwrap();
    let task = tokio::spawn(collector.clone().run_forever());
    collector.over();
    // More probes than a pack has attempts.
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(collector.current_status().left_alone, 0);
    world.faults.set_down(false);
    steps(&world, &collector, &committer).await;
    while collector.current_status().is_ordered {
        // Reclaiming is the publisher's work, and there is no publisher here.
        world.progress.nothing_to_reclaim();
        collector.over();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let status = collector.current_status();
    assert_eq!((status.rewritten, status.left_alone), (1, 0));
    assert_eq!(world.trouble.current(), None);
    task.abort();
}

#[tokio::test]
async fn it_does_nothing_while_writers_or_the_publisher_need_the_bucket() {
    let world = World::new(|_| {});
    let context = context(&world);
    assert!(!context.may_collect(), "there may be garbage to reclaim");
    world.progress.nothing_to_reclaim();
    assert!(context.may_collect());
    world.trouble.store_error("it does not answer");
    assert!(!context.may_collect());
    world.trouble.store_works();
    world.signals.stop_quietly();
    assert!(!context.may_collect());
}

#[tokio::test]
async fn a_pack_that_was_deleted_and_comes_back_is_deleted_again() {
    let world = World::new(|config| config.orphan_grace = Duration::ZERO);
    world.progress.nothing_to_reclaim();
    let collector = Arc::new(Collector::new(context(&world)));
    collector.put_in_doubt(OLD);
    collector.pack_deleted(OLD);
    // A late attempt to put the pack.
    world.put_pack(OLD, &[(block(0), vec![7; 100])]).await;
    let committer = world.committer(vec![collector.clone()]);
    let task = tokio::spawn(collector.clone().run_forever());
    collector.committed(&[], &BTreeSet::new());
    while world.packs.has(OLD).await.unwrap() {
        if collector.has_work() {
            collector.step(&committer).await.unwrap();
        }
        collector.over();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    while collector.current_status().orphans_deleted == 0 {
        tokio::task::yield_now().await;
    }
    task.abort();
}
