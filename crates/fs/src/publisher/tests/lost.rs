//! Bytes that the log alone had and cannot return.

use forebay_cache::{Arrived, Spilled};
use forebay_types::BLOCK_SIZE;
use forebay_wal::ReadFailed;

use super::*;
use crate::damages::DamageState;
use crate::state::{LoggedBytes, Node};

const LEN: usize = 10_000;

fn damaged() -> ReadFailed {
    ReadFailed::Damaged {
        segment: "7.seg".to_owned(),
        why: "it was flipped".to_owned(),
    }
}

fn unreadable() -> ReadFailed {
    ReadFailed::Unreadable {
        segment: "7.seg".to_owned(),
        why: "EIO".to_owned(),
    }
}

fn not_opened() -> ReadFailed {
    ReadFailed::NotOpened {
        segment: "7.seg".to_owned(),
        why: "EMFILE".to_owned(),
    }
}

/// A file with the first bytes of each of these blocks in the log alone; the log gives these answers.
async fn spilled(blocks: u64, answers: Vec<Result<LoggedBytes, ReadFailed>>) -> (Scene, Arc<Node>) {
    let scene = scene().await;
    let node = scene.world.file(FILE);
    let open = scene.source.open_checkpoint();
    {
        let mut state = node.lock();
        state.begin_change(open);
        for block in 0..blocks {
            let header = DataHeader {
                inode: FILE,
                offset: block * BLOCK_SIZE,
                time: Default::default(),
                mode: 0o600,
            };
            state.apply_write(&header, &[7; LEN], 0, open, Some(Lsn(block)));
            let mut spill = || state.blocks.spill(BlockIndex(block), Lsn(blocks));
            let spilled = match spill() {
                Spilled::Touched => spill(),
                other => other,
            };
            assert!(matches!(spilled, Spilled::Freed(_)), "{spilled:?}");
        }
    }
    scene.source.change(&node);
    *scene.source.log.lock() = answers.into_iter().rev().collect();
    (scene, node)
}

fn bytes(block: u64) -> LoggedBytes {
    at(Lsn(block), block * BLOCK_SIZE)
}

fn at(lsn: Lsn, offset: u64) -> LoggedBytes {
    LoggedBytes::invented(lsn, offset, Arrived::new(Bytes::from_static(&[7; LEN])))
}

/// The lost ranges of the file.
fn lost(scene: &Scene) -> Vec<(u64, u64)> {
    let (list, more) = scene.world.damages.list();
    assert_eq!(more, 0);
    let ranges = list.iter().map(|frame| {
        assert_eq!((frame.inode, frame.state), (FILE, DamageState::Found));
        (frame.from, frame.to)
    });
    ranges.collect()
}

#[tokio::test(start_paused = true)]
async fn a_record_that_comes_at_last_is_not_lost() {
    let mut answers: Vec<_> = [damaged(), unreadable(), not_opened(), ReadFailed::Gone]
        .map(Err)
        .into();
    answers.push(Ok(bytes(0)));
    let (scene, node) = spilled(1, answers).await;
    scene.publisher.publish_open().await.unwrap();
    assert!(lost(&scene).is_empty());
    assert_eq!(node.lock().blocks.dirty_bytes(), 0);
    assert!(scene.source.log.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_record_that_the_disk_never_returns_is_lost_and_the_volume_goes_on() {
    for failure in [damaged, unreadable] {
        // One attempt more would be answered otherwise.
        let answers = (0..7).map(|_| Err(failure())).collect();
        let (scene, node) = spilled(1, answers).await;
        scene.publisher.publish_open().await.unwrap();
        assert_eq!(lost(&scene), [(0, LEN as u64)]);
        let (list, _) = scene.world.damages.list();
        let why = format!("only the log had them, at LSN 0: {}", failure());
        assert_eq!(list[0].why, why);
        let map = scene.world.catalog.block_map(FILE, BlockIndex(0)).await;
        let map = map.unwrap().unwrap();
        assert_eq!(map.mapped_bytes(), LEN as u64, "it is no hole");
        assert_eq!(node.lock().blocks.dirty_bytes(), 0);
        assert_eq!(*scene.source.calls.lock(), ["published 10", "recycle 100"]);
        assert!(scene.world.signals.is_stopped().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn while_all_is_lost_each_block_is_tried_twice() {
    let answers = (0..7 + 2 + 2).map(|_| Err(unreadable())).collect();
    let (scene, _) = spilled(3, answers).await;
    scene.publisher.publish_open().await.unwrap();
    let ranges = (0..3).map(|block| (block * BLOCK_SIZE, block * BLOCK_SIZE + LEN as u64));
    assert_eq!(lost(&scene), ranges.collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn once_the_disk_has_answered_records_are_tried_as_often_as_before() {
    let mut answers: Vec<_> = (0..7).map(|_| Err(unreadable())).collect();
    answers.push(Ok(bytes(1)));
    answers.extend((0..6).map(|_| Err(unreadable())));
    answers.push(Ok(bytes(2)));
    let (scene, _) = spilled(3, answers).await;
    scene.publisher.publish_open().await.unwrap();
    assert_eq!(lost(&scene), [(0, LEN as u64)]);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_lacks_a_record_or_has_another_one_stops_the_volume_and_nothing_is_lost() {
    let other = || at(Lsn(0), 5 * BLOCK_SIZE);
    let answers: [fn() -> Result<LoggedBytes, ReadFailed>; 2] =
        [|| Err(not_opened()), || Err(ReadFailed::Gone)];
    let always = |answer: &dyn Fn() -> Result<LoggedBytes, ReadFailed>| {
        (0..7).map(|_| answer()).collect::<Vec<_>>()
    };
    let all = [
        always(&answers[0]),
        always(&answers[1]),
        always(&|| Ok(other())),
    ];
    for answers in all {
        let (scene, node) = spilled(1, answers).await;
        assert!(scene.publisher.publish_open().await.is_err());
        assert!(scene.world.signals.is_stopped().is_some());
        assert!(scene.source.calls.lock().is_empty());
        assert_eq!(node.lock().blocks.dirty_bytes(), LEN as u64);
        assert!(lost(&scene).is_empty());
    }
}
