//! Renames, one at a time and many at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_types::Inode;
use forebay_vfs::{CreateMode, Error, FileKind, FileSystem, NewNode, SetAttributes};

use super::TOP;
use crate::common::*;

#[test]
fn rename_replaces_files_and_empty_directories_and_nothing_else() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let (a, b) = (life.mkdir(TOP, b"a"), life.mkdir(TOP, b"b"));
    let (x, y) = (life.create_in(a, b"x"), life.create_in(b, b"y"));
    life.rename((a, b"x"), (b, b"y")).unwrap();
    assert_eq!(life.try_lookup(b, b"y").unwrap().inode, x);
    assert_eq!(life.getattr(y), Err(Error::Stale));
    assert_eq!(life.try_lookup(a, b"x"), Err(Error::NotFound));

    // Kinds must agree.
    assert_eq!(
        life.rename((TOP, b"a"), (b, b"y")),
        Err(Error::NotDirectory)
    );
    assert_eq!(life.rename((b, b"y"), (TOP, b"a")), Err(Error::IsDirectory));
    // Directories: only empty ones are replaced; links follow.
    let c = life.mkdir(a, b"c");
    assert_eq!(life.rename((TOP, b"b"), (TOP, b"a")), Err(Error::NotEmpty));
    life.rename((TOP, b"b"), (a, b"c")).unwrap();
    assert_eq!(life.getattr(c), Err(Error::Stale));
    assert_eq!(life.try_lookup(b, b"..").unwrap().inode, a);
    assert_eq!(life.getattr(a).unwrap().nlink, 3);
    assert_eq!(life.getattr(TOP).unwrap().nlink, 3);
    // Into itself or below itself.
    let d = life.mkdir(b, b"d");
    for to in [a, b, d] {
        assert_eq!(
            life.rename((TOP, b"a"), (to, b"new")),
            Err(Error::Invalid),
            "into {to}"
        );
    }
    // Over a directory that contains it, directly or indirectly.
    let e = life.mkdir(d, b"e");
    assert_eq!(life.rename((d, b"e"), (b, b"d")), Err(Error::NotEmpty));
    assert_eq!(life.rename((d, b"e"), (a, b"c")), Err(Error::NotEmpty));
    assert_eq!(life.rename((d, b"e"), (TOP, b"a")), Err(Error::NotEmpty));
    // Two names of one object: nothing happens.
    life.link(x, (b, b"other")).unwrap();
    life.rename((b, b"y"), (b, b"other")).unwrap();
    assert_eq!(life.getattr(x).unwrap().nlink, 2);
    life.rename((b, b"y"), (b, b"y")).unwrap();
    assert_eq!(life.try_lookup(b, b"y").unwrap().inode, x);
    for name in [&b"."[..], b".."] {
        assert_eq!(life.rename((b, name), (b, b"z")), Err(Error::Invalid));
        assert_eq!(life.rename((b, b"y"), (b, name)), Err(Error::Invalid));
    }
    assert_eq!(life.rename((b, b"none"), (b, b"z")), Err(Error::NotFound));
    life.crash();

    let life = bucket.start(|_| {});
    life.flush();
    life.crash();
    let life = bucket.start_elsewhere(|_| {});
    assert_eq!(life.try_lookup(a, b"c").unwrap().inode, b);
    assert_eq!(life.try_lookup(b, b"..").unwrap().inode, a);
    assert_eq!(life.try_lookup(d, b"e").unwrap().inode, e);
    assert_eq!(life.try_lookup(b, b"other").unwrap().inode, x);
}

#[test]
fn renames_over_a_distant_parent_and_removals_below_it_do_not_block_each_other() {
    let bucket = Bucket::new();
    let life = bucket.start(|_| {});
    let top = life.mkdir(TOP, b"top");
    let middle = life.mkdir(top, b"middle");
    life.create_in(middle, b"keep");
    for _ in 0..50 {
        let low = life.mkdir(middle, b"low");
        life.mkdir(low, b"moved");
        let rename = life.spawn(move |volume| async move {
            volume
                .rename(&ROOT, (low, b"moved"), (top, b"middle"))
                .await
                .map(drop)
        });
        let remove =
            life.spawn(
                move |volume| async move { volume.rmdir(&ROOT, middle, b"low").await.map(drop) },
            );
        assert_eq!(life.join(rename), Err(Error::NotEmpty));
        assert_eq!(life.join(remove), Err(Error::NotEmpty));
        life.rmdir(low, b"moved").unwrap();
        life.rmdir(middle, b"low").unwrap();
    }
}

