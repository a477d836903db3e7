//! The publisher over a source of checkpoints that a test makes, without a volume.

mod lost;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_meta::log_record::DataHeader;
use forebay_meta::record::{DeadPack, PackLife, SnapshotRecord};
use forebay_meta::{Batch, Key, VolumeDescriptor};
use forebay_metrics::{Samples, Source, Value};
use forebay_types::{
    BlockIndex, BlockKey, CheckpointId, CommitNumber, Inode, Lsn, PackId, SnapshotId,
};
use object_store::ObjectStoreExt;

use super::context::fake::FakeSource;
use super::*;
use crate::FsConfig;
use crate::testing::{Idle, Recorder, World};

const FILE: Inode = Inode(5);

struct Scene {
    world: World,
    source: Arc<FakeSource>,
    recorder: Arc<Recorder>,
    publisher: Arc<Publisher>,
}

async fn scene_with(
    between: Vec<Arc<dyn BetweenCheckpoints>>,
    change: impl FnOnce(&mut FsConfig),
) -> Scene {
    let world = World::new(change);
    // It is checked now and then.
    let descriptor = VolumeDescriptor::location(&world.store.root);
    let content = Bytes::from_static(b"it is there").into();
    world.store.store.put(&descriptor, content).await.unwrap();
    let source = Arc::new(FakeSource::new(world.catalog.clone()));
    let recorder = Arc::new(Recorder::default());
    let committer = world.committer(vec![recorder.clone()]);
    let context = Context {
        config: world.config.clone(),
        environment: world.environment.clone(),
        catalog: world.catalog.clone(),
        packs: world.packs.clone(),
        sharing: world.sharing.clone(),
        memory: world.memory.clone(),
        eager: world.eager.clone(),
        accounts: Arc::new(world.accounts().await),
        signals: world.signals.clone(),
        trouble: world.trouble.clone(),
        damages: world.damages.clone(),
        snapshots: Arc::new(crate::state::SnapshotList::new(0, Default::default(), [])),
        source: source.clone(),
        foreground: Arc::new(Idle),
        fragments: Arc::new(crate::fragments::Fragments::new(None)),
    };
    let proof = Arc::new(Proof::new(&world.store));
    Scene {
        publisher: Arc::new(Publisher::new(context, committer, proof, between)),
        world,
        source,
        recorder,
    }
}

async fn scene() -> Scene {
    scene_with(Vec::new(), |_| {}).await
}

impl Scene {
    /// Writes to a file in the open checkpoint.
    fn write(&self, data: &[u8]) -> Arc<crate::state::Node> {
        let node = self.world.file(FILE);
        let open = self.source.open_checkpoint();
        let header = DataHeader {
            inode: FILE,
            offset: 0,
            time: Default::default(),
            mode: 0o600,
        };
        let mut state = node.lock();
        state.begin_change(open);
        state.apply_write(&header, data, 0, open, None);
        drop(state);
        self.source.change(&node);
        node
    }

    async fn packs(&self) -> usize {
        let packs = futures_util::StreamExt::collect::<Vec<_>>(self.world.packs.list());
        packs.await.len()
    }
}

#[tokio::test]
async fn a_closed_checkpoint_becomes_the_state_of_the_bucket() {
    let scene = scene().await;
    let node = scene.write(&[7; 10_000]);
    scene.publisher.publish_open().await.unwrap();
    let catalog = &scene.world.catalog;
    let record = catalog.inode(FILE).await.unwrap().unwrap();
    assert_eq!(
        (record.size, record.used, record.mode),
        (10_000, 10_000, 0o600)
    );
    let map = catalog.block_map(FILE, BlockIndex(0)).await.unwrap();
    assert_eq!(map.unwrap().mapped_bytes(), 10_000);
    assert_eq!(scene.packs().await, 1);
    let state = catalog.volume_state().await.unwrap().unwrap();
    assert_eq!(state.published, scene.publisher.progress().published());
    assert_eq!(*scene.source.calls.lock(), ["published 10", "recycle 100"]);
    assert_eq!(
        scene.recorder.events.lock().last().unwrap(),
        "committed 1 accounts"
    );
    assert_eq!(node.lock().blocks.dirty_bytes(), 0, "it may be evicted");
}

