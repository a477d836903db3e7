//! The time of a clone and of a restore.

use forebay_meta::record::{Content, InodeRecord, Kind, NameRecord, PackRecord};
use forebay_meta::{Batch, Catalog, Key, Overlay, SlateSettings, SlateStore};
use forebay_types::{CommitNumber, PackId};

use super::*;

/// Time of clone and restore: of 1,000,000 files, 10,000 packs without objects, and 10,000 others and all attributes changed in the newest state.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stdout, reason = "a measurement is printed")]
fn measured_clones_and_restores() {
    run(|| async {
        let place = Place::of(Expected::NotSealed).await;
        let store = place.store().await;
        let meta = || async {
            let (store, path) = (store.store.clone(), store.path("meta"));
            SlateStore::open(store, path, SlateSettings::default())
                .await
                .unwrap()
        };
        let fill = |mode: u32| {
            let meta = &meta;
            async move {
                let open = meta().await;
                let catalog = Catalog::new(Arc::new(Overlay::new()), Arc::new(open));
                let root = catalog
                    .record::<InodeRecord>(&Key::Inode(Inode::ROOT))
                    .await
                    .unwrap()
                    .unwrap();
                for first in (0..1_000_000_u64).step_by(20_000) {
                    let mut batch = Batch::new();
                    for number in first..first + 20_000 {
                        let (inode, cookie) = (Inode(number + 100), number + 3);
                        let name = format!("a-file-with-a-name-of-usual-length-{number}");
                        let record = InodeRecord {
                            content: Content::Regular,
                            mode,
                            ..root.clone()
                        };
                        batch.put(&Key::Inode(inode), &record);
                        if mode == 0o600 {
                            let entry = NameRecord {
                                kind: Kind::Regular,
                                inode,
                                cookie,
                            };
                            batch.put(&Key::Name(Inode::ROOT, name.into_bytes().into()), &entry);
                        }
                        if number % 100 == 0 {
                            let account = PackRecord {
                                bytes: 8 << 20,
                                raw_bytes: 8 << 20,
                                live_bytes: 8 << 20,
                                frames: 32,
                                born: CommitNumber(0),
                            };
                            let pack = (1 << 40) + number + u64::from(mode == 0o644) * 5;
                            batch.put(&Key::Pack(PackId(pack)), &account);
                        }
                    }
                    while catalog.store().commit(&batch).await.is_err() {}
                }
                catalog.store().close().await.unwrap();
            }
        };
        fill(0o600).await;
        let volume = opened(&place).await;
        volume.make_snapshot("s", "a test").await.unwrap();
        volume.flush().await.unwrap();
        close(volume).await;
        fill(0o644).await;
        let bytes = |name: &str| {
            let all = place::files(&place.bucket().join(name));
            all.iter()
                .map(|file| std::fs::metadata(file).unwrap().len())
                .sum::<u64>()
        };
        println!("metadata: {} MiB", bytes("meta") >> 20);
        let other = empty(&Expected::NotSealed);
        let begun = std::time::Instant::now();
        clone(&place, &other, "s").await.unwrap();
        println!("clone: {:.2} s", begun.elapsed().as_secs_f64());
        let begun = std::time::Instant::now();
        restored(&place, "s", "before").await.unwrap();
        println!("restore: {:.2} s", begun.elapsed().as_secs_f64());
    });
}
