//! The healer over files that only return prepared answers.

use std::sync::Arc;

use forebay_types::{BlockIndex, BlockKey, ByteRange, Inode, PackId};
use tokio::time::Instant;

use super::context::fake::FakeFiles;
use super::*;

fn place(offset: u32) -> BlockFrame {
    BlockFrame {
        pack: PackId(1),
        offset,
        block: BlockKey {
            inode: Inode(9),
            block: BlockIndex(0),
        },
    }
}

fn note(damages: &Damages, offset: u32) {
    damages.note(place(offset), ByteRange::new(0, 8), "why");
}

/// Lets the healer run until it waits for a change of the list.
async fn until_idle() {
    tokio::time::sleep(Duration::from_secs(3600)).await;
}

#[tokio::test(start_paused = true)]
async fn each_frame_is_healed_once_and_what_is_lost_is_named() {
    let (damages, files) = (Arc::new(Damages::default()), Arc::new(FakeFiles::default()));
    *files.answers.lock() = vec![Ok(DamageState::Lost), Ok(DamageState::Healed)];
    let healer = Arc::new(Healer::new(damages.clone(), files.clone()));
    note(&damages, 40);
    note(&damages, 80);
    let task = tokio::spawn(healer.run_forever());
    until_idle().await;
    assert_eq!(*files.healed.lock(), [place(40), place(80)]);
    let (list, _) = damages.list();
    let states: Vec<_> = list.iter().map(|frame| frame.state).collect();
    assert_eq!(states, [DamageState::Healed, DamageState::Lost]);
    assert_eq!(list[1].path.as_deref(), Some(&b"/file"[..]));
    assert_eq!(*files.searches.lock(), 1);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_frame_is_tried_again_while_the_bucket_does_not_answer() {
    let (damages, files) = (Arc::new(Damages::default()), Arc::new(FakeFiles::default()));
    *files.answers.lock() = vec![
        Ok(DamageState::Healed),
        Err(Error::Delay),
        Err(Error::Delay),
    ];
    let healer = Arc::new(Healer::new(damages.clone(), files.clone()));
    note(&damages, 40);
    let task = tokio::spawn(healer.run_forever());
    until_idle().await;
    assert_eq!(files.healed.lock().len(), 3);
    assert_eq!(damages.lost(), 0);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn searches_for_paths_are_seconds_apart() {
    let (damages, files) = (Arc::new(Damages::default()), Arc::new(FakeFiles::default()));
    let healer = Arc::new(Healer::new(damages.clone(), files.clone()));
    let task = tokio::spawn(healer.run_forever());
    let began = Instant::now();
    for offset in 0..5 {
        note(&damages, offset);
        while !damages.nameless().is_empty() || !damages.found(1).is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    assert!(began.elapsed() >= 4 * BETWEEN_SEARCHES);
    assert_eq!(*files.searches.lock(), 5);
    task.abort();
}