#[tokio::test]
async fn nothing_is_done_for_a_checkpoint_without_changes() {
    let scene = scene().await;
    scene.publisher.publish_open().await.unwrap();
    assert_eq!(scene.packs().await, 0);
    assert!(scene.source.calls.lock().is_empty());
    assert!(scene.recorder.events.lock().is_empty());
}

#[tokio::test]
async fn what_is_written_while_a_checkpoint_is_uploaded_belongs_to_the_next_one() {
    let scene = scene().await;
    let node = scene.write(&[7; 100]);
    let closed = scene.source.close().unwrap();
    let open = scene.source.open_checkpoint();
    let header = DataHeader {
        inode: FILE,
        offset: 0,
        time: Default::default(),
        mode: 0o644,
    };
    {
        let mut state = node.lock();
        state.begin_change(open);
        state.apply_write(&header, &[8; 200], 0, open, None);
    }
    let uploaded = scene.publisher.upload(&closed).await.unwrap();
    scene.publisher.publish(closed, uploaded).await.unwrap();
    let record = scene.world.catalog.inode(FILE).await.unwrap().unwrap();
    assert_eq!((record.size, record.mode), (100, 0o600));
    assert!(node.lock().blocks.dirty_bytes() >= 200);
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_does_not_answer_is_waited_out() {
    let scene = scene().await;
    scene.write(&[7; 100]);
    scene.world.faults.set_down(true);
    let publisher = scene.publisher.clone();
    let publishing = tokio::spawn(async move { publisher.publish_open().await });
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(!publishing.is_finished());
    assert!(scene.world.trouble.current().is_some(), "status says so");
    assert!(scene.source.calls.lock().is_empty());
    scene.world.faults.set_down(false);
    publishing.await.unwrap().unwrap();
    assert_eq!(scene.world.trouble.current(), None);
    assert_eq!(scene.packs().await, 1);
    let samples = Samples::of([&scene.publisher.times as &dyn Source]);
    let seconds = |name, labels: &[&str]| {
        let mut samples = samples.iter();
        let sample = samples.find(|it| it.family.name == name && it.labels == labels);
        match sample.map(|sample| &sample.value) {
            Some(Value::Histogram(times)) => (times.count(), times.sum() >= 600.0),
            other => panic!("{name}: {other:?}"),
        }
    };
    assert_eq!(seconds("checkpoint_duration_seconds", &[]), (1, true));
    let stage = "checkpoint_stage_duration_seconds";
    // Its addresses were known at once; the metadata had to wait for the pack.
    assert_eq!(seconds(stage, &["uploading"]), (1, false));
    assert_eq!(seconds(stage, &["publishing"]), (1, true));
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_a_publication_that_waits() {
    let scene = scene().await;
    scene.write(&[7; 100]);
    scene.world.faults.set_down(true);
    let publisher = scene.publisher.clone();
    let publishing = tokio::spawn(async move { publisher.publish_open().await });
    tokio::time::sleep(Duration::from_secs(60)).await;
    scene.world.signals.stop_quietly();
    assert!(publishing.await.unwrap().is_err());
    assert!(
        scene.source.calls.lock().is_empty(),
        "nothing was published"
    );
}

/// Commits one note, once.
#[derive(Default)]
struct OneNote {
    done: AtomicU32,
    overs: AtomicU32,
}

#[async_trait]
impl BetweenCheckpoints for OneNote {
    fn has_work(&self) -> bool {
        self.done.load(Ordering::Relaxed) == 0
    }

    async fn step(&self, committer: &Committer) -> Result<(), Halted> {
        let mut batch = forebay_meta::Batch::new();
        let block = BlockKey {
            inode: FILE,
            block: BlockIndex(9),
        };
        let key = forebay_meta::Key::Referrer(PackId(1), block);
        batch.put(&key, &forebay_meta::record::Referrer);
        let state = committer.progress.state();
        committer
            .commit(batch, AccountUpdates::default(), state, None)
            .await?;
        self.done.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn over(&self) {
        self.overs.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn an_engine_commits_in_its_turn_and_a_flush_is_answered_after_its_checkpoint() {
    let note = Arc::new(OneNote::default());
    let scene = scene_with(vec![note.clone()], |config| {
        config.checkpoint_interval = Duration::from_secs(3600);
    })
    .await;
    let task = tokio::spawn(scene.publisher.clone().publish_forever());
    scene.write(&[7; 100]);
    let published = scene.publisher.flush().await.unwrap();
    assert_eq!(published, Lsn(100));
    while note.done.load(Ordering::Relaxed) == 0 || note.overs.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(note.done.load(Ordering::Relaxed), 1);
    task.abort();
}

/// Has work from some time on.
struct Later {
    due: Instant,
    done: AtomicU32,
}

#[async_trait]
impl BetweenCheckpoints for Later {
    fn has_work(&self) -> bool {
        self.due <= Instant::now() && self.done.load(Ordering::Relaxed) == 0
    }

    async fn step(&self, _: &Committer) -> Result<(), Halted> {
        self.done.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn over(&self) {}

    fn next_at(&self) -> Option<Instant> {
        (self.done.load(Ordering::Relaxed) == 0).then_some(self.due)
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_has_work_later_gets_its_step_although_nothing_else_happens() {
    let due = Instant::now() + Duration::from_secs(5);
    let later = Arc::new(Later {
        due,
        done: AtomicU32::new(0),
    });
    let scene = scene_with(vec![later.clone()], |_| {}).await;
    // There is none, and nobody looks for some.
    scene.world.progress.nothing_to_reclaim();
    let task = tokio::spawn(scene.publisher.clone().publish_forever());
    tokio::time::sleep_until(due - Duration::from_millis(1)).await;
    assert_eq!(later.done.load(Ordering::Relaxed), 0);
    tokio::time::sleep_until(due + Duration::from_millis(1)).await;
    assert_eq!(later.done.load(Ordering::Relaxed), 1);
    task.abort();
}

#[tokio::test]
async fn reclaiming_does_not_go_on_and_on_beside_a_page_of_dead_packs_that_are_pinned() {
    let scene = scene().await;
    let (world, publisher) = (&scene.world, &scene.publisher);
    let (pinning, pinned) = (CheckpointId(7), 64);
    let mut batch = forebay_meta::Batch::new();
    // One more, behind a whole page of them.
    for number in 1..=pinned + 1 {
        let pack = PackId(number);
        world
            .packs
            .put(pack, Bytes::from_static(b"x"))
            .await
            .unwrap();
        let dead = forebay_meta::record::DeadPack::default();
        batch.put(&forebay_meta::Key::DeadPack(pack), &dead);
        if number <= pinned {
            assert_eq!(world.sharing.pin(pinning, pack), Some(false));
        }
    }
    world.catalog.store().commit(&batch).await.unwrap();
    let steps = async || {
        let mut steps = 0;
        world.progress.note_garbage();
        while world.progress.has_garbage() && steps < 10 {
            publisher.reclaim().await.unwrap();
            publisher.delete_group().await;
            steps += 1;
        }
        steps
    };
    assert_eq!(steps().await, 1, "nothing changes before a publication");
    assert_eq!(scene.packs().await, 65);
    world.sharing.published(pinning);
    assert!(steps().await < 10);
    assert_eq!(scene.packs().await, 0);
}

/// A crash after the deletion of the object must not leave a record by which the snapshot would hold it again.
#[tokio::test]
async fn that_a_released_snapshot_holds_no_pack_is_noted_before_its_object_is_deleted() {
    let scene = scene().await;
    let (world, publisher) = (&scene.world, &scene.publisher);
    let list = &publisher.context.snapshots;
    let record = SnapshotRecord {
        is_being_deleted: true,
        commit: CommitNumber(3),
        lsn: Lsn(0),
        used_bytes: 0,
        used_inodes: 0,
        made: Default::default(),
        name: "monday".to_owned(),
        made_by: String::new(),
    };
    list.set_published(SnapshotId(1), record);
    list.set_released(SnapshotId(1));
    let (pack, content) = (PackId(1), Bytes::from_static(b"x"));
    world.packs.put(pack, content).await.unwrap();
    let key = Key::DeadPack(pack);
    let life = PackLife {
        born: CommitNumber(1),
        died: CommitNumber(5),
        bytes: 1,
    };
    let mut batch = Batch::new();
    batch.put(&key, &DeadPack { life: Some(life) });
    world.catalog.store().commit(&batch).await.unwrap();
    let mut seen = Vec::new();
    world.progress.note_garbage();
    while world.progress.has_garbage() && seen.len() < 10 {
        publisher.reclaim().await.unwrap();
        publisher.delete_group().await;
        let record = world.catalog.record::<DeadPack>(&key).await.unwrap();
        seen.push((record, scene.packs().await));
    }
    let noted = Some(DeadPack { life: None });
    assert_eq!(seen[..2], [(noted, 1), (noted, 0)]);
    assert_eq!(seen.last(), Some(&(None, 0)));
}

#[tokio::test]
async fn a_publication_does_not_wait_for_dead_packs_whose_deletions_hang() {
    let scene = scene().await;
    let (world, publisher) = (&scene.world, &scene.publisher);
    let mut batch = forebay_meta::Batch::new();
    // More than a page of them.
    for number in 1..=70 {
        let pack = PackId(number);
        let content = Bytes::from_static(b"x");
        world.packs.put(pack, content).await.unwrap();
        let dead = forebay_meta::record::DeadPack::default();
        batch.put(&forebay_meta::Key::DeadPack(pack), &dead);
    }
    world.catalog.store().commit(&batch).await.unwrap();
    let deletes = &world.faults.pack_deletes;
    deletes.close();
    let task = tokio::spawn(publisher.clone().delete_forever());
    publisher.reclaim().await.unwrap();
    while deletes.held() < 8 {
        tokio::task::yield_now().await;
    }
    scene.write(&[7; 10_000]);
    publisher.publish_open().await.unwrap();
    publisher.reclaim().await.unwrap();
    assert!(
        !world.progress.has_garbage(),
        "the publisher looks again when the bucket has answered"
    );
    assert_eq!(scene.packs().await, 71);
    deletes.open();
    let range = forebay_meta::KeyRange::dead_packs();
    let left = async || {
        let left = world
            .catalog
            .records::<forebay_meta::record::DeadPack>(&range, 100);
        left.await.unwrap().len()
    };
    while left().await > 0 {
        match world.progress.has_garbage() {
            true => publisher.reclaim().await.unwrap(),
            false => tokio::task::yield_now().await,
        }
    }
    assert_eq!(scene.packs().await, 1, "the one that is live");
    assert_eq!(deletes.most_held(), 8);
    task.abort();
}

#[tokio::test]
async fn refused_deletions_are_tried_again_after_the_next_publication() {
    let scene = scene().await;
    let (world, publisher) = (&scene.world, &scene.publisher);
    let content = Bytes::from_static(b"x");
    world.packs.put(PackId(1), content).await.unwrap();
    let mut batch = forebay_meta::Batch::new();
    let dead = forebay_meta::record::DeadPack::default();
    batch.put(&forebay_meta::Key::DeadPack(PackId(1)), &dead);
    world.catalog.store().commit(&batch).await.unwrap();
    world.faults.set_deletes_refused(true);
    publisher.reclaim().await.unwrap();
    publisher.delete_group().await;
    assert!(!world.progress.has_garbage());
    world.faults.set_deletes_refused(false);
    // Not again and again before that.
    publisher.reclaim().await.unwrap();
    publisher.delete_group().await;
    assert_eq!(scene.packs().await, 1);
    scene.write(&[7; 10_000]);
    publisher.publish_open().await.unwrap();
    assert!(world.progress.has_garbage());
    publisher.reclaim().await.unwrap();
    publisher.delete_group().await;
    assert_eq!(scene.packs().await, 1, "the one that is live");
}