#[test]
fn many_clients_at_once_leave_a_tree_that_is_whole() {
    let bucket = Bucket::new();
    let life = bucket.start(|config| config.memory_limit = 32 << 20);
    let directories: Vec<Inode> = (0..4u8).map(|i| life.mkdir(TOP, &[b'a' + i])).collect();
    let done = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..8u64)
        .map(|client| {
            let directories = directories.clone();
            life.spawn(move |volume| async move {
                let mut state = client + 1;
                for i in 0..150u64 {
                    state = state
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    let from = directories[(state >> 33) as usize % 4];
                    let to = directories[(state >> 40) as usize % 4];
                    let name = format!("n{}", (state >> 50) % 6);
                    let other = format!("n{}", (state >> 55) % 6);
                    let guarded = CreateMode::Unchecked(SetAttributes::default());
                    // Each may fail because others changed something before: only the resulting tree counts.
                    match i % 5 {
                        0 => drop(
                            volume
                                .rename(&ROOT, (from, name.as_bytes()), (to, other.as_bytes()))
                                .await,
                        ),
                        1 => drop(volume.remove(&ROOT, from, name.as_bytes()).await),
                        2 => drop(volume.rmdir(&ROOT, from, name.as_bytes()).await),
                        3 => drop(
                            volume
                                .make(
                                    &ROOT,
                                    from,
                                    name.as_bytes(),
                                    NewNode::Directory,
                                    &Default::default(),
                                )
                                .await,
                        ),
                        _ => {
                            if let Ok(made) =
                                volume.create(&ROOT, from, name.as_bytes(), &guarded).await
                            {
                                let _ = volume
                                    .link(&ROOT, made.attributes.inode, to, other.as_bytes())
                                    .await;
                            }
                        }
                    }
                }
            })
        })
        .collect();
    let flusher = {
        let done = done.clone();
        life.spawn(move |volume| async move {
            while !done.load(Ordering::SeqCst) {
                volume.flush().await.unwrap();
            }
        })
    };
    for client in clients {
        life.join(client);
    }
    done.store(true, Ordering::SeqCst);
    life.join(flusher);
    let inodes = check_tree(&life);
    life.flush();
    life.crash();
    assert_eq!(check_tree(&bucket.start_elsewhere(|_| {})), inodes);
}

/// Walks the tree: every name leads to an object, link counts are right, and no object is left over.
fn check_tree(life: &Life) -> BTreeMap<u64, u32> {
    let mut links: BTreeMap<u64, u32> = BTreeMap::new();
    let mut kinds = BTreeMap::from([(TOP.0, (FileKind::Directory, 2))]);
    let mut todo = vec![(TOP, TOP)];
    while let Some((directory, parent)) = todo.pop() {
        let mut below = 0;
        for entry in life.list(directory, 7) {
            match &entry.name[..] {
                b"." => assert_eq!(entry.inode, directory),
                b".." => assert_eq!(entry.inode, parent),
                name => {
                    let found = life.try_lookup(directory, name).unwrap();
                    assert_eq!(found.inode, entry.inode);
                    *links.entry(found.inode.0).or_default() += 1;
                    if found.kind == FileKind::Directory {
                        below += 1;
                        todo.push((found.inode, directory));
                    }
                    kinds.entry(found.inode.0).or_insert((found.kind, 0));
                }
            }
        }
        assert_eq!(life.getattr(directory).unwrap().nlink, 2 + below);
    }
    for (inode, (kind, _)) in &kinds {
        if *kind != FileKind::Directory {
            let nlink = life.getattr(Inode(*inode)).unwrap().nlink;
            assert_eq!(nlink, links[inode], "inode {inode}");
        } else {
            assert!(links.get(inode).copied().unwrap_or(1) == 1);
        }
    }
    let statistics = life.run(|volume| async move { volume.statistics().await.unwrap() });
    let used = statistics.total_files - statistics.free_files;
    assert_eq!(used, kinds.len() as u64, "objects without a name");
    links
}
