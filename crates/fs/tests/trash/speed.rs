//! How fast the trash is.

use std::time::Duration;

use forebay_types::Inode;
use forebay_vfs::{CreateMode, Credentials, FileSystem, SetAttributes, Stability};
use futures_util::StreamExt;
use futures_util::stream::iter;

use super::*;

/// Measures how fast the trash is filled, listed and emptied.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stdout, reason = "a measurement is printed")]
fn measured_entries_a_second() {
    const FILES: u64 = 100_000;
    /// Calls at the same time, which share flushes of the log.
    const AT_ONCE: usize = 256;
    let (bucket, clock) = (Bucket::new(), Still::new());
    let life = start(&bucket, &clock, |config| {
        config.checkpoint_interval = Duration::from_secs(1);
    });
    let rate = |begun: std::time::Instant| FILES as f64 / begun.elapsed().as_secs_f64();
    let names: Vec<Vec<u8>> = (0..FILES)
        .map(|n| format!("file-{n}").into_bytes())
        .collect();
    let run = |caller: Credentials| {
        life.run(|volume| {
            let names = &names;
            async move {
                let volume = &volume;
                let begun = std::time::Instant::now();
                let made = iter(names).map(|name| async move {
                    let mode = CreateMode::Guarded(SetAttributes::default());
                    let made = volume.create(&ROOT, Inode::ROOT, name, &mode).await;
                    let (inode, caller) = (made.unwrap().attributes.inode, ROOT);
                    let written = volume.write(&caller, inode, 0, name, Stability::Unstable);
                    written.await.unwrap();
                });
                made.buffer_unordered(AT_ONCE).collect::<()>().await;
                println!("made and written: {:.0} a second", rate(begun));
                volume.flush().await.unwrap();
                let begun = std::time::Instant::now();
                let removed = iter(names).map(|name| async {
                    let removed = volume.remove(&caller, Inode::ROOT, name);
                    removed.await.unwrap();
                });
                removed.buffer_unordered(AT_ONCE).collect::<()>().await;
                begun
            }
        })
    };
    let begun = run(ROOT);
    println!("REMOVE without trash: {:.0} a second", rate(begun));
    let begun = run(keeping(1));
    println!("REMOVE with trash: {:.0} a second", rate(begun));
    life.flush();
    let begun = std::time::Instant::now();
    life.run(|volume| async move {
        let (mut after, mut all) = (None, 0);
        loop {
            let page = volume.trash_after(after, 1024).await.unwrap();
            all += page.entries.len();
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(all as u64, FILES);
    });
    println!("listed: {:.0} a second", rate(begun));
    clock.pass(2 * HOUR);
    let begun = std::time::Instant::now();
    eventually("the trash is empty", || count(&life) == (0, 0));
    println!("emptied by the task: {:.0} a second", rate(begun));
}
