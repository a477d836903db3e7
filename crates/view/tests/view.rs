//! Views of a volume that a gateway wrote.

use std::fs;
use std::sync::Arc;

use forebay_fs::{Expected, Volume};
use forebay_object::faults::{FaultKind, Faults, FaultyStore};
use forebay_types::Inode;
use forebay_vfs::{
    Access, Attributes, Credentials, DirectoryEntry, Error, FileKind, FileSystem, Listing, NewNode,
    SetAttributes, Stability,
};
use forebay_view::{View, ViewError};

#[path = "../../fsck/tests/place/mod.rs"]
#[allow(dead_code, reason = "each test uses some of it")]
mod place;
use place::{Place, WHO, close, create, key_file, make_directory, noise, try_make, write};

const MIB: usize = 1 << 20;

/// A caller that owns nothing.
fn stranger() -> Credentials {
    Credentials {
        uid: 1000,
        gid: 1000,
        ..Credentials::ROOT
    }
}

async fn view(place: &Place) -> View {
    View::open(&place.store().await, &place.expected)
        .await
        .unwrap()
}

async fn set_mode(volume: &Volume, inode: Inode, mode: u32) {
    let set = SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    };
    volume.setattr(&WHO, inode, &set, None).await.unwrap();
}

/// All entries of a directory, a few at a time.
async fn list(fs: &impl FileSystem, caller: &Credentials, directory: Inode) -> Vec<DirectoryEntry> {
    let mut entries: Vec<DirectoryEntry> = Vec::new();
    loop {
        let cookie = entries.last().map_or(0, |entry| entry.cookie);
        let page: Listing = fs
            .readdir(caller, directory, cookie, 3, true)
            .await
            .unwrap();
        assert!(page.entries.len() <= 3);
        assert!(page.end || page.entries.len() == 3);
        entries.extend(page.entries);
        if page.end {
            return entries;
        }
    }
}

async fn read(fs: &impl FileSystem, inode: Inode, offset: u64, count: u32) -> (Vec<u8>, bool) {
    let reply = fs.read(&WHO, inode, offset, count).await.unwrap();
    (
        reply.data.iter().flat_map(|part| part.to_vec()).collect(),
        reply.eof,
    )
}

/// Everything that a client can see of a file system, by path.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    objects: Vec<(Vec<u8>, u64, Attributes)>,
    contents: Vec<(Inode, Vec<u8>)>,
}

async fn see(fs: &impl FileSystem) -> Seen {
    let mut seen = Seen::default();
    let mut left = vec![(Vec::new(), Inode::ROOT)];
    while let Some((path, directory)) = left.pop() {
        for entry in list(fs, &WHO, directory).await {
            let path = [&path[..], b"/", &entry.name].concat();
            let attributes = fs.lookup(&WHO, directory, &entry.name).await.unwrap();
            assert_eq!(attributes.inode, entry.inode);
            assert_eq!(attributes, fs.getattr(entry.inode).await.unwrap());
            match attributes.kind {
                FileKind::Directory if !matches!(&entry.name[..], b"." | b"..") => {
                    left.push((path.clone(), entry.inode));
                }
                FileKind::Regular => {
                    let mut data = Vec::new();
                    loop {
                        let (part, end) = read(fs, entry.inode, data.len() as u64, 700_001).await;
                        data.extend(part);
                        if end {
                            break;
                        }
                    }
                    seen.contents.push((entry.inode, data));
                }
                FileKind::Symlink => {
                    let (target, _) = fs.readlink(&WHO, entry.inode).await.unwrap();
                    seen.contents.push((entry.inode, target.to_vec()));
                }
                _ => {}
            }
            seen.objects.push((path, entry.cookie, attributes));
        }
    }
    seen
}

/// A volume with objects of every kind, all of it published.
async fn filled(expected: Expected) -> (Place, Volume) {
    let place = Place::of(expected).await;
    // The volume deletes no pack while anything in it is referred to.
    let volume = place.open_with(|config| config.rewrite_below = 0).await;
    let folder = make_directory(&volume, Inode::ROOT, "folder").await;
    let below = make_directory(&volume, folder, "below").await;
    for (seed, len) in [(1, 0), (2, 5), (3, 70_000), (4, 9 * MIB)] {
        let file = create(&volume, folder, &format!("file-{seed}")).await;
        write(&volume, file, 0, &noise(seed, len)).await;
        set_mode(&volume, file, 0o640).await;
    }
    // Frames in two packs, over each other.
    volume.flush().await.unwrap();
    let file = volume.lookup(&WHO, folder, b"file-4").await.unwrap().inode;
    for (seed, at) in [(5, 10), (6, 4 * MIB - 100), (7, 9 * MIB - 1)] {
        write(&volume, file, at as u64, &noise(seed, 5000)).await;
    }
    let sparse = create(&volume, below, "sparse").await;
    write(&volume, sparse, 50 << 20, b"far behind").await;
    let shorter = create(&volume, below, "shorter").await;
    write(&volume, shorter, 0, &noise(8, 5 * MIB)).await;
    volume.flush().await.unwrap();
    for size in [100, 6 * MIB as u64] {
        let set = SetAttributes {
            size: Some(size),
            ..SetAttributes::default()
        };
        volume.setattr(&WHO, shorter, &set, None).await.unwrap();
    }
    volume.link(&WHO, sparse, folder, b"linked").await.unwrap();
    for (name, node) in [
        ("symlink", NewNode::Symlink(b"../elsewhere")),
        ("fifo", NewNode::Fifo),
        ("socket", NewNode::Socket),
    ] {
        try_make(&volume, below, name, node).await.unwrap();
    }
    volume.flush().await.unwrap();
    (place, volume)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_shows_what_the_volume_has_published() {
    for expected in [Expected::NotSealed, key_file(1)] {
        let (place, volume) = filled(expected).await;
        let view = view(&place).await;
        assert_eq!(view.volume(), volume.id());
        let seen = see(&view).await;
        assert_eq!(seen.contents.len(), 8);
        assert!(seen == see(&volume).await);
        let used = |fs: forebay_vfs::Statistics| fs.total_files - fs.free_files;
        let (mine, theirs) = (view.statistics().await, volume.statistics().await);
        assert_eq!(used(mine.unwrap()), used(theirs.unwrap()));
        close(volume).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_stays_as_it_was_while_the_volume_changes() {
    let (place, volume) = filled(Expected::NotSealed).await;
    let view_before = view(&place).await;
    let before = see(&view_before).await;
    let folder = volume
        .lookup(&WHO, Inode::ROOT, b"folder")
        .await
        .unwrap()
        .inode;
    let file = volume.lookup(&WHO, folder, b"file-4").await.unwrap().inode;
    write(&volume, file, 0, &noise(9, MIB)).await;
    volume.remove(&WHO, folder, b"file-3").await.unwrap();
    create(&volume, folder, "new").await;
    volume.flush().await.unwrap();
    let changed = see(&volume).await;
    assert!(changed != before);
    assert!(see(&view_before).await == before);
    assert!(see(&view(&place).await).await == changed);
    close(volume).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_refuses_every_change() {
    let (place, volume) = filled(Expected::NotSealed).await;
    close(volume).await;
    let view = view(&place).await;
    let (root, set) = (Inode::ROOT, SetAttributes::default());
    let mode = forebay_vfs::CreateMode::Guarded(set);
    let rofs = Some(Error::ReadOnly);
    assert_eq!(view.setattr(&WHO, root, &set, None).await.err(), rofs);
    let written = view.write(&WHO, root, 0, b"new", Stability::FileSync).await;
    assert_eq!(written.err(), rofs);
    assert_eq!(view.create(&WHO, root, b"new", &mode).await.err(), rofs);
    let made = view.make(&WHO, root, b"new", NewNode::Directory, &set);
    assert_eq!(made.await.err(), rofs);
    assert_eq!(view.remove(&WHO, root, b"folder").await.err(), rofs);
    assert_eq!(view.rmdir(&WHO, root, b"folder").await.err(), rofs);
    let renamed = view.rename(&WHO, (root, b"folder"), (root, b"new"));
    assert_eq!(renamed.await.err(), rofs);
    assert_eq!(view.link(&WHO, root, root, b"new").await.err(), rofs);
    assert_eq!(view.commit(&WHO, root, 0, 0).await.err(), rofs);
    let all = Access(0x3f);
    let (granted, _) = view.access(&WHO, root, all).await.unwrap();
    assert_eq!(granted.0, Access::READ.0 | Access::LOOKUP.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_checks_read_permission() {
    let (place, volume) = filled(Expected::NotSealed).await;
    let folder = volume.lookup(&WHO, Inode::ROOT, b"folder").await.unwrap();
    let file = volume.lookup(&WHO, folder.inode, b"file-3").await.unwrap();
    let closed = make_directory(&volume, Inode::ROOT, "closed").await;
    create(&volume, closed, "file").await;
    set_mode(&volume, closed, 0o744).await;
    volume.flush().await.unwrap();
    close(volume).await;
    let (view, caller) = (view(&place).await, stranger());
    let refused = view.read(&caller, file.inode, 0, 1).await;
    assert_eq!(refused.err(), Some(Error::Access));
    let refused = view.lookup(&caller, closed, b"file").await;
    assert_eq!(refused.err(), Some(Error::Access));
    // It may list the names, and gets nothing else.
    let entries = list(&view, &caller, closed).await;
    assert_eq!(entries.len(), 3);
    assert!(entries.iter().all(|entry| entry.attributes.is_none()));
    let (granted, _) = view.access(&caller, closed, Access(0x3f)).await.unwrap();
    assert_eq!(granted, Access::READ);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_names_what_does_not_exist_and_what_it_is_not() {
    let (place, volume) = filled(Expected::NotSealed).await;
    close(volume).await;
    let view = view(&place).await;
    let folder = view.lookup(&WHO, Inode::ROOT, b"folder").await.unwrap();
    let file = view.lookup(&WHO, folder.inode, b"file-2").await.unwrap();
    let missing = view.lookup(&WHO, Inode::ROOT, b"missing").await;
    assert_eq!(missing.err(), Some(Error::NotFound));
    let stale = view.getattr(Inode(1 << 40)).await;
    assert_eq!(stale.err(), Some(Error::Stale));
    let within = view.lookup(&WHO, file.inode, b"name").await;
    assert_eq!(within.err(), Some(Error::NotDirectory));
    let listed = view.readdir(&WHO, file.inode, 0, 10, false).await;
    assert_eq!(listed.err(), Some(Error::NotDirectory));
    let read = view.read(&WHO, folder.inode, 0, 1).await;
    assert_eq!(read.err(), Some(Error::IsDirectory));
    let target = view.readlink(&WHO, file.inode).await;
    assert_eq!(target.err(), Some(Error::Invalid));
    // At the file's end, and past any end.
    for offset in [5, 1 << 40, u64::MAX] {
        let reply = view.read(&WHO, file.inode, offset, 100).await.unwrap();
        assert!(reply.eof && reply.data.is_empty(), "{offset}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_packs_no_longer_hold_is_an_error_and_nothing_else() {
    let (place, volume) = filled(Expected::NotSealed).await;
    close(volume).await;
    let view = view(&place).await;
    for pack in place.packs() {
        fs::write(&pack, []).unwrap();
    }
    let folder = view.lookup(&WHO, Inode::ROOT, b"folder").await.unwrap();
    let file = view.lookup(&WHO, folder.inode, b"file-4").await.unwrap();
    let empty = view.lookup(&WHO, folder.inode, b"file-1").await.unwrap();
    let read = view.read(&WHO, file.inode, 0, 1).await;
    assert_eq!(read.err(), Some(Error::Io));
    let read = view.read(&WHO, empty.inode, 0, 1).await.unwrap();
    assert!(read.eof && read.data.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_bucket_does_not_answer_clients_ask_again() {
    let (place, volume) = filled(Expected::NotSealed).await;
    close(volume).await;
    let faults = Arc::new(Faults::default());
    let mut store = place.store().await;
    store.store = Arc::new(FaultyStore::new(store.store, faults.clone()));
    let view = View::open(&store, &place.expected).await.unwrap();
    let folder = view.lookup(&WHO, Inode::ROOT, b"folder").await.unwrap();
    let file = view.lookup(&WHO, folder.inode, b"file-2").await.unwrap();
    faults.only(".pack");
    faults.fail_at_random(FaultKind::ServerError, 1.0);
    let reply = view.read(&WHO, file.inode, 0, 5).await;
    assert_eq!(reply.err(), Some(Error::Delay));
    faults.heal();
    let (data, eof) = read(&view, file.inode, 0, 5).await;
    assert!(eof && data == noise(2, 5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_opens_only_what_is_expected() {
    let (mut place, volume) = filled(key_file(1)).await;
    close(volume).await;
    for expected in [Expected::NotSealed, key_file(2)] {
        place.expected = expected;
        let store = place.store().await;
        let opened = View::open(&store, &place.expected).await;
        assert!(matches!(opened.err(), Some(ViewError::Volume(_))));
    }
}
